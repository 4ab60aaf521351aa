// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How long each step takes, and how much of it a lane waits.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('steps');
  const steps = page.steps.filter((step) => step.complete);
  if (steps.length === 0) {
    figures.append('p').text('The record has no whole step.');
    return;
  }
  castor.legend(figures, [['computing, on the slowest rank', 'blue'], ['waiting', 'red']]);
  const figure = castor.figure(figures, `${page.steps_each ? `the slowest of each ${page.steps_each} steps` : castor.count(steps.length, 'step')}: ${castor.time(page.step_ns.min)} to ${castor.time(page.step_ns.max)}`);
  const width = castor.width();
  const margin = castor.margin();
  const height = 110;
  const svg = figure.append('svg').attr('width', width).attr('height', height + 40).attr('role', 'img')
      .attr('aria-label', `Step times: median ${castor.time(page.step_ns.median)}, at most ${castor.time(page.step_ns.max)} in step ${page.step_ns.max_step}`);
  const x = d3.scaleLinear().domain([steps[0].step - 0.5, steps[steps.length - 1].step + 0.5]).range([margin.left, width - margin.right]);
  const y = d3.scaleLinear().domain([0, d3.max(steps, (step) => step.time_ns) * 1.05]).range([height, 4]);
  const bar = Math.max(1, Math.min(24, x(2) - x(1) - 1));
  for (const [key, colour] of [['time_ns', 'blue'], ['stalled_ns', 'red']]) {
    const bars = svg.append('g').selectAll('rect').data(steps).enter().append('rect').attr('class', 'step').attr('x', (step) => x(step.step) - bar / 2)
        .attr('y', (step) => y(step[key])).attr('width', bar).attr('height', (step) => Math.max(0, height - y(step[key])))
        .attr('fill', `var(--${colour})`);
    castor.hover(bars, (step) => `step ${step.step}: ${castor.time(step.time_ns)}, of it ${castor.time(step.stalled_ns)} waited`);
  }
  svg.append('g').attr('class', 'axis').attr('transform', `translate(0,${height})`)
      .call(d3.axisBottom(x).ticks(Math.min(steps.length, Math.floor(width / 60))).tickFormat((n) => Number.isInteger(n) ? n : ''));
  svg.append('g').attr('class', 'axis').attr('transform', `translate(${margin.left},0)`).call(d3.axisLeft(y).ticks(4).tickFormat(castor.time));
  svg.append('text').attr('class', 'dim').attr('x', width - margin.right).attr('y', height + 34).attr('text-anchor', 'end').text('step');
});
