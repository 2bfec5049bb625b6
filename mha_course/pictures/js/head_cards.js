// A card with a switch for every head of a model.

import { button, element, roving, set, times } from "./elements.js";

/** The choice `cut`, which lists heads that are off, each as [layer, head]: whether it has one, and what flips it. */
export function cutOf({ state, choose }) {
  const isOf = ({ layer, head }) => ([otherLayer, otherHead]) => layer === otherLayer && head === otherHead;
  const isCut = (place) => state.cut.some(isOf(place)),
    others = (place) => state.cut.filter((own) => !isOf(place)(own));
  const flip = (place) => choose({ cut: isCut(place) ? others(place) : [...state.cut, [place.layer, place.head]] });
  return { isCut, flip };
}

/** `cards` are {place, node, top, toggle}, layer after layer, `columns` of them a row. */
export function headCards({ isCut, flip }, layers, heads, columns, nameOf) {
  const cards = times(layers * heads, (i) => {
    const place = { layer: Math.floor(i / heads), head: i % heads }, act = () => flip(place);
    const toggle = button([element("i", { class: "track" }), nameOf(place)], act, { class: "switch", role: "switch" });
    const top = element("div", { class: "card-top" }, toggle);
    return { place, toggle, top, node: element("div", { class: "card" }, top) };
  });
  roving(cards.map(({ toggle }) => toggle), columns);
  function paint() {
    for (const { place, toggle, node } of cards) {
      set(node, { ".off": isCut(place) });
      set(toggle, { "aria-checked": !isCut(place) });
    }
  }
  return { cards, paint };
}
