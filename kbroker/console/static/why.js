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
    section("Why is it kept?", "The topics with the most bytes here, and what keeps their oldest records.", told.kept, "There are no logs.", logs),
    section("Why is it not compacted?", `${plural(told.compacted_count, "log")} of compacted topics here; the dirtiest first.`, told.dirty, "No topic here is compacted.", dirty),
    section("Why did it rebalance?", "The groups that shared their partitions out anew last, since the broker's start.", told.rebalanced, "No group has rebalanced since the broker's start.", (rows) => rebalanced(rows, told.now_ms)),
  ],
};

const section = (title, text, rows, empty, draw) => h("section", { class: "panel" }, h("h2", null, title), h("p", { class: "quiet" }, text), rows.length ? draw(rows) : h("p", { class: "empty" }, empty));

// A row for a topic: what its first log says, and the others behind it.
const place = (row) => h("a", { href: to("partition", { name: row.topic, partition: row.partition }) }, `partition ${row.partition}`);
const sentences = (row) => row.sentences.map((line) => h("div", null, line));
const dirt = (row) => `${Math.round(100 * row.dirty_ratio)} %`;
const topicOf = (row) => [h("a", { href: to("topic", { name: row.topic }) }, row.topic), h("div", { class: "quiet" }, plural(row.partition_count, "partition"))];

const reasons = (row, figure) => {
  const [first, ...others] = row.logs;
  const rest = row.partition_count - row.logs.length;
  return [
    row.partition_count > 1 && h("div", { class: "quiet" }, place(first), `, ${figure(first)}:`),
    sentences(first),
    others.length > 0 && h("details", null, h("summary", null, `${others.length} more${rest ? ` of ${row.partition_count}` : ""}`), others.map((each) => h("div", { class: "reason" }, h("div", { class: "quiet" }, place(each), `, ${figure(each)}:`), sentences(each)))),
  ];
};

const logs = (rows) => table({ label: "Topics whose logs are kept", rows, keyOf: (row) => row.topic, columns: [
  { label: "Topic", className: "name", cell: topicOf },
  { label: "Size", num: true, cell: (row) => bytes(row.size_bytes) },
  { label: "Why, and until when", className: "wide-text", cell: (row) => reasons(row, (log) => bytes(log.size_bytes)) },
] });

const dirty = (rows) => table({ label: "Compacted topics", rows, keyOf: (row) => row.topic, columns: [
  { label: "Topic", className: "name", cell: topicOf },
  { label: "Dirtiest", num: true, cell: (row) => dirt(row.logs[0]) },
  { label: "Why", className: "wide-text", cell: (row) => reasons(row, dirt) },
] });

const rebalanced = (rows, now) => table({ label: "Rebalances", rows, keyOf: (row) => row.group_id, columns: [
  { label: "Group", className: "name", cell: (row) => h("a", { href: to("group", { id: row.group_id }) }, row.group_id || "(empty id)") },
  { label: "State", wide: true, cell: (row) => stateTag(row.state) },
  { label: "When", cell: (row) => [`${seconds((now - row.at_ms) / 1000)} ago`, h("div", { class: "quiet wide" }, time(row.at_ms))] },
  { label: "Why", className: "wide-text", cell: (row) => `${row.reason}.` },
] });
