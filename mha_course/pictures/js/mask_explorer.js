// One query, its keys and three ways to write the mask: where padding begins is dragged. All is computed here.

import { softmax, sumOf } from "./attention.js";
import { button, element, heed, inPercent, marked, number, picture, set, short, times } from "./elements.js";

const VERY_LOW = -3e6, FILL = -1e6;
const WAYS = ["masked_softmax", "fill −1e6", "fill −∞"];
const NO_KEY =
  "masked_softmax gives zeros. A fill of −1e6 leaves equal scores, and a softmax shares the weight among " +
  "them; −∞ leaves 0 divided by 0.";
const ALL_LOW =
  "Adding −3,000,000 to every score changes no weight of a softmax. But now −1e6 is the highest score of " +
  "the row.";

/** A score in a cell: one digit, or a power of ten where it is large. */
const written = (score) =>
  Math.abs(score) < 1000 ? number(score, 1) : score.toExponential(0).replace("+", "").replace("-", "−");

export default picture(({ data, state, controls, choose, headline, say }) => {
  const { scores, keys, noun } = data, n = scores.length, half = Math.ceil(n / 2);
  let weights = [];

  const length = { label: "valid_lens", max: n, words: (count) => `${count} of ${n}` };
  const lengths = controls({ valid_len: length }, { class: "edge-of" });
  /** A row of the table: its name, a cell for each key, and what is to be said of it. */
  function lane(name, kind = "") {
    const head = element("span", { role: "rowheader" }, name);
    const cells = times(n, () => element("span", { role: kind === "names" ? "columnheader" : "cell" }));
    const verdict = element("span", { class: "verdict", role: "cell" });
    const row = element("div", { class: "cells", role: "presentation" }, ...cells);
    return { cells, verdict, node: element("div", { class: `lane ${kind}`, role: "row" }, head, row, verdict) };
  }
  const names = lane("keys", "names"), raw = lane("scores", "raw"), ways = WAYS.map((name) => lane(name));
  const edge = element("i"), ground = element("div", { class: "edge-ground", "aria-hidden": "true" }, edge);
  heed(ground, (share) => choose({ valid_len: Math.round(share * n) }));
  const every = { class: "lanes-of", role: "table", "aria-label": "scores and weights of one query" };
  const table = element("div", every, ...[names, raw, ...ways].map(({ node }) => node), ground);

  const chips = Object.entries({
    "start": { valid_len: half, shift: 0 },
    "① a row with no key": { valid_len: 0, shift: 0 },
    "② all scores very low": { valid_len: half, shift: VERY_LOW },
  }).map(([text, choices]) => ({ choices, node: button(text, () => choose(choices), { class: "chip" }) }));
  const tools = element("div", { class: "tools" }, ...chips.map(({ node }) => node));

  function compute() {
    const { valid_len: valid, shift } = state, own = Float64Array.from(scores, (score) => score + shift);
    const filled = (fill) => softmax(own.map((score, key) => key < valid ? score : fill));
    weights = [softmax(own, valid), filled(FILL), filled(-Infinity)];
  }

  const onPadding = (way) => sumOf(weights[way].subarray(state.valid_len));
  const percent = (share) => `${inPercent(share)}\u00a0%`;
  function verdictOf(way) {
    const leak = onPadding(way);
    if (Number.isNaN(leak) || Number.isNaN(weights[way][0])) return "✗ NaN";
    if (leak < 0.005) return state.valid_len ? "✓ sums to 1" : "✓ all zeros";
    return leak > 0.995 ? "✗ all on padding" : `✗ ${percent(leak)} on padding`;
  }

  /** What is seen, for the headline: what goes wrong, or that the three ways agree. */
  function seen() {
    const { valid_len: valid } = state, leak = onPadding(1);
    const many = valid === 1 ? `the one ${noun}` : `the ${valid} ${noun}s`;
    const all = n === 1 ? `the one ${noun} has` : `all ${n} ${noun}s share`;
    if (!valid) return "With no valid key, *−1e6* gives padding *✗ all the weight* and *−∞* gives *✗ NaN";
    if (leak > 0.995) return `*−1e6* gives padding *✗ all the weight*, ${many} ${valid === 1 ? "gets" : "get"} none`;
    if (leak >= 0.005) return `*−1e6* gives padding *✗ ${percent(leak)}* of the weight`;
    if (valid === n) return `*Nothing is masked*: ${all} the weight`;
    return `*Padding gets nothing*: ${many} ${valid === 1 ? "has" : "share"} all the weight`;
  }

  function words() {
    const { valid_len: valid, shift } = state;
    if (!valid) return NO_KEY;
    if (onPadding(1) >= 0.005) return shift ? ALL_LOW : "For these scores −1e6 is not low enough.";
    if (valid === half && !shift) return "So far the three ways to write the mask agree.";
    const shares = times(valid, (key) => `${keys[key]} ${number(weights[0][key])}`);
    return `The three ways agree: ${shares.join(", ")}.`;
  }

  function paint() {
    const { valid_len: valid, shift } = state, isMasked = (key) => key >= valid;
    set(ground, { "--at": valid / n });
    names.cells.forEach((cell, key) =>
      set(cell, { text: isMasked(key) ? "‹pad›" : keys[key], class: isMasked(key) ? "pad" : "k" })
    );
    raw.cells.forEach((cell, key) => {
      cell.replaceChildren(written(scores[key]), ...(shift ? [element("small", {}, " −3e6")] : []));
      set(cell, { class: `number ${isMasked(key) ? "hatched" : ""}` });
    });
    set(raw.verdict, { text: shift ? "−3,000,000 each" : "q · k" });
    ways.forEach(({ cells, verdict }, way) => {
      const text = verdictOf(way);
      set(verdict, { text, class: `verdict ${text.startsWith("✗") ? "wrong" : ""}` });
      cells.forEach((cell, key) => {
        const weight = weights[way][key], hides = way === 0 && isMasked(key), isNaN = Number.isNaN(weight);
        set(cell, { text: hides ? "" : short(weight), "aria-label": hides ? "masked" : null });
        const fault = isNaN || isMasked(key) && weight >= 0.005 ? "leak" : "";
        const kind = `number ${hides ? "hatched" : isNaN ? "" : "cell"} ${fault}`;
        set(cell, { class: kind, "--w": isNaN ? 0 : weight.toFixed(3) });
      });
    });
    chips.forEach(({ choices, node }) =>
      set(node, { "aria-pressed": choices.valid_len === valid && choices.shift === shift })
    );
    headline(...marked(seen()));
    say(words());
  }

  return {
    nodes: [lengths, table, tools],
    compute,
    paint,
    hint: "Drag the blue edge, or break two of them with ① and ②.",
    room: [72, 0, 135],
  };
});
