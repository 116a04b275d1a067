// JSON set out in lines, without reading its numbers: one with twenty digits stays as it is.

import { h } from "./dom.js";

const TOKEN = /\s+|("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*|true|false|null)|([[\]{},])/gy;
const MOST = 200_000;

// Elements for a text that is JSON, else null.
export function prettyJson(text) {
  const first = text.trimStart()[0];
  if ((first !== "{" && first !== "[") || text.length > MOST) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const parts = [];
  let depth = 0;
  const line = () => parts.push(`\n${"  ".repeat(depth)}`);
  TOKEN.lastIndex = 0;
  let before = "";
  for (let match = TOKEN.exec(text); match; match = TOKEN.exec(text)) {
    const [whole, string, colon, literal, mark] = match;
    if (string !== undefined) {
      if (before === "{" || before === "[") line();
      parts.push(h("span", { class: colon === undefined ? "j-string" : "j-name" }, string));
      if (colon !== undefined) parts.push(": ");
      before = "value";
    } else if (literal !== undefined) {
      if (before === "[" || before === "{") line();
      parts.push(h("span", { class: "j-literal" }, literal));
      before = "value";
    } else if (mark !== undefined) {
      if (mark === "}" || mark === "]") {
        depth -= 1;
        if (before !== "{" && before !== "[") line();
        parts.push(mark);
        before = "value";
      } else if (mark === ",") {
        parts.push(mark);
        line();
        before = ",";
      } else {
        if (before === "[" || before === "{") line();
        parts.push(mark);
        depth += 1;
        before = mark;
      }
    } else if (whole.trim()) {
      return null;
    }
    if (TOKEN.lastIndex >= text.length) break;
  }
  return parts;
}

// A value that the broker has read, as the same lines.
export const prettyValue = (value) => prettyJson(JSON.stringify(value)) ?? [JSON.stringify(value)];

// Base64 as a table of bytes.
export function hexLines(base64, most = 4096) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)).subarray(0, most);
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}
