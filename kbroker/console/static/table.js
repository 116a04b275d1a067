// Tables whose rows the broker searches, sorts and cuts into pages.

import { count } from "./format.js";
import { h } from "./dom.js";
import { change } from "./place.js";

// `columns`: {key, label, cell(row), num, wide, sorts, className}; `page`: what `page_of` of the broker gives.
export function pagedTable({ columns, page, label, search, empty, keyOf }) {
  const pages = page.matching > page.rows.length;
  return [
    h("div", { class: "row" },
      h("div", { class: "tools" }, search && searchField(search, page.total), h("span", { class: "quiet" }, page.matching === page.total ? `${count(page.total)} in all` : `${count(page.matching)} of ${count(page.total)}`)),
      pages && pager(page)),
    page.rows.length
      ? table({ columns, rows: page.rows, label, sort: page.sort, descending: page.descending, keyOf })
      : h("p", { class: "empty" }, page.total ? "Nothing matches the search." : empty),
  ];
}

export function table({ columns, rows, label, sort, descending, keyOf }) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
    h("table", null,
      h("thead", null, h("tr", null, columns.map((column) => heading(column, sort, descending)))),
      h("tbody", null, rows.map((row) => h("tr", { "data-key": keyOf?.(row) }, columns.map((column) => h("td", { class: classes(column) }, column.cell(row))))))));
}

const classes = (column) => [column.num && "num", column.wide && "wide", column.className].filter(Boolean).join(" ") || undefined;

function heading(column, sort, descending) {
  const sorted = column.sorts && sort === column.key;
  const turned = sorted ? !descending : Boolean(column.num);
  const content = column.sorts
    ? h("button", { type: "button", onclick: () => change({ sort: (turned ? "-" : "") + column.key, start: null }) }, column.label)
    : column.label;
  return h("th", { scope: "col", class: classes({ ...column, className: undefined }), "aria-sort": sorted ? (descending ? "descending" : "ascending") : undefined }, content);
}

let typing;

export function searchField({ value, label }) {
  return h("input", {
    type: "search", id: "search", value: value ?? "", placeholder: label, "aria-label": label, autocomplete: "off", spellcheck: "false", maxlength: 200,
    oninput: (event) => {
      clearTimeout(typing);
      const text = event.target.value;
      typing = setTimeout(() => change({ q: text || null, start: null }, true), 200);
    },
  });
}

export function pager({ start, rows, matching }) {
  const size = Math.max(rows.length, 1);
  const go = (to) => change({ start: to > 0 ? to : null });
  return h("div", { class: "pager" },
    h("span", { class: "quiet" }, `${count(start + 1)}–${count(start + rows.length)} of ${count(matching)}`),
    h("button", { class: "button", type: "button", id: "previous", disabled: start === 0, onclick: () => go(Math.max(0, start - 50)) }, "Previous"),
    h("button", { class: "button", type: "button", id: "next", disabled: start + rows.length >= matching, onclick: () => go(start + size) }, "Next"));
}

export const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value, className]) => h("div", { class: className }, h("dt", null, name), h("dd", null, value))));
