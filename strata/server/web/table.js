// The table of requests: live ones on top, then the newest. Filter, details and export.

import { read, words } from "./api.js";
import { $, el, keyed, mark, save, say } from "./dom.js";
import { NONE, clock, count, hitRate, lives, rate, seconds, status } from "./format.js";
import { term } from "./tips.js";

const FEW = 20;

// key, head, name of its definition, text of a record or a live row
const COLUMNS = [
  ["time", "Time", "time", (r) => clock(r.time)],
  ["status", "Status", "status", (r) => status(r.status)],
  ["prompt", "Prompt", "prompt", (r) => count(r.prompt)],
  ["reused", "Reused", "reused", (r) => count(r.reused)],
  ["output", "Output", "output", (r) => count(r.output)],
  ["prefill", "Prefill t/s", "prefill_rate", (r) => rate(r.prefill_rate)],
  ["decode", "Decode t/s", "decode_rate", (r) => rate(r.decode_rate)],
  ["hits", "Hit rate", "hit_rate", (r) => hitRate(r.experts)],
  ["duration", "Duration", "duration_s", (r) => seconds(r.duration_s ?? r.age_s)],
];
// head, name of its definition, text; shown on demand
const DETAILS = [
  ["First token", "first_token_s", (r) => seconds(r.first_token_s)],
  ["Queue wait", "queue_s", (r) => seconds(r.queue_s)],
  ["Stop reason", "reason", (r) => r.reason ?? status(r.status)],
  ["Experts", "experts", (r) => experts(r.experts)],
  ["Request", null, (r) => r.id],
];
const CSV = ["time", "id", "status", "prompt", "reused", "output", "prefill_rate", "decode_rate"];
const CSV_MORE = ["first_token_s", "queue_s", "duration_s", "reason"];
const CSV_EXPERTS = ["tier", "hit_rate", "bus_share", "lookups", "device", "bus", "host", "disk"];

function experts(use) {
  if (!use) return NONE;
  const lanes = { device: "on the GPU", bus: "over PCIe", host: "from RAM", disk: "from the disk" };
  const parts = Object.entries(lanes).filter(([lane]) => use[lane]);
  const told = parts.map(([lane, where]) => `${count(use[lane])} ${where}`);
  return told.length ? told.join(", ") : NONE;
}

let finished = [];
let live = [];
let all = false;
let tier = null;

function makeRow(record) {
  const cells = COLUMNS.map(([key, head]) =>
    el("td", { role: "cell", "data-column": key, "data-label": head }, key === "status" ? el("span", { class: "badge" }) : ""),
  );
  const name = `details-${record.id}`;
  const button = el("button", { type: "button", class: "more", "aria-expanded": "false", "aria-controls": name, "aria-label": "Details" });
  const first = el("tr", { role: "row" }, ...cells, el("td", { role: "cell", class: "act" }, button));
  const list = el("dl", { class: "facts" });
  const cell = el("td", { role: "cell", colspan: COLUMNS.length + 1 }, list);
  const second = el("tr", { role: "row", class: "details", id: name, hidden: true }, cell);
  button.addEventListener("click", () => {
    second.hidden = !second.hidden;
    button.setAttribute("aria-expanded", !second.hidden);
  });
  for (const [head, figure] of DETAILS) list.append(el("div", {}, el("dt", {}, figure ? term(head, figure) : head), el("dd")));
  return el("tbody", { role: "rowgroup" }, first, second);
}

function updateRow(node, record) {
  COLUMNS.forEach(([key, , , text], i) => {
    const cell = node.rows[0].cells[i];
    const told = text(record);
    if (key === "status") mark(cell.firstChild, "data-status", record.status);
    mark(cell, "data-empty", told === NONE ? "" : null);
    say(key === "status" ? cell.firstChild : cell, told);
  });
  node.classList.toggle("live", lives(record.status));
  const values = node.rows[1].querySelectorAll("dd");
  DETAILS.forEach(([, , text], i) => say(values[i], text(record)));
}

function matches(record) {
  const kind = $("status-filter").value;
  if (kind === "live" ? !lives(record.status) : kind && record.status !== kind) return false;
  const wanted = $("filter").value.trim().toLowerCase();
  const text = () => [record.id, record.reason ?? "", ...COLUMNS.map(([, , , of]) => of(record))].join(" ").toLowerCase();
  return !wanted || wanted.split(/\s+/).every((word) => text().includes(word));
}

function render() {
  const found = finished.filter(matches);
  const shown = [...live.filter(matches), ...(all ? found : found.slice(0, FEW))];
  keyed($("requests"), [null, ...shown], (r) => (r ? r.id : "head"), makeRow, (node, r) => r && updateRow(node, r));
  const known = live.length + finished.length;
  say($("shown"), known ? `${count(shown.length)} of ${count(known)} shown` : "");
  $("no-requests").hidden = shown.length > 0;
  say($("no-requests"), known ? "No request is like that." : "No request yet.");
  $("show-all").setAttribute("aria-pressed", all);
  const head = document.querySelector("th[data-column=hits] .term");
  say(head, tier ? `${tier} hit rate` : "Hit rate");
}

/** The rows that run now, and the finished records, newest first. */
export function showRequests(rows, records) {
  // A row may be told once more beside its own record.
  const ended = new Set(records.slice(0, 64).map((record) => record.id));
  live = rows.filter((row) => !ended.has(row.id)).sort((a, b) => b.time - a.time);
  finished = records;
  tier = [...rows, ...records].find((r) => r.experts?.tier)?.experts.tier ?? null;
  render();
}

const stamp = () => new Date().toISOString().slice(0, 19).replaceAll(":", "-");

function csv(records) {
  const quoted = (value) => (/[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const line = (values) => values.map((v) => quoted(String(v ?? ""))).join(",");
  const plain = [...CSV, ...CSV_MORE];
  const body = records.map((r) =>
    line([...plain.map((key) => r[key]), ...CSV_EXPERTS.map((key) => r.experts?.[key])]),
  );
  return [line([...plain, ...CSV_EXPERTS.map((key) => `experts_${key}`)]), ...body].join("\r\n") + "\r\n";
}

/** Make the head and the tools work. `older()` fetches every record the server has. */
export function startTable(older) {
  const heads = COLUMNS.map(([key, head, figure]) =>
    el("th", { scope: "col", role: "columnheader", "data-column": key }, term(head, figure)),
  );
  const last = el("th", { scope: "col", role: "columnheader", class: "act" }, el("span", { class: "offscreen" }, "Details"));
  const row = el("tr", { role: "row" }, ...heads, last);
  $("requests").append(el("thead", { role: "rowgroup", "data-key": "head" }, row));
  $("filter").addEventListener("input", render);
  $("status-filter").addEventListener("change", render);
  $("show-all").addEventListener("click", async () => {
    all = !all;
    if (all) {
      await older().catch((error) => say($("shown"), words(error)));
    }
    render();
  });
  $("export-csv").addEventListener("click", () =>
    save(`strata-requests-${stamp()}.csv`, "text/csv", csv(finished.filter(matches))),
  );
  $("export-json").addEventListener("click", () =>
    save(`strata-requests-${stamp()}.json`, "application/json", JSON.stringify(finished.filter(matches), null, 1)),
  );
  render();
}

/** Every record that the server still has, in the names of the stream. */
export async function allRecords() {
  const { data } = await read("/v1/requests");
  return data;
}
