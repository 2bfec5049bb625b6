// The heads of one layer on a sequence: its projections split into more or fewer heads, and keys masked. All is computed here.

import { attentionWeights, linear, rowOf, rowsOf, sumOf, unpack } from "./attention.js";
import { element, inPercent, manyHeads, number, parts, percentOf } from "./elements.js";
import { picture, roving, set, times, titled, tr, unbroken } from "./elements.js";
import { card, heatMap, lengthEdge, named, scale } from "./heat_map.js";

const MOST_WRITTEN = 8; // keys of a map whose cells have room for their numbers
const SHORT = 2; // letters of a name that stands upright no more than its column is wide

export default picture(({ data, state, controls, pointer, choose, point, headline, say }) => {
  const { W_q, b_q, W_k, b_k, queries, keys } = unpack(data);
  const { divisors, trained, accuracies, query_names, key_names, sizes: [batch, numQueries, numKeys] } = data;
  const [Q, K] = [linear(queries, W_q, b_q), linear(keys, W_k, b_k)];
  const sequences = Object.fromEntries(times(batch, (example) => [example, tr("sequence {example}", { example })]));
  const headNamed = (head) => tr("head {head}", { head });
  let weights = [], cards = [], framed = null;

  const which = { label: tr("sequence"), options: sequences, write: (i) => ({ example: Number(i) }) };
  const measured = (length) => ({ valid_lens: state.valid_lens.with(state.example, length) });
  const ofAll = (length) => tr("{length} of {count}", { length, count: numKeys });
  const strip = controls({
    ...(batch > 1 && { example: which }),
    num_heads: {
      max: divisors.length - 1,
      read: () => divisors.indexOf(state.num_heads),
      write: (i) => ({ num_heads: divisors[i], head: Math.min(state.head, divisors[i] - 1) }),
      words: (i) => `${divisors[i]}`,
    },
    valid_lens: { max: numKeys, read: () => state.valid_lens[state.example], write: measured, words: ofAll },
  }, { class: "controls layer-controls of-length" });
  const accuracy = element("span", { class: "accuracy" }), joined = element("div", { class: "joined", role: "img" });
  strip.lastChild.before(accuracy);
  const maps = element("div", { class: "maps" });
  const onpick = ({ cell }) => choose({ cell }), isWritten = numKeys <= MOST_WRITTEN;
  const onhover = (at) => point(at && { head: state.head, ...at });
  const label = tr("weights of the chosen head");
  const large = heatMap(numQueries, numKeys, { numbers: isWritten, label, onpick, onhover });
  const edge = lengthEdge(large, numQueries, numKeys, (length) => choose(measured(length)));
  const title = titled(), barsTitle = titled(tr("weight in the framed cell, by head"));
  const bars = element("div", { class: "columns", "aria-hidden": "true" }), frame = element("div");

  function compute() {
    const { example, num_heads: count } = state;
    const own = [rowsOf(Q, example * numQueries, numQueries), rowsOf(K, example * numKeys, numKeys)];
    weights = attentionWeights(...own, count, state.valid_lens[example]);
    if (cards.length !== count) rebuild(count);
    if (framed !== example) {
      const body = named(large, query_names[example], key_names[example]);
      set(body.lastChild, { ".upright": key_names[example].some((name) => name.length > SHORT) });
      frame.replaceChildren(body);
      framed = example;
    }
  }

  /** New small maps, when there are more heads or fewer. */
  function rebuild(count) {
    cards = times(count, (head) => {
      const onpick = ({ cell }) => choose({ head, cell }), onhover = (at) => point(at && { head, ...at });
      const map = heatMap(numQueries, numKeys, { gap: count > 10 ? 0 : 0.05, "aria-hidden": true, onpick, onhover });
      const node = card(count > 6 ? String(head) : headNamed(head), map, () => choose({ head }));
      return { map, edge: lengthEdge(map, numQueries, numKeys), node };
    });
    set(maps, {
      "--columns": count <= 6 ? 6 : Math.min(count, 12),
      "--few": count <= 6 ? 3 : count <= 8 ? 4 : count <= 16 ? 6 : 8,
      "--rows": numQueries / numKeys,
    });
    const lane = (name, count) => element("div", { class: name }, ...times(count, (h) => element("span", {}, h)));
    joined.replaceChildren(lane("trained", trained), lane("now", count));
    const meets = (old, head) => old * count < (head + 1) * trained && (old + 1) * count > head * trained;
    const own = (head) => times(trained, (old) => old).filter((old) => meets(old, head));
    const told = times(count, (head) => tr("head {head}: trained {heads}", { head, heads: own(head).join(" + ") }));
    set(joined, { "aria-label": told.join(tr("; ")) });
    maps.replaceChildren(...cards.map(({ node }) => node));
    roving(cards.map(({ node }) => node), count, (head) => choose({ head }));
  }

  function paint() {
    const { example, cell, num_heads: count } = state, valid = state.valid_lens[example];
    const head = Math.min(state.head, count - 1), masked = (i) => i % numKeys >= valid;
    const draw = (map, weights, edge) => {
      map.show(weights, masked);
      edge(valid);
      map.mark("chosen", (i) => i === cell);
    };
    cards.forEach(({ map, edge, node }, h) => {
      set(joined.lastChild.children[h], { ".chosen": h === head });
      set(node, { "aria-pressed": h === head, "aria-label": headNamed(h) });
      draw(map, weights[h].data, edge);
    });
    const own = weights[head].data;
    draw(large, own, edge);
    large.say((i, query, key) => {
      const weight = masked(i) ? tr("masked") : number(own[i]);
      return tr("query {query}, key {key}: {weight}", { query, key, weight });
    }, cell);
    set(title, { text: tr("head {head} (rows: queries)", { head }) });
    const bar = ({ data: own }, h) =>
      element("i", { "--h": own[cell], "data-head": count > 12 && h % 4 ? "" : h, class: h === head ? "chosen" : "" });
    bars.replaceChildren(...weights.map(bar));
    const right = accuracies[divisors.indexOf(count)], share = right === undefined ? "" : percentOf(right);
    set(accuracy, { text: share && tr("accuracy {share}", { share }) });
    const told = { heads: manyHeads(count), trained: manyHeads(trained), share }, seen = claim(head, cell, valid);
    const split = share
      ? parts("*{heads}*, split from weights trained as {trained}: *{share} right*", told)
      : parts("*{heads}*, split from weights trained as {trained}", told);
    const note = count === trained
      ? tr("The layer was trained with {heads}.", told)
      : tr("{sentence}.", { sentence: seen.join("") });
    const other = beside(head, cell, valid), inSmall = count === trained ? [other, note] : [note, other];
    const small = element("small", {}, unbroken(inSmall.filter(Boolean).join(tr(" "))));
    headline(...(count === trained ? seen : split), small);
    say(read(pointer.pointed?.head < count ? pointer.pointed : { head, cell }, valid));
  }

  /** The names of a cell's query and key: their positions where these are the names, else what `words` makes of both. */
  function namesAt(cell, words, plain = (at) => String(at)) {
    const places = [Math.floor(cell / numKeys), cell % numKeys];
    const [query, key] = [query_names, key_names].map((names, i) => {
      const name = names[state.example][places[i]];
      return name === String(places[i]) ? plain(name, "qk"[i]) : words(name, places[i]);
    });
    return { query, key };
  }

  /** How much of the chosen query's weight the chosen head gives to the chosen key: parts of the headline. */
  function claim(head, cell, valid) {
    const unparted = (name) => tr("“{name}”", { name: name.replaceAll(" ", "\u00a0") });
    const { query, key } = namesAt(cell, unparted, (name, letter) => letter + name);
    if (!valid) return parts("With no valid key, every weight of every head is *0*");
    if (cell % numKeys >= valid) return parts("*No head* attends to {key}: it is masked", { key });
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
    const key = cell % numKeys, row = rowOf(weights[head], Math.floor(cell / numKeys));
    const at = namesAt(cell, (name, at) => tr("“{name}” (position {at})", { name, at }));
    if (!valid) return tr("Head {head}, query {query}: no key is valid, so all weights are 0.", { head, ...at });
    const [weight, largest] = [row[key], Math.max(...row)].map((one) => number(one, 3));
    const told = { head, ...at, weight, largest, sum: number(sumOf(row)) };
    return key >= valid
      ? tr(
        "Head {head}: query {query} → key {key} is masked and weighs 0, the largest of its row is {largest}; the row sums to {sum}.",
        told,
      )
      : weight === largest
      ? tr(
        "Head {head}: query {query} → key {key} weighs {weight}, the largest of its row; the row sums to {sum}.",
        told,
      )
      : tr(
        "Head {head}: query {query} → key {key} weighs {weight}, the largest of its row is {largest}; the row sums to {sum}.",
        told,
      );
  }

  const inLarge = element("div", {}, title, frame), inAll = element("div", {}, barsTitle, bars, scale());
  return {
    nodes: [strip, joined, maps, element("div", { class: "detail" }, inLarge, inAll)],
    compute,
    paint,
    hint: tr("Choose a head, or a cell."),
    room: [68, 108, 165],
  };
});
