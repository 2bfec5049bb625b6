// What the head explorer shows of a model of tokens: one head's map in large with its tokens, and all answers.

import { indexOfLargest, lengthFor, matrix, rowOf } from "./attention.js";
import { drawn, element, longest, number, times, titled } from "./elements.js";
import { heatMap, lengthEdge, named, queryFrame } from "./heat_map.js";

export function tokenStage({ data, state, pointer, choose, point, example }) {
  const { blocks, sizes, questions, note, answers, fields, source_length: sourceLength } = data;
  const numAnswers = example.targets(0).length, columns = numAnswers / questions.length;
  const starts = sizes.map((_, layer) => sizes.slice(0, layer).flat().reduce((sum, size) => sum + size, 0));
  const stage = element("div", { class: "roomy" }), title = titled();
  const inTwoLines = (name) => name.replace(" ", "\n"), linesOf = (name) => inTwoLines(name).split("\n");
  const across = (name) => longest(linesOf(name)), by = (size) => (a, b) => size(b) - size(a);
  const [long] = data.words.toSorted(by((name) => name.length)), [wide] = data.words.toSorted(by(across));
  /** The frames of all layers' maps with the longest names: they keep the room of the tallest. */
  const rooms = sizes.map(([queries, keys]) => {
    const node = drawn("svg", { viewBox: `0 0 ${keys} ${queries}` }), names = [long, inTwoLines(wide)];
    const frame = named({ node }, names, [...names, ...Array(keys - 2).fill("")]);
    return element("div", { class: "room", "aria-hidden": true }, frame);
  });
  let large = null, edge = null, band = null, frame = null, shownLayer = null;

  const namesOf = (layer) => {
    const [queries, keys] = sizes[layer], names = example.labels(state.example, starts[layer], queries + keys);
    return [names.slice(0, queries), names.slice(queries)];
  };
  const ends = (layer, valid) => valid === sizes[layer][1] ? [] : valid; // no edge where every key is valid
  /** A map whose cells choose their query; `extra` says of which head, and more. */
  const makeMap = (layer, extra, options) => {
    const onpick = ({ query }) => choose({ ...extra, query }),
      onhover = (at) => point(at ? { ...extra, ...at } : extra);
    return heatMap(...sizes[layer], { onpick, onhover, ...options });
  };

  /** A new large map, when a head of another layer comes, whose maps may have another size. */
  function build(layer) {
    shownLayer = layer;
    const onmove = (at) => (choose({ query: at.query }), point(at));
    const [queries, keys] = sizes[layer].map((count) => Array(count).fill(""));
    large = makeMap(layer, null, { gap: 0.05, label: "weights of the chosen head", onmove });
    large.node.addEventListener("focusout", () => point(null));
    edge = lengthEdge(large, ...sizes[layer]);
    band = queryFrame(large, sizes[layer][1]);
    stage.replaceChildren(frame = named(large, queries, keys), ...rooms);
  }

  const cells = times(numAnswers, () => element("td", {}, element("b"), element("small")));
  const body = questions.map((question, row) => {
    const own = times(columns, (column) => cells[column * questions.length + row]);
    return element("tr", {}, element("th", { scope: "row" }, question), ...own);
  });
  const table = element("table", { class: questions.length === 1 ? "answers one" : "answers" }, ...body);
  const answer = element("div", { class: "answer tokens", tabindex: 0, role: "group", "aria-label": "answers" }, table);

  const inputsOf = (i) => {
    const ids = example.inputs(i), valid = example.length(i);
    if (!sourceLength) return { ids, fields, valid };
    return { source: ids.slice(0, sourceLength), target: ids.slice(sourceLength), valid };
  };
  const isMasked = (valid) => (_cell, query, key) => key >= lengthFor(valid, query);

  return {
    left: [title, stage],
    answer,
    namesOf,
    inputs: inputsOf,
    current: () => inputsOf(state.example),
    laid: (logits) => times(numAnswers, (i) => rowOf(matrix(numAnswers, answers.length, logits.data), i)),

    card(place) {
      const map = makeMap(place.layer, place, { class: "map", gap: 0, role: "img" });
      const edge = lengthEdge(map, ...sizes[place.layer]);
      return {
        node: map.node,
        paint: ({ data }, valid) => (map.show(data, isMasked(valid)), edge(ends(place.layer, valid))),
      };
    },

    paint({ gated, whole, target }) {
      const { layer = state.layer, head = state.head } = pointer.pointed ?? {};
      /** Whether a key's name is too wide for its column; there is no width yet on the first paint. */
      const isUpright = (layer) => {
        const room = (stage.clientWidth - 44) / sizes[layer][1];
        return room > 0 ? across(wide) * 8.5 > room : across(wide) > 2;
      };
      if (layer !== shownLayer) build(layer);
      const query = Math.min(state.query, sizes[layer][0] - 1), [from, to] = namesOf(layer);
      const weights = gated.weights[layer][head].data, masked = isMasked(gated.valid[layer]);
      large.show(weights, masked);
      edge(ends(layer, gated.valid[layer]));
      band(query);
      large.mark("pointed", (i) => i === pointer.pointed?.cell);
      large.say((i, row, column) => {
        const words = masked(i, row, column) ? "masked" : number(weights[i]);
        return `from ${from[row]} at ${row} to ${to[column]} at ${column}: ${words}`;
      }, query * sizes[layer][1]);
      const [rowNames, columnNames] = [".row-names", ".column-names"].map((name) => frame.querySelector(name).children);
      [...rowNames].forEach((node, i) => (node.textContent = from[i], node.classList.toggle("chosen", i === query)));
      [frame, ...rooms].forEach((one, i) =>
        one.querySelector(".column-names").classList.toggle("upright", isUpright(i ? i - 1 : layer))
      );
      [...columnNames].forEach((node, i) => node.textContent = isUpright(layer) ? to[i] : inTwoLines(to[i]));
      title.textContent = `${blocks[layer]}, head ${head}${note}`;

      const found = gated.laid.map(indexOfLargest), count = found.length;
      const rightIn = (laid) => laid.filter((logits, i) => indexOfLargest(logits) === target[i]).length;
      const [right, before] = [gated, whole].map(({ laid }) => rightIn(laid));
      found.forEach((answer, i) => {
        const isRight = answer === target[i], [given, wanted] = cells[i].children;
        cells[i].classList.toggle("wrong", !isRight);
        cells[i].classList.toggle("chosen", sizes[layer][0] === columns && Math.floor(i / questions.length) === query);
        given.textContent = answers[answer];
        wanted.textContent = isRight ? "" : answers[target[i]];
      });
      const told = `${right} of ${count} answers on example ${state.example} are right.`;
      const share = `${right} of ${count} answers right`;
      const lost = (_, changed) => [`${changed} of ${count} answers`, changed === 1 ? " changes" : " change"];
      return { told, now: share, before: right === before ? share : before, lost };
    },
  };
}
