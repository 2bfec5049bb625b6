// Kernel regression as attention: drag the query, choose the width, see the curve, the kernel and the attention row.

import { softmax, sumOf, unpack } from "./attention.js";
import { drawn, heed, number, picture, set, times } from "./elements.js";
import { scale } from "./heat_map.js";
import { rounded } from "./told.js";

const HIGH = 300, BELL = 90, ROW = 34, PAD = 50, FOOT = HIGH + BELL + 12; // units of the drawing
const WIDE = 900, NARROW = 450; // its width; on a phone all is half as wide, and as high as before
const PHONE = 620; // pixels
const TOP = 0.4; // the weight where the scale ends: of many points hardly one gets more

/** Round numbers from low to high, about six. */
function roundNumbers(low, high) {
  const power = 10 ** Math.floor(Math.log10((high - low) / 5));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => (high - low) / size <= 7);
  const first = Math.ceil(low / step), count = Math.floor(high / step) - first + 1;
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  return times(count, (i) => [(first + i) * step, number((first + i) * step, digits)]);
}

export default picture(({ data, state, frame, controls, choose, headline, say }) => {
  const { x: { data: x }, y: { data: y }, truth_x: truthX, truth_y: truthY } = unpack(data);
  const { units } = data, inX = (at) => `${number(at)}${units.x}`;
  const [low, high] = data.x_range, spread = high - low, inside = (at) => Math.min(Math.max(at, low), high);
  const bottom = Math.min(...y), top = Math.max(...y), room = 0.1 * (top - bottom) || 1;
  let width = 0; // of the drawing, in its units
  const across = (at) => PAD + (at - low) / spread * (width - PAD - 14);
  const up = (value) => HIGH - 14 - (value - bottom + room) / (top - bottom + 2 * room) * (HIGH - 28);
  const middle = Math.log10(spread / 10), write = (power) => ({ bandwidth: 10 ** power });
  const logarithm = { read: () => Math.log10(state.bandwidth), write, words: (power) => inX(10 ** power) };

  const strip = controls({
    bandwidth: { label: "width σ", min: middle - 1.3, max: middle + 1, step: "any", ...logarithm },
    query: { min: low, max: high, step: spread / 200, write: (query) => ({ query: inside(query) }), words: inX },
    ...(truthX ? { show_truth: { label: "show the truth", check: true } } : {}),
  });

  const path = (name) => drawn("path", { class: name });
  const curve = path("curve"), real = path("truth"), bell = path("curve thin"), line = path("query-line");
  const kernels = path("stems"), answer = drawn("circle", { class: "answer-dot", r: 8 });
  const text = (kind, words, place) => drawn("text", { class: `axis ${kind}`, ...place }, words);
  const chart = drawn("svg", { class: "chart", role: "img" }), ground = (d) => drawn("path", { class: "ground", d });
  let dots = [], cells = [];
  heed(chart, (share) => choose({ query: inside(low + (share * width - PAD) / (width - PAD - 14) * spread) }));

  /** Draw anew what depends on the width of the drawing alone. */
  function layOut(wanted) {
    if (wanted === width) return;
    width = wanted;
    const values = roundNumbers(bottom, top).flatMap(([value, words]) => {
      const height = up(value);
      return [ground(`M${PAD},${height}H${width - 14}`), text("left", words + units.y, { x: PAD - 8, y: height })];
    });
    const axis = ground(`M${PAD},${HIGH + BELL}H${width - 14}`);
    const name = text("left", "kernel", { x: width - 18, y: HIGH + BELL - 15 });
    dots = Array.from(x, (at, i) => drawn("circle", { class: "dot", cx: across(at), cy: up(y[i]) }));
    const edges = times(x.length + 1, (i) => across(i === 0 ? low : i === x.length ? high : (x[i - 1] + x[i]) / 2));
    cells = times(x.length, (i) => {
      const box = { x: edges[i], y: FOOT, width: Math.max(edges[i + 1] - edges[i], 0.5), height: ROW };
      return drawn("g", { class: "cell" }, drawn("rect", box));
    });
    const hours = roundNumbers(low, high).map(([at, words]) =>
      text("below", words + units.x, { x: across(at), y: FOOT + ROW + 20 })
    );
    set(chart, { viewBox: `0 0 ${width} ${FOOT + ROW + 28}` });
    chart.replaceChildren(...values, axis, name, real, ...dots, kernels, bell, curve, ...cells, line, answer, ...hours);
  }

  /** −(at − query)² / (2 bandwidth²), the score of a Gaussian kernel. */
  const score = (at, query) => -(((at - query) / state.bandwidth) ** 2) / 2;
  const weightsOf = (query) => softmax(Array.from(x, (at) => score(at, query)));
  const pooled = (query) => sumOf(weightsOf(query).map((weight, i) => weight * y[i]));
  const through = (points) => `M${points.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join("L")}`;
  const places = times(161, (i) => low + spread * i / 160); // where curves are known
  const along = (height) => through(places.map((at) => [across(at), height(at)]));

  function paint() {
    layOut(frame.clientWidth > PHONE || !frame.clientWidth ? WIDE : NARROW);
    const { query, show_truth: isShown } = state, weights = weightsOf(query), value = pooled(query);
    const height = (at) => HIGH + BELL - (BELL - 14) * Math.exp(score(at, query));
    const stems = Array.from(x, (at) => `M${across(at).toFixed(1)},${HIGH + BELL}V${height(at).toFixed(1)}`);
    const truth = isShown && truthX ? through([...truthX.data].map((at, i) => [across(at), up(truthY.data[i])])) : null;
    set(curve, { d: along((at) => up(pooled(at))) });
    set(bell, { d: along(height) });
    set(kernels, { d: stems.join("") });
    set(line, { d: `M${across(query)},6V${FOOT + ROW}` });
    set(answer, { cx: across(query), cy: up(value) });
    set(real, { d: truth });
    dots.forEach((dot, i) => set(dot, { r: (2.2 + 13 * Math.sqrt(weights[i])).toFixed(2) }));
    [...dots, ...cells].forEach((node, i) => set(node, { "--w": Math.min(weights[i % x.length] / TOP, 1).toFixed(3) }));
    const sorted = [...weights].sort((a, b) => b - a), largest = number(sorted[0]);
    const [most, ...others] = [...weights.keys()].filter((i) => number(weights[i]) === largest);
    let needed = 0; // ten equal weights: nine carry 90 %, whatever the last bit of their sum is
    for (let sum = 0; rounded(sum, 6) < 0.9 && needed < sorted.length; needed++) sum += sorted[needed];
    const carry = `${needed} of ${x.length} points ${needed === 1 ? "carries" : "carry"} 90\u00a0%`;
    const heaviest = others.length ? `of ${others.length + 1} points` : `at ${inX(x[most])}`;
    const words = `At ${inX(query)} the pooled value is ${number(value)}${units.y}. The largest weight is ` +
      `${largest}, ${heaviest}. Width σ ${inX(state.bandwidth)}.`;
    headline("", carry, " of the weight at ", inX(query));
    set(chart, { "aria-label": words });
    say(words, `${carry} of the weight.`);
  }

  return {
    nodes: [strip, chart, scale({ 0: "weight 0", 0.2: ".2", [TOP]: "≥ .4" }, (weight) => weight / TOP)],
    paint,
    hint: "Drag the line in the chart.",
    room: [58, 0, 125],
  };
});
