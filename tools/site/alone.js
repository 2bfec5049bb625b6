// On a page of its own a picture takes the width and nine tenths of the height of a projector's screen.

const MOST = 1.6, LEAST = 0.85, HIGHEST = 0.9;
const NARROW = 700; // pixels of a screen on which one scrolls
const picture = document.querySelector(".mha-live"), { style } = document.body;

function fit() {
  style.zoom = 1;
  const { width, height } = picture.getBoundingClientRect();
  const room = Math.min(innerWidth / (width + 40), (HIGHEST - 0.02) * innerHeight / height, MOST);
  if (innerWidth > NARROW) style.zoom = Math.max(room, LEAST).toFixed(3);
}
fit();
addEventListener("resize", fit);
new ResizeObserver(() => picture.getBoundingClientRect().height > HIGHEST * innerHeight && fit()).observe(picture);
