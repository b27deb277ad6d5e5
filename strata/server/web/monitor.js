// The Monitor tab: what the stream says, kept for some minutes and shown.

import { SPAN_S, chart } from "./charts.js";
import { $, say } from "./dom.js";
import { span } from "./format.js";
import { machineItems, memoryItems, showMeters, showTotals, speedWords } from "./meters.js";
import { headline, showRows } from "./rows.js";
import { allRecords, showRequests, startTable } from "./table.js";
import { term } from "./tips.js";

const KEPT = 500;

let samples = [];
let finished = [];
let started = null;
let newest = null;
let charts = [];

function sample(snapshot) {
  const { speed, queue, time } = snapshot;
  const parts = [...memoryItems(snapshot), ...machineItems(snapshot)].map(({ name, part }) => [name, part]);
  return {
    ...Object.fromEntries(parts),
    time,
    read: speed.read ?? 0,
    decode: speed.decode ?? 0,
    step: speed.step_ms,
    running: queue.running,
    waiting: queue.queued + queue.waiting,
  };
}

/** Records told anew come first; each once. */
function merge(records) {
  const known = new Set(records.map((record) => record.id));
  finished = [...records, ...finished.filter((record) => !known.has(record.id))];
  finished.sort((a, b) => (b.number ?? 0) - (a.number ?? 0));
  finished.length = Math.min(finished.length, KEPT);
}

/** Take a snapshot in. A server that began anew has no past. */
export function told(snapshot) {
  if (started !== snapshot.server.started) {
    started = snapshot.server.started;
    samples = [];
    finished = [];
  }
  newest = snapshot;
  samples.push(sample(snapshot));
  samples = samples.filter((one) => one.time > snapshot.time - SPAN_S);
  if (snapshot.finished.length) merge(snapshot.finished);
  show();
}

/** Show what is known, unless nobody is looking. */
export function show() {
  if (!newest || $("panel-monitor").hidden || document.hidden) return;
  const { server, rows, time } = newest;
  say($("headline"), headline(newest));
  $("headline").dataset.state = server.state;
  say($("since"), `Up ${span(server.uptime_s)}`);
  showRows($("rows"), rows);
  $("idle").hidden = rows.length > 0 || server.state === "failed" || server.state === "loading";
  showTotals($("totals"), newest);
  for (const one of charts) one.update(samples, time);
  showMeters($("memory"), memoryItems(newest), samples, time);
  showMeters($("machine"), machineItems(newest), samples, time);
  showRequests(rows, finished);
}

/** Build what stays. */
export function startMonitor() {
  charts = [
    chart(term("Reading", "speed.read"), [{ key: "read" }], speedWords.read),
    chart(term("Decoding", "speed.decode"), [{ key: "decode" }], speedWords.decode),
    chart(term("Step time", "speed.step_ms"), [{ key: "step" }], speedWords.step),
    chart(
      term("Queue", "queue.running"),
      [
        { key: "running", label: "running" },
        { key: "waiting", label: "waiting" },
      ],
      speedWords.queue,
    ),
  ];
  $("charts").append(...charts.map((one) => one.node));
  startTable(async () => merge(await allRecords()));
  document.addEventListener("visibilitychange", show);
}
