// A model at the steps of its training: change what it reads, cut its heads, and see what it can still foretell.

import { indexOfLargest, rowOf, softmax, sumOf, unpack } from "./attention.js";
import { attentionOnly, foretold } from "./attention_only.js";
import { button, drawn, element, heed, number, picture, roving, set, times } from "./elements.js";
import { heatMap, scale } from "./heat_map.js";
import { player } from "./player.js";

export default picture((parts) => {
  const { data, state, controls, pointer, choose, point, say } = parts, { steps, alphabet, layers, heads } = data;
  const run = attentionOnly(unpack(data), steps.length, data.base), last = steps.length - 1;
  const places = times(layers * heads, (i) => ({ layer: Math.floor(i / heads), head: i % heads }));
  const nameOf = ({ layer, head }) => `layer ${layer}, head ${head}`;
  const isCut = ({ layer, head }, cut = state.cut) => cut.some(([l, h]) => l === layer && h === head);
  const guess = Math.log(alphabet.length), tokens = data.tokens;
  let row = [], marks = [], whole = null, gated = null, known = [];

  /** At every step: weights, the model's first guess after each letter, and loss and right guesses where it can know. */
  function readAt(cut) {
    const gates = times(layers, (layer) => times(heads, (head) => isCut({ layer, head }, cut) ? 0 : 1));
    const ids = row.map((letter) => alphabet.indexOf(letter));
    return steps.map((_, step) => {
      const { weights, logits } = run(step, ids.slice(0, -1), gates);
      const guesses = times(tokens, (i) => alphabet[indexOfLargest(rowOf(logits, i))]);
      const losses = marks.map((i) => -Math.log(Math.max(softmax(rowOf(logits, i - 1))[ids[i]], 1e-30)));
      const right = marks.filter((i) => guesses[i - 1] === row[i]).length;
      return { weights, guesses, right, loss: sumOf(losses) / marks.length };
    });
  }
  function compute() {
    const { letters, cut } = state, isNew = known[0] !== letters;
    if (isNew) [row, marks] = [[...letters], foretold([...letters])];
    if (isNew) whole = readAt([]);
    if (isNew || known[1] !== String(cut)) gated = cut.length ? readAt(cut) : whole;
    known = [letters, String(cut)];
  }

  const looks = element("p", { class: "looks" }), time = player(steps, parts);
  const [asGuess, ofWhole, ofGated] = ["guess", "whole", "gated"].map((name) =>
    drawn("path", { class: `curve-of ${name}` })
  );
  const marker = drawn("path", { class: "now" });
  const shape = { class: "loss", viewBox: "0 0 100 40", preserveAspectRatio: "none", "aria-hidden": true };
  const chart = heed(
    drawn("svg", shape, asGuess, ofWhole, ofGated, marker),
    (share) => choose(time.write(Math.round(share * last))),
  );
  const figures = ["gated", "whole", "guess"].map((name) => element("span", { class: `curve-of ${name}` }));
  const legend = element("p", { class: "title keys" }, "loss on the repeat", ...figures);

  const put = (place, letter) => row.map((own, i) => i === place ? letter : own).join("");
  const options = alphabet, read = () => alphabet.indexOf(row[state.query]);
  const write = (letter) => ({ letters: put(state.query, alphabet[letter]) });
  const list = controls({ letters: { label: "chosen letter", options, read, write } });
  const fresh = button("new row", () => choose({ letters: drawRow().join("") }));
  const tools = element("div", { class: "tools" }, fresh, list);

  /** Different letters, but that a piece comes again, as `draw_repeats` in models/induction.py draws them. */
  function drawRow() {
    const below = (count) => Math.floor(Math.random() * count), [shortest, longest] = data.piece, count = tokens + 1;
    const drawn = [...alphabet];
    for (let i = 0; i < count; i++) drawn.push(...drawn.splice(below(drawn.length - i), 1));
    const length = shortest + below(longest - shortest + 1), gap = below(count - 2 * length + 1);
    const start = below(count - 2 * length - gap + 1), copy = start + length + gap, row = drawn.slice(-count);
    return row.map((letter, i) => i >= copy && i < copy + length ? row[i - length - gap] : letter);
  }

  const words = times(tokens + 1, (i) => {
    const hover = { onpointerenter: () => point({ key: i }), onpointerleave: () => point(null) };
    const word = button("", () => (word.focus(), choose({ query: i })), { class: "word", ...hover });
    return word;
  });
  const answers = words.map(() => element("span", { class: "said" }));
  const pairs = words.map((word, i) => element("span", {}, word, answers[i]));
  const line = element(
    "div",
    { class: "letters", role: "group", "aria-label": "letters: choose one, type another" },
    ...pairs,
  );
  const stopAt = roving(words, words.length, (query) => choose({ query }));
  line.addEventListener("keydown", (event) => {
    const place = words.indexOf(document.activeElement), next = Math.min(place + 1, tokens);
    if (place < 0 || !alphabet.includes(event.key) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    words[next].focus();
    choose({ letters: put(place, event.key), query: next });
  });

  const cards = places.map((place) => {
    const flip = () => {
      const others = state.cut.filter(([layer, head]) => layer !== place.layer || head !== place.head);
      choose({ cut: isCut(place) ? others : [...others, [place.layer, place.head]].sort() });
    };
    const at = (cell) => ({ ...place, query: Math.floor(cell / tokens) });
    const onpick = (cell) => choose(at(cell));
    const onhover = (cell) => point(cell === null ? null : { ...at(cell), key: cell % tokens });
    const map = heatMap(tokens, tokens, { class: "map", gap: 0.04, "aria-hidden": true, onpick, onhover });
    const toggle = button([element("i", { class: "track" }), nameOf(place)], flip, { class: "switch" });
    set(toggle, { role: "switch", onfocus: () => choose(place) });
    const top = element("div", { class: "card-top" }, toggle);
    return {
      ...place,
      map,
      toggle,
      node: element("div", { class: "card", onclick: () => choose(place) }, top, map.node),
    };
  });
  roving(cards.map(({ toggle }) => toggle), cards.length);
  const grid = { class: "layer births", role: "group", "aria-label": "heads", "--heads": cards.length, "--narrow": 2 };
  const maps = element("div", grid, ...cards.map(({ node }) => node));

  function paintChart(step) {
    const losses = [...gated, ...whole].map(({ loss }) => loss).filter(Number.isFinite);
    const top = Math.max(guess, ...losses) * 1.06, y = (loss) => 40 - 40 * loss / top;
    const pathOf = (all) => `M${all.map(({ loss }, i) => `${100 * i / Math.max(last, 1)},${y(loss)}`).join("L")}`;
    set(asGuess, { d: `M0,${y(guess)}H100` });
    set(ofWhole, { d: marks.length ? pathOf(whole) : "" });
    set(ofGated, { d: marks.length ? pathOf(gated) : "" });
    set(marker, { d: `M${100 * step / Math.max(last, 1)},0V40` });
    const told = (loss) => Number.isFinite(loss) ? number(loss) : "–";
    const cut = state.cut.length ? "without the heads cut" : "as it is";
    const texts = [
      `${cut} ${told(gated[step].loss)}`,
      `with all heads ${told(whole[step].loss)}`,
      `a guess ${number(guess)}`,
    ];
    texts.forEach((text, i) => set(figures[i], { text }));
  }

  function paint() {
    const { step } = state, now = gated[step], { layer, head, query, key } = { ...seen(), ...pointer.pointed };
    const own = query < tokens ? rowOf(now.weights[layer][head], query) : [];
    const cut = places.filter((place) => isCut(place)).map(nameOf).join(" and ");
    const result = marks.length
      ? [`${number(now.loss, 1)} nats`, "on the repeat,", `${now.right} of ${marks.length}`, "letters right"]
      : ["nothing to foretell:", "no piece of this row comes again"];
    const bold = result.map((text, i) => element(i % 2 ? "span" : "b", {}, text));
    const heard = cut ? `without ${cut}` : "all heads are on";
    looks.replaceChildren(`Step ${steps[step]}:`, ...bold, element("small", {}, heard));
    time.paint();
    paintChart(step);
    words.forEach((word, i) => {
      const isMarked = marks.includes(i), given = i ? now.guesses[i - 1] : "", isRight = given === row[i];
      const says = i ? `, guessed ${given}${isMarked ? isRight ? ", right" : ", wrong" : ""}` : "";
      set(word, { text: row[i], "--w": (own[i] ?? 0).toFixed(3), "aria-pressed": i === state.query });
      set(word, { "aria-label": `${row[i]}${says}`, title: `weight ${number(own[i] ?? 0)}` });
      set(answers[i], { text: given, class: `said ${isMarked ? isRight ? "right" : "wrong" : ""}` });
    });
    if (!line.contains(document.activeElement)) stopAt(state.query);
    for (const { map, toggle, node, ...place } of cards) {
      map.show(now.weights[place.layer][place.head].data);
      map.mark("row", (cell) => Math.floor(cell / tokens) === query);
      node.classList.toggle("off", isCut(place));
      node.classList.toggle("pointed", place.layer === layer && place.head === head);
      set(toggle, { "aria-checked": !isCut(place), "aria-label": nameOf(place) });
    }
    const to = key ?? indexOfLargest(own), most = key === undefined ? "most weight" : "a weight";
    const from = query < tokens
      ? `From ${row[query]} at ${query}, ${nameOf({ layer, head })} puts ${most}, ${number(own[to] ?? 0)}, on ${
        row[to]
      } at ${to}.`
      : `The last letter, ${row[query]}, is foretold and not read.`;
    say(`Step ${steps[step]}, ${heard}: ${result.join(" ")}. ${from}`);
  }
  const seen = () => ({ layer: state.layer, head: state.head, query: state.query });

  const samples = ["right", "wrong"].map((name) => element("span", { class: `said ${name}` }, name));
  const note = element(
    "p",
    { class: "title keys" },
    "below each letter, what the model took it for beforehand:",
    ...samples,
  );
  const nodes = [looks, time.node, legend, chart, tools, note, line, maps, scale()];
  return { nodes, compute, paint, end: time.stop };
});
