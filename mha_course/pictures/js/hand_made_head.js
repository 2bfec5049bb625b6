// A head made by hand: change a number of W_q or W_k, and see each word's query and key, and the weights.

import { attentionWeights, linear, matrix, rowOf, sumOf, unpack } from "./attention.js";
import { button, element, longest, number, parts, picture, roving, set, times, titled, tr } from "./elements.js";
import { heatMap, named, queryFrame, scale } from "./heat_map.js";
import { firstLargest } from "./told.js";

const MOST = 20; // how far a number goes up and down
const FLAT = 90; // letters that fit above all columns of a wide picture, ten above each at least

export default picture(({ data, state, controls, pointer, choose, point, headline, say }) => {
  const { words, features, given } = data, { X } = unpack(data), n = words.length, width = features.length;
  const size = given.W_q.length, nameOf = { W_q: "q", W_k: "k" };
  const places = Object.keys(nameOf).flatMap((name) =>
    times(size * width, (i) => ({ name, row: Math.floor(i / width), column: i % width }))
  );
  let chosen = places.find(({ name, row, column }) => given[name][row][column]) ?? places[0];
  let [queries, keys, weights] = [];

  const most = Math.max(MOST, ...[given.W_q, given.W_k].flat(2).map(Math.abs));
  const read = () => state.numbers[chosen.name][chosen.row][chosen.column];
  function write(value) {
    const { name, row, column } = chosen, own = state.numbers[name];
    return { numbers: { ...state.numbers, [name]: own.with(row, own[row].with(column, value)) } };
  }
  const plain = (value) => number(value, 1).replace(/\.0$/, "");
  const rowName = ({ name, row }) => size > 1 ? `${name} ${row}` : name;
  const told = (place, value) =>
    tr("{row}, {feature}: {number}", { row: rowName(place), feature: features[place.column], number: plain(value) });
  const strip = controls({
    number: { label: tr("chosen number"), min: -most, max: most, read, write, words: (value) => told(chosen, value) },
    query: { label: tr("query"), max: n - 1, words: (i) => words[i] },
  }, { class: "controls hand-controls" });
  const { W_q, W_k } = given, numbers = () => state.numbers;
  const swap = () => choose({ numbers: { W_q: numbers().W_k, W_k: numbers().W_q } });
  const tools = [button(tr("swap W_q and W_k"), swap)];
  tools.push(button(tr("start again"), () => choose({ numbers: { W_q, W_k } })));

  const take = (i) => (chosen = places[i], point(null));
  /** What a key does to the number that has the focus: a digit takes its place, a minus changes its sign. */
  function typed(i, event) {
    const { key, ctrlKey, metaKey, altKey } = event;
    if (!/^(\d|-| |Enter)$/.test(key) || ctrlKey || metaKey || altKey) return;
    event.preventDefault();
    take(i);
    if (key === "-") choose(write(-read()));
    else if (key !== " " && key !== "Enter") choose(write(Number(key)));
  }
  const cells = places.map(({ name }, i) => {
    const does = { onclick: () => take(i), onkeydown: (event) => typed(i, event) };
    return element("span", { class: `number ${nameOf[name]}`, role: "button", ...does });
  });
  const stopAt = roving(cells, width, take);
  stopAt(places.indexOf(chosen));
  const table = element("div", { class: "by-hand", role: "group", "aria-label": tr("numbers of W_q and W_k") });
  set(table, { "--columns": width }).classList.toggle("flat", width * Math.max(longest(features), 10) <= FLAT);
  table.append(element("span"), ...features.map((name) => element("span", { class: "upright" }, name)));
  places.forEach((place, i) => {
    if (!place.column) table.append(element("span", { class: nameOf[place.name] }, rowName(place)));
    table.append(cells[i]);
  });

  const figures = words.map(() => ["q", "k"].map((name) => element("td", { class: name })));
  const head = (text, scope, name = "") => element("th", { scope, class: name }, text);
  const rows = [[element("td"), head(tr("query"), "col", "q"), head(tr("key"), "col", "k")]];
  rows.push(...words.map((word, i) => [head(word, "row"), ...figures[i]]));
  const vectors = element("table", { class: "figures" }, ...rows.map((row) => element("tr", {}, ...row)));
  const onpick = ({ query }) => choose({ query }), acts = { onpick, onmove: point, onhover: point };
  const map = heatMap(n, n, { numbers: true, label: tr("weights"), ...acts });
  const frame = queryFrame(map, n);
  const left = element("div", {}, titled(tr("each word’s query and key")), vectors, scale());
  const across = titled(tr("weights: rows are queries, columns are keys"));
  const right = element("div", {}, across, named(map, words, words));

  function compute() {
    const { numbers } = state, weight = (name) => matrix(size, width, Float32Array.from(numbers[name].flat()));
    [queries, keys] = ["W_q", "W_k"].map((name) => linear(X, weight(name)));
    [weights] = attentionWeights(queries, keys, 1, n);
  }

  /** What a word attends to most, or what equally: parts of the headline. */
  function claim(query, liked, weight) {
    const told = { query, key: liked[0], count: liked.length, weight };
    if (liked.length === 1) return parts("“{query}” attends *to “{key}” most*, {weight}", told);
    return liked.length === n
      ? parts("“{query}” attends *to all words equally*, {weight} each", told)
      : parts("“{query}” attends *to {count} words equally*, {weight} each", told);
  }

  function seen(query) {
    const row = [...rowOf(weights, query)], high = number(Math.max(...row));
    const liked = words.filter((_, key) => number(row[key]) === high), isNamed = 1 < liked.length && liked.length < n;
    return [...claim(words[query], liked, high), ...(isNamed ? [element("small", {}, liked.join(tr(", ")))] : [])];
  }

  const listed = (vector) => [...vector].map(plain).join(", ");
  function reading(query, q, key, k, weight) {
    const [asks, found] = [q, k].map((vector) => size > 1 ? `(${listed(vector)})` : listed(vector));
    const told = { query, asks, key, found, product: plain(sumOf([...q].map((one, i) => one * k[i]))), weight };
    return tr(
      "The query of “{query}” is {asks}, and the key of “{key}” is {found}. Dot product {product}, weight {weight}.",
      told,
    );
  }

  function paint() {
    const { query, numbers } = state;
    cells.forEach((node, i) => {
      const { name, row, column } = places[i], value = numbers[name][row][column];
      set(node, { text: value ? plain(value) : "·", "aria-pressed": places[i] === chosen });
      set(node, { "aria-label": told(places[i], value) });
    });
    figures.forEach((pair, i) => [queries, keys].forEach((M, k) => set(pair[k], { text: listed(rowOf(M, i)) })));
    map.show(weights.data);
    frame(query);
    map.mark("pointed", (i) => i === pointer.pointed?.cell);
    map.say((i, row, column) => {
      const named = { query: words[row], key: words[column], weight: number(weights.data[i]) };
      return tr("query {query}, key {key}: {weight}", named);
    }, query * n);
    headline(...seen(query));
    const at = pointer.pointed?.cell ?? query * n + firstLargest(rowOf(weights, query), 2);
    const [i, j] = [Math.floor(at / n), at % n];
    say(reading(words[i], rowOf(queries, i), words[j], rowOf(keys, j), number(weights.data[at])));
  }

  const below = element("div", { class: "made" }, left, right);
  const choosing = titled(tr("click a number, then type a digit or move its slider; · is 0"));
  const heading = element("div", { class: "heading" }, choosing, element("div", { class: "tools" }, ...tools));
  const hint = tr("Click a row of weights to choose its query.");
  const widest = words.find((word) => longest([word]) === longest(words)), sums = words.map((_, i) => rowOf(X, i));
  const far = times(size, () => -most * Math.max(...sums.map((own) => sumOf(own.map(Math.abs)))));
  const claims = [[widest], words.slice(1), words].map((liked) => claim(widest, liked, "0.00").join(""));
  const room = [longest(claims), longest([words.join(tr(", "))]), longest([reading(widest, far, widest, far, "0.00")])];
  return { nodes: [strip, heading, table, below], compute, paint, hint, room };
});
