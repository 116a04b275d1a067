// Groups of all kinds.

import { ask } from "./api.js";
import { deleteGroup, forgetTopic, resetGroup } from "./changes.js";
import { chart } from "./chart.js";
import { h } from "./dom.js";
import { count, seconds, short, time } from "./format.js";
import { history } from "./history.js";
import { actionButton, actions, rightsTo } from "./manage.js";
import { to } from "./place.js";
import { facts, pagedTable, pager, table } from "./table.js";

export const groups = {
  title: "Groups",
  every: 5000,
  load: (fields, signal) => ask("groups", { q: fields.get("q"), sort: fields.get("sort"), start: fields.get("start") }, signal),
  draw: (page, fields) => [
    h("div", { class: "head" }, h("h1", null, "Groups")),
    h("section", { class: "panel" }, pagedTable({
      page, label: "Groups", search: { value: fields.get("q"), label: "Search groups" }, empty: "There are no groups yet.", keyOf: (row) => row.group_id, columns: [
        { key: "group_id", label: "Group", sorts: true, className: "name", cell: (row) => h("a", { href: to("group", { id: row.group_id }) }, row.group_id || "(empty id)") },
        { key: "state", label: "State", sorts: true, cell: (row) => stateTag(row.state) },
        { key: "group_type", label: "Kind", sorts: true, wide: true, cell: (row) => row.group_type },
        { key: "member_count", label: "Members", num: true, sorts: true, cell: (row) => count(row.member_count) },
        { key: "lag", label: "Lag", num: true, sorts: true, cell: (row) => count(row.lag) },
      ],
    })),
  ],
};

export const stateTag = (state) => h("span", { class: `tag ${state === "Stable" ? "good" : state === "Empty" || state === "Dead" ? "" : "warn"}` }, state);

const kept = new Map();

export const group = {
  title: (fields) => fields.get("id"),
  within: "groups",
  every: 3000,
  load: async (fields, signal) => {
    const [told, may] = await Promise.all([ask("group", { id: fields.get("id"), start: fields.get("start") }, signal), rightsTo("GROUP", fields.get("id"), signal)]);
    return { ...told, may };
  },
  draw: (told) => {
    if (!kept.has(told.group_id)) kept.set(told.group_id, history(`lag ${told.group_id}`));
    const past = kept.get(told.group_id);
    if (told.lag !== null) past.add(told.now_ms / 1000, { lag: told.lag });
    return [
      h("div", { class: "head" }, h("nav", { class: "crumbs", "aria-label": "Path" }, h("a", { href: to("groups") }, "Groups")), h("h1", null, told.group_id || "(empty id)"), stateTag(told.state), doing(told)),
      h("section", { class: "panel" }, facts([
        ["Kind", told.group_type],
        told.protocol && ["Assignor", told.protocol],
        [told.group_type === "classic" ? "Generation" : "Epoch", count(told.epoch)],
        ["Members", count(told.member_count)],
        ["Partitions", count(told.matching)],
        ["Lag", count(told.lag)],
      ]), h("p", null, h("strong", null, "Last rebalance: "), told.last_rebalance ? `${seconds((told.now_ms - told.last_rebalance.at_ms) / 1000)} ago (${time(told.last_rebalance.at_ms)}): ${told.last_rebalance.reason}.` : told.group_type === "share" ? "share groups do not rebalance in steps; a member takes its partitions with its next heartbeat." : "none since the broker's start.")),
      told.lag !== null && h("section", { class: "panel chart-panel" }, h("h2", null, "Lag"), chart(`lag ${told.group_id}`, [["lag", "--series-1"]], [past.times(), past.values((_, now) => now.lag)], short, `Lag: ${count(told.lag)} records`, "chart tall")),
      h("section", { class: "panel" }, h("div", { class: "row" }, h("h2", null, "Members"), told.members.length < told.member_count && h("span", { class: "quiet" }, `the first ${told.members.length}`)), members(told.members)),
      h("section", { class: "panel" }, h("div", { class: "row" }, h("h2", null, told.group_type === "share" ? "Where it stands" : "Offsets"), told.matching > told.offsets.length && pager({ start: told.start, rows: told.offsets, matching: told.matching })), offsets(told.offsets)),
    ];
  },
};

function doing(told) {
  const topics = [...new Set(told.offsets.map((row) => row.topic))];
  return actions(
    actionButton("Reset offsets", () => resetGroup(told.group_id, topics, told.group_type === "share"), "", told.may("READ")),
    topics.length > 0 && actionButton("Forget a topic", () => forgetTopic(told.group_id, topics, told.group_type === "share"), "", told.may("DELETE")),
    actionButton("Delete", () => deleteGroup(told.group_id), "danger", told.may("DELETE")));
}

function members(rows) {
  if (!rows.length) return h("p", { class: "quiet" }, "It has no members: the application does not run, or its members were removed.");
  return table({ label: "Members", rows, keyOf: (row) => row.member_id, columns: [
    { label: "Client", className: "name", cell: (row) => [row.client_id || "–", row.instance_id && h("div", { class: "quiet" }, `static: ${row.instance_id}`), h("div", { class: "quiet mono wide" }, row.member_id)] },
    { label: "Host", wide: true, cell: (row) => row.client_host.replace(/^\//, "") },
    { label: "Epoch", num: true, wide: true, cell: (row) => (row.epoch === null ? "–" : count(row.epoch)) },
    { label: "Has", className: "wide-text", cell: (row) => [row.assigned.length ? row.assigned.map((each) => h("div", null, `${each.topic}: `, h("span", { class: "mono" }, ranges(each.partitions)))) : h("span", { class: "quiet" }, "nothing"), row.note && h("div", { class: "warn" }, row.note)] },
    { label: "Reads", wide: true, className: "name", cell: (row) => row.subscribed.join(", ") || "–" },
  ] });
}

// 0-3, 7
export function ranges(numbers) {
  const parts = [];
  for (let at = 0; at < numbers.length; at += 1) {
    const first = numbers[at];
    while (numbers[at + 1] === numbers[at] + 1) at += 1;
    parts.push(first === numbers[at] ? `${first}` : `${first}–${numbers[at]}`);
  }
  return parts.join(", ");
}

function offsets(rows) {
  if (!rows.length) return h("p", { class: "quiet" }, "It reads nothing, and nothing was committed.");
  return table({ label: "Offsets", rows, keyOf: (row) => `${row.topic}-${row.partition}`, columns: [
    { label: "Topic", className: "name", cell: (row) => h("a", { href: to("topic", { name: row.topic }) }, row.topic) },
    { label: "Partition", num: true, cell: (row) => row.partition },
    { label: "Committed", num: true, wide: true, cell: (row) => (row.committed === null ? h("span", { class: "quiet" }, "never") : count(row.committed)) },
    { label: "End", num: true, wide: true, cell: (row) => count(row.end) },
    { label: "Lag", num: true, cell: (row) => count(row.lag) },
    { label: "Member", wide: true, cell: (row) => row.owner || "–" },
    { label: "When", wide: true, className: "nowrap", cell: (row) => time(row.committed_at) },
  ] });
}

