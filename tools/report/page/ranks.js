// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What each rank did with its time in the steps, one bar a rank.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('ranks');
  const ranks = page.ranks;
  d3.select('#ranks').attr('hidden', ranks.length > 1 && page.complete_steps > 0 ? null : '');
  if (ranks.length < 2 || page.complete_steps === 0) return;
  castor.legend(figures, [['computing', 'blue'], ['waiting', 'red']]);
  const width = Math.min(castor.width(), 900);
  const row = ranks.length > 32 ? 8 : 22;
  const figure = castor.figure(figures, `time in all steps, ${castor.count(ranks.length, 'rank')}`);
  const svg = figure.append('svg').attr('width', width).attr('height', row * ranks.length + 30).attr('role', 'img')
      .attr('aria-label', ranks.slice(0, 16).map((rank) => `rank ${rank.rank} waits ${castor.percent(rank.stalled_ns / rank.steps_ns)}`).join('; '));
  const x = d3.scaleLinear().domain([0, d3.max(ranks, (rank) => rank.steps_ns)]).range([64, width - 12]);
  const rows = svg.selectAll('g').data(ranks).enter().append('g').attr('transform', (_, i) => `translate(0,${row * i})`);
  if (row > 12) rows.append('text').attr('y', 15).text((rank) => `rank ${rank.rank}`);
  rows.append('rect').attr('class', 'rank').attr('x', x(0)).attr('y', 2).attr('height', row - 5).attr('fill', 'var(--blue)')
      .attr('width', (rank) => x(rank.steps_ns - rank.stalled_ns) - x(0));
  rows.append('rect').attr('x', (rank) => x(rank.steps_ns - rank.stalled_ns)).attr('y', 2).attr('height', row - 5).attr('fill', 'var(--red)')
      .attr('width', (rank) => x(rank.steps_ns) - x(rank.steps_ns - rank.stalled_ns));
  castor.hover(rows, (rank) => `rank ${rank.rank}: ${castor.time(rank.steps_ns)} in steps, waits ${castor.time(rank.stalled_ns)}, ` +
      `optimizer at work ${castor.time(rank.updating_ns)}\nbytes under way ${castor.time(rank.moving_ns)}, of it not hidden ${castor.time(rank.unhidden_ns)}`);
  svg.append('g').attr('class', 'axis').attr('transform', `translate(0,${row * ranks.length})`).call(d3.axisBottom(x).ticks(5).tickFormat(castor.time));
});
