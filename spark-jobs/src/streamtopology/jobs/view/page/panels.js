/* The head, the re-routings, the keys, and the state with the events. */
import { byId, html, patch } from './dom.js';
import { reroutings, state } from './state.js';
import { ago, count, isKnown, keyText, moment, percent, plural, rate, rateParts, seconds, size } from './words.js';

const SHORT_KEY = 44;
const LONG_SECONDS = 15;
const LONG = 3; // times as long as the batch before it
const UNKNOWN_LAG = 'not known now';
const END_OF_TIME = 253402300799; // the watermark once all windows are closed for good
let spoken = '';

const width = (share) => ({ width: `${Math.min(100, 100 * share).toFixed(1)}%` });
const isKafka = (node) => node.kind === 'source' && (node.format === 'kafka' || isKnown(node.lag_rows));
const lagOf = (node) => (isKnown(node.lag_rows) ? plural(node.lag_rows, 'row') : UNKNOWN_LAG);
const capital = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;

export function drawHead(page) {
  const kind = page.verdict.state;
  const [first, rest] = page.verdict.text.split(/; (.*)/s);
  patch(byId('head'),
    html('div', { class: 'who' },
      html('h1', {}, html('bdi', {}, page.topology)),
      html('span', { class: 'phase' }, html('i', { class: `dot ${kind}`, 'aria-hidden': 'true' }), page.phase),
      page.mode && html('span', {}, `rebalance ${page.mode}, tolerance ${percent(page.tolerance)}`),
      page.epoch !== null && html('span', {}, `epoch ${page.epoch}`)),
    html('p', { class: 'verdict' },
      kind === 'act' && html('span', { class: 'warn', 'aria-hidden': 'true' }, '▲ '), first,
      html('span', { class: 'rest' }, rest ? `${capital(rest)}.` : '\u00a0')),
    figures(page));
  document.title = `${page.topology}: ${first}`;
  if (page.verdict.text !== spoken) { // a changed verdict is announced, figures never are
    if (spoken) patch(byId('spoken'), page.verdict.text);
    spoken = page.verdict.text;
  }
}

function figures(page) {
  const bound = page.bound_rows_per_second;
  const share = isKnown(page.rows_per_second) && bound ? page.rows_per_second / bound : null;
  const [rows, unit] = rateParts(page.rows_per_second);
  const [lag, lagUnit] = rateParts(page.lag_rows);
  const last = page.last_batch;
  const figure = (name, value, small, below) =>
    html('div', {}, html('dt', {}, name), html('dd', {}, value, small && html('span', { class: 'unit' }, small), below));
  const below = (text) => html('span', { class: 'below' }, text);
  const limit = isKnown(bound) ? `bound ${rate(bound)} rows/s` : 'bound not known yet';
  const idle = page.idle_seconds > 10 ? `no batch with rows for ${seconds(page.idle_seconds)}` : null;
  const isLong = page.running_seconds > Math.max(LONG_SECONDS, LONG * (last?.seconds ?? LONG_SECONDS));
  const runs = `▲ the ${last ? 'next' : 'first'} runs for ${seconds(page.running_seconds)}`;
  const took = isLong ? html('span', { class: 'warn' }, runs) : last && `${seconds(last.seconds)}, ${count(last.rows)} rows`;
  return html('dl', { class: 'figures' },
    figure('Throughput', rows, `${unit} rows/s`, below(idle ?? limit)),
    figure('Share of the bound', share === null ? '–' : (100 * share).toFixed(0), share === null ? '' : '%', meter(share ?? 0)),
    figure('Batch', count(page.batch), '', below(took)),
    isKnown(page.lag_rows)
      ? figure('Lag', lag, `${lagUnit} rows`, below('in Kafka'))
      : figure('Lag', lag, '', below(page.nodes.some(isKafka) ? UNKNOWN_LAG : 'not measured')));
}

function meter(share) {
  const attributes = { role: 'meter', 'aria-label': 'Share of the bound', 'aria-valuemin': 0, 'aria-valuemax': 100 };
  return html('span', { class: 'meter', 'aria-valuenow': Math.round(Math.min(1, share) * 100), ...attributes },
    html('i', { place: width(share) }));
}

export function drawReroutings(page) {
  const list = reroutings(page).reverse();
  patch(byId('reroutings-note'), list.length ? `${plural(list[0].number, 're-routing')}, newest first` : '');
  const advice = recommendation(page);
  const attributes = { class: 'cards', tabindex: list.length > 2 ? 0 : null, 'aria-label': 'Re-routings, newest first' };
  patch(byId('reroutings-body'), advice, list.length > 0
    ? html('ol', attributes, list.map((one) => card(page, one)))
    : !advice && html('p', { class: 'empty' }, noReroutings(page)));
}

/* What mode Recommend would do now, and how it is done: the driver's word, or on Kubernetes the resource's condition. */
function recommendation(page) {
  const condition = page.conditions.find((one) => one.reason === 'Recommended');
  if (!page.recommended && !condition) return null;
  const auto = '{"spec":{"rebalance":{"mode":"Auto"}}}';
  const kubectl = `kubectl patch stopo ${page.topology} -n ${page.namespace} --type merge -p '${auto}'`;
  return html('div', { class: 'advice' },
    html('h3', {}, 'Recommended'),
    html('p', { class: 'why' }, condition ? condition.message : `would re-route: ${page.recommended}`),
    html('p', { class: 'cost' }, condition ? 'To have it done:' : 'To have it done, in the manifest of the run:'),
    html('code', {}, condition ? kubectl : 'rebalance: {mode: Auto}'));
}

function noReroutings({ judgement, mode }) {
  if (judgement) return `None yet: ${judgement}.`;
  if (mode && mode !== 'Auto') return `None: rebalance.mode is ${mode}.`;
  return 'None yet. When an executor is beyond the tolerance and moving keys pays, the next batch runs by a new routing.';
}

function card(page, one) {
  const most = Math.max(0.3, one.predicted_gain, one.measured_gain ?? 0);
  const bar = (name, value, kind) => [
    html('dt', {}, name),
    html('dd', { class: 'track' }, value > 0 && html('i', { class: kind, place: width(value / most) })),
    html('dd', { class: 'number' }, isKnown(value) ? percent(value) : 'not yet'),
  ];
  return html('li', { class: `card ${state.lit === one.epoch ? 'lit' : ''}`, 'data-act': 'card', 'data-id': one.epoch },
    html('h3', {},
      html('span', { class: 'ordinal' }, one.number), `batch ${one.batch}`, html('span', { class: 'soft helped' }, one.helped),
      html('span', { class: 'when' }, isKnown(one.at) ? ago(one.at, page.now) : '')),
    html('p', { class: 'why' }, one.why),
    one.predicted_gain > 0 && html('dl', { class: 'gain' },
      bar('predicted', one.predicted_gain, 'predicted'), bar('measured', one.measured_gain, '')),
    html('p', { class: 'cost' }, one.cost),
    story(one));
}

/* What was weighed, line by line as `streamtopology explain` prints it; one story is open at a time. */
function story(one) {
  if (one.story.length < 3) return null; // the card says as much
  const isOpen = state.story === one.epoch;
  const attributes = { type: 'button', 'data-act': 'story', 'data-id': one.epoch, 'aria-expanded': String(isOpen) };
  return html('div', { class: 'story' },
    html('button', attributes, isOpen ? 'less' : 'what was weighed'),
    isOpen && html('ul', {}, one.story.map((line) => html('li', {}, line))));
}

/* The re-routing of `epoch` next to its mark `flag`; null hides it. */
export function showTip(page, epoch, flag) {
  const tip = byId('tip');
  const one = page && epoch !== null ? reroutings(page).find((other) => other.epoch === epoch) : null;
  tip.hidden = !one;
  if (!one) return;
  patch(tip, html('b', {}, `Re-routing ${one.number}, batch ${one.batch}`), one.why, ' ',
    html('span', { class: 'soft' }, one.helped && `${capital(one.helped)}.`));
  const box = flag.getBoundingClientRect();
  const middle = box.left + box.width / 2 - tip.offsetWidth / 2;
  const most = document.documentElement.clientWidth - tip.offsetWidth - 12;
  tip.style.left = `${Math.max(12, Math.min(most, middle)) + window.scrollX}px`;
  tip.style.top = `${box.bottom + 8 + window.scrollY}px`;
}

export function drawKeys(page) {
  if (!page.keys.length) {
    patch(byId('keys-note'), '');
    patch(byId('keys-body'), html('p', { class: 'empty' }, 'No operator has had a heavy key yet, or none routes by key.'));
    return;
  }
  const most = Math.max(...page.keys.map((key) => key.share));
  const column = (name, kind) => html('th', { scope: 'col', class: kind }, name);
  patch(byId('keys-note'), 'share of the operator’s rows in the newest batch');
  patch(byId('keys-body'),
    html('div', { class: 'scroll' }, html('table', { 'aria-labelledby': 'h-keys' },
      html('thead', {}, html('tr', {},
        column('Key'), column('Operator', 'optional'), column('Share', 'right'), column('Rows/s', 'right optional'),
        column('Executor'), column('Routed by', 'optional'), column('State', 'right optional'))),
      html('tbody', {}, page.keys.map((key) => keyRow(key, most))))),
    html('p', { class: 'note' }, page.keys_of.map(keySummary).join('; ')));
}

function keySummary({ operator, top, total, share }) {
  const heaviest = top === 1 ? `the heaviest of ${count(total)} keys is` : `the ${top} heaviest of ${count(total)} keys are`;
  return `${operator}: ${heaviest} ${percent(share)} of its rows`;
}

function keyRow(key, most) {
  const isSplit = key.owned_by > 1;
  const tag = (text) => html('span', { class: 'tag' }, text);
  const owner = (one) => html('span', { class: 'owner' }, one.executor, isSplit && tag(percent(one.share)));
  const place = key.entry ? 'an entry of its own' : 'its bucket';
  const others = key.owned_by - key.owners.length;
  return html('tr', {},
    html('td', { class: 'key' }, keyCell(key)),
    html('td', { class: 'optional' }, key.operator),
    html('td', { class: 'right' }, percent(key.share, 1),
      html('span', { class: 'share', 'aria-hidden': 'true' }, html('i', { place: width(key.share / most) }))),
    html('td', { class: 'right optional' }, rate(key.rows_per_second)),
    html('td', {}, key.owners.map(owner), others > 0 && tag(`and ${others} more`)),
    html('td', { class: 'optional tag' }, isSplit ? `split over ${key.owned_by}` : place),
    html('td', { class: 'right optional' }, size(key.state_bytes)));
}

function keyCell(key) {
  const id = `${key.operator}/${key.hash}`;
  const isLong = [...key.label].length > SHORT_KEY;
  const isOpen = isLong && state.openKeys.has(id);
  return [
    keyText(key.label, isOpen ? Infinity : SHORT_KEY),
    isLong && html('button', { type: 'button', 'data-act': 'key', 'data-id': id, 'aria-expanded': String(isOpen) },
      isOpen ? 'less' : 'more'),
  ];
}

export function drawHealth(page) {
  const operators = page.nodes.filter((node) => node.kind === 'operator');
  const sum = (field) => operators.reduce((total, node) => total + node[field], 0);
  const executors = page.classes.map((one) => `${count(one.executors)} ${one.name}`).join(', ');
  const held = (node) => `${size(node.state_bytes)}, ${plural(node.state_keys, 'key')}`;
  const facts = [
    ['Executors', executors || '–'],
    page.steps && ['Time of a batch', steps(page.steps)],
    ...page.nodes.filter(isKafka).map((node) => [`Lag of ${node.name}`, lagOf(node)]),
    isKnown(page.watermark) && ['Watermark', page.watermark < END_OF_TIME ? moment(page.watermark) : 'end of the input'],
    ...operators.filter((node) => node.state_bytes).map((node) => [`State of ${node.name}`, held(node)]),
    ['Late rows', count(sum('late_rows'))],
    ['Rows set aside', count(sum('bad_rows'))],
    page.judgement && ['Planner', page.judgement],
  ].filter(Boolean);
  patch(byId('health-body'),
    html('dl', { class: 'facts' }, facts.map(([name, value]) => [html('dt', {}, name), html('dd', {}, value)])),
    page.conditions.length > 0 && html('ul', { class: 'conditions', 'aria-label': 'Conditions' },
      page.conditions.map((one) => html('li', {},
        html('b', {}, `${one.type} ${one.status}: ${one.reason}`),
        html('span', { class: 'soft' }, isKnown(one.since) ? `, ${ago(one.since, page.now)}` : ''),
        html('p', {}, html('bdi', {}, one.message))))),
    page.events.length > 0 && html('ul',
      { class: 'events', tabindex: page.events.length > 4 ? 0 : null, 'aria-label': 'Events, newest first' },
      [...page.events].reverse().map((event) =>
        html('li', {}, html('span', { class: 'soft' }, `${ago(event.at, page.now)}: `), html('bdi', {}, event.text)))));
}

/** Where the newest batch's time went. */
function steps(of) {
  const named = [
    [of.choosing, 'to choose its plan'], [of.working, 'of work on executors'], [of.passing, 'between stages'],
    [of.committing, 'to commit'], [of.publishing, 'to publish'],
  ];
  return named.map(([took, what]) => `${seconds(took)} ${what}`).join(', ');
}

export function drawFoot(page) {
  patch(byId('foot'),
    html('span', {}, 'read only'),
    html('span', {}, 'throughput: rows/s while batches run'),
    html('span', {}, `last batch ${page.last_batch ? ago(page.last_batch.committed_at, page.now) : '–'}`),
    html('span', {}, 'fair share: the work of an executor when all finish together'),
    html('span', {}, 'bound: rows/s that no routing can beat with the capacities measured'));
}
