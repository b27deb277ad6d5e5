// Small charts of the last minutes, in SVG. Knows numbers over time, and not what they are of.

import { el, say, svg } from "./dom.js";
import { NONE, ago } from "./format.js";

export const SPAN_S = 300;
const WIDTH = 300;
const HEIGHT = 56;

/** A round number that is not below `value`: 1, 2, 2.5 or 5 times a power of ten. */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 2.5, 5, 10].find((step) => step * power >= value);
}

/** Runs of neighbours that have a value: a gap in the figures is a gap in the line. */
function runs(points) {
  const out = [];
  let run = null;
  for (const [x, y] of points) {
    if (y === null) run = null;
    else if (run) run.push([x, y]);
    else out.push((run = [[x, y]]));
  }
  return out;
}

function line(run) {
  return run.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

/** Draw `samples` ({time, ...values}) of the last minutes as lines, one for each of `keys`. */
function draw(picture, samples, keys, now, top) {
  const x = (time) => WIDTH - ((now - time) / SPAN_S) * WIDTH;
  const y = (value) => HEIGHT - 1 - (Math.min(value, top) / top) * (HEIGHT - 3);
  picture.replaceChildren(
    ...keys.flatMap((key, i) => {
      const points = [];
      let before = null;
      for (const one of samples) {
        // Where the connection was lost for a while nothing is known.
        if (before !== null && one.time - before > 5) points.push([0, null]);
        before = one.time;
        const value = one[key];
        points.push([x(one.time), value === null || value === undefined ? null : y(value)]);
      }
      return runs(points).flatMap((run) => {
        const path = line(run);
        const stroke = svg("path", { d: path, class: `line series-${i}` });
        if (i > 0) return [stroke];
        const foot = `L${run.at(-1)[0].toFixed(1)} ${HEIGHT}L${run[0][0].toFixed(1)} ${HEIGHT}Z`;
        return [svg("path", { d: path + foot, class: `area series-${i}` }), stroke];
      });
    }),
  );
}

/** The bare lines, for a row of other things: `update(samples, now, top)`. */
export function sparkline(key) {
  const picture = svg("svg", {
    class: "sparkline",
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  return { node: picture, update: (samples, now, top) => draw(picture, samples, [key], now, top) };
}

/**
 * A card with a title, the newest value in words and the lines of `series`.
 * series   [{key, label}], the first with its area filled
 * words    what a sample is, as "1,067 tokens/s"
 */
export function chart(title, series, words) {
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  const value = el("span", { class: "value" }, NONE);
  const when = el("span", { class: "when" });
  const most = el("span", { class: "most", "aria-hidden": "true" });
  const plot = el("div", { class: "plot" }, picture, most);
  const legend =
    series.length > 1
      ? el("span", { class: "legend" }, ...series.map(({ label }, i) => el("span", { class: `key series-${i}` }, label)))
      : null;
  const axis = el("div", { class: "axis", "aria-hidden": "true" }, el("span", {}, "5 min ago"), legend, el("span", {}, "now"));
  const node = el("section", { class: "card chart" }, el("h3", {}, title), el("p", {}, value, when), plot, axis);
  const keys = series.map(({ key }) => key);
  let samples = [];
  let now = 0;
  let pointed = null; // seconds before now

  function readout() {
    const age = pointed;
    const one =
      age === null
        ? samples.at(-1)
        : samples.reduce((best, s) => (Math.abs(now - s.time - age) < Math.abs(now - best.time - age) ? s : best), samples[0]);
    say(value, one ? words(one) : NONE);
    say(when, one && age !== null ? ago(now - one.time) : "");
  }
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    pointed = SPAN_S * (1 - (event.clientX - box.left) / box.width);
    readout();
  });
  plot.addEventListener("pointerleave", () => {
    pointed = null;
    readout();
  });

  function update(newest, time) {
    samples = newest;
    now = time;
    const top = ceiling(Math.max(0, ...samples.flatMap((one) => keys.map((key) => one[key] ?? 0))));
    draw(picture, samples, keys, now, top);
    say(most, top.toLocaleString("en-US"));
    const name = typeof title === "string" ? title : title.textContent;
    picture.setAttribute("aria-label", `${name}, last five minutes; now ${samples.length ? words(samples.at(-1)) : "unknown"}`);
    readout();
  }
  return { node, update };
}
