// Attention maps over the steps of a training run: drag through them, or let them play.

import { integers, matrix, rowOf } from "./attention.js";
import { drawn, element, inPercent, longest, number, picture, roving, set, times, unbroken } from "./elements.js";
import { card, denseMap, heatMap, named, queryFrame, scale } from "./heat_map.js";
import { player } from "./player.js";
import { firstLargest } from "./told.js";

const FINEST = 65535; // what a weight of 1 travels as
const MANY = 400; // cells from which a map is dense, and only two stand side by side on a phone
const MOST_NAMES = 16; // a row of more names would not fit below a map

const nameOf = (names, i) => String(names[i]) === String(i) ? String(i) : `“${names[i]}” at ${i}`;
const capital = (words) => `${words[0].toUpperCase()}${words.slice(1)}`;

export default picture((parts) => {
  const { data, state, pointer, choose, point, headline, say } = parts;
  const { steps, titles, losses, queries, keys, patterns } = data, shares = integers(data.weights);
  const size = queries.length * keys.length, last = steps.length - 1;
  const lossAt = (step) => losses.length ? `, loss ${number(losses[step])}` : "";
  const highest = Math.max(...losses, 1e-9), height = (loss) => 38 - 35 * loss / highest; // from 0
  const curve = losses.map((loss, i) => `${i / Math.max(last, 1) * 100},${height(loss)}`).join("L");
  const marker = drawn("path", { class: "now" }), ends = drawn("path", { class: "ends", d: "M0,3H100M0,38H100" });
  const shape = { viewBox: "0 0 100 40", preserveAspectRatio: "none" };
  const lines = drawn("svg", shape, ends, drawn("path", { d: curve && `M${curve}` }), marker);
  const names = [`loss ${number(highest, 1)}`, "0"].map((text) => element("span", {}, text));
  const chart = element("div", { class: "loss named", "aria-hidden": true }, lines, ...names);
  const { node, paint: paintPlayer, stop } = player(steps, parts, losses.length ? [chart] : []);

  const cards = titles.map((title, head) => {
    const onpick = ({ query }) => choose({ head, query }), onhover = (at) => point(at && { head, ...at });
    const sizes = [queries.length, keys.length], options = { "aria-hidden": true, onpick, onhover };
    const map = size > MANY ? denseMap(...sizes, options) : heatMap(...sizes, { gap: 0.04, ...options });
    const frame = queryFrame(map, keys.length);
    const shown = Math.max(...sizes) <= MOST_NAMES ? { node: named(map, queries, keys) } : map;
    return { map, frame, node: card(title, shown, () => choose({ head })) };
  });
  roving(cards.map(({ node }) => node), cards.length, (head) => choose({ head }));

  function paint() {
    const { step, head, query } = state;
    const maps = times(titles.length, (i) => {
      const start = (step * titles.length + i) * size, own = shares.subarray(start, start + size);
      return matrix(queries.length, keys.length, Float32Array.from(own, (share) => share / FINEST));
    });
    cards.forEach(({ map, frame, node }, i) => {
      map.show(maps[i].data);
      frame(query);
      set(node, { "aria-pressed": i === head });
    });
    set(marker, { d: `M${step / Math.max(last, 1) * 100},0V40` });
    paintPlayer();
    const looks = pointer.pointed ?? { head, query }, row = rowOf(maps[looks.head], looks.query);
    const key = looks.key ?? firstLargest(row, 2), most = looks.key === undefined ? "most weight, " : "";
    const [from, to] = [nameOf(queries, looks.query), nameOf(keys, key)], title = capital(titles[looks.head]);
    const { words, weight, uniform, clear } = patterns[step][looks.head], link = `${from} to ${to}`;
    const small = `Step ${steps[step]} · uniform attention: ${uniform} · ${link}, ${inPercent(row[key])} %`;
    const beside = element("small", {}, unbroken(small));
    if (clear) headline(`${title} attends to `, words, " with ", weight, " of its weight", beside);
    else headline(`${title} has `, "no clear pattern", `: ${words}, `, weight, beside);
    say(`Step ${steps[step]}${lossAt(step)}. ${title}: from ${from} ${most}${number(row[key])} on ${to}.`);
  }

  const look = { class: "maps of-run", "--columns": Math.min(titles.length, 6), "--few": size > MANY ? 2 : 5 };
  const maps = element("div", look, ...cards.map(({ node }) => node));
  const hint = "Move the slider, or choose a row of a map.", found = patterns.flat().map(({ words }) => words);
  const most = longest([...queries, ...keys].map(String));
  const room = [longest(titles) + longest(found) + 36, 58 + 2 * most, 101];
  return { nodes: [node, maps, scale()], paint, hint, room, end: stop };
});
