// Server-sent events, read from fetch() so that the key can go along (EventSource has no headers).

import { Refused, call, words } from "./api.js";

const SILENT_MS = 15_000; // a stream that tells each second has gone when it is silent for so long
const LONGEST_MS = 5_000;

/** The events of a response: {event, data}, as the HTML standard parses them (9.2.6). */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let event = { event: "message", data: [] };
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      const lines = text.split(/\r\n|\n|\r(?!$)/);
      text = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (event.data.length) yield { event: event.event, data: event.data.join("\n") };
          event = { event: "message", data: [] };
          continue;
        }
        const [, name, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line);
        if (name === "data") event.data.push(value ?? "");
        else if (name === "event") event.event = value ?? "";
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const asked = new EventTarget();
const again = () => new Promise((resolve) => asked.addEventListener("again", resolve, { once: true }));

/** Try again now. */
export const retry = () => asked.dispatchEvent(new Event("again"));

/**
 * Follow the stream at `path` for ever: `told(data, first)` for each event, `state(name, why)`
 * with "live", "lost" (it will be tried again) or "refused" (when `retry` is called).
 */
export async function follow(path, told, state) {
  let wait = 500;
  for (;;) {
    const stop = new AbortController();
    let timer = setTimeout(() => stop.abort(), SILENT_MS);
    let refused = false;
    try {
      const response = await call(path, { signal: stop.signal, headers: { accept: "text/event-stream" } });
      let first = true;
      for await (const { event, data } of events(response)) {
        clearTimeout(timer);
        timer = setTimeout(() => stop.abort(), SILENT_MS);
        if (event !== "snapshot") continue;
        if (first) state("live");
        told(JSON.parse(data), first);
        first = false;
        wait = 500;
      }
      state("lost", "The server closed the connection.");
    } catch (error) {
      refused = error instanceof Refused && error.status < 500;
      state(refused ? "refused" : "lost", words(error));
    } finally {
      clearTimeout(timer);
      stop.abort();
    }
    await (refused ? again() : Promise.race([pause(wait), again()]));
    wait = Math.min(2 * wait, LONGEST_MS);
  }
}
