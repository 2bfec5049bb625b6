// From scores through the mask to the weights, and two other ways to mask beside it. All is computed here.

import { lengthFor, matrix, rowOf, softmax, sumOf } from "./attention.js";
import { drawn, element, number, picture, set, times } from "./elements.js";
import { heatMap, named, scale } from "./heat_map.js";

const LENGTHS = { example: "one for all queries", query: "one for each query", none: "None" };
const SHIFTS = { 0: "nothing", "-3000000": "−3,000,000" };
const MOST = 30; // how far a chosen score goes up and down
const WAYS = ["masked_softmax", "masked scores set to −1e6", "masked scores set to −∞"];

export default picture(({ data, state, controls, pointer, choose, point, headline, say }) => {
  const [batch, numQueries, numKeys] = data.sizes;
  let level = null, ways = [], chosen = 0;

  const kindOf = (valid) => valid === null ? "none" : typeof valid === "number" ? "example" : "query";
  const lengthOf = (query) => state.valid_lens === null ? numKeys : lengthFor(state.valid_lens, query);
  const isMasked = (cell) => cell % numKeys >= lengthOf(Math.floor(cell / numKeys));
  const given = (kind) => kind === "none" ? null : kind === "example" ? lengthOf(0) : times(numQueries, lengthOf);
  const as = (kind) => ({ valid_lens: given(kind) });
  const write = (power) => ({ divisor: 2 ** power }), words = (power) => number(2 ** power);
  const logarithm = { read: () => Math.log2(state.divisor), write, words };
  const withLength = (query, length) => ({
    valid_lens: kindOf(state.valid_lens) === "query" ? state.valid_lens.with(query, length) : length,
  });
  const scores = () => state.numbers.scores[state.example].flat();
  const toScore = {
    write(score) {
      const own = scores().with(chosen, score),
        rows = times(numQueries, (i) => own.slice(i * numKeys, (i + 1) * numKeys));
      return { numbers: { scores: state.numbers.scores.with(state.example, rows) } };
    },
    words: (score) => `q${Math.floor(chosen / numKeys)}, k${chosen % numKeys}: ${number(score, 1)}`,
  };
  const strip = controls({
    ...(batch > 1 ? { example: { max: batch - 1 } } : {}),
    divisor: { label: "divide scores by", min: -2, max: 5, step: 0.5, ...logarithm },
    shift: { label: "then add", options: SHIFTS, write: (value) => ({ shift: Number(value) }) },
    valid_lens: { options: LENGTHS, read: () => kindOf(state.valid_lens), write: as },
    score: { label: "chosen score", min: -MOST, max: MOST, step: 0.5, read: () => scores()[chosen], ...toScore },
  });
  const lengths = controls({
    ...times(numQueries, (query) => ({
      label: `query ${query}`,
      max: numKeys,
      read: () => lengthOf(query),
      write: (length) => withLength(query, length),
      words: (length) => `${length} of ${numKeys}`,
      off: () => state.valid_lens === null || (typeof state.valid_lens === "number" && query > 0),
    })),
  }, { class: "lengths" });

  /** A map with its title, verdict and the sum of every row. */
  function panel(label, onpick) {
    const map = heatMap(numQueries, numKeys, { numbers: true, label, onpick, onmove: point, onhover: point });
    const sums = times(numQueries, () => element("span")), verdict = element("p", { class: "verdict" });
    const title = element("p", { class: "title" }, label), names = (letter, n) => times(n, (i) => `${letter}${i}`);
    const body = named(map, names("q", numQueries), names("k", numKeys), sums);
    return { map, sums, verdict, node: element("div", { class: "panel" }, title, body, verdict) };
  }
  /** The valid keys of a query end behind the cell, or in front of it if they ended there already. */
  function cut(cell) {
    const query = Math.floor(cell / numKeys), end = cell % numKeys + 1;
    chosen = cell;
    choose(withLength(query, state.valid_lens !== null && lengthOf(query) === end ? end - 1 : end));
  }
  const first = panel("scores (a click chooses one and ends the valid keys)", cut),
    panels = WAYS.map((name) => panel(name));
  const edges = times(numQueries, () => drawn("path", { class: "edge" }));
  first.node.classList.add("plain");
  first.map.over.append(...edges);

  function compute() {
    const own = scores().map((score) => score / state.divisor);
    level = matrix(numQueries, numKeys, own);
    const shifted = Float64Array.from(own, (score) => score + state.shift); // as torch in float64 does
    const rows = (numbers, valid) =>
      times(numQueries, (query) => softmax(numbers.subarray(query * numKeys, (query + 1) * numKeys), valid?.(query)));
    const filled = (fill) => rows(shifted.map((score, cell) => isMasked(cell) ? fill : score));
    ways = [rows(shifted, lengthOf), filled(-1e6), filled(-Infinity)]
      .map((rows) => matrix(numQueries, numKeys, Float32Array.from(rows.flatMap((row) => [...row]))));
  }

  function verdictOf(way) {
    const rows = times(numQueries, (query) => rowOf(way, query));
    const broken = rows.filter((row) => row.some(Number.isNaN)).length;
    if (broken) return `✗ NaN in ${broken} ${broken === 1 ? "row" : "rows"}`;
    const leak = Math.max(...rows.map((row, query) => sumOf(row.subarray(lengthOf(query)))));
    return leak < 0.005 ? "✓ no weight on masked keys" : `✗ up to ${number(leak)} of a row on masked keys`;
  }

  /** What goes wrong in the two other ways, or that nothing does: parts of the headline. */
  function seen() {
    const rowsWith = (isWrong) => times(numQueries, (query) => query).filter(isWrong);
    const leaks = (query) => sumOf(rowOf(ways[1], query).subarray(lengthOf(query))) > 0.995;
    const wrong = [
      ["−1e6 puts all of ", rowsWith(leaks), " on padding"],
      ["−∞ turns ", rowsWith((query) => Number.isNaN(rowOf(ways[2], query)[0])), " into NaN"],
    ].filter(([, rows]) => rows.length);
    const named = (rows) =>
      rows.length === 1 ? `row ${rows[0]}` : rows.length < numQueries ? `rows ${rows.join(", ")}` : "every row";
    if (wrong.length) return wrong.flatMap(([does, rows, what], i) => [`${i ? "; " : ""}${does}`, named(rows) + what]);
    return [
      "",
      state.valid_lens === null ? "Nothing is masked" : "All three ways agree",
      ": no weight falls on padding",
    ];
  }

  function paint() {
    const { pointed } = pointer, verdicts = ways.map(verdictOf);
    first.map.show(level.data, undefined, () => 0);
    first.map.cells.forEach((cell, i) => set(cell.children[1], { text: number(level.data[i], 1) }));
    first.map.mark("faded", isMasked);
    first.map.say((i, query, key) =>
      `score of query ${query}, key ${key}: ${number(level.data[i])}${isMasked(i) ? ", masked" : ""}`
    );
    edges.forEach((edge, query) => set(edge, { d: `M${lengthOf(query)},${query + 0.02}v.96` }));
    panels.forEach(({ map, sums, verdict }, way) => {
      const weights = ways[way].data, hides = (i) => way === 0 && isMasked(i);
      map.show(weights, hides);
      map.mark("wrong", (i) => Number.isNaN(weights[i]) || isMasked(i) && weights[i] >= 0.005);
      map.say((i, query, key) => `query ${query}, key ${key}: ${hides(i) ? "masked" : number(weights[i])}`);
      sums.forEach((node, query) => set(node, { text: number(sumOf(rowOf(ways[way], query))) }));
      verdict.textContent = verdicts[way];
      verdict.classList.toggle("wrong", verdicts[way].startsWith("✗"));
    });
    first.map.mark("chosen", (i) => i === chosen);
    for (const { map } of [first, ...panels]) map.mark("pointed", (i) => i === pointed);
    headline(...seen());
    const empty = times(numQueries, (query) => query).filter((query) => lengthOf(query) === 0);
    const readings = WAYS.map((name, way) => `${name}: ${verdicts[way].slice(2)}`).join("; ");
    const [query, key] = [Math.floor(pointed / numKeys), pointed % numKeys];
    const pair = pointed == null ? "" : `Query ${query}, key ${key}: score ${number(level.data[pointed])}. `;
    const [low, high] = [Math.min(...level.data), Math.max(...level.data)].map((score) => number(score));
    const which = batch > 1 ? `Example ${state.example}, scores from ${low} to ${high}. ` : "";
    say(`${which}${pair}${readings}. ${empty.length ? `Without a valid key: query ${empty.join(", ")}.` : ""}`);
  }

  const marks = element("div", { class: "marks" }, scale(), lengths),
    [masked, ...others] = panels.map(({ node }) => node);
  return { nodes: [strip, element("div", { class: "panels" }, first.node, marks, masked, ...others)], compute, paint };
});
