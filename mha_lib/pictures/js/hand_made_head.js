// A head made by hand: change a number of W_q or W_k, and see who asks, who is found, and who looks at whom.

import { attentionWeights, linear, matrix, rowOf, unpack } from "./attention.js";
import { button, drawn, element, number, picture, roving, set, times } from "./elements.js";
import { heatMap, named, scale } from "./heat_map.js";

const MOST = 20; // how far a number goes up and down

export default picture(({ data, state, controls, pointer, choose, point, repaint, headline, say }) => {
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
  const short = (value) => number(value, Number.isInteger(value) ? 0 : 1);
  const titleOf = ({ name, row, column }) => `${name}${size > 1 ? ` row ${row}` : ""}, ${features[column]}`;
  const told = (value) => `${titleOf(chosen)}: ${short(value)}`;
  const strip = controls({
    number: { label: "chosen number", min: -most, max: most, read, write, words: told },
    query: { label: "word that looks", max: n - 1, words: (i) => words[i] },
  });
  const { W_q, W_k } = given, numbers = () => state.numbers;
  const swap = () => choose({ numbers: { W_q: numbers().W_k, W_k: numbers().W_q } });
  const tools = [button("swap W_q and W_k", swap), button("start again", () => choose({ numbers: { W_q, W_k } }))];
  strip.append(element("div", { class: "tools" }, ...tools));

  const take = (i) => (chosen = places[i], repaint());
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
  const left = element("div", {}, title("each word’s query and key"), vectors);
  const right = element("div", {}, title("who looks (rows) at whom (columns)"), named(map, words, words), scale());

  function compute() {
    const { numbers } = state, weight = (name) => matrix(size, width, Float32Array.from(numbers[name].flat()));
    [queries, keys] = ["W_q", "W_k"].map((name) => linear(X, weight(name)));
    [weights] = attentionWeights(queries, keys, 1, n);
  }

  /** Whom a word looks at most, or at whom equally: parts of the headline. */
  function seen(query) {
    const row = [...rowOf(weights, query)], high = Math.max(...row), who = `“${words[query]}” looks `;
    const liked = words.filter((_, key) => row[key] > high - 0.005);
    const share = `, ${number(high)}${liked.length > 1 ? " each" : ""}`;
    if (liked.length === n) return [who, "at all words equally", share];
    if (liked.length === 1) return [who, `at “${liked[0]}” most`, share];
    return [who, `at ${liked.length} words equally`, share, element("small", {}, liked.join(", "))];
  }

  function paint() {
    const { query, numbers } = state, vector = (M, i) => [...rowOf(M, i)].map(short).join(", ");
    cells.forEach((node, i) => {
      const { name, row, column } = places[i], value = numbers[name][row][column];
      set(node, { text: value ? short(value) : "·", "aria-pressed": places[i] === chosen });
      set(node, { "aria-label": `${titleOf(places[i])}: ${short(value)}` });
    });
    figures.forEach((pair, i) => [queries, keys].forEach((M, k) => set(pair[k], { text: vector(M, i) })));
    map.show(weights.data);
    set(band, { d: `M0,${query}H${n}V${query + 1}H0Z` });
    map.mark("pointed", (i) => i === pointer.pointed);
    map.say((i, row, column) => `${words[row]} on ${words[column]}: ${number(weights.data[i])}`, query * n);
    headline(...seen(query));
    const row = [...rowOf(weights, query)];
    const at = pointer.pointed ?? query * n + row.indexOf(Math.max(...row)), [i, j] = [Math.floor(at / n), at % n];
    const asks = `“${words[i]}” asks with ${vector(queries, i)}`,
      found = `“${words[j]}” is found by ${vector(keys, j)}`;
    say(`${asks}, ${found}: the weight is ${number(weights.data[at])}. Chosen: ${titleOf(chosen)}.`);
  }

  const below = element("div", { class: "made" }, left, right);
  return { nodes: [strip, title("the two matrices: choose a number and change it"), table, below], compute, paint };
});
