// Scales, ticks and numbers as people read them. No state, no document: plain functions.
"use strict";

const AXES = {
  steps: { name: "steps", label: "optimizer steps", unit: "" },
  tokens: { name: "tokens", label: "tokens", unit: "tokens" },
  hours: { name: "hours", label: "hours of training", unit: "hours" },
  flops: { name: "FLOPs", label: "FLOPs", unit: "" },
};

// Four significant digits, with k, M, B, T from a thousand on and powers of ten far outside.
function shortNumber(value, digits = 4, least = 1e-3) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < least || size >= 1e15) return value.toExponential(digits - 2).replace(/\.?0+e/, "e").replace("e+", "e");
  for (const [scale, suffix] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= scale) return trimmed(value / (suffix === "k" ? 1e3 : scale), digits) + suffix;
  }
  return trimmed(value, digits);
}

function trimmed(value, digits) {
  return String(Number(value.toPrecision(digits)));
}

// A value of a chart's unit, as the tooltip shows it.
function valueText(value, unit) {
  if (value === null || !Number.isFinite(value)) return "no number";
  if (unit === "nats") return value.toFixed(4);
  if (unit === "fraction") return (100 * value).toFixed(1) + " %";
  return shortNumber(value, 5) + (unit && unit !== "tokens" ? " " + unit : "");
}

// Beside 0.001 there is 0.0005 and not 5e-4; and no two ticks of one axis read the same, however near they are.
function tickText(value, unit, ticks) {
  const largest = Math.max(...ticks.map(Math.abs));
  const least = Math.min(...ticks.slice(1).map((tick, i) => tick - ticks[i]));
  const digits = least > 0 && Number.isFinite(least) ? Math.max(4, Math.floor(Math.log10(largest / least)) + 2) : 4;
  return unit === "fraction" ? trimmed(100 * value, digits) + " %" : shortNumber(value, digits, largest < 1e-3 ? 1e-3 : 1e-4);
}

// A scale from [low, high] to pixels [from, to]. Logarithmic ones show nothing at or below zero.
function makeScale(low, high, from, to, log) {
  const bend = log ? Math.log10 : (v) => v;
  const back = log ? (v) => 10 ** v : (v) => v;
  const start = bend(low);
  const width = bend(high) - start || 1;
  const place = (value) => (log && value <= 0 ? NaN : from + ((bend(value) - start) / width) * (to - from));
  const invert = (pixel) => back(start + ((pixel - from) / (to - from)) * width);
  return { low, high, from, to, place, invert, ticks: (count) => (log ? logTicks(low, high) : evenTicks(low, high, count)) };
}

// Steps of 1, 2 or 5 times a power of ten, about `count` of them.
function evenTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-12) + step * 1e-9; n++) ticks.push(n * step);
  // One number alone is no scale.
  return ticks.length < 2 && count < 16 ? evenTicks(low, high, 2 * count) : ticks;
}

function logTicks(low, high) {
  const decades = Math.log10(high / low);
  if (decades < 0.5) return evenTicks(low, high, 4);
  const factors = decades <= 1.5 ? [1, 2, 3, 5, 7] : decades <= 3 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(decades / 7));
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    if (power % every) continue;
    for (const factor of factors) {
      const tick = factor * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

// The row whose x is nearest; xs rise.
function nearestRow(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
}

// Rows with x in [low, high], and one more on either side, so that lines run out of the picture.
function rowsWithin(xs, low, high) {
  let first = xs.findIndex((x) => x >= low);
  if (first < 0) first = xs.length;
  let last = first;
  while (last < xs.length && xs[last] <= high) last++;
  return [Math.max(0, first - 1), Math.min(xs.length, last + 1)];
}
