// Users, ACLs and quotas.

import { ask } from "./api.js";
import { addAcl, changeQuota, removeAcl, removeUser, setPassword } from "./changes.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { actionButton, actions, mayManage } from "./manage.js";
import { pagedTable } from "./table.js";

const load = (name) => (fields, signal) => ask(name, { q: fields.get("q"), sort: fields.get("sort"), start: fields.get("start") }, signal);

const doing = (operation, ...buttons) => (mayManage(operation) ? [{ label: h("span", { class: "visually-hidden" }, "Changes"), cell: (row) => h("div", { class: "tools" }, buttons.map((make) => make(row))) }] : []);

export const users = {
  title: "Users",
  every: 10000,
  load: load("users"),
  draw: (page, fields) => [
    h("div", { class: "head" }, h("h1", null, "Users"), actions(actionButton("Add a user", () => setPassword(), "", mayManage("ALTER")))),
    h("section", { class: "panel" }, pagedTable({
      page, label: "Users", search: { value: fields.get("q"), label: "Search users" }, empty: "No user has a password by SCRAM. Those of PLAIN stand in the broker's settings.", keyOf: (row) => `${row.name} ${row.mechanism}`, columns: [
        { key: "name", label: "User", sorts: true, className: "name", cell: (row) => row.name },
        { key: "mechanism", label: "Logs in with", sorts: true, cell: (row) => row.mechanism },
        { key: "iterations", label: "Iterations", num: true, sorts: true, wide: true, cell: (row) => count(row.iterations) },
        ...doing("ALTER", (row) => actionButton("Password", () => setPassword(row.name)), (row) => actionButton("Remove", () => removeUser(row.name, row.mechanism))),
      ],
    })),
  ],
};

export const acls = {
  title: "ACLs",
  every: 10000,
  load: load("acls"),
  draw: (told, fields) => [
    h("div", { class: "head" }, h("h1", null, "ACLs"), actions(actionButton("Add an ACL", addAcl, "", mayManage("ALTER")))),
    !told.is_in_force && h("div", { class: "notice here" }, "The broker has no authorizer (authorizer.class.name): everybody may do everything, whatever stands here."),
    h("section", { class: "panel" }, pagedTable({
      page: told.page, label: "ACLs", search: { value: fields.get("q"), label: "Search ACLs" }, empty: "There are no ACLs.", keyOf: (row) => Object.values(row).join(" "), columns: [
        { key: "principal", label: "Principal", sorts: true, className: "name", cell: (row) => row.principal },
        { key: "permission", label: "May", sorts: true, cell: (row) => h("span", { class: `tag ${row.permission === "ALLOW" ? "good" : "bad"}` }, row.permission.toLowerCase()) },
        { key: "operation", label: "Operation", sorts: true, cell: (row) => row.operation },
        { key: "kind", label: "Of", sorts: true, wide: true, cell: (row) => row.kind.toLowerCase().replace("_", " ") },
        { key: "name", label: "Name", sorts: true, className: "name", cell: (row) => [h("code", null, row.name), row.pattern === "PREFIXED" && h("span", { class: "quiet" }, " and all that begin so")] },
        { key: "host", label: "From", sorts: true, wide: true, cell: (row) => row.host },
        ...doing("ALTER", (row) => actionButton("Remove", () => removeAcl(row))),
      ],
    })),
  ],
};

export const quotas = {
  title: "Quotas",
  every: 10000,
  load: load("quotas"),
  draw: (page, fields) => [
    h("div", { class: "head" }, h("h1", null, "Quotas"), actions(actionButton("Set quotas", () => changeQuota(), "", mayManage("ALTER_CONFIGS")))),
    h("section", { class: "panel" }, pagedTable({
      page, label: "Quotas", search: { value: fields.get("q"), label: "Search quotas" }, empty: "Nobody has a quota.", keyOf: (row) => `${row.entity} ${row.key}`, columns: [
        { key: "entity", label: "Of", sorts: true, className: "name", cell: (row) => row.entity },
        { key: "key", label: "Quota", sorts: true, cell: (row) => h("code", null, row.key) },
        { key: "value", label: "Value", num: true, sorts: true, cell: (row) => count(row.value) },
        ...doing("ALTER_CONFIGS", (row) => actionButton("Change", () => changeQuota(row.parts, Object.fromEntries(page.rows.filter((each) => each.entity === row.entity).map((each) => [each.key, String(each.value)]))))),
      ],
    })),
  ],
};
