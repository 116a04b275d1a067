// All clusters on one page: this one, and those whose consoles the settings name.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { table } from "./table.js";

export const clusters = {
  title: "Clusters",
  every: 5000,
  load: (fields, signal) => ask("clusters", {}, signal),
  draw: (told) => [
    h("div", { class: "head" }, h("h1", null, "Clusters"), h("span", { class: "quiet" }, plural(told.clusters.length, "cluster", "clusters"))),
    told.clusters.length < 2 && h("p", { class: "quiet" }, "The setting ", h("code", null, "kbroker.console.links"), " names the consoles of others."),
    h("section", { class: "panel" }, table({
      label: "Clusters", rows: told.clusters, keyOf: (row) => row.name, columns: [
        { label: "Cluster", className: "name", cell: (row) => [row.is_here ? "this one" : h("a", { href: row.address }, row.name), row.summary && h("div", { class: "quiet mono" }, row.summary.cluster_id)] },
        { label: "State", cell: state },
        { label: "Brokers", num: true, cell: (row) => of(row, "broker_count") },
        { label: "Topics", num: true, cell: (row) => of(row, "topic_count") },
        { label: "Partitions", num: true, wide: true, cell: (row) => of(row, "partition_count") },
        { label: "Under-replicated", num: true, cell: (row) => of(row, "under_replicated_count", "warn") },
        { label: "Without a leader", num: true, cell: (row) => of(row, "leaderless_count", "bad") },
        { label: "Lag", num: true, cell: (row) => [of(row, "lag"), row.summary && !row.is_whole && h("div", { class: "quiet" }, `groups of ${plural(row.answered, "broker", "brokers")}`)] },
      ],
    })),
  ],
};

const of = (row, name, kind = "") => (row.summary ? h("span", { class: row.summary[name] ? kind : "" }, count(row.summary[name])) : "–");

function state(row) {
  if (!row.summary) return [h("span", { class: "tag bad" }, "no answer"), h("div", { class: "quiet" }, row.problem)];
  const missing = row.summary.missing_broker_count;
  if (!missing && !row.summary.health) return h("span", { class: "tag good" }, "well");
  return [h("span", { class: "tag warn" }, "not well"), h("div", { class: "quiet" }, [missing && plural(missing, "broker is missing", "brokers are missing"), row.summary.health].filter(Boolean).join("; "))];
}
