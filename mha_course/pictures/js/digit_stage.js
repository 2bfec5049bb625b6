// What the head explorer shows beside the heads: the image, the patches to look from, the ten probabilities.

import { indexOfLargest, matrix, rowOf, softmax } from "./attention.js";
import { drawing, outlineOf } from "./digit_image.js";
import { button, drawn, element, inPercent, isPress, number, set, short, times } from "./elements.js";
import { heatMap } from "./heat_map.js";
import { rounded } from "./told.js";

const TOP = 0.4; // the weight where the scale ends: of 17 keys hardly one gets more
const a = (digit, article = "a") => `${article}${digit === 8 ? "n" : ""} ${digit}`;
const NAMES = ["class token", ...times(16, (i) => `r${i >> 2}c${i & 3}`)];

export function digitStage({ model, state, pointer, frame, choose, point, repaint, example }) {
  let pen = false, outlined = null, outline = "";
  const paper = drawing(), toPatch = (patch) => choose({ query: patch + 1 });

  const onpick = ({ cell }) => pen || toPatch(cell), label = "patches of the image";
  const onhover = (at) => point(at && { key: at.cell + 1 });
  const large = heatMap(4, 4, { gap: 0, label, role: "button", onpick, onhover });
  const pixels = times(64, (i) => drawn("rect", { x: (i & 7) / 2, y: (i >> 3) / 2, width: 0.51, height: 0.51 }));
  const numbers = times(16, (i) => drawn("text", { x: (i & 3) + 0.5, y: (i >> 2) + 0.5 }));
  const chosen = drawn("rect", { class: "query", width: 0.92, height: 0.92, rx: 0.05 });
  large.over.append(drawn("g", { class: "ink" }, ...pixels), drawn("g", { class: "numbers" }, ...numbers), chosen);

  const draw = (event) => {
    const box = large.node.getBoundingClientRect();
    paper.moveTo((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    model.set("drawn", paper.image()); // Python hears of it at the end of a stroke
  };
  const withPen = (act) => (event) => pen && act(event);
  set(large.node, {
    onpointerdown: withPen((event) => (large.node.setPointerCapture(event.pointerId), draw(event))),
    onpointermove: withPen((event) => event.buttons && draw(event)),
    onpointerup: withPen(() => (paper.lift(), choose({ drawn: paper.image() }))),
    onkeydown: withPen((event) => {
      if (!isPress(event)) return;
      paper.turn(large.cells.indexOf(event.target));
      choose({ drawn: paper.image() });
    }),
  });
  const takePen = (taken) => (pen = taken, repaint());
  const penButton = button("✎ Draw", () => {
    takePen(!pen);
    if (pen) choose({ drawn: paper.clear().image() });
  }, { title: "draw a digit of your own: fill the frame" });
  const what = { class: "class-token", title: "look from the class token, which gives the answer" };
  const classToken = button("class token", () => choose({ query: 0 }), what);

  const [share, truth] = ["share", "truth"].map((name) => element("span", { class: name })), digit = element("strong");
  const mark = (name) => element("i", { class: name });
  const bars = times(10, (i) => element("div", { class: "bar" }, mark("ghost"), mark("fill"), element("b", {}, i)));
  const chart = element("div", { class: "bars", role: "img" }, ...bars);
  const says = element("div", { class: "says" }, element("small", {}, "reads as"), digit, share, truth);

  const imageOf = (i) => example.inputs(i).map((darkness) => darkness / 16);
  const current = () => state.drawn?.length ? state.drawn : imageOf(state.example);
  const isEmpty = () => !current().some((darkness) => darkness > 0);
  const inputsOf = (image) => {
    const patches = matrix(16, 4);
    image.forEach((darkness, i) => {
      const patch = (i >> 4) * 4 + ((i & 7) >> 1), pixel = ((i >> 3) & 1) * 2 + (i & 1);
      patches.data[patch * 4 + pixel] = darkness;
    });
    return patches;
  };
  const surround = (box, inset) => {
    const patch = Math.max(state.query - 1, 0), visibility = state.query ? "visible" : "hidden";
    set(box, { x: (patch & 3) + inset, y: (patch >> 2) + inset, visibility });
  };

  /** How sure the same answer is without a head, beside how sure it is with all; "" where these are told alike. */
  const fadesFrom = (whole) => (logits) => {
    const read = indexOfLargest(whole), [less, more] = [logits, whole].map((one) => softmax(one)[read]);
    const [without, before] = [less, more].map((share) => number(100 * share, less > 0.995 ? 1 : 0));
    return without === before ? "" : `${a(read)} with ${without} %, not ${before} %`;
  };

  return {
    left: [element("div", { class: "paper" }, large.node), classToken],
    tools: [penButton],
    answer: element("div", { class: "answer" }, says, chart),
    marks: { 0: "0", [1 / 17]: "even", 0.2: ".2", [TOP]: "≥ .4" },
    shade: (weight) => weight / TOP,
    names: NAMES,
    inputs: (i) => inputsOf(imageOf(i)),
    current: () => inputsOf(current()),
    isOwn: () => state.drawn?.length > 0,
    isEmpty,
    doesAClick: () => pen ? "draw on it, or press Enter to ink it" : "click it to look from there",
    leave: () => takePen(false),

    /** A head's card: a map of patches with the ink's edge, and a square for the class token. */
    card(place) {
      const onpick = ({ cell }) => toPatch(cell);
      const onhover = (at) => point({ ...place, key: at ? at.cell + 1 : undefined });
      const map = heatMap(4, 4, { class: "map", role: "img", onpick, onhover });
      const lines = ["halo", "line"].map((name) => drawn("path", { class: `outline ${name}` }));
      const query = drawn("rect", { class: "query", width: 0.88, height: 0.88, rx: 0.07 });
      map.over.append(...lines, query);
      const corner = element("i", { class: "swatch", title: "weight on the class token" });
      const paint = (weights, shade) => {
        const row = rowOf(weights, state.query);
        map.show(row.subarray(1), undefined, shade);
        set(corner, { "--w": Math.min(shade(row[0]), 1).toFixed(3) });
        lines.forEach((line) => set(line, { d: outline }));
        surround(query, 0.06);
      };
      return { node: set(map.node, { role: "img" }), corner, paint };
    },

    paint({ gated, whole, target }) {
      const image = current(), empty = isEmpty(), { pointed } = pointer, { query } = state;
      if (outlined !== String(image)) [outlined, outline] = [String(image), outlineOf(image)];
      pixels.forEach((pixel, i) => set(pixel, { "--dark": image[i].toFixed(3) }));
      const lens = pointed?.layer === undefined ? null : rowOf(gated.weights[pointed.layer][pointed.head], query);
      large.show(lens ? lens.subarray(1) : new Float32Array(16), undefined, (weight) => weight / TOP);
      set(frame, { ".lens": lens !== null, ".drawing": pen });
      numbers.forEach((node, i) => set(node, { text: lens ? short(lens[i + 1]) : "" }));
      surround(chosen, 0.04);
      set(classToken, { "aria-pressed": query === 0 });
      set(penButton, { "aria-pressed": pen });
      large.cells.forEach((cell, i) => set(cell, { "aria-pressed": pen ? null : query === i + 1 }));
      const act = pen ? "draw on " : "";
      large.say((_, row, column) => `${act}patch row ${row}, column ${column}`, Math.max(query - 1, 0));

      const probabilities = softmax(gated.logits), before = softmax(whole.logits);
      const answer = indexOfLargest(probabilities), wanted = target ?? indexOfLargest(before);
      const isRight = answer === wanted;
      set(frame, { ".wrong": !isRight && !empty, ".empty": empty });
      set(digit, { text: answer });
      set(share, { text: `${inPercent(probabilities[answer])} %` });
      const own = isRight ? "your drawing" : `✗ with all heads: ${wanted}`;
      const verdict = target === null ? own : `${isRight ? "✓ it is" : "✗ but it is"} ${a(wanted)}`;
      set(truth, { text: empty ? "an empty sheet" : verdict });
      bars.forEach((bar, i) =>
        set(bar, { "--p": probabilities[i].toFixed(4), "--before": before[i].toFixed(4), ".most": i === answer })
      );
      const shares = Array.from(probabilities, (share) => rounded(share, 2));
      const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]).slice(0, 3);
      const likely = order.map((i) => `${i} ${number(probabilities[i])}`).join(", ");
      set(chart, { "aria-label": `probabilities: ${empty ? "none" : likely}` });
      if (empty) return { told: "The sheet is empty: draw a digit.", instead: "Draw a digit" };
      const who = target !== null ? a(wanted, "A") : "Your drawing";
      return {
        told: `${who} is read as ${answer} (${number(probabilities[answer])}).`,
        now: a(answer),
        before: a(indexOfLargest(before)),
        lost: (logits) => [a(indexOfLargest(logits)), `, not ${a(indexOfLargest(before))}`],
        fades: fadesFrom(whole.logits),
        isWrong: !isRight,
      };
    },
  };
}
