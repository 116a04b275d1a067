// The last minutes of a page's figures, kept in this browser tab alone: the broker keeps none.

const MOST = 240;
const GAP_SECONDS = 30;

export function history(name) {
  const samples = remembered(name);
  return {
    add(at, values) {
      const last = samples.at(-1);
      if (last && at <= last.at) return;
      // Another process, whose totals begin anew, or a long look elsewhere: no line across it.
      if (last && (at - last.at > GAP_SECONDS || (values.uptime ?? 0) < (last.uptime ?? 0))) samples.push({ at: (last.at + at) / 2, gap: true });
      samples.push({ at, ...values });
      while (samples.length > MOST) samples.shift();
      try {
        sessionStorage.setItem(`kbroker ${name}`, JSON.stringify(samples));
      } catch {
        // Without storage they live as long as the page.
      }
    },
    times: () => samples.map((sample) => sample.at),
    values: (read) => samples.map((now, index) => {
      const before = samples[index - 1];
      return now.gap ? null : read(before && !before.gap ? before : null, now);
    }),
    rate: (field, factor = 1) => (before, now) => (before ? (factor * Math.max(0, now[field] - before[field])) / (now.at - before.at) : null),
    ratio: (field, by) => (before, now) => (before && now[by] > before[by] ? (now[field] - before[field]) / (now[by] - before[by]) : null),
  };
}

function remembered(name) {
  try {
    return JSON.parse(sessionStorage.getItem(`kbroker ${name}`)) ?? [];
  } catch {
    return [];
  }
}
