/* The page of a running topology: it draws the answers at `page.json` and decides nothing. */
import { drawExecutors } from './executors.js';
import { drawFlow } from './flow.js';
import { drawFoot, drawHead, drawHealth, drawKeys, drawReroutings, showTip } from './panels.js';
import { keepAsking, notice, question } from './polling.js';
import { state } from './state.js';
import { drawTimeline, numberAt, stepTo } from './timeline.js';

const FORMAT = 1;
const POLL_MILLISECONDS = 1000;
const SLOWEST_MILLISECONDS = 15000;
const MOST_BATCHES = 600;
const NOTICE_MILLISECONDS = 60000;
const PARTS = [drawHead, drawTimeline, drawReroutings, drawExecutors, drawFlow, drawKeys, drawHealth, drawFoot];

let restartedAt = 0;
let frame = 0;

function draw() {
  if (!state.page) return;
  for (const part of PARTS) {
    try {
      part(state.page);
    } catch (wrong) { // one part that fails leaves the others
      console.error(part.name, wrong);
    }
  }
}

function drawSoon() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    draw();
  });
}

/* Takes an answer; false if it is of another driver process, whose batches have to be asked for from the start. */
function take(page) {
  if (page.format !== FORMAT) {
    throw new Error(`the driver serves format ${page.format}, this page reads ${FORMAT}: reload the page`);
  }
  if (state.run !== page.run) {
    if (state.run !== null) restartedAt = Date.now();
    const isFirst = state.last < 0;
    Object.assign(state, { run: page.run, last: -1, cursor: null, lit: null, story: null });
    state.batches.clear();
    if (!isFirst) return false;
  }
  const isGap = state.last >= 0 && page.batches[0]?.number > state.last + 1; // away for long: what came since did not fit
  if (isGap) state.batches.clear();
  for (const batch of page.batches) state.batches.set(batch.number, batch);
  const oldest = [...state.batches.keys()].sort((a, b) => a - b).slice(0, -MOST_BATCHES);
  for (const number of oldest) state.batches.delete(number);
  state.last = page.batch ?? -1;
  state.page = page;
  return true;
}

const ask = () => question(`page.json?since=${state.last}`, 'the driver');

async function refresh() {
  if (!take(await ask())) take(await ask());
  drawSoon();
  notice(Date.now() - restartedAt < NOTICE_MILLISECONDS ? 'The driver has restarted: this is its new run.' : '');
}

const silence = (silent, reason) =>
  (silent === null ? `No answer yet${reason}.` : `No answer for ${silent} s; the figures are from then${reason}.`);

const acting = (event) => event.target.closest?.('[data-act]');

function point(epoch, flag) {
  if (state.lit !== epoch) {
    state.lit = epoch;
    drawSoon();
  }
  showTip(state.page, flag ? epoch : null, flag);
}

document.addEventListener('click', (event) => {
  const at = acting(event);
  if (!at) return;
  const { act, id } = at.dataset;
  if (act === 'stage') {
    state.stage = id;
  } else if (act === 'key') {
    if (!state.openKeys.delete(id)) state.openKeys.add(id);
  } else if (act === 'story') {
    state.story = state.story === Number(id) ? null : Number(id);
  } else if (act === 'flag') {
    point(Number(id), at);
    document.querySelector(`.card[data-id="${Number(id)}"]`)?.scrollIntoView({ block: 'nearest' });
  }
  drawSoon();
});

for (const [enter, leave] of [['pointerover', 'pointerout'], ['focusin', 'focusout']]) {
  document.addEventListener(enter, (event) => {
    const at = acting(event);
    if (at?.dataset.act === 'flag') point(Number(at.dataset.id), at);
    else if (at?.dataset.act === 'card') point(Number(at.dataset.id), null);
  });
  document.addEventListener(leave, (event) => {
    const at = acting(event);
    if (!at || at.contains(event.relatedTarget)) return;
    if (['flag', 'card'].includes(at.dataset.act)) point(null, null);
    if (at.dataset.act === 'cursor') {
      state.cursor = null;
      drawSoon();
    }
  });
}

document.addEventListener('pointermove', (event) => {
  const at = acting(event);
  if (at?.dataset.act !== 'cursor') return;
  const box = at.getBoundingClientRect();
  state.cursor = numberAt((event.clientX - box.left) / box.width);
  drawSoon();
});

document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') {
    state.cursor = null;
    point(null, null);
    drawSoon();
  } else if (acting(event)?.dataset.act === 'cursor') {
    const number = stepTo(event.key, state.cursor);
    if (number === null) return;
    event.preventDefault();
    state.cursor = number;
    drawSoon();
  }
});

new ResizeObserver(drawSoon).observe(document.querySelector('.page'));
keepAsking(refresh, silence, POLL_MILLISECONDS, SLOWEST_MILLISECONDS);
