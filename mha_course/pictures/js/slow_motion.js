// Attention in motion: a query and its keys as arrows that are dragged; products, weights and output follow the hand.

import { softmax, sumOf } from "./attention.js";
import { drawn, element, inPercent, number, picture, roving, set, times, titled } from "./elements.js";
import { player } from "./player.js";
import { firstLargest } from "./told.js";

const STEPS = ["q · k", "÷ √d", "mask", "softmax", "× v"], PAUSE_OF_STEP = 1100;
const WALK = ["score", "scaled", "masked", "weight", "output"]; // where one number stands in each step
const FIRST = { q: 0, k: 0, score: 0, scaled: 1, masked: 2, weight: 3, v: 4, output: 4 }; // the step that shows it
const GRID = 0.25, LEAST_REACH = 3; // what a tip keeps to, and how far a plane reaches at least
const HALF = 100, INNER = 80; // of a plane's drawing, and as far as a vector reaches in it
const BY_KEY = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export default picture((shared) => {
  const { state, controls, pointer, choose, point, headline, say } = shared, { queries, keys, values } = state.numbers;
  const n = keys.length, size = 2; // features
  const reach = Math.ceil(Math.max(LEAST_REACH, ...[queries, keys, values].flat(2).map(Math.abs)));
  let stages = null, touched = null; // the key whose number walks, when one was touched

  const length = { label: "valid_lens", max: n, words: (count) => `${count} of ${n}` };
  const which = queries.length > 1 ? { query: { max: queries.length - 1 } } : {};
  const strip = controls({ ...which, valid_len: length }, { class: "controls of-length" });
  const walk = player(STEPS, shared, [], { label: "step", pause: PAUSE_OF_STEP, words: (step) => STEPS[step] });
  const top = element("div", { class: "motion-top" }, strip, walk.node);

  const vectors = [], output = drawn("circle", { class: "pooled" });
  const onGrid = (x) => Math.min(Math.max(GRID * Math.round(x / GRID), -reach), reach);
  /** A vector in a plane, whose tip is dragged or moved by arrow keys. */
  function vector(given, row, plane) {
    const kind = given[0], isQuery = given === "queries", rowNow = () => isQuery ? state.query : row;
    const at = () => state.numbers[given][rowNow()];
    function move(to) {
      touched = given === "keys" ? row : touched;
      choose({ numbers: { ...state.numbers, [given]: state.numbers[given].with(rowNow(), to.map(onGrid)) } });
    }
    let hold = null; // from where a hand drags
    const onpointerdown = ({ target, pointerId, x, y }) => {
      target.setPointerCapture(pointerId);
      hold = [x, y, ...at()];
    };
    const onpointermove = ({ buttons, x, y }) => {
      const unit = 2 * reach * HALF / INNER / plane.clientWidth;
      if (buttons && hold) move([hold[2] + unit * (x - hold[0]), hold[3] - unit * (y - hold[1])]);
    };
    const onkeydown = (event) => {
      const by = BY_KEY[event.key];
      if (by) (event.preventDefault(), move(at().map((x, i) => x + GRID * by[i])));
    };
    const label = isQuery ? "query" : `${given.slice(0, -1)} ${row}`,
      hands = { onpointerdown, onpointermove, onkeydown };
    const tip = element("div", { class: `tip ${kind}`, role: "slider", tabindex: 0, "aria-label": label, ...hands });
    set(tip, { "aria-valuemin": -reach, "aria-valuemax": reach });
    const line = drawn("path", { class: kind === "v" ? "arc" : `arrow ${kind}` });
    tip.textContent = isQuery ? "q" : kind + row;
    vectors.push({ kind, row, at, line, dot: drawn("circle", { class: "point", r: 3 }), tip });
    return vectors.at(-1);
  }
  /** A plane with its vectors, and what stands on them. */
  function plane(title, given, ...above) {
    const drawing = drawn("svg", { viewBox: "-100 -100 200 200", "aria-hidden": true });
    const field = element("div", { class: "plane" }, drawing);
    const own = given.flatMap(([name, count]) => times(count, (row) => vector(name, row, field)));
    drawing.append(drawn("path", { class: "ground", d: "M-100,0H100M0,-100V100" }), ...own.map(({ line }) => line));
    if (above.length) drawing.append(...own.map(({ dot }) => dot), ...above);
    field.append(...own.map(({ tip }) => tip));
    return element("div", { class: "plane-of" }, titled(title), field);
  }
  const bars = times(n, (key) => element("div", { class: "bar-of" }, `k${key}`, element("i", { class: "bar" })));
  const shares = element("div", { class: "shares", "aria-hidden": true }, titled("softmax"), ...bars);
  const motion = element("div", { class: "motion" }, plane("q, keys", [["keys", n], ["queries", 1]]), shares);
  motion.append(plane("values, output", [["values", n]], output));

  const cells = new Map();
  /** A table of numbers that can be pointed at; `name` and its place are a number's address. */
  function table(name, title, rows, columns, kind = "") {
    const own = times(rows * columns, (i) => {
      const place = { name, row: Math.floor(i / columns), column: i % columns, i }, here = () => point(place);
      const acts = { onpointerenter: here, onfocus: here, onblur: () => point(null) };
      const node = element("span", { class: `number ${kind}`, role: "img", ...acts });
      cells.set(`${name} ${place.row} ${place.column}`, { node, ...place });
      return node;
    });
    roving(own, columns);
    const grid = { class: "numbers-grid", role: "group", "aria-label": title, "--columns": columns };
    const lane = element("div", { class: `stage-of ${name}`, onpointerleave: () => point(null) });
    lane.append(titled(title), element("div", grid, ...own));
    return [name, lane];
  }
  const lanes = [
    table("q", "the query", 1, size, "q"),
    table("k", "keys", n, size, "k"),
    table("score", "q · k", n, 1),
    table("scaled", `÷ √${size}`, n, 1),
    table("masked", "mask", n, 1),
    table("weight", "softmax", n, 1, "cell"),
    table("v", "values", n, size, "v"),
    table("output", "output", 1, size, "v"),
  ];

  const threads = drawn("svg", { class: "threads", "aria-hidden": true }, drawn("path"));
  const walker = element("span", { class: "walker", "aria-hidden": true });
  const field = element("div", { class: "lanes" }, threads, ...lanes.map(([, lane]) => lane), walker);

  function compute() {
    const { queries, keys, values } = state.numbers, q = queries[state.query], valid = state.valid_len;
    const score = keys.map((key) => sumOf(key.map((part, i) => part * q[i])));
    const scaled = score.map((value) => value / Math.sqrt(size)), weight = Array.from(softmax(scaled, valid));
    const masked = scaled.map((value, key) => key < valid ? value : -Infinity);
    const output = times(size, (i) => sumOf(weight.map((w, key) => w * values[key][i])));
    stages = { q, k: keys.flat(), score, scaled, masked, weight, v: values.flat(), output, valid };
  }

  /** The addresses of what a number is made of, and the sum that makes it. */
  function origin({ name, row, column }) {
    const signed = (value) => value < 0 ? `(${number(value)})` : number(value);
    const product = (a, b) => `${signed(a)} · ${signed(b)}`, { valid } = stages;
    const powers = times(valid, (key) => `e^${number(stages.masked[key])}`);
    const share = `e^${number(stages.masked[row])} ÷ (${powers.join(" + ")})`;
    const parts = times(n, (key) => product(stages.weight[key], stages.v[key * size + column]));
    const madeOf = {
      q: () => [[], "the query: what is looked for"],
      k: () => [[], `key ${row}: what token ${row} offers to be found by`],
      v: () => [[], `value ${row}: what token ${row} hands over`],
      score: () => [
        times(size, (i) => [`q 0 ${i}`, `k ${row} ${i}`]).flat(),
        `q · k${row} = ${times(size, (i) => product(stages.q[i], stages.k[row * size + i])).join(" + ")}`,
      ],
      scaled: () => [[`score ${row} 0`], `${number(stages.score[row])} ÷ √${size}`],
      masked: () => [[`scaled ${row} 0`], row < valid ? `key ${row} counts and stays` : `key ${row} is masked`],
      weight: () => [times(n, (key) => `masked ${key} 0`), valid ? share : "no key is valid, so every weight is 0"],
      output: () => [times(n, (key) => [`weight ${key} 0`, `v ${key} ${column}`]).flat(), parts.join(" + ")],
    };
    return madeOf[name]();
  }

  const listed = (numbers) => `(${numbers.map((value) => number(value)).join(", ")})`;
  /** What each step does, in its largest number: parts of the headline. */
  function done(step) {
    const { valid, score, scaled, weight, output } = stages;
    const gone = n - valid, [fits, most] = [score, weight].map((own) => firstLargest(own, 2));
    if (step === 0) return ["q · k: ", `key ${fits} fits query ${state.query} best`, `, ${number(score[fits])}`];
    if (step === 1) return [`÷ √${size}: `, `${number(score[fits])} becomes ${number(scaled[fits])}`];
    const fall = gone ? `the last ${gone === 1 ? "key falls" : `${gone} keys fall`} out` : "all keys count";
    if (step === 2) return ["mask: ", fall];
    if (!valid) return ["no key counts: ", "every weight is 0"];
    if (step === 3) return [`softmax: key ${most} gets `, `${inPercent(weight[most])}\u00a0%`, " of the weight"];
    return ["output: ", listed(output), `, mostly value ${most}`];
  }

  /** Lines from the causes to the number that they make. */
  function draw(causes, to) {
    const middle = (node) => [node.offsetLeft + node.offsetWidth / 2, node.offsetTop + node.offsetHeight / 2];
    const [x, y] = to ? middle(to) : [];
    const lines = causes.map((address) => middle(cells.get(address).node)).map(([a, b]) =>
      `M${a},${b}C${(a + x) / 2},${b} ${(a + x) / 2},${y} ${x},${y}`
    );
    set(threads, { viewBox: `0 0 ${field.clientWidth} ${field.clientHeight}` });
    set(threads.firstChild, { d: lines.join("") });
  }

  /** Vectors as they are now; a value's line leads to the output, and is as wide as its weight. */
  function drawVectors(step) {
    const place = ([x, y]) => [INNER * x / reach, -INNER * y / reach], { valid, weight, output: made } = stages;
    const text = ([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`;
    for (const { kind, row, at, line, dot, tip } of vectors) {
      const own = at(), [x, y] = place(own), far = Math.hypot(x, y) || 1, isValid = kind === "q" || row < valid;
      const [u, v] = far > 1 ? [x / far, y / far] : [0, -1], tipAt = text([x, y]);
      const [left, right] = [1, -1].map((side) => text([x - 9 * u - 5 * side * v, y - 9 * v + 5 * side * u]));
      set(dot, { cx: x, cy: y });
      if (kind === "v") {
        const d = `M${tipAt}L${text(place(made))}`;
        const thick = step < FIRST.v || !weight[row] ? 0 : 1 + 9 * weight[row];
        set(line, { d, "--w": weight[row].toFixed(3), "stroke-width": thick });
      } else set(line, { d: `M0,0L${tipAt}${far > 9 && isValid ? `M${left}L${tipAt}L${right}` : ""}` });
      set(line, { ".masked": !isValid });
      set(tip, { ".hatched": !isValid, "--x": x / HALF, "--y": y / HALF, "--u": u, "--v": v }); // its name stands beyond it
      set(tip, { "aria-valuenow": own[0], "aria-valuetext": listed(own) });
    }
    const [cx, cy] = place(made).map((x) => x.toFixed(1));
    set(output, { cx, cy, r: step < FIRST.output ? 0 : 7 });
    bars.forEach((bar, key) => set(bar.lastChild, { "--w": step < FIRST.weight ? 0 : weight[key].toFixed(3) }));
  }

  /** The number that walks from step to step while they play. */
  function drawWalker(step) {
    const key = touched ?? firstLargest(stages.weight, 2), name = WALK[step], row = name === "output" ? 0 : key;
    const { node, i } = cells.get(`${name} ${row} 0`);
    set(walker, { hidden: walk.isPlaying() ? null : "", text: number(stages[name][i]) });
    set(walker, { "--x": `${node.offsetLeft}px`, "--y": `${node.offsetTop}px` });
  }

  function paint() {
    const { step, query } = state, { pointed } = pointer, { valid } = stages;
    const [causes, words] = pointed ? origin(pointed) : [[], ""];
    for (const [address, { node, name, row, column, i }] of cells) {
      const value = stages[name][i], text = step < FIRST[name] ? "" : number(value);
      const place = /^(k|v|q|output)$/.test(name) ? `${row} ${column}` : row, isOfKey = !/^(q|output)$/.test(name);
      set(node, { text, "aria-label": `${name} ${place}: ${text || "not yet"}`, ".cause": causes.includes(address) });
      if (name === "weight") set(node, { "--w": text ? value.toFixed(3) : 0 });
      set(node, { ".effect": name === pointed?.name && i === pointed.i, ".hatched": isOfKey && row >= valid });
      set(node, { ".last": isOfKey && row === valid - 1, ".after": isOfKey && !row && !valid });
    }
    for (const [name, lane] of lanes) {
      set(lane, { ".later": step < FIRST[name], ".current": FIRST[name] === step && !/^[qkv]$/.test(name) });
    }
    draw(causes, pointed && cells.get(`${pointed.name} ${pointed.row} ${pointed.column}`).node);
    drawVectors(step);
    drawWalker(step);
    walk.paint();
    headline(...done(step));
    const made = causes.length ? ` = ${number(stages[pointed.name][pointed.i])}` : "";
    const largest = firstLargest(stages.weight, 2), share = number(stages.weight[largest]);
    const most = valid ? `Most weight, ${share}, is on key ${largest}.` : "No key counts.";
    const rest = step === 3 && valid ? " The weights sum to 1." : "";
    if (pointed) say(`${words}${made}.`);
    else say(`Query ${query}, ${STEPS[step]}.${rest}`, step < 3 ? "" : most);
  }

  return {
    nodes: [top, motion, field],
    compute,
    paint,
    end: walk.stop,
    hint: "Drag an arrow, press ▶, or point at a number.",
    room: [48, 0, 20 + 17 * n],
  };
});
