// Light, dark, or as the system has it: chosen by the viewer, kept in this browser.

import { h } from "./dom.js";

const NAME = "kbroker theme";
const THEMES = ["system", "light", "dark"];
const system = matchMedia("(prefers-color-scheme: dark)");

function chosen() {
  try {
    const found = localStorage.getItem(NAME);
    return THEMES.includes(found) ? found : "system";
  } catch {
    return "system";
  }
}

function apply(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.querySelector("meta[name=color-scheme]").content = theme === "system" ? "light dark" : theme;
}

function choose(theme) {
  try {
    localStorage.setItem(NAME, theme);
  } catch {
    // Without storage it holds as long as the page.
  }
  apply(theme);
  dispatchEvent(new Event("theme"));
}

export const themeSwitch = () => h("label", { class: "theme" }, h("span", { class: "visually-hidden" }, "Colours"),
  h("select", { id: "theme", value: chosen(), onchange: (event) => choose(event.target.value) }, [["system", "as the system"], ["light", "light"], ["dark", "dark"]].map(([value, label]) => h("option", { value }, label))));

export function whenColoursChange(call) {
  system.addEventListener("change", call);
  addEventListener("theme", call);
}

apply(chosen());
