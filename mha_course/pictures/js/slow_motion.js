// One number in slow motion: q·k, ÷ √d, mask, softmax, × v for a few tokens; every number shows what it is made of.

import { lengthFor, softmax } from "./attention.js";
import { button, drawn, element, inPercent, number, picture, roving, set, times } from "./elements.js";
import { firstLargest } from "./told.js";

const STEPS = ["q · k", "÷ √d", "mask", "softmax", "× v"];
const GIVEN = { q: "queries", k: "keys", v: "values" }; // numbers that can be changed
const MOST = 4; // how large they can be made
const FIRST = { q: 0, k: 0, score: 0, scaled: 1, masked: 2, weight: 3, v: 4, output: 4 }; // the step that shows it

export default picture(({ state, controls, pointer, choose, point, repaint, headline, say }) => {
  const { queries, keys, values } = state.numbers;
  const size = keys[0].length, n = keys.length, width = values[0].length, root = Math.sqrt(size);
  let stages = null, chosen = { name: "q", row: 0, column: 0 };

  /** Where a number that can be changed stands: in queries, keys or values, its row and its column. */
  const addressOf = ({ name, row, column }) => [GIVEN[name], name === "q" ? state.query : row, column];
  function write(value) {
    const [given, row, column] = addressOf(chosen), own = state.numbers[given];
    return { numbers: { ...state.numbers, [given]: own.with(row, own[row].with(column, value)) } };
  }
  function read() {
    const [given, row, column] = addressOf(chosen);
    return state.numbers[given][row][column];
  }
  const most = Math.max(MOST, ...[queries, keys, values].flat(2).map(Math.abs));

  const strip = controls({
    query: { max: queries.length - 1 },
    valid_len: { label: "valid_lens", max: n, words: (count) => `${count} of ${n}` },
    number: { label: "chosen number", min: -most, max: most, step: 0.25, read, write, words: (value) => number(value) },
  });
  const steps = STEPS.map((name, i) => button(name, () => choose({ step: i })));
  strip.append(element("div", { class: "tools", role: "group", "aria-label": "steps" }, ...steps));

  const cells = new Map();
  /** A table of numbers that can be pointed at; `name` and its place are a number's address. */
  function table(name, title, rows, columns, kind = "") {
    const own = times(rows * columns, (i) => {
      const place = { name, row: Math.floor(i / columns), column: i % columns, i };
      const canChange = name in GIVEN, act = () => (chosen = place, repaint());
      const node = element("span", { class: `number ${kind}`, role: canChange ? "button" : "img" });
      if (canChange) set(node, { onclick: act, onkeydown: ({ key }) => key === "Enter" && act() });
      set(node, { onpointerenter: () => point(place), onfocus: () => point(place), onblur: () => point(null) });
      cells.set(`${name} ${place.row} ${place.column}`, { node, ...place });
      return node;
    });
    roving(own, columns);
    const grid = { class: "numbers-grid", role: "group", "aria-label": title, "--columns": columns };
    const lane = element("div", { class: `stage-of ${name}`, onpointerleave: () => point(null) });
    lane.append(element("p", { class: "title" }, title), element("div", grid, ...own));
    return [name, lane];
  }
  const lanes = [
    table("q", "the query", 1, size, "q"),
    table("k", "keys", n, size, "k"),
    table("score", "q · k", n, 1),
    table("scaled", `÷ √${size}`, n, 1),
    table("masked", "mask", n, 1),
    table("weight", "softmax", n, 1, "cell"),
    table("v", "values", n, width, "v"),
    table("output", "output", 1, width, "v"),
  ];

  const threads = drawn("svg", { class: "threads", "aria-hidden": true }, drawn("path"));
  const field = element("div", { class: "lanes" }, threads, ...lanes.map(([, lane]) => lane));
  const sum = element("p", { class: "sum", "aria-hidden": true });

  function compute() {
    const { queries, keys, values } = state.numbers, q = queries[state.query], valid = lengthFor(state.valid_len, 0);
    const score = keys.map((key) => key.reduce((total, part, i) => total + part * q[i], 0));
    const scaled = score.map((value) => value / root);
    const masked = scaled.map((value, key) => key < valid ? value : -Infinity);
    const weight = Array.from(softmax(scaled, valid));
    const output = times(width, (i) => weight.reduce((total, w, key) => total + w * values[key][i], 0));
    stages = { q, k: keys.flat(), score, scaled, masked, weight, v: values.flat(), output, valid };
  }

  /** The addresses of what a number is made of, and the sum that makes it. */
  function origin({ name, row, column }) {
    const signed = (value) => value < 0 ? `(${number(value)})` : number(value);
    const product = (a, b) => `${signed(a)} · ${signed(b)}`;
    const valid = stages.valid, powers = times(valid, (key) => `e^${number(stages.masked[key])}`);
    const share = `e^${number(stages.masked[row])} ÷ (${powers.join(" + ")})`;
    const parts = times(n, (key) => product(stages.weight[key], stages.v[key * width + column]));
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

  /** What each step does, in its largest number: parts of the headline. */
  function done(step) {
    const { valid, score, scaled, weight, output } = stages;
    const gone = n - valid, [fits, most] = [score, weight].map((own) => firstLargest(own, 2));
    if (step === 0) return ["q · k: ", `key ${fits} fits query ${state.query} best`, `, ${number(score[fits])}`];
    if (step === 1) return [`÷ √${size}: `, `${number(score[fits])} becomes ${number(scaled[fits])}`];
    if (step === 2) {
      return ["mask: ", gone ? `the last ${gone === 1 ? "key falls" : `${gone} keys fall`} out` : "all keys count"];
    }
    if (!valid) return ["no key counts: ", "every weight is 0"];
    if (step === 3) {
      return [`softmax: key ${most} gets `, `${inPercent(weight[most])}\u00a0%`, " of the weight"];
    }
    return ["output: ", `(${output.map((value) => number(value)).join(", ")})`, `, mostly value ${most}`];
  }

  /** Lines from the causes to the number that they make. */
  function draw(causes, to) {
    const middle = (
      { offsetLeft, offsetTop, offsetWidth, offsetHeight },
    ) => [offsetLeft + offsetWidth / 2, offsetTop + offsetHeight / 2];
    const [x, y] = to ? middle(to) : [];
    const lines = causes.map((address) => middle(cells.get(address).node)).map(([a, b]) =>
      `M${a},${b}C${(a + x) / 2},${b} ${(a + x) / 2},${y} ${x},${y}`
    );
    set(threads, { viewBox: `0 0 ${field.clientWidth} ${field.clientHeight}` });
    set(threads.firstChild, { d: lines.join("") });
  }

  function paint() {
    const { step, query } = state, { pointed } = pointer, [causes, words] = pointed ? origin(pointed) : [[], ""];
    for (const [address, { node, name, row, column, i }] of cells) {
      const value = stages[name][i], text = step < FIRST[name] ? "" : number(value);
      node.textContent = text;
      const place = /^(k|v|q|output)$/.test(name) ? `${row} ${column}` : row;
      set(node, { "aria-label": `${name} ${place}: ${text || "not yet"}` });
      const isChosen = name === chosen.name && row === chosen.row && column === chosen.column;
      if (name in GIVEN) set(node, { "aria-pressed": isChosen });
      if (name === "weight") set(node, { "--w": text ? value.toFixed(3) : 0 });
      node.classList.toggle("cause", causes.includes(address));
      node.classList.toggle("effect", name === pointed?.name && i === pointed.i);
      node.classList.toggle("dim", /^(k|v|score|scaled)$/.test(name) && row >= stages.valid && step >= 2);
    }
    for (const [name, lane] of lanes) {
      lane.classList.toggle("later", step < FIRST[name]);
      lane.classList.toggle("current", FIRST[name] === step && !/^[qkv]$/.test(name));
    }
    steps.forEach((node, i) => set(node, { "aria-pressed": i === step }));
    draw(causes, pointed && cells.get(`${pointed.name} ${pointed.row} ${pointed.column}`).node);
    headline(...done(step));
    const made = causes.length ? ` = ${number(stages[pointed.name][pointed.i])}` : "";
    const largest = firstLargest(stages.weight, 2), share = number(stages.weight[largest]);
    const most = stages.valid ? `Most weight, ${share}, is on key ${largest}.` : "No key counts.";
    const rest = step === 3 && stages.valid ? " The weights sum to 1." : "";
    set(sum, { text: pointed ? `${words}${made}` : "" });
    if (pointed) say(`${words}${made}.`);
    else say(`Query ${query}, ${STEPS[step]}.${rest}`, step < 3 ? "" : most);
  }

  return {
    nodes: [strip, field, sum],
    compute,
    paint,
    hint: "Choose a step, or point at a number to see what it is made of.",
  };
});
