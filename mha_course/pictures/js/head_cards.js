// A card with a switch for every head of a model; the choice `cut` lists those that are off, each as [layer, head].

import { button, element, roving, times } from "./elements.js";

/** `cards` are {place, pair, node, top, toggle}, layer after layer, `columns` of them a row; `isCut(place)`; `paint()`. */
export function headCards({ state, choose }, layers, heads, columns, nameOf) {
  const isOf = ({ layer, head }) => ([otherLayer, otherHead]) => layer === otherLayer && head === otherHead;
  const isCut = (place) => state.cut.some(isOf(place));
  const cards = times(layers * heads, (i) => {
    const place = { layer: Math.floor(i / heads), head: i % heads }, pair = [place.layer, place.head];
    const others = () => state.cut.filter((own) => !isOf(place)(own));
    const flip = () => choose({ cut: isCut(place) ? others() : [...state.cut, pair] });
    const toggle = button([element("i", { class: "track" }), nameOf(place)], flip, { class: "switch", role: "switch" });
    const top = element("div", { class: "card-top" }, toggle);
    return { place, pair, toggle, top, node: element("div", { class: "card" }, top) };
  });
  roving(cards.map(({ toggle }) => toggle), columns);
  function paint() {
    for (const { place, toggle, node } of cards) {
      node.classList.toggle("off", isCut(place));
      toggle.setAttribute("aria-checked", !isCut(place));
    }
  }
  return { cards, isCut, paint };
}
