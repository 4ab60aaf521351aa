// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Whether it fits, for which command, and what would help where it does not.

'use strict';

castor.draw.push((page) => {
  const model = page.model;
  document.title = `Castor: a plan of ${model.name}`;
  const configuration = page.configuration;
  d3.select('#what').text(`${model.name}: ${castor.count(model.elements, 'parameter')}, ${castor.bytes(model.total_bytes)}; ` +
      `${castor.count(configuration.world, 'rank')}, ZeRO stage ${configuration.stage}, ${castor.count(configuration.chunks, 'chunk')} of up to ` +
      castor.bytes(configuration.chunk_bytes));
  const held = (page.tiers || []).filter((tier) => tier.planned_bytes > 0).map((tier) =>
    `${castor.bytes(tier.planned_bytes)}${tier.budget_bytes ? ` of ${castor.bytes(tier.budget_bytes)}` : ''} on ${castor.tiers[tier.tier]}`);
  const seconds = page.times && page.times.step_seconds;
  d3.select('#headline').text(page.fits ? `It fits: ${held.join(', ')}${seconds ? `; a step takes ${castor.time(1e9 * seconds)}` : ''}` : 'It does not fit');
  d3.selectAll('#tiers, #choices-made, #chunks').attr('hidden', page.fits ? null : '');
  const advice = d3.select('#advice');
  advice.selectAll('*').remove();
  if (!page.fits) advice.append('div').attr('class', 'proposal warning').append('p').text(page.reason);
  for (const change of page.changes || []) {
    const box = advice.append('div').attr('class', 'proposal');
    box.append('p').text(`This fits: ${change.what}`);
    box.append('p').append('code').text(change.command);
  }
  if (page.fits) advice.append('p').append('code').text(page.command);
});
