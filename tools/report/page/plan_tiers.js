// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A bar for each tier, cut by what lies there.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('tiers');
  if (!page.fits) {
    figures.append('p').text('There is no plan.');
    return;
  }
  const kinds = [
    ...castor.stateNames.map((name) => [name, castor.states[name], castor.stateColours[name]]),
    ['gathered', 'gathered chunks', 'sky'], ['prefetch', 'fetched ahead', 'yellow'],
    ['kept', 'copies kept', 'pale'], ['staging', 'staging', 'grey'], ['leases', 'borrowed', 'ink'], ['activations', 'activations and overhead', 'ash'], ['rest', 'the rest', 'dim'],
  ];
  const rows = page.tiers.map((tier) => {
    const parts = kinds.map(([key]) => tier.classes[`${key}_bytes`] || 0);
    if (tier.tier === 'device' && !page.configuration.activations.borrowed) {
      parts[kinds.length - 2] = page.configuration.activations.activations_bytes + page.configuration.overhead_bytes;
    }
    parts[kinds.length - 1] = Math.max(0, tier.planned_bytes - d3.sum(parts));
    return {tier, parts};
  }).filter((row) => row.tier.planned_bytes > 0);
  const used = kinds.filter((_, i) => rows.some((row) => row.parts[i] > 0));
  castor.legend(figures, used.map(([, word, colour]) => [word, colour]));
  const width = castor.width();
  const left = width < 600 ? 62 : 90;
  for (const {tier, parts} of rows) {
    const most = Math.max(tier.planned_bytes, tier.budget_bytes || 0);
    const budget = tier.budget_bytes ? ` of ${castor.bytes(tier.budget_bytes)}, ${castor.percent(tier.planned_bytes / tier.budget_bytes)}` : ', no limit';
    const caption = `${tier.tier}: ${castor.bytes(tier.planned_bytes)}${budget}`;
    const figure = castor.figure(figures, caption).attr('data-tier', tier.tier);
    const svg = figure.append('svg').attr('width', width).attr('height', 64).attr('role', 'img').attr('aria-label',
        `${caption}: ${kinds.map(([, word], i) => parts[i] > 0 ? `${word} ${castor.bytes(parts[i])}` : '').filter((text) => text).join(', ')}`);
    const x = d3.scaleLinear().domain([0, most]).range([left, width - 14]);
    let at = 0;
    kinds.forEach(([, word, colour], i) => {
      if (parts[i] === 0) return;
      const bar = svg.append('rect').datum(null).attr('class', 'part').attr('x', x(at)).attr('y', 4).attr('width', Math.max(1, x(at + parts[i]) - x(at)))
          .attr('height', 28).attr('fill', `var(--${colour})`);
      castor.hover(bar, () => `${tier.tier}: ${word} ${castor.bytes(parts[i])}`);
      at += parts[i];
    });
    if (tier.budget_bytes) {
      svg.append('line').attr('class', 'budget').attr('x1', x(tier.budget_bytes)).attr('x2', x(tier.budget_bytes)).attr('y1', 0).attr('y2', 38);
    }
    castor.bytesAxis(svg.append('g').attr('class', 'axis').attr('transform', 'translate(0,36)'), d3.axisBottom(x), most, width / 110);
  }
  if (page.step) {
    castor.table(figures, [['a step moves', (link) => `${link.from} -> ${link.to}`], ['bytes', (link) => castor.bytes(link.moved_bytes), true],
                           ['moves', (link) => link.transfers.toLocaleString('en'), true]], page.step.links);
  }
});
