// A switch for every head over a table of all their sets: what a head is worth in this company, and what measures keep.

import { unpack } from "./attention.js";
import { button, byName, element, number, picture, set, times, titled } from "./elements.js";
import { cutOf, headCards } from "./head_cards.js";
import { firstLargest } from "./told.js";

const MEAN = "mean of all sets";

export default picture((parts) => {
  const { data, state, controls, pointer, choose, pointing, headline, say } = parts;
  const { layers, heads, orders, means } = data, count = layers * heads, all = 2 ** count - 1;
  const values = unpack(data).values.data;
  const nameOf = ({ layer, head }) => `layer ${layer}, head ${head}`;
  const ofCut = cutOf(parts), { isCut } = ofCut, shortName = ({ head }) => `head ${head}`;
  const { cards, paint: paintSwitches } = headCards(ofCut, layers, heads, heads, shortName);

  const sizeOf = (kept) => kept.toString(2).replaceAll("0", "").length;
  const worth = (kept, i) => values[kept | 1 << i] - values[kept & ~(1 << i)];
  const every = times(2 ** count, (kept) => times(count, (i) => worth(kept, i)));
  const ends = [Math.min(...every.map((own) => Math.min(...own))), Math.max(...every.map((own) => Math.max(...own)))];
  const keep = (kept) => ({ cut: cards.flatMap(({ place }, i) => kept >> i & 1 ? [] : [[place.layer, place.head]]) });
  const currentSet = () => cards.reduce((kept, { place }, i) => kept | (isCut(place) ? 0 : 1 << i), 0);
  /** Of the heads that are on, the one whose absence costs least. */
  function cheapest(kept) {
    const on = times(count, (i) => i).filter((i) => kept >> i & 1);
    return on.length ? on[firstLargest(on.map((i) => -worth(kept, i)), 2)] : null;
  }

  /** What a head is worth to those that are on, and to all others, in words. */
  function worthOf(kept, i) {
    const [here, inAll] = [kept, all].map((set) => number(worth(set, i)));
    const among = kept === all ? "" : ` here, ${inAll} with all on`;
    return `${nameOf(cards[i].place)}, worth ${here}${among}`;
  }

  const read = () => sizeOf(currentSet()), write = (size) => keep(orders[state.by][size]);
  const cut = { label: "heads kept", max: count, read, write, words: (size) => `${size} of ${count}` };
  const order = { label: "keep by", options: byName(Object.keys(orders)) };
  const strip = controls({ by: order, cut }, { class: "controls layer-controls" });
  const cutNext = () => choose(keep(currentSet() & ~(1 << cheapest(currentSet()))));
  const next = button("cut the cheapest", cutNext), whole = button("all on", () => choose({ cut: [] }));
  strip.append(element("div", { class: "tools" }, next, whole));

  const bars = cards.map(({ place, node, top }) => {
    const marks = ["fill", "ghost"].map((name) => element("i", { class: name }));
    set(node, pointing(place)).append(element("div", { class: "worth" }, ...marks));
    return { figure: top.appendChild(element("b")), marks };
  });
  const rows = times(layers, (layer) => {
    const grid = { class: "layer", role: "group", "aria-label": `layer ${layer}`, "--heads": heads, "--narrow": 3 };
    const own = cards.slice(layer * heads, (layer + 1) * heads).map(({ node }) => node);
    return element("div", grid, titled(`layer ${layer}`), ...own);
  });
  const sample = ([kind, words]) => element("span", { class: "sample" }, element("i", { class: kind }), words);
  const told = { bar: "to the heads that are on", dash: "to all others", ring: "cheapest" };
  const legend = element("p", { class: "title legend" }, "accuracy a head adds", ...Object.entries(told).map(sample));

  const asMany = titled();
  const ranked = [...Object.keys(orders), MEAN].map((name) => {
    const take = () => choose({ by: name, ...keep(orders[name][sizeOf(currentSet())]) });
    const label = name in orders ? button(name, take, { class: "name" }) : element("span", { class: "name" }, name);
    const fill = element("i", { class: "fill" }), ghost = element("i", { class: "ghost" }), figure = element("span");
    const track = element("div", { class: "track-bar" }, fill, ghost);
    return { name, label, fill, ghost, figure, node: element("div", { class: "next-bar" }, label, track, figure) };
  });
  const table = element("div", { class: "next-bars kept-bars" }, ...ranked.map(({ node }) => node));

  function paint() {
    const kept = currentSet(), size = sizeOf(kept), own = values[kept], least = cheapest(kept), [low, high] = ends;
    const at = (value) => (value - low) / (high - low);
    const gone = state.cut.map(([layer, head]) => nameOf({ layer, head })).join(" and ");
    const few = `With ${gone ? `${size} of` : "all"} ${count} heads`;
    const heard = gone && state.cut.length < 3 ? `Without ${gone}` : few;
    const [before, after] = [values[all], own].map((value) => number(value));
    const isLess = before === after ? ", as with all" : `, not ${before}`;
    const framed = least === null ? "" : `Framed, the cheapest to cut: ${worthOf(kept, least)}`;
    headline(`${heard}: `, `${after} right`, gone && isLess, element("small", {}, framed));
    paintSwitches();
    bars.forEach(({ figure, marks: [fill, ghost] }, i) => {
      const value = worth(kept, i), [from, to] = [0, value].map(at).sort((a, b) => a - b);
      set(figure, { text: number(value) });
      set(fill, { "--from": from.toFixed(4), "--size": (to - from).toFixed(4), ".wrong": value < 0 });
      set(ghost, { "--from": at(worth(all, i)).toFixed(4) });
      set(cards[i].node, { ".pointed": i === least });
    });
    set(asMany, { text: `what ${size} heads keep, chosen by … (dashed: the heads that are on)` });
    for (const { name, label, fill, ghost, figure, node } of ranked) {
      const value = name in orders ? values[orders[name][size]] : means[size], isOn = orders[name]?.[size] === kept;
      set(fill, { "--p": value.toFixed(4) });
      set(ghost, { "--p": own.toFixed(4) });
      set(figure, { text: number(value) });
      if (name in orders) set(label, { "aria-pressed": isOn });
      set(node, { ".most": isOn });
    }
    set(next, { disabled: least === null ? "" : null });
    const { pointed } = pointer;
    const about = pointed ? `Pointed at: ${worthOf(kept, pointed.layer * heads + pointed.head)}.` : "";
    say(about, `${size} of ${count} heads are on: ${number(own)} right. ${framed}`);
  }

  return {
    nodes: [strip, legend, ...rows, asMany, table],
    paint,
    hint: "Switch a head on or off.",
    room: [66, 82, 66],
  };
});
