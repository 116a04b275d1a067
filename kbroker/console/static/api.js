// What the broker answers.

export class Refused extends Error {
  constructor(status, text, told = {}) {
    super(text);
    this.status = status;
    this.told = told;
  }
}

export function address(name, fields = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(fields)) {
    if (value !== undefined && value !== null && value !== "") query.set(key, value);
  }
  return `api/${name}?${query}`;
}

export async function ask(name, fields = {}, signal = undefined) {
  return answered(await fetch(address(name, fields), { signal, cache: "no-store" }));
}

async function answered(answer) {
  const text = await answer.text();
  let body;
  try {
    body = JSON.parse(text);
  } catch (error) {
    if (answer.ok) throw error;
    throw new Refused(answer.status, text.trim() || `status ${answer.status}`);
  }
  if (!answer.ok) throw new Refused(answer.status, body.error ?? `status ${answer.status}`, body);
  return body;
}

// What only the console's own pages can ask: a header that no page of another origin may send.
export async function post(name, value) {
  return answered(await fetch(`api/${name}`, { method: "POST", headers: { "Content-Type": "application/json", "X-Kbroker-Console": "1" }, body: JSON.stringify(value) }));
}
