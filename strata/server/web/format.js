// How figures are written: counts, rates, sizes, times. A dash where there is none.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const TENTH = new Intl.NumberFormat("en-US", {
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
});
export const NONE = "–";

const none = (value) => value === null || value === undefined || Number.isNaN(value);

/** 10,242 */
export const count = (value) => (none(value) ? NONE : WHOLE.format(value));

/** 1,067 from 100 on, 44.1 below; 0 is exact. */
export const rate = (value) =>
  none(value) ? NONE : (value >= 99.95 || value === 0 ? WHOLE : TENTH).format(value);

/** 87.4 %, from a part of 1. */
export const percent = (part) => (none(part) ? NONE : `${TENTH.format(100 * part)} %`);

/** "1 client", "2 clients" */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** 3.5 GiB */
export function bytes(value) {
  if (none(value)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? TENTH.format(value) : WHOLE.format(value)} ${units[unit]}`;
}

/** 340 ms, 5.8 s, then as `span` */
export function seconds(value) {
  if (none(value)) return NONE;
  if (value === 0) return "0 s";
  if (value < 0.9995) return `${WHOLE.format(1000 * value)} ms`;
  return value < 99.95 ? `${TENTH.format(value)} s` : span(value);
}

/** 37 s, 2 min 5 s, 3 h 12 min, 4 d 2 h */
export function span(value) {
  const whole = Math.round(value);
  const [d, h, m, s] = [
    Math.floor(whole / 86400),
    Math.floor(whole / 3600) % 24,
    Math.floor(whole / 60) % 60,
    whole % 60,
  ];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${s} s` : `${s} s`;
}

/** "now", "12 s ago", "3 min ago" */
export function ago(value) {
  if (none(value)) return NONE;
  if (value < 1) return "now";
  const whole = Math.round(value);
  if (whole < 60) return `${whole} s ago`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ago`;
  return `${Math.floor(whole / 3600)} h ago`;
}

/** The time of day, as the reader's system writes it. */
export const clock = (time) =>
  new Date(1000 * time).toLocaleTimeString(undefined, {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });

/** "87.4 % +3.7 % PCIe": found in the tier, and what the bus brought besides. */
export function hitRate(experts) {
  if (!experts || none(experts.hit_rate)) return NONE;
  const bus = experts.bus_share ? ` +${percent(experts.bus_share)} PCIe` : "";
  return percent(experts.hit_rate) + bus;
}

const STATUS = {
  queued: "Queued",
  waiting: "Waiting for a prefix",
  loading: "Loading experts",
  reading: "Reading",
  decoding: "Decoding",
  stop: "Finished",
  length: "Max tokens",
  repetition: "Repeated itself",
  cancelled: "Closed",
  failed: "Failed",
};

/** A status in words. */
export const status = (name) => STATUS[name] ?? name;

/** Whether a status is that of a request which still runs or waits. */
export const lives = (name) =>
  ["queued", "waiting", "loading", "reading", "decoding"].includes(name);
