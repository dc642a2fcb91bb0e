/* Figures and keys as text. */
import { html } from './dom.js';

export const isKnown = (value) => typeof value === 'number' && Number.isFinite(value);
const digits = (value, most) =>
  value.toLocaleString('en-US', { minimumFractionDigits: 0, maximumFractionDigits: most, signDisplay: 'negative' });

function scaled(value, steps) {
  if (!isKnown(value)) return ['–', ''];
  for (const [size, unit] of steps) {
    if (Math.abs(value) >= size * 0.9995) {
      const scaledValue = value / size;
      return [scaledValue.toFixed(scaledValue >= 100 ? 0 : scaledValue >= 10 ? 1 : 2), unit];
    }
  }
  return [digits(value, value < 10 ? 2 : 0), ''];
}

export const rateParts = (value) => scaled(value, [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]);
export const rate = (value) => rateParts(value).join(' ').trim();
export function size(value) {
  const [figure, unit] = scaled(value, [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']]);
  return unit ? `${figure} ${unit}` : isKnown(value) ? `${value} B` : figure;
}
export const count = (value) => (isKnown(value) ? digits(value, 0) : '–');
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
export const times = (value) => (isKnown(value) ? `${value.toFixed(value < 9.95 ? 2 : 1)} ×` : '–');

export function percent(value, most = 0) {
  if (!isKnown(value)) return '–';
  const small = value !== 0 && Math.abs(value) < 0.01;
  return `${digits(100 * value, small ? Math.max(1, most) : most)} %`;
}

export function seconds(value) {
  if (!isKnown(value)) return '–';
  if (value >= 100) return `${digits(value, 0)} s`;
  if (value >= 1) return `${value.toFixed(value >= 10 ? 1 : 2)} s`;
  if (value >= 0.001) return `${digits(1000 * value, 0)} ms`;
  return value > 0 ? '< 1 ms' : '0 s';
}

/* Both by the driver's clock: the browser's may be another. */
export function ago(at, now) {
  const past = Math.max(0, now - at);
  if (past < 90) return `${Math.round(past)} s ago`;
  if (past < 5400) return `${Math.round(past / 60)} min ago`;
  return past < 172800 ? `${Math.round(past / 3600)} h ago` : `${Math.round(past / 86400)} days ago`;
}

/* Event time, in the zone in which it is given: UTC. */
export const moment = (at) => new Date(1000 * at).toISOString().replace('T', ' ').replace(/\.?0*Z$/, ' UTC');

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

export function clip(text, most) {
  const points = [...text];
  return points.length > most ? `${points.slice(0, Math.max(1, most - 1)).join('')}…` : text;
}

/* Control, invisible and direction characters, and blanks at either end: shown as escapes and signs, never as themselves. */
const HARMFUL = new RegExp(
  '[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u200b\\u200c\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f' +
    '\\ufeff\\ufff9-\\ufffb]' +
    '|(?<!\\p{Extended_Pictographic}\\ufe0f?)\\u200d|^[\\u0020\\u00a0]+|[\\u0020\\u00a0]+$', 'gu');

function escaped(text) {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(HARMFUL)) {
    parts.push(text.slice(from, found.index));
    const isBlank = /^[\u0020\u00a0]/.test(found[0]);
    const sign = isBlank ? '␣'.repeat(found[0].length) : `\\u${found[0].codePointAt(0).toString(16).padStart(4, '0')}`;
    parts.push(html('span', { class: 'escape' }, sign));
    from = found.index + found[0].length;
  }
  return [...parts, text.slice(from)];
}

/* A key as a person may see it, isolated from the direction of the text around it. */
export function keyText(label, most) {
  if (label === '') return html('em', {}, 'empty text');
  return html('bdi', { dir: 'auto', class: 'key' }, escaped(clip(label, most)));
}
