// Attention maps over the steps of a training run: drag through them, or let them play.

import { bytesOf, indexOfLargest, matrix, rowOf } from "./attention.js";
import { drawn, element, number, picture, roving, set, times } from "./elements.js";
import { card, denseMap, heatMap, named, scale } from "./heat_map.js";
import { player } from "./player.js";

const MANY = 400; // cells from which a map is dense, and only two stand side by side on a phone
const MOST_NAMES = 16; // a row of more names would not fit below a map

export default picture((parts) => {
  const { data, state, pointer, choose, point, headline, say } = parts;
  const { steps, titles, losses, queries, keys } = data, shares = bytesOf(data.weights);
  const size = queries.length * keys.length, last = steps.length - 1;
  const lossAt = (step) => losses.length ? `, loss ${number(losses[step])}` : "";
  const lowest = Math.min(...losses), span = Math.max(...losses) - lowest || 1;
  const place = (i) => `${i / Math.max(last, 1) * 100},${36 - (losses[i] - lowest) / span * 32}`;
  const marker = drawn("path", { class: "now" }),
    curve = drawn("path", { d: `M${losses.map((_, i) => place(i)).join("L")}` });
  const shape = { class: "loss", viewBox: "0 0 100 40", preserveAspectRatio: "none", "aria-hidden": true };
  const { node, paint: paintPlayer, stop } = player(
    steps,
    parts,
    losses.length ? [drawn("svg", shape, curve, marker)] : [],
  );

  const cards = titles.map((title, head) => {
    const at = (cell) => ({ head, query: Math.floor(cell / keys.length) });
    const onpick = (cell) => choose(at(cell));
    const onhover = (cell) => point(cell === null ? null : { ...at(cell), key: cell % keys.length });
    const sizes = [queries.length, keys.length], options = { "aria-hidden": true, onpick, onhover };
    const map = size > MANY ? denseMap(...sizes, options) : heatMap(...sizes, { gap: 0.04, ...options });
    const band = drawn("path", { class: "query" });
    map.over.append(band);
    const hasNames = Math.max(queries.length, keys.length) <= MOST_NAMES;
    const shown = hasNames ? { node: named(map, queries, keys) } : map;
    return { map, band, node: card(title, shown, () => choose({ head })) };
  });
  roving(cards.map(({ node }) => node), cards.length, (head) => choose({ head }));

  function paint() {
    const { step, head, query } = state;
    const maps = times(titles.length, (i) => {
      const start = (step * titles.length + i) * size;
      const own = Float32Array.from(shares.subarray(start, start + size), (share) => share / 255);
      return matrix(queries.length, keys.length, own);
    });
    cards.forEach(({ map, band, node }, i) => {
      map.show(maps[i].data);
      set(band, { d: `M0,${query}H${keys.length}V${query + 1}H0Z` });
      set(node, { "aria-pressed": i === head });
    });
    set(marker, { d: `M${step / Math.max(last, 1) * 100},0V40` });
    paintPlayer();
    const looks = pointer.pointed ?? { head, query }, row = rowOf(maps[looks.head], looks.query);
    const key = looks.key ?? indexOfLargest(row), weight = `${number(row[key])} on ${keys[key]}`;
    const words = pointer.pointed ? weight : `most weight, ${weight}`;
    const largest = indexOfLargest(row), from = `, from ${queries[looks.query]}, looks most at `;
    headline(`Step ${steps[step]}: `, titles[looks.head], from, keys[largest], ` (${number(row[largest])})`);
    say(`Step ${steps[step]}${lossAt(step)}. ${titles[looks.head]}: from ${queries[looks.query]} ${words}.`);
  }

  const maps = element("div", { class: "maps", "--columns": Math.min(titles.length, 6), "--few": size > MANY ? 2 : 5 });
  maps.append(...cards.map(({ node }) => node));
  return { nodes: [node, maps, scale()], paint, end: stop };
});
