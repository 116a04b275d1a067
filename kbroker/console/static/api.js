// What the broker answers.

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export async function ask(name, fields = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(fields)) {
    if (value !== undefined && value !== null && value !== "") query.set(key, value);
  }
  const answer = await fetch(`api/${name}?${query}`, { signal, cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, body.error ?? `status ${answer.status}`);
  return body;
}
