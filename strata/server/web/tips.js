// What a figure means, on hover and focus: the server's own sentences, from GET /v1/about.

import { $, el, say } from "./dom.js";

let sentences = {};

/** From now on figures mean this. */
export function define(definitions) {
  sentences = definitions ?? {};
}

/** A name of a figure that tells its meaning. */
export function term(label, figure) {
  return el("button", { type: "button", class: "term", "data-figure": figure }, label);
}

function place(tip, target) {
  const at = target.getBoundingClientRect();
  const edge = document.documentElement.clientWidth - tip.offsetWidth - 8;
  const above = at.top - tip.offsetHeight;
  tip.style.left = `${Math.max(8, Math.min(at.left, edge))}px`;
  tip.style.top = `${at.bottom + tip.offsetHeight > innerHeight && above > 0 ? above : at.bottom}px`;
}

/** Watch the whole page. Escape hides, and the tip itself may be hovered (WCAG 1.4.13). */
export function watchTips() {
  const tip = $("tip");
  let owner = null;

  function hide() {
    owner?.removeAttribute("aria-describedby");
    owner = null;
    tip.hidden = true;
  }
  function show(target) {
    const text = sentences[target.dataset.figure];
    if (!text || target === owner) return;
    hide();
    owner = target;
    say(tip, text);
    tip.hidden = false;
    target.setAttribute("aria-describedby", "tip");
    place(tip, target);
  }
  const figure = (event) => event.target.closest?.("[data-figure]");
  document.addEventListener("focusin", (event) => (figure(event) ? show(figure(event)) : hide()));
  document.addEventListener("mouseover", (event) => figure(event) && show(figure(event)));
  document.addEventListener("mouseout", (event) => {
    const to = event.relatedTarget;
    if (owner && !tip.contains(to) && !owner.contains(to) && owner !== document.activeElement) hide();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  addEventListener("scroll", hide, { passive: true });
}
