// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Budgets around those that were asked for: which fit, and what a step costs there; then the price of memory along each of both.

'use strict';

castor.draw.push((page) => {
  const figures = castor.section('grid');
  const price = castor.section('price');
  const points = page.budget_grid || [];
  if (points.length === 0) {
    figures.append('p').text('No other budgets were planned: give --device-budget, or a model with fewer chunks.');
    price.append('p').text('No other budgets were planned.');
    return;
  }
  const timed = points.some((point) => point.step_seconds !== null);
  const cost = (point) => timed ? point.step_seconds : point.moved_bytes;
  const words = (value) => value === null ? 'not known' : timed ? castor.time(1e9 * value) : castor.bytes(value);
  const of = timed ? 'a step takes' : 'a step moves';
  const devices = [...new Set(points.map((point) => point.device_budget_bytes))];
  const hosts = [...new Set(points.map((point) => point.host_budget_bytes))];
  const asked = page.tiers ? page.tiers.reduce((all, tier) => ({...all, [tier.tier]: tier.budget_bytes}), {}) : {};
  const fitting = points.filter((point) => point.fits && cost(point) !== null);
  const [least, most] = d3.extent(fitting, cost);
  const width = Math.min(castor.width(), 760);
  const left = 92;
  const cell = {x: (width - left - 8) / devices.length, y: 26};
  const figure = castor.figure(figures, `the darker a cell, the ${timed ? 'longer a step' : 'more a step moves'}; a pale cell does not fit; the frame is what was asked for`);
  const svg = figure.append('svg').attr('width', width).attr('height', cell.y * hosts.length + 44).attr('role', 'img')
      .attr('aria-label', `${fitting.length} of ${points.length} pairs of budgets fit; ${of} ${words(least)} to ${words(most)}`);
  const shade = (point) => most > least ? 0.18 + 0.82 * (cost(point) - least) / (most - least) : 0.3;
  const rows = svg.selectAll('g.cell').data(points).enter().append('g').attr('class', 'cell').attr('transform', (point) =>
    `translate(${left + cell.x * devices.indexOf(point.device_budget_bytes)},${cell.y * (hosts.length - 1 - hosts.indexOf(point.host_budget_bytes))})`);
  rows.append('rect').attr('class', 'budgets').attr('x', 1).attr('y', 1).attr('width', cell.x - 2).attr('height', cell.y - 2)
      .attr('fill', (point) => point.fits ? 'var(--blue)' : 'var(--band)').attr('fill-opacity', (point) => point.fits ? shade(point) : 1)
      .attr('stroke', (point) => point.device_budget_bytes === asked.device && point.host_budget_bytes === asked.host ? 'var(--ink)' : 'none')
      .attr('stroke-width', 2);
  castor.hover(rows, (point) => `device ${castor.bytes(point.device_budget_bytes)}, host ${castor.bytes(point.host_budget_bytes)}\n` +
      (point.fits ? `${of} ${words(cost(point))}` : 'does not fit'));
  const every = Math.ceil(devices.length * 60 / width);
  svg.append('g').selectAll('text').data(devices.filter((_, i) => i % every === 0)).enter().append('text').attr('class', 'dim').attr('text-anchor', 'middle')
      .attr('x', (bytes) => left + cell.x * (devices.indexOf(bytes) + 0.5)).attr('y', cell.y * hosts.length + 15).text((bytes) => castor.bytes(bytes));
  svg.append('g').selectAll('text').data(hosts).enter().append('text').attr('class', 'dim').attr('text-anchor', 'end').attr('x', left - 6)
      .attr('y', (bytes) => cell.y * (hosts.length - 0.5 - hosts.indexOf(bytes)) + 4).text((bytes) => castor.bytes(bytes));
  svg.append('text').attr('class', 'dim').attr('x', width - 8).attr('y', cell.y * hosts.length + 34).attr('text-anchor', 'end')
      .text('device budget; host budget upwards');

  drawLine('device', points.filter((point) => point.host_budget_bytes === near(hosts, asked.host)), 'device_budget_bytes');
  drawLine('host', points.filter((point) => point.device_budget_bytes === near(devices, asked.device)), 'host_budget_bytes');
  castor.table(price, [['with', (one) => one.what], ['device', (one) => castor.bytes(one.device_bytes), true], ['host', (one) => castor.bytes(one.host_bytes), true],
                       ['moved a step', (one) => castor.bytes(one.moved_bytes), true],
                       ['a step', (one) => one.step_seconds === null ? 'not known' : castor.time(1e9 * one.step_seconds), true]], page.one_more_gib || []);

  function near(all, wanted) {
    return all.includes(wanted) ? wanted : all[Math.floor(all.length / 2)];
  }

  function drawLine(tier, line, key) {
    const fits = line.filter((point) => point.fits && cost(point) !== null);
    const caption = `${of}, by ${tier} budget, the other as asked for`;
    const drawn = castor.figure(price, fits.length > 0 ? caption : `${caption}: none of these budgets fits`);
    if (fits.length === 0) return;
    const wide = Math.min(castor.width(), 760);
    const height = 130;
    const x = d3.scaleLinear().domain(d3.extent(line, (point) => point[key])).range([left, wide - 20]);
    const y = d3.scaleLinear().domain([0, d3.max(fits, cost) * 1.08 || 1]).range([height, 6]);
    const plot = drawn.append('svg').attr('width', wide).attr('height', height + 36).attr('role', 'img')
        .attr('aria-label', `${caption}: ${fits.map((point) => `${castor.bytes(point[key])}: ${words(cost(point))}`).join('; ')}`);
    const unfit = line.filter((point) => !point.fits);
    if (unfit.length > 0) {
      plot.append('rect').attr('x', x(unfit[0][key])).attr('y', 6).attr('width', Math.max(0, x(fits[0][key]) - x(unfit[0][key]))).attr('height', height - 6)
          .attr('fill', 'var(--band)');
      plot.append('text').attr('class', 'dim').attr('x', x(unfit[0][key]) + 4).attr('y', 20).text('does not fit');
    }
    castor.bytesAxis(plot.append('g').attr('class', 'axis').attr('transform', `translate(0,${height})`), d3.axisBottom(x), x.domain()[1], wide / 120);
    const axis = plot.append('g').attr('class', 'axis').attr('transform', `translate(${left},0)`);
    if (timed) {
      axis.call(d3.axisLeft(y).ticks(4).tickFormat((value) => castor.time(1e9 * value)));
    } else {
      castor.bytesAxis(axis, d3.axisLeft(y), y.domain()[1], 4);
    }
    plot.append('path').attr('fill', 'none').attr('stroke', 'var(--blue)').attr('stroke-width', 2)
        .attr('d', d3.line().x((point) => x(point[key])).y((point) => y(cost(point)))(fits));
    const dots = plot.selectAll('circle').data(fits).enter().append('circle').attr('class', 'point').attr('cx', (point) => x(point[key]))
        .attr('cy', (point) => y(cost(point))).attr('r', 4.5).attr('fill', 'var(--blue)');
    castor.hover(dots, (point) => {
      const i = fits.indexOf(point);
      const more = i + 1 < fits.length ? (cost(point) - cost(fits[i + 1])) / (fits[i + 1][key] - point[key]) * 2 ** 30 : null;
      const saves = more === null ? '' : `\none more GiB from here saves ${words(Math.max(0, more))}`;
      return `${tier} ${castor.bytes(point[key])}: ${of} ${words(cost(point))}${saves}`;
    });
  }
});
