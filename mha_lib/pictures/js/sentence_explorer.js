// A real sentence and all heads of a real model: choose a word, see where every head looks from there.

import { indexOfLargest } from "./attention.js";
import { button, choice, drawn, element, number, picture, roving, set, times } from "./elements.js";
import { heatMap, scale } from "./heat_map.js";

const FAINT = 0.04; // arcs for less weight than this are left out

function build({ model, choose, repaint, say }) {
  const sentences = model.get("sentences"), named = model.get("named");
  const bytes = model.get("weights"), numbers = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const { layers, heads } = model.get("sizes");
  const starts = [];
  sentences.reduce((start, { tokens }) => (starts.push(start), start + layers * heads * tokens.length ** 2), 0);
  let shown = null, words = [], glyphs = [], pointed = {};

  const sentence = choice(
    "sentence",
    Object.fromEntries(sentences.map(({ text }, i) => [i, text])),
    (i) => choose({ example: Number(i), query: Math.min(model.get("query"), sentences[i].tokens.length - 1) }),
  );
  const line = element("div", { class: "words", role: "group", "aria-label": "words: choose who looks" });
  const arcs = drawn("svg", { class: "arcs", "aria-hidden": true });
  const named_ = named.map(({ layer, head, name }) => {
    const node = button(name, () => choose({ layer, head }), { title: `layer ${layer}, head ${head}` });
    return { layer, head, node };
  });
  const grid = element("div", { class: "glyphs", role: "group", "aria-label": "all heads", "--heads": heads });
  const title = element("p", { class: "title" });
  const point = (what) => {
    pointed = what;
    repaint();
  };

  /** Where one head looks from one word: weights on all words. */
  function rowAt(layer, head, query) {
    const count = words.length, start = starts[shown] + ((layer * heads + head) * count + query) * count;
    return Array.from(numbers.subarray(start, start + count), (share) => share / 255);
  }

  function rebuild(example) {
    shown = example;
    const { tokens } = sentences[example];
    words = tokens.map((token, i) => {
      const node = button(token, () => choose({ query: i }), { class: "word" });
      return set(node, { onpointerenter: () => point({ key: i }), onpointerleave: () => point({}) });
    });
    line.replaceChildren(...words);
    roving(words, words.length, (query) => choose({ query }));
    const rows = times(layers, (layer) => [
      element("span", {}, `layer ${layer}`),
      ...times(heads, (head) => {
        const strip = heatMap(1, tokens.length, {
          gap: 0,
          preserveAspectRatio: "none",
          "aria-hidden": true,
          height: 18,
        });
        const node = element(
          "button",
          { type: "button", class: "glyph", onclick: () => choose({ layer, head }) },
          strip.node,
        );
        set(node, { onpointerenter: () => point({ layer, head }), onpointerleave: () => point({}) });
        glyphs.push({ layer, head, strip, node });
        return node;
      }),
    ]);
    grid.replaceChildren(...rows.flat());
    glyphs = glyphs.slice(-layers * heads);
    roving(glyphs.map(({ node }) => node), heads, (i) => choose({ layer: Math.floor(i / heads), head: i % heads }));
  }

  /** Arcs from the chosen word to those it looks at, as long as all words stand in one line. */
  function drawArcs(weights, query) {
    const isOneLine = words.every((word) => word.offsetTop === words[0].offsetTop);
    arcs.toggleAttribute("hidden", !isOneLine);
    if (!isOneLine) return;
    const width = line.clientWidth, middle = (word) => word.offsetLeft - line.offsetLeft + word.offsetWidth / 2;
    set(arcs, { viewBox: `0 0 ${width} 120` });
    const from = middle(words[query]);
    arcs.replaceChildren(...weights.flatMap((weight, key) => {
      if (weight < FAINT) return [];
      const to = middle(words[key]), high = key === query ? 90 : Math.max(118 - Math.abs(to - from) * 0.45, 6);
      const bow = key === query ? 22 : 0;
      const d = `M${from},120C${from - bow},${high} ${to + bow},${high} ${to},120`;
      return [
        drawn("path", { d, "stroke-width": (1 + 9 * weight).toFixed(1), opacity: (0.25 + 0.75 * weight).toFixed(2) }),
      ];
    }));
  }

  function paint() {
    const example = model.get("example");
    if (example !== shown) rebuild(example);
    const { tokens } = sentences[example], query = Math.min(model.get("query"), tokens.length - 1);
    const layer = pointed.layer ?? model.get("layer"), head = pointed.head ?? model.get("head");
    const weights = rowAt(layer, head, query);
    words.forEach((word, i) => {
      set(word, { "--w": weights[i].toFixed(3), "aria-pressed": i === query, title: `weight ${number(weights[i])}` });
    });
    if (!line.contains(document.activeElement)) {
      words.forEach((word, i) => set(word, { tabindex: i === query ? 0 : -1 }));
    }
    drawArcs(weights, query);
    for (const glyph of glyphs) {
      const row = rowAt(glyph.layer, glyph.head, query), most = indexOfLargest(row);
      glyph.strip.show(row);
      const isChosen = glyph.layer === model.get("layer") && glyph.head === model.get("head");
      set(glyph.node, {
        "aria-pressed": isChosen,
        "aria-label": `layer ${glyph.layer}, head ${glyph.head}: most on ${tokens[most]}`,
        tabindex: isChosen && !grid.contains(document.activeElement) ? 0 : glyph.node.getAttribute("tabindex"),
      });
    }
    for (const one of named_) set(one.node, { "aria-pressed": one.layer === layer && one.head === head });
    const name = named.find((one) => one.layer === layer && one.head === head)?.name;
    title.textContent = `layer ${layer}, head ${head}${name ? `: ${name}` : ""}`;
    sentence.input.value = example;
    const key = pointed.key ?? indexOfLargest(weights), order = pointed.key === undefined ? "most" : "this";
    say(
      `From “${tokens[query]}”, layer ${layer}, head ${head}${name ? ` (${name})` : ""} puts ${order} weight, ${
        number(weights[key])
      }, on “${tokens[key]}”.`,
    );
  }

  const resized = new ResizeObserver(() => shown !== null && repaint());
  resized.observe(line);
  return {
    nodes: [
      element("div", { class: "controls" }, sentence.node),
      element(
        "div",
        { class: "named", role: "group", "aria-label": "heads with a name" },
        ...named_.map(({ node }) => node),
      ),
      title,
      arcs,
      line,
      scale({ 0: "0", 0.25: ".25", 0.5: ".5", 1: "1" }),
      grid,
    ],
    paint,
    painted: ["example", "query", "layer", "head"],
    end: () => resized.disconnect(),
  };
}

export default { render: picture(build) };
