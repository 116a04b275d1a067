// The brokers of the cluster.

import { ask } from "./api.js";
import { configureBroker } from "./changes.js";
import { h } from "./dom.js";
import { count, plural, time } from "./format.js";
import { actionButton, mayManage } from "./manage.js";
import { pagedTable, table } from "./table.js";

// Among workers each has a console under its number; node ids and numbers go up together.
const worker = /\/console\/(\d+)\//.exec(location.pathname);

export const brokers = {
  title: "Brokers",
  every: 5000,
  load: async (fields, signal) => {
    const [told, quorum] = await Promise.all([ask("brokers", { q: fields.get("q"), sort: fields.get("sort"), start: fields.get("start") }, signal), ask("quorum", {}, signal)]);
    return { ...told, quorum };
  },
  draw: (told, fields) => {
    const here = told.page.rows.find((row) => row.is_here);
    return [
      h("div", { class: "head" }, h("h1", null, "Brokers"), h("span", { class: "quiet" }, "cluster ", h("code", null, told.cluster_id))),
      told.leaderless_count > 0 && h("div", { class: "notice here is-bad" }, `${plural(told.leaderless_count, "partition has", "partitions have")} no leader: nobody can read or write there.`),
      h("section", { class: "panel" }, pagedTable({
        page: told.page, label: "Brokers", search: { value: fields.get("q"), label: "Search brokers" }, empty: "No broker is known.", keyOf: (row) => row.node_id, columns: [
          { key: "node_id", label: "Broker", num: true, sorts: true, cell: (row) => [name(row, here), row.is_here && h("div", { class: "quiet" }, "this one"), row.is_controller && h("div", { class: "quiet" }, "controller")] },
          { key: "state", label: "State", sorts: true, cell: (row) => h("span", { class: `tag ${row.state === "alive" ? "good" : row.state === "not there" ? "bad" : "warn"}` }, row.state) },
          { key: "endpoints", label: "Listeners", className: "name mono", cell: (row) => row.endpoints.map((each) => h("div", null, each)) },
          { key: "rack", label: "Rack", sorts: true, wide: true, cell: (row) => row.rack || "–" },
          { key: "leader_count", label: "Leads", num: true, sorts: true, cell: (row) => count(row.leader_count) },
          { key: "replica_count", label: "Replicas", num: true, sorts: true, wide: true, cell: (row) => count(row.replica_count) },
          { key: "missing_count", label: "Not in sync", num: true, sorts: true, cell: (row) => h("span", { class: row.missing_count ? "warn" : "" }, count(row.missing_count)) },
          { label: h("span", { class: "visually-hidden" }, "Changes"), wide: true, cell: (row) => row.state === "alive" && actionButton("Change a setting", () => configureBroker(row.node_id), "", mayManage("ALTER_CONFIGS")) },
        ],
      })),
      told.quorum.has_quorum && quorumPanel(told.quorum),
      told.controllers.length > 0 && h("section", { class: "panel" }, h("h2", null, "Controllers"), h("ul", { class: "sentences" }, told.controllers.map((each) => h("li", null, `${each.node_id}: `, h("code", null, each.endpoints.join(", ")), each.is_active && " (active)")))),
    ];
  },
};

function quorumPanel(quorum) {
  const head = h("h2", null, "Quorum of controllers");
  if (quorum.problem) return h("section", { class: "panel" }, head, h("div", { class: "notice here is-bad" }, quorum.problem));
  return h("section", { class: "panel" }, head,
    h("p", { class: "quiet" }, `Node ${quorum.leader_id} leads in epoch ${count(quorum.epoch)}; committed up to ${count(quorum.high_watermark)}.`),
    table({
      label: "Quorum", rows: quorum.replicas, keyOf: (row) => `${row.node_id} ${row.directory}`, columns: [
        { label: "Node", num: true, cell: (row) => row.node_id },
        { label: "Role", cell: (row) => h("span", { class: `tag ${row.role === "leader" ? "good" : ""}` }, row.role) },
        { label: "Log ends", num: true, cell: (row) => (row.log_end_offset < 0 ? "–" : count(row.log_end_offset)) },
        { label: "Lag", num: true, cell: (row) => h("span", { class: row.lag === null || row.lag > 0 ? "warn" : "" }, row.lag === null ? "not heard of" : count(row.lag)) },
        { label: "Caught up", cell: (row) => time(row.caught_up_ms) },
        { label: "Fetched", wide: true, cell: (row) => time(row.fetched_ms) },
        { label: "Listeners", className: "name mono", wide: true, cell: (row) => row.endpoints.map((each) => h("div", null, each)) },
        { label: "Directory", className: "name mono", wide: true, cell: (row) => row.directory || "–" },
      ],
    }));
}

function name(row, here) {
  if (!worker || !here || row.state !== "alive") return row.node_id;
  return h("a", { href: `../${Number(worker[1]) + row.node_id - here.node_id}/#/brokers` }, row.node_id);
}
