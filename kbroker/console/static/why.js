// Why it is kept, why it is not compacted, why it rebalanced: for the whole broker.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { bytes, plural, seconds, time } from "./format.js";
import { stateTag } from "./groups.js";
import { to } from "./place.js";
import { searchField, table } from "./table.js";

export const why = {
  title: "Why",
  every: 10000,
  load: (fields, signal) => ask("why", { q: fields.get("q") }, signal),
  draw: (told, fields) => [
    h("div", { class: "head" }, h("h1", null, "Why"), h("div", { class: "tools" }, searchField({ value: fields.get("q"), label: "Search topics and groups" }))),
    section("Why is it kept?", "The largest logs here, and what keeps their oldest records.", told.kept, "There are no logs.", logs),
    section("Why is it not compacted?", `${plural(told.compacted_count, "log")} of compacted topics here; the dirtiest first.`, told.dirty, "No topic here is compacted.", dirty),
    section("Why did it rebalance?", "The groups that shared their partitions out anew last, since the broker's start.", told.rebalanced, "No group has rebalanced since the broker's start.", (rows) => rebalanced(rows, told.now_ms)),
  ],
};

const section = (title, text, rows, empty, draw) => h("section", { class: "panel" }, h("h2", null, title), h("p", { class: "quiet" }, text), rows.length ? draw(rows) : h("p", { class: "empty" }, empty));

const place = (row) => h("a", { href: to("partition", { name: row.topic, partition: row.partition }) }, `${row.topic}-${row.partition}`);
const keyOf = (row) => `${row.topic}-${row.partition}`;
const sentences = (row) => row.sentences.map((line) => h("div", null, line));

const logs = (rows) => table({ label: "Logs that are kept", rows, keyOf, columns: [
  { label: "Log", className: "name", cell: place },
  { label: "Size", num: true, cell: (row) => bytes(row.size_bytes) },
  { label: "Why, and until when", className: "wide-text", cell: sentences },
] });

const dirty = (rows) => table({ label: "Logs of compacted topics", rows, keyOf, columns: [
  { label: "Log", className: "name", cell: place },
  { label: "Dirty", num: true, cell: (row) => `${Math.round(100 * row.dirty_ratio)} %` },
  { label: "Why", className: "wide-text", cell: sentences },
] });

const rebalanced = (rows, now) => table({ label: "Rebalances", rows, keyOf: (row) => row.group_id, columns: [
  { label: "Group", className: "name", cell: (row) => h("a", { href: to("group", { id: row.group_id }) }, row.group_id || "(empty id)") },
  { label: "State", wide: true, cell: (row) => stateTag(row.state) },
  { label: "When", cell: (row) => [`${seconds((now - row.at_ms) / 1000)} ago`, h("div", { class: "quiet wide" }, time(row.at_ms))] },
  { label: "Why", className: "wide-text", cell: (row) => `${row.reason}.` },
] });
