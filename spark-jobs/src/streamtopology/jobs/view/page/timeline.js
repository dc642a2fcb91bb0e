/* The batches: rows/s against the bound, below it the load of each executor, on the same axis. */
import { byId, html, patch, svg } from './dom.js';
import { executorName, limit, reroutings, state } from './state.js';
import { clip, count, isKnown, median, rate, seconds, times } from './words.js';

const LEFT = 44;
const TOP = 26;
const GAP = 32;
const PIXELS_A_BATCH = 3.2;
const LABEL_HEIGHT = 13;
const MOST_LABELS = 6;

let drawn = null; // the batches drawn, and the numbers at both ends of the axis

const path = (points) => (points.length ? `M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join('L')}` : '');
const rateOf = (batch) => batch.rows / batch.seconds;
const round = (at) => rate(at).replace(/\.?0*(?= )/, (zeros) => (zeros.startsWith('.') ? '' : zeros));
const slotsOf = (batch) => Object.keys(batch.loads ?? {});

function ticks(most, about) {
  if (!(most > 0)) return [0];
  const raw = most / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw * 0.999);
  const list = [];
  for (let at = 0; at <= most * 1.0001; at += step) list.push(Number(at.toPrecision(12)));
  return list;
}

export function drawTimeline(page) {
  const box = byId('plot');
  const frame = frameOf(page, Math.max(240, box.clientWidth));
  if (!frame) {
    drawn = null;
    patch(byId('readout'), '');
    patch(box, html('p', { class: 'empty' }, 'This run has committed no batch yet.'));
    return;
  }
  const { list, x, lowBase } = frame;
  drawn = { list, first: frame.first, last: frame.last };
  const marks = reroutings(page).filter((one) => one.batch >= frame.first && one.batch <= frame.last);
  const pointed = state.cursor === null ? null
    : list.reduce((a, b) => (Math.abs(b.number - state.cursor) < Math.abs(a.number - state.cursor) ? b : a));
  const text = sentence(page, pointed ?? list.at(-1));
  const changes = marks.length ? `Re-routings at batches ${marks.map((one) => one.batch).join(', ')}.` : 'No re-routing.';
  patch(box,
    svg('svg', { height: frame.height, viewBox: `0 0 ${frame.width} ${frame.height}`, role: 'img',
      'aria-label': `Throughput and load over batches ${list[0].number} to ${list.at(-1).number}. ${changes}` },
    throughput(page, frame), loads(page, frame), happenings(page, frame), axis(frame),
    marks.map((one) => upright(`change ${lit(one)}`, x(one.batch), 20, lowBase)),
    pointed && upright('cross', x(pointed.number), TOP, lowBase)),
    slider(frame, (pointed ?? list.at(-1)).number, text),
    marks.map((one) => html('button', { type: 'button', class: `flag ${lit(one)}`, 'data-act': 'flag', 'data-id': one.epoch,
      'aria-label': `Re-routing ${one.number} at batch ${one.batch}: ${one.why}`,
      place: { left: `${x(one.batch).toFixed(1)}px` } }, one.number)));
  patch(byId('readout'), pointed ? text : `${count(list.length)} newest batches; point at one, or use the arrow keys`);
}

const lit = (one) => (state.lit === one.epoch ? 'lit' : '');
const upright = (kind, x, y1, y2) => svg('line', { class: kind, x1: x, x2: x, y1, y2 });

function slider({ list, inner, lowBase }, number, text) {
  return html('div', {
    class: 'slider', tabindex: 0, role: 'slider', 'data-act': 'cursor', 'aria-label': 'Batch', 'aria-valuemin': list[0].number,
    'aria-valuemax': list.at(-1).number, 'aria-valuenow': number, 'aria-valuetext': text,
    place: { left: `${LEFT}px`, width: `${inner}px`, top: `${TOP}px`, height: `${lowBase - TOP}px` },
  });
}

/* The number of the batch at this share of the axis. */
export const numberAt = (share) => (drawn ? drawn.first + (drawn.last - drawn.first) * share : null);

/* The number of the batch that a key leads to; null for other keys. */
export function stepTo(key, cursor) {
  if (!drawn) return null;
  const least = drawn.list[0].number;
  const most = drawn.list.at(-1).number;
  const at = cursor === null ? most : Math.round(cursor);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at + 10, PageDown: at - 10, Home: least, End: most }[key];
  return to === undefined ? null : Math.max(least, Math.min(most, to));
}

/* Sizes and scales of both plots; null without a batch. */
function frameOf(page, width) {
  const isSmall = width < 560;
  const right = isSmall ? 10 : 92;
  const inner = width - LEFT - right;
  const most = Math.max(20, Math.floor(inner / PIXELS_A_BATCH));
  const list = [...state.batches.values()].sort((a, b) => a.number - b.number).slice(-most);
  if (!list.length) return null;
  const tall = isSmall ? 118 : 172;
  const low = isSmall ? 92 : 126;
  const base = TOP + tall;
  const lowTop = base + GAP;
  const first = list[0].number;
  const last = Math.max(list.at(-1).number, first + 19);
  const fed = list.filter((batch) => batch.rows && batch.seconds > 0);
  const top = 1.06 * Math.max(page.bound_rows_per_second ?? 0, ...fed.map(rateOf), 1);
  const heights = list.flatMap((batch) => (batch.spread ? [batch.spread[4]] : Object.values(batch.loads ?? {})));
  const highest = Math.max(1.6, Math.min(4.5, 1.05 * Math.max(1, ...heights)));
  const x = (number) => LEFT + (inner * (number - first)) / (last - first);
  return {
    width, inner, isSmall, list, fed, first, last, top, highest, base, lowTop, x,
    lowBase: lowTop + low,
    height: lowTop + low + 22,
    y: (value) => TOP + tall * (1 - Math.min(value, top) / top),
    lowY: (value) => lowTop + low * (1 - Math.min(value, highest) / highest),
    end: width - right,
    labelX: Math.min(width - right + 6, x(list.at(-1).number) + 8),
  };
}

function rule(frame, y, value, text) {
  return [
    svg('line', { class: value ? 'rule' : 'zero', x1: LEFT, x2: frame.end, y1: y, y2: y }),
    svg('text', { x: LEFT - 8, y: y + 4, 'text-anchor': 'end' }, text),
  ];
}

function throughput(page, frame) {
  const { fed, x, y, isSmall } = frame;
  const bound = page.bound_rows_per_second;
  const parts = [
    ticks(frame.top, isSmall ? 3 : 4).map((at) => rule(frame, y(at), at, round(at))),
    svg('text', { class: 'name', x: 0, y: 11 }, 'rows/s'),
  ];
  if (bound) {
    const steps = fed.filter((batch) => batch.bound).map((batch) => [x(batch.number), y(batch.bound)]);
    const start = steps.length ? steps : [[LEFT, y(bound)]];
    parts.push(svg('path', { class: 'bound', d: path([...start, [frame.end, y(bound)]]) }));
    const place = isSmall ? { x: frame.end, y: y(bound) - 5, 'text-anchor': 'end' } : { x: frame.end + 6, y: y(bound) + 4 };
    parts.push(svg('text', place, 'bound'));
  }
  const around = (index) => fed.slice(Math.max(0, index - 2), index + 3);
  const smooth = fed.map((batch, index) => [x(batch.number), y(median(around(index).map(rateOf)))]);
  const radius = isSmall ? 1.6 : 2;
  parts.push(fed.map((batch) =>
    svg('circle', { class: 'point', cx: x(batch.number).toFixed(1), cy: y(rateOf(batch)).toFixed(1), r: radius })));
  parts.push(svg('path', { class: 'median', d: path(smooth) }));
  if (smooth.length && !isSmall) {
    const at = smooth.at(-1)[1];
    const free = bound && Math.abs(at - y(bound)) < LABEL_HEIGHT ? y(bound) + LABEL_HEIGHT + 1 : at;
    parts.push(svg('text', { class: 'name', x: frame.labelX, y: free + 4 }, rate(page.rows_per_second)));
  }
  return parts;
}

function loads(page, frame) {
  const { lowY, lowTop, highest } = frame;
  const tolerance = page.tolerance ?? 0;
  const overY = lowY(limit(page));
  const bandY = lowY(1 + tolerance);
  const band = { x: LEFT, width: frame.inner, y: bandY, height: Math.max(1, lowY(1 - tolerance) - bandY) };
  const spread = frame.list.filter((batch) => batch.spread);
  return [
    svg('rect', { class: 'tolerance', ...band }),
    [0, 1, 2, 3, 4].filter((at) => at <= highest).map((at) => rule(frame, lowY(at), at, at)),
    svg('clipPath', { id: 'over' }, svg('rect', { x: 0, y: 0, width: frame.width, height: overY })),
    spread.length ? bands(page, frame, spread) : lines(page, frame, overY),
    svg('text', { class: 'name', x: 0, y: lowTop - 9 }, `load${frame.isSmall ? '' : ' of each executor'}, 1 = fair share`),
  ];
}

function bands(page, frame, spread) {
  const { x, lowY } = frame;
  const at = (quantile) => spread.map((batch) => [x(batch.number), lowY(batch.spread[quantile])]);
  const area = (least, most, kind, clipPath = null) =>
    svg('path', { class: kind, 'clip-path': clipPath, d: `${path([...at(most), ...at(least).reverse()])}Z` });
  const newest = spread.at(-1).spread;
  const names = [
    [lowY(newest[4]), `most ${times(newest[4])}`, newest[4] > limit(page)],
    [lowY(newest[2]), 'median', false],
    [lowY(newest[0]), `least ${times(newest[0])}`, false],
  ];
  return [
    area(0, 4, 'band'),
    area(1, 3, 'band middle'),
    area(2, 4, 'band over', 'url(#over)'),
    svg('path', { class: 'median', d: path(at(2)) }),
    !frame.isSmall && labels(names, frame),
  ];
}

function lines(page, frame, overY) {
  const { list, x, lowY } = frame;
  const slots = [...new Set(list.flatMap(slotsOf))];
  const smooth = (slot) => list.filter((batch) => isKnown(batch.loads?.[slot])).map((batch, index, mine) => {
    const near = mine.slice(Math.max(0, index - 1), index + 2).filter((one) => one.epoch === batch.epoch);
    return [x(batch.number), lowY(median(near.map((one) => one.loads[slot])))];
  });
  const paths = slots.map((slot) => [slot, smooth(slot)]);
  const alive = new Set(slotsOf(list.findLast((batch) => batch.loads) ?? {}));
  const name = ([slot, points]) => [points.at(-1)[1], executorName(page, slot), points.at(-1)[1] < overY - 4];
  const sorted = paths.filter(([slot]) => alive.has(slot)).map(name).sort((a, b) => a[0] - b[0]);
  const isCalm = sorted.length > 1 && sorted[0][0] >= overY - 2 && sorted.at(-1)[0] <= lowY(2 - limit(page)) + 2;
  const ends = sorted.length > MOST_LABELS ? [sorted[0], sorted.at(-1)] : sorted;
  const shown = isCalm ? [[lowY(1), `all ${sorted.length} alike`, false]] : ends;
  return [
    paths.map(([, points]) => svg('path', { class: 'load', d: path(points) })),
    paths.map(([, points]) => svg('path', { class: 'load over', 'clip-path': 'url(#over)', d: path(points) })),
    !frame.isSmall && labels(shown, frame),
  ];
}

/* Names at the right end, moved apart where they would cover each other. */
function labels(names, frame) {
  const sorted = [...names].sort((a, b) => a[0] - b[0]);
  let before = frame.lowTop - 20;
  const at = sorted.map(([wanted]) => {
    before = Math.max(wanted, before + LABEL_HEIGHT);
    return before;
  });
  const over = Math.max(0, (at.at(-1) ?? 0) - frame.lowBase + 4);
  return sorted.map(([, name, isOver], index) =>
    svg('text', { x: frame.labelX, y: at[index] - over + 4, class: isOver ? 'warn' : null }, clip(name, 13)));
}

/* Squares: state moves with the batch; triangles: it took a second attempt; rings below: an event, as of a scaling. */
function happenings(page, { list, x, base, lowBase }) {
  return list.map((batch) => [
    batch.moving && svg('rect', { class: 'moves', x: x(batch.number) - 1.5, y: base - 3, width: 3, height: 3 }),
    batch.attempt > 1 && svg('path', { class: 'retry', d: `M${x(batch.number) - 4} ${base}h8l-4 -7z` }),
    eventsAt(page, batch).length > 0 && svg('circle', { class: 'event', cx: x(batch.number), cy: lowBase, r: 3 }),
  ]);
}

const eventsAt = (page, { number }) => page.events.filter((event) => event.batch === number).map((event) => event.text);

function axis({ first, last, x, lowBase, isSmall }) {
  const numbers = new Set(ticks(last - first, isSmall ? 4 : 8).map((at) => first + Math.round(at)));
  return [...numbers].filter((number) => number <= last).map((number) => (number === first
    ? svg('text', { x: x(number), y: lowBase + 16, 'text-anchor': 'start' }, `batch ${number}`)
    : svg('text', { x: x(number), y: lowBase + 16, 'text-anchor': 'middle' }, number)));
}

function sentence(page, batch) {
  const slots = slotsOf(batch);
  const worst = slots.length ? slots.reduce((a, b) => (batch.loads[b] > batch.loads[a] ? b : a)) : null;
  return [
    `batch ${batch.number}: ${batch.rows ? `${rate(rateOf(batch))} rows/s in ${seconds(batch.seconds)}` : 'no rows'}`,
    worst !== null && `most loaded ${executorName(page, worst)}, ${times(batch.loads[worst])} its fair share`,
    batch.spread && `most loaded ${times(batch.spread[4])} its fair share`,
    batch.moving && 'state moves',
    batch.attempt > 1 && `attempt ${batch.attempt}`,
    ...eventsAt(page, batch),
  ].filter(Boolean).join('; ');
}
