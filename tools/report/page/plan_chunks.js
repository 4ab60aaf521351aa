// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The tier of each state of each chunk: a row a chunk, a column a state.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('chunks');
  const pinned = d3.select('#chunks .pinned');
  pinned.selectAll('*').remove();
  const chunks = page.chunk_list || [];
  if (chunks.length === 0) return;
  const colours = {device: 'blue', host: 'sky', nvme: 'orange'};
  const states = castor.stateNames.filter((state) => chunks.some((chunk) => chunk.homes.some((one) => one.state === state)));
  castor.legend(figures, Object.entries(colours).map(([tier, colour]) => [`at home on ${castor.tiers[tier]}`, colour]));
  const row = Math.max(2, Math.min(16, Math.floor(560 / chunks.length)));
  const width = Math.min(castor.width(), 760);
  const left = castor.margin().left;
  const column = (width - left - 8) / states.length;
  const figure = castor.figure(figures, castor.count(chunks.length, 'chunk'));
  const stage = figure.append('div').attr('class', 'stage').attr('tabindex', 0).attr('role', 'application')
      .attr('aria-label', 'Homes of chunks. Arrow keys move, Enter pins a chunk.');
  const svg = stage.append('svg').attr('width', width).attr('height', row * chunks.length + 22);
  svg.append('g').selectAll('text').data(states).enter().append('text').attr('class', 'dim').attr('x', (_, i) => left + column * (i + 0.5)).attr('y', 14)
      .attr('text-anchor', 'middle').text((state) => state);
  const lines = svg.selectAll('g.chunk').data(chunks).enter().append('g').attr('class', 'chunk').attr('transform', (_, i) => `translate(0,${22 + row * i})`)
      .style('cursor', 'pointer');
  lines.each(function(chunk) {
    for (const one of chunk.homes) {
      d3.select(this).append('rect').attr('class', 'home').attr('x', left + column * states.indexOf(one.state) + 1).attr('width', column - 2)
          .attr('height', Math.max(1, row - (row > 5 ? 1 : 0))).attr('fill', `var(--${colours[one.tier]})`);
    }
  });
  const every = Math.max(1, Math.ceil(14 / row));
  lines.filter((_, i) => i % every === 0).append('text').attr('class', 'dim').attr('x', left - 6).attr('y', Math.min(row, 12) - 1).attr('text-anchor', 'end')
      .text((chunk) => castor.short(chunk));
  const tell = (chunk) => `chunk ${chunk.chunk}, ${castor.bytes(chunk.bytes)}: ${castor.names(chunk)}\n` +
      chunk.homes.map((one) => `${one.state} on ${one.tier}`).join('; ');
  const pin = (chunk) => castor.describe(pinned, chunk);
  castor.hover(lines, tell);
  lines.on('click', pin);
  let at = 0;
  stage.on('keydown', () => {
    const key = d3.event.key;
    if (key === 'ArrowUp' || key === 'ArrowDown') {
      at = Math.max(0, Math.min(chunks.length - 1, at + (key === 'ArrowDown' ? 1 : -1)));
      const box = stage.node().getBoundingClientRect();
      castor.tip(tell(chunks[at]), box.left + left, box.top + 22 + row * at);
    } else if (key === 'Enter') {
      pin(chunks[at]);
    } else {
      return;
    }
    d3.event.preventDefault();
  });
  stage.on('blur', () => castor.tip(''));
});
