// Connections and clients.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { bytes, count, plural, rate, seconds, short } from "./format.js";
import { facts, pagedTable } from "./table.js";

// What was shown before, by connection: rates are made of two looks.
let before = { at: 0, rows: new Map() };
let rates = new Map();

export const clients = {
  title: "Clients",
  every: 5000,
  load: (fields, signal) => ask("clients", { q: fields.get("q"), sort: fields.get("sort"), start: fields.get("start") }, signal),
  draw: (told, fields) => {
    const passed = (told.now_ms - before.at) / 1000;
    const moved = told.page.rows.some((row) => before.rows.get(row.key) && before.rows.get(row.key).idle_seconds !== row.idle_seconds);
    if (passed > 0.5 && (moved || passed > 12)) {
      rates = new Map(told.page.rows.map((row) => [row.key, before.rows.has(row.key) && passed < 60 ? difference(before.rows.get(row.key), row, passed) : null]));
      before = { at: told.now_ms, rows: new Map(told.page.rows.map((row) => [row.key, row])) };
    }
    return [
      h("div", { class: "head" }, h("h1", null, "Clients"), h("span", { class: "quiet" }, plural(told.page.total, "connection"))),
      h("div", { class: "pair" },
        h("section", { class: "panel" }, h("h2", null, "What they run"), told.software.length ? facts(told.software.map((kind) => [kind.name, plural(kind.connection_count, "connection")])) : h("p", { class: "quiet" }, "No client is connected.")),
        h("section", { class: "panel" }, h("h2", null, "Refused and closed since the start"), facts([...Object.entries(told.refused).map(([reason, number]) => [`refused: ${reason}`, count(number)]), ...Object.entries(told.closed).map(([reason, number]) => [reason, count(number)])]))),
      h("section", { class: "panel" }, pagedTable({
        page: told.page, label: "Connections", search: { value: fields.get("q"), label: "Search clients" }, empty: "No client is connected.", keyOf: (row) => row.key, columns: [
          { key: "client_id", label: "Client id", sorts: true, className: "name", cell: (row) => row.client_id || h("span", { class: "quiet" }, "none") },
          { key: "software", label: "Software", sorts: true, wide: true, cell: (row) => row.software || h("span", { class: "quiet" }, "says nothing") },
          { key: "address", label: "Address", sorts: true, className: "mono", cell: (row) => row.address },
          { key: "listener", label: "Listener", sorts: true, wide: true, cell: (row) => row.listener },
          { key: "request_count", label: "Requests", num: true, sorts: true, cell: (row) => [count(row.request_count), rates.get(row.key) && h("div", { class: "quiet" }, `${short(rates.get(row.key).requests)}/s`)] },
          { key: "bytes_in", label: "Received", num: true, sorts: true, wide: true, cell: (row) => [bytes(row.bytes_in), rates.get(row.key) && h("div", { class: "quiet" }, rate(rates.get(row.key).bytesIn))] },
          { key: "bytes_out", label: "Sent", num: true, sorts: true, wide: true, cell: (row) => [bytes(row.bytes_out), rates.get(row.key) && h("div", { class: "quiet" }, rate(rates.get(row.key).bytesOut))] },
          { key: "idle_seconds", label: "Quiet for", num: true, sorts: true, cell: (row) => [seconds(row.idle_seconds), row.is_throttled && h("div", { class: "warn" }, "throttled"), row.queued_bytes > 0 && h("div", { class: "quiet" }, `${bytes(row.queued_bytes)} wait`)] },
        ],
      })),
    ];
  },
};

function difference(old, now, passed) {
  const by = (field) => Math.max(0, now[field] - old[field]) / passed;
  return { requests: by("request_count"), bytesIn: by("bytes_in"), bytesOut: by("bytes_out") };
}
