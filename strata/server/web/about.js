// The About tab: what is served and how, and how to reach it.

import { kept, read, trouble } from "./api.js";
import { commands } from "./clients.js";
import { $, copyButton, el } from "./dom.js";
import { define } from "./tips.js";

const words = (name) => (name[0].toUpperCase() + name.slice(1)).replaceAll("_", " ");

/** A value of any shape as text: lists in lines, objects as "name: value". */
function text(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (Array.isArray(value)) return value.map(text).join("\n");
  if (typeof value === "object") return Object.entries(value).map(([k, v]) => `${words(k)}: ${text(v)}`).join("\n");
  return typeof value === "number" ? value.toLocaleString("en-US") : String(value);
}

function group(title, facts) {
  const rows = Object.entries(facts).map(([name, value]) => el("div", {}, el("dt", {}, words(name)), el("dd", {}, text(value))));
  return el("section", { class: "card" }, el("h2", {}, title), el("dl", { class: "pairs" }, ...rows));
}

function plan(lines) {
  const text = lines.length ? lines.join("\n") : "Not known yet.";
  return el("section", { class: "card" }, el("h2", {}, "Memory plan"), el("pre", { class: "plan", tabindex: "0", "aria-label": "Memory plan" }, text));
}

function addresses(urls) {
  const rows = Object.entries(urls).map(([name, url]) =>
    el("div", {}, el("dt", {}, name === "openai" ? "OpenAI" : words(name)), el("dd", {}, el("code", {}, url), copyButton(() => url, "Copy", `Copy the address for ${name}`))),
  );
  return el("section", { class: "card" }, el("h2", {}, "Addresses"), el("dl", { class: "pairs" }, ...rows));
}

function clients(url, model, needsKey) {
  const parts = commands(url, model, needsKey).map(([name, how, code], i) =>
    el(
      "details",
      { name: "client", open: i === 0 },
      el("summary", {}, name),
      el(
        "div",
        { class: "code" },
        el("div", { class: "code-bar" }, el("span", {}, how), copyButton(() => code, "Copy", `Copy for ${name}`)),
        el("pre", { tabindex: "0", "aria-label": name }, el("code", {}, code)),
      ),
    ),
  );
  return el("section", { class: "card clients" }, el("h2", {}, "Connect a client"), ...parts);
}

/** Fetch the facts and show them; figures get their meaning from them too. */
export async function about() {
  try {
    const told = await read("/v1/about");
    define(told.definitions);
    const base = (told.urls.openai ?? `${location.origin}/v1`).replace(/\/v1$/, "");
    const { file, quantisation, kernels } = told;
    $("about").replaceChildren(
      group("Model", { ...told.model, file, quantisation, kernels }),
      plan(told.memory_plan),
      addresses(told.urls),
      clients(base, told.model?.id ?? "NAME", Boolean(kept("strata.key"))),
      group("Versions", told.versions),
    );
  } catch (error) {
    $("about").replaceChildren(trouble(error));
  }
}
