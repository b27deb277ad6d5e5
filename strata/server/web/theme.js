// Light, dark, or as the system has it. Not a module: it runs before the first paint.
"use strict";
{
  const themes = ["system", "light", "dark"];
  const read = () => {
    try {
      const kept = localStorage.getItem("strata.theme");
      return themes.includes(kept) ? kept : "system";
    } catch {
      return "system";
    }
  };
  let theme = read();
  const apply = () => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) {
      button.setAttribute("aria-label", `Theme: ${theme}`);
      button.title = `Theme: ${theme}`;
    }
  };
  apply();
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      try {
        localStorage.setItem("strata.theme", theme);
      } catch {
        // Kept for this visit alone.
      }
      apply();
    });
  });
}
