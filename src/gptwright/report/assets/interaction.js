// What a person does with a chart: point, drag, touch and keys. `showCursor` draws the line and the values.
"use strict";

function listenTo(chart) {
  const { svg } = chart;
  let from = null;
  const place = (event) => {
    const box = svg.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * chart.size.width;
  };
  svg.addEventListener("pointermove", (event) => {
    chart.cursor = chart.x.invert(place(event));
    showCursor(chart, from);
  });
  svg.addEventListener("pointerleave", () => {
    if (from === null) hideCursor(chart);
  });
  svg.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "touch" || event.button !== 0) return;
    from = place(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const to = place(event);
    const [left, right] = [Math.min(from, to), Math.max(from, to)];
    from = null;
    // Less than eight pixels is a click, not a wish to zoom.
    if (right - left >= 8) zoomTo(chart, chart.x.invert(left), chart.x.invert(right));
    else showCursor(chart);
  });
  svg.addEventListener("dblclick", () => chart.zoom(null));
  svg.addEventListener("blur", () => hideCursor(chart));
  svg.addEventListener("keydown", (event) => {
    const action = KEYS[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    action(chart, event.shiftKey ? 10 : 1);
    event.preventDefault();
  });
}

const KEYS = {
  ArrowRight: (chart, rows) => stepCursor(chart, rows),
  ArrowLeft: (chart, rows) => stepCursor(chart, -rows),
  Home: (chart) => stepCursor(chart, -Infinity),
  End: (chart) => stepCursor(chart, Infinity),
  "+": (chart) => zoomBy(chart, 0.5),
  "=": (chart) => zoomBy(chart, 0.5),
  "-": (chart) => zoomBy(chart, 2),
  Escape: (chart) => chart.zoom(null),
  0: (chart) => chart.zoom(null),
};

function zoomTo(chart, low, high) {
  const [least, most] = chart.extent();
  const window = [Math.max(least, low), Math.min(most, high)];
  if (window[1] > window[0]) chart.zoom(window[0] <= least && window[1] >= most ? null : window);
}

function zoomBy(chart, factor) {
  const [left, right] = [chart.left, chart.size.width - MARGIN.right];
  const middle = chart.cursor === null ? (left + right) / 2 : chart.x.place(chart.cursor);
  zoomTo(chart, chart.x.invert(middle - factor * (middle - left)), chart.x.invert(middle + factor * (right - middle)));
}

// The curve that the keys walk along: the dots of evaluations where there are any, else the first line.
function stepCursor(chart, rows) {
  const walked = chart.drawn.find((e) => e.curve.shape === "dots") || chart.drawn.find((e) => e.curve.shape === "line");
  if (!walked || !walked.xs.length) return;
  const last = walked.xs.length - 1;
  const here = chart.cursor === null ? (rows > 0 ? -1 : last + 1) : nearestRow(walked.xs, chart.cursor);
  const row = Math.min(last, Math.max(0, here + rows));
  chart.cursor = walked.xs[row];
  const inside = chart.cursor >= chart.x.low && chart.cursor <= chart.x.high;
  if (!inside) chart.zoom(null);
  else showCursor(chart);
  chart.spoken.textContent = readings(chart).map((r) => `${r.name} ${r.text}`).join(", ");
}

// What every curve says nearest to the cursor; a curve that ends far from it says nothing.
function readings(chart) {
  const lines = [{ name: AXES[chart.axis].label, text: placeText(chart), color: null }];
  const pixel = chart.x.place(chart.cursor);
  for (const { curve, xs } of chart.drawn) {
    if (!xs.length) continue;
    const row = nearestRow(xs, chart.cursor);
    const away = Math.abs(chart.x.place(xs[row]) - pixel);
    if (!(away <= 24 || (chart.cursor >= xs[0] && chart.cursor <= xs[xs.length - 1]))) continue;
    lines.push({ name: curve.label, text: readingText(curve, row, chart.figure.unit), color: curve.color,
      x: xs[row], y: curve.shape === "band" ? null : curve.y[row] });
  }
  return lines;
}

// A step is a whole number; what it is worth is not.
function placeText(chart) {
  return chart.axis === "steps" ? Math.round(chart.cursor).toLocaleString("en") : shortNumber(chart.cursor, 6);
}

function readingText(curve, row, unit) {
  if (curve.shape === "band") return `${valueText(curve.low[row], unit)} to ${valueText(curve.high[row], unit)}`;
  const value = valueText(curve.y[row], unit);
  if (!curve.low || curve.low[row] === null || curve.y[row] === null) return value;
  return `${value} (${valueText(curve.low[row], unit)} to ${valueText(curve.high[row], unit)})`;
}

function showCursor(chart, from = null) {
  if (chart.cursor === null) return;
  const pixel = chart.x.place(chart.cursor);
  if (!Number.isFinite(pixel) || pixel < chart.left || pixel > chart.size.width - MARGIN.right) {
    hideCursor(chart);
    return;
  }
  const [top, bottom] = [MARGIN.top, chart.size.height - MARGIN.bottom];
  chart.over.replaceChildren(svgElement("line", { class: "cursor", x1: pixel, x2: pixel, y1: top, y2: bottom }));
  if (from !== null) {
    chart.over.append(svgElement("rect", { class: "choice", x: Math.min(from, pixel), y: top,
      width: Math.abs(pixel - from), height: bottom - top }));
  }
  const lines = readings(chart);
  for (const line of lines) {
    if (line.color === null || line.y === null) continue;
    chart.over.append(svgElement("circle", { class: `dot color-${line.color}`, r: 3.5,
      cx: chart.x.place(line.x), cy: chart.y.place(line.y) || 0 }));
  }
  chart.tip.replaceChildren(...lines.map((line) => htmlElement("div", {
    class: line.color === null ? "where" : `color-${line.color}` },
    htmlElement("span", { class: "what" }, line.name), htmlElement("b", {}, line.text))));
  chart.tip.hidden = false;
  const share = chart.svg.clientWidth / chart.size.width || 1;
  const right = pixel > chart.size.width * 0.55;
  chart.tip.style.left = right ? "auto" : `${pixel * share + 12}px`;
  chart.tip.style.right = right ? `${(chart.size.width - pixel) * share + 12}px` : "auto";
}

function hideCursor(chart) {
  chart.cursor = null;
  chart.over.replaceChildren();
  chart.tip.hidden = true;
}
