// Topics, one topic, one partition.

import { ask } from "./api.js";
import { addPartitions, callOffMoves, configureTopic, createTopic, deleteRecords, deleteTopic, electPreferred, moveReplicas } from "./changes.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import { bytes, count, plural, short, time } from "./format.js";
import { stateTag } from "./groups.js";
import { history } from "./history.js";
import { actionButton, actions, changeButton, mayCreateTopics, mayManage, rightsTo } from "./manage.js";
import { produce } from "./produce.js";
import { facts, pagedTable, pager, table } from "./table.js";
import { to } from "./place.js";

export const topics = {
  title: "Topics",
  every: 5000,
  load: (fields, signal) => ask("topics", { q: fields.get("q"), sort: fields.get("sort"), start: fields.get("start") }, signal),
  draw: (page, fields) => [
    h("div", { class: "head" }, h("h1", null, "Topics"), actions(actionButton("Create a topic", () => createTopic(), "", mayCreateTopics()))),
    h("section", { class: "panel" }, pagedTable({
      page, label: "Topics", search: { value: fields.get("q"), label: "Search topics" }, empty: "There are no topics yet.", keyOf: (row) => row.topic, columns: [
        { key: "topic", label: "Topic", sorts: true, className: "name", cell: (row) => [h("a", { href: to("topic", { name: row.topic }) }, row.topic), " ", row.is_internal && h("span", { class: "tag" }, "internal")] },
        { key: "partition_count", label: "Partitions", num: true, sorts: true, cell: (row) => count(row.partition_count) },
        { key: "record_count", label: "Offsets", num: true, sorts: true, wide: true, cell: (row) => count(row.record_count) },
        { key: "size_bytes", label: "Size", num: true, sorts: true, cell: (row) => bytes(row.size_bytes) },
        { key: "segment_count", label: "Segments", num: true, sorts: true, wide: true, cell: (row) => count(row.segment_count) },
        { key: "cleanup_policy", label: "Clean-up", sorts: true, wide: true, cell: (row) => row.cleanup_policy },
      ],
    })),
  ],
};

const crumbs = (...parts) => h("nav", { class: "crumbs", "aria-label": "Path" }, parts.map((part, index) => [index > 0 && " / ", part]));

const kept = new Map();

function rates(told) {
  if (!kept.has(told.topic_id)) kept.set(told.topic_id, history(`topic ${told.topic_id}`));
  const past = kept.get(told.topic_id);
  past.add(told.now_ms / 1000, { appended: told.appended });
  const line = past.values(past.rate("appended"));
  const last = line.at(-1) ?? null;
  return h("section", { class: "panel chart-panel" }, h("h2", null, "Records in"),
    h("div", { class: "figure" }, h("span", null, short(last), h("small", null, " per second, here"))),
    chart(`topic ${told.topic_id}`, [["records", "--series-1"]], [past.times(), line], short, `Records in: ${short(last)} per second`));
}

function consumers(told) {
  return h("section", { class: "panel" },
    h("div", { class: "row" }, h("h2", null, "Consumers"), told.consumers.length < told.consumer_count && h("span", { class: "quiet" }, `the ${told.consumers.length} furthest behind of ${count(told.consumer_count)}`)),
    told.consumers.length ? table({ label: "Consumers", rows: told.consumers, keyOf: (row) => row.group_id, columns: [
      { label: "Group", className: "name", cell: (row) => h("a", { href: to("group", { id: row.group_id }) }, row.group_id || "(empty id)") },
      { label: "State", cell: (row) => stateTag(row.state) },
      { label: "Kind", wide: true, cell: (row) => row.group_type },
      { label: "Members", num: true, wide: true, cell: (row) => count(row.member_count) },
      { label: "Lag here", num: true, cell: (row) => count(row.lag) },
    ] }) : h("p", { class: "quiet" }, "No group that this broker coordinates reads it."));
}

export const topic = {
  title: (fields) => fields.get("name"),
  within: "topics",
  every: 5000,
  load: async (fields, signal) => {
    const [told, may] = await Promise.all([ask("topic", { name: fields.get("name"), start: fields.get("start") }, signal), rightsTo("TOPIC", fields.get("name"), signal)]);
    return { ...told, may };
  },
  draw: (told) => [
    h("div", { class: "head" }, crumbs(h("a", { href: to("topics") }, "Topics")), h("h1", null, told.topic),
      told.messages_are_shown && h("a", { class: "button", href: to("messages", { topic: told.topic }) }, "Messages"),
      told.messages_are_shown && h("a", { class: "button", href: to("statistics", { topic: told.topic }) }, "Statistics"),
      actions(
        actionButton("Produce", () => produce(told.topic), "", told.may("WRITE")),
        actionButton("Change a setting", () => configureTopic(told.topic, told.settings), "", told.may("ALTER_CONFIGS")),
        actionButton("Add partitions", () => addPartitions(told.topic, told.partition_count), "", told.may("ALTER")),
        actionButton("Delete records", () => deleteRecords(told.topic), "", told.may("DELETE")),
        actionButton("Create one like it", () => createTopic(likeness(told)), "", mayCreateTopics()),
        told.broker_count > 1 && mayManage("ALTER") && actionButton("Move replicas", () => moveReplicas(told.topic, brokersOf(told))),
        told.partitions.some((row) => row.is_moving) && mayManage("ALTER") && actionButton("Call off the moves", () => callOffMoves(told.topic)),
        told.partitions.some((row) => row.leader !== row.replicas[0]) && mayManage("ALTER") && actionButton("Elect preferred leaders", () => electPreferred(told.topic)),
        actionButton("Delete", () => deleteTopic(told.topic), "danger", told.may("DELETE")))),
    h("section", { class: "panel" }, facts([
      ["Partitions", count(told.partition_count)],
      ["Replicas", count(told.replication_factor)],
      ["Offsets", count(told.record_count)],
      ["Size", bytes(told.size_bytes)],
      ["Clean-up", told.settings.find((each) => each.name === "cleanup.policy")?.value],
      ["Topic id", h("code", null, told.topic_id), "long"],
    ])),
    h("section", { class: "panel" },
      h("div", { class: "row" }, h("h2", null, "Partitions"), told.partition_count > told.partitions.length && pager({ start: told.start, rows: told.partitions, matching: told.partition_count })),
      table({ label: "Partitions", rows: told.partitions, keyOf: (row) => row.partition, columns: partitionColumns(told) })),
    h("div", { class: "pair" }, consumers(told), rates(told)),
    settings(told),
  ],
};

const likeness = (told) => ({ partitions: told.partition_count, replicas: told.replication_factor, settings: told.settings.filter((each) => each.is_set).map((each) => `${each.name}=${each.value}`).join("\n") });

const brokersOf = (told) => [...new Set(told.partitions.flatMap((row) => row.replicas))].sort((left, right) => left - right);

const partitionColumns = (told) => [
  { label: "Partition", cell: (row) => h("a", { href: to("partition", { name: told.topic, partition: row.partition }) }, `${row.partition}`) },
  { label: "First", num: true, wide: true, cell: (row) => count(row.first) },
  { label: "End", num: true, cell: (row) => count(row.end) },
  { label: "Size", num: true, cell: (row) => bytes(row.log?.size_bytes) },
  { label: "Segments", num: true, wide: true, cell: (row) => count(row.log?.segment_count) },
  { label: "Dirty", num: true, wide: true, cell: (row) => (row.log?.dirty_ratio === null || row.log?.dirty_ratio === undefined ? "–" : `${Math.round(100 * row.log.dirty_ratio)} %`) },
  { label: "Leader", num: true, wide: true, cell: (row) => row.leader },
  { label: "In sync", wide: true, cell: (row) => [`${row.isr.join(", ")} of ${row.replicas.join(", ")}`, row.is_moving && h("div", { class: "warn" }, "being moved")] },
  { label: "State", cell: (row) => state(row.log?.state ?? "not on this broker") },
];

const state = (text) => h("span", { class: text === "ok" ? "good" : text.includes("not on") ? "quiet" : "warn" }, text);

function settings({ topic: name, settings: rows, may }) {
  const own = rows.filter((row) => row.is_set);
  const columns = [
    { label: "Setting", className: "name", cell: (row) => h("code", null, row.name) },
    { label: "Value", className: "name", cell: (row) => h("code", null, row.value ?? "–") },
    may("ALTER_CONFIGS") && { label: "Change", cell: (row) => changeButton(row.name, () => configureTopic(name, rows, row.name)) },
    { label: "From", wide: true, cell: (row) => row.source },
    { label: "What it does", wide: true, className: "wide-text quiet", cell: (row) => row.documentation },
  ].filter(Boolean);
  return h("section", { class: "panel", id: "settings-of-topic" }, h("h2", null, "Settings"),
    own.length ? table({ label: "Settings of the topic", rows: own, columns, keyOf: (row) => row.name }) : h("p", { class: "quiet" }, "Nothing is set on the topic itself; the broker's defaults hold."),
    h("details", null, h("summary", null, `All ${rows.length} settings`), table({ label: "All settings", rows, columns, keyOf: (row) => row.name })));
}

export const partition = {
  title: (fields) => `${fields.get("name")} ${fields.get("partition") ?? 0}`,
  within: "topics",
  every: 5000,
  load: async (fields, signal) => {
    const [told, may] = await Promise.all([ask("partition", { name: fields.get("name"), partition: fields.get("partition") }, signal), rightsTo("TOPIC", fields.get("name"), signal)]);
    return { ...told, may };
  },
  draw: (told) => [
    h("div", { class: "head" },
      crumbs(h("a", { href: to("topics") }, "Topics"), h("a", { href: to("topic", { name: told.topic }) }, told.topic)),
      h("h1", null, `Partition ${told.partition}`),
      told.messages_are_shown && h("a", { class: "button", href: to("messages", { topic: told.topic, partition: told.partition }) }, "Messages"),
      actions(actionButton("Produce", () => produce(told.topic, told.partition), "", told.may("WRITE")), actionButton("Delete records", () => deleteRecords(told.topic, told.partition), "", told.may("DELETE")))),
    told.log ? ofLog(told, told.log) : h("p", { class: "empty" }, `This broker has no replica of it; its leader is broker ${told.leader}.`),
  ],
};

const sentences = (title, lines, empty) => h("section", { class: "panel" }, h("h2", null, title), lines.length ? h("ul", { class: "sentences" }, lines.map((line) => h("li", null, line))) : h("p", { class: "quiet" }, empty));

function ofLog(told, log) {
  return [
    h("section", { class: "panel" }, facts([
      ["State", state(log.state)],
      ["Size", bytes(log.size_bytes)],
      ["Segments", count(log.segment_count)],
      ["Log start offset", count(log.log_start_offset)],
      ["Last stable offset", count(log.last_stable_offset)],
      ["High watermark", count(log.high_watermark)],
      ["Log end offset", count(log.log_end_offset)],
      ["Recovery point", count(log.checkpoints.recovery_point)],
      ["Leader", `${told.leader}, epoch ${told.leader_epoch}`],
      ["In sync", `${told.isr.join(", ")} of ${told.replicas.join(", ")}`],
      ["Clean-up", log.cleanup_policy],
      ["Directory", h("code", null, log.path), "long"],
    ])),
    log.explanation.damage.length > 0 && sentences("Damage", log.explanation.damage, ""),
    h("div", { class: "pair" },
      sentences("Why it is kept, and until when", log.explanation.retention, "Nothing to say."),
      sentences("Why it is compacted, or not", log.explanation.compaction, "Nothing to say.")),
    h("section", { class: "panel" },
      h("div", { class: "row" }, h("h2", null, "Segments"), log.segments.length < log.segment_count && h("span", { class: "quiet" }, `the newest ${log.segments.length} of ${count(log.segment_count)}`)),
      table({ label: "Segments", rows: [...log.segments].reverse(), keyOf: (row) => row.base_offset, columns: [
        { label: "First offset", num: true, cell: (row) => count(row.base_offset) },
        { label: "Size", num: true, cell: (row) => bytes(row.size_bytes) },
        { label: "State", cell: (row) => row.state },
        { label: "Newest record", className: "nowrap", cell: (row) => time(row.largest_timestamp) },
        { label: "Aborted transactions", wide: true, cell: (row) => (row.aborted_transactions ? "yes" : "–") },
      ] })),
    h("section", { class: "panel" },
      h("div", { class: "row" }, h("h2", null, "Idempotent producers"), h("span", { class: "quiet" }, plural(log.producers.count, "producer"))),
      log.producers.shown.length ? table({ label: "Producers", rows: log.producers.shown, keyOf: (row) => row.producer_id, columns: [
        { label: "Producer id", num: true, cell: (row) => row.producer_id },
        { label: "Epoch", num: true, cell: (row) => row.producer_epoch },
        { label: "Last sequence", num: true, wide: true, cell: (row) => count(row.last_sequence) },
        { label: "Last record", className: "nowrap", cell: (row) => time(row.last_timestamp) },
        { label: "Open transaction from", num: true, cell: (row) => (row.transaction_start_offset === null ? "–" : count(row.transaction_start_offset)) },
      ] }) : h("p", { class: "quiet" }, "No producer is remembered.")),
  ];
}
