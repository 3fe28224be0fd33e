// Draws one figure as SVG: curves, bands, error bars, marks, a cursor with values, zoom, log scales, a legend.
//
//   const chart = new Chart(host, figure, runs);   // host: an empty element; figure, runs: report/figures.py
//   chart.setAxis("tokens");                       // steps, tokens, hours or flops
//   chart.update(figure);                          // new data, same zoom and switches
//
// Everything that comes from a run is set as text, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
// The share of a run in which the loss falls from ln(vocabulary).
const START_SHARE = 0.03;
// On the left there is room for the axis' name and, beside it, for its longest number.
const MARGIN = { top: 14, right: 16, bottom: 42, left: 58 };
const NAME_WIDTH = 32;
// No text of 12 pixels is wider; measuring it would lay out the page for every chart that is drawn.
const DIGIT_WIDTH = 7.2;

function svgElement(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function htmlElement(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

class Chart {
  constructor(host, figure, runs) {
    this.host = host;
    this.runs = runs;
    this.axis = "steps";
    this.window = null; // zoomed part of the horizontal axis, in its unit; null: everything
    this.log = { x: false, y: false };
    this.hidden = new Set();
    this.cursor = null;
    this.build(figure);
    this.update(figure);
    new ResizeObserver(() => this.draw()).observe(this.svg);
    listenTo(this);
  }

  build(figure) {
    this.legend = htmlElement("div", { class: "legend", role: "group", "aria-label": `Curves of ${figure.title}` });
    this.toggles = htmlElement("div", { class: "toggles", role: "group", "aria-label": `Scales of ${figure.title}` });
    for (const axis of ["x", "y"]) {
      const button = htmlElement("button", { type: "button", "aria-pressed": "false" }, `log ${axis}`);
      button.addEventListener("click", () => this.setLog(axis, !this.log[axis]));
      this.toggles.append(button);
    }
    // A first loss of ten hides what happens between three and four; it is out of the picture until asked for.
    this.whole = false;
    this.start = htmlElement("button", { type: "button", "aria-pressed": "false" }, "start too");
    this.start.addEventListener("click", () => {
      this.whole = !this.whole;
      this.start.setAttribute("aria-pressed", String(this.whole));
      this.draw();
    });
    this.toggles.append(this.start);
    this.reset = htmlElement("button", { type: "button", disabled: "" }, "whole run");
    this.reset.addEventListener("click", () => this.zoom(null));
    this.toggles.append(this.reset);
    this.svg = svgElement("svg", { class: "plot", tabindex: "0", role: "application", "aria-label": figure.title });
    this.svg.setAttribute("aria-roledescription", "chart");
    this.help = "Left and right arrows read values; plus and minus zoom; Escape shows the whole run.";
    this.tip = htmlElement("div", { class: "tip", "aria-hidden": "true", hidden: "" });
    this.spoken = htmlElement("div", { class: "spoken", role: "status" });
    this.stage = htmlElement("div", { class: "stage" });
    this.stage.append(this.svg, this.tip);
    this.host.replaceChildren(
      htmlElement("div", { class: "controls" }, this.legend, this.toggles), this.stage, this.spoken);
  }

  // New data; zoom, scales and hidden curves stay.
  update(figure) {
    this.figure = figure;
    this.svg.setAttribute("aria-label", `${figure.title}. ${figure.summary} ${this.help}`);
    const labels = [];
    for (const curve of figure.curves) if (!labels.some((c) => c.label === curve.label)) labels.push(curve);
    this.legend.replaceChildren(...labels.map((curve) => this.legendButton(curve)));
    this.draw();
  }

  legendButton(curve) {
    const key = svgElement("svg", { class: `key color-${curve.color} ${curve.style} ${curve.shape}`, viewBox: "0 0 18 10",
      "aria-hidden": "true" });
    key.append(curve.shape === "band" ? svgElement("rect", { x: 1, y: 1, width: 16, height: 8, class: "area" })
      : svgElement("line", { x1: 1, x2: 17, y1: 5, y2: 5, class: "line" }));
    if (curve.shape === "dots") key.append(svgElement("circle", { cx: 9, cy: 5, r: 3, class: "dot" }));
    const shown = !this.hidden.has(curve.label);
    const button = htmlElement("button", { type: "button", "aria-pressed": String(shown), title: curve.origin });
    button.append(key, curve.label);
    button.addEventListener("click", () => this.toggle(curve.label, button));
    return button;
  }

  toggle(label, button) {
    if (this.hidden.has(label)) this.hidden.delete(label);
    else this.hidden.add(label);
    button.setAttribute("aria-pressed", String(!this.hidden.has(label)));
    this.draw();
  }

  setLog(axis, on) {
    this.log[axis] = on;
    this.toggles.children[axis === "x" ? 0 : 1].setAttribute("aria-pressed", String(on));
    this.draw();
  }

  setAxis(name) {
    if (this.window) {
      const factor = this.perStep(0, name) / this.perStep(0, this.axis);
      this.window = this.window.map((x) => x * factor);
    }
    this.axis = name;
    this.cursor = null;
    this.draw();
  }

  zoom(window) {
    this.window = window;
    this.reset.disabled = window === null;
    this.draw();
  }

  perStep(run, name = this.axis) {
    const axis = this.runs[run].axes.find((candidate) => candidate.name === name);
    return axis ? axis.per_step : 1;
  }

  visible() {
    return this.figure.curves.filter((curve) => !this.hidden.has(curve.label));
  }

  xsOf(curve) {
    const factor = this.perStep(curve.run);
    return factor === 1 ? curve.x : curve.x.map((step) => step * factor);
  }

  // The horizontal extent of everything that is shown.
  extent() {
    let [low, high, leastPositive] = [Infinity, -Infinity, Infinity];
    for (const curve of this.visible()) {
      const factor = this.perStep(curve.run);
      for (const step of curve.x) {
        const x = step * factor;
        if (x < low) low = x;
        if (x > high) high = x;
        if (x > 0 && x < leastPositive) leastPositive = x;
      }
    }
    if (!(high >= low)) return [0, 1];
    if (this.log.x) low = Number.isFinite(leastPositive) ? leastPositive : 1;
    return high > low ? [low, high] : [low, low + 1];
  }

  // The vertical range: of everything in the window, or without the first fall where that takes most of the
  // height. A rise from the start, such as a warm-up of the learning rate, is never cut.
  heights(low, high) {
    const all = verticalRange(this.drawn, this.log.y);
    const late = low + START_SHARE * (high - low);
    const rest = verticalRange(this.drawn, this.log.y, -Infinity, verticalRange(this.drawn, this.log.y, late)[1]);
    const dominated = !this.window && !this.log.x && !this.log.y && rest[1] - rest[0] < 0.5 * (all[1] - all[0]);
    this.start.hidden = !dominated;
    return dominated && !this.whole ? rest : all;
  }

  draw() {
    const width = Math.max(260, this.stage.clientWidth);
    const height = this.svg.clientHeight || 300;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const [low, high] = this.window || this.extent();
    const safeLow = this.log.x && low <= 0 ? this.extent()[0] : low;
    this.drawn = this.visible().map((curve) => {
      const xs = this.xsOf(curve);
      return { curve, xs, rows: rowsWithin(xs, safeLow, high) };
    });
    const [bottom, top] = this.heights(safeLow, high);
    this.y = makeScale(bottom, top, height - MARGIN.bottom, MARGIN.top, this.log.y);
    this.size = { width, height };
    this.ticks = heightTicks(this.y, this.figure.unit);
    this.left = Math.max(MARGIN.left, NAME_WIDTH + DIGIT_WIDTH * Math.max(0, ...this.ticks.map((tick) => tick.text.length)));
    this.x = makeScale(safeLow, high, this.left, width - MARGIN.right, this.log.x);
    const inner = svgElement("svg", { x: this.left, y: MARGIN.top, width: width - this.left - MARGIN.right,
      height: height - MARGIN.top - MARGIN.bottom, overflow: "hidden" });
    const shifted = svgElement("g", { transform: `translate(${-this.left} ${-MARGIN.top})` });
    for (const entry of this.drawn) shifted.append(drawCurve(entry, this.x, this.y));
    inner.append(shifted);
    this.over = svgElement("g", { class: "over" });
    this.svg.replaceChildren(drawGrid(this), drawMarks(this, false), inner, drawMarks(this, true), this.over);
    this.svg.dataset.points = this.drawn.reduce((sum, entry) => sum + entry.curve.x.length, 0);
    showCursor(this);
  }
}

// From the lowest to the highest of what is in the window (to the right of `from`, not above `most`), with a little air.
function verticalRange(drawn, log, from = -Infinity, most = Infinity) {
  let [low, high] = [Infinity, -Infinity];
  const take = (value) => {
    if (value === null || value > most || (log && value <= 0)) return;
    if (value < low) low = value;
    if (value > high) high = value;
  };
  for (const { curve, xs, rows } of drawn) {
    const columns = curve.shape === "band" ? [curve.low, curve.high] : [curve.y, curve.low, curve.high];
    for (const column of columns) if (column) for (let row = rows[0]; row < rows[1]; row++) if (xs[row] >= from) take(column[row]);
  }
  if (!(high >= low)) return log ? [1, 10] : [0, 1];
  if (low === high) return log ? [low / 2, high * 2] : [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
  const air = 0.04;
  if (log) return [low * (low / high) ** air, high * (high / low) ** air];
  const bottom = low - air * (high - low);
  return [low >= 0 && bottom < 0 ? 0 : bottom, high + air * (high - low)];
}

function heightTicks(y, unit) {
  const values = y.ticks(Math.max(2, (y.from - y.to) / 48));
  return values.map((value) => ({ value, text: tickText(value, unit, values) }));
}

function drawGrid(chart) {
  const { x, y, size, figure, left, ticks } = chart;
  const grid = svgElement("g", { class: "grid", "aria-hidden": "true" });
  const [right, bottom] = [size.width - MARGIN.right, size.height - MARGIN.bottom];
  for (const { value, text } of ticks) {
    const at = y.place(value).toFixed(1);
    grid.append(svgElement("line", { x1: left, x2: right, y1: at, y2: at }),
      svgElement("text", { x: left - 8, y: at, dy: "0.32em", "text-anchor": "end" }, text));
  }
  for (const tick of x.ticks(Math.max(2, (right - left) / 72))) {
    const at = x.place(tick).toFixed(1);
    grid.append(svgElement("line", { x1: at, x2: at, y1: bottom, y2: bottom + 4, class: "tick" }),
      svgElement("text", { x: at, y: bottom + 17, "text-anchor": "middle" }, shortNumber(tick)));
  }
  grid.append(svgElement("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "base" }),
    svgElement("text", { x: (left + right) / 2, y: size.height - 6, "text-anchor": "middle", class: "name" }, AXES[chart.axis].label),
    svgElement("text", { x: 13, y: (MARGIN.top + bottom) / 2, "text-anchor": "middle", class: "name",
      transform: `rotate(-90 13 ${(MARGIN.top + bottom) / 2})` }, figure.label));
  return grid;
}

function drawCurve({ curve, xs, rows }, x, y) {
  const group = svgElement("g", { class: `curve color-${curve.color} ${curve.style} ${curve.shape}` });
  if (curve.shape === "band") {
    group.append(svgElement("path", { class: "area", d: bandPath(curve, xs, rows, x, y) }));
    return group;
  }
  group.append(svgElement("path", { class: "line", d: linePath(curve.y, xs, rows, x, y) }));
  if (curve.shape !== "dots") return group;
  const few = rows[1] - rows[0] <= 150;
  for (let row = rows[0]; row < rows[1]; row++) {
    const [px, py] = [x.place(xs[row]), curve.y[row] === null ? NaN : y.place(curve.y[row])];
    if (!Number.isFinite(px + py)) continue;
    if (curve.low && curve.low[row] !== null) {
      group.append(svgElement("path", { class: "bar",
        d: `M${px.toFixed(1)} ${y.place(curve.low[row]).toFixed(1)}V${y.place(curve.high[row]).toFixed(1)}` }));
    }
    if (few) group.append(svgElement("circle", { class: "dot", cx: px.toFixed(1), cy: py.toFixed(1), r: 3 }));
  }
  return group;
}

function linePath(values, xs, rows, x, y) {
  let path = "";
  let pen = "M";
  for (let row = rows[0]; row < rows[1]; row++) {
    const py = values[row] === null ? NaN : y.place(values[row]);
    const px = x.place(xs[row]);
    if (!Number.isFinite(py + px)) {
      pen = "M";
      continue;
    }
    path += pen + px.toFixed(1) + " " + py.toFixed(1);
    pen = "L";
  }
  return path;
}

function bandPath(curve, xs, rows, x, y) {
  const there = [];
  for (let row = rows[0]; row < rows[1]; row++) {
    if (curve.low[row] !== null && Number.isFinite(y.place(curve.low[row]) + x.place(xs[row]))) there.push(row);
  }
  const point = (row, column) => `${x.place(xs[row]).toFixed(1)} ${y.place(column[row]).toFixed(1)}`;
  const up = there.map((row) => point(row, curve.high));
  const down = there.reverse().map((row) => point(row, curve.low));
  return up.length > 1 ? `M${[...up, ...down].join("L")}Z` : "";
}

// Whole-height marks lie behind the curves, points in front of them.
function drawMarks(chart, points) {
  const group = svgElement("g", { class: "marks" });
  // Where the text on each line ends: marks that stand close together would write over each other.
  const ends = [];
  for (const mark of chart.figure.marks) {
    if ((mark.y !== null) !== points) continue;
    const value = mark.x * chart.perStep(mark.run);
    const px = chart.x.place(value);
    if (!Number.isFinite(px) || value < chart.x.low || value > chart.x.high) continue;
    const near = px > chart.size.width - 110;
    const text = { x: (px + (near ? -7 : 7)).toFixed(1), "text-anchor": near ? "end" : "start" };
    if (points) {
      const py = chart.y.place(mark.y);
      if (!Number.isFinite(py)) continue;
      const above = py > chart.size.height / 2;
      group.append(svgElement("circle", { cx: px.toFixed(1), cy: py.toFixed(1), r: 6, class: "best" }),
        svgElement("text", { ...text, y: (py + (above ? -12 : 20)).toFixed(1) }, mark.text));
    } else {
      group.append(svgElement("line", { x1: px.toFixed(1), x2: px.toFixed(1), y1: MARGIN.top, y2: chart.size.height - MARGIN.bottom }),
        svgElement("text", { ...text, y: MARGIN.top + 10 + 15 * freeLine(ends, px, near, mark.text) }, mark.text));
    }
  }
  return group;
}

// The first line of text that is free at a mark, which it then takes.
function freeLine(ends, px, near, text) {
  const width = 7 + DIGIT_WIDTH * text.length;
  const [from, to] = near ? [px - width, px] : [px, px + width];
  const line = ends.findIndex((end) => end <= from);
  ends[line < 0 ? ends.length : line] = to;
  return line < 0 ? ends.length - 1 : line;
}
