// A text read in pieces with a cache of keys and values: what each query sees, and which cut shows which mistake.

import { rowOf, rowsOf, sumOf, unpack } from "./attention.js";
import { amount, button, byName, drawn, element, marked, number, picture, set, times, titled } from "./elements.js";
import { heatMap, named, scale } from "./heat_map.js";

const WHY = {
  none: "A query sees all that is kept, and of its own piece no later key.",
  "masked only at first": "With a cache nothing is masked: a query sees all keys of its own piece.",
  "aligned at the top left": "The first query of a piece is put at key 0, as if nothing were kept.",
  "new keys before old ones": "New keys come first in the cache, so the mask shows later keys and hides earlier ones.",
};
const LEAD = { "one by one": "Token by token", "the whole at once": "In one piece", "4, 3, 1": "In pieces" };

export default picture(({ data, state, controls, pointer, choose, point, headline, say }) => {
  const { tokens, alike } = data, n = tokens.length;
  const every = unpack(data); // of every way to cut and every mistake: weights, 0 where masked, and distances
  let reading = null;

  const ends = () => data.ends[state.pieces], read = () => ends().find((end) => end >= state.step);
  const write = (to) => ({ step: to < read() ? ends().findLast((end) => end <= to) : to }); // from piece to piece
  const strip = controls({
    pieces: { options: byName(Object.keys(LEAD)) },
    mistake: { options: byName(data.mistakes) },
    step: { label: "tokens read", max: n, read, write, words: (count) => `${count} of ${n}` },
  });
  const next = strip.appendChild(button("", () => choose({ step: read() < n ? read() + 1 : 0 })));

  const map = heatMap(n, n, { numbers: true, label: "attention weights", onmove: point, onhover: point });
  const verdicts = times(n, () => element("span"));
  const body = named(map, tokens.map((name, i) => `${name} ${i}`), times(n, (i) => `k${i}`), verdicts);
  const names = [...body.firstChild.children], piece = map.over.appendChild(drawn("rect", { class: "query", x: 0 }));
  const slots = times(n, () => element("li")), cells = times(4, () => element("td"));
  const cache = element("ol", { class: "slots" }, ...slots), table = element("table", { class: "figures" });
  const head = (scope, text) => element("th", { scope }, text),
    line = (...row) => table.append(element("tr", {}, ...row));
  line(element("td"), head("col", "with the cache"), head("col", "without"));
  line(head("row", "keys, and as many values"), ...cells.slice(0, 2));
  line(head("row", "dot products, masked too"), ...cells.slice(2));
  const left = element("div", {}, titled("attention weights, and distance from the full pass"), body);
  const side = element("div", {}, titled("the cache, in its order"), cache, titled("computed so far"), table, scale());
  side.append(element("p", {}, "Hatched: masked. Empty: not in the cache. Dashed: seen or masked by mistake."));

  function compute() {
    const done = ends().filter((end) => end <= read()), [start = 0, end] = [done.at(-2), done.at(-1)];
    const pieces = done.slice(1).map((to, i) => times(to - done[i], (token) => done[i] + token));
    const kept = (state.mistake === "new keys before old ones" ? pieces.reverse() : pieces).flat();
    const at = Object.keys(LEAD).indexOf(state.pieces) * data.mistakes.length + data.mistakes.indexOf(state.mistake);
    const isThere = (i) => i < end * n && !Number.isNaN(weights[i]);
    const weights = rowsOf(every.weights, at * n, n).data, far = [...rowOf(every.far, at).subarray(0, end)];
    const amiss = times(n * n, (i) => isThere(i) && (weights[i] === 0) === (i % n <= Math.floor(i / n)));
    reading = { weights, kept, done, start, end, far, amiss, isThere };
  }

  function claim() {
    const { end, amiss } = reading, how = `${LEAD[state.pieces]}, `;
    if (!end) return ["No token is read yet: the cache is empty"];
    const isOff = (query) => amiss.slice(query * n, query * n + n).some(Boolean);
    const wrong = times(end, isOff).filter(Boolean).length, which = wrong || end;
    const count = `${which} of ${amount(end, "query", "queries")} ${which === 1 ? "attends" : "attend"}`;
    if (wrong) return marked(`${how}*✗ ${count} to the wrong keys`);
    return [`${how}${count} to the right keys${state.mistake === "none" ? "" : ", despite the mistake"}`];
  }

  function paint() {
    const { weights, kept, far, start, end, done, amiss, isThere } = reading, { pointed } = pointer;
    const isNew = (token) => token >= start && token < end, isMasked = (i) => isThere(i) && weights[i] === 0;
    headline(...claim());
    next.textContent = end < n ? "next piece" : "start again";
    map.show(weights.map((weight, i) => isThere(i) ? weight : 0), isMasked);
    map.cells.forEach((cell, i) => isThere(i) || set(cell.children[1], { text: "" }));
    map.mark("later", (i) => !isThere(i));
    map.mark("wrong", (i) => amiss[i]);
    map.mark("pointed", (i) => i === pointed?.cell);
    const words = (i) => !isThere(i) ? "not in the cache" : isMasked(i) ? "masked" : number(weights[i]);
    const pair = (i) => `Query ${Math.floor(i / n)}, key ${i % n}: ${words(i)}`;
    map.say(pair);
    set(piece, { y: start, width: end, height: end - start });
    names.forEach((node, i) => node.classList.toggle("chosen", isNew(i)));
    const verdict = (i) => i >= end ? "" : far[i] > alike ? `✗ ${number(far[i])}` : "✓";
    verdicts.forEach((node, i) => set(node, { text: verdict(i), class: far[i] > alike ? "wrong" : null }));
    slots.forEach((node, i) => {
      const parts = i < end ? ["k", "v"].map((part) => element("b", { class: part }, part + kept[i])) : [];
      node.className = i >= end ? "free" : isNew(kept[i]) ? "new" : "kept";
      node.replaceChildren(...parts, element("small", {}, node.className));
    });
    const products = sumOf(done.map((length, i) => length * (length - (done[i - 1] ?? 0))));
    const counts = [end, sumOf(done), products, sumOf(done.map((length) => length ** 2))];
    cells.forEach((cell, i) => set(cell, { text: counts[i] }));
    const most = Math.max(0, ...far), hidden = amount(times(n * n, isMasked).filter(Boolean).length, "key", "keys");
    const result = most > alike ? `outputs are off by up to ${number(most)}` : "no output is off";
    const why = `${WHY[state.mistake]} The mask has hidden ${hidden} so far.`;
    say(`${pointed ? `${pair(pointed.cell)}. ` : ""}${end} of ${n} tokens read; ${result}. ${why}`);
  }

  return {
    nodes: [strip, element("div", { class: "cached" }, left, side)],
    compute,
    paint,
    hint: "Press “next piece”, or choose a mistake.",
    room: [72, 0, 215],
  };
});
