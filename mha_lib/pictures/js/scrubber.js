// Attention maps over the steps of a training run: drag through them, or let them play.

import { bytesOf, indexOfLargest, matrix, rowOf } from "./attention.js";
import { drawn, element, heed, number, picture, roving, set, times } from "./elements.js";
import { card, heatMap, named, scale } from "./heat_map.js";
import { player } from "./player.js";

const MOST_NAMES = 16; // a row of more names would not fit below a map

export default picture((parts) => {
  const { data, state, pointer, choose, point, say } = parts;
  const { steps, titles, losses, queries, keys } = data, shares = bytesOf(data.weights);
  const size = queries.length * keys.length, last = steps.length - 1;
  const lossAt = (step) => losses.length ? `, loss ${number(losses[step])}` : "";
  const { node, write, paint: paintPlayer, stop } = player(steps, parts);

  const lowest = Math.min(...losses), span = Math.max(...losses) - lowest || 1;
  const place = (i) => `${i / Math.max(last, 1) * 100},${36 - (losses[i] - lowest) / span * 32}`;
  const marker = drawn("path", { class: "now" }),
    curve = drawn("path", { d: `M${losses.map((_, i) => place(i)).join("L")}` });
  const shape = { class: "loss", viewBox: "0 0 100 40", preserveAspectRatio: "none", "aria-hidden": true };
  const loss = element("p", { class: "title" }, `loss: ${number(losses[0] ?? 0)} → ${number(losses[last] ?? 0)}`);
  const drawing = heed(drawn("svg", shape, curve, marker), (share) => choose(write(Math.round(share * last))));
  const chart = losses.length ? [loss, drawing] : [];

  const cards = titles.map((title, head) => {
    const at = (cell) => ({ head, query: Math.floor(cell / keys.length) });
    const onpick = (cell) => choose(at(cell));
    const onhover = (cell) => point(cell === null ? null : { ...at(cell), key: cell % keys.length });
    const map = heatMap(queries.length, keys.length, { gap: 0.04, "aria-hidden": true, onpick, onhover });
    const hasNames = Math.max(queries.length, keys.length) <= MOST_NAMES;
    const shown = hasNames ? { node: named(map, queries, keys) } : map;
    return { map, node: card(title, shown, () => choose({ head })) };
  });
  roving(cards.map(({ node }) => node), cards.length, (head) => choose({ head }));

  function paint() {
    const { step, head, query } = state;
    const maps = times(titles.length, (i) => {
      const start = (step * titles.length + i) * size;
      const own = Float32Array.from(shares.subarray(start, start + size), (share) => share / 255);
      return matrix(queries.length, keys.length, own);
    });
    cards.forEach(({ map, node }, i) => {
      map.show(maps[i].data);
      map.mark("row", (cell) => Math.floor(cell / keys.length) === query);
      set(node, { "aria-pressed": i === head });
    });
    set(marker, { d: `M${step / Math.max(last, 1) * 100},0V40` });
    paintPlayer();
    const looks = pointer.pointed ?? { head, query }, row = rowOf(maps[looks.head], looks.query);
    const key = looks.key ?? indexOfLargest(row), weight = `${number(row[key])} on ${keys[key]}`;
    const words = pointer.pointed ? weight : `most weight, ${weight}`;
    say(`Step ${steps[step]}${lossAt(step)}. ${titles[looks.head]}: from ${queries[looks.query]} ${words}.`);
  }

  const maps = element("div", { class: "maps", "--columns": Math.min(titles.length, 6) });
  maps.append(...cards.map(({ node }) => node));
  return { nodes: [node, ...chart, maps, scale()], paint, end: stop };
});
