// Memory by tier, the machine, and the totals since start.

import { sparkline } from "./charts.js";
import { el, keyed, say } from "./dom.js";
import { bytes, count, percent, rate, seconds } from "./format.js";
import { term } from "./tips.js";

function makeMeter(item) {
  const line = sparkline(item.name);
  const node = el(
    "li",
    { class: "meter" },
    el("div", { class: "name" }, term(item.name, item.figure)),
    line.node,
    el("div", { class: "bar", "aria-hidden": "true" }, el("span", { class: "fill" })),
    el("div", { class: "text" }),
  );
  node.line = line;
  return node;
}

function updateMeter(node, item, samples, now) {
  say(node.querySelector(".text"), item.text);
  const known = item.part !== null;
  node.querySelector(".bar").hidden = !known;
  node.querySelector(".sparkline").style.visibility = known ? "" : "hidden";
  if (known) node.querySelector(".fill").style.width = `${Math.min(100, 100 * item.part)}%`;
  node.line.update(samples, now, 1);
}

const TIERS = { pages: "memory.pages", states: "memory.states", "n-gram rows": "memory.rows" };

/** What the memory tiers are, as meters. */
export function memoryItems(snapshot) {
  return snapshot.memory
    .filter((tier) => tier.total > 0)
    .map((tier) => {
      const reusable = tier.reusable ? `, ${bytes(tier.reusable)} of it can be given up` : "";
      return {
        name: tier.tier[0].toUpperCase() + tier.tier.slice(1),
        figure: TIERS[tier.tier] ?? "memory.experts",
        part: tier.used / tier.total,
        text: `${bytes(tier.used)} of ${bytes(tier.total)}${reusable}`,
      };
    });
}

/** What the machine does, as meters; nothing is shown of what it has not. */
export function machineItems({ machine }) {
  if (!machine) return [];
  const { cpu, ram, disk, gpus } = machine;
  const items = [];
  const add = (name, figure, part, text) => items.push({ name, figure: `machine.${figure}`, part, text });
  const share = (name, figure, used, total) => add(name, figure, used / total, `${bytes(used)} of ${bytes(total)}`);
  for (const gpu of gpus ?? []) {
    if (gpu.use !== null) add(gpu.name, "gpus", gpu.use / 100, percent(gpu.use / 100));
    share(`${gpu.name} memory`, "gpus", gpu.memory_used, gpu.memory_total);
  }
  if (cpu !== null) add("CPU", "cpu", cpu / 100, percent(cpu / 100));
  if (ram) share("RAM", "ram", ram.used, ram.total);
  if (machine.process && ram) add("This server", "process", machine.process / ram.total, bytes(machine.process));
  if (disk) add("Disk", "disk", null, `${bytes(disk.read)}/s read, ${bytes(disk.write)}/s written`);
  return items;
}

/** Show meters in the list `parent`; the samples have their parts by name. */
export function showMeters(parent, items, samples, now) {
  parent.closest("section").hidden = items.length === 0;
  keyed(parent, items, (item) => item.name, makeMeter, (node, item) => updateMeter(node, item, samples, now));
}

function makeTotal(item) {
  return el("div", { class: "total" }, el("dt", {}, term(item.name, item.figure)), el("dd", { class: "value" }), el("dd", { class: "detail" }));
}

function updateTotal(node, item) {
  const [value, detail] = node.querySelectorAll("dd");
  say(value, item.value);
  say(detail, item.detail);
}

/** Show the totals since start. */
export function showTotals(parent, { totals }) {
  const { requests } = totals;
  const ended = Object.values(requests).reduce((sum, n) => sum + n, 0);
  const bad = [
    requests.cancelled ? `${count(requests.cancelled)} closed` : "",
    requests.failed ? `${count(requests.failed)} failed` : "",
  ].filter(Boolean);
  const share = totals.prompt ? percent(totals.reused / totals.prompt) : "";
  const items = [
    { name: "Requests", figure: "totals.requests", value: count(ended), detail: bad.join(", ") || "since start" },
    { name: "Prompt tokens", figure: "totals.prompt", value: count(totals.prompt), detail: `${count(totals.read)} read` },
    { name: "Reused", figure: "totals.reused", value: count(totals.reused), detail: share ? `${share} of all prompts` : "tokens not read again" },
    { name: "Output tokens", figure: "totals.output", value: count(totals.output), detail: "generated" },
  ];
  if (totals.saved_s !== null) {
    items.push({ name: "Time saved", figure: "totals.saved_s", value: seconds(totals.saved_s), detail: "of reading, estimated" });
  }
  keyed(parent, items, (item) => item.name, makeTotal, updateTotal);
}

/** The speeds in words, for charts. */
export const speedWords = {
  read: (one) => `${rate(one.read)} tokens/s`,
  decode: (one) => `${rate(one.decode)} tokens/s`,
  step: (one) => (one.step === null ? "–" : `${rate(one.step)} ms`),
  queue: (one) => `${count(one.running)} running${one.waiting ? `, ${count(one.waiting)} waiting` : ""}`,
};
