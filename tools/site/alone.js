// On a page of its own a picture takes the width and nine tenths of the height of a projector's screen.

const MOST = 1.6;

function fit() {
  const { body } = document, picture = body.querySelector(".mha-live");
  body.style.zoom = 1;
  const { width, height } = picture.getBoundingClientRect();
  const room = Math.min(innerWidth / (width + 40), 0.88 * innerHeight / height, MOST);
  if (room > 1) body.style.zoom = room.toFixed(3);
}
fit();
addEventListener("resize", fit);
