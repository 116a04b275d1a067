// The first page.

import { ask } from "./api.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import { bytes, count, plural, rate, seconds, short } from "./format.js";
import { history } from "./history.js";
import { seesCluster } from "./manage.js";
import { facts, table } from "./table.js";
import { to } from "./place.js";

const kept = history("overview");

export const overview = {
  title: "Overview",
  every: 3000,
  load: async (_, signal) => {
    if (!seesCluster()) return ask("own", {}, signal);
    // At the first look, and where this tab was hidden for long.
    if (kept.isStale()) kept.seed(pastOf(await ask("past", {}, signal)));
    return ask("overview", {}, signal);
  },
  draw: (told) => {
    if (!("totals" in told)) return own(told);
    kept.add(told.now_ms / 1000, { ...told.totals, lag: told.lag, uptime: told.uptime_seconds });
    return [
      h("div", { class: "head" }, h("h1", null, "Overview"), h("span", { class: "quiet" }, `up ${seconds(told.uptime_seconds)}`)),
      health(told),
      h("h2", { class: "visually-hidden" }, "Last hour"),
      h("div", { class: "grid" }, charts(told)),
      h("section", { class: "panel" }, h("h2", null, "What there is"), facts([
        ["Topics", h("a", { href: to("topics") }, count(told.topic_count))],
        ["Partitions", count(told.partition_count)],
        ["Segments", count(told.segment_count)],
        ["On disk", bytes(told.size_bytes)],
        ["Memory", bytes(told.memory_bytes)],
        ["Connections", h("a", { href: to("clients") }, count(sum(told.connections)))],
        ["Waiting fetches", count(told.fetches_waiting)],
        ["Groups", h("a", { href: to("groups") }, count(sum(told.group_states)))],
        ["Transactional ids", h("a", { href: to("transactions") }, count(sum(told.transaction_states)))],
        ["Longest loop delay", seconds(told.loop_delay_max_seconds)],
      ])),
      h("div", { class: "pair" }, directories(told), largest(told), furthest(told), apis(told)),
    ];
  },
};

const pastOf = ({ names, rows }) => rows.map((row) => Object.fromEntries(names.map((name, index) => [name, row[index]])));

// Of a viewer who may not describe the cluster.
const own = (told) => [
  h("div", { class: "head" }, h("h1", null, "Overview"), h("span", { class: "quiet" }, `what ${told.principal} may see`)),
  h("section", { class: "panel" }, h("h2", null, "What there is"), facts([
    ["Topics", h("a", { href: to("topics") }, count(told.topic_count))],
    ["Partitions", count(told.partition_count)],
    ["Offsets", count(told.record_count)],
    ["On disk, here", bytes(told.size_bytes)],
    ["Groups", h("a", { href: to("groups") }, count(sum(told.group_states)))],
    ["Lag, here", count(told.lag)],
  ]), h("p", { class: "quiet" }, "Figures of the broker, its clients, users and settings take DESCRIBE or DESCRIBE_CONFIGS on the cluster.")),
  h("div", { class: "pair" }, largest(told), furthest(told)),
];

const sum = (numbers) => Object.values(numbers).reduce((total, each) => total + each, 0);

function health(told) {
  const [first, ...problems] = told.health;
  const kind = !told.is_ready ? "is-bad" : problems.length ? "" : "is-good";
  return h("div", { class: `notice here ${kind}` }, h("strong", { class: !told.is_ready ? "bad" : problems.length ? "warn" : "good" }, problems.length || !told.is_ready ? first : "All is well"),
    problems.length > 0 && h("ul", null, problems.map((line) => h("li", null, line.replace(/^- /, "")))));
}

function charts(told) {
  const panel = (key, title, unit, series, format, shown) => {
    const lines = series.map(([, , read]) => kept.values(read));
    const last = shown ?? lines.map((line) => line.at(-1) ?? null);
    return h("div", { class: "panel chart-panel" },
      h("h3", null, title),
      h("div", { class: `figure ${series.length > 1 ? "several" : ""}` }, series.map(([label], index) => h("span", null, series.length > 1 && h("i", { class: `swatch ${index ? "two" : "one"}` }), format(last[index]), h("small", null, ` ${label}${unit}`)))),
      chart(key, series.map(([label, colour]) => [label || title, colour]), [kept.times(), ...lines], format, `${title}: ${last.map(format).join(", ")}${unit}`));
  };
  return [
    panel("records", "Records in", "per second", [["", "--series-1", kept.rate("records")]], short),
    panel("bytes", "Bytes", "", [["produced", "--series-1", kept.rate("produced_bytes")], ["fetched", "--series-2", kept.rate("fetched_bytes")]], rate),
    panel("requests", "Requests", "per second", [["", "--series-1", kept.rate("requests")]], short),
    panel("delay", "Loop delay, mean", "", [["", "--series-1", kept.ratio("loop_delay_seconds", "loop_delay_count")]], seconds),
    panel("cpu", "Processor", "of one core", [["", "--series-1", kept.rate("cpu_seconds", 100)]], (value) => (value === null ? "–" : `${value < 10 ? value.toFixed(1) : Math.round(value)} %`)),
    panel("lag", "Lag of all groups", "records", [["", "--series-1", (_, now) => now.lag ?? null]], short, [told.lag]),
  ];
}

function directories(told) {
  const used = (row) => {
    const share = row.free_bytes === null ? 0 : (100 * row.size_bytes) / Math.max(1, row.size_bytes + row.free_bytes);
    return h("div", { class: `meter ${row.is_refusing ? "is-bad" : ""}`, role: "img", "aria-label": `${share.toFixed(0)} % of what could be used` }, h("span", { "width%": share.toFixed(1) }));
  };
  return h("section", { class: "panel" }, h("h2", null, "Disk"), table({
    label: "Log directories", rows: told.directories, keyOf: (row) => row.path, columns: [
      { label: "Directory", className: "name", cell: (row) => [row.path, " ", row.is_offline && h("span", { class: "tag bad" }, "offline"), row.is_refusing && h("span", { class: "tag bad" }, "no space left")] },
      { label: "Used", num: true, cell: (row) => bytes(row.size_bytes) },
      { label: "Free", num: true, cell: (row) => bytes(row.free_bytes) },
      { label: "Share", wide: true, cell: used },
    ],
  }));
}

function largest(told) {
  const rows = told.largest_topics.filter((row) => row.size_bytes > 0);
  return h("section", { class: "panel" }, h("h2", null, "Largest topics"), rows.length ? table({
    label: "Largest topics", rows, keyOf: (row) => row.topic, columns: [
      { label: "Topic", className: "name", cell: (row) => h("a", { href: to("topic", { name: row.topic }) }, row.topic) },
      { label: "Partitions", num: true, cell: (row) => count(row.partition_count) },
      { label: "Size", num: true, cell: (row) => bytes(row.size_bytes) },
    ],
  }) : h("p", { class: "empty" }, "No topic has records yet."));
}

function furthest(told) {
  return h("section", { class: "panel" }, h("h2", null, "Furthest behind"), told.furthest_groups.length ? table({
    label: "Groups furthest behind", rows: told.furthest_groups, keyOf: (row) => row.group_id, columns: [
      { label: "Group", className: "name", cell: (row) => h("a", { href: to("group", { id: row.group_id }) }, row.group_id || "(empty id)") },
      { label: "State", cell: (row) => row.state },
      { label: "Lag", num: true, cell: (row) => count(row.lag) },
    ],
  }) : h("p", { class: "empty" }, sum(told.group_states) ? `${plural(sum(told.group_states), "group")}, none of them behind.` : "No groups."));
}

function apis(told) {
  const rows = [...told.apis].sort((one, other) => other.answered - one.answered).slice(0, 8);
  return h("section", { class: "panel" }, h("h2", null, "Requests since the start"), rows.length ? table({
    label: "Requests by API", rows, keyOf: (row) => row.api, columns: [
      { label: "API", cell: (row) => row.api },
      { label: "Answered", num: true, cell: (row) => count(row.answered) },
      { label: "Errors", num: true, cell: (row) => count(row.errors) },
      { label: "Mean time", num: true, wide: true, cell: (row) => seconds(row.answered ? row.seconds / row.answered : null) },
    ],
  }) : h("p", { class: "empty" }, "No client has asked for anything yet."));
}
