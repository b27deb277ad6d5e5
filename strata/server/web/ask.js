// One question to /v1/chat/completions, read as it streams into a message.

import { Refused, call, words } from "./api.js";
import { events } from "./stream.js";

/** What a message of ours is in the API. */
function sent(message) {
  if (message.role === "tool") return { role: "tool", tool_call_id: message.call, content: message.content };
  if (message.role !== "assistant") return { role: message.role, content: message.content };
  const calls = (message.calls ?? []).map((c) => ({
    id: c.id,
    type: "function",
    function: { name: c.name, arguments: c.arguments },
  }));
  return {
    role: "assistant",
    content: message.content || (calls.length ? null : ""),
    ...(message.reasoning ? { reasoning_content: message.reasoning } : {}),
    ...(calls.length ? { tool_calls: calls } : {}),
  };
}

function add(message, delta) {
  message.content += delta.content ?? "";
  message.reasoning += delta.reasoning_content ?? delta.reasoning ?? "";
  for (const piece of delta.tool_calls ?? []) {
    const call = (message.calls[piece.index] ??= { id: "", name: "", arguments: "" });
    call.id ||= piece.id ?? "";
    call.name += piece.function?.name ?? "";
    call.arguments += piece.function?.arguments ?? "";
  }
}

/** Take one chunk in. Raises Refused for an error inside the stream. */
function take(message, chunk) {
  if (chunk.error) throw new Refused(chunk.error.code ?? 500, chunk.error.message ?? String(chunk.error));
  const choice = chunk.choices?.[0];
  if (choice) {
    message.progress = null;
    add(message, choice.delta ?? {});
    message.finish = choice.finish_reason ?? message.finish;
  }
  if (chunk.prompt_progress) message.progress = chunk.prompt_progress;
  // What the server measured for this very request, so far.
  const usage = chunk.usage ?? {};
  const timings = chunk.timings ?? {};
  if (chunk.usage || chunk.timings) {
    message.usage = {
      prompt: usage.prompt_tokens ?? timings.cache_n + timings.prompt_n,
      reused: usage.prompt_tokens_details?.cached_tokens ?? timings.cache_n,
      output: usage.completion_tokens ?? timings.predicted_n,
      readRate: timings.prompt_per_second ?? null,
      rate: timings.predicted_per_second ?? null,
      experts: usage.strata?.experts ?? null,
    };
  }
}

/**
 * Ask for the next message of a talk. `changed()` is called as `message` grows. Never raises:
 * `message.error` is a sentence, and `message.finish` is "stopped" when `signal` ended it.
 */
export async function ask(history, settings, message, signal, changed) {
  const body = {
    messages: history.map(sent),
    stream: true,
    stream_options: { include_usage: true },
    timings_per_token: true,
    return_progress: true,
    strata_stats: true,
    ...settings,
  };
  try {
    const response = await call("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
    let whole = false;
    for await (const { data } of events(response)) {
      if (data === "[DONE]") whole = true;
      else take(message, JSON.parse(data));
      changed();
    }
    if (!whole) throw new Error("The connection was closed before the answer ended.");
  } catch (error) {
    if (signal.aborted) message.finish = "stopped";
    else message.error = words(error);
  }
  delete message.progress;
  changed();
}
