// The Chat tab: which talk is open, and what its buttons do.

import { ask } from "./ask.js";
import { $, el, keyed, mark, save, say } from "./dom.js";
import { plural } from "./format.js";
import { makeMessage, updateMessage } from "./message.js";
import { settings, startSampling, system } from "./sampling.js";
import * as talks from "./talks.js";

let talk = null;
let running = null; // {stop, talk, message} while an answer streams
let drawn = false;

const act = {
  /** Ask again for what `message` answered. */
  retry(message) {
    if (running) return;
    talk.messages.length = talk.messages.indexOf(message);
    answer();
  },
  /** Turn a message of the user's into a field; sending drops what followed it. */
  edit(message, node) {
    if (running || node.querySelector(".editor")) return;
    const field = el("textarea", { rows: "4", "aria-label": "Edit your message", value: message.content });
    const form = el(
      "form",
      { class: "editor" },
      field,
      el("button", { type: "submit", class: "primary" }, "Send"),
      el("button", { type: "button", class: "quiet", onclick: () => close() }, "Cancel"),
    );
    const close = () => {
      form.remove();
      node.classList.remove("editing");
      node.querySelector(".buttons button")?.focus();
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (running || !field.value.trim()) return;
      talk.messages.length = talk.messages.indexOf(message);
      talk.messages.push({ role: "user", content: field.value });
      answer();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    node.classList.add("editing");
    node.querySelector(".body").after(form);
    field.focus();
  },
  /** Give a tool's result; the model goes on once each of its calls has one. */
  result(message, call, text) {
    if (running) return;
    talk.messages.push({ role: "tool", content: text, call: call.id });
    const given = answered();
    if (message.calls.every((one) => given.has(one.id))) answer();
    else changed();
  },
};

const answered = () => new Set(talk.messages.map((message) => message.call).filter(Boolean));

/** Ask for the talk's next message. */
async function answer() {
  const mine = talk;
  const text = system();
  const history = [...(text ? [{ role: "system", content: text }] : []), ...mine.messages];
  const message = { role: "assistant", content: "", reasoning: "", calls: [], finish: null };
  const stop = new AbortController();
  mine.messages.push(message);
  talks.touch(mine);
  running = { stop, talk: mine, message };
  changed();
  scroll(true);
  say($("chat-status"), "Answering.");
  await ask(history, settings(), message, stop.signal, redraw);
  running = null;
  message.finish ??= message.error ? "failed" : "stop";
  const told = message.error ?? (message.finish === "stopped" ? "Stopped." : "The answer is there.");
  say($("chat-status"), told);
  changed();
}

/** Show again, at most once a frame. */
function redraw() {
  if (drawn) return;
  drawn = true;
  requestAnimationFrame(() => {
    drawn = false;
    show();
  });
}

/** Keep what changed, and show it. */
function changed() {
  const room = talks.store();
  say($("chat-trouble"), room ? "" : "This browser has no room left for conversations: delete some.");
  show();
}

const nearEnd = () => $("messages").scrollHeight - $("messages").scrollTop - $("messages").clientHeight < 80;

function scroll(always) {
  if (always || nearEnd()) $("messages").scrollTop = $("messages").scrollHeight;
}

let names = 0;
const keys = new WeakMap();

function key(message) {
  if (!keys.has(message)) keys.set(message, ++names);
  return keys.get(message);
}

function show() {
  const follows = nearEnd();
  const given = answered();
  keyed(
    $("messages-list"),
    talk.messages,
    key,
    (message) => makeMessage(message, act),
    (node, message) => updateMessage(node, message, running?.message === message, given, act),
  );
  if (follows) scroll(true);
  $("welcome").hidden = talk.messages.length > 0;
  $("send").hidden = Boolean(running);
  $("stop").hidden = !running;
  mark($("messages-list"), "aria-busy", running ? "true" : null);
  say($("talk-title"), talk.title);
  $("export-talk").disabled = $("delete-talk").disabled = talk.messages.length === 0;
  showTalks();
}

function showTalks() {
  keyed(
    $("talks"),
    talks.all(),
    (one) => one.id,
    (one) => el("li", {}, el("button", { type: "button", onclick: () => open(one) })),
    (node, one) => {
      const button = node.firstChild;
      say(button, one.title);
      mark(button, "aria-current", one === talk ? "true" : null);
      mark(button, "title", plural(one.messages.length, "message"));
    },
  );
}

function open(one) {
  talk = one;
  show();
  scroll(true);
}

function send() {
  const text = $("question").value;
  if (running || !text.trim()) return;
  talk.messages.push({ role: "user", content: text });
  $("question").value = "";
  answer();
}

/** Build what stays, and open the newest talk. */
export function startChat() {
  startSampling();
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  $("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  $("stop").addEventListener("click", () => {
    running?.stop.abort();
    $("question").focus();
  });
  $("new-talk").addEventListener("click", () => {
    open(talks.begin());
    $("question").focus();
  });
  $("delete-talk").addEventListener("click", () => {
    if (!confirm("Delete this conversation?")) return;
    if (running?.talk === talk) running.stop.abort();
    talks.forget(talk);
    open(talks.all()[0] ?? talks.begin());
  });
  $("export-talk").addEventListener("click", () => save("conversation.md", "text/markdown", talks.markdown(talk)));
  const drawer = (open) => {
    $("sampling").hidden = !open;
    $("sampling-toggle").setAttribute("aria-expanded", open);
    (open ? $("sampling-close") : $("sampling-toggle")).focus();
  };
  $("sampling-toggle").addEventListener("click", () => drawer($("sampling").hidden));
  $("sampling-close").addEventListener("click", () => drawer(false));
  $("sampling").addEventListener("keydown", (event) => event.key === "Escape" && drawer(false));
  open(talks.all()[0] ?? talks.begin());
}
