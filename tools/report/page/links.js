// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Which link is busy when, at what rate, and what of it nobody hides.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('links');
  if (castor.shown && page.detail.links.length > 0) {
    const detail = page.detail;
    const height = 20 * detail.links.length;
    const kinds = castor.kinds.filter(([key]) => castor.shown.moves.some((move) => detail.states[move[4]] === key));
    castor.legend(figures, [...kinds.map(([key, , colour]) => [castor.states[key], colour]), ['the trainer waits meanwhile', 'red']]);
    const figure = castor.figure(figures, `when each link is busy on rank ${castor.shown.rank}, by what moves`);
    const {plot, x, margin, width} = castor.timeFrame(figure, castor.shown, height, 'When each link is busy over the step');
    const narrow = width < 600;
    plot.append('g').selectAll('text').data(detail.links).enter().append('text').attr('class', 'dim').attr('x', margin.left - 6)
        .attr('y', (_, i) => 20 * i + 14).attr('text-anchor', 'end').text((link) => narrow ? link.replace(' -> ', '→').slice(0, 9) : link);
    plot.append('g').selectAll('rect').data(castor.shown.stalls).enter().append('rect').attr('x', (s) => x(s[0])).attr('y', 0)
        .attr('width', (s) => Math.max(1, x(s[1]) - x(s[0]))).attr('height', height).attr('fill', 'var(--red)').attr('opacity', 0.25)
        .style('pointer-events', 'none');
    const moves = castor.shown.moves;
    const bars = plot.append('g').selectAll('rect').data(moves).enter().append('rect').attr('class', 'move').attr('x', (m) => x(m[1]))
        .attr('y', (m) => 20 * m[0] + 4).attr('width', (m) => Math.max(1, x(m[2]) - x(m[1]))).attr('height', 12)
        .attr('fill', (m) => `var(--${castor.kinds.find(([key]) => key === detail.states[m[4]])[2]})`);
    castor.hover(bars, (m) => `${detail.links[m[0]]}: chunk ${m[3]}, ${detail.states[m[4]]}, ${castor.bytes(m[6])} in ${castor.time(m[2] - m[1])}` +
        `\n${castor.bytes(m[6] / Math.max(1, m[2] - m[1]) * 1e9)} a second; why: ${detail.causes[m[5]]}`);
  }
  const moved = (link) => {
    const sums = castor.byName({});
    const index = page.detail ? page.detail.links.indexOf(link.link) : -1;
    for (const move of index < 0 ? [] : castor.shown.moves.filter((one) => one[0] === index)) {
      const state = page.detail.states[move[4]];
      sums[state] = (sums[state] || 0) + move[6];
    }
    return castor.kinds.filter(([key]) => sums[key] > 0).map(([key]) => `${castor.states[key]} ${castor.bytes(sums[key])}`).join(', ');
  };
  const columns = [
    ['link', (link) => link.link], ['moves in this step', moved], ['all steps', (link) => castor.bytes(link.moved_bytes), true],
    ['busy', (link) => castor.percent(link.busy_share), true], ['busy while the trainer waits', (link) => castor.time(link.unhidden_ns), true],
    ['rate while busy', (link) => `${link.gigabytes_per_second.toPrecision(3)} GB/s`, true],
  ];
  if (page.links.some((link) => link.machine_gigabytes_per_second)) {
    columns.push(['of what the machine does', (link) => link.machine_gigabytes_per_second ?
      castor.percent(link.gigabytes_per_second / link.machine_gigabytes_per_second) : 'not known', true]);
  }
  castor.table(figures, columns, page.links);
});
