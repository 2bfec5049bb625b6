// A head made by hand: change a number of W_q or W_k, and see each word's query and key, and the weights.

import { attentionWeights, linear, matrix, rowOf, unpack } from "./attention.js";
import { button, drawn, element, longest, number, picture, roving, set, times } from "./elements.js";
import { heatMap, named, scale } from "./heat_map.js";
import { firstLargest } from "./told.js";

const MOST = 20; // how far a number goes up and down

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
  const titleOf = ({ name, row, column }) => `${name}${size > 1 ? ` row ${row}` : ""}, ${features[column]}`;
  const told = (value) => `${titleOf(chosen)}: ${plain(value)}`;
  const strip = controls({
    number: { label: "chosen number", min: -most, max: most, read, write, words: told },
    query: { label: "query", max: n - 1, words: (i) => words[i] },
  });
  const { W_q, W_k } = given, numbers = () => state.numbers;
  const swap = () => choose({ numbers: { W_q: numbers().W_k, W_k: numbers().W_q } });
  const tools = [button("swap W_q and W_k", swap), button("start again", () => choose({ numbers: { W_q, W_k } }))];

  const take = (i) => (chosen = places[i], point(null));
  const cells = places.map(({ name }, i) => {
    const node = element("span", { class: `number ${nameOf[name]}`, role: "button", onclick: () => take(i) });
    return set(node, { onkeydown: ({ key }) => key === "Enter" && take(i) });
  });
  const stopAt = roving(cells, width, take);
  stopAt(places.indexOf(chosen));
  const table = element("div", { class: "by-hand", role: "group", "aria-label": "W_q and W_k", "--columns": width });
  table.append(element("span"), ...features.map((name) => element("span", { class: "upright" }, name)));
  places.forEach(({ name, row, column }, i) => {
    const text = size > 1 ? `${name} ${row}` : name;
    if (!column) table.append(element("span", { class: nameOf[name] }, text));
    table.append(cells[i]);
  });

  const line = (...row) => element("tr", {}, ...row),
    figures = words.map(() => ["q", "k"].map((name) => element("td", { class: name })));
  const head = (text, scope, name = "") => element("th", { scope, class: name }, text);
  const top = line(element("td"), head("query", "col", "q"), head("key", "col", "k"));
  const lines = words.map((word, i) => line(head(word, "row"), ...figures[i]));
  const vectors = element("table", { class: "figures" }, top, ...lines);
  const onpick = (cell) => choose({ query: Math.floor(cell / n) });
  const map = heatMap(n, n, { numbers: true, label: "weights", onpick, onmove: point, onhover: point });
  const band = map.over.appendChild(drawn("path", { class: "query" }));
  const title = (text) => element("p", { class: "title" }, text);
  const left = element("div", {}, title("each word’s query and key"), vectors, scale());
  const right = element("div", {}, title("weights: rows are queries, columns are keys"), named(map, words, words));

  function compute() {
    const { numbers } = state, weight = (name) => matrix(size, width, Float32Array.from(numbers[name].flat()));
    [queries, keys] = ["W_q", "W_k"].map((name) => linear(X, weight(name)));
    [weights] = attentionWeights(queries, keys, 1, n);
  }

  /** What a word attends to most, or what equally: parts of the headline. */
  function seen(query) {
    const row = [...rowOf(weights, query)], high = number(Math.max(...row)), who = `“${words[query]}” attends `;
    const liked = words.filter((_, key) => number(row[key]) === high);
    const share = `, ${high}${liked.length > 1 ? " each" : ""}`;
    if (liked.length === n) return [who, "to all words equally", share];
    if (liked.length === 1) return [who, `to “${liked[0]}” most`, share];
    return [who, `to ${liked.length} words equally`, share, element("small", {}, liked.join(", "))];
  }

  function paint() {
    const { query, numbers } = state, vector = (M, i) => [...rowOf(M, i)].map(plain).join(", ");
    cells.forEach((node, i) => {
      const { name, row, column } = places[i], value = numbers[name][row][column];
      set(node, { text: value ? plain(value) : "·", "aria-pressed": places[i] === chosen });
      set(node, { "aria-label": `${titleOf(places[i])}: ${plain(value)}` });
    });
    figures.forEach((pair, i) => [queries, keys].forEach((M, k) => set(pair[k], { text: vector(M, i) })));
    map.show(weights.data);
    set(band, { d: `M0,${query}H${n}V${query + 1}H0Z` });
    map.mark("pointed", (i) => i === pointer.pointed);
    map.say((i, row, column) => `${words[row]} on ${words[column]}: ${number(weights.data[i])}`, query * n);
    headline(...seen(query));
    const at = pointer.pointed ?? query * n + firstLargest(rowOf(weights, query), 2),
      [i, j] = [Math.floor(at / n), at % n];
    const asks = `query of “${words[i]}” ${vector(queries, i)}`, found = `key of “${words[j]}” ${vector(keys, j)}`;
    say(`The ${asks}, the ${found}: weight ${number(weights.data[at])}. Chosen: ${titleOf(chosen)}.`);
  }

  const below = element("div", { class: "made" }, left, right);
  const choosing = title("the two matrices");
  const heading = element("div", { class: "heading" }, choosing, element("div", { class: "tools" }, ...tools));
  const hint = "Choose a number, and change it with its slider.";
  const room = [2 * longest(words) + 40, words.join(", ").length, 130];
  return { nodes: [strip, heading, table, below], compute, paint, hint, room };
});
