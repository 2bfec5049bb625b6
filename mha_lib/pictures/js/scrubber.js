// Attention maps over the steps of a training run: drag through them, or let them play.

import { indexOfLargest, matrix, rowOf } from "./attention.js";
import { button, drawn, element, number, picture, roving, set, slider, times } from "./elements.js";
import { heatMap, scale } from "./heat_map.js";

const PAUSE = 180; // milliseconds between two steps that play

function build({ model, choose, repaint, say }) {
  const bytes = model.get("weights"), shares = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const steps = model.get("steps"), titles = model.get("titles"), losses = model.get("losses");
  const [queries, keys] = model.get("sizes"), names = model.get("tokens");
  const size = queries * keys, last = steps.length - 1;
  let timer = null, pointed = null;

  const at = slider("training step", { min: 0, max: last, onmove: (step) => (stop(), choose({ step })) });
  const play = button("▶ play", () => timer ? stop() : start());
  function start() {
    const next = model.get("step") < last ? model.get("step") + 1 : 0;
    choose({ step: next });
    timer = setInterval(() => model.get("step") < last ? choose({ step: model.get("step") + 1 }) : stop(), PAUSE);
    repaint();
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    repaint();
  }

  const lowest = Math.min(...losses), span = Math.max(...losses) - lowest || 1;
  const place = (i) =>
    `${(i / Math.max(last, 1) * 100).toFixed(2)},${(36 - (losses[i] - lowest) / span * 32).toFixed(2)}`;
  const now = drawn("path", { class: "now" });
  const curve = drawn("path", { d: losses.length ? `M${losses.map((_, i) => place(i)).join("L")}` : null });
  const chart = drawn(
    "svg",
    { class: "loss", viewBox: "0 0 100 40", preserveAspectRatio: "none", "aria-hidden": true },
    curve,
    now,
  );
  chart.toggleAttribute("hidden", losses.length === 0);

  const point = (what) => {
    pointed = what;
    repaint();
  };
  const cards = titles.map((title, head) => {
    const onhover = (cell) => point(cell === null ? null : { head, cell });
    const onpick = (cell) => choose({ head, query: Math.floor(cell / keys) });
    const map = heatMap(queries, keys, { gap: 0, onhover, onpick, "aria-hidden": true });
    const node = element("button", { type: "button", class: "small" }, title, map.node);
    return { map, node: set(node, { onclick: (event) => event.target.closest(".cell") || choose({ head }) }) };
  });
  roving(cards.map(({ node }) => node), cards.length, (head) => choose({ head }));

  function paint() {
    const step = model.get("step"), head = model.get("head");
    const maps = times(titles.length, (i) => {
      const start = (step * titles.length + i) * size;
      return matrix(queries, keys, Float32Array.from(shares.subarray(start, start + size), (share) => share / 255));
    });
    cards.forEach(({ map, node }, i) => {
      map.show(maps[i].data);
      map.cells.forEach((cell, place) => cell.classList.toggle("row", Math.floor(place / keys) === model.get("query")));
      set(node, { "aria-pressed": i === head });
    });
    set(now, { d: `M${step / Math.max(last, 1) * 100},0V40` });
    play.textContent = timer ? "❚❚ pause" : "▶ play";
    const loss = losses.length ? `, loss ${number(losses[step])}` : "";
    at.show(step, `${steps[step]} of ${steps[last]}${loss}`);
    const query = pointed ? Math.floor(pointed.cell / keys) : model.get("query"),
      row = rowOf(maps[pointed?.head ?? head], query);
    const key = pointed ? pointed.cell % keys : indexOfLargest(row);
    const most = pointed ? "" : "most weight, ";
    say(
      `Step ${steps[step]}${loss}. ${titles[pointed?.head ?? head]}: from ${names[0][query]} ${most}${
        number(row[key])
      }, on ${names[1][key]}.`,
    );
  }

  return {
    nodes: [
      element("div", { class: "player" }, play, at.node),
      chart,
      element("div", { class: "maps", "--columns": Math.min(titles.length, 6) }, ...cards.map(({ node }) => node)),
      scale({ 0: "0", 0.25: ".25", 0.5: ".5", 1: "1" }),
    ],
    paint,
    painted: ["step", "head", "query"],
    end: stop,
  };
}

export default { render: picture(build) };
