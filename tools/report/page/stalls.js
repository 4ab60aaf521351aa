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
  const steps = Math.max(1, page.complete_steps) * Math.max(1, page.ranks.length);
  for (const stall of page.stalls) {
    const rest = stall.time_ns - d3.sum(stall.worst_chunks, (one) => one.time_ns);
    const bars = [...stall.worst_chunks];
    if (rest > 0.01 * stall.time_ns) bars.push({chunk: null, parameters: 'all other chunks', time_ns: rest});
    const figure = castor.figure(figures, '');
    const share = inSteps > 0 ? `, ${castor.percent(stall.time_ns / inSteps)} of the steps` : '';
    figure.select('figcaption').text(`${castor.waits[stall.cause] || stall.cause}: ${castor.time(stall.time_ns / steps)} a step of a rank${share}; in all ${castor.time(stall.time_ns)}, ${castor.count(stall.count, 'time')}`);
    const svg = figure.append('svg').attr('width', width).attr('height', 22 * bars.length).attr('role', 'img')
        .attr('aria-label', `Chunks that are waited for longest: ${stall.worst_chunks.map((w) => `chunk ${w.chunk}, ${castor.time(w.time_ns)}`).join('; ')}`);
    const rows = svg.selectAll('g').data(bars).enter().append('g').attr('class', 'focusable').attr('tabindex', 0)
        .attr('transform', (_, i) => `translate(0,${22 * i})`).style('cursor', 'pointer');
    rows.append('text').attr('x', 0).attr('y', 15).text((w) => w.chunk === null ? 'others' : `chunk ${w.chunk}`);
    rows.append('rect').attr('class', 'wait').attr('x', 70).attr('y', 3).attr('height', 15).attr('fill', 'var(--red)')
        .attr('width', (w) => Math.max(1, x(w.time_ns)));
    rows.append('text').attr('x', (w) => 76 + x(w.time_ns)).attr('y', 15).attr('class', 'dim')
        .text((w) => `${castor.time(w.time_ns)}${width > 600 ? `  ${castor.cut(w.parameters, 56)}` : ''}`);
    castor.hover(rows, (w) => w.chunk === null ? `all other chunks: waited for ${castor.time(w.time_ns)}` :
      `chunk ${w.chunk}: ${w.parameters}\nwaited for ${castor.count(w.count, 'time')}, ${castor.time(w.time_ns)}`);
    rows.on('click', (w) => w.chunk !== null && castor.pin && castor.pin(w.chunk)).on('keydown', (w) => {
      if (d3.event.key === 'Enter' && w.chunk !== null && castor.pin) castor.pin(w.chunk);
    });
    if (stall.hint) {
      figure.append('p').attr('class', 'note').text(`${stall.hint}.`);
    }
  }
});
