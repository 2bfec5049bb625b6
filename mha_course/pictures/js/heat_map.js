// A heat map of weights, alone, with names around it or as a small card; and the scale that explains its colours.

import { button, drawn, element, heed, isPress, roving, set, short, times } from "./elements.js";

const LEVELS = 40; // shades of a dense map; the number itself stands in the line below the picture
const HATCHES = "M.1,.4 .4,.1 M.1,.9 .9,.1 M.6,.9 .9,.6";

/**
 * Cells of one unit each in an <svg>. Options: `gap` between cells, `numbers` written into them, `onpick(place)` and
 * `onhover(place or null)`, where a place is {cell, query, key}. With a `label` the map is one tab stop with arrows inside;
 * `onmove(place)` hears where they go. `show(weights, masked, shade)` colours the cells; `shade` maps a weight to the scale,
 * 0 to 1.
 */
export function heatMap(rows, columns, options = {}) {
  const { gap = 0.06, numbers = false, label, role = "img", onpick, onmove = onpick, onhover, ...attributes } = options;
  const cells = times(rows * columns, (i) => {
    const box = { x: gap / 2, y: gap / 2, width: 1 - gap, height: 1 - gap, rx: gap };
    const place = `translate(${i % columns} ${Math.floor(i / columns)})`;
    const text = numbers ? [drawn("text", { x: 0.5, y: 0.5 })] : [];
    return drawn("g", { class: "cell", transform: place }, drawn("rect", box), ...text);
  });
  const field = drawn("g", {}, ...cells), over = drawn("g", { class: "over" });
  const node = drawn("svg", { viewBox: `0 0 ${columns} ${rows}`, ...attributes }, field, over);
  const placeAt = (cell) => ({ cell, query: Math.floor(cell / columns), key: cell % columns });
  const cellOf = (event) => cells.indexOf(event.target.closest(".cell"));
  const onCell = (act) => (event) => cellOf(event) >= 0 && act(placeAt(cellOf(event)));
  if (onpick) field.addEventListener("click", onCell(onpick));
  if (onhover) set(field, { onpointerover: onCell(onhover), onpointerleave: () => onhover(null) });
  let stopAt = () => {};
  if (label) {
    set(node, { role: "group", "aria-label": label });
    stopAt = roving(cells.map((cell) => set(cell, { role })), columns, onmove && ((cell) => onmove(placeAt(cell))));
    const onkeydown = (event) => onpick && isPress(event) && (event.preventDefault(), onpick(placeAt(cellOf(event))));
    set(field, { onkeydown });
  }
  return {
    node,
    cells,
    over,
    show(weights, masked = () => false, shade = (weight) => weight) {
      cells.forEach((cell, i) => {
        const hidden = masked(i);
        set(cell, { "--w": Math.min(shade(weights[i]) || 0, 1).toFixed(3) });
        if (numbers) set(cell.children[1], { text: hidden ? "" : short(weights[i]) });
        if (hidden === cell.classList.contains("masked")) return;
        cell.classList.toggle("masked", hidden);
        if (hidden) cell.append(drawn("path", { class: "hatches", d: HATCHES }));
        else cell.lastChild.remove();
      });
    },
    /** Give all cells that `isIn(i)` names a class, and take it from the others. */
    mark: (name, isIn) => cells.forEach((cell, i) => cell.classList.toggle(name, isIn(i))),
    /** Say every cell, and let the tab key come to one of them. */
    say(wordsOf, stop = 0) {
      cells.forEach((cell, i) => set(cell, { "aria-label": wordsOf(i, placeAt(i).query, placeAt(i).key) }));
      if (!node.contains(document.activeElement)) stopAt(stop);
    },
  };
}

/**
 * A map of so many cells that each cannot be a node of its own: a shape for each of `LEVELS` shades, and nothing to focus.
 * Options are those of `heatMap`; so is what comes back, without `cells`.
 */
export function denseMap(rows, columns, { onpick, onhover, ...attributes }) {
  const shapes = times(LEVELS, (i) => drawn("path", { class: "shade", "--w": (i + 1) / LEVELS }));
  const ground = drawn("rect", { class: "shade", width: columns, height: rows, "--w": 0 });
  const over = drawn("g", { class: "over" }), view = { viewBox: `0 0 ${columns} ${rows}` };
  const node = drawn("svg", { ...view, "shape-rendering": "crispEdges", ...attributes }, ground, ...shapes, over);
  const inside = (share, count) => Math.min(Math.max(Math.floor(count * share), 0), count - 1);
  const at = (act) => ({ clientX, clientY }) => {
    const { left, top, width, height } = node.getBoundingClientRect();
    act({ query: inside((clientY - top) / height, rows), key: inside((clientX - left) / width, columns) });
  };
  set(node, { onclick: at(onpick), onpointermove: at(onhover), onpointerleave: () => onhover(null) });
  const show = (weights) => {
    const parts = times(LEVELS, () => "");
    weights.forEach((weight, i) => {
      const level = Math.round(weight * LEVELS) - 1;
      if (level >= 0) parts[Math.min(level, LEVELS - 1)] += `M${i % columns} ${Math.floor(i / columns)}h1v1h-1z`;
    });
    shapes.forEach((shape, i) => set(shape, { d: parts[i] }));
  };
  return { node, over, show };
}

/** The blue edge of valid keys on a map; with `onlength` it is dragged. What comes back draws it at a length. */
export function lengthEdge({ node, over }, rows, columns, onlength) {
  const edge = drawn("path", { class: "edge" }), grip = drawn("path", { class: "grip" });
  over.append(edge, ...(onlength ? [grip] : []));
  heed(grip, (share) => onlength(Math.round(share * columns)), node);
  return (valid) => [edge, grip].forEach((path) => set(path, { d: `M${valid},0v${rows}` }));
}

/** A frame on a map around the row of a query; what comes back draws it, and takes it away where there is none. */
export function queryFrame({ over }, columns) {
  const frame = over.appendChild(drawn("path", { class: "query" }));
  return (query) => set(frame, { d: query === null ? "" : `M0,${query}H${columns}V${query + 1}H0Z` });
}

/** A map between the names of its rows, its columns, and `beside`, one text for each row. */
export function named(map, rows, columns, beside = []) {
  const spans = (name, texts) => element("div", { class: name }, ...texts.map((text) => element("span", {}, text)));
  const sums = beside.length ? [element("div", { class: "row-names sums" }, ...beside)] : [];
  const node = element("div", { class: beside.length ? "framed summed" : "framed", "--across": columns.length });
  node.append(spans("row-names q", rows), map.node, ...sums, spans("column-names k", columns));
  return node;
}

/** A small map as a button with a title. */
export function card(title, map, onclick) {
  const text = element("span", {}, title);
  return button([text, map.node], (event) => event.target.closest(".cell") || onclick(), { class: "small" });
}

/** The scale of weights; `marks` are names by weight. */
export function scale(marks = { 0: "0", 0.25: ".25", 0.5: ".5", 1: "1" }, shade = (weight) => weight) {
  const names = Object.entries(marks)
    .map(([weight, name]) => [shade(Number(weight)), name])
    .sort(([a], [b]) => a - b)
    .map(([at, name]) => element("span", { "--at": at }, name));
  return element("div", { class: "scale", "aria-hidden": "true" }, element("div", { class: "ramp" }), ...names);
}
