/* The graph of the topology, top down: the width of an edge is its rows/s. */
import { byId, html, patch, svg } from './dom.js';
import { limit } from './state.js';
import { clip, isKnown, percent, plural, rate, size } from './words.js';

const OPERATOR_HEIGHT = 58;
const END_HEIGHT = 34;
const GAP = 46;
const CHARACTER = 6.6;
const LEAST_LANE = { operator: 190, source: 150, sink: 150 }; // what the texts of a node need
const LEAST_ROOM = 240;

const fit = (text, room) => clip(text, Math.max(3, Math.floor(room / CHARACTER)));
const isOperator = (node) => node.kind === 'operator';
const heightOf = (node) => (isOperator(node) ? OPERATOR_HEIGHT : END_HEIGHT);

export function drawFlow(page) {
  const graph = byId('graph');
  if (!page.nodes.length) {
    patch(graph, html('p', { class: 'empty' }, 'The manifest is not known yet.'));
    return;
  }
  const panels = byId('flow').parentElement;
  panels.classList.remove('wide-flow');
  panels.classList.toggle('wide-flow', layout(page, LEAST_ROOM).width > graph.clientWidth); // else a third of the page
  const { places, width, height } = layout(page, Math.max(LEAST_ROOM, graph.clientWidth)); // what is wider scrolls
  const isWide = width > graph.clientWidth;
  for (const [name, value] of [['tabindex', 0], ['role', 'group'], ['aria-labelledby', 'h-flow']]) {
    if (isWide) graph.setAttribute(name, value); // by the keyboard it scrolls once it has the focus
    else graph.removeAttribute(name);
  }
  const most = Math.max(1, ...page.edges.map((edge) => edge.rows_per_second ?? 0));
  const text = page.edges.map((edge) => `${edge.from} to ${edge.to}: ${rate(edge.rows_per_second)} rows per second`).join('; ');
  patch(graph,
    svg('svg', { width: isWide ? width : '100%', height, viewBox: `0 0 ${width} ${height}`, role: 'img',
      'aria-label': `${text}.` },
      page.edges.map((edge) => line(edge, places, most)),
      page.edges.map((edge) => label(page, edge, places)),
      page.nodes.map((node) => (isOperator(node) ? operator : end)(page, node, places.get(node.name)))));
}

/* Each node one rank below the lowest of those that it reads; within a rank in the order of their middles. */
function layout(page, room) {
  const rank = new Map();
  const into = (name) => page.edges.filter((edge) => edge.to === name);
  for (const node of page.nodes) { // sources, then operators in flow order, then sinks
    rank.set(node.name, Math.max(-1, ...into(node.name).map((edge) => rank.get(edge.from) ?? -1)) + 1);
  }
  const ranks = [];
  for (const node of page.nodes) (ranks[rank.get(node.name)] ??= []).push(node);
  const needed = (nodes) => nodes.length * Math.max(...nodes.map((node) => LEAST_LANE[node.kind]));
  const width = Math.max(room, ...ranks.filter((nodes) => nodes.length > 1).map(needed));
  const middles = new Map();
  const places = new Map();
  let top = 2;
  for (const nodes of ranks) {
    const middle = (node) => {
      const from = into(node.name).map((edge) => middles.get(edge.from) ?? 0.5);
      return from.length ? from.reduce((a, b) => a + b, 0) / from.length : 0;
    };
    nodes.sort((a, b) => middle(a) - middle(b));
    const height = Math.max(...nodes.map(heightOf));
    nodes.forEach((node, index) => {
      const at = (index + 0.5) / nodes.length;
      const wide = Math.min(isOperator(node) ? 300 : 220, (width - 8) / nodes.length - 12);
      middles.set(node.name, at);
      const y = top + (height - heightOf(node)) / 2;
      places.set(node.name, { x: at * width - wide / 2, y, width: wide, height: heightOf(node), lane: width / nodes.length });
    });
    top += height + GAP;
  }
  return { places, width, height: top - GAP + 3 };
}

function ends(edge, places) {
  const from = places.get(edge.from);
  const to = places.get(edge.to);
  return { x1: from.x + from.width / 2, y1: from.y + from.height, x2: to.x + to.width / 2, y2: to.y };
}

function line(edge, places, most) {
  const { x1, y1, x2, y2 } = ends(edge, places);
  const middle = (y1 + y2) / 2;
  const stroke = (1.5 + (7 * (edge.rows_per_second ?? 0)) / most).toFixed(1);
  return svg('path', { class: 'edge', 'stroke-width': stroke, d: `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}` });
}

function label(page, edge, places) {
  const lane = Math.min(places.get(edge.from).lane, places.get(edge.to).lane);
  const { x1, y1, x2, y2 } = ends(edge, places);
  const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2 + 4];
  const isAlone = page.edges.filter((other) => other.to === edge.to || other.from === edge.from).length === 1;
  const key = edge.key.length > 0 && `by ${edge.key.join(', ')}`;
  const details = [key, isKnown(edge.stays) && `${percent(edge.stays)} stay local`];
  const detail = details.filter(Boolean).join(', ');
  return [
    svg('text', { class: 'flow', x: x + (isAlone ? 12 : 0), y, 'text-anchor': isAlone ? 'start' : 'middle' },
      `${rate(edge.rows_per_second)} /s`),
    isAlone && detail && svg('text', { class: 'detail', x: x - 12, y, 'text-anchor': 'end' }, fit(detail, lane / 2 - 20)),
  ];
}

const box = (kind, { x, y, width, height }) => svg('rect', { class: `box ${kind}`, x, y, width, height, rx: 7 });

function operator(page, node, place) {
  const isOver = isKnown(node.imbalance) && 1 + node.imbalance > limit(page);
  const left = place.x + 12;
  const right = place.x + place.width - 12;
  const text = (kind, x, y, content) =>
    svg('text', { class: kind, x, y: place.y + y, 'text-anchor': x === right ? 'end' : 'start' }, content);
  const isWide = place.width > 190;
  const share = isKnown(node.busy_share) ? `${percent(node.busy_share)} of the work` : '';
  const imbalance = isKnown(node.imbalance) ? `${isOver ? '▲ ' : ''}imbalance ${percent(node.imbalance)}` : 'not measured';
  return svg('g', {},
    box(`${node.limits ? 'limit' : ''} ${isOver ? 'bad' : ''}`, place),
    text('title', left, 19, fit(node.name, place.width * 0.52)),
    text('detail', right, 19, fit(`${node.policy} × ${node.instances}`, place.width * 0.45)),
    text(isOver ? 'warn' : 'detail', left, 36, imbalance),
    text('detail', right, 36, node.state_bytes ? `${isWide ? 'state ' : ''}${size(node.state_bytes)}` : 'no state'),
    text(node.limits ? 'limits' : 'detail', left, 51, node.limits ? `limits: ${share}` : share),
    isWide && node.entries > 0 && text('detail', right, 51, `${plural(node.entries, 'key')} placed`));
}

function end(page, node, place) {
  const note = node.limits ? 'limits' : fit(node.format ?? '', place.width * 0.36);
  return svg('g', {},
    box(`end ${node.limits ? 'limit' : ''}`, place),
    svg('text', { class: 'title', x: place.x + place.width / 2, y: place.y + 22, 'text-anchor': 'middle' },
      fit(node.name, place.width * 0.6), svg('tspan', { class: node.limits ? 'limits' : 'detail', dx: 6 }, note)));
}
