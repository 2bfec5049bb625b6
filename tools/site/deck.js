// Turns the slides, fits them to the window, enlarges still pictures, and keeps the notes' window.

const slides = [...document.querySelectorAll(".slide")];
let now = 0, notes;

/** Show a still picture as large as its slide allows: its letters are made for a page. */
function enlarge(image) {
  const shown = image.closest(".shown"), others = [...shown.children].filter((child) => !child.contains(image));
  const gap = parseFloat(getComputedStyle(shown).rowGap);
  const height = shown.clientHeight - others.reduce((sum, child) => sum + child.offsetHeight + gap, 0);
  image.style.zoom = Math.min(2.4, shown.clientWidth / image.offsetWidth, height / image.offsetHeight);
}

function show(number) {
  now = Math.max(0, Math.min(slides.length - 1, number));
  slides.forEach((slide, index) => slide.classList.toggle("now", index === now));
  history.replaceState(null, "", `#${now + 1}`);
  if (notes && !notes.closed) notes.document.body.innerHTML = slides[now].querySelector("aside").innerHTML;
}

function openNotes() {
  notes = open("", "notes", "width=700,height=700");
  notes.document.title = "Notes";
  notes.document.body.style.cssText = "font: 20px/1.5 system-ui, sans-serif; margin: 24px";
  show(now);
}

const TURNS = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
addEventListener("keydown", (event) => {
  // in a picture, keys are the picture's; a clicker's PageUp and PageDown always turn
  if (event.target.closest(".mha-live") && !event.key.startsWith("Page")) return;
  if (event.key === "n") openNotes();
  if (!TURNS[event.key]) return;
  event.preventDefault();
  show(now + TURNS[event.key]);
});

function fit() {
  document.body.style.zoom = Math.min(innerWidth / 1280, innerHeight / 720);
}
document.querySelectorAll(".shown figure img").forEach(enlarge);
addEventListener("resize", fit);
addEventListener("hashchange", () => show(Number(location.hash.slice(1)) - 1));
fit();
show((Number(location.hash.slice(1)) || 1) - 1);
