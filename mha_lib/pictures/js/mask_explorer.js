// From scores through the mask to the weights, and two other ways to mask beside it. All is computed here.

import { lengthFor, matrix, rowOf, softmax, sumOf, unpack } from "./attention.js";
import { choice, drawn, element, number, picture, roving, set, slider, times } from "./elements.js";
import { heatMap, scale } from "./heat_map.js";

const LENGTHS = { example: "one for all queries", query: "one for each query", none: "None" };
const SHIFTS = { 0: "nothing", "-3000000": "−3,000,000" };
const WAYS = ["masked_softmax", "masked scores set to −1e6", "masked scores set to −∞"];

function build({ model, choose, repaint, say }) {
  const { scores } = unpack(model.get("parameters"), model.get("shapes"));
  const [batch, numQueries, numKeys] = model.get("sizes");
  let shown = null, pointed = null;

  const example = slider("example", { min: 0, max: batch - 1, onmove: (i) => choose({ example: i }) });
  const divisor = slider("divide scores by", {
    min: -2,
    max: 5,
    step: 0.5,
    onmove: (power) => choose({ divisor: 2 ** power }),
  });
  const shift = choice("then add", SHIFTS, (value) => choose({ shift: Number(value) }));
  const kind = choice("valid_lens", LENGTHS, (value) => choose({ valid_lens: givenAs(value) }));
  const lengths = times(
    numQueries,
    (query) => slider(`query ${query}`, { min: 0, max: numKeys, onmove: (length) => setLength(query, length) }),
  );

  const kindOf = (valid) => valid === null ? "none" : typeof valid === "number" ? "example" : "query";
  function givenAs(value) {
    if (value === "none") return null;
    const before = model.get("valid_lens");
    if (value === "example") return before === null ? numKeys : lengthFor(before, 0);
    return times(numQueries, (query) => before === null ? numKeys : lengthFor(before, query));
  }
  function setLength(query, length) {
    const valid = model.get("valid_lens");
    choose({ valid_lens: kindOf(valid) === "query" ? valid.with(query, length) : length });
  }

  const point = (cell) => {
    pointed = cell;
    repaint();
  };
  /** A map with its title, verdict and the sum of every row. */
  function panel(name, { onpick } = {}) {
    const map = heatMap(numQueries, numKeys, {
      numbers: true,
      role: "group",
      "aria-label": name,
      onpick,
      onhover: point,
    });
    map.cells.forEach((cell) => set(cell, { role: "img" }));
    const stopAt = roving(map.cells, numKeys, point);
    const sums = times(numQueries, () => element("span"));
    const verdict = element("p", { class: "verdict" }), title = element("p", { class: "title" }, name);
    const body = element(
      "div",
      { class: "summed" },
      element("div", { class: "row-names q" }, ...times(numQueries, (i) => element("span", {}, `q${i}`))),
      map.node,
      element("div", { class: "row-names sums" }, ...sums),
      element("div", { class: "column-names k" }, ...times(numKeys, (i) => element("span", {}, `k${i}`))),
    );
    return { map, sums, verdict, title, stopAt, node: element("div", { class: "panel" }, title, body, verdict) };
  }
  const first = panel("scores (a click ends the valid keys)", { onpick: cut });
  first.map.node.classList.add("plain");
  first.map.cells.forEach((cell) =>
    cell.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        cut(first.map.cells.indexOf(cell));
      }
    })
  );
  const panels = WAYS.map((name) => panel(name));
  const edges = times(numQueries, () => drawn("path", { class: "edge" }));
  first.map.over.append(...edges);

  /** The valid keys of a query end behind the cell, or in front of it if they ended there already. */
  function cut(cell) {
    const query = Math.floor(cell / numKeys), end = cell % numKeys + 1, valid = model.get("valid_lens");
    setLength(query, valid !== null && lengthFor(valid, query) === end ? end - 1 : end);
  }

  function compute() {
    const valid = model.get("valid_lens"), own = scores.data.subarray(model.get("example") * numQueries * numKeys);
    const level = matrix(
      numQueries,
      numKeys,
      own.slice(0, numQueries * numKeys).map((score) => score / model.get("divisor")),
    );
    const shifted = Float64Array.from(level.data, (score) => score + model.get("shift"));
    const length = (query) => valid === null ? numKeys : lengthFor(valid, query);
    const isMasked = (cell) => cell % numKeys >= length(Math.floor(cell / numKeys));
    const row = (numbers, query) => numbers.subarray(query * numKeys, (query + 1) * numKeys);
    const filled = (fill) => shifted.map((score, cell) => isMasked(cell) ? fill : score);
    const join = (rows) => Float32Array.from(rows.flatMap((own) => [...own]));
    const ways = [
      join(times(numQueries, (query) => softmax(row(shifted, query), length(query)))),
      ...[-1e6, -Infinity].map((fill) => join(times(numQueries, (query) => softmax(row(filled(fill), query))))),
    ];
    shown = { level, isMasked, length, ways: ways.map((data) => matrix(numQueries, numKeys, data)) };
  }

  function verdictOf({ data }) {
    const rows = times(numQueries, (query) => data.subarray(query * numKeys, (query + 1) * numKeys));
    const broken = rows.filter((row) => row.some(Number.isNaN)).length;
    if (broken) return [`✗ NaN in ${broken} ${broken === 1 ? "row" : "rows"}`, true];
    const leaks = rows.map((row, query) => sumOf(row.filter((_, key) => shown.isMasked(query * numKeys + key))));
    const leak = Math.max(...leaks);
    return leak < 0.005
      ? ["✓ no weight on masked keys", false]
      : [`✗ up to ${number(leak)} of a row on masked keys`, true];
  }

  function paint() {
    const valid = model.get("valid_lens"), { level, isMasked, length, ways } = shown;
    first.map.show(level.data, () => false, () => 0);
    first.map.cells.forEach((cell, i) => {
      cell.children[1].textContent = number(level.data[i], 1);
      cell.classList.toggle("faded", isMasked(i));
      const state = isMasked(i) ? ", masked" : "";
      set(cell, {
        "aria-label": `score of query ${Math.floor(i / numKeys)}, key ${i % numKeys}: ${number(level.data[i])}${state}`,
      });
      cell.classList.toggle("pointed", i === pointed);
    });
    edges.forEach((edge, query) => set(edge, { d: `M${length(query)},${query + 0.02}v.96` }));
    panels.forEach(({ map, sums, verdict }, way) => {
      map.show(ways[way].data, way === 0 ? isMasked : () => false);
      map.cells.forEach((cell, i) => {
        const weight = ways[way].data[i], words = Number.isNaN(weight) ? "NaN" : number(weight);
        cell.classList.toggle("wrong", Number.isNaN(weight) || isMasked(i) && weight >= 0.005);
        cell.classList.toggle("pointed", i === pointed);
        if (Number.isNaN(weight)) cell.children[1].textContent = "NaN";
        set(cell, {
          "aria-label": `query ${Math.floor(i / numKeys)}, key ${i % numKeys}: ${
            way === 0 && isMasked(i) ? "masked" : words
          }`,
        });
      });
      sums.forEach((node, query) => {
        const total = sumOf(rowOf(ways[way], query));
        node.textContent = Number.isNaN(total) ? "NaN" : number(total);
      });
      const [words, isWrong] = verdictOf(ways[way]);
      verdict.textContent = words;
      verdict.classList.toggle("wrong", isWrong);
    });
    example.show(model.get("example"));
    divisor.show(Math.log2(model.get("divisor")), number(model.get("divisor")));
    shift.input.value = String(model.get("shift"));
    kind.input.value = kindOf(valid);
    lengths.forEach((control, query) => {
      control.show(length(query), `${length(query)} of ${numKeys}`);
      const isOff = valid === null || (typeof valid === "number" && query > 0);
      control.input.disabled = isOff;
      control.node.classList.toggle("off", isOff);
    });
    const empty = times(numQueries, (query) => query).filter((query) => length(query) === 0);
    const readings = WAYS.map((name, way) => `${name}: ${verdictOf(ways[way])[0].slice(2)}`).join("; ");
    const pair = pointed === null
      ? ""
      : `Query ${Math.floor(pointed / numKeys)}, key ${pointed % numKeys}: score ${number(level.data[pointed])}. `;
    say(`${pair}${readings}. ${empty.length ? `Without a valid key: query ${empty.join(", ")}.` : ""}`);
  }

  const marks = element(
    "div",
    { class: "panel" },
    scale({ 0: "0", 0.25: ".25", 0.5: ".5", 1: "1" }),
    ...lengths.map(({ node }) => node),
  );
  return {
    nodes: [
      element("div", { class: "controls" }, ...(batch > 1 ? [example.node] : []), divisor.node, shift.node, kind.node),
      element("div", { class: "panels" }, first.node, panels[0].node, marks, panels[1].node, panels[2].node),
    ],
    compute,
    paint,
    computed: ["example", "divisor", "shift", "valid_lens"],
  };
}

export default { render: picture(build) };
