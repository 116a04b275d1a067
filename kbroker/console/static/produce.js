// Records to be written: typed, or from a file.

import { FormError } from "./manage.js";

const MOST_RECORDS = 5000;
const MOST_BYTES = 5_000_000;

export const produce = (topic, partition = null, record = null) => ({
  action: "produce", title: `Produce to ${topic}`,
  inputs: [
    { name: "format", label: "The value is", type: "select", redraws: true, value: record?.format ?? "text", options: [["text", "text"], ["json", "JSON"], ["schema", "JSON, written by a schema of the registry"], ["base64", "bytes in base64"], ["null", "null: a tombstone"], ["file", "the content of a file"], ["lines", "a file of JSON lines: many records"]] },
    { name: "key", label: "Key", value: record?.key ?? "", hint: "empty: null", shown: (typed) => typed.format !== "lines" },
    { name: "value", label: "Value", type: "textarea", rows: 8, value: record?.value ?? "", shown: (typed) => ["text", "json", "schema", "base64"].includes(typed.format) },
    { name: "subject", label: "Subject of the value", value: `${topic}-value`, shown: (typed) => typed.format === "schema", required: true, hint: "its latest version counts" },
    { name: "keySubject", label: "Subject of the key", value: "", shown: (typed) => typed.format === "schema", hint: `empty: the key is text; else JSON, as ${topic}-key has it` },
    { name: "file", label: "File", type: "file", required: true, shown: (typed) => ["file", "lines"].includes(typed.format), hint: "JSON lines as they are downloaded: {\"key\": …, \"value\": …, \"headers\": […]}; up to 5,000 records and 5 MB" },
    { name: "headers", label: "Headers", type: "textarea", rows: 2, value: record?.headers ?? "", placeholder: "name: value", hint: "one a line", shown: (typed) => typed.format !== "lines" },
    { name: "partition", label: "Partition", type: "number", min: 0, value: partition ?? "", hint: "empty: by the key" },
    { name: "compression", label: "Compression", type: "select", options: [["none"], ["gzip"], ["snappy"], ["lz4"], ["zstd"]] },
  ],
  read: async (typed, files) => ({ topic, compression: typed.compression || "none", ...(typed.format === "schema" ? { value_subject: typed.subject, key_subject: typed.keySubject || null } : {}), records: (await records(typed, files.file)).map((each) => ({ ...each, partition: typed.partition === "" ? each.partition ?? null : typed.partition })) }),
});

async function records(typed, file) {
  if (["file", "lines"].includes(typed.format)) {
    if (!file) throw new FormError("The file is missing.");
    if (file.size > MOST_BYTES) throw new FormError(`The file has ${file.size} bytes; ${MOST_BYTES} are taken here.`);
  }
  if (typed.format === "lines") return lines(await file.text());
  const record = { key: typed.key === "" ? null : typed.key, headers: headers(typed.headers) };
  switch (typed.format) {
    case "null":
      return [{ ...record, value: null }];
    case "file":
      return [{ ...record, value: { base64: await inBase64(file) } }];
    case "base64":
      return [{ ...record, value: { base64: typed.value.replace(/\s/g, "") } }];
    case "json":
    case "schema":
      try {
        JSON.parse(typed.value);
      } catch (error) {
        throw new FormError(`The value is no JSON: ${error.message}`);
      }
  }
  return [{ ...record, value: typed.value }];
}

function headers(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    if (at < 0) throw new FormError(`“${line}” is not name: value`);
    return { name: line.slice(0, at).trim(), value: line.slice(at + 1).trim() };
  });
}

function lines(text) {
  const found = text.split("\n").filter((line) => line.trim()).map((line, index) => {
    let told;
    try {
      told = JSON.parse(line);
    } catch (error) {
      throw new FormError(`Line ${index + 1} is no JSON: ${error.message}`);
    }
    if (told === null || typeof told !== "object" || !("value" in told || "key" in told)) return { key: null, value: line };
    const value = told.value !== null && typeof told.value === "object" && !("base64" in told.value) ? JSON.stringify(told.value) : told.value ?? null;
    return { key: told.key ?? null, value: typeof value === "number" || typeof value === "boolean" ? String(value) : value, headers: told.headers ?? [], partition: told.partition ?? null };
  });
  if (!found.length) throw new FormError("The file has no records.");
  if (found.length > MOST_RECORDS) throw new FormError(`The file has ${found.length} records; ${MOST_RECORDS} are taken here.`);
  return found;
}

function inBase64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new FormError("The file cannot be read."));
    reader.readAsDataURL(file);
  });
}
