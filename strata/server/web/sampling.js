// The drawer with what goes along with a question: sampling, thinking, system text and tools.

import { keep, kept } from "./api.js";
import { $, el, say } from "./dom.js";

const PLACE = "strata.sampling";

// name in the API, label, step, least, most
const NUMBERS = [
  ["temperature", "Temperature", 0.05, 0, 5],
  ["top_p", "Top p", 0.01, 0, 1],
  ["top_k", "Top k", 1, 0, 100000],
  ["min_p", "Min p", 0.01, 0, 1],
  ["repetition_penalty", "Repetition penalty", 0.01, 0.01, 10],
  ["presence_penalty", "Presence penalty", 0.1, -2, 2],
  ["frequency_penalty", "Frequency penalty", 0.1, -2, 2],
  ["max_tokens", "Max tokens", 1, 1, 1000000],
  ["seed", "Seed", 1, 0, Number.MAX_SAFE_INTEGER],
];

let values = load();

function load() {
  try {
    return { ...JSON.parse(kept(PLACE) ?? "{}") };
  } catch {
    return {};
  }
}

function change(name, value) {
  if (value === "" || value === null) delete values[name];
  else values[name] = value;
  keep(PLACE, JSON.stringify(values));
  tell();
}

function tell() {
  const set = Object.keys(values).length;
  say($("sampling-count"), set ? ` (${set} set)` : "");
  let fault = "";
  try {
    tools();
  } catch {
    fault = "The tools are not a JSON list, and are left out.";
  }
  say($("tools-error"), fault);
}

function tools() {
  const list = values.tools ? JSON.parse(values.tools) : [];
  if (!Array.isArray(list)) throw new TypeError("no list");
  return list;
}

/** What the request has beside its messages; what is not set is left to the server. */
export function settings() {
  const { system: _system, tools: _tools, ...rest } = values;
  try {
    const list = tools();
    return list.length ? { ...rest, tools: list } : rest;
  } catch {
    return rest;
  }
}

/** The system text; "" for none. */
export const system = () => values.system ?? "";

/** Build the drawer's fields. */
export function startSampling() {
  const fields = NUMBERS.map(([name, label, step, min, max]) => {
    const input = el("input", { type: "number", id: `set-${name}`, step, min, max, placeholder: "default", value: values[name] ?? "" });
    input.addEventListener("change", () => change(name, input.value === "" || !input.checkValidity() ? "" : Number(input.value)));
    return el("div", { class: "field" }, el("label", { for: input.id }, label), input);
  });
  $("sampling-numbers").append(...fields);
  const texts = [
    ["set-system", "system"],
    ["set-tools", "tools"],
    ["set-effort", "reasoning_effort"],
  ];
  for (const [id, name] of texts) {
    $(id).value = values[name] ?? "";
    $(id).addEventListener("change", () => change(name, $(id).value));
  }
  $("sampling-reset").addEventListener("click", () => {
    values = {};
    keep(PLACE, "{}");
    for (const field of $("sampling").querySelectorAll("input, textarea, select")) field.value = "";
    tell();
  });
  tell();
}
