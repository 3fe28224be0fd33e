// The live page: shows what the server's events say (`pasted.js` sends a log to it). Text from runs and logs only
// ever becomes text (textContent); nothing is made from markup.
"use strict";

const STATES = ["running", "stalled", "failed", "stopped", "finished", "quiet"];
const SEVERITIES = ["error", "warning", "info", "good"];
const byId = (id) => document.getElementById(id);
const runs = new Map();
const rows = new Map();
let source = null;
let viewed = null;

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// ---- which page -------------------------------------------------------------------------------------------

function wanted() {
  const hash = location.hash.slice(1);
  if (hash === "diagnose") return { page: "diagnose", run: null };
  if (hash.startsWith("run=")) return { page: "runs", run: decodeURIComponent(hash.slice(4)) };
  return { page: "runs", run: null };
}

function route() {
  if (location.hash === "#content") return;
  const { page, run } = wanted();
  byId("board").hidden = page !== "runs";
  byId("diagnose").hidden = page !== "diagnose";
  byId("board").classList.toggle("one", run !== null);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (run !== viewed || source === null) {
    viewed = run;
    byId("run").hidden = true;
    byId("no-run").hidden = run !== null;
    clearCharts(byId("run-charts"));
    byId("run-findings").replaceChildren();
    byId("run-findings").dataset.key = "";
    scrollTo(0, 0);
    connect();
  }
  for (const [id, row] of rows) row.link.toggleAttribute("aria-current", id === viewed);
}

function connect() {
  if (source !== null) source.close();
  source = new EventSource(viewed === null ? "/events" : `/events?run=${encodeURIComponent(viewed)}`);
  let fresh = true;
  source.onopen = () => {
    fresh = true;
    showConnection(true);
  };
  source.onerror = () => showConnection(false);
  source.addEventListener("list", (event) => {
    const news = JSON.parse(event.data);
    if (fresh) runs.clear();
    fresh = false;
    for (const id of news.gone) runs.delete(id);
    for (const run of news.runs) runs.set(run.id, run);
    showList();
  });
  source.addEventListener("run", (event) => showRun(JSON.parse(event.data)));
  source.addEventListener("charts", (event) => showCharts(byId("run-charts"), JSON.parse(event.data)));
}

function showConnection(open) {
  const place = byId("connection");
  place.classList.toggle("open", open);
  setText(place, open ? "live" : "no connection");
}

// ---- the list of runs -------------------------------------------------------------------------------------

function showList() {
  const list = byId("runs");
  const needle = byId("find").value.trim().toLowerCase();
  const shown = [...runs.values()]
    .filter((run) => run.name.toLowerCase().includes(needle))
    .sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state) || (b.updated || 0) - (a.updated || 0));
  for (const [id, row] of rows) {
    if (!runs.has(id)) {
      row.item.remove();
      rows.delete(id);
    } else row.item.hidden = true;
  }
  let before = null;
  for (const run of shown) {
    const row = rows.get(run.id) || makeRow(run.id);
    fillRow(row, run);
    row.item.hidden = false;
    const place = before === null ? list.firstChild : before.nextSibling;
    if (place !== row.item) list.insertBefore(row.item, place);
    before = row.item;
  }
  const going = shown.filter((run) => run.state === "running").length;
  setText(byId("list-hint"), runs.size === 0
    ? "No runs in this folder yet. They appear here as they start."
    : `${shown.length} of ${runs.size}, ${going} running`);
  document.title = going > 0 ? `${going} running · gptwright watch` : "gptwright watch";
}

function makeRow(id) {
  const row = { item: element("li"), link: element("a", "row") };
  row.link.href = `#run=${encodeURIComponent(id)}`;
  row.name = element("span", "name");
  row.state = element("span", "state");
  row.curve = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  row.curve.setAttribute("class", "curve");
  row.curve.setAttribute("viewBox", "0 0 100 24");
  row.curve.setAttribute("preserveAspectRatio", "none");
  row.curve.setAttribute("aria-hidden", "true");
  row.line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  row.curve.append(row.line);
  row.loss = element("span", "loss");
  row.bar = element("span", "track");
  row.done = element("span");
  row.bar.append(row.done);
  row.steps = element("span", "steps");
  row.counts = element("span", "counts");
  row.link.append(row.name, row.state, row.curve, row.loss, row.bar, row.steps, row.counts);
  row.item.append(row.link);
  rows.set(id, row);
  row.link.toggleAttribute("aria-current", id === viewed);
  return row;
}

function fillRow(row, run) {
  setText(row.name, run.name);
  showState(row.state, run.state);
  row.state.title = run.reason;
  row.line.setAttribute("points", polyline(run.curve));
  setText(row.loss, lossOf(run));
  row.bar.hidden = run.share === null;
  row.done.style.width = `${100 * (run.share || 0)}%`;
  setText(row.steps, stepsOf(run));
  const counts = SEVERITIES.filter((name) => name !== "good" && run.severities[name] > 0);
  row.counts.replaceChildren(...counts.map((name) => element("span", `count ${name}`,
    `${run.severities[name]} ${name}${run.severities[name] > 1 && name !== "info" ? "s" : ""}`)));
}

function lossOf(run) {
  return [run.loss && `loss ${run.loss}`, run.best && `best val ${run.best}`].filter(Boolean).join(" · ");
}

function stepsOf(run) {
  if (run.step === null) return run.verdict || run.problem ? "" : "being read";
  const steps = run.planned ? `${number(run.step)} of ${number(run.planned)}` : `step ${number(run.step)}`;
  return [steps, run.left && `${run.left} left`].filter(Boolean).join(" · ");
}

function polyline(values) {
  if (values.length < 2) return "";
  const sorted = [...values].sort((a, b) => a - b);
  const low = sorted[0];
  const high = sorted[Math.floor(0.95 * (sorted.length - 1))];
  const height = high > low ? high - low : 1;
  return values.map((value, i) =>
    `${(100 * i / (values.length - 1)).toFixed(1)},${(22 - 20 * Math.min(1, (value - low) / height)).toFixed(1)}`
  ).join(" ");
}

function number(value) {
  return Math.round(value).toLocaleString("en-US");
}

function showState(node, state) {
  node.className = `state ${STATES.includes(state) ? state : "quiet"}`;
  setText(node, state);
}

// ---- one run ----------------------------------------------------------------------------------------------

function showRun(news) {
  const run = news.summary;
  if (run.id !== viewed) return;
  byId("run").hidden = false;
  setText(byId("run-title"), run.name);
  showState(byId("run-state"), run.state);
  setText(byId("run-reason"), run.reason);
  const bar = byId("run-progress");
  bar.hidden = run.share === null;
  bar.setAttribute("aria-valuenow", Math.round(100 * (run.share || 0)));
  bar.firstElementChild.style.width = `${100 * (run.share || 0)}%`;
  setText(byId("run-steps"), [stepsOf(run), lossOf(run), run.speed].filter(Boolean).join(" · "));
  setText(byId("run-verdict"), run.verdict || (news.error ? "" : "The diagnosis is being made."));
  byId("run-numbers").replaceChildren(...news.figures.map(numberOf));
  showFindings(byId("run-findings"), news);
}

function numberOf(row) {
  const group = element("div");
  group.append(element("dt", "", row.name), element("dd", "value", row.value), element("dd", "from", row.origin));
  return group;
}

// A redrawn list would close what a person has opened, so it is only redrawn when it says something else.
function showFindings(place, news) {
  const key = JSON.stringify([news.diagnosis && news.diagnosis.findings,
    news.diagnosis && news.diagnosis.unknown,
    news.diagnosis && news.diagnosis.forecast, news.error]);
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  const parts = [];
  if (news.error) parts.push(errorOf(news.error));
  const findings = news.diagnosis ? news.diagnosis.findings : [];
  if (findings.length) {
    const list = element("ul", "findings");
    list.append(...findings.map(findingOf));
    parts.push(element("h3", "part", "Findings"), list);
  }
  if (news.diagnosis && news.diagnosis.forecast) parts.push(...forecastOf(news.diagnosis.forecast));
  const unknown = news.diagnosis ? news.diagnosis.unknown : [];
  if (unknown.length) {
    const list = element("ul", "unknown");
    for (const item of unknown) {
      const entry = element("li", "", `${item.question} `);
      entry.append(element("span", "quiet", `It needs ${item.missing}.`));
      list.append(entry);
    }
    parts.push(element("h3", "part", "Not known"), list);
  }
  place.replaceChildren(...parts);
}

function errorOf(error) {
  const box = element("div", "card finding error");
  box.append(element("p", "", error.problem));
  for (const text of [error.why, error.fix]) if (text) box.append(element("p", "quiet", text));
  return box;
}

function findingOf(finding) {
  const severity = SEVERITIES.includes(finding.severity) ? finding.severity : "info";
  const box = element("li", `card finding ${severity}`);
  const head = element("h4");
  head.append(element("span", "severity", severity), element("code", "", finding.id),
    element("span", "confidence", finding.confidence));
  box.append(head, element("p", "", finding.message));
  for (const cause of finding.causes) box.append(element("p", "quiet", `${cause.confidence} cause: ${cause.text}`));
  for (const action of finding.actions) {
    const line = element("p", "action", action.text);
    for (const [name, value] of Object.entries(action.set)) line.append(" ", element("code", "set", `--${name}=${value}`));
    box.append(line);
  }
  if (finding.evidence.length) {
    const more = element("details", "evidence");
    more.append(element("summary", "", "Evidence"));
    const list = element("ul");
    for (const fact of finding.evidence) {
      list.append(element("li", "", `${fact.name} ${fact.value} ${fact.unit} (${fact.source})`));
    }
    more.append(list);
    box.append(more);
  }
  return box;
}

// Where the run is heading and what would pay, as `gptwright diagnose` says it.
function forecastOf(forecast) {
  const list = element("ul", "unknown");
  const end = forecast.planned_end;
  if (end) {
    list.append(element("li", "", `At its planned end the ${forecast.loss.replace("_", " ")} will be about `
      + `${end.likely.toFixed(3)}, ${end.low.toFixed(3)} to ${end.high.toFixed(3)} in nine of ten such runs.`));
  }
  for (const option of forecast.options) {
    const minutes = option.hours === null ? null : Math.max(1, Math.round(60 * option.hours));
    const hours = minutes === null ? "" : minutes < 60 ? `, ${minutes} min`
      : `, ${number(Math.floor(minutes / 60))} h ${String(minutes % 60).padStart(2, "0")} min`;
    list.append(element("li", "", `${option.text}: ${option.gain_low.toFixed(2)} to ${option.gain_high.toFixed(2)} `
      + `nats${hours}.`));
  }
  return list.children.length ? [element("h3", "part", "Where it is heading"), list] : [];
}

// ---- charts -----------------------------------------------------------------------------------------------

// Charts stay as they are zoomed and switched while their data change.
function showCharts(place, news) {
  if (!place.charts) {
    place.charts = new Map();
    place.axis = "steps";
    place.axes = element("div");
    place.grid = element("div", "charts");
    place.replaceChildren(place.axes, place.grid);
  }
  const axes = news.runs[0].axes;
  if (place.axes.dataset.key !== axes.map((axis) => axis.name).join()) showAxes(place, axes);
  for (const figure of news.figures) {
    const known = place.charts.get(figure.id);
    if (known) {
      known.chart.runs = news.runs;
      known.chart.update(figure);
      setText(known.summary, figure.summary);
    } else place.charts.set(figure.id, makeChart(place, figure, news.runs));
  }
}

function makeChart(place, figure, runs) {
  const frame = element("figure", figure.id === "loss" ? "card wide" : "card");
  const caption = element("figcaption");
  const summary = element("p", "summary", figure.summary);
  const host = element("div");
  caption.append(element("span", "title", figure.title), summary);
  frame.append(caption, host);
  place.grid.append(frame);
  const chart = new Chart(host, figure, runs);
  if (place.axis !== "steps") chart.setAxis(place.axis);
  return { chart, summary };
}

function showAxes(place, axes) {
  place.axes.dataset.key = axes.map((axis) => axis.name).join();
  const group = element("fieldset", "axes");
  group.append(element("legend", "", "Over"));
  for (const axis of axes) {
    const label = element("label");
    const choice = element("input");
    choice.type = "radio";
    choice.name = `axis-${place.id}`;
    choice.checked = axis.name === place.axis;
    choice.addEventListener("change", () => {
      place.axis = axis.name;
      place.charts.forEach(({ chart }) => chart.setAxis(axis.name));
    });
    const shown = element("span", "", AXES[axis.name].name);
    shown.title = axis.origin;
    label.append(choice, shown);
    group.append(label);
  }
  place.axes.replaceChildren(group);
}

function clearCharts(place) {
  place.charts = undefined;
  place.replaceChildren();
}

byId("find").addEventListener("input", showList);
addEventListener("hashchange", route);
route();
