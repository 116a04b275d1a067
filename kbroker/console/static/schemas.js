// Schemas of the registry: subjects, versions of one, what differs between two.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { change, to } from "./place.js";
import { facts, pagedTable } from "./table.js";

export const schemas = {
  title: "Schemas",
  every: 10000,
  load: (fields, signal) => ask("schemas", { q: fields.get("q"), sort: fields.get("sort"), start: fields.get("start") }, signal),
  draw: (page, fields) => [
    h("div", { class: "head" }, h("h1", null, "Schemas")),
    h("section", { class: "panel" }, pagedTable({
      page, label: "Subjects", search: { value: fields.get("q"), label: "Search subjects" }, empty: "The registry has no subjects.", keyOf: (row) => row.subject, columns: [
        { key: "subject", label: "Subject", sorts: true, className: "name", cell: (row) => h("a", { href: to("schema", { name: row.subject }) }, row.subject) },
        { label: "Topic", className: "name", cell: (row) => (row.topic ? h("a", { href: to("topic", { name: row.topic }) }, row.topic) : "–") },
      ],
    })),
  ],
};

const versions = (told, chosen, set, id) => h("select", { id, value: String(chosen ?? ""), onchange: (event) => change({ [set]: event.target.value }, true) }, told.versions.map((version) => h("option", { value: String(version) }, `version ${version}`)));

const kindOf = (line) => (line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@") ? "quiet" : undefined);

export const schema = {
  title: (fields) => fields.get("name"),
  within: "schemas",
  every: 0,
  load: (fields, signal) => ask("schema", { subject: fields.get("name"), version: fields.get("version"), compared: fields.get("compared") }, signal),
  draw: (told) => [
    h("div", { class: "head" }, h("nav", { class: "crumbs", "aria-label": "Path" }, h("a", { href: to("schemas") }, "Schemas")), h("h1", null, told.subject)),
    h("section", { class: "panel" },
      facts([["Id", told.schema_id], ["Kind", told.kind], ["Versions", told.versions.length]]),
      h("form", { class: "form", onsubmit: (event) => event.preventDefault() }, h("label", null, "Shown", versions(told, told.version, "version", "version")), told.versions.length > 1 && h("label", null, "Beside", versions(told, told.compared, "compared", "compared"))),
      told.references.length > 0 && h("p", null, `${plural(told.references.length, "reference")}: `, told.references.map((each) => [h("a", { href: to("schema", { name: each.subject, version: each.version }) }, `${each.name} (${each.subject} ${each.version})`), " "])),
      h("pre", { tabindex: 0 }, told.lines.join("\n"))),
    told.compared && h("section", { class: "panel" }, h("h2", null, `From version ${told.compared} to ${told.version}`),
      told.differences.length ? h("pre", { tabindex: 0 }, told.differences.slice(2).map((line) => h("span", { class: kindOf(line) }, `${line}\n`))) : h("p", { class: "quiet" }, "They do not differ.")),
  ],
};
