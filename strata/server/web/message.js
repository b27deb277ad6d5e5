// How one message of a talk is shown, and what can be done with it.

import { copyButton, el, mark, say } from "./dom.js";
import { count, hitRate, rate } from "./format.js";
import { showMarkdown } from "./markdown.js";

const WHO = { user: "You", assistant: "Model", tool: "Result", system: "System" };
const ENDS = {
  length: "The answer reached its limit of tokens.",
  repetition: "Ended: the answer was repeating itself.",
  stopped: "Stopped.",
};

/** What an answer cost: "Prompt 1,204 · reused 1,190 · output 43 · wrote at 44.1 tokens/s" */
export function usageLine(usage) {
  if (!usage) return "";
  const parts = [`Prompt ${count(usage.prompt)}`, `reused ${count(usage.reused)}`, `output ${count(usage.output)}`];
  if (usage.readRate) parts.push(`read at ${rate(usage.readRate)} tokens/s`);
  if (usage.rate) parts.push(`wrote at ${rate(usage.rate)} tokens/s`);
  if (usage.experts?.hit_rate != null) parts.push(`experts ${hitRate(usage.experts)}`);
  return parts.join(" · ");
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The calls of a message; without an answer yet, each has a field for its result. */
function calls(message, answered, act) {
  return (message.calls ?? []).map((made) => {
    const done = answered.has(made.id);
    const form = el("form", { class: "result", hidden: done || !message.finish });
    const field = el("textarea", { rows: "2", "aria-label": `Result of ${made.name}`, placeholder: "What the tool returns" });
    form.append(field, el("button", { type: "submit", class: "quiet" }, "Send result"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      act.result(message, made, field.value);
    });
    return el("div", { class: "call" }, el("p", {}, "Calls ", el("code", {}, made.name)), el("pre", { tabindex: "0", "aria-label": "Arguments" }, pretty(made.arguments)), form);
  });
}

/** A node for a message. `act` has edit, retry and result. */
export function makeMessage(message, act) {
  const fold = el("details", { class: "thinking" }, el("summary", {}, "Thinking"), el("div", { class: "markdown" }));
  const buttons = el("div", { class: "buttons" });
  const node = el(
    "article",
    { class: `message ${message.role}` },
    el("h3", { class: "who" }, WHO[message.role] ?? message.role),
    fold,
    el("div", { class: "markdown body" }),
    el("div", { class: "calls" }),
    el("p", { class: "note" }),
    el("p", { class: "trouble" }),
    el("div", { class: "foot" }, el("p", { class: "usage" }), buttons),
  );
  if (message.role === "user") {
    buttons.append(el("button", { type: "button", class: "quiet small", onclick: () => act.edit(message, node) }, "Edit"));
  }
  if (message.role !== "system") buttons.append(copyButton(() => message.content, "Copy", "Copy message"));
  if (message.role === "assistant") {
    buttons.append(el("button", { type: "button", class: "quiet small", onclick: () => act.retry(message) }, "Retry"));
  }
  return node;
}

/** Bring a node up to what its message says now. `answered` are ids of calls with a result. */
export function updateMessage(node, message, busy, answered, act) {
  const fold = node.querySelector(".thinking");
  fold.hidden = !message.reasoning;
  if (message.reasoning) {
    const thinks = busy && !message.content;
    say(fold.querySelector("summary"), thinks ? "Thinking…" : "Thinking");
    showMarkdown(fold.querySelector(".markdown"), message.reasoning);
  }
  const body = node.querySelector(".body");
  // What a person typed is shown as it was typed.
  if (message.role === "assistant") showMarkdown(body, message.content);
  else say(body, message.content);
  const state = JSON.stringify([message.calls, message.finish, [...answered]]);
  if (node.calls !== state) {
    node.calls = state;
    node.querySelector(".calls").replaceChildren(...calls(message, answered, act));
  }
  const { progress } = message;
  const waits = busy && !message.content && !message.reasoning && !message.calls?.length;
  const reading = progress ? `Reading the prompt: ${count(progress.processed)} of ${count(progress.total)} tokens` : "Waiting for the first token";
  say(node.querySelector(".note"), waits ? `${reading}…` : (ENDS[message.finish] ?? ""));
  say(node.querySelector(".trouble"), message.error ?? "");
  say(node.querySelector(".usage"), usageLine(message.usage));
  node.querySelector(".buttons").hidden = busy;
  mark(node, "aria-busy", busy ? "true" : null);
}
