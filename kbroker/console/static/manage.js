// Changes: a form, then what will happen, then, once that was read, what has happened.

import { ask, post, Refused } from "./api.js";
import { draw, h } from "./dom.js";
import { count } from "./format.js";
import { table } from "./table.js";

let me = null;
let number = 0;

export async function whoAmI() {
  me = await ask("me");
  return me;
}

// Whether the viewer may change something at all, and, given one, has the right to the cluster.
export const mayManage = (operation = null) => Boolean(me?.may_manage && (operation === null || me.rights.includes(operation)));
export const mayCreateTopics = () => Boolean(me?.may_manage && me.may_create_topics);
export const isHidden = (page) => Boolean(me?.hidden_pages.includes(page));
export const seesCluster = () => Boolean(me?.rights.includes("DESCRIBE"));

const KEPT_MS = 10000;
const known = new Map();

// What the viewer may do to a resource, as a function of an operation's name; where nothing can be changed, nothing is asked.
export async function rightsTo(kind, name, signal) {
  if (!mayManage()) return () => false;
  const key = `${kind} ${name}`;
  if (!(known.get(key)?.until > Date.now())) {
    if (known.size > 1000) known.clear();
    known.set(key, { until: Date.now() + KEPT_MS, rights: new Set(await ask("rights", { kind, name }, signal)) });
  }
  const { rights } = known.get(key);
  return (operation) => rights.has(operation);
}

// A button for an action, where the viewer may change something at all and has the right.
export const actionButton = (label, make, kind = "", isAllowed = true) => mayManage() && isAllowed && h("button", { class: `button ${kind}`, type: "button", onclick: () => act(make()) }, label);

// A button in the row of a setting.
export const changeButton = (name, make) => h("button", { class: "button", type: "button", "aria-label": `Change ${name}`, onclick: () => act(make()) }, "Change");

// The buttons of a page.
export const actions = (...buttons) => mayManage() && buttons.some(Boolean) && h("div", { class: "tools actions" }, buttons);

const dialog = () => document.getElementById("action");

// `inputs`: {name, label, type, value, options, required, hint, shown(values)}; `read`: from what was typed to the
// action's fields, or a promise of them; `secret`: the name of the input that is a password.
export function act({ action, title, inputs = [], read = (values) => values, secret }) {
  const key = `action ${(number += 1)}`;
  const values = Object.fromEntries(inputs.map((input) => [input.name, input.value ?? ""]));
  const files = {};
  let fields = null;

  // Where records, which may be large, have a place of their own.
  const place = (step) => (action === "produce" ? `${step}/produce` : step);
  const body = () => ({ action, fields, secret: secret ? values[secret] : undefined });

  function form(problem = "") {
    show(key, h("form", { class: "steps", onsubmit: (event) => (event.preventDefault(), plan()) },
      heading(title),
      inputs.filter((input) => !input.shown || input.shown(values)).map((input) => field(input, values, files, () => form())),
      said(problem),
      h("div", { class: "tools" }, h("button", { class: "button main", type: "submit" }, "Show what happens"), cancel())));
  }

  async function plan() {
    await step(form, async () => {
      fields = await read(values, files);
      shown(await post(place("plan"), body()));
    });
  }

  function shown(told, notice = "") {
    fields = told.fields;
    let typed = "";
    const again = (problem = "") => {
      const ready = !told.confirm || typed === told.confirm;
      show(`${key} plan`, h("form", { class: "steps", onsubmit: (event) => (event.preventDefault(), ready && perform(told, again)) },
        heading(told.title), said(notice),
        h("ul", { class: "sentences" }, told.sentences.map((line) => h("li", null, line))),
        told.warnings.map((line) => h("p", { class: "notice here" }, line)),
        rows(told.table),
        told.confirm && h("label", null, h("span", null, "To go on, type ", h("code", null, told.confirm)), h("input", { type: "text", id: "confirm", value: typed, autocomplete: "off", spellcheck: "false", oninput: (event) => ((typed = event.target.value), again()) })),
        said(problem),
        h("div", { class: "tools" }, h("button", { class: `button ${told.confirm ? "danger" : "main"}`, type: "submit", id: "perform", disabled: !ready }, told.button), inputs.length > 0 && h("button", { class: "button", type: "button", onclick: () => form() }, "Back"), cancel())));
    };
    again();
  }

  async function perform(told, again) {
    await step(again, async () => {
      try {
        done(told, await post(place("perform"), { ...body(), token: told.token }));
      } catch (error) {
        if (!(error instanceof Refused) || error.status !== 409 || !error.told.plan) throw error;
        shown(error.told.plan, "It is no longer as it was shown, and nothing was done. This is what would happen now:");
      }
    });
  }

  function done(told, result) {
    const close = () => (dialog().close(), dispatchEvent(new HashChangeEvent("hashchange")));
    show(`${key} done`, h("form", { class: "steps", onsubmit: (event) => (event.preventDefault(), close()) },
      heading(told.title),
      h("div", { role: "status" }, result.sentences.map((line) => h("p", { class: "good" }, line)), result.failures.map((line) => h("p", { class: "bad" }, line))),
      rows(result.table),
      h("div", { class: "tools" }, h("button", { class: "button main", type: "submit", id: "close" }, "Close"))));
  }

  if (inputs.length) form();
  else plan();
}

async function step(again, work) {
  const button = dialog().querySelector("button[type=submit]");
  if (button) button.disabled = true;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused) && !(error instanceof TypeError) && !(error instanceof FormError)) throw error;
    again(error instanceof TypeError ? "The broker does not answer." : error.message);
  }
}

// What is wrong with what was typed, before the broker is asked.
export class FormError extends Error {}

const heading = (title) => h("h2", { id: "action-title" }, title);
const said = (text) => text && h("p", { class: "notice here is-bad", role: "alert" }, text);
const cancel = () => h("button", { class: "button", type: "button", onclick: () => dialog().close() }, "Cancel");

function rows(told) {
  if (!told || !told.rows.length) return null;
  const columns = told.columns.map((label, index) => ({ label, num: told.rows.some((row) => typeof row[index] === "number"), className: "name", cell: (row) => value(row[index]) }));
  return h("div", { class: "rows" }, table({ label: "What changes", rows: told.rows.slice(0, 500), columns, keyOf: (row) => row.slice(0, 2).join(" ") }),
    told.rows.length > 500 && h("p", { class: "quiet" }, `the first 500 of ${count(told.rows.length)}`));
}

const value = (cell) => (cell === null ? "–" : typeof cell === "number" ? count(cell) : String(cell));

function show(key, content) {
  const target = dialog();
  const isNew = target.dataset.shown !== key;
  target.dataset.shown = key;
  content.dataset.key = key;
  draw(target, content);
  if (!target.open) target.showModal();
  if (isNew) (target.querySelector("input:not([type=checkbox]), textarea, select") ?? target.querySelector("button[type=submit]"))?.focus();
}

function field(input, values, files, again) {
  const id = `field-${input.name}`;
  const set = (event) => ((values[input.name] = input.type === "checkbox" ? event.target.checked : event.target.value), input.took?.(values), input.redraws && again());
  const common = { id, name: input.name, required: input.required, autocomplete: "off", spellcheck: "false" };
  const hint = input.hint && h("span", { class: "quiet hint" }, input.hint);
  switch (input.type) {
    case "checkbox": {
      const box = h("input", { type: "checkbox", ...common, onchange: set });
      box.checked = Boolean(values[input.name]);
      return h("label", { class: "check", "data-key": id }, box, input.label, hint);
    }
    case "select":
      return h("label", { "data-key": id }, input.label, h("select", { ...common, value: values[input.name] || input.options[0][0], onchange: set }, input.options.map(([option, label]) => h("option", { value: option }, label ?? option))), hint);
    case "textarea":
      return h("label", { "data-key": id }, input.label, h("textarea", { ...common, rows: input.rows ?? 4, value: values[input.name], placeholder: input.placeholder, oninput: set }), hint);
    case "file":
      return h("label", { "data-key": id }, input.label, h("input", { type: "file", id, "data-keep": "yes", required: input.required, onchange: (event) => (files[input.name] = event.target.files[0]) }), hint);
    default:
      return h("label", { "data-key": id }, input.label, h("input", { type: input.type ?? "text", ...common, min: input.min, step: input.type === "number" ? "any" : undefined, list: input.choices && `${id}-choices`, value: values[input.name], placeholder: input.placeholder, oninput: set }),
        input.choices && h("datalist", { id: `${id}-choices` }, input.choices.map((choice) => h("option", { value: choice }))), hint);
  }
}

// Lines of name=value.
export function pairs(text) {
  const found = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new FormError(`“${line}” is not name=value`);
    found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return found;
}
