// Lines over time, drawn by uPlot in the colours of the page.

import { h } from "./dom.js";
import { zone } from "./format.js";
import { whenColoursChange } from "./theme.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const narrow = matchMedia("(max-width: 760px)");
const drawn = new Map();

whenColoursChange(() => {
  for (const chart of drawn.values()) chart.make();
});

class Chart {
  constructor(node, series, format) {
    this.node = node;
    this.series = series;
    this.format = format;
    this.data = [[], ...series.map(() => [])];
    new ResizeObserver(() => this.fit()).observe(node);
    this.make();
  }

  size() {
    return { width: Math.max(80, this.node.clientWidth), height: Math.max(60, this.node.clientHeight) };
  }

  make() {
    this.plot?.destroy();
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: `${narrow.matches ? 10 : 11}px system-ui, sans-serif` };
    this.plot = new uPlot(
      {
        ...this.size(),
        legend: { show: false },
        cursor: { y: false, points: { size: 6 } },
        padding: [8, 8, 0, 0],
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 0, 1e-9) * 1.1] } },
        axes: [
          { ...axis, grid: { show: false }, size: 22, space: 70, values: (_, at) => at.map(clock) },
          { ...axis, size: narrow.matches ? 46 : 58, space: narrow.matches ? 34 : 26, values: (_, at) => at.map(this.format) },
        ],
        series: [{}, ...this.series.map(([label, name]) => ({ label, stroke: colour(name), width: 1.6, points: { show: false }, spanGaps: false, fill: this.series.length === 1 ? `${colour(name)}1c` : undefined }))],
        hooks: { setCursor: [(plot) => this.tell(plot)] },
      },
      this.data,
      this.node,
    );
  }

  tell(plot) {
    const at = plot.cursor.idx;
    const told = at === null || at === undefined || !plot.data[0].length ? "" : [`${clock(plot.data[0][at])} ${zone(new Date(plot.data[0][at] * 1000))}`, ...this.series.map(([label], index) => `${label} ${this.format(plot.data[index + 1][at])}`)].join("  ");
    this.node.title = told;
  }

  fit() {
    const size = this.size();
    if (size.width !== this.plot.width || size.height !== this.plot.height) this.plot.setSize(size);
  }

  show(data) {
    // With a single point uPlot would show days.
    this.data = data[0].length === 1 ? data.map((line, index) => [index ? null : line[0] - 60, ...line]) : data;
    this.plot.setData(this.data);
  }
}

const clock = (at) => {
  const when = new Date(at * 1000);
  return [when.getHours(), when.getMinutes(), when.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
};

// A panel's chart: `series` are pairs of a label and a colour's name, `data` times in seconds and a list for each.
// `told` says in words what the last values are, for those who do not see it.
export function chart(key, series, data, format, told, className = "chart") {
  queueMicrotask(() => {
    const node = document.querySelector(`[data-chart="${key}"]`);
    if (!node || !globalThis.uPlot) return;
    let known = drawn.get(key);
    if (!known || known.node !== node) drawn.set(key, (known = new Chart(node, series, format)));
    known.show(data);
    node.setAttribute("aria-label", told);
  });
  return h("div", { class: className, "data-chart": key, "data-key": `chart ${key}`, "data-keep": "yes", role: "img", "aria-label": told });
}

export function forgetCharts() {
  for (const [key, known] of drawn) if (!known.node.isConnected) drawn.delete(key);
}
