// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What other stages, chunk sizes and policies hold, move and take.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('choices-made');
  const choices = page.alternatives || [];
  if (choices.length === 0) {
    figures.append('p').text('No other choice was planned that fits.');
    return;
  }
  const moved = page.step ? d3.sum(page.step.links, (link) => link.moved_bytes) + page.step.all_gather_bytes + page.step.reduce_scatter_bytes : null;
  const rows = [{what: 'as asked for', moved_bytes: moved, step_seconds: page.times ? page.times.step_seconds : null,
                 ...Object.fromEntries(page.tiers.map((tier) => [`${tier.tier}_bytes`, tier.planned_bytes]))}, ...choices];
  castor.table(figures, [['choice', (one) => one.what], ['device', (one) => castor.bytes(one.device_bytes), true], ['host', (one) => castor.bytes(one.host_bytes), true],
                         ['nvme', (one) => castor.bytes(one.nvme_bytes || 0), true], ['moved a step', (one) => castor.bytes(one.moved_bytes), true],
                         ['a step', (one) => one.step_seconds ? castor.time(1e9 * one.step_seconds) : 'not known', true]], rows).attr('class', 'choice');
});
