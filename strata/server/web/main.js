// Starts the page: tabs, the stream, and what each tab needs when it is first shown.

import { about } from "./about.js";
import { showCache, startCache } from "./cache.js";
import { startChat } from "./chat.js";
import { $, mark, say } from "./dom.js";
import { show, startMonitor, told } from "./monitor.js";
import { headline } from "./rows.js";
import { follow, retry } from "./stream.js";
import { tabs } from "./tabs.js";
import { watchTips } from "./tips.js";

const STATES = { live: "Live", lost: "Reconnecting…", refused: "Not connected" };

function state(name, why) {
  const button = $("connection");
  mark(button, "data-state", name);
  say($("connection-text"), STATES[name]);
  button.disabled = name === "live";
  button.title = name === "live" ? "Figures arrive each second" : `${why} Press to try again now.`;
  $("page").classList.toggle("stale", name !== "live");
}

let known = null;

function snapshot(data) {
  told(data);
  say($("model"), data.server.model ?? "");
  document.title = `${headline(data)} – Strata`;
  // A server that began anew, or has a model now, has other facts.
  const now = `${data.server.started} ${data.server.model}`;
  if (known !== now) {
    known = now;
    about();
  }
}

watchTips();
startMonitor();
startCache();
startChat();
tabs($("tabs"), (name) => {
  if (name === "monitor") show();
  if (name === "cache") showCache();
});
$("connection").addEventListener("click", retry);
follow("/v1/monitor", snapshot, state);
