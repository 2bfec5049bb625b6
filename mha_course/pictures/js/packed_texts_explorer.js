// Two texts in one row: the border that a program puts between them, and how far each output is from its text alone.

import { attentionWeights, linear, matrix, mix, rowOf, rowsOf, unpack } from "./attention.js";
import { amount, drawn, element, heed, number, picture, set, times } from "./elements.js";
import { heatMap, named, scale } from "./heat_map.js";

const AGAIN = "start again";
const POSITIONS = { [AGAIN]: AGAIN, "go on": "go on" };

/** Weights (null: masked) and outputs of a causal head that reads the row with this border. */
function readRow({ tokens, places, W_q, W_k }, border, masked, again) {
  const n = tokens.rows, d = tokens.columns, weights = Array(n * n).fill(null), outputs = [];
  const positionOf = (i) => again && i >= border ? i - border : i;
  const X = matrix(n, d);
  tokens.data.forEach((x, at) => X.data[at] = x + rowOf(places, positionOf(Math.floor(at / d)))[at % d]);
  const queries = linear(X, W_q), keys = linear(X, W_k);
  for (const [start, end] of masked ? [[0, border], [border, n]] : [[0, n]]) {
    const [Q, K, V] = [queries, keys, X].map((all) => rowsOf(all, start, end - start));
    const own = attentionWeights(Q, K, 1, times(end - start, (i) => i + 1)), output = mix(own, V, [1]);
    times(end - start, (i) => {
      outputs.push(rowOf(output, i));
      times(i + 1, (j) => weights[(start + i) * n + start + j] = rowOf(own[0], i)[j]);
    });
  }
  return { weights, outputs };
}

export default picture(({ data, state, controls, pointer, choose, point, headline, say }) => {
  const { names, border: right, alike } = data, tensors = unpack(data), n = names.length;
  const alone = readRow(tensors, right, true, true);
  let reading = null;

  const strip = controls({
    border: { label: "border before token", max: n, words: (border) => `${border} of ${n}` },
    masked: { label: "mask by text", check: true },
    positions: { options: POSITIONS },
  });
  const map = heatMap(n, n, { label: "attention weights", class: "chart", onmove: point, onhover: point });
  heed(map.node, (across) => choose({ border: Math.round(across * n) }));
  const line = map.over.appendChild(drawn("path", { class: "edge" })), verdicts = times(n, () => element("span"));
  const title = element("p", { class: "title" }, "weights; on the right, how far each output is from its text alone");
  const left = element("div", {}, title, named(map, names, names, verdicts)), side = element("div", {}, scale());
  side.append(
    element("p", {}, "Text B begins at token 5. The lines are where the program puts the border."),
    element("p", {}, "Hatched: masked. Dashed: attended to or masked by mistake."),
  );

  function compute() {
    const { weights, outputs } = readRow(tensors, state.border, state.masked, state.positions === AGAIN);
    const far = outputs.map((output, i) => Math.max(...output.map((x, j) => Math.abs(x - alone.outputs[i][j]))));
    const isLeak = (i) => weights[i] !== null && alone.weights[i] === null;
    const isLost = (i) => weights[i] === null && alone.weights[i] !== null;
    const cells = weights.map((_, i) => i), count = (isSo) => cells.filter(isSo).length;
    reading = { weights, far, isLeak, isLost, leaks: count(isLeak), lost: count(isLost) };
  }

  /** What goes wrong, or that nothing does: parts of the headline. */
  function seen() {
    const { leaks, lost, far } = reading, wrong = far.filter((x) => x > alike).length;
    const bold = element("b", { class: "wrong" }, amount(wrong, "token differs", "tokens differ"));
    if (!wrong) return ["Each token gets what it gets in its text alone"];
    if (!leaks && !lost) return ["Every pair is right, but the positions of B go on: ", bold];
    return [`${amount(leaks, "pair leaks", "pairs leak")}, ${lost} missing: `, bold];
  }

  function paint() {
    const { weights, far, isLeak, isLost, leaks, lost } = reading, { pointed } = pointer;
    headline(...seen());
    map.show(weights, (i) => weights[i] === null);
    map.mark("wrong", (i) => isLeak(i) || isLost(i));
    map.mark("pointed", (i) => i === pointed);
    const words = (i) => `${weights[i] === null ? "masked" : number(weights[i])}${isLeak(i) ? ", a leak" : ""}`;
    const pair = (i) => `Query ${names[Math.floor(i / n)]}, key ${names[i % n]}: ${words(i)}`;
    map.say(pair);
    set(line, { d: `M${state.border},0v${n}M0,${state.border}h${n}` });
    const verdict = (x) => x > alike ? `✗ ${number(x)}` : "✓";
    verdicts.forEach((node, i) => set(node, { text: verdict(far[i]), class: far[i] > alike ? "wrong" : null }));
    const [A, B] = [far.slice(0, right), far.slice(right)].map((part) => number(Math.max(...part)));
    const pairs = `${amount(leaks, "pair leaks", "pairs leak")}, ${lost} missing.`;
    const at = pointed == null ? "" : `${pair(pointed)}. `;
    say(`${at}Border before token ${state.border}. From each text alone, A differs by up to ${A}, B by ${B}.`, pairs);
  }

  return {
    nodes: [strip, element("div", { class: "cached" }, left, side)],
    compute,
    paint,
    hint: "Drag the lines, or move the slider.",
    room: [67, 0, 120],
  };
});
