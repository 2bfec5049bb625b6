// An image of 8 × 8: the line around its ink, and one that is drawn by hand.

import { sumOf } from "./attention.js";
import { times } from "./elements.js";

const FINE = 4; // places per pixel where the ink's edge is looked for
const SIDE = 9 * FINE + 1; // from one pixel before the first to one behind the last
const LEVEL = 0.36; // how dark the edge is

/** A cubic B-spline: how much a pixel counts at a distance, for a smooth surface through all. */
function spline(distance) {
  const t = Math.abs(distance);
  return t < 1 ? (4 - 6 * t ** 2 + 3 * t ** 3) / 6 : t < 2 ? (2 - t) ** 3 / 6 : 0;
}
const SHARES = times(SIDE, (i) => times(8, (pixel) => spline(i / FINE - 1 - pixel)));

/** The smoothed darkness at SIDE × SIDE places. */
function smoothed(image) {
  const columns = SHARES.map((own) => times(8, (x) => sumOf(own.map((share, y) => share * image[y * 8 + x]))));
  return columns.map((row) => SHARES.map((own) => sumOf(own.map((share, x) => share * row[x]))));
}

/** The edge of the ink as an SVG path, in units of patches (0 to 4). */
export function outlineOf(image) {
  const darkness = smoothed(image);
  const unit = (place) => ((place / FINE - 0.5) / 2).toFixed(3);
  let path = "";
  for (let i = 0; i < (SIDE - 1) ** 2; i++) {
    const row = Math.floor(i / (SIDE - 1)), column = i % (SIDE - 1);
    const corners = [[row, column], [row, column + 1], [row + 1, column + 1], [row + 1, column]];
    const crossings = corners.flatMap(([y, x], i) => {
      const [toY, toX] = corners[(i + 1) % 4];
      const level = darkness[y][x] - LEVEL, neighbour = darkness[toY][toX] - LEVEL, share = level / (level - neighbour);
      if ((level > 0) === (neighbour > 0)) return [];
      return `${unit(x + share * (toX - x))},${unit(y + share * (toY - y))}`;
    });
    for (let i = 0; i + 1 < crossings.length; i += 2) path += `M${crossings[i]}L${crossings[i + 1]}`;
  }
  return path;
}

const DOTS = 32; // dots a side, of which 4 × 4 make a pixel, as in the images that the model was trained on
const BRUSH = 2.7; // radius in dots

/** A drawing; places are shares of its side, 0 to 1. */
export function drawing() {
  const dots = new Uint8Array(DOTS * DOTS);
  let last = null;
  const stamp = (x, y) =>
    dots.forEach((_, i) => {
      if ((i % DOTS + 0.5 - x) ** 2 + (Math.floor(i / DOTS) + 0.5 - y) ** 2 < BRUSH ** 2) dots[i] = 1;
    });
  const paper = {
    clear: () => (dots.fill(0), paper),
    /** Move the pen to a place; it inks all the way from where it was unless it was lifted. */
    moveTo(x, y) {
      const from = last ?? [x, y], steps = Math.ceil(Math.hypot(x - from[0], y - from[1]) * DOTS) || 1;
      const at = (axis, to, i) => (from[axis] + (to - from[axis]) * i / steps) * DOTS;
      for (let i = 1; i <= steps; i++) stamp(at(0, x, i), at(1, y, i));
      last = [x, y];
    },
    lift: () => last = null,
    /** Ink all of a patch (of 4 × 4), or clear it if it has ink. */
    turn(patch) {
      const inside = (i) => Math.floor(i / DOTS / 8) === patch >> 2 && Math.floor(i % DOTS / 8) === (patch & 3);
      const ink = dots.some((dot, i) => dot && inside(i)) ? 0 : 1;
      dots.forEach((_, i) => inside(i) && (dots[i] = ink));
    },
    /** The share of ink in each of 8 × 8 pixels. */
    image() {
      const image = Array(64).fill(0);
      dots.forEach((dot, i) => image[Math.floor(i / DOTS / 4) * 8 + Math.floor(i % DOTS / 4)] += dot / 16);
      return image;
    },
  };
  return paper;
}
