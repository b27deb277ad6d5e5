// The Cache tab: the tree of cached prefixes. Their text is fetched only when someone asks for it.

import { call, read, trouble, words } from "./api.js";
import { $, el, say } from "./dom.js";
import { ago, bytes, count, plural } from "./format.js";

const MOST = "depth=100&limit=1000";

/** Text of a node on a button. */
function textButton(node) {
  const place = el("div", { class: "cached-text" });
  const button = el("button", { type: "button", class: "quiet small", "aria-expanded": "false" }, "Show text");
  button.addEventListener("click", async () => {
    if (place.childElementCount) {
      place.replaceChildren();
    } else {
      try {
        const { text, above } = await read(`/v1/cache/text?node=${encodeURIComponent(node.id)}`);
        const own = [...text].slice(above).join(""); // counted in code points
        place.replaceChildren(el("pre", { tabindex: "0", "aria-label": "Cached text" }, own));
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

/** What is told of one node. */
function leaf(node, most) {
  const [button, place] = node.own ? textButton(node) : [el("span", { class: "meta" }, "Of another key or salt: no text"), null];
  const from = node.depth_tokens - node.tokens;
  const size = el("span", { class: "size" });
  size.style.width = `${Math.max(0.5, (100 * node.tokens) / most)}%`;
  const busy = node.running
    ? el("span", { class: "badge", "data-status": "decoding" }, `${plural(node.running, "request")} here now`)
    : null;
  return el(
    "div",
    { class: "leaf" },
    el(
      "div",
      { class: "node" },
      el("span", { class: "name" }, plural(node.tokens, "token")),
      el("span", { class: "range" }, `${count(from)} to ${count(node.depth_tokens)}`),
      el("span", { class: "meta" }, facts(node)),
      busy,
      el("span", { class: "push" }),
      button,
      el("span", { class: "track", "aria-hidden": "true" }, size),
    ),
    place,
  );
}

/** A node and what follows it: in line as long as there is one way on, nested where it parts. */
function branch(node, children, most) {
  const item = el("li", {}, leaf(node, most));
  let below = children.get(node.id) ?? [];
  while (below.length === 1) {
    item.append(leaf(below[0], most));
    below = children.get(below[0].id) ?? [];
  }
  if (below.length) {
    const list = el("ul", {}, ...below.map((child) => branch(child, children, most)));
    item.append(el("details", { open: true }, el("summary", {}, plural(below.length, "continuation")), list));
  }
  return item;
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
  say($("tree-shown"), nodes.length ? `${count(shown)} of ${plural(total, "page")} shown, those used last` : "");
}

function showEvicted({ pages, states, why }) {
  const reasons = Object.entries(why ?? {}).filter(([, n]) => n);
  say($("evicted"), pages || states ? `Given up for room since start: ${plural(pages, "page")}, ${plural(states, "state")}.` : "Nothing has been given up for room since start.");
  $("evicted-why").replaceChildren(...reasons.map(([reason, n]) => el("li", {}, `${count(n)} ${reason}`)));
}

/** Fetch and show what is cached now. */
export async function showCache() {
  try {
    const [tree, all] = await Promise.all([read(`/v1/cache/tree?${MOST}`), read("/v1/cache")]);
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
