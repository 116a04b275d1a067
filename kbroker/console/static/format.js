// Numbers, sizes and times for people.

const WHOLE = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const count = (value) => (value === null || value === undefined ? "–" : WHOLE.format(Math.round(value)));

export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${digits(value / 1e9)} G`;
  if (size >= 1e6) return `${digits(value / 1e6)} M`;
  if (size >= 1e4) return `${digits(value / 1e3)} k`;
  return size < 10 && !Number.isInteger(value) ? value.toFixed(1) : count(value);
}

const digits = (value) => value.toFixed(Math.abs(value) < 10 ? 1 : 0);

export function bytes(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(value) : digits(value)} ${UNITS[unit]}`;
}

export const rate = (value) => (value === null ? "–" : `${bytes(value)}/s`);

export function seconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${digits(value * 1e3)} ms`;
  if (value < 120) return `${digits(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${digits(value / 3600)} h`;
  return `${Math.round(value / 86400)} d`;
}

const two = (value) => String(value).padStart(2, "0");

export function time(milliseconds, withDate = true) {
  if (milliseconds === null || milliseconds === undefined || milliseconds < 0) return "–";
  const at = new Date(milliseconds);
  if (Number.isNaN(at.getTime())) return String(milliseconds);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (!withDate) return clock;
  const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${date} ${clock}.${String(at.getMilliseconds()).padStart(3, "0")} ${zone(at)}`;
}

// For a phone: the time alone for one of today, else the date as well.
export function shortTime(milliseconds) {
  if (milliseconds === null || milliseconds < 0) return "–";
  const at = new Date(milliseconds);
  const clock = time(milliseconds, false);
  return at.toDateString() === new Date().toDateString() ? clock : `${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}`;
}

// The browser's zone at that time: UTC, or how far it is from it.
export function zone(at) {
  const minutes = -at.getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
