// Transactional ids, and what readers of committed records wait for.

import { ask } from "./api.js";
import { abortTransaction } from "./changes.js";
import { h } from "./dom.js";
import { count, seconds, time } from "./format.js";
import { ranges } from "./groups.js";
import { actionButton, mayManage, rightsTo } from "./manage.js";
import { to } from "./place.js";
import { facts, pagedTable, table } from "./table.js";

const OPEN = new Set(["Ongoing", "PrepareCommit", "PrepareAbort"]);

export const transactions = {
  title: "Transactions",
  every: 5000,
  load: async (fields, signal) => {
    const told = await ask("transactions", { q: fields.get("q"), sort: fields.get("sort"), start: fields.get("start") }, signal);
    const ids = told.page.rows.filter((row) => row.state === "Ongoing").map((row) => row.transactional_id);
    const rights = await Promise.all(ids.map((id) => rightsTo("TRANSACTIONAL_ID", id, signal)));
    return { ...told, abortable: new Set(ids.filter((_, index) => rights[index]("WRITE"))) };
  },
  draw: (told, fields) => [
    h("div", { class: "head" }, h("h1", null, "Transactions")),
    h("section", { class: "panel" }, facts([...Object.entries(told.states).map(([state, number]) => [state, count(number)]), ["Aborted for their time", count(told.timed_out)]])),
    h("section", { class: "panel" }, h("h2", null, "What holds readers of committed records"), told.holders.length ? table({
      label: "Open transactions that hold readers", rows: told.holders, keyOf: (row) => `${row.topic}-${row.partition}`, columns: [
        { label: "Partition", className: "name", cell: (row) => h("a", { href: to("partition", { name: row.topic, partition: row.partition }) }, `${row.topic} ${row.partition}`) },
        { label: "Transactional id", className: "name", cell: (row) => row.transactional_id || h("span", { class: "warn" }, "no coordinator here knows it") },
        { label: "Producer", num: true, wide: true, cell: (row) => row.producer_id },
        { label: "Records held", num: true, cell: (row) => count(row.lag) },
        { label: "For", num: true, cell: (row) => seconds(row.seconds) },
      ],
    }) : h("p", { class: "quiet" }, "No open transaction holds them.")),
    h("section", { class: "panel" }, h("h2", null, "Transactional ids"), pagedTable({
      page: told.page, label: "Transactional ids", search: { value: fields.get("q"), label: "Search ids" }, empty: "No producer uses transactions.", keyOf: (row) => row.transactional_id, columns: [
        { key: "transactional_id", label: "Id", sorts: true, className: "name", cell: (row) => row.transactional_id },
        { key: "state", label: "State", sorts: true, cell: (row) => h("span", { class: `tag ${OPEN.has(row.state) ? "warn" : ""}` }, row.state) },
        { key: "producer_id", label: "Producer", num: true, sorts: true, wide: true, cell: (row) => `${row.producer_id}, epoch ${row.producer_epoch}` },
        { key: "started_ms", label: "Began", sorts: true, cell: (row) => (OPEN.has(row.state) ? `${seconds((told.now_ms - row.started_ms) / 1000)} ago` : time(row.started_ms)) },
        { key: "timeout_ms", label: "Time-out", num: true, wide: true, cell: (row) => seconds(row.timeout_ms / 1000) },
        { key: "partition_count", label: "Partitions", sorts: true, wide: true, className: "wide-text", cell: (row) => row.partitions.map((each) => h("div", null, `${each.topic}: ${ranges(each.partitions)}`)) },
        ...(mayManage() ? [{ label: h("span", { class: "visually-hidden" }, "Changes"), cell: (row) => told.abortable.has(row.transactional_id) && actionButton("Abort", () => abortTransaction(row.transactional_id), "danger") }] : []),
      ],
    })),
  ],
};
