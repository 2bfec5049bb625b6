// The heads of one layer: the same projections cut into more or fewer heads, with valid lengths. All is computed here.

import { attentionWeights, indexOfLargest, linear, matrix, rowOf, rowsOf, sumOf, unpack } from "./attention.js";
import { element, number, picture, roving, set, times } from "./elements.js";
import { card, heatMap, named, scale } from "./heat_map.js";

export default picture(({ data, state, controls, pointer, choose, point, headline, say }) => {
  const { W_q, b_q, W_k, b_k, queries, keys } = unpack(data);
  const { divisors, num_hiddens: size, sizes: [batch, numQueries, numKeys] } = data;
  let weights = [], cards = [];

  const strip = controls({
    num_heads: {
      max: divisors.length - 1,
      read: () => divisors.indexOf(state.num_heads),
      write: (i) => ({ num_heads: divisors[i], head: Math.min(state.head, divisors[i] - 1) }),
      words: (i) => `${divisors[i]} ${divisors[i] === 1 ? "head" : "heads"} × ${size / divisors[i]}`,
    },
    ones: { label: "all ones, the book's input", check: true },
  });
  const lengths = times(batch, (example) => {
    const write = (length) => ({ valid_lens: state.valid_lens.with(example, length) });
    const words = (length) => `${length} of ${numKeys}`, read = () => state.valid_lens[example];
    return controls({ [`valid_lens[${example}]`]: { max: numKeys, read, write, words } });
  });
  const rows = times(batch, () => element("div", { class: "maps" }));
  const onpick = (cell) => choose({ cell });
  const onhover = (cell) => point(cell === null ? null : { example: state.example, head: state.head, cell });
  const large = heatMap(numQueries, numKeys, { numbers: true, label: "weights of the chosen head", onpick, onhover });
  const title = element("p", { class: "title" }), barsTitle = element("p", { class: "title" });
  const bars = element("div", { class: "columns", "aria-hidden": "true" });

  function compute() {
    const from = (X) => state.ones ? matrix(X.rows, X.columns, X.data.map(() => 1)) : X;
    const [Q, K] = [linear(from(queries), W_q, b_q), linear(from(keys), W_k, b_k)];
    weights = state.valid_lens.map((length, example) => {
      const own = [rowsOf(Q, example * numQueries, numQueries), rowsOf(K, example * numKeys, numKeys)];
      return attentionWeights(...own, state.num_heads, length);
    });
    if (cards[0]?.length !== state.num_heads) rebuild(state.num_heads);
  }

  /** New small maps, when there are more heads or fewer. */
  function rebuild(count) {
    cards = rows.map((row, example) => {
      const own = times(count, (head) => {
        const onhover = (cell) => point(cell === null ? null : { example, head, cell });
        const onpick = (cell) => choose({ example, head, cell }), gap = count > 10 ? 0 : 0.05;
        const map = heatMap(numQueries, numKeys, { gap, "aria-hidden": true, onpick, onhover });
        return { map, node: card(`head ${head}`, map, () => choose({ example, head })) };
      });
      set(row, { "--columns": count <= 5 ? 5 : Math.min(count, 10) }).replaceChildren(...own.map(({ node }) => node));
      roving(own.map(({ node }) => node), count, (head) => choose({ example, head }));
      return own;
    });
  }

  function paint() {
    const { example, cell, valid_lens: valid, num_heads: count } = state, head = Math.min(state.head, count - 1);
    const isMasked = (e) => (i) => i % numKeys >= valid[e];
    cards.flat().forEach(({ map, node }, i) => {
      const [e, h] = [Math.floor(i / count), i % count];
      map.show(weights[e][h].data, isMasked(e));
      map.mark("chosen", (i) => i === cell);
      set(node, { "aria-pressed": e === example && h === head, "aria-label": `example ${e}, head ${h}` });
    });
    const { data: own } = weights[example][head], masked = isMasked(example);
    large.show(own, masked);
    large.mark("chosen", (i) => i === cell);
    large.say((i, query, key) => `query ${query}, key ${key}: ${masked(i) ? "masked" : number(own[i])}`, cell);
    title.textContent = `example ${example}, head ${head}`;
    barsTitle.textContent = `weight of query ${Math.floor(cell / numKeys)} on key ${cell % numKeys}, by head`;
    const bar = ({ data: own }, h) =>
      element("i", { "--h": own[cell], "data-head": count > 12 ? "" : h, class: h === head ? "chosen" : "" });
    bars.replaceChildren(...weights[example].map(bar));
    headline(...seen(example, cell, count, valid[example]));
    say(read(pointer.pointed?.head < count ? pointer.pointed : { example, head, cell }, valid));
  }

  /** How far the heads agree about the chosen query. */
  function seen(example, cell, count, length) {
    const query = Math.floor(cell / numKeys),
      rows = weights[example].map((own) => rowOf(own, query).subarray(0, length));
    const alike = `Example ${example}, query ${query}: `, heads = count === 1 ? "1 head" : `${count} heads`;
    if (!length) return [alike, "no key is valid", ", so every weight is 0"];
    if (rows.every((row) => Math.max(...row) - Math.min(...row) < 1e-4)) {
      return [alike, count === 1 ? "the head" : "all heads", " look at all valid keys alike"];
    }
    const liked = new Set(rows.map(indexOfLargest)).size;
    return [alike, `${heads} like ${liked === 1 ? "one key" : `${liked} different keys`}`, " best"];
  }

  function read({ example, head, cell }, valid) {
    const query = Math.floor(cell / numKeys), key = cell % numKeys, row = rowOf(weights[example][head], query);
    const weight = key >= valid[example] ? "is masked and weighs 0" : `weighs ${number(row[key], 3)}`;
    const sum = valid[example] ? `its row sums to ${number(sumOf(row))}` : "no key is valid, so all weights are 0";
    return `Example ${example}, head ${head}: query ${query} → key ${key} ${weight}; ${sum}.`;
  }

  const names = (letter, count) => times(count, (i) => `${letter}${i}`);
  const inLarge = element("div", {}, title, named(large, names("q", numQueries), names("k", numKeys)));
  const inAll = element("div", {}, barsTitle, bars, scale());
  const group = { class: "example", role: "group" };
  const examples = rows.map((row, e) => element("div", { ...group, "aria-label": `example ${e}` }, lengths[e], row));
  return { nodes: [strip, ...examples, element("div", { class: "detail" }, inLarge, inAll)], compute, paint };
});
