// One number in slow motion: q·k, ÷ √d, mask, softmax, × v for a few tokens; every number shows what it is made of.

import { lengthFor, rowOf, softmax, unpack } from "./attention.js";
import { button, element, number, picture, roving, set, slider, times } from "./elements.js";

const STEPS = ["q · k", "÷ √d", "mask", "softmax", "× v"];

function build({ model, choose, repaint, say }) {
  const { queries, keys, values } = unpack(model.get("parameters"), model.get("shapes"));
  const size = queries.columns, root = Math.sqrt(size);
  let pointed = null, causes = new Set(), now = null;

  const query = slider("query", { min: 0, max: queries.rows - 1, onmove: (i) => choose({ query: i }) });
  const length = slider("valid_lens", { min: 0, max: keys.rows, onmove: (count) => choose({ valid_len: count }) });
  const steps = STEPS.map((name, i) => button(name, () => choose({ step: i })));
  const tools = element("div", { class: "tools", role: "group", "aria-label": "steps" }, ...steps);

  const cells = new Map();
  /** A table of numbers that can be pointed at; `name` and its place are a number's address. */
  function table(name, title, rows, columns, kind) {
    const own = times(rows * columns, (i) => {
      const node = element("span", { class: `number ${kind}`, role: "img" });
      const address = `${name} ${Math.floor(i / columns)} ${i % columns}`;
      set(node, { onpointerenter: () => point(address), onfocus: () => point(address), onblur: () => point(null) });
      cells.set(address, node);
      return node;
    });
    roving(own, columns);
    const grid = element(
      "div",
      { class: "numbers-grid", role: "group", "aria-label": title, "--columns": columns },
      ...own,
    );
    set(grid, { onpointerleave: () => point(null) });
    return element("div", { class: `stage-of ${name}` }, element("p", { class: "title" }, title), grid);
  }
  const point = (address) => {
    pointed = address;
    repaint();
  };
  const n = keys.rows;
  const lanes = [
    table("q", "the query", 1, size, "q"),
    table("k", "keys", n, size, "k"),
    table("score", "q · k", n, 1, ""),
    table("scaled", `÷ √${size}`, n, 1, ""),
    table("masked", "mask", n, 1, ""),
    table("weight", "softmax", n, 1, "cell"),
    table("v", "values", n, values.columns, "v"),
    table("output", "output", 1, values.columns, "v"),
  ];
  const firstStep = { score: 0, scaled: 1, masked: 2, weight: 3, v: 4, output: 4 };

  function compute() {
    const q = rowOf(queries, model.get("query")), valid = lengthFor(model.get("valid_len"), 0);
    const score = times(n, (key) => rowOf(keys, key).reduce((total, number, i) => total + number * q[i], 0));
    const scaled = score.map((value) => value / root);
    const masked = scaled.map((value, key) => key < valid ? value : -Infinity);
    const weight = Array.from(softmax(scaled, valid));
    const output = times(values.columns, (i) => weight.reduce((total, w, key) => total + w * rowOf(values, key)[i], 0));
    now = { q, k: keys.data, score, scaled, masked, weight, v: values.data, output, valid };
  }

  /** The addresses of what a number is made of, and the sum that makes it. */
  function origin(address) {
    const [name, row, column] = address.split(" ").map((part, i) => i ? Number(part) : part);
    const n2 = (value) => Number.isFinite(value) ? number(value) : "−∞";
    const product = (a, b) => `${n2(a)} · ${b < 0 ? `(${n2(b)})` : n2(b)}`;
    if (name === "score") {
      const pairs = times(size, (i) => product(now.q[i], keys.data[row * size + i]));
      return [
        times(size, (i) => [`q 0 ${i}`, `k ${row} ${i}`]).flat(),
        `q · k${row} = ${pairs.join(" + ")} = ${n2(now.score[row])}`,
      ];
    }
    if (name === "scaled") return [[`score ${row} 0`], `${n2(now.score[row])} ÷ √${size} = ${n2(now.scaled[row])}`];
    if (name === "masked") {
      const isValid = row < now.valid;
      return [
        [`scaled ${row} 0`],
        isValid ? `key ${row} counts: ${n2(now.masked[row])} stays` : `key ${row} is masked: −∞, so its weight is 0`,
      ];
    }
    if (name === "weight") {
      const parts = times(n, (key) => `masked ${key} 0`);
      if (now.valid === 0) return [parts, "no key is valid, so every weight is 0"];
      const powers = times(now.valid, (key) => `e^${n2(now.masked[key])}`);
      return [
        parts,
        row < now.valid ? `e^${n2(now.masked[row])} ÷ (${powers.join(" + ")}) = ${n2(now.weight[row])}` : "e^−∞ = 0",
      ];
    }
    if (name === "output") {
      const parts = times(n, (key) => product(now.weight[key], values.data[key * values.columns + column]));
      const from = times(n, (key) => [`weight ${key} 0`, `v ${key} ${column}`]).flat();
      return [from, `output ${column} = ${parts.join(" + ")} = ${n2(now.output[column])}`];
    }
    return [
      [],
      {
        q: "the query: what is looked for",
        k: `key ${row}: what token ${row} offers to be found by`,
        v: `value ${row}: what token ${row} hands over`,
      }[name],
    ];
  }

  function paint() {
    const step = model.get("step");
    const [parts, words] = pointed ? origin(pointed) : [[], ""];
    causes = new Set(parts);
    for (const [address, node] of cells) {
      const [name, row, column] = address.split(" ");
      const columns = { q: size, k: size, v: values.columns, output: values.columns }[name] ?? 1;
      const value = now[name][row * columns + Number(column)], isShown = step >= (firstStep[name] ?? 0);
      node.textContent = isShown ? Number.isFinite(value) ? number(value) : "−∞" : "";
      set(node, { "aria-label": `${name} ${row}${columns > 1 ? ` ${column}` : ""}: ${node.textContent || "not yet"}` });
      if (name === "weight") set(node, { "--w": isShown ? value.toFixed(3) : 0 });
      node.classList.toggle("cause", causes.has(address));
      node.classList.toggle("effect", address === pointed);
      node.classList.toggle(
        "dim",
        ["score", "scaled", "masked", "weight", "k", "v"].includes(name) && row >= now.valid && step >= 2,
      );
    }
    lanes.forEach((lane) => {
      const name = lane.className.split(" ")[1];
      lane.classList.toggle("later", step < (firstStep[name] ?? 0));
      lane.classList.toggle("current", firstStep[name] === step && name !== "v");
    });
    steps.forEach((node, i) => set(node, { "aria-pressed": i === step }));
    query.show(model.get("query"));
    length.show(now.valid, `${now.valid} of ${n}`);
    const largest = now.weight.indexOf(Math.max(...now.weight));
    const state = `Query ${model.get("query")}, ${STEPS[step]}. ` +
      (step < 3
        ? "Point at a number to see what it is made of."
        : now.valid === 0
        ? "No key counts."
        : `Most weight, ${number(now.weight[largest])}, is on key ${largest}.`);
    say(words ? `${words}.` : state);
  }

  return {
    nodes: [
      element("div", { class: "controls" }, query.node, length.node, tools),
      element("div", { class: "lanes" }, ...lanes),
    ],
    compute,
    paint,
    computed: ["query", "valid_len"],
    painted: ["step"],
  };
}

export default { render: picture(build) };
