// What the head explorer shows of a model of tokens: one head's map in large with its tokens, and all answers.

import { indexOfLargest, lengthFor, matrix, rowsOf } from "./attention.js";
import { element, roving, set, times } from "./elements.js";
import { heatMap } from "./heat_map.js";

export function tokenStage({ model, choose, point, example, blocks }) {
  const { questions, answers, fields, source_length: sourceLength, sizes } = model.get("task");
  const isPair = sourceLength > 0;
  const numAnswers = example.targets(0).length, rows = questions.length, columns = numAnswers / rows;
  const starts = sizes.map((_, layer) =>
    sizes.slice(0, layer).reduce((sum, [queries, keys]) => sum + queries + keys, 0)
  );

  const stage = element("div", { class: "framed" }), title = element("p", { class: "title" });
  let large = null, shownLayer = null, stopAt = () => {}, rowNames = [], columnNames = [];

  /** A new large map, when a head of another layer comes, whose maps may have another size. */
  function build(layer) {
    const [queries, keys] = sizes[layer];
    shownLayer = layer;
    large = heatMap(queries, keys, {
      gap: 0.05,
      role: "group",
      "aria-label": "weights of the head in large",
      onpick: (cell) => choose({ query: Math.floor(cell / keys) }),
      onhover: (cell) => point(cell === null ? null : { query: Math.floor(cell / keys), key: cell % keys }),
    });
    large.cells.forEach((cell) => set(cell, { role: "img" }));
    stopAt = roving(large.cells, keys, (cell) => {
      choose({ query: Math.floor(cell / keys) });
      point({ query: Math.floor(cell / keys), key: cell % keys });
    });
    large.node.addEventListener("focusout", () => point(null));
    rowNames = times(queries, () => element("span"));
    columnNames = times(keys, () => element("span"));
    stage.replaceChildren(
      element("div", { class: "row-names" }, ...rowNames),
      large.node,
      element("div", { class: "column-names" }, ...columnNames),
    );
  }

  const namesOf = (layer) => {
    const names = example.labels(model.get("example"), starts[layer], sizes[layer][0] + sizes[layer][1]);
    return [names.slice(0, sizes[layer][0]), names.slice(sizes[layer][0])];
  };
  const cells = times(numAnswers, () => element("td", {}, element("b"), element("small")));
  const rowOfCells = (row) => times(columns, (column) => cells[column * rows + row]);
  const body = times(
    rows,
    (row) => element("tr", {}, element("th", { scope: "row" }, questions[row]), ...rowOfCells(row)),
  );
  const table = element("table", { class: rows === 1 ? "answers one" : "answers" }, ...body);

  const inputsOf = (i) => {
    const ids = example.inputs(i), valid = example.length(i);
    if (!isPair) return { ids, fields, valid };
    return { source: ids.slice(0, sourceLength), target: ids.slice(sourceLength), valid };
  };

  return {
    left: [title, stage],
    answer: element("div", { class: "answer tokens", tabindex: 0, role: "group", "aria-label": "answers" }, table),
    marks: { 0: "0", 0.25: ".25", 0.5: ".5", 1: "1" },
    shade: (weight) => weight,
    queryNames: (layer) => namesOf(layer)[0],
    keyNames: (layer) => namesOf(layer)[1],
    inputs: inputsOf,
    current: () => inputsOf(model.get("example")),
    isOwn: () => false,
    leave: () => {},
    laid: (logits) => {
      const folded = matrix(numAnswers, answers.length, logits.data);
      return times(numAnswers, (i) => rowsOf(folded, i, 1).data);
    },

    card({ layer, head }) {
      const [queries, keys] = sizes[layer];
      const map = heatMap(queries, keys, {
        class: "map",
        gap: 0,
        role: "img",
        onpick: (cell) => choose({ layer, head, query: Math.floor(cell / keys) }),
        onhover: (cell) =>
          point({ layer, head, ...(cell === null ? {} : { query: Math.floor(cell / keys), key: cell % keys }) }),
      });
      return {
        node: map.node,
        paint(weights, valid, shade) {
          map.show(weights.data, (cell) => cell % keys >= lengthFor(valid, Math.floor(cell / keys)), shade);
        },
      };
    },

    paint({ root, now, pointed, target }) {
      const layer = pointed?.layer ?? model.get("layer"), head = pointed?.head ?? model.get("head");
      if (layer !== shownLayer) build(layer);
      const [queries, keys] = sizes[layer], query = Math.min(model.get("query"), queries - 1);
      const [from, to] = namesOf(layer), weights = now.weights[layer][head].data;
      const isMasked = (cell) => cell % keys >= lengthFor(now.valid[layer], Math.floor(cell / keys));
      large.show(weights, isMasked);
      large.cells.forEach((cell, i) => {
        const [row, column] = [Math.floor(i / keys), i % keys];
        cell.classList.toggle("row", row === query);
        const words = isMasked(i) ? "masked" : weights[i].toFixed(2);
        set(cell, { "aria-label": `from ${from[row]} at ${row} to ${to[column]} at ${column}: ${words}` });
      });
      if (!large.node.contains(document.activeElement)) stopAt(query * keys);
      rowNames.forEach((node, i) => (node.textContent = from[i], node.classList.toggle("chosen", i === query)));
      columnNames.forEach((node, i) => node.textContent = to[i].replace(" ", "\n"));
      title.textContent = `${blocks[layer]}, head ${head}`;

      const found = now.laid.map(indexOfLargest);
      const wrong = found.filter((answer, i) => answer !== target[i]).length;
      found.forEach((answer, i) => {
        const isRight = answer === target[i];
        cells[i].classList.toggle("wrong", !isRight);
        cells[i].children[0].textContent = answers[answer];
        cells[i].children[1].textContent = isRight ? "" : answers[target[i]];
      });
      root.classList.toggle("wrong", wrong > 0);
      return `${found.length - wrong} of ${found.length} answers on example ${model.get("example")} are right.`;
    },
  };
}
