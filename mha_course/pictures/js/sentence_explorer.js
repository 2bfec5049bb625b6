// A real sentence and all heads of a real model: choose a word, see where every head looks from there.

import { bytesOf } from "./attention.js";
import { button, drawn, element, inPercent, number, parts } from "./elements.js";
import { picture, roving, set, times, titled, tr } from "./elements.js";
import { heatMap, scale } from "./heat_map.js";
import { asker, ownText } from "./own_text.js";
import { firstLargest } from "./told.js";

const FAINT = 0.04; // arcs for less weight than this are left out
const TALLEST = 84, LOW = 82; // pixels above the words: of an arc over one line, and of those between lines
const LARGEST = 18, DOTTED = 15, SMALLEST = 12; // pixels of letters; below the middle one [CLS] and [SEP] are dots

const headAt = (layer, head) => tr("layer {layer}, head {head}", { layer, head });

export default picture((shared) => {
  const { data, state, controls, pointer, choose, pointing, headline, say } = shared;
  const { sentences, named, layers, heads } = data, all = new Map();
  const learn = ({ text, tokens, weights }) => all.set(text, { tokens, weights: bytesOf(weights) });
  sentences.forEach(learn);
  const kept = [...all.values()], current = () => all.get(state.text) ?? kept[state.example];
  let shown = null, fitted = null, words = [], glyphs = [], drawnArcs = [];

  const options = sentences.map(({ text }) => text), inside = ({ tokens }) => Math.min(state.query, tokens.length - 1);
  const write = (i) => ({ example: Number(i), text: "", query: inside(kept[i]) });
  const strip = controls({ example: { label: tr("sentence"), options, write } });
  const { canAsk, question, once } = asker(shared, learn),
    show = (text) => choose({ text, query: inside(all.get(text)) });
  const own = ownText(canAsk, tr("a sentence of your own"), (text, tell) => question({ text }, tell, () => show(text)));
  const line = element("div", { class: "words", role: "group", "aria-label": tr("words: choose the query") });
  const arcs = drawn("svg", { class: "arcs", "aria-hidden": true });
  const chips = named.map(({ layer, head, name }) =>
    button(name, () => choose({ layer, head }), { class: "chip", title: headAt(layer, head) })
  );
  const group = { class: "tools named", role: "group", "aria-label": tr("heads with a name") };
  const names = element("div", group, ...chips);
  const grid = element("div", { class: "glyphs", role: "group", "aria-label": tr("all heads"), "--heads": heads });
  const from = titled();

  /** What one head attends to from one word: weights on all words. */
  function rowAt(layer, head, query) {
    const count = words.length, start = ((layer * heads + head) * count + query) * count;
    return Array.from(shown.weights.subarray(start, start + count), (share) => share / 255);
  }

  function rebuild(sentence) {
    [shown, fitted, pointer.pointed, drawnArcs] = [sentence, null, null, []];
    const { tokens } = sentence;
    words = tokens.map((token, i) => {
      const kind = token.startsWith("[") ? "word special" : "word";
      return button(token, () => choose({ query: i }), { class: kind, ...pointing({ key: i }) });
    });
    line.replaceChildren(...words);
    roving(words, words.length, (query) => choose({ query }));
    glyphs = times(layers * heads, (i) => {
      const place = { layer: Math.floor(i / heads), head: i % heads };
      const strip = heatMap(1, tokens.length, { gap: 0, preserveAspectRatio: "none", "aria-hidden": true });
      return { ...place, strip, node: button(strip.node, () => choose(place), { class: "glyph", ...pointing(place) }) };
    });
    const corner = element("span", { class: "first", "data-of": tr("head"), "aria-hidden": true });
    const numbered = times(heads, (head) => element("span", { "aria-hidden": true }, head));
    const first = (layer) => element("span", { class: "first", "data-of": tr("layer") }, layer);
    const nodes = glyphs.map(({ node }) => node);
    const rows = times(layers, (layer) => [first(layer), ...nodes.slice(layer * heads, (layer + 1) * heads)]);
    grid.replaceChildren(corner, ...numbered, ...rows.flat());
    roving(nodes, heads, (i) => choose({ layer: glyphs[i].layer, head: glyphs[i].head }));
  }

  /** Give the words the largest letters with which they stand in one line, or else in the fewest lines. */
  function fit() {
    if (fitted === line.clientWidth) return;
    fitted = line.clientWidth;
    const breaks = (size) => {
      set(line, { "--size": `${size}px` });
      line.classList.toggle("dotted", size < DOTTED);
      return words.filter((word, i) => i && word.offsetLeft < words[i - 1].offsetLeft).length;
    };
    const fewest = breaks(SMALLEST);
    line.classList.toggle("wrapped", fewest > 0);
    for (let size = LARGEST; breaks(size) > fewest && size > SMALLEST; size -= 0.5);
  }

  /**
   * Arcs from the chosen word to those it attends to: above its line, below it where it is the first, and between lines.
   * Those of another word grow, and what is drawn already stays.
   */
  function drawArcs(weights, query, layer, head) {
    const wanted = [query, layer, head, line.clientWidth, line.clientHeight];
    if (String(wanted) === String(drawnArcs)) return;
    arcs.classList.toggle("growing", drawnArcs.length > 0 && drawnArcs[0] !== query);
    drawnArcs = wanted;
    const boxes = words.map(({ offsetLeft: left, offsetTop: top, offsetWidth: width, offsetHeight: height }) => (
      { x: left + width / 2, top, bottom: top + height, middle: top + height / 2 }
    ));
    const { x, top, bottom, middle } = boxes[query], isBeside = (box) => Math.abs(box.middle - middle) < 5;
    const isOneLine = boxes.every(isBeside), isBelow = !isOneLine && isBeside(boxes[0]); // there is no room above these
    set(arcs, { viewBox: `0 0 ${line.clientWidth} ${line.clientHeight}` });
    const pathTo = (to, key) => {
      const bow = key === query ? 26 : 0, wanted = bow ? 50 : 24 + Math.abs(to.x - x) * 0.32;
      const far = Math.min(wanted, (isOneLine ? TALLEST : LOW) * 4 / 3);
      const [level, turn] = isBelow ? [bottom - 3, bottom + far] : [top + 3, top - far];
      if (isBeside(to)) return `M${x},${level}C${x - bow},${turn} ${to.x + bow},${turn} ${to.x},${level}`;
      const [start, end] = to.top > top ? [bottom - 3, to.top + 3] : [top + 3, to.bottom - 3], half = (start + end) / 2;
      return `M${x},${start}C${x},${half} ${to.x},${half} ${to.x},${end}`;
    };
    const order = [...weights.keys()].filter((key) => weights[key] >= FAINT).sort((a, b) => weights[a] - weights[b]);
    arcs.replaceChildren(...order.map((key) => {
      const width = (1.5 + 8 * weights[key]).toFixed(1), d = pathTo(boxes[key], key);
      return drawn("path", { class: "arc", d, pathLength: 1, "stroke-width": width, "--w": weights[key] });
    }));
  }

  function paint() {
    if (state.text && !all.has(state.text)) once({ text: state.text });
    if (current() !== shown) rebuild(current());
    const { tokens } = shown, query = Math.min(state.query, tokens.length - 1);
    const { layer = state.layer, head = state.head } = pointer.pointed ?? {}, weights = rowAt(layer, head, query);
    words.forEach((word, i) => {
      const title = tr("{token}, weight {weight}", { token: tokens[i], weight: number(weights[i]) });
      set(word, { "--w": weights[i].toFixed(3), "aria-pressed": i === query, title });
      if (!line.contains(document.activeElement)) set(word, { tabindex: i === query ? 0 : -1 });
    });
    fit();
    drawArcs(weights, query, layer, head);
    for (const { node, strip, ...place } of glyphs) {
      const row = rowAt(place.layer, place.head, query), label = headAt(place.layer, place.head);
      const isChosen = place.layer === state.layer && place.head === state.head;
      strip.show(row);
      const most = tr("{head}: most on {token}", { head: label, token: tokens[firstLargest(row, 2)] });
      set(node, { "aria-pressed": isChosen, "aria-label": most });
      if (!grid.contains(document.activeElement)) set(node, { tabindex: isChosen ? 0 : -1 });
    }
    const isShown = (entry) => entry.layer === layer && entry.head === head, of = headAt(layer, head);
    named.forEach((entry, i) => set(chips[i], { "aria-pressed": isShown(entry) }));
    const name = named.find(isShown)?.name;
    const key = pointer.pointed?.key ?? firstLargest(weights, 2), isMost = pointer.pointed?.key === undefined;
    const small = element("small", {}, name ? `${name}${tr(": ")}${of}` : of), share = inPercent(weights[key]);
    const ends = { query: "\u0000", key: "\u0001" };
    const seen = parts("*{query}* attends to *{key}* with *{share} %* of its weight", { ...ends, share });
    const tokenFor = { "\u0000": element("b", { class: "q" }, tokens[query]), "\u0001": tokens[key] };
    headline(...seen.map((part) => tokenFor[part] ?? part), small);
    from.textContent = tr("all {count} heads, from “{token}”", { count: layers * heads, token: tokens[query] });
    const told = { query: tokens[query], weight: number(weights[key]), key: tokens[key] };
    told.head = name ? tr("{stage} ({way})", { stage: of, way: name }) : of;
    const next = firstLargest(weights.with(key, -1), 2), second = { key: tokens[next], weight: number(weights[next]) };
    say(
      tokens.length > 1 ? tr("Of the other tokens, “{key}” gets the largest weight, {weight}.", second) : "",
      isMost
        ? tr("From “{query}”, {head} puts most weight, {weight}, on “{key}”.", told)
        : tr("From “{query}”, {head} puts this weight, {weight}, on “{key}”.", told),
    );
  }

  const sentence = element("div", { class: "sentence" }, arcs, line);
  const heading = element("div", { class: "heading" }, from, scale());
  return {
    nodes: [sentence, names, element("div", { class: "texts" }, strip, own), heading, grid],
    paint,
    hint: tr("Choose a word, or another head."),
    room: [52, 42, 95],
  };
});
