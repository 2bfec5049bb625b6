// The heads of one layer: the same projections cut into more or fewer heads, with valid lengths. All is computed here.

import { attentionWeights, linear, matrix, rowOf, rowsOf, sumOf, unpack } from "./attention.js";
import { checkbox, element, number, picture, roving, set, slider, times } from "./elements.js";
import { heatMap, scale } from "./heat_map.js";

function build({ model, choose, repaint, say }) {
  const { W_q, b_q, W_k, b_k, queries, keys } = unpack(model.get("parameters"), model.get("shapes"));
  const divisors = model.get("divisors"), [batch, numQueries, numKeys] = model.get("sizes");
  let weights = [], pointed = null, cards = [], shownHeads = 0;

  const heads = slider("num_heads", {
    min: 0,
    max: divisors.length - 1,
    onmove: (i) => choose({ num_heads: divisors[i], head: Math.min(model.get("head"), divisors[i] - 1) }),
  });
  const ones = checkbox("all ones, the book's input", (all) => choose({ ones: all }));
  const lengths = times(batch, (example) =>
    slider(`valid_lens[${example}]`, {
      min: 0,
      max: numKeys,
      onmove: (length) => choose({ valid_lens: model.get("valid_lens").with(example, length) }),
    }));

  const point = (what) => {
    pointed = what;
    repaint();
  };
  const pointAt = (example, head) => (cell) => point(cell === null ? null : { example, head, cell });
  const rows = times(batch, () => element("div", { class: "maps" }));
  const large = heatMap(numQueries, numKeys, {
    numbers: true,
    role: "group",
    "aria-label": "weights of the chosen head",
    onpick: (cell) => choose({ cell }),
    onhover: (cell) => pointAt(model.get("example"), model.get("head"))(cell),
  });
  large.cells.forEach((cell) => set(cell, { role: "img" }));
  const stopAt = roving(large.cells, numKeys, (cell) => choose({ cell }));
  const title = element("p", { class: "title" }), barsTitle = element("p", { class: "title" });
  const bars = element("div", { class: "columns", "aria-hidden": "true" });
  const names = (letter, count) => times(count, (i) => element("span", {}, `${letter}${i}`));

  function compute() {
    const from = (X) => model.get("ones") ? matrix(X.rows, X.columns, X.data.map(() => 1)) : X;
    const [Q, K] = [linear(from(queries), W_q, b_q), linear(from(keys), W_k, b_k)];
    weights = model.get("valid_lens").map((length, example) => {
      const own = [rowsOf(Q, example * numQueries, numQueries), rowsOf(K, example * numKeys, numKeys)];
      return attentionWeights(...own, model.get("num_heads"), length);
    });
  }

  /** New small maps, when there are more heads or fewer. */
  function rebuild(count) {
    shownHeads = count;
    cards = rows.map((row, example) => {
      const own = times(count, (head) => {
        const onpick = (cell) => choose({ example, head, cell }), onhover = pointAt(example, head);
        const map = heatMap(numQueries, numKeys, { gap: count > 10 ? 0 : 0.05, "aria-hidden": true, onpick, onhover });
        const onclick = (event) => event.target.closest(".cell") || choose({ example, head });
        return { map, node: element("button", { type: "button", class: "small", onclick }, `${head}`, map.node) };
      });
      row.replaceChildren(...own.map(({ node }) => node));
      set(row, { "--columns": count <= 5 ? 5 : count <= 10 ? count : 10 });
      roving(own.map(({ node }) => node), count, (head) => choose({ example, head }));
      return own;
    });
  }

  function paint() {
    const [example, head, cell, valid] = ["example", "head", "cell", "valid_lens"].map((name) => model.get(name));
    const count = weights[0].length, isMasked = (e) => (i) => i % numKeys >= valid[e];
    if (count !== shownHeads) rebuild(count);
    weights.forEach((own, e) =>
      own.forEach(({ data }, h) => {
        cards[e][h].map.show(data, isMasked(e));
        cards[e][h].map.mark(cell);
        set(cards[e][h].node, { "aria-pressed": e === example && h === head, "aria-label": `example ${e}, head ${h}` });
      })
    );
    const { data } = weights[example][head], masked = isMasked(example);
    large.show(data, masked);
    large.mark(cell);
    if (!large.node.contains(document.activeElement)) stopAt(cell);
    large.cells.forEach((node, i) => {
      const words = masked(i) ? "masked" : number(data[i]);
      set(node, { "aria-label": `query ${Math.floor(i / numKeys)}, key ${i % numKeys}: ${words}` });
    });
    title.textContent = `example ${example}, head ${head}`;
    barsTitle.textContent = `query ${Math.floor(cell / numKeys)}, key ${cell % numKeys} in every head`;
    const bar = (own, h) => element("i", { "--h": own.data[cell], class: h === head ? "chosen" : "" });
    bars.replaceChildren(...weights[example].map(bar));
    const words = `${count} ${count === 1 ? "head" : "heads"} × ${model.get("num_hiddens") / count}`;
    heads.show(divisors.indexOf(count), words);
    lengths.forEach((length, e) => length.show(valid[e], `${valid[e]} of ${numKeys}`));
    ones.input.checked = model.get("ones");
    say(read(pointed?.head < count ? pointed : { example, head, cell }, valid));
  }

  function read({ example, head, cell }, valid) {
    const query = Math.floor(cell / numKeys), key = cell % numKeys, row = rowOf(weights[example][head], query);
    const weight = key >= valid[example] ? "is masked and weighs 0" : `weighs ${number(row[key], 3)}`;
    const end = valid[example] === 0
      ? "no key is valid, so all weights are 0"
      : `its row sums to ${number(sumOf(row))}`;
    return `Example ${example}, head ${head}: query ${query} → key ${key} ${weight}; ${end}.`;
  }

  const framed = element(
    "div",
    { class: "framed" },
    element("div", { class: "row-names q" }, ...names("q", numQueries)),
    large.node,
    element("div", { class: "column-names k" }, ...names("k", numKeys)),
  );
  const marks = scale({ 0: "0", 0.25: ".25", 0.5: ".5", 1: "1" });
  const group = (row, e) =>
    element("div", { class: "example", role: "group", "aria-label": `example ${e}` }, lengths[e].node, row);
  return {
    nodes: [
      element("div", { class: "controls" }, heads.node, ones.node),
      ...rows.map(group),
      element(
        "div",
        { class: "detail" },
        element("div", {}, title, framed),
        element("div", {}, barsTitle, bars, marks),
      ),
    ],
    compute,
    paint,
    computed: ["num_heads", "valid_lens", "ones"],
    painted: ["example", "head", "cell"],
  };
}

export default { render: picture(build) };
