// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Time in which lanes wait, by cause, each with the chunks that are waited for longest.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('stalls');
  if (page.stalls.length === 0) {
    figures.append('p').text('Nobody waits.');
    return;
  }
  const inSteps = d3.sum(page.ranks, (rank) => rank.steps_ns);
  const width = castor.width();
  const x = d3.scaleLinear().domain([0, page.stalls[0].time_ns]).range([0, Math.min(width, 900) - 260]);
  for (const stall of page.stalls) {
    const figure = castor.figure(figures, '');
    const share = inSteps > 0 ? `, ${castor.percent(stall.time_ns / inSteps)} of the steps` : '';
    figure.select('figcaption').text(`${castor.waits[stall.cause] || stall.cause}: ${castor.time(stall.time_ns)}${share}, ${castor.count(stall.count, 'time')}`);
    const svg = figure.append('svg').attr('width', width).attr('height', 22 * stall.worst_chunks.length).attr('role', 'img')
        .attr('aria-label', `Chunks that are waited for longest: ${stall.worst_chunks.map((w) => `chunk ${w.chunk}, ${castor.time(w.time_ns)}`).join('; ')}`);
    const rows = svg.selectAll('g').data(stall.worst_chunks).enter().append('g').attr('class', 'focusable').attr('tabindex', 0)
        .attr('transform', (_, i) => `translate(0,${22 * i})`).style('cursor', 'pointer');
    rows.append('text').attr('x', 0).attr('y', 15).text((w) => `chunk ${w.chunk}`);
    rows.append('rect').attr('class', 'wait').attr('x', 70).attr('y', 3).attr('height', 15).attr('fill', 'var(--red)')
        .attr('width', (w) => Math.max(1, x(w.time_ns)));
    rows.append('text').attr('x', (w) => 76 + x(w.time_ns)).attr('y', 15).attr('class', 'dim')
        .text((w) => `${castor.time(w.time_ns)}${width > 600 ? `  ${w.parameters.slice(0, 48)}` : ''}`);
    castor.hover(rows, (w) => `chunk ${w.chunk}: ${w.parameters}\nwaited for ${castor.count(w.count, 'time')}, ${castor.time(w.time_ns)}`);
    rows.on('click', (w) => castor.pin && castor.pin(w.chunk)).on('keydown', (w) => {
      if (d3.event.key === 'Enter' && castor.pin) castor.pin(w.chunk);
    });
    if (stall.hint) {
      figure.append('p').attr('class', 'note').text(`${stall.hint[0].toUpperCase()}${stall.hint.slice(1)}.`);
    }
  }
});
