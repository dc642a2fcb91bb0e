/* The executors: bars of busy seconds on one axis; of many executors a histogram of their loads and the most loaded. */
import { byId, html, patch, svg } from './dom.js';
import { ALL, SOURCE, limit, stageName, state } from './state.js';
import { count, isKnown, keyText, median, percent, plural, seconds, size, times } from './words.js';

const SLOW = 0.8;
const HOT_KEY = 0.1;
const ROOMY = 8; // rows up to which they stand further apart

const tint = (page, stage) => {
  const operators = page.stages.filter((one) => one !== SOURCE);
  return stage === SOURCE ? 'tint0' : `tint${1 + (operators.indexOf(stage) % 3)}`;
};
const shownStages = (page) => (state.stage === ALL ? page.stages : [state.stage]);
const busyOf = (page, executor) => shownStages(page).reduce((sum, stage) => sum + (executor.busy[stage] ?? 0), 0);
const loadOf = (executor) => (state.stage === ALL ? executor.load : executor.loads[state.stage]);
const isOver = (page, executor) => isKnown(loadOf(executor)) && loadOf(executor) > limit(page);

export function drawExecutors(page) {
  if (state.stage !== ALL && !page.stages.includes(state.stage)) state.stage = ALL;
  patch(byId('stages'), page.stages.length > 0 && [ALL, ...page.stages].map((stage) =>
    html('button', { type: 'button', 'data-act': 'stage', 'data-id': stage, 'aria-pressed': String(state.stage === stage) },
      stage !== ALL && html('i', { class: tint(page, stage), 'aria-hidden': 'true' }), stageName(stage))));
  if (!page.stages.length || !page.executors.length) {
    patch(byId('executors-summary'), '');
    patch(byId('executors-body'), html('p', { class: 'empty' }, `No executor has worked yet: ${page.phase}.`));
    return;
  }
  const ordered = [...page.executors].sort((a, b) => (loadOf(b) ?? 0) - (loadOf(a) ?? 0));
  patch(byId('executors-summary'), summary(page, ordered));
  patch(byId('executors-body'),
    page.distribution ? distribution(page, ordered) : [table(page, page.executors, true), legend(page)]);
}

function summary(page, ordered) {
  const worst = ordered[0];
  const load = loadOf(worst);
  const at = state.stage === ALL ? '' : state.stage === SOURCE ? ' reading the source' : ` in ${stageName(state.stage)}`;
  const total = page.distribution?.total ?? page.executors.length;
  const isPart = page.distribution && state.stage !== ALL; // of a stage only the loads of those that are listed are known
  if (!isKnown(load)) return `Too few rows to judge${at}.`;
  if (!isOver(page, worst)) {
    const most = percent(Math.max(page.tolerance ?? 0, load - 1));
    const all = isPart ? `None of the ${ordered.length} executors with the highest load` : `No executor of ${count(total)}`;
    return `${all} is more than ${most} above its fair share${at}.`;
  }
  const others = ordered.slice(1).map((executor) => busyOf(page, executor));
  const waiting = isPart ? ', the most of those listed.' : page.distribution
    ? `; ${plural(page.distribution.over, 'executor')} of ${count(total)} beyond the tolerance.`
    : others.length ? `; the others wait for it (median ${seconds(median(others))}).` : '.';
  const isSlow = isKnown(worst.speed) && worst.speed < SLOW;
  const key = worst.heaviest;
  return [
    html('b', { class: 'warn' }, worst.name),
    ` works ${seconds(busyOf(page, worst))} on a batch${at}, ${times(load)} its fair share${waiting}`,
    isSlow && ` It is ${percent(worst.speed)} as fast as the fastest, with ${worst.cpu} CPU.`,
    key && key.share > HOT_KEY && state.stage !== SOURCE &&
      [' One key, ', keyText(key.label, 24), `, is ${percent(key.share)} of its rows in ${key.operator}.`],
  ];
}

function legend(page) {
  return html('div', { class: 'legend' },
    html('span', {}, html('i', { class: 'fair', 'aria-hidden': 'true' }), 'balanced: all finish here'),
    shownStages(page).map((stage) =>
      html('span', {}, html('i', { class: `swatch ${tint(page, stage)}`, 'aria-hidden': 'true' }), stageName(stage))));
}

function table(page, list, isGrouped) {
  const fairs = list.filter((one) => loadOf(one) > 0).map((one) => busyOf(page, one) / loadOf(one));
  const fair = fairs.length ? median(fairs) : 0;
  const most = 1.04 * Math.max(fair, ...list.map((one) => busyOf(page, one)), 1e-9);
  const cell = (kind, ...content) => html('span', { role: 'cell', class: kind }, content);
  const heading = (kind, text) => html('span', { role: 'columnheader', class: kind }, text);
  const head = html('div', { role: 'row', class: 'heading' },
    heading('name', 'Executor'), heading('right speed', 'Speed'), heading('bar-cell', 'Busy, a batch'),
    heading('right', 'Time'), heading('right', 'Load'), heading('right state', 'State'));
  const row = (one) => html('div', { role: 'row', class: isOver(page, one) ? 'over' : null },
    html('span', { role: 'rowheader', class: 'name', title: one.name }, one.name),
    cell('right speed', times(one.speed)),
    html('span', { role: 'cell', class: 'bar-cell' }, bars(page, one, fair, most)),
    cell('right', seconds(busyOf(page, one))),
    cell('right load', isOver(page, one) && html('span', { 'aria-hidden': 'true' }, '▲ '), times(loadOf(one))),
    cell('right state', size(one.state_bytes)));
  const rows = page.classes.flatMap((kind) => {
    const mine = list.filter((one) => one.class === kind.name);
    if (!mine.length) return [];
    const size = ` ${count(kind.executors)} × ${kind.cpu} CPU`;
    const title = html('div', { role: 'row', class: 'class' }, cell('', html('b', {}, kind.name), size));
    return [title, ...mine.map(row)];
  });
  const room = list.length <= ROOMY ? 'roomy' : '';
  return html('div', { role: 'table', class: `executors ${room}`, 'aria-labelledby': 'h-executors' },
    head, isGrouped ? rows : list.map(row));
}

function bars(page, executor, fair, most) {
  const share = (value) => `${((100 * value) / most).toFixed(2)}%`;
  let at = 0;
  const parts = shownStages(page).map((stage) => {
    const from = at;
    at += executor.busy[stage] ?? 0;
    return html('i', { class: `part ${tint(page, stage)}`, place: { left: share(from), width: share(at - from) } });
  });
  const balanced = fair > 0 && html('i', { class: 'fair', place: { left: share(fair) } });
  return html('span', { class: 'lane', 'aria-hidden': 'true' }, parts, balanced);
}

function distribution(page, ordered) {
  const { total } = page.distribution;
  const over = state.stage === ALL ? '' : ' over all work';
  return html('div', { class: 'wide' },
    html('div', {}, html('h3', {}, `${count(total)} executors by load${over}, 1 = fair share`), histogram(page)),
    html('div', {}, html('h3', {}, `The ${ordered.length} with the highest load${over}`), table(page, ordered, false)));
}

function histogram(page) {
  const { edges, classes, quantiles } = page.distribution;
  const width = Math.max(240, byId('executors-body').clientWidth * (window.innerWidth > 860 ? 0.42 : 1));
  const names = Object.keys(classes);
  const filled = edges.slice(0, -1).map((_, bin) => names.some((name) => classes[name][bin]));
  const last = Math.max(filled.lastIndexOf(true) + 1, Math.ceil(1.5 / edges[1]));
  const rowHeight = 64;
  const height = names.length * rowHeight + 22;
  const x = (load) => (width * load) / edges[last];
  const over = limit(page);
  const marks = names.flatMap((name, row) => {
    const base = (row + 1) * rowHeight;
    const most = Math.sqrt(Math.max(...classes[name], 1));
    const bins = classes[name].slice(0, last).map((n, bin) => n > 0 && svg('rect', {
      class: edges[bin] >= over ? 'over' : null,
      x: x(edges[bin]), width: Math.max(1, x(edges[1]) - 1),
      y: base - (40 * Math.sqrt(n)) / most, height: (40 * Math.sqrt(n)) / most,
    }));
    return [
      svg('text', { class: 'ink', x: 0, y: base - 46 }, name),
      svg('line', { x1: 0, x2: width, y1: base, y2: base }),
      bins,
    ];
  });
  const ticks = [0, 1, 2, 3, 4].filter((load) => load <= edges[last]);
  const text = `median ${times(quantiles[2])}, nine of ten below ${times(quantiles[3])}, most ${times(quantiles[4])}`;
  return html('div', { class: 'histogram' },
    svg('svg', { height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Loads: ${text}.` },
      marks, svg('line', { class: 'fair', x1: x(1), x2: x(1), y1: 0, y2: height - 20 }),
      ticks.map((load) => svg('text', { x: x(load), y: height - 6, 'text-anchor': load ? 'middle' : 'start' }, `${load} ×`))),
    html('p', { class: 'note' }, `${text}; height is the root of the count`));
}
