// The frame around the pages: where the viewer is, looking again and again, keys, and what to say when the broker is away.

import { ask, Refused } from "./api.js";
import { forgetCharts } from "./chart.js";
import { draw, h } from "./dom.js";
import { brokers } from "./brokers.js";
import { clients } from "./clients.js";
import { clusters } from "./clusters.js";
import { group, groups } from "./groups.js";
import { isHidden, whoAmI } from "./manage.js";
import { messages } from "./messages.js";
import { overview } from "./overview.js";
import { place, to } from "./place.js";
import { schema, schemas } from "./schemas.js";
import { acls, quotas, users } from "./security.js";
import { settings } from "./settings.js";
import { statistics } from "./statistics.js";
import { themeSwitch } from "./theme.js";
import { partition, topic, topics } from "./topics.js";
import { transactions } from "./transactions.js";
import { why } from "./why.js";

const PAGES = { overview, topics, topic, partition, messages, statistics, groups, group, clients, transactions, settings, why, schemas, schema, brokers, clusters, users, acls, quotas };
const MENU = [["overview", "o"], ["topics", "t"], ["groups", "g"], ["why", "w"], ["schemas", "m"], ["brokers", "b"], ["clusters", "k"], ["clients", "c"], ["transactions", "x"], ["settings", "s"], ["users", "u"], ["acls", "a"], ["quotas", "q"]];

const byId = (id) => document.getElementById(id);
let looking = null;
let shown = null;

function menu(current) {
  draw(byId("nav"), MENU.filter(([name]) => !isHidden(name)).map(([name, key]) => h("a", { href: name === "overview" ? "#/" : to(name), "aria-current": name === current ? "page" : undefined }, PAGES[name].title, h("kbd", { "aria-hidden": "true" }, `g ${key}`))));
}

async function about() {
  try {
    const me = await whoAmI();
    draw(byId("about"), h("span", null, `broker ${me.node_id}`), h("span", { class: "extra" }, `kbroker ${me.version}`), h("span", { class: "extra mono" }, me.cluster_id),
      me.principal !== "User:ANONYMOUS" && h("span", null, me.principal),
      me.links.length > 0 && h("nav", { class: "links", "aria-label": "Other clusters" }, me.links.map((link) => h("a", { href: link.address }, link.name))),
      h("span", { class: "extra" }, h("kbd", null, "?"), " keys"), themeSwitch());
  } catch {
    // The page says it.
  }
}

function notice(text, kind = "") {
  draw(byId("notice"), text && h("div", { class: `notice ${kind}` }, text));
}

// One page until the viewer goes elsewhere: look, draw, wait, and not at all while the tab is hidden.
async function go() {
  looking?.abort();
  const here = place();
  const page = PAGES[here.name];
  const control = (looking = new AbortController());
  const isNew = shown?.name !== here.name || shown?.identity !== identity(here);
  shown = { name: here.name, identity: identity(here) };
  if (!page) {
    draw(byId("page"), h("h1", null, "No such page"), h("p", null, h("a", { href: "#/" }, "To the overview")));
    return;
  }
  menu(page.within ?? here.name);
  const title = typeof page.title === "function" ? page.title(here.fields) : page.title;
  document.title = `${title} · kbroker`;
  if (isNew) {
    notice("");
    draw(byId("page"), h("p", { class: "quiet" }, "Loading…"));
    scrollTo(0, 0);
  }
  let every = 1000;
  while (!control.signal.aborted) {
    if (!document.hidden) {
      try {
        const told = await page.load(here.fields, control.signal);
        if (control.signal.aborted) return;
        draw(byId("page"), page.draw(told, here.fields, control.signal));
        byId("page").classList.remove("stale");
        forgetCharts();
        notice("");
        every = page.every;
      } catch (error) {
        if (control.signal.aborted) return;
        every = failed(error) ? 2000 : page.every;
      }
    }
    if (!every) return;
    await pause(every, control.signal);
  }
}

const identity = (here) => ["name", "partition", "id", "topic"].map((field) => here.fields.get(field)).join("\n");

// Whether it may go by by itself.
function failed(error) {
  if (error instanceof Refused && error.status !== 503) {
    draw(byId("page"), h("h1", null, error.status === 404 ? "Not there" : "Not shown"), h("p", null, error.message), h("p", null, h("a", { href: "#/" }, "To the overview")));
    return true;
  }
  const text = error instanceof Refused ? `${error.message}. Looking again…` : "The broker does not answer. What is below is from before; looking again…";
  if (!(error instanceof Refused) && !(error instanceof TypeError) && !(error instanceof SyntaxError)) console.error(error);
  byId("page").classList.add("stale");
  notice(text, "is-bad");
  return true;
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()));
    document.addEventListener("visibilitychange", () => document.hidden || (clearTimeout(timer), resolve()), { once: true, signal });
  });
}

// Keys

const KEYS = [
  ["g then o, t, g, w, m, b, k, c, x, s, u, a, q", "overview, topics, groups, why, schemas, brokers, clusters, clients, transactions, settings, users, ACLs, quotas"],
  ["/", "search"],
  ["n, p", "next and previous page of a table"],
  ["r", "look now"],
  ["Space", "pause or go on, in a live tail"],
  ["?", "this list"],
];
let prefix = false;

function help() {
  const dialog = byId("help");
  draw(dialog, h("h2", { id: "help-title" }, "Keys"), h("dl", null, KEYS.map(([keys, what]) => [h("dt", null, h("kbd", null, keys)), h("dd", null, what)])), h("button", { class: "button", type: "button", onclick: () => dialog.close() }, "Close"));
  dialog.showModal();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  const key = event.key;
  if (prefix) {
    prefix = false;
    const found = MENU.find(([, letter]) => letter === key);
    if (found) location.hash = found[0] === "overview" ? "#/" : to(found[0]);
    return;
  }
  if (key === "g") prefix = true;
  else if (key === "/") event.preventDefault(), byId("search")?.focus();
  else if (key === "n") byId("next")?.click();
  else if (key === "p") byId("previous")?.click();
  else if (key === "r") go();
  else if (key === "?") help();
  else if (key === " " && byId("tail") && !event.target.closest("button, a, summary")) event.preventDefault(), byId("tail").click();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
addEventListener("hashchange", go);
// What may be changed decides about the buttons of the first page.
about().then(go);
