// The figures of a page over time, kept in this browser tab; what the broker has of the hour before is put in front.

const MOST = 240;
const MOST_SEEDED = 1500;
const SEEDED_SECONDS = 3600;
const GAP_SECONDS = 30;

export function history(name) {
  const samples = remembered(name);
  let isSeeded = false;
  return {
    isStale: () => !isSeeded || Date.now() / 1000 - (samples.at(-1)?.at ?? 0) > 2 * GAP_SECONDS,
    // Samples of the broker's, oldest first; those of this tab stand behind them.
    seed(older) {
      isSeeded = true;
      const [first, last] = [samples[0]?.at ?? Infinity, samples.at(-1)?.at ?? -Infinity];
      samples.unshift(...older.filter((sample) => sample.at < first));
      samples.push(...older.filter((sample) => sample.at > last && first !== Infinity));
    },
    add(at, values) {
      const last = samples.at(-1);
      if (last && at <= last.at) return;
      // Another process, whose totals begin anew, or a long look elsewhere: no line across it.
      if (last && (at - last.at > GAP_SECONDS || (values.uptime ?? 0) < (last.uptime ?? 0))) samples.push({ at: (last.at + at) / 2, gap: true });
      samples.push({ at, ...values });
      while (samples.length > (isSeeded ? MOST_SEEDED : MOST) || (isSeeded && samples[0].at < at - SEEDED_SECONDS)) samples.shift();
      // The broker has them, for the next time.
      if (isSeeded) return;
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
