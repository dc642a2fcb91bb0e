/* Questions to a server, one after the other: rarer while it does not answer, and none from a hidden tab. */
import { byId, patch } from './dom.js';

const LATE_MILLISECONDS = 5000; // from then on a page says that it waits
const PATIENCE_MILLISECONDS = 25000; // `streamtopology ui` may need ten seconds for each of its two ways
const MOST_REASON = 300;

export function notice(text) {
  const at = byId('notice');
  at.hidden = !text;
  if (at.textContent !== text) patch(at, text);
}

/* The JSON value at `path`; an Error has the reason for people why there is none. `who` is asked. */
export async function question(path, who) {
  try {
    const signal = AbortSignal.timeout(PATIENCE_MILLISECONDS);
    const answer = await fetch(path, { cache: 'no-store', credentials: 'same-origin', signal });
    if (answer.ok) return await answer.json();
    const isText = (answer.headers.get('Content-Type') ?? '').startsWith('text/plain');
    const reason = isText ? (await answer.text()).trim().slice(0, MOST_REASON) : '';
    throw new Error(reason || `${who} answers ${answer.status}`);
  } catch (wrong) {
    if (wrong.name === 'TimeoutError') throw new Error(`no answer within ${PATIENCE_MILLISECONDS / 1000} s`);
    if (wrong instanceof TypeError) throw new Error('the connection is refused or lost');
    if (wrong instanceof SyntaxError) throw new Error(`the answer of ${who} is cut off, or not JSON`);
    throw wrong;
  }
}

/* Calls `ask` again and again. `silence(seconds, reason)` is the notice while no answer comes; null: there was none yet. */
export function keepAsking(ask, silence, milliseconds, slowest) {
  let misses = 0;
  let heardAt = 0;
  let timer = 0;
  let isAsking = false;

  const miss = (reason) => notice(silence(heardAt ? Math.round(Math.max(0, Date.now() - heardAt) / 1000) : null, reason));

  async function poll() {
    timer = 0;
    isAsking = true;
    const waiting = setInterval(miss, LATE_MILLISECONDS, '');
    try {
      await ask();
      misses = 0;
      heardAt = Date.now();
    } catch (wrong) {
      misses += 1;
      if (misses > 1 || !heardAt) miss(` (${wrong.message})`);
    }
    clearInterval(waiting);
    isAsking = false;
    schedule(Math.min(slowest, milliseconds * 1.6 ** Math.min(6, misses)));
  }

  function schedule(after) {
    if (!document.hidden && !timer && !isAsking) timer = setTimeout(poll, after);
  }

  document.addEventListener('visibilitychange', () => schedule(0));
  schedule(0);
}
