// The Cache tab: the tree of cached prefixes. Their text is fetched only when someone asks for it.

import { call, read, trouble, words } from "./api.js";
import { $, el, say } from "./dom.js";
import { ago, bytes, count, plural } from "./format.js";

const LIMIT = 500;

/** Text of a node on a button. */
function textButton(node) {
  const place = el("div", {});
  const button = el("button", { type: "button", class: "quiet small", "aria-expanded": "false" }, "Show text");
  button.addEventListener("click", async () => {
    if (place.childElementCount) {
      place.replaceChildren();
    } else {
      try {
        const { text } = await read(`/v1/cache/text?node=${encodeURIComponent(node.id)}`);
        place.replaceChildren(el("pre", { tabindex: "0", "aria-label": "Cached text" }, text));
      } catch (error) {
        place.replaceChildren(trouble(error));
      }
    }
    const open = place.childElementCount > 0;
    say(button, open ? "Hide text" : "Show text");
    button.setAttribute("aria-expanded", open);
  });
  return [button, place];
}

function facts(node) {
  const parts = [
    bytes(node.bytes),
    plural(node.hits, "hit"),
    `used ${ago(node.last_used_s)}`,
    node.states ? plural(node.states, "state") : "",
  ];
  return parts.filter(Boolean).join(" · ");
}

/** One node and what follows it, nested. */
function branch(node, children, most) {
  const from = node.depth_tokens - node.tokens;
  const size = el("span", { class: "size", "aria-hidden": "true" });
  size.style.width = `${Math.max(2, (100 * node.tokens) / most)}%`;
  const line = el(
    "div",
    { class: "node" },
    el("span", { class: "name" }, `${count(node.tokens)} tokens`),
    el("span", { class: "range" }, `${count(from)} to ${count(node.depth_tokens)}`),
    node.running ? el("span", { class: "badge", "data-status": "decoding" }, `${plural(node.running, "request")} here now`) : null,
    el("span", { class: "meta" }, facts(node)),
    el("span", { class: "track" }, size),
  );
  const below = children.get(node.id) ?? [];
  const own = el("div", { class: "own" }, ...textButton(node));
  const list = below.length ? el("ul", {}, ...below.map((child) => branch(child, children, most))) : null;
  if (!list) return el("li", {}, line, own);
  const fold = el("details", { open: true }, el("summary", {}, plural(below.length, "continuation")), list);
  return el("li", {}, line, own, fold);
}

function showTree({ nodes, shown, total }) {
  const children = new Map();
  const known = new Set(nodes.map((node) => node.id));
  const roots = [];
  for (const node of nodes) {
    const list = known.has(node.parent) ? (children.get(node.parent) ?? []) : roots;
    list.push(node);
    if (list !== roots) children.set(node.parent, list);
  }
  const most = Math.max(1, ...nodes.map((node) => node.tokens));
  const spaces = new Map();
  for (const root of roots) spaces.set(root.namespace ?? "", [...(spaces.get(root.namespace ?? "") ?? []), root]);
  const parts = [...spaces].map(([space, list]) => {
    const tree = el("ul", { class: "tree" }, ...list.map((root) => branch(root, children, most)));
    return spaces.size > 1 ? el("section", {}, el("h3", {}, space ? `Namespace ${space}` : "Shared by all"), tree) : tree;
  });
  $("tree").replaceChildren(...parts);
  $("tree-empty").hidden = nodes.length > 0;
  say($("tree-shown"), shown < total ? `${count(shown)} of ${count(total)} prefixes, the most used first.` : nodes.length ? `${plural(total, "prefix", "prefixes")}.` : "");
}

function showEvicted({ pages, states, why }) {
  const reasons = Object.entries(why ?? {}).filter(([, n]) => n);
  const told = reasons.map(([reason, n]) => `${reason}: ${count(n)}`).join(", ");
  say($("evicted"), pages || states ? `Given up since start: ${plural(pages, "page")}, ${plural(states, "state")}${told ? ` (${told})` : ""}.` : "Nothing has been given up since start.");
}

/** Fetch and show what is cached now. */
export async function showCache() {
  try {
    const [tree, all] = await Promise.all([read(`/v1/cache/tree?limit=${LIMIT}`), read("/v1/cache")]);
    const part = ({ bytes_cached, bytes_budget }) => `${bytes(bytes_cached)} of ${bytes(bytes_budget)}`;
    const states = all.states.total ? `, states ${part(all.states)}` : "";
    say($("cache-sum"), `Pages ${part(all.pages)}${states}. ${count(all.saved_tokens)} prompt tokens were not read again.`);
    showTree(tree);
    showEvicted(tree.evicted);
    $("cache-trouble").replaceChildren();
  } catch (error) {
    $("cache-trouble").replaceChildren(trouble(error));
  }
}

/** Make the buttons work. */
export function startCache() {
  $("cache-refresh").addEventListener("click", showCache);
  $("cache-clear").addEventListener("click", () => $("clear-dialog").showModal());
  $("clear-no").addEventListener("click", () => $("clear-dialog").close());
  $("clear-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    $("clear-dialog").close();
    try {
      const freed = await (await call("/v1/cache", { method: "DELETE" })).json();
      say($("cache-status"), `Freed ${bytes(freed.bytes_freed)}: ${plural(freed.pages_freed, "page")}, ${plural(freed.states_freed, "state")}.`);
    } catch (error) {
      say($("cache-status"), words(error));
    }
    await showCache();
  });
}
