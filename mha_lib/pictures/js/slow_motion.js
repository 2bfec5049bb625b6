// One number in slow motion: q·k, ÷ √d, mask, softmax, × v for a few tokens; every number shows what it is made of.

import { lengthFor, rowOf, softmax, unpack } from "./attention.js";
import { button, element, number, picture, roving, set, times } from "./elements.js";

const STEPS = ["q · k", "÷ √d", "mask", "softmax", "× v"];
const FIRST = { q: 0, k: 0, score: 0, scaled: 1, masked: 2, weight: 3, v: 4, output: 4 }; // the step that shows it

export default picture(({ data, state, controls, pointer, choose, point, say }) => {
  const { queries, keys, values } = unpack(data);
  const size = queries.columns, n = keys.rows, width = values.columns, root = Math.sqrt(size);
  let stages = null;

  const strip = controls({
    query: { max: queries.rows - 1 },
    valid_len: { label: "valid_lens", max: n, words: (count) => `${count} of ${n}` },
  });
  const steps = STEPS.map((name, i) => button(name, () => choose({ step: i })));
  strip.append(element("div", { class: "tools", role: "group", "aria-label": "steps" }, ...steps));

  const cells = new Map();
  /** A table of numbers that can be pointed at; `name` and its place are a number's address. */
  function table(name, title, rows, columns, kind = "") {
    const own = times(rows * columns, (i) => {
      const place = { name, row: Math.floor(i / columns), column: i % columns, i };
      const node = element("span", { class: `number ${kind}`, role: "img" });
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

  function compute() {
    const q = rowOf(queries, state.query), valid = lengthFor(state.valid_len, 0);
    const score = times(n, (key) => rowOf(keys, key).reduce((total, part, i) => total + part * q[i], 0));
    const scaled = score.map((value) => value / root);
    const masked = scaled.map((value, key) => key < valid ? value : -Infinity);
    const weight = Array.from(softmax(scaled, valid));
    const output = times(width, (i) => weight.reduce((total, w, key) => total + w * rowOf(values, key)[i], 0));
    stages = { q, k: keys.data, score, scaled, masked, weight, v: values.data, output, valid };
  }

  /** The addresses of what a number is made of, and the sum that makes it. */
  function origin({ name, row, column }) {
    const product = (a, b) => `${number(a)} · ${b < 0 ? `(${number(b)})` : number(b)}`;
    const valid = stages.valid, powers = times(valid, (key) => `e^${number(stages.masked[key])}`);
    const share = `e^${number(stages.masked[row])} ÷ (${powers.join(" + ")})`;
    const parts = times(n, (key) => product(stages.weight[key], values.data[key * width + column]));
    const madeOf = {
      q: () => [[], "the query: what is looked for"],
      k: () => [[], `key ${row}: what token ${row} offers to be found by`],
      v: () => [[], `value ${row}: what token ${row} hands over`],
      score: () => [
        times(size, (i) => [`q 0 ${i}`, `k ${row} ${i}`]).flat(),
        `q · k${row} = ${times(size, (i) => product(stages.q[i], keys.data[row * size + i])).join(" + ")}`,
      ],
      scaled: () => [[`score ${row} 0`], `${number(stages.score[row])} ÷ √${size}`],
      masked: () => [[`scaled ${row} 0`], row < valid ? `key ${row} counts and stays` : `key ${row} is masked`],
      weight: () => [times(n, (key) => `masked ${key} 0`), valid ? share : "no key is valid, so every weight is 0"],
      output: () => [times(n, (key) => [`weight ${key} 0`, `v ${key} ${column}`]).flat(), parts.join(" + ")],
    };
    return madeOf[name]();
  }

  function paint() {
    const { step, query } = state, { pointed } = pointer, [causes, words] = pointed ? origin(pointed) : [[], ""];
    for (const [address, { node, name, row, column, i }] of cells) {
      const value = stages[name][i], text = step < FIRST[name] ? "" : number(value);
      node.textContent = text;
      const place = /^(k|v|q|output)$/.test(name) ? `${row} ${column}` : row;
      set(node, { "aria-label": `${name} ${place}: ${text || "not yet"}` });
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
    const made = causes.length ? ` = ${number(stages[pointed.name][pointed.i])}` : "";
    const largest = stages.weight.indexOf(Math.max(...stages.weight));
    const most = stages.valid
      ? `Most weight, ${number(stages.weight[largest])}, is on key ${largest}.`
      : "No key counts.";
    const rest = step < 3 ? "Point at a number to see what it is made of." : most;
    say(pointed ? `${words}${made}.` : `Query ${query}, ${STEPS[step]}. ${rest}`);
  }

  return { nodes: [strip, element("div", { class: "lanes" }, ...lanes.map(([, lane]) => lane))], compute, paint };
});
