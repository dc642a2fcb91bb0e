/* The operator's list of topologies: it draws the answers at `topologies.json` and decides nothing. */
import { byId, html, patch } from './dom.js';
import { keepAsking, notice, question } from './polling.js';
import { ago, count, isKnown, percent, plural, rate } from './words.js';

const VERSION = 1;
const POLL_MILLISECONDS = 5000;
const SLOWEST_MILLISECONDS = 60000;

/* Behind the API server's proxy a topology's page is a neighbour of this one; elsewhere a command leads to it. */
const PROXIED = /^(.*\/api\/v1\/namespaces\/)[^/]+\/services\/[^/]+\/proxy\/$/;

function draw(answer) {
  const { topologies, total, now } = answer;
  const acting = topologies.filter((one) => one.state === 'act').length;
  patch(byId('summary'), total ? summary(total, acting) : '');
  document.title = acting ? `${plural(acting, 'topology needs', 'topologies need')} somebody` : 'Topologies';
  if (!total) {
    patch(byId('list'), html('p', { class: 'empty' }, 'No StreamTopology exists in the namespaces of this operator.'));
    return;
  }
  const column = (name, kind) => html('th', { scope: 'col', class: kind }, name);
  patch(byId('list'),
    html('table', { 'aria-labelledby': 'h-list' },
      html('thead', {}, html('tr', {},
        column('Topology'), column('Phase'), column('Executors', 'right optional'), column('Rows/s', 'right'),
        column('Imbalance', 'right optional'), column('Last re-routing', 'optional'), column('Its page'))),
      html('tbody', {}, topologies.map((one) => row(one, now)))),
    total > topologies.length && html('p', { class: 'note' },
      `and ${count(total - topologies.length)} more${topologies.at(-1).state === 'act' ? '' : ', none in need of somebody'}`));
}

function summary(total, acting) {
  const all = plural(total, 'topology', 'topologies');
  return acting ? `${all}, ${count(acting)} of them in need of somebody` : `${all}, none in need of somebody`;
}

function row(one, now) {
  return html('tr', {},
    html('th', { scope: 'row' }, html('bdi', {}, one.name), html('span', { class: 'soft' }, ' in ', html('bdi', {}, one.namespace))),
    html('td', { class: one.state },
      html('span', { class: 'phase' }, html('i', { class: `dot ${one.state}`, 'aria-hidden': 'true' }),
        one.state === 'act' && html('span', { class: 'hidden' }, 'needs somebody: '), one.phase),
      one.text && html('p', {}, one.text)),
    html('td', { class: 'right optional' }, one.executors ?? '–'),
    html('td', { class: 'right' }, rate(one.rows_per_second)),
    html('td', { class: 'right optional' }, isKnown(one.imbalance) ? percent(one.imbalance) : '–'),
    html('td', { class: 'optional' }, one.rerouting ? [ago(one.rerouted_at, now), html('p', {}, one.rerouting)] : 'none'),
    html('td', {}, pageOf(one)));
}

function pageOf({ namespace, name, service }) {
  const proxied = PROXIED.exec(location.pathname);
  if (proxied) {
    const path = `${proxied[1]}${encodeURIComponent(namespace)}/services/${encodeURIComponent(service)}:http/proxy/`;
    return html('a', { href: path }, 'open', html('span', { class: 'hidden' }, ` the page of ${name}`));
  }
  return html('code', {}, `streamtopology ui ${name} -n ${namespace}`);
}

async function refresh() {
  const value = await question('topologies.json', 'the operator');
  if (value.version !== VERSION) {
    throw new Error(`the operator serves version ${value.version}, this page reads ${VERSION}: reload the page`);
  }
  draw(value);
  notice('');
}

const silence = (silent, reason) =>
  (silent === null ? `No list yet${reason}.` : `No list for ${silent} s; this one is from then${reason}.`);

keepAsking(refresh, silence, POLL_MILLISECONDS, SLOWEST_MILLISECONDS);
