// A pasted log: sent to the server, and shown with the findings and charts of watch.js, which comes before.
"use strict";

const token = document.querySelector('meta[name="gptwright-token"]').content;
let lastPasted = null;

async function send(event) {
  event.preventDefault();
  const facts = {};
  for (const input of byId("paste").querySelectorAll("input[name]")) {
    if (input.value.trim()) facts[input.name] = input.value.trim();
  }
  const status = byId("paste-status");
  byId("send").disabled = true;
  setText(status, "Reading the log.");
  try {
    const answer = await fetch("/diagnose", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Gptwright-Token": token },
      body: JSON.stringify({ log: byId("log").value, config: byId("config").value, facts }),
    });
    if (!answer.ok) throw new Error(await answer.text());
    showPasted(await answer.json());
    setText(status, "");
  } catch (error) {
    setText(status, error.message);
  } finally {
    byId("send").disabled = false;
  }
}

function showPasted(news) {
  lastPasted = news.diagnosis || null;
  byId("pasted").hidden = false;
  byId("save-json").hidden = lastPasted === null;
  setText(byId("pasted-verdict"), news.verdict || "This log could not be read.");
  showFindings(byId("pasted-findings"), news);
  clearCharts(byId("pasted-charts"));
  if (news.charts) showCharts(byId("pasted-charts"), JSON.parse(news.charts));
  byId("pasted-verdict").scrollIntoView({ block: "start" });
}

function saveJson() {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(lastPasted, null, 2)], { type: "application/json" }));
  link.download = "diagnosis.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

function takesFiles(drop, text, chooser) {
  const read = async (file) => {
    if (file) text.value = await file.text();
  };
  chooser.addEventListener("change", () => read(chooser.files[0]));
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    drop.classList.remove("over");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    read(event.dataTransfer.files[0]);
  });
}

byId("paste").addEventListener("submit", send);
byId("save-json").addEventListener("click", saveJson);
takesFiles(byId("drop-log"), byId("log"), byId("log-file"));
takesFiles(byId("drop-config"), byId("config"), byId("config-file"));
