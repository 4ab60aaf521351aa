// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The sentence that matters, what to change, and which step and rank are shown.

'use strict';

castor.draw.push((page) => {
  const record = page.record;
  document.title = `Castor: ${record.file}`;
  const shape = record.stage === null ? '' : `${castor.count(record.ranks, 'rank')}, ZeRO stage ${record.stage}, ` +
      `${castor.count(record.chunks, 'chunk')} of up to ${castor.bytes(record.chunk_bytes)}`;
  d3.select('#what').text(`${record.file}: ${shape}; ${castor.count(page.complete_steps, 'whole step')}` +
      `${page.complete_steps > 0 ? `, ${castor.time(page.step_ns.median)} each (median)` : ''}`);
  d3.select('#headline').text(page.headline);
  const advice = d3.select('#advice');
  advice.selectAll('*').remove();
  const says = [];
  if (!record.complete) says.push(record.reason);
  if (record.dropped_events > 0) says.push(`${castor.count(record.dropped_events, 'event')} were dropped while recording: sums are too low.`);
  for (const text of says) advice.append('div').attr('class', 'proposal warning').append('p').text(text);
  for (const proposal of page.proposals || []) {
    const box = advice.append('div').attr('class', 'proposal');
    box.append('p').text(proposal.text);
    for (const [where, line] of proposal.lines || []) {
      const p = box.append('p');
      p.append('span').attr('class', 'note').text(`${where} `);
      p.append('code').text(line);
    }
  }
  if (page.complete_steps > 0 && page.no_proposal) advice.append('p').attr('class', 'note').text(`Nothing is proposed: ${page.no_proposal}.`);
  const choices = d3.select('#choices');
  choices.selectAll('*').remove();
  if (!page.detail) return;
  const simulated = page.simulated_step_ns ? `; simulated, a step takes ${castor.time(page.simulated_step_ns)}` : '';
  choices.append('span').text(`Below: step ${page.detail.step}, a typical one, ${castor.time(castor.end() - castor.origin())}${simulated}`);
  if (page.detail.ranks.length < 2) return;
  const label = choices.append('label').text('Rank ');
  const select = label.append('select').attr('id', 'rank');
  select.selectAll('option').data(page.detail.ranks).enter().append('option').attr('value', (rank) => rank.rank)
      .property('selected', (rank) => rank === castor.shown).text((rank) => rank.rank);
  select.on('change', function() {
    castor.shown = page.detail.ranks[this.selectedIndex];
    castor.redraw();
    document.getElementById('rank').focus();
  });
});
