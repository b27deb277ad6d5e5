// Conversations, kept in this browser alone. The newest used is the first.

import { keep, kept } from "./api.js";

const PLACE = "strata.talks";

// A talk: {id, title, messages}. A message: {role, content, reasoning, calls, call, usage, finish,
// error}, of which role and content are always there; `calls` are the assistant's, `call` is the
// id that a tool's result answers.
let talks = load();

function load() {
  try {
    const found = JSON.parse(kept(PLACE) ?? "[]");
    const whole = Array.isArray(found) ? found.filter((talk) => Array.isArray(talk.messages)) : [];
    // An answer that was streaming when the page was left did not go on.
    for (const message of whole.flatMap((talk) => talk.messages)) {
      if (message.role === "assistant") message.finish ??= "stopped";
    }
    return whole;
  } catch {
    return [];
  }
}

/** All talks. */
export const all = () => talks;

/** Keep what changed; false where the browser has no room for it. */
export function store() {
  return keep(PLACE, JSON.stringify(talks.filter((talk) => talk.messages.length)));
}

/** A new, empty talk at the top, or the one that is still empty. */
export function begin() {
  const empty = talks.find((talk) => talk.messages.length === 0);
  if (empty) return empty;
  const id = `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 6)}`;
  const talk = { id, title: "New conversation", messages: [] };
  talks = [talk, ...talks];
  return talk;
}

/** Move a talk to the top. */
export function touch(talk) {
  talks = [talk, ...talks.filter((one) => one !== talk)];
  const first = talk.messages.find((message) => message.role === "user");
  if (first) talk.title = first.content.trim().split("\n")[0].slice(0, 60) || "Conversation";
}

/** Drop a talk. */
export function forget(talk) {
  talks = talks.filter((one) => one !== talk);
  store();
}

/** A talk as Markdown. */
export function markdown(talk) {
  const names = { user: "User", assistant: "Assistant", tool: "Result of a tool", system: "System" };
  const parts = talk.messages.map((message) => {
    const fold = message.reasoning ? `<details><summary>Thinking</summary>\n\n${message.reasoning.trim()}\n\n</details>\n\n` : "";
    const calls = (message.calls ?? []).map((c) => `\n\n\`\`\`json\n${JSON.stringify({ name: c.name, arguments: c.arguments })}\n\`\`\``);
    return `## ${names[message.role]}\n\n${fold}${message.content.trim()}${calls.join("")}\n`;
  });
  return `# ${talk.title}\n\n${parts.join("\n")}`;
}
