// The heads of one layer on a sequence: its projections split into more or fewer heads, and keys masked. All is computed here.

import { attentionWeights, linear, rowOf, rowsOf, sumOf, unpack } from "./attention.js";
import { element, inPercent, number, parts, picture, roving, set, times, tr } from "./elements.js";
import { card, heatMap, named, scale } from "./heat_map.js";

const MOST_WRITTEN = 8; // keys of a map whose cells have room for their numbers
const SHORT = 2; // letters of a name that stands upright no more than its column is wide

export default picture(({ data, state, controls, pointer, choose, point, headline, say }) => {
  const { W_q, b_q, W_k, b_k, queries, keys } = unpack(data);
  const { divisors, trained, query_names, key_names, sizes: [batch, numQueries, numKeys] } = data;
  const [Q, K] = [linear(queries, W_q, b_q), linear(keys, W_k, b_k)];
  const sequences = Object.fromEntries(times(batch, (example) => [example, tr("sequence {example}", { example })]));
  const headNamed = (head) => tr("head {head}", { head });
  const manyHeads = (count) => count === 1 ? tr("1 head") : tr("{count} heads", { count });
  let weights = [], cards = [], framed = null;

  const strip = controls({
    ...(batch > 1
      ? { example: { label: tr("sequence"), options: sequences, write: (i) => ({ example: Number(i) }) } }
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
      words: (length) => tr("{length} of {count}", { length, count: numKeys }),
    },
  }, { class: "controls layer-controls" });
  const maps = element("div", { class: "maps" });
  const onpick = (cell) => choose({ cell }), isWritten = numKeys <= MOST_WRITTEN;
  const onhover = (cell) => point(cell === null ? null : { head: state.head, cell });
  const label = tr("weights of the chosen head");
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
      return { map, node: card(count > 6 ? String(head) : headNamed(head), map, () => choose({ head })) };
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
      set(node, { "aria-pressed": h === head, "aria-label": headNamed(h) });
    });
    const own = weights[head].data;
    large.show(own, masked);
    large.mark("chosen", (i) => i === cell);
    large.say((i, query, key) => {
      const weight = masked(i) ? tr("masked") : number(own[i]);
      return tr("query {query}, key {key}: {weight}", { query, key, weight });
    }, cell);
    set(title, { text: tr("head {head} (rows: queries)", { head }) });
    set(barsTitle, { text: tr("weight in the framed cell, by head") });
    const bar = ({ data: own }, h) =>
      element("i", { "--h": own[cell], "data-head": count > 12 && h % 4 ? "" : h, class: h === head ? "chosen" : "" });
    bars.replaceChildren(...weights.map(bar));
    const trainedWith = { heads: manyHeads(trained) };
    const note = count === trained
      ? tr("The layer was trained with {heads}.", trainedWith)
      : tr("The layer was trained with {heads}. Split anew, it is not trained anew.", trainedWith);
    const small = [beside(head, cell, valid), note].filter(Boolean).join(tr(" "));
    headline(...claim(head, cell, valid), element("small", {}, small));
    say(read(pointer.pointed?.head < count ? pointer.pointed : { head, cell }, valid));
  }

  /** The names of a cell's query and key, with their positions where these are not the names. */
  function namesAt(cell) {
    const places = [Math.floor(cell / numKeys), cell % numKeys], { example } = state;
    const [query, key] = [query_names, key_names].map((names, i) => {
      const name = names[example][places[i]];
      return name === String(places[i]) ? name : tr("“{name}” (position {at})", { name, at: places[i] });
    });
    return { query, key };
  }

  /** How much of the chosen query's weight the chosen head gives to the chosen key: parts of the headline. */
  function claim(head, cell, valid) {
    const { example } = state, at = [Math.floor(cell / numKeys), cell % numKeys];
    const [query, key] = [query_names, key_names].map((names, i) => {
      const name = names[example][at[i]];
      return name === String(at[i]) ? "qk"[i] + name : `“${name.replaceAll(" ", "\u00a0")}”`;
    });
    if (!valid) return parts("With no valid key, every weight of every head is *0*");
    if (at[1] >= valid) return parts("*No head* attends to {key}: it is masked", { key });
    const told = { head, query, key, share: inPercent(weights[head].data[cell]) };
    return parts("Head {head}: {query} attends to {key} with *{share} %* of its weight", told);
  }

  /** What the other heads give to the same key; "" where that says nothing. */
  function beside(head, cell, valid) {
    const others = weights.filter((_, other) => other !== head).map(({ data: own }) => own[cell]);
    if (!others.length || cell % numKeys >= valid) return "";
    const told = { others: others.length, share: inPercent(Math.max(...others)) };
    return others.length === 1
      ? tr("In the other head: {share} %.", told)
      : tr("In the {others} other heads: at most {share} %.", told);
  }

  function read({ head, cell }, valid) {
    const key = cell % numKeys, row = rowOf(weights[head], Math.floor(cell / numKeys)), at = namesAt(cell);
    if (!valid) return tr("Head {head}, query {query}: no key is valid, so all weights are 0.", { head, ...at });
    const [weight, largest] = [row[key], Math.max(...row)].map((one) => number(one, 3));
    const told = { head, ...at, weight, largest, sum: number(sumOf(row)) };
    if (key >= valid) {
      return tr(
        "Head {head}: query {query} → key {key} is masked and weighs 0, the largest of its row is {largest}; the row sums to {sum}.",
        told,
      );
    }
    if (weight === largest) {
      return tr(
        "Head {head}: query {query} → key {key} weighs {weight}, the largest of its row; the row sums to {sum}.",
        told,
      );
    }
    return tr(
      "Head {head}: query {query} → key {key} weighs {weight}, the largest of its row is {largest}; the row sums to {sum}.",
      told,
    );
  }

  const inLarge = element("div", {}, title, frame), inAll = element("div", {}, barsTitle, bars, scale());
  return {
    nodes: [strip, maps, element("div", { class: "detail" }, inLarge, inAll)],
    compute,
    paint,
    hint: tr("Choose a head, or a cell."),
  };
});
