// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What each chunk does over the step: a row a chunk, on a canvas, since there may be thousands of spans. What is pinned is told below it.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('chunks');
  const pinned = d3.select('#chunks .pinned');
  pinned.selectAll('*').remove();
  if (!castor.shown) return;
  const rank = castor.shown;
  const detail = page.detail;
  const chunks = page.chunk_list;
  const rowHeight = Math.max(3, Math.min(20, Math.floor(600 / Math.max(1, chunks.length))));
  const height = rowHeight * chunks.length;
  const there = new Set(rank.spans.map((span) => span[1]));
  castor.legend(figures, [...detail.activities.filter((_, i) => there.has(i)).map((name) => castor.activities[name]),
                          ['at home on the device', 'pale']]);
  const figure = castor.figure(figures, `rank ${rank.rank}, step ${detail.step}`);
  const stage = figure.append('div').attr('class', 'stage').attr('tabindex', 0).attr('role', 'application')
      .attr('aria-label', 'Chunks over the step. Arrow keys move, Enter pins a chunk.');
  const {svg, x, width, margin} = castor.timeFrame(stage, rank, height, 'What each chunk does over the step');
  const top = 16;

  // Names of rows, as many as there is room for.
  const every = Math.max(1, Math.ceil(14 / rowHeight));
  const wide = width >= 600;
  const home = (chunk) => {
    const param = chunk.homes.find((one) => one.state === 'param');
    return param ? param.tier : '';
  };
  svg.append('g').selectAll('text').data(chunks.filter((_, i) => i % every === 0)).enter().append('text').attr('class', 'dim')
      .attr('x', margin.left - 6).attr('y', (chunk) => top + rowHeight * (chunk.chunk + 0.5) + 4).attr('text-anchor', 'end')
      .text((chunk) => wide ? `${home(chunk)} ${castor.short(chunk)}` : `${home(chunk).slice(0, 1)} ${chunk.chunk}`);

  // Copies as whole bars; gradients, updates and waits as thinner ones over them.
  const spans = rank.spans.map(([chunk, activity, begin, end]) => ({chunk, activity: detail.activities[activity], begin, end}));
  const layer = {'fetched': 0, 'coming': 0, 'ready': 0, 'kept': 0, 'used': 1, 'gradient': 2, 'update': 2, 'waited for': 3};
  spans.sort((a, b) => layer[a.activity] - layer[b.activity]);
  const canvas = stage.append('canvas').style('left', '0px').style('top', `${top}px`).style('width', `${width}px`).style('height', `${height}px`);
  const ratio = window.devicePixelRatio || 1;
  canvas.attr('width', Math.round(width * ratio)).attr('height', Math.round(height * ratio));
  const context = canvas.node().getContext('2d');
  context.scale(ratio, ratio);
  const colours = {};
  for (const [name, [, colour]] of Object.entries(castor.activities)) colours[name] = castor.colour(colour);
  const gap = rowHeight > 5 ? 1 : 0;
  const paint = () => {
    context.clearRect(0, 0, width, height);
    context.fillStyle = castor.colour('pale');
    for (const chunk of chunks.filter((one) => home(one) === 'device')) {
      context.fillRect(margin.left, rowHeight * (chunk.chunk + 0.4), width - margin.left - margin.right, Math.max(1, rowHeight * 0.2));
    }
    for (const span of spans) {
      const thin = layer[span.activity] >= 2 ? (layer[span.activity] === 2 ? 0.34 : 0.16) : 0;
      const y = rowHeight * span.chunk + gap / 2 + (layer[span.activity] === 2 ? rowHeight * 0.33 : 0);
      context.fillStyle = colours[span.activity];
      context.fillRect(x(span.begin), y, Math.max(1, x(span.end) - x(span.begin)), thin ? Math.max(2, rowHeight * thin) : rowHeight - gap);
    }
    if (castor.pinned !== null) {
      context.strokeStyle = castor.colour('ink');
      context.lineWidth = 1.5;
      context.strokeRect(margin.left, rowHeight * castor.pinned + 0.5, width - margin.left - margin.right, rowHeight - 1);
    }
  };
  paint();

  const tell = (chunk, at) => {
    const now = spans.filter((span) => span.chunk === chunk && span.begin <= at && at <= span.end);
    const doing = now.map((span) => `${castor.activities[span.activity][0]} for ${castor.time(span.end - span.begin)}`);
    return `chunk ${chunk}, ${castor.bytes(chunks[chunk].bytes)}: ${castor.names(chunks[chunk])}\n` +
        `${castor.time(at)}: ${doing.length > 0 ? doing.join('; ') : 'only at home'}`;
  };
  const pin = (chunk) => {
    castor.pinned = chunk;
    paint();
    describe(chunk);
  };
  castor.pin = (chunk) => {
    pin(chunk);
    document.querySelector('#chunks .pinned').scrollIntoView({block: 'nearest'});
  };
  const chunkAt = (y) => Math.max(0, Math.min(chunks.length - 1, Math.floor(y / rowHeight)));
  canvas.on('mousemove', function() {
    const [px, py] = d3.mouse(this);
    castor.tip(tell(chunkAt(py), x.invert(px)), d3.event.clientX, d3.event.clientY);
  }).on('mouseleave', () => castor.tip('')).on('click', function() {
    pin(chunkAt(d3.mouse(this)[1]));
  });

  // The keyboard's cursor: a chunk and a time.
  let row = castor.pinned || 0;
  let at = castor.origin();
  stage.on('keydown', () => {
    const part = (castor.end() - castor.origin()) / 40;
    const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -part], ArrowRight: [0, part]};
    const key = d3.event.key;
    if (moves[key]) {
      row = Math.max(0, Math.min(chunks.length - 1, row + moves[key][0]));
      at = Math.max(castor.origin(), Math.min(castor.end(), at + moves[key][1]));
      const box = canvas.node().getBoundingClientRect();
      castor.tip(tell(row, at), box.left + x(at), box.top + rowHeight * row);
    } else if (key === 'Enter') {
      pin(row);
    } else if (key === 'Escape') {
      castor.tip('');
    } else {
      return;
    }
    d3.event.preventDefault();
  });
  stage.on('blur', () => castor.tip(''));
  if (castor.pinned !== null) describe(castor.pinned);

  function describe(number) {
    const chunk = chunks[number];
    castor.describe(pinned, chunk);
    const waits = rank.stalls.filter(([, , of]) => of === number);
    const waited = d3.sum(waits, ([begin, end]) => end - begin);
    pinned.append('p').text(waits.length > 0 ? `Waited for ${castor.count(waits.length, 'time')} in this step, ${castor.time(waited)} in all.` :
                                               'Nobody waits for it in this step.');
    const moves = rank.moves.filter(([, , , of]) => of === number);
    castor.table(pinned, [['at', (move) => castor.time(move[1]), true], ['for', (move) => castor.time(move[2] - move[1]), true],
                          ['link', (move) => detail.links[move[0]]], ['state', (move) => detail.states[move[4]]],
                          ['why', (move) => detail.causes[move[5]]], ['bytes', (move) => castor.bytes(move[6]), true]],
                 moves.slice(0, 40));
    if (moves.length > 40) pinned.append('p').text(`and ${moves.length - 40} more moves`);
  }
});
