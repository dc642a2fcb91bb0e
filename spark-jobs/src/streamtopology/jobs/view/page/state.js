/* All that the page remembers between two answers of the driver. */
export const ALL = '(all)';
export const SOURCE = '(source)';
const PARTS = '.partial';

export const state = {
  page: null, // the newest answer
  batches: new Map(), // number -> batch of the timeline
  run: null, // the driver process that they are of
  last: -1, // the newest batch that is known
  stage: ALL,
  openKeys: new Set(),
  story: null, // the epoch whose story is open
  cursor: null, // the batch that is pointed at
  lit: null, // the epoch whose re-routing is pointed at
};

/* The re-routings with their numbers, oldest first. */
export const reroutings = (page) =>
  page.reroutings.map((one, index) => ({ ...one, number: index + 1 + page.reroutings_before }));

/* An executor holds the others up from twice the tolerance, until it is within the tolerance again: as the verdict has it. */
export const limit = (page) => 1 + (page.tolerance ?? 0) * (page.verdict.state === 'act' ? 1 : 2);

export const executorName = (page, slot) =>
  page.executors.find((one) => String(one.slot) === String(slot))?.name ?? `slot ${slot}`;

export function stageName(stage) {
  if (stage === ALL) return 'all work';
  if (stage === SOURCE) return 'source';
  return stage.endsWith(PARTS) ? `${stage.slice(0, -PARTS.length)} (parts of keys)` : stage;
}
