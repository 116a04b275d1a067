// What the newest records of a topic are like, by partition.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, plural, short, time } from "./format.js";
import { to } from "./place.js";
import { facts, pager, table } from "./table.js";

const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);
const mean = (size, number) => (number > 0 ? bytes(size / number) : "–");
const share = (part, whole) => (whole ? `${count(part)} (${Math.round((100 * part) / whole)} %)` : count(part));

export const statistics = {
  title: (fields) => `Statistics of ${fields.get("topic")}`,
  within: "topics",
  every: 0,
  load: (fields, signal) => ask("statistics", { topic: fields.get("topic"), start: fields.get("start") }, signal),
  draw: (told) => {
    const rows = told.partitions;
    const records = sum(rows, "record_count");
    const rates = rows.map((row) => row.rate).filter((rate) => rate !== null);
    return [
      h("div", { class: "head" },
        h("nav", { class: "crumbs", "aria-label": "Path" }, h("a", { href: to("topics") }, "Topics"), " / ", h("a", { href: to("topic", { name: told.topic }) }, told.topic)),
        h("h1", null, "Statistics")),
      h("section", { class: "panel" },
        h("p", { class: "quiet" }, `Of ${plural(records, "record")}${rows.every((row) => row.is_whole) ? ", all that are there" : ", of each partition those from 20,000 offsets before its end on, up to 4 MiB"}.`),
        facts([
          ["Keys, mean", mean(sum(rows, "key_bytes"), records - sum(rows, "null_keys"))],
          ["Keys, largest", bytes(Math.max(0, ...rows.map((row) => row.largest_key)))],
          ["Without a key", share(sum(rows, "null_keys"), records)],
          ["Values, mean", mean(sum(rows, "value_bytes"), records - sum(rows, "null_values"))],
          ["Values, largest", bytes(Math.max(0, ...rows.map((row) => row.largest_value)))],
          ["Null values", share(sum(rows, "null_values"), records)],
          ["Headers, mean", records ? short(sum(rows, "header_count") / records) : "–"],
          ["On disk, mean", mean(sum(rows, "stored_bytes"), records)],
          ["Records a second", rates.length ? short(rates.reduce((total, rate) => total + rate, 0)) : "–"],
        ])),
      rows.some((row) => row.problem) && h("div", { class: "notice here" }, rows.filter((row) => row.problem).map((row) => h("p", null, `Partition ${row.partition}: ${row.problem}`))),
      h("section", { class: "panel" },
        h("div", { class: "row" }, h("h2", null, "Partitions"), told.partition_count > rows.length && pager({ start: told.start, rows, matching: told.partition_count })),
        table({ label: "Statistics of partitions", rows, keyOf: (row) => row.partition, columns: [
          { label: "Partition", cell: (row) => h("a", { href: to("partition", { name: told.topic, partition: row.partition }) }, `${row.partition}`) },
          { label: "Records", num: true, cell: (row) => count(row.record_count) },
          { label: "A second", num: true, cell: (row) => short(row.rate) },
          { label: "Different keys", num: true, wide: true, cell: (row) => count(row.key_count) },
          { label: "Without a key", num: true, wide: true, cell: (row) => share(row.null_keys, row.record_count) },
          { label: "Null values", num: true, wide: true, cell: (row) => share(row.null_values, row.record_count) },
          { label: "Key", num: true, wide: true, cell: (row) => mean(row.key_bytes, row.record_count - row.null_keys) },
          { label: "Value", num: true, cell: (row) => mean(row.value_bytes, row.record_count - row.null_values) },
          { label: "Largest", num: true, wide: true, cell: (row) => bytes(row.largest_value) },
          { label: "From", wide: true, className: "nowrap", cell: (row) => time(row.first_ms) },
          { label: "To", wide: true, className: "nowrap", cell: (row) => time(row.last_ms) },
        ] })),
    ];
  },
};
