// A model at the steps of its training: change what it reads, cut its heads, and see what it can still predict.

import { indexOfLargest, rowOf, softmax, sumOf, unpack } from "./attention.js";
import { attentionOnly, foretold } from "./attention_only.js";
import { button, drawn, element, number, picture, roving, set, times } from "./elements.js";
import { cutOf, headCards } from "./head_cards.js";
import { denseMap, queryFrame, scale } from "./heat_map.js";
import { player } from "./player.js";
import { firstLargest } from "./told.js";

const CURVES = { guess: "a guess", whole: "with all heads", gated: "with the heads that are on" };

export default picture((parts) => {
  const { data, state, controls, pointer, choose, point, pointing, headline, say } = parts;
  const { steps, alphabet, layers, heads, tokens } = data;
  const run = attentionOnly(unpack(data), steps.length, data.base), last = Math.max(steps.length - 1, 1);
  const nameOf = ({ layer, head }) => `layer ${layer}, head ${head}`;
  const cut = cutOf(parts), { isCut } = cut;
  const { cards: switches, paint: paintSwitches } = headCards(cut, layers, heads, layers * heads, nameOf);
  let row = [], marks = [], whole = null, gated = null, known = [];

  /** For every step: the weights, the first guess after each letter, and loss and right guesses at the marked letters. */
  function readAt(gateOf) {
    const gates = times(layers, (layer) => times(heads, (head) => gateOf({ layer, head })));
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
    const { letters, cut } = state, isNew = letters !== known[0];
    if (isNew) [row, marks] = [[...letters], foretold([...letters])];
    if (isNew) whole = readAt(() => 1);
    if (isNew || String(cut) !== known[1]) gated = cut.length ? readAt((place) => isCut(place) ? 0 : 1) : whole;
    known = [letters, String(cut)];
  }

  const curves = Object.keys(CURVES).map((name) => {
    const [path, figure] = [drawn("path"), element("span")].map((node) => set(node, { class: `curve-of ${name}` }));
    return { name, path, figure };
  });
  const legend = element("p", { class: "title keys" }, "loss on the repeat:", ...curves.map(({ figure }) => figure));
  const shape = { class: "loss", viewBox: "0 0 100 40", preserveAspectRatio: "none", "aria-hidden": true };
  const marker = drawn("path", { class: "now" });
  const time = player(steps, parts, [drawn("svg", shape, ...curves.map(({ path }) => path), marker)]);

  const put = (place, letter) => [...state.letters].map((own, i) => i === place ? letter : own).join("");
  const read = () => alphabet.indexOf([...state.letters][state.query]);
  const write = (letter) => ({ letters: put(state.query, alphabet[letter]) });
  const list = controls({ letters: { label: "chosen letter", options: alphabet, read, write } });
  let latest = 0; // of the rows that the training did not see
  function showAnother() {
    const letters = data.rows[latest = (latest + 1) % data.rows.length];
    choose({ letters, query: foretold([...letters])[0] });
  }

  const words = times(tokens + 1, (i) => {
    return button("", () => (words[i].focus(), choose({ query: i })), { class: "word", ...pointing({ key: i }) });
  });
  const answers = words.map(() => element("span", { class: "said" }));
  const line = element("div", { class: "letters", role: "group", "aria-label": "letters: choose one, type another" });
  line.append(...words.map((word, i) => element("span", {}, word, answers[i])));
  const stopAt = roving(words, words.length, (query) => choose({ query }));
  line.addEventListener("keydown", (event) => {
    const place = words.indexOf(event.target), query = Math.min(place + 1, tokens);
    if (place < 0 || !alphabet.includes(event.key) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    words[query].focus();
    choose({ letters: put(place, event.key), query });
  });

  const cards = switches.map(({ place, node, toggle }) => {
    const onpick = ({ query }) => choose({ ...place, query }), onhover = (at) => point(at && { ...place, ...at });
    const map = denseMap(tokens, tokens, { class: "map", "aria-hidden": true, onpick, onhover });
    node.append(map.node);
    toggle.addEventListener("focus", () => choose(place));
    return { place, map, frame: queryFrame(map, tokens), node };
  });
  const grid = { class: "layer", role: "group", "aria-label": "heads", "--heads": cards.length, "--narrow": 2 };
  const maps = element("div", grid, ...cards.map(({ node }) => node));

  function paintChart(step) {
    const losses = { guess: steps.map(() => Math.log(alphabet.length)) };
    [losses.whole, losses.gated] = [whole, gated].map((all) => all.map(({ loss }) => loss));
    const top = Math.max(...Object.values(losses).flat().filter(Number.isFinite));
    const x = (i) => 100 * i / last, y = (loss) => 39 - 38 * loss / top;
    for (const { name, path, figure } of curves) {
      const own = losses[name], isKnown = Number.isFinite(own[step]);
      set(path, { d: isKnown ? `M${own.map((loss, i) => `${x(i)},${y(loss)}`).join("L")}` : "" });
      set(figure, { text: `${CURVES[name]} ${isKnown ? number(own[step]) : "–"}` });
    }
    set(marker, { d: `M${x(step)},0V40` });
  }

  function paint() {
    const { step } = state, atStep = gated[step];
    const { layer = state.layer, head = state.head, query = state.query, key } = pointer.pointed ?? {};
    const own = query < tokens ? rowOf(atStep.weights[layer][head], query) : [];
    const [first, ...rest] = marks.length
      ? [`${number(atStep.loss, 1)} nats`, " on the repeat, ", `${atStep.right} of ${marks.length}`, " letters right"]
      : ["nothing to predict:", "no piece of this row is repeated"];
    const gone = cards.filter(({ place }) => isCut(place)).map(({ place }) => nameOf(place)).join(" and ");
    const heard = gone ? `without ${gone}` : "all heads are on", small = element("small", {}, heard);
    headline(`Step ${steps[step]}: `, first, ...rest.map((text) => ` ${text}`), small);
    time.paint();
    paintChart(step);
    words.forEach((word, i) => {
      const given = atStep.guesses[i - 1] ?? "", weight = own[i] ?? 0;
      const verdict = marks.includes(i) ? given === row[i] ? "right" : "wrong" : "";
      const guessed = i ? `, guessed ${given}${verdict && `, ${verdict}`}` : "";
      set(word, { text: row[i], "--w": weight.toFixed(3), "aria-pressed": i === state.query });
      set(word, { "aria-label": row[i] + guessed, title: `weight ${number(weight)}` });
      set(answers[i], { text: given, class: `said ${verdict}` });
    });
    if (!line.contains(document.activeElement)) stopAt(state.query);
    paintSwitches();
    for (const { place, map, frame, node } of cards) {
      map.show(atStep.weights[place.layer][place.head].data);
      frame(query < tokens ? query : null);
      set(node, { ".pointed": place.layer === layer && place.head === head });
    }
    const to = key ?? firstLargest(own, 2), most = key === undefined ? "most weight" : "a weight";
    const looking = `${nameOf({ layer, head })} puts ${most}, ${number(own[to] ?? 0)}, on ${row[to]} at ${to}`;
    const from = `From ${row[query]} at ${query}, ${looking}.`, end = `${row[query]} at the end is foretold, not read.`;
    say(query < tokens ? from : end, `Step ${steps[step]}, ${heard}: ${[first, ...rest].join(" ")}.`);
  }

  const samples = ["right", "wrong"].map((name) => element("span", { class: `said ${name}` }, name));
  const told = "below each letter, the model’s first guess for it; framed where the repeat tells it:";
  const tools = element("div", { class: "tools" }, button("new row", showAnother), list);
  const nodes = [time.node, legend, element("div", { class: "heading" }, tools, scale())];
  nodes.push(element("p", { class: "title keys" }, told, ...samples), line, maps);
  return { nodes, compute, paint, hint: "Move the slider, or switch a head off.", room: [58, 72, 105], end: time.stop };
});
