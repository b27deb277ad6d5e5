// Tabs as the ARIA practices have them: arrows move, the address remembers.

/** Make `list` work; `shown(name)` is told of each change. Returns what shows a tab by name. */
export function tabs(list, shown) {
  const buttons = [...list.querySelectorAll("[role=tab]")];
  const name = (button) => button.id.replace("tab-", "");

  function show(wanted, focus) {
    const chosen = buttons.find((button) => name(button) === wanted) ?? buttons[0];
    for (const button of buttons) {
      const on = button === chosen;
      button.setAttribute("aria-selected", on);
      button.tabIndex = on ? 0 : -1;
      document.getElementById(button.getAttribute("aria-controls")).hidden = !on;
    }
    if (focus) chosen.focus();
    if (location.hash !== `#${name(chosen)}`) history.replaceState(null, "", `#${name(chosen)}`);
    document.body.dataset.tab = name(chosen);
    shown(name(chosen));
  }

  list.addEventListener("click", (event) => {
    const button = event.target.closest("[role=tab]");
    if (button) show(name(button));
  });
  list.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement);
    const to = {
      ArrowRight: (at + 1) % buttons.length,
      ArrowLeft: (at + buttons.length - 1) % buttons.length,
      Home: 0,
      End: buttons.length - 1,
    }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    show(name(buttons[to]), true);
  });
  addEventListener("hashchange", () => show(location.hash.slice(1)));
  show(location.hash.slice(1));
  return show;
}
