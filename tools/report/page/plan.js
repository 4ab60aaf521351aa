// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the plan foretells beside what the run did, where states are at home, and what a slot is worth.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('plan');
  castor.table(figures, [['chunks made whole on a device', () => page.gathers.toLocaleString('en'), true],
                         ['of them ahead of use', () => page.gathers > 0 ? castor.percent(page.prefetched_gathers / page.gathers) : '-', true],
                         ['steps that departed from the plan', () => page.divergences, true]], [page]);
  if (page.forecast) {
    castor.table(figures, [['a step', (row) => row.what], ['foretold', (row) => row.foretold, true], ['measured', (row) => row.measured, true]],
                 page.forecast.map((row) => ({what: row.what, foretold: castor[row.unit](row.foretold), measured: castor[row.unit](row.measured)})));
  }
  if (page.plan) {
    castor.table(figures, [
      ['slots', (slot) => `${slot.slots} of ${castor.bytes(slot.slot_bytes)}`], ['cost of a step', (slot) => slot.cost.toPrecision(4), true],
      ['proved to be at least', (slot) => slot.lower_bound.toPrecision(4), true],
      ['one more saves', (slot) => slot.one_more_saves === null ? 'not known' : slot.one_more_saves.toPrecision(3), true],
    ], page.plan.slots || []);
  }
  if (page.homes.length > 0) {
    const states = castor.stateNames.filter((state) => page.homes.some((home) => home[`${state}_bytes`] > 0));
    castor.table(figures, [['from step', (home) => home.from_step, true], ['tier', (home) => home.tier],
                           ['budget', (home) => home.budget_bytes ? castor.bytes(home.budget_bytes) : 'not given', true],
                           ...states.map((state) => [state, (home) => castor.bytes(home[`${state}_bytes`]), true])], page.homes);
  }
});
