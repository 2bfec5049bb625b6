// Kernel regression as attention: drag the query, choose the width, see the curve, the kernel and the attention row.

import { softmax, sumOf, unpack } from "./attention.js";
import { button, checkbox, drawn, element, number, picture, set, slider, times } from "./elements.js";
import { scale } from "./heat_map.js";

const WIDTH = 900, TOP = 300, BELL = 90, ROW = 34, PAD = 34; // units of the drawing
const PLACES = 160;

function build({ model, choose, say }) {
  const { x: xs, y: ys, truth_x: truthX, truth_y: truthY } = unpack(model.get("parameters"), model.get("shapes"));
  const [x, y] = [xs.data, ys.data];
  const withUnit = (value, axis) => `${number(value)} ${model.get(`${axis}_unit`)}`.trim();
  const inX = (at) => withUnit(at, "x");
  const [low, high] = model.get("x_range"), spread = high - low;
  const bottom = Math.min(...y), top = Math.max(...y), room = 0.1 * (top - bottom) || 1;
  const across = (at) => PAD + (at - low) / spread * (WIDTH - 2 * PAD);
  const up = (value) => TOP - 14 - (value - bottom + room) / (top - bottom + 2 * room) * (TOP - 28);
  const middle = Math.log10(spread / 10), learned = model.get("learned_bandwidth");

  const widths = slider("width σ", {
    min: middle - 1.3,
    max: middle + 1.3,
    step: "any",
    onmove: (power) => choose({ bandwidth: 10 ** power }),
  });
  const queries = slider("query", {
    min: low,
    max: high,
    step: spread / 200,
    onmove: (query) => choose({ query: Math.min(Math.max(query, low), high) }),
  });
  const truth = checkbox("show the truth", (shown) => choose({ show_truth: shown }));
  const learn = button("learned width", () => choose({ bandwidth: learned }));

  const path = (name) => drawn("path", { class: name });
  const curve = path("curve"), real = path("truth"), bell = path("curve thin"), line = path("query-line");
  const kernels = path("stems"), answer = drawn("circle", { class: "answer-dot", r: 8 });
  const dots = times(x.length, (i) => drawn("circle", { class: "dot", cx: across(x[i]), cy: up(y[i]) }));
  const edges = times(x.length + 1, (i) => {
    if (i === 0 || i === x.length) return across(i ? high : low);
    return across((x[i - 1] + x[i]) / 2);
  });
  const foot = TOP + BELL + 12;
  const cells = times(x.length, (i) => {
    const box = { x: edges[i], y: foot, width: Math.max(edges[i + 1] - edges[i], 0.5), height: ROW };
    return drawn("g", { class: "cell" }, drawn("rect", box));
  });
  const ticks = drawn("g", { class: "ticks" });
  const label = (text, at) => drawn("text", { class: "axis", x: 2, y: at }, text);
  const chart = drawn(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${foot + ROW + 24}`, class: "chart", role: "img" },
    drawn("path", { class: "ground", d: `M${PAD},${TOP}H${WIDTH - PAD}M${PAD},${TOP + BELL}H${WIDTH - PAD}` }),
    label("value", 14),
    label("kernel", TOP + 16),
    real,
    ...dots,
    kernels,
    bell,
    curve,
    ...cells,
    line,
    answer,
    ticks,
  );
  const drag = (event) => {
    const box = chart.getBoundingClientRect();
    const at = low + ((event.clientX - box.left) / box.width * WIDTH - PAD) / (WIDTH - 2 * PAD) * spread;
    choose({ query: Math.min(Math.max(at, low), high) });
  };
  set(chart, {
    onpointerdown: (event) => {
      chart.setPointerCapture(event.pointerId);
      drag(event);
    },
    onpointermove: (event) => event.buttons && drag(event),
  });

  /** The attention row of a query: softmax of −(x − query)² / (2 bandwidth²). */
  function weightsOf(query) {
    const width = model.get("bandwidth");
    return softmax(Array.from(x, (at) => -(((at - query) / width) ** 2) / 2));
  }
  const pooled = (query) => sumOf(weightsOf(query).map((weight, i) => weight * y[i]));
  const through = (points) => `M${points.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join("L")}`;
  const along = (height) =>
    through(times(PLACES + 1, (i) => {
      const at = low + spread * i / PLACES;
      return [across(at), height(at)];
    }));

  function paint() {
    const query = model.get("query"), width = model.get("bandwidth"), weights = weightsOf(query), value = pooled(query);
    const height = (at) => TOP + BELL - (BELL - 14) * Math.exp(-(((at - query) / width) ** 2) / 2);
    set(curve, { d: along((at) => up(pooled(at))) });
    set(bell, { d: along(height) });
    set(kernels, {
      d: Array.from(x, (at) => `M${across(at).toFixed(1)},${TOP + BELL}V${height(at).toFixed(1)}`).join(""),
    });
    set(line, { d: `M${across(query)},6V${foot + ROW}` });
    set(answer, { cx: across(query), cy: up(value) });
    const hasTruth = Boolean(truthX);
    truth.node.hidden = !hasTruth;
    truth.input.checked = model.get("show_truth");
    set(real, {
      d: hasTruth && model.get("show_truth")
        ? through(Array.from(truthX.data, (at, i) => [across(at), up(truthY.data[i])]))
        : null,
    });
    dots.forEach((dot, i) =>
      set(dot, { r: (2.2 + 13 * Math.sqrt(weights[i])).toFixed(2), "--w": weights[i].toFixed(3) })
    );
    cells.forEach((cell, i) => set(cell, { "--w": weights[i].toFixed(3) }));
    ticks.replaceChildren(...times(6, (i) => {
      const at = low + spread * i / 5;
      return drawn(
        "text",
        { x: across(at), y: foot + ROW + 17 },
        `${number(at, spread < 10 ? 1 : 0)} ${model.get("x_unit")}`,
      );
    }));
    widths.show(Math.log10(width), inX(width));
    queries.show(query, inX(query));
    learn.hidden = learned === null;
    set(learn, { "aria-pressed": learned !== null && Math.abs(width / learned - 1) < 1e-6 });
    const sorted = [...weights].sort((a, b) => b - a), most = weights.indexOf(sorted[0]);
    let needed = 0;
    for (let sum = 0; sum < 0.9 && needed < sorted.length; needed++) sum += sorted[needed];
    const words =
      `At ${inX(query)} the pooled value is ${withUnit(value, "y")}. The largest weight is ${number(sorted[0])}, ` +
      `at ${inX(x[most])}; ${needed} of ${x.length} points carry 90 % of the weight. Width σ ${inX(width)}.`;
    set(chart, { "aria-label": words });
    say(words);
  }

  return {
    nodes: [
      element("div", { class: "controls" }, widths.node, queries.node, truth.node, learn),
      chart,
      scale({ 0: "weight 0", 0.5: ".5", 1: "1" }),
    ],
    paint,
    painted: ["bandwidth", "query", "show_truth"],
  };
}

export default { render: picture(build) };
