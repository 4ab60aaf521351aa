// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Bytes on each tier over the step, stacked by kind, under the budget's line.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('memory');
  if (!castor.shown) {
    figures.append('p').text('The record has no whole step.');
    return;
  }
  const used = new Set();
  for (const tier of castor.shown.tiers) {
    for (const [key] of castor.kinds) {
      if (tier.home_bytes[key] > 0 || d3.max(tier.passing_bytes[key] || [0]) > 0) used.add(key);
    }
  }
  castor.legend(figures, castor.kinds.filter(([key]) => used.has(key)).map(([, word, colour]) => [word, colour]));
  for (const tier of castor.shown.tiers) drawTier(figures, tier);

  function drawTier(parent, tier) {
    const points = tier.times_ns.map((at, i) => {
      const point = {at};
      for (const [key] of castor.kinds) point[key] = tier.home_bytes[key] || (tier.passing_bytes[key] ? tier.passing_bytes[key][i] : 0);
      return point;
    });
    points[0].at = castor.origin();
    points.push({...points[points.length - 1], at: castor.end()});
    const keys = castor.kinds.map(([key]) => key);
    const series = d3.stack().keys(keys)(points);
    const peak = d3.max(series[series.length - 1], (point) => point[1]);
    const most = Math.max(peak, tier.budget_bytes || 0, 1);
    const budget = tier.budget_bytes ? ` of ${castor.bytes(tier.budget_bytes)} (${castor.percent(peak / tier.budget_bytes)})` : '';
    const caption = `${tier.tier}: at most ${castor.bytes(peak)}${budget || ', no budget given'}`;
    const figure = castor.figure(parent, caption).attr('data-tier', tier.tier);
    const height = 130;
    const {svg, plot, x, width, margin} = castor.timeFrame(figure, castor.shown, height, `Memory on ${caption}`);
    const y = d3.scaleLinear().domain([0, most * 1.06]).range([height, 0]);
    const step = 2 ** Math.round(Math.log2(most / 3));
    svg.insert('g', ':first-child').attr('class', 'axis').attr('transform', `translate(${margin.left},16)`)
        .call(d3.axisLeft(y).tickValues(d3.range(0, most * 1.06, step)).tickFormat(castor.bytes));
    const area = d3.area().curve(d3.curveStepAfter).x((point) => x(point.data.at)).y0((point) => y(point[0])).y1((point) => y(point[1]));
    const fill = new Map(castor.kinds.map(([key, , colour]) => [key, colour]));
    plot.selectAll('path').data(series.filter((one) => used.has(one.key))).enter().append('path').attr('class', 'kind').attr('d', area)
        .style('fill', (one) => `var(--${fill.get(one.key)})`);
    if (tier.budget_bytes) {
      plot.append('line').attr('class', 'budget').attr('x1', margin.left).attr('x2', width - margin.right).attr('y1', y(tier.budget_bytes))
          .attr('y2', y(tier.budget_bytes));
      plot.append('text').attr('class', 'dim').attr('x', width - margin.right).attr('y', y(tier.budget_bytes) - 4).attr('text-anchor', 'end')
          .text(`budget ${castor.bytes(tier.budget_bytes)}`);
    }
    const cursor = plot.append('line').attr('class', 'cursor').attr('y1', 0).attr('y2', height).style('display', 'none');
    const bisect = d3.bisector((point) => point.at).right;
    const tell = (at) => {
      const point = points[Math.max(0, bisect(points, at) - 1)];
      const lines = castor.kinds.filter(([key]) => point[key] > 0).map(([key, word]) => `${word}: ${castor.bytes(point[key])}`);
      return `${tier.tier}, ${castor.time(at)}: ${castor.bytes(d3.sum(keys, (key) => point[key]))}\n${lines.join('\n')}`;
    };
    svg.append('rect').attr('class', 'pane').attr('x', margin.left).attr('y', 16).attr('width', width - margin.left - margin.right).attr('height', height)
        .attr('fill', 'transparent')
        .on('mousemove', function() {
          const at = x.invert(d3.mouse(this)[0]);
          cursor.style('display', null).attr('x1', x(at)).attr('x2', x(at));
          castor.tip(tell(at), d3.event.clientX, d3.event.clientY);
        })
        .on('mouseleave', () => {
          cursor.style('display', 'none');
          castor.tip('');
        });
  }
});
