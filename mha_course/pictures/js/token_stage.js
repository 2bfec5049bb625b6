// What the head explorer shows of a model of tokens: one head's map in large with its tokens, and all answers.

import { indexOfLargest, lengthFor, matrix, rowOf } from "./attention.js";
import { drawn, element, number, set, times } from "./elements.js";
import { heatMap, named } from "./heat_map.js";

export function tokenStage({ data, state, pointer, choose, point, example }) {
  const { blocks, sizes, questions, note, answers, fields, source_length: sourceLength } = data;
  const numAnswers = example.targets(0).length, columns = numAnswers / questions.length;
  const starts = sizes.map((_, layer) => sizes.slice(0, layer).flat().reduce((sum, size) => sum + size, 0));
  const stage = element("div"), title = element("p", { class: "title" });
  let large = null, shownLayer = null;
  const band = drawn("path", { class: "query" }); // the chosen query's row

  const namesOf = (layer) => {
    const [queries, keys] = sizes[layer], names = example.labels(state.example, starts[layer], queries + keys);
    return [names.slice(0, queries), names.slice(queries)];
  };
  const placeOf = (layer, cell) => ({ query: Math.floor(cell / sizes[layer][1]), key: cell % sizes[layer][1] });
  /** A map whose cells choose their query; `extra` says of which head, and more. */
  const makeMap = (layer, extra, options) => {
    const onpick = (cell) => choose({ ...extra, query: placeOf(layer, cell).query });
    const onhover = (cell) => point(cell === null ? extra : { ...extra, ...placeOf(layer, cell) });
    return heatMap(...sizes[layer], { onpick, onhover, ...options });
  };

  /** A new large map, when a head of another layer comes, whose maps may have another size. */
  function build(layer) {
    shownLayer = layer;
    const onmove = (cell) => (choose({ query: placeOf(layer, cell).query }), point(placeOf(layer, cell)));
    const [queries, keys] = sizes[layer].map((count) => Array(count).fill(""));
    large = makeMap(layer, null, { gap: 0.05, label: "weights of the chosen head", onmove });
    large.node.addEventListener("focusout", () => point(null));
    large.over.append(band);
    stage.replaceChildren(named(large, queries, keys));
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
  const isMasked = (layer, valid) => (cell) => placeOf(layer, cell).key >= lengthFor(valid, placeOf(layer, cell).query);

  return {
    left: [title, stage],
    answer,
    namesOf,
    inputs: inputsOf,
    current: () => inputsOf(state.example),
    laid: (logits) => times(numAnswers, (i) => rowOf(matrix(numAnswers, answers.length, logits.data), i)),

    card(place) {
      const map = makeMap(place.layer, place, { class: "map", gap: 0, role: "img" });
      return { node: map.node, paint: ({ data }, valid) => map.show(data, isMasked(place.layer, valid)) };
    },

    paint({ gated, whole, target }) {
      const { layer = state.layer, head = state.head } = pointer.pointed ?? {};
      const room = (stage.clientWidth - 44) / sizes[layer][1]; // pixels for a key's name; names of queries stand beside
      if (layer !== shownLayer) build(layer);
      const query = Math.min(state.query, sizes[layer][0] - 1), [from, to] = namesOf(layer);
      const weights = gated.weights[layer][head].data, masked = isMasked(layer, gated.valid[layer]);
      large.show(weights, masked);
      set(band, { d: `M0,${query}H${sizes[layer][1]}V${query + 1}H0Z` });
      const { pointed } = pointer, at = pointed?.key === undefined ? -1 : pointed.query * sizes[layer][1] + pointed.key;
      large.mark("pointed", (i) => i === at);
      large.say((i, row, column) => {
        const words = masked(i) ? "masked" : number(weights[i]);
        return `from ${from[row]} at ${row} to ${to[column]} at ${column}: ${words}`;
      }, query * sizes[layer][1]);
      const [rowNames, columnNames] = [".row-names", ".column-names"].map((name) => stage.querySelector(name).children);
      [...rowNames].forEach((node, i) => (node.textContent = from[i], node.classList.toggle("chosen", i === query)));
      const inTwoLines = to.map((name) => name.replace(" ", "\n"));
      const longest = Math.max(...inTwoLines.join("\n").split("\n").map(({ length }) => length));
      const isUpright = room > 0 ? longest * 8.5 > room : longest > 2; // there is no room yet on the first paint
      stage.querySelector(".column-names").classList.toggle("upright", isUpright);
      [...columnNames].forEach((node, i) => node.textContent = isUpright ? to[i] : inTwoLines[i]);
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
