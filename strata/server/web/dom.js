// Makes and updates elements. Text is always a text node: nothing here takes HTML.

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected"]);

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** An element: `el("button", {class: "quiet", onclick: act}, "Copy")`. */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An element of SVG. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

export const $ = (id) => document.getElementById(id);

/** Set a node's text, if it is another: what is selected stays so, and nobody is told twice. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Set an attribute, or take it away with null. */
export function mark(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

/**
 * Make `parent`'s children those of `items`, one each, in order. Who was there stays, with focus
 * and open details: `make(item)` is called for new keys, `update(node, item)` for all.
 */
export function keyed(parent, items, key, make, update) {
  const known = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let node = known.get(name);
    known.delete(name);
    if (!node) {
      node = make(item);
      node.dataset.key = name;
    }
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of known.values()) node.remove();
}

/** Put a text on the clipboard, and say so on the button for a moment. */
export async function copy(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Plain http from another machine has no clipboard API.
    const field = el("textarea", { class: "offscreen", "aria-hidden": "true", value: text });
    document.body.append(field);
    field.select();
    done = document.execCommand("copy");
    field.remove();
    button.focus();
  }
  const before = button.dataset.label ?? button.textContent;
  button.dataset.label = before;
  button.textContent = done ? "Copied" : "Not copied";
  setTimeout(() => (button.textContent = before), 1500);
}

/** A button that copies what `text()` returns. */
export function copyButton(text, label = "Copy", name = null) {
  const button = el("button", { type: "button", class: "quiet small", "aria-label": name }, label);
  button.addEventListener("click", () => copy(text(), button));
  return button;
}

/** Have the browser save a text as a file. */
export function save(name, kind, text) {
  const url = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
