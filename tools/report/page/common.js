// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What all pictures share: numbers as words, colours, frames with axes, legends, tables, the tip under the pointer.

'use strict';

const castor = {draw: []};

castor.bytes = (bytes) => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    ++unit;
  }
  return `${Number(bytes.toFixed(bytes < 100 && unit > 0 ? 2 : 1))} ${units[unit]}`;
};

castor.time = (ns) => {
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['us', 1e3]]) {
    if (Math.abs(ns) >= size) return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }
  return ns === 0 ? '0' : `${Math.round(ns)} ns`;
};

castor.percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
castor.count = (n, word) => `${n.toLocaleString('en')} ${word}${n === 1 ? '' : 's'}`;

// "wte.weight, wpe.weight and 5 more"
castor.names = (chunk, most = 3) => {
  const names = chunk.params.slice(0, most).join(', ');
  const more = chunk.params.length - Math.min(most, chunk.params.length) + chunk.more_params;
  return (names || 'no parameter') + (more > 0 ? ` and ${more} more` : '');
};

castor.colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

castor.tiers = {device: 'the device', host: 'the host', nvme: 'NVMe'};

// What memory is for; castor.nameStates puts the states before these.
castor.kinds = [
  ['gathered', 'gathered parameters', 'sky'],
  ['prefetched', 'prefetched parameters', 'yellow'],
  ['borrowed', 'borrowed by the trainer', 'ink'],
  ['other', 'staging, gradients in flight, the rest', 'grey'],
];

// Colours mean the same in every picture: red is for waiting alone.
castor.activities = {
  'fetched': ['read from NVMe', 'brown'],
  'coming': ['on its way to the device', 'orange'],
  'ready': ['there ahead of use', 'yellow'],
  'used': ['in use', 'blue'],
  'kept': ['kept after use', 'sky'],
  'gradient': ['gradient reduced or moved', 'green'],
  'update': ['updated by the optimizer', 'rose'],
  'waited for': ['waited for', 'red'],
};

// An object without members of its own: an optimizer may call a state "constructor".
castor.byName = (members) => Object.assign(Object.create(null), members);

// Of every optimizer; each has states of its own beside them (castor.nameStates).
castor.states = castor.byName({param: 'parameters', grad: 'gradients', master: 'master weights', exp_avg: 'first moments', exp_avg_sq: 'second moments'});
castor.stateColours = castor.byName({param: 'blue', grad: 'green', master: 'rose', exp_avg: 'orange', exp_avg_sq: 'brown'});
castor.moreColours = ['orange', 'brown', 'ash', 'pale', 'dim', 'line'];

// Gives the states of a document titles and colours. States without a title of their own show their names, in colours that no other one has taken.
castor.nameStates = (names) => {
  castor.stateNames = names;
  const free = castor.moreColours.filter((colour) => !names.some((name) => castor.stateColours[name] === colour));
  let next = 0;
  for (const name of names) {
    castor.states[name] = castor.states[name] || name;
    castor.stateColours[name] = castor.stateColours[name] || free[next++ % free.length];
  }
  const fixed = castor.kinds.filter(([key]) => !castor.states[key]);
  castor.kinds = [...names.map((name) => [name, name === 'param' || name === 'grad' ? `${castor.states[name]} at home` : castor.states[name],
                                          castor.stateColours[name]]), ...fixed];
};

castor.waits = {
  demand: 'chunks fetched when asked for',
  prefetch: 'chunks fetched ahead, too late',
  optimizer: 'parameters still being updated',
  gradient: 'a slot for gradients',
};

// A list of names, cut at a comma.
castor.cut = (names, most) => {
  const text = names.replaceAll(',', ', ');
  return text.length <= most ? text : `${text.slice(0, Math.max(1, text.lastIndexOf(',', most)))}, …`;
};

castor.section = (id) => d3.select(`#${id} .figures`);
castor.width = () => Math.max(280, document.querySelector('main').clientWidth);
castor.margin = () => ({left: castor.width() < 600 ? 62 : 190, right: 12});

// Says what is under the pointer, or under the keyboard's cursor at (x, y).
castor.tip = (text, x, y) => {
  const tip = document.getElementById('tip');
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > window.innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
};

castor.hover = (selection, text) => selection
    .on('mousemove', function(datum) {
      castor.tip(text(datum), d3.event.clientX, d3.event.clientY);
    })
    .on('mouseleave', () => castor.tip(''));

castor.legend = (parent, entries) => {
  const items = parent.append('ul').attr('class', 'legend').selectAll('li').data(entries).enter().append('li');
  items.append('i').style('background', ([, colour]) => `var(--${colour})`);
  items.append('span').text(([word]) => word);
};

// A figure with its caption; returns the figure.
castor.figure = (parent, caption) => {
  const figure = parent.append('figure');
  figure.append('figcaption').text(caption);
  return figure;
};

// An SVG as wide as the page, for pictures over the time of a step: phases behind, time below. Returns {svg, plot, x, width}.
castor.timeFrame = (figure, rank, height, label, top = 16) => {
  const width = castor.width();
  const margin = castor.margin();
  const x = d3.scaleLinear().domain([castor.origin(), castor.end()]).range([margin.left, width - margin.right]);
  const svg = figure.append('svg').attr('width', width).attr('height', height + top + 34).attr('role', 'img').attr('aria-label', label);
  const phases = svg.append('g').selectAll('g').data(rank.phases).enter().append('g');
  phases.append('rect').attr('class', (_, i) => `phase${i % 2 ? ' even' : ''}`).attr('x', (p) => x(p.begin_ns)).attr('y', top)
      .attr('width', (p) => Math.max(0, x(p.end_ns) - x(p.begin_ns))).attr('height', height);
  phases.filter((p) => x(p.end_ns) - x(p.begin_ns) > 50).append('text').attr('class', 'dim').attr('x', (p) => x(p.begin_ns) + 3).attr('y', top - 4)
      .text((p) => x(p.end_ns) - x(p.begin_ns) > 130 ? `${p.phase}, ${castor.time(p.end_ns - p.begin_ns)}` : p.phase);
  castor.hover(phases, (p) => `${p.phase}: ${castor.time(p.end_ns - p.begin_ns)}`);
  svg.append('g').attr('class', 'axis').attr('transform', `translate(0,${height + top})`)
      .call(d3.axisBottom(x).ticks(Math.max(3, width / 120)).tickFormat(castor.time));
  return {svg, plot: svg.append('g').attr('transform', `translate(0,${top})`), x, width, margin};
};

// An axis of bytes, at about so many whole powers of two, or multiples of one.
castor.bytesAxis = (group, axis, most, ticks) => {
  const step = 2 ** Math.max(0, Math.round(Math.log2(most / Math.max(2, ticks))));
  group.call(axis.tickValues(d3.range(0, most * 1.02, step).filter((bytes) => bytes >= axis.scale().domain()[0])).tickFormat((bytes) => bytes === 0 ? '0' : castor.bytes(bytes)));
};

// The label of a chunk's row: as much of its first parameter's name as there is room for.
castor.short = (chunk) => {
  if (castor.width() < 600) return `${chunk.chunk}`;
  const name = chunk.params[0] || '';
  return `${chunk.chunk} ${name.length > 22 ? `…${name.slice(-21)}` : name}`;
};

// A chunk in words: its parameters, its homes and why.
castor.describe = (parent, chunk) => {
  parent.selectAll('*').remove();
  parent.append('h3').text(`Chunk ${chunk.chunk}, ${castor.bytes(chunk.bytes)}`);
  parent.append('p').text(castor.names(chunk, 24));
  if (chunk.homes.length === 0) return;
  castor.table(parent, [['state', (one) => one.state], ['at home on', (one) => one.tier], ['here', (one) => castor.bytes(one.bytes), true],
                        ['why', (one) => one.why]], chunk.homes);
};

// A table of rows; a column is [title, value of a row, whether it is a number]. Nothing without rows.
castor.table = (parent, columns, rows, caption) => {
  if (rows.length === 0) return d3.selectAll([]);
  const table = parent.append('div').attr('class', 'scroll').append('table');
  if (caption) table.append('caption').text(caption);
  table.append('thead').append('tr').selectAll('th').data(columns).enter().append('th').attr('class', ([, , right]) => right ? 'right' : null)
      .text(([title]) => title);
  const lines = table.append('tbody').selectAll('tr').data(rows).enter().append('tr');
  for (const [, value, right] of columns) {
    lines.append('td').attr('class', right ? 'right' : null).text(value);
  }
  return lines;
};

castor.start = () => {
  const page = JSON.parse(document.getElementById('document').textContent);
  castor.page = page;
  castor.nameStates((page.detail && page.detail.states) || page.states || []);
  const ranks = page.detail ? page.detail.ranks : [];
  castor.shown = ranks.length > 0 ? ranks[0] : null;
  castor.origin = () => d3.min(ranks, (rank) => rank.begin_ns);
  castor.end = () => d3.max(ranks, (rank) => rank.end_ns);
  castor.pinned = null;
  castor.redraw = () => {
    castor.tip('');
    d3.selectAll('.figures').selectAll('*').remove();
    for (const draw of castor.draw) draw(page);
  };
  castor.redraw();
  let width = castor.width();
  window.addEventListener('resize', () => {
    if (castor.width() === width) return;
    width = castor.width();
    castor.redraw();
  });
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', castor.redraw);
};
