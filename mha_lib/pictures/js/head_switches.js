// A switch for every head over a table of all their sets: what a head is worth in this company, and what measures keep.

import { unpack } from "./attention.js";
import { button, element, number, picture, set, times } from "./elements.js";
import { headCards } from "./head_cards.js";

const MEAN = "mean of all sets";

export default picture((parts) => {
  const { data, state, controls, pointer, choose, point, headline, say } = parts;
  const { layers, heads, orders, means } = data, count = layers * heads, all = 2 ** count - 1;
  const values = unpack(data).values.data;
  const nameOf = ({ layer, head }) => `layer ${layer}, head ${head}`;
  const { cards, isCut, paint: paintSwitches } = headCards(parts, layers, heads, heads, ({ head }) => `head ${head}`);

  const sizeOf = (kept) => kept.toString(2).replaceAll("0", "").length;
  const worth = (kept, i) => values[kept | 1 << i] - values[kept & ~(1 << i)];
  const every = times(2 ** count, (kept) => times(count, (i) => worth(kept, i)));
  const ends = [Math.min(...every.map((own) => Math.min(...own))), Math.max(...every.map((own) => Math.max(...own)))];
  const keep = (kept) => ({ cut: cards.flatMap(({ pair }, i) => kept >> i & 1 ? [] : [pair]) });
  const currentSet = () => cards.reduce((kept, { place }, i) => kept | (isCut(place) ? 0 : 1 << i), 0);
  /** Of the heads that are on, the one whose absence costs least. */
  function cheapest(kept) {
    const on = times(count, (i) => i).filter((i) => kept >> i & 1);
    return on.length ? on.reduce((least, i) => worth(kept, i) < worth(kept, least) ? i : least) : null;
  }

  /** The head whose worth differs most from what it is beside all others, in words. */
  function moved(kept) {
    const change = (i) => kept >> i & 1 ? Math.abs(worth(kept, i) - worth(all, i)) : -1;
    const most = times(count, (i) => i).reduce((far, i) => change(i) > change(far) ? i : far);
    const [inThisSet, inAll] = [kept, all].map((set) => number(worth(set, most)));
    const words = change(most) > 0 ? `${nameOf(cards[most].place)} is worth ${inThisSet} now, not ${inAll}` : "";
    return element("small", {}, words);
  }

  const read = () => sizeOf(currentSet()), write = (size) => keep(orders[state.by][size]);
  const strip = controls({
    by: { label: "keep by", options: Object.fromEntries(Object.keys(orders).map((name) => [name, name])) },
    cut: { label: "heads kept", max: count, read, write, words: (size) => `${size} of ${count}` },
  });
  const cutNext = () => choose(keep(currentSet() & ~(1 << cheapest(currentSet()))));
  const next = button("cut the cheapest", cutNext), whole = button("all on", () => choose({ cut: [] }));
  strip.append(element("div", { class: "tools" }, next, whole));

  const bars = cards.map(({ place, node, top }) => {
    const figure = element("b"), marks = ["fill", "ghost"].map((name) => element("i", { class: name }));
    const hover = { onpointerenter: () => point(place), onpointerleave: () => point(null) };
    top.append(figure);
    set(node, hover).append(element("div", { class: "worth" }, ...marks));
    return { figure, marks };
  });
  const rows = times(layers, (layer) => {
    const grid = { class: "layer", role: "group", "aria-label": `layer ${layer}`, "--heads": heads, "--narrow": 3 };
    const title = element("p", { class: "title" }, `layer ${layer}`);
    return element("div", grid, title, ...cards.filter(({ place }) => place.layer === layer).map(({ node }) => node));
  });
  const told =
    "what each head is worth to those that are on (bar, number) and to all others (dashed); framed: the cheapest to cut";

  const asMany = element("p", { class: "title" });
  const names = [...Object.keys(orders), MEAN];
  const ranked = names.map((name) => {
    const fill = element("i", { class: "fill" }), ghost = element("i", { class: "ghost" }), figure = element("span");
    const take = () => choose({ by: name, ...keep(orders[name][sizeOf(currentSet())]) });
    const label = name in orders ? button(name, take, { class: "name" }) : element("span", { class: "name" }, name);
    const track = element("div", { class: "track-bar" }, fill, ghost);
    return { name, label, fill, ghost, figure, node: element("div", { class: "next-bar" }, label, track, figure) };
  });
  const table = element("div", { class: "next-bars kept-bars" }, ...ranked.map(({ node }) => node));

  function paint() {
    const kept = currentSet(), size = sizeOf(kept), own = values[kept], least = cheapest(kept), [low, high] = ends;
    const valueOf = (name) => name in orders ? values[orders[name][size]] : means[size];
    const at = (value) => (value - low) / (high - low);
    const gone = state.cut.map(([layer, head]) => nameOf({ layer, head })).join(" and ");
    const few = `With ${gone ? `${size} of` : "all"} ${count} heads`;
    const heard = gone && state.cut.length < 3 ? `Without ${gone}` : few;
    const [before, after] = [values[all], own].map((value) => number(value));
    const isLess = before === after ? ", as with all" : `, not ${before}`;
    headline(`${heard}: `, `${after} right`, gone && isLess, moved(kept));
    paintSwitches();
    bars.forEach(({ figure, marks: [fill, ghost] }, i) => {
      const value = worth(kept, i), [from, to] = [0, value].map(at).sort((a, b) => a - b);
      set(figure, { text: number(value) });
      set(fill, { "--from": from.toFixed(4), "--size": (to - from).toFixed(4) });
      set(ghost, { "--from": at(worth(all, i)).toFixed(4) });
      fill.classList.toggle("wrong", value < 0);
      cards[i].node.classList.toggle("pointed", i === least);
    });
    set(asMany, { text: `what ${size} heads keep, chosen by … (dashed: the heads that are on)` });
    for (const { name, label, fill, ghost, figure, node } of ranked) {
      const value = valueOf(name), isOn = orders[name]?.[size] === kept;
      set(fill, { "--p": value.toFixed(4) });
      set(ghost, { "--p": own.toFixed(4) });
      set(figure, { text: number(value) });
      if (name in orders) set(label, { "aria-pressed": isOn });
      node.classList.toggle("most", isOn);
    }
    set(next, { disabled: least === null ? "" : null });
    const { pointed } = pointer, i = pointed ? pointed.layer * heads + pointed.head : least;
    const its = i === null
      ? ""
      : `worth ${number(worth(kept, i))} here, and ${number(worth(all, i))} beside all others`;
    const about = its && `${pointed ? "Pointed at" : "The cheapest to cut now"}: ${nameOf(cards[i].place)}, ${its}.`;
    say(about, `${size} of ${count} heads are on: ${number(own)} right.`);
  }

  const title = element("p", { class: "title" }, told);
  return { nodes: [strip, title, ...rows, asMany, table], paint, hint: "Switch a head on or off." };
});
