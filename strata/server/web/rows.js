// A card for each request that runs or waits.

import { el, keyed, mark, say } from "./dom.js";
import { count, hitRate, lives, percent, plural, rate, seconds, status } from "./format.js";

function make() {
  const fill = el("span", { class: "fill" });
  const reused = el("span", { class: "reused" });
  const node = el(
    "li",
    { class: "card row" },
    el("div", { class: "head" }, el("span", { class: "badge" }), el("span", { class: "age" })),
    el("p", { class: "main" }),
    el("div", { class: "bar", role: "progressbar", "aria-valuemin": "0" }, fill, reused),
    el("p", { class: "detail" }),
  );
  return node;
}

/** What a row does when it does not wait for experts: its step is of one of the two. */
const phase = (row) => (row.status !== "loading" ? row.status : row.output ? "decoding" : "reading");

/** What a row is doing: a figure that counts, and the rest. */
function sentences(row) {
  const reused = row.reused ? `, ${count(row.reused)} reused` : "";
  if (phase(row) === "decoding") {
    const found = row.experts?.hit_rate != null ? `, experts ${hitRate(row.experts)}` : "";
    return [
      row.decode_rate ? `${rate(row.decode_rate)} tokens/s` : "Decoding",
      `${plural(row.output, "token")} of answer, prompt of ${count(row.prompt)}${reused}${found}`,
    ];
  }
  if (phase(row) === "reading") {
    const speed = row.prefill_rate ? `${rate(row.prefill_rate)} tokens/s` : "First step";
    return [`${count(row.read)} of ${count(row.prompt)} tokens`, `${speed}${reused || ", nothing to reuse"}`];
  }
  const why = {
    waiting: "Another request is reading the same beginning",
    queued: "Waiting for a free row or for memory",
  };
  return [`Prompt of ${count(row.prompt)} tokens`, why[row.status] ?? ""];
}

function update(node, row) {
  const [badge, age] = node.querySelector(".head").children;
  say(badge, status(row.status));
  mark(badge, "data-status", row.status);
  say(age, seconds(row.age_s));
  const [main, detail] = sentences(row);
  say(node.querySelector(".main"), main);
  say(node.querySelector(".detail"), detail);
  const bar = node.querySelector(".bar");
  const reading = phase(row) === "reading";
  bar.hidden = !reading;
  if (!reading) return;
  const whole = Math.max(1, row.prompt);
  mark(bar, "aria-label", `Prompt of ${count(row.prompt)} tokens read`);
  mark(bar, "aria-valuemax", whole);
  mark(bar, "aria-valuenow", row.read);
  mark(bar, "aria-valuetext", percent(row.read / whole));
  bar.querySelector(".fill").style.width = `${(100 * row.read) / whole}%`;
  bar.querySelector(".reused").style.width = `${(100 * row.reused) / whole}%`;
}

/** Show the rows in the list `parent`. */
export function showRows(parent, rows) {
  keyed(parent, rows, (row) => row.id, make, update);
}

/** What the server is doing, in words: "Reading for 2 clients, 1 waiting". */
export function headline(snapshot) {
  const { server, rows } = snapshot;
  if (server.state === "failed") return `Stopped: ${server.reason ?? "the engine failed"}`;
  if (server.state === "loading") return sentence(server.reason ?? "the model is being loaded");
  const number = (name) => rows.filter((row) => phase(row) === name).length;
  const clients = (n) => `${n} ${n === 1 ? "client" : "clients"}`;
  const reading = number("reading");
  const answering = number("decoding");
  const waiting = rows.filter((row) => lives(row.status)).length - reading - answering;
  const parts = [];
  if (reading) parts.push(`reading for ${clients(reading)}`);
  if (answering) parts.push(`answering ${reading ? answering : clients(answering)}`);
  if (waiting) parts.push(`${waiting} waiting`);
  return parts.length ? sentence(parts.join(", ")) : "Idle";
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1);
