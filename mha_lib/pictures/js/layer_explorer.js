// The heads of one layer on a sequence: its projections split into more or fewer heads, and keys masked. All is computed here.

import { attentionWeights, indexOfLargest, linear, rowOf, rowsOf, sumOf, unpack } from "./attention.js";
import { element, number, picture, roving, set, times } from "./elements.js";
import { card, heatMap, named, scale } from "./heat_map.js";

const MOST_WRITTEN = 8; // keys of a map whose cells have room for their numbers
const SHORT = 2; // letters of a name that stands upright no more than its column is wide

export default picture(({ data, state, controls, pointer, choose, point, headline, say }) => {
  const { W_q, b_q, W_k, b_k, queries, keys } = unpack(data);
  const { divisors, num_hiddens: size, trained, query_names, key_names, sizes: [batch, numQueries, numKeys] } = data;
  const [Q, K] = [linear(queries, W_q, b_q), linear(keys, W_k, b_k)];
  const sequences = Object.fromEntries(times(batch, (example) => [example, `sequence ${example}`]));
  let weights = [], cards = [], framed = null;

  const strip = controls({
    ...(batch > 1
      ? { example: { label: "sequence", options: sequences, write: (i) => ({ example: Number(i) }) } }
      : {}),
    num_heads: {
      max: divisors.length - 1,
      read: () => divisors.indexOf(state.num_heads),
      write: (i) => ({ num_heads: divisors[i], head: Math.min(state.head, divisors[i] - 1) }),
      words: (i) => `${divisors[i]}`,
    },
    valid_lens: {
      max: numKeys,
      read: () => state.valid_lens[state.example],
      write: (length) => ({ valid_lens: state.valid_lens.with(state.example, length) }),
      words: (length) => `${length} of ${numKeys}`,
    },
  }, { class: "controls layer-controls" });
  const maps = element("div", { class: "maps" });
  const onpick = (cell) => choose({ cell }), isWritten = numKeys <= MOST_WRITTEN;
  const onhover = (cell) => point(cell === null ? null : { head: state.head, cell });
  const label = "weights of the chosen head";
  const large = heatMap(numQueries, numKeys, { numbers: isWritten, label, onpick, onhover });
  const title = element("p", { class: "title" }), barsTitle = element("p", { class: "title" });
  const bars = element("div", { class: "columns", "aria-hidden": "true" }), frame = element("div");

  function compute() {
    const { example, num_heads: count } = state;
    const own = [rowsOf(Q, example * numQueries, numQueries), rowsOf(K, example * numKeys, numKeys)];
    weights = attentionWeights(...own, count, state.valid_lens[example]);
    if (cards.length !== count) rebuild(count);
    if (framed !== example) {
      frame.replaceChildren(named(large, query_names[example], key_names[example]));
      const isLong = key_names[example].some((name) => name.length > SHORT);
      frame.querySelector(".column-names").classList.toggle("upright", isLong);
      framed = example;
    }
  }

  /** New small maps, when there are more heads or fewer. */
  function rebuild(count) {
    cards = times(count, (head) => {
      const onhover = (cell) => point(cell === null ? null : { head, cell });
      const onpick = (cell) => choose({ head, cell }), gap = count > 10 ? 0 : 0.05;
      const map = heatMap(numQueries, numKeys, { gap, "aria-hidden": true, onpick, onhover });
      return { map, node: card(count > 6 ? String(head) : `head ${head}`, map, () => choose({ head })) };
    });
    set(maps, {
      "--columns": count <= 6 ? 6 : Math.min(count, 12),
      "--few": Math.min(Math.max(count, 2), count > 9 ? 4 : 3),
    });
    maps.replaceChildren(...cards.map(({ node }) => node));
    roving(cards.map(({ node }) => node), count, (head) => choose({ head }));
  }

  function paint() {
    const { example, cell, num_heads: count } = state, valid = state.valid_lens[example];
    const head = Math.min(state.head, count - 1), masked = (i) => i % numKeys >= valid;
    cards.forEach(({ map, node }, h) => {
      map.show(weights[h].data, masked);
      map.mark("chosen", (i) => i === cell);
      set(node, { "aria-pressed": h === head, "aria-label": `head ${h}` });
    });
    const own = weights[head].data;
    large.show(own, masked);
    large.mark("chosen", (i) => i === cell);
    large.say((i, query, key) => `query ${query}, key ${key}: ${masked(i) ? "masked" : number(own[i])}`, cell);
    set(title, { text: `head ${head} (rows: queries)` });
    set(barsTitle, { text: "weight in the framed cell, by head" });
    const bar = ({ data: own }, h) =>
      element("i", { "--h": own[cell], "data-head": count > 12 && h % 4 ? "" : h, class: h === head ? "chosen" : "" });
    bars.replaceChildren(...weights.map(bar));
    const heads = count === 1 ? "1 head" : `${count} heads`, keyWord = valid === 1 ? "key" : "keys";
    const again = count === trained
      ? ""
      : `The layer was trained with ${trained} heads. Split anew, it is not trained anew.`;
    const note = element(
      "small",
      {},
      again || `The layer was trained with ${trained === 1 ? "1 head" : `${trained} heads`}.`,
    );
    headline("", heads, ` of ${size / count} features; sequence ${example} has `, `${valid} valid ${keyWord}`, note);
    say(read(pointer.pointed?.head < count ? pointer.pointed : { head, cell }, valid));
  }

  /** The names of a cell's query and key, with their positions where these are not the names. */
  function namesAt(cell) {
    const places = [Math.floor(cell / numKeys), cell % numKeys], { example } = state;
    const [query, key] = [query_names, key_names].map((names, i) => {
      const name = names[example][places[i]];
      return name === String(places[i]) ? name : `“${name}” (position ${places[i]})`;
    });
    return { query, key };
  }

  function read({ head, cell }, valid) {
    const key = cell % numKeys, row = rowOf(weights[head], Math.floor(cell / numKeys)), at = namesAt(cell);
    if (!valid) return `Head ${head}, query ${at.query}: no key is valid, so all weights are 0.`;
    const weight = key >= valid ? "is masked and weighs 0" : `weighs ${number(row[key], 3)}`,
      best = indexOfLargest(row);
    const most = best === key ? "the largest of its row" : `the largest of its row is ${number(row[best], 3)}`;
    return `Head ${head}: query ${at.query} → key ${at.key} ${weight}, ${most}; the row sums to ${number(sumOf(row))}.`;
  }

  const inLarge = element("div", {}, title, frame), inAll = element("div", {}, barsTitle, bars, scale());
  return {
    nodes: [strip, maps, element("div", { class: "detail" }, inLarge, inAll)],
    compute,
    paint,
    hint: "Choose a head, or a cell.",
  };
});
