// The report: draws every figure of the page's data, switches all horizontal axes together, fills data tables.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const charts = new Map();

for (const figure of page.figures) {
  const host = document.getElementById(`plot-${figure.id}`);
  charts.set(figure.id, new Chart(host, figure, page.runs));
  const table = document.getElementById(`table-${figure.id}`);
  table.addEventListener("toggle", () => {
    if (table.open && table.children.length === 1) table.append(dataTable(figure));
  });
}
for (const choice of document.querySelectorAll("input[name=axis]")) {
  choice.addEventListener("change", () => charts.forEach((chart) => chart.setAxis(choice.value)));
}
document.documentElement.dataset.ready = String(Math.round(performance.now()));

// At most a hundred rows a curve, evenly chosen: a table is for reading, the record itself for computing.
function dataTable(figure) {
  const body = htmlElement("tbody");
  for (const curve of figure.curves) {
    const every = Math.max(1, Math.ceil(curve.x.length / 100));
    for (let row = 0; row < curve.x.length; row += every) {
      body.append(htmlElement("tr", {}, htmlElement("th", { scope: "row" }, curve.label),
        htmlElement("td", { class: "number" }, curve.x[row].toLocaleString("en")),
        htmlElement("td", { class: "number" }, readingText(curve, row, figure.unit))));
    }
  }
  const head = htmlElement("thead", {}, htmlElement("tr", {}, ...["curve", "step", figure.label].map(
    (name, column) => htmlElement("th", { scope: "col", class: column ? "number" : "" }, name))));
  const scroll = htmlElement("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Data of ${figure.title}` });
  scroll.append(htmlElement("table", {}, head, body));
  return scroll;
}
