// A heat map of weights, and the scale that explains its colours.

import { drawn, element, set, short, times } from "./elements.js";

const COARSE = "M.1,.4 .4,.1 M.1,.9 .9,.1 M.6,.9 .9,.6"; // hatches of a small cell
const DENSE =
  "M.05,.25 .25,.05 M.05,.5 .5,.05 M.05,.75 .75,.05 M.05,1 1,.05 M.25,.95 .95,.25 M.5,.95 .95,.5 M.75,.95 .95,.75";

/**
 * Cells of one unit each in an <svg>. Options: `gap` between cells, `numbers` written into them, `onpick(cell)` and
 * `onhover(cell or null)`. `show(weights, masked, shade)` colours the cells; `shade` maps a weight to the scale, 0 to 1.
 */
export function heatMap(rows, columns, { gap = 0.06, numbers = false, onpick, onhover, ...attributes } = {}) {
  const cells = times(rows * columns, (i) => {
    const x = i % columns, y = Math.floor(i / columns);
    const box = { x: gap / 2, y: gap / 2, width: 1 - gap, height: 1 - gap, rx: gap };
    const text = numbers ? [drawn("text", { x: 0.5, y: 0.5 })] : [];
    return drawn("g", { class: "cell", transform: `translate(${x} ${y})` }, drawn("rect", box), ...text);
  });
  const field = drawn("g", {}, ...cells), over = drawn("g", { class: "over" });
  const node = drawn("svg", { viewBox: `0 0 ${columns} ${rows}`, ...attributes }, field, over);
  const cellOf = (event) => cells.indexOf(event.target.closest(".cell"));
  if (onpick) field.addEventListener("click", (event) => cellOf(event) >= 0 && onpick(cellOf(event)));
  if (onhover) {
    field.addEventListener("pointerover", (event) => cellOf(event) >= 0 && onhover(cellOf(event)));
    field.addEventListener("pointerleave", () => onhover(null));
  }
  return {
    node,
    cells,
    over,
    show(weights, masked = () => false, shade = (weight) => weight) {
      cells.forEach((cell, i) => {
        const hidden = masked(i);
        set(cell, { "--w": Math.min(shade(weights[i]), 1).toFixed(3) });
        if (numbers) cell.children[1].textContent = hidden ? "" : short(weights[i]);
        if (hidden === cell.classList.contains("masked")) return;
        cell.classList.toggle("masked", hidden);
        if (hidden) {
          cell.append(drawn("path", { class: numbers ? "hatches fine" : "hatches", d: numbers ? DENSE : COARSE }));
        } else cell.lastChild.remove();
      });
    },
    mark(chosen) {
      cells.forEach((cell, i) => cell.classList.toggle("chosen", i === chosen));
    },
  };
}

/** The scale of weights; `marks` are names by weight. */
export function scale(marks, shade = (weight) => weight) {
  const names = Object.entries(marks)
    .map(([weight, name]) => [shade(Number(weight)), name])
    .sort(([a], [b]) => a - b)
    .map(([at, name]) => element("span", { "--at": at }, name));
  return element("div", { class: "scale", "aria-hidden": "true" }, element("div", { class: "ramp" }), ...names);
}
