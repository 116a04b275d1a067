// Records: by offset and time, the newest, those with a text, and as they come.

import { ask, address } from "./api.js";
import { draw, h } from "./dom.js";
import { bytes, count, plural, shortTime, time, zone } from "./format.js";
import { actionButton, actions, rightsTo } from "./manage.js";
import { candidates, COUNT, GROUP, inTurns, merge, newer, older, placesOf, readCursor, writeCursor } from "./merging.js";
import { change, to } from "./place.js";
import { produce } from "./produce.js";
import { hexLines, prettyJson, prettyValue } from "./pretty.js";

const TAIL_COUNT = 200;
const TAIL_EVERY = 1000;

// What a live tail has got so far; it lives as long as its address.
let tail = null;
let opened = new Map();
let identity = "";
// On a phone the fields of a search stand behind a button, so that records come first.
let searching = false;

export const messages = {
  title: (fields) => `Messages of ${fields.get("topic")}`,
  within: "topics",
  every: 0,
  load: async (fields, signal) => {
    const here = fields.toString();
    if (here !== identity) {
      identity = here;
      opened = new Map();
      tail = null;
    }
    const [found, may] = await Promise.all([fields.has("tail") ? follow(fields, signal) : look(fields, signal), rightsTo("TOPIC", fields.get("topic"), signal)]);
    return { ...found, may };
  },
  draw: (told, fields, signal) => page(told, fields, signal),
};

const FILTERS = ["q", "key", "filter"];
const isFiltered = (fields) => FILTERS.some((name) => fields.get(name));
const shared = (fields) => ({ topic: fields.get("topic"), committed: fields.get("committed"), count: COUNT, ...Object.fromEntries(FILTERS.map((name) => [name, fields.get(name)])) });

// Where a look begins, as the broker is asked.
function start(fields) {
  const from = fields.get("from") ?? "newest";
  return { from, value: from === "time" ? Date.parse(fields.get("value") ?? "") || 0 : fields.get("value") };
}

// One partition, or all that have records, as one list by time.
async function look(fields, signal) {
  const asked = { ...shared(fields), ...start(fields) };
  const chosen = fields.get("partition");
  if (chosen !== null) {
    const answer = await ask("messages", { ...asked, partition: chosen }, signal);
    return { answers: [answer], records: named(answer).reverse(), partitionCount: answer.partition_count };
  }
  const told = await ask("ends", { topic: asked.topic, committed: asked.committed }, signal);
  const cursor = readCursor(fields.get("at"));
  const backward = asked.from === "newest" || asked.from === "before";
  let places = placesOf(told, asked, cursor);
  let looked = [...places.keys()];
  const isByTime = asked.from === "time" && !cursor.size;
  if (isByTime || !isFiltered(fields)) {
    const heads = await headsOf(places, { topic: asked.topic, committed: asked.committed, direction: backward ? "back" : "forth", time: isByTime ? asked.value : null }, signal);
    places = new Map(heads.map((head) => [head.partition, head.offset]));
    if (!isFiltered(fields)) looked = candidates(heads, backward);
  }
  const answers = await inTurns(looked, GROUP, (partition) => ask("messages", { ...asked, from: backward ? "before" : "offset", value: places.get(partition), partition }, signal));
  return { ...merge(answers, backward, isFiltered(fields)), answers, backward, places, starts: told.starts, ends: told.ends, isOfAll: true, isElsewhere: told.ends.every((end) => end === null), partitionCount: told.partition_count };
}

const PLACES = 40;

async function headsOf(places, asked, signal) {
  const pairs = [...places];
  const parts = Array.from({ length: Math.ceil(pairs.length / PLACES) }, (_, index) => pairs.slice(index * PLACES, (index + 1) * PLACES));
  return (await inTurns(parts, 4, (part) => ask("heads", { ...asked, at: writeCursor(part) }, signal))).flat();
}

const named = (answer) => answer.records.map((record) => ({ ...record, partition: answer.partition }));

// The follow of a live tail: the broker is asked where the partitions end, and for records only of those that have moved.
async function follow(fields, signal) {
  const asked = { ...shared(fields), count: TAIL_COUNT };
  const chosen = fields.get("partition");
  if (tail?.paused) return { ...tail, live: true };
  const told = await ask("ends", { topic: asked.topic, committed: asked.committed }, signal);
  const isFollowed = (partition) => chosen === null || partition === Number(chosen);
  const ends = told.ends.map((end, partition) => [partition, end]).filter(([partition, end]) => end !== null && isFollowed(partition));
  if (!tail) tail = { next: new Map(ends), records: [], seen: 0, paused: false, answers: [], partitionCount: told.partition_count };
  // Those for which there is no room in this look have still moved in the next.
  const moved = ends.filter(([partition, end]) => end > (tail.next.get(partition) ?? 0)).slice(0, GROUP);
  const answers = await Promise.all(moved.map(([partition]) => ask("messages", { ...asked, partition, from: "offset", value: tail.next.get(partition) ?? 0 }, signal)));
  const fresh = answers.flatMap(named).sort((left, right) => right.timestamp - left.timestamp || right.offset - left.offset);
  for (const answer of answers) tail.next.set(answer.partition, answer.next_offset);
  tail.seen += fresh.length;
  tail.records = [...fresh, ...tail.records].slice(0, 300);
  tail.answers = answers;
  return { ...tail, live: true };
}

function page(told, fields, signal) {
  messages.every = told.live ? TAIL_EVERY : 0;
  const topic = fields.get("topic");
  return [
    h("div", { class: "head" },
      h("nav", { class: "crumbs", "aria-label": "Path" }, h("a", { href: to("topics") }, "Topics"), " / ", h("a", { href: to("topic", { name: topic }) }, topic)),
      h("h1", null, "Messages"), actions(actionButton("Produce", () => produce(topic, fields.get("partition")), "", told.may("WRITE")))),
    h("section", { class: "panel" }, form(told, fields)),
    told.answers.some((answer) => answer.problem) && h("div", { class: "notice here" }, told.answers.filter((answer) => answer.problem).map((answer) => h("p", null, `Partition ${answer.partition}: ${answer.problem}`))),
    h("section", { class: "panel" }, h("h2", { class: "visually-hidden" }, "Records"), h("div", { class: "row" }, h("span", { class: "quiet", role: "status" }, summary(told, fields)), steps(told, fields)), list(told, topic, fields, signal)),
  ];
}

function form(told, fields) {
  const from = fields.get("from") ?? "newest";
  const partition = fields.get("partition") ?? "";
  const set = (name) => (event) => change({ [name]: event.target.value || null, at: null }, true);
  const live = fields.has("tail");
  return [
    h("form", { class: `form ${searching ? "is-open" : ""}`, onsubmit: (event) => event.preventDefault() },
      h("label", null, "Partition", h("select", { value: partition, onchange: set("partition") }, h("option", { value: "" }, "all"), Array.from({ length: Math.min(told.partitionCount, 2000) }, (_, index) => h("option", { value: String(index) }, index)))),
      !live && h("label", null, "From", h("select", { value: from === "before" ? "newest" : from, onchange: (event) => change({ from: event.target.value, at: null, value: event.target.value === "time" ? local(Date.now() - 3600_000) : event.target.value === "offset" ? "0" : null }, true) },
        h("option", { value: "newest" }, "the newest"), h("option", { value: "oldest" }, "the oldest"), h("option", { value: "offset" }, "an offset"), h("option", { value: "time" }, "a time"))),
      !live && from === "offset" && h("label", null, "Offset", h("input", { type: "number", min: 0, max: Number.MAX_SAFE_INTEGER, value: fields.get("value") ?? "0", onchange: set("value") })),
      !live && from === "time" && h("label", null, `Time (${zone(new Date())})`, h("input", { type: "datetime-local", step: 1, value: fields.get("value") ?? "", onchange: set("value") })),
      h("button", { class: "button narrow", type: "button", "aria-expanded": String(searching), onclick: (event) => ((searching = !searching), event.target.setAttribute("aria-expanded", String(searching)), event.target.closest("form").classList.toggle("is-open", searching)) }, isFiltered(fields) ? "Search (in use)" : "Search"),
      h("label", { class: "search" }, "Holding the text", h("input", { type: "search", id: "search", value: fields.get("q") ?? "", maxlength: 200, autocomplete: "off", spellcheck: "false", placeholder: "in keys, values, headers", onchange: set("q") })),
      h("label", { class: "search" }, "Key", h("input", { type: "text", id: "key", value: fields.get("key") ?? "", maxlength: 900, autocomplete: "off", spellcheck: "false", placeholder: "the whole key", onchange: set("key") })),
      h("label", { class: "long search" }, "Filter", h("input", { type: "text", id: "filter", value: fields.get("filter") ?? "", maxlength: 900, autocomplete: "off", spellcheck: "false", placeholder: 'value.total > 100 and header.kind = "new"', onchange: set("filter") })),
      h("label", { class: "check search" }, committedBox(fields), "committed only"),
      live && h("button", { class: "button", type: "button", id: "tail", "aria-pressed": String(tail?.paused ?? false), onclick: pause }, tail?.paused ? "Go on" : "Pause"),
      h("button", { class: "button", type: "button", "aria-pressed": String(live), onclick: () => change({ tail: live ? null : "1", from: null, value: null, at: null }) }, "Live")),
    !live && h("details", null, h("summary", null, "Download, and how filters are written"),
      h("p", { class: "tools" }, [["jsonl", "JSON lines"], ["csv", "CSV"]].map(([format, label]) => h("a", { class: "button", download: true, href: address("download", { ...shared(fields), count: null, ...fileStart(fields), partition, format }) }, label)), h("span", { class: "quiet" }, "from where you look, up to 10,000 records")),
      h("p", { class: "quiet" }, "Fields: ", h("code", null, "key value header.NAME offset partition timestamp size"), ", with a path into JSON: ", h("code", null, "value.lines[0].sku"), ". Between them ", h("code", null, "= != < <= > >= contains starts ends matches"), ", then ", h("code", null, "and or not ( )"), ". ", h("code", null, "matches"), " takes a regular expression, ", h("code", null, "timestamp"), " a time: ", h("code", null, 'timestamp > "2026-11-26T10:00:00Z"'), ".")),
  ];
}

// "The newest" of a file are as many as it holds.
const fileStart = (fields) => (fields.get("at") ? { from: "newest" } : start(fields));

function committedBox(fields) {
  const box = h("input", { type: "checkbox", onchange: (event) => change({ committed: event.target.checked ? "yes" : null, at: null }, true) });
  box.checked = fields.get("committed") === "yes";
  return box;
}

function pause() {
  if (!tail) return;
  tail.paused = !tail.paused;
  const button = document.getElementById("tail");
  button.setAttribute("aria-pressed", String(tail.paused));
  button.firstChild.data = tail.paused ? "Go on" : "Pause";
}

const local = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60000).toISOString().slice(0, 19);

function summary(told, fields) {
  if (told.live) return `${plural(told.seen, "record")} since you look${tail?.paused ? ", paused" : ""}${told.seen > told.records.length ? `; the newest ${told.records.length} are shown` : ""}`;
  const parts = [plural(told.records.length, "record")];
  if (!told.isOfAll) {
    const [answer] = told.answers;
    parts.push(`offsets ${count(answer.log_start_offset)} to ${count(answer.end_offset)} are there`);
    if (isFiltered(fields)) parts.push(`${count(answer.looked_at)} looked at, from ${count(answer.first_offset)} to ${count(answer.next_offset)}`);
  } else if (isFiltered(fields)) {
    parts.push(`${count(told.answers.reduce((sum, answer) => sum + answer.looked_at, 0))} looked at`);
  }
  return parts.join("; ");
}

function steps(told) {
  if (told.live) return null;
  if (told.isOfAll) return stepsOfAll(told);
  const [answer] = told.answers;
  return pager(
    answer.first_offset > answer.log_start_offset && { from: "before", value: answer.first_offset, partition: answer.partition },
    answer.next_offset < answer.end_offset && { from: "offset", value: answer.next_offset, partition: answer.partition });
}

function stepsOfAll(told) {
  const go = (cursors, from) => cursors && { from, value: null, at: writeCursor(cursors) };
  return pager(go(older(told), "before"), go(newer(told), "offset"));
}

const pager = (back, forth) => h("div", { class: "pager" },
  h("button", { class: "button", type: "button", id: "next", disabled: !back, onclick: () => change(back) }, "Older"),
  h("button", { class: "button", type: "button", id: "previous", disabled: !forth, onclick: () => change(forth) }, "Newer"));

function list(told, topic, fields, signal) {
  if (told.isElsewhere) return h("p", { class: "empty" }, "No broker answers for the partitions of this topic.");
  if (!told.records.length) return h("p", { class: "empty" }, told.live ? "Waiting for records…" : isFiltered(fields) ? "No record there is let through." : "No records there.");
  const again = () => draw(document.getElementById("page"), page(told, fields, signal));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Records" },
    h("table", null,
      h("thead", null, h("tr", null, h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Open")), h("th", { scope: "col", class: "num wide" }, "Partition"), h("th", { scope: "col", class: "num" }, "Offset"), h("th", { scope: "col", class: "wide" }, "Time"), h("th", { scope: "col" }, "Key"), h("th", { scope: "col" }, "Value"))),
      h("tbody", null, told.records.map((record) => rows(record, topic, again)))));
}

const keyOf = (record) => `${record.partition}-${record.offset}`;

function rows(record, topic, again) {
  const key = keyOf(record);
  const open = opened.get(key);
  const toggle = async () => {
    if (opened.has(key)) opened.delete(key);
    else {
      opened.set(key, record);
      if ([record.key, record.value, ...record.headers.map((header) => header.value)].some((field) => field?.is_cut)) whole(record, topic).then((found) => found && opened.has(key) && (opened.set(key, found), again()));
    }
    again();
  };
  return [
    h("tr", { class: "record", "data-key": key, onclick: (event) => event.target.closest("button, a") || getSelection().toString() || toggle() },
      h("td", null, h("button", { type: "button", class: "open-row", "aria-expanded": String(Boolean(open)), "aria-label": `Offset ${record.offset} of partition ${record.partition}`, onclick: toggle }, open ? "▾" : "▸")),
      h("td", { class: "num wide" }, record.partition), h("td", { class: "num" }, count(record.offset), h("div", { class: "quiet narrow" }, `partition ${record.partition}`), h("div", { class: "quiet narrow" }, shortTime(record.timestamp))), h("td", { class: "wide nowrap" }, time(record.timestamp)),
      h("td", { class: "name" }, preview(record.key)), h("td", { class: "wide-text" }, record.control ? h("span", { class: "tag" }, `${record.control} marker`) : preview(record.value))),
    open && h("tr", { class: "more", "data-key": `${key} more` }, h("td", { colspan: 6 }, details(open))),
  ];
}

async function whole(record, topic) {
  try {
    const answer = await ask("messages", { topic, partition: record.partition, from: "offset", value: record.offset, count: 1, field_bytes: 1 << 20 });
    return named(answer).find((found) => found.offset === record.offset);
  } catch {
    return null;
  }
}

function preview(field) {
  if (field === null) return h("span", { class: "quiet" }, "null");
  if (field.size_bytes === 0) return h("span", { class: "quiet" }, "empty");
  return h("div", { class: "preview" }, field.is_binary ? h("span", { class: "quiet" }, `${bytes(field.size_bytes)} of bytes`) : field.text.slice(0, 300));
}

function content(field) {
  if (field === null) return h("p", { class: "quiet" }, "null");
  if (field.size_bytes === 0) return h("p", { class: "quiet" }, "empty");
  const cut = [
    field.is_cut && h("p", { class: "quiet" }, `the beginning of ${bytes(field.size_bytes)}`),
    field.schema && h("p", { class: "quiet" }, `schema ${field.schema}`),
    field.problem && h("p", { class: "quiet" }, field.problem),
  ];
  if (field.is_binary) return [h("pre", { tabindex: 0 }, hexLines(field.text)), cut];
  return [h("pre", { tabindex: 0 }, prettyJson(field.text) ?? field.text), cut];
}

function details(record) {
  return h("div", { class: "more-grid" },
    h("p", { class: "quiet" }, [`partition ${record.partition}`, `offset ${count(record.offset)}`, time(record.timestamp), bytes(record.size_bytes), record.compression !== "none" && record.compression, record.is_transactional && "transactional", record.producer_id >= 0 && `producer ${record.producer_id}`].filter(Boolean).join(" · ")),
    record.meaning && [h("h3", null, "What it says"), h("pre", { tabindex: 0 }, prettyValue(record.meaning))],
    h("h3", null, "Key"), content(record.key),
    h("h3", null, "Value"), content(record.value),
    record.headers.length > 0 && [h("h3", null, record.header_count > record.headers.length ? `The first ${record.headers.length} of ${record.header_count} headers` : "Headers"),
      h("table", null, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Name"), h("th", { scope: "col" }, "Value"))), h("tbody", null, record.headers.map((header) => h("tr", null, h("td", { class: "name" }, h("code", null, header.name)), h("td", { class: "wide-text" }, content(header.value))))))]);
}
