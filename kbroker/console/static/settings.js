// Settings of the broker.

import { ask } from "./api.js";
import { configureBroker } from "./changes.js";
import { h } from "./dom.js";
import { actionButton, actions, changeButton, mayManage, whoAmI } from "./manage.js";
import { change } from "./place.js";
import { pagedTable } from "./table.js";

const changeable = (page) => page.rows.filter((row) => !row.is_read_only && !row.is_sensitive);

export const settings = {
  title: "Settings",
  every: 10000,
  load: async (fields, signal) => ({ ...(await ask("settings", { q: fields.get("q"), show: fields.get("show"), sort: fields.get("sort"), start: fields.get("start") }, signal)), node_id: (await whoAmI()).node_id }),
  draw: (page, fields) => [
    h("div", { class: "head" }, h("h1", null, "Settings"), actions(actionButton("Change a setting", () => configureBroker(page.node_id, changeable(page)), "", mayManage("ALTER_CONFIGS")))),
    h("section", { class: "panel" },
      h("div", { class: "tools" }, ["all", "changed"].map((show) => h("button", { class: "button", type: "button", "aria-pressed": String((fields.get("show") ?? "all") === show), onclick: () => change({ show: show === "all" ? null : show, start: null }) }, show === "all" ? "All" : "Changed"))),
      pagedTable({
        page, label: "Settings", search: { value: fields.get("q"), label: "Search names and meanings" }, empty: "Nothing is set.", keyOf: (row) => row.name, columns: [
          { key: "name", label: "Setting", sorts: true, className: "name", cell: (row) => [h("code", null, row.name), row.is_read_only && h("div", { class: "quiet wide" }, "read at the start"), h("div", { class: "quiet narrow" }, row.documentation)] },
          { key: "value", label: "Value", className: "name", cell: (row) => [h("code", null, row.is_sensitive ? "••••" : row.value ?? "–"), !row.is_default && row.default !== null && row.default !== row.value && h("div", { class: "quiet" }, "default ", h("code", null, row.default))] },
          mayManage("ALTER_CONFIGS") && { key: "change", label: "Change", cell: (row) => !row.is_read_only && !row.is_sensitive && changeButton(row.name, () => configureBroker(page.node_id, changeable(page), row.name)) },
          { key: "source", label: "From", sorts: true, wide: true, cell: (row) => [row.source, row.origin && h("div", { class: "quiet" }, row.origin)] },
          { key: "documentation", label: "What it does", wide: true, className: "wide-text quiet", cell: (row) => row.documentation },
        ].filter(Boolean),
      })),
  ],
};
