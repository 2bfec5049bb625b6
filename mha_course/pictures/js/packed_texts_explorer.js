// Two texts in one row: the border that a program puts between them, and how far each output is from its text alone.

import { rowOf, rowsOf, unpack } from "./attention.js";
import { amount, byName, drawn, element, heed, marked, number, picture, set, times, titled } from "./elements.js";
import { heatMap, named, scale } from "./heat_map.js";

const AGAIN = "start again";
const BORDER = "Text B begins at token 5. The lines are where the program puts the border.";

export default picture(({ data, state, controls, pointer, choose, point, headline, say }) => {
  const { names, border: right, alike } = data, every = unpack(data), n = names.length;
  /** Weights, 0 where masked, and distances of outputs from their texts alone, read in one of all ways. */
  function readRow(border, masked, again) {
    const at = 4 * border + (masked ? 0 : 2) + (again ? 0 : 1);
    return { weights: rowsOf(every.weights, at * n, n).data, far: [...rowOf(every.far, at)] };
  }
  const due = readRow(right, true, true).weights;
  let reading = null;

  const strip = controls({
    border: { label: "border before token", max: n, words: (border) => `${border} of ${n}` },
    masked: { label: "mask by text", check: true },
    positions: { options: byName([AGAIN, "go on"]) },
  });
  const map = heatMap(n, n, { label: "attention weights", class: "chart", onmove: point, onhover: point });
  heed(map.node, (across) => choose({ border: Math.round(across * n) }));
  const line = map.over.appendChild(drawn("path", { class: "edge" })), verdicts = times(n, () => element("span"));
  const title = titled("weights; on the right, how far each output is from its text alone");
  const left = element("div", {}, title, named(map, names, names, verdicts));
  const masked = "Hatched: masked. Dashed: attended to or masked by mistake.", note = (text) => element("p", {}, text);
  const side = element("div", {}, scale(), note(BORDER), note(masked));

  function compute() {
    const { weights, far } = readRow(state.border, state.masked, state.positions === AGAIN);
    const isLeak = (i) => weights[i] > 0 && due[i] === 0, isLost = (i) => weights[i] === 0 && due[i] > 0;
    const count = (isSo) => [...weights.keys()].filter(isSo).length;
    reading = { weights, far, isLeak, isLost, leaks: count(isLeak), lost: count(isLost) };
  }

  const told = () => `${amount(reading.leaks, "pair leaks", "pairs leak")}, ${reading.lost} missing`;
  /** What goes wrong, or that nothing does: parts of the headline. */
  function seen() {
    const { leaks, lost, far } = reading, wrong = far.filter((x) => x > alike).length;
    const why = leaks || lost ? `${told()}: ` : "Every pair is right, but the positions of B go on: ";
    if (!wrong) return ["Each token gets what it gets in its text alone"];
    return marked(`${why}*✗ ${amount(wrong, "token differs", "tokens differ")}`);
  }

  function paint() {
    const { weights, far, isLeak, isLost } = reading, { pointed } = pointer;
    headline(...seen());
    map.show(weights, (i) => weights[i] === 0);
    map.mark("wrong", (i) => isLeak(i) || isLost(i));
    map.mark("pointed", (i) => i === pointed?.cell);
    const words = (i) => `${weights[i] === 0 ? "masked" : number(weights[i])}${isLeak(i) ? ", a leak" : ""}`;
    const pair = (i) => `Query ${names[Math.floor(i / n)]}, key ${names[i % n]}: ${words(i)}`;
    map.say(pair);
    set(line, { d: `M${state.border},0v${n}M0,${state.border}h${n}` });
    const verdict = (x) => x > alike ? `✗ ${number(x)}` : "✓";
    verdicts.forEach((node, i) => set(node, { text: verdict(far[i]), class: far[i] > alike ? "wrong" : null }));
    const [A, B] = [far.slice(0, right), far.slice(right)].map((part) => number(Math.max(...part)));
    const at = pointed ? `${pair(pointed.cell)}. ` : "";
    const apart = `From each text alone, A differs by up to ${A}, B by ${B}.`;
    say(`${at}Border before token ${state.border}. ${apart}`, `${told()}.`);
  }

  return {
    nodes: [strip, element("div", { class: "cached" }, left, side)],
    compute,
    paint,
    hint: "Drag the lines, or move the slider.",
    room: [67, 0, 120],
  };
});
