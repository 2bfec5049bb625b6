// On a page without a kernel: a model with what pictures ask of it, made from the state that the page holds.

export function pageModel(state) {
  const listeners = new Set();
  return {
    get: (name) => state[name],
    set(name, value) {
      if (JSON.stringify(state[name]) === JSON.stringify(value)) return;
      state[name] = value;
      for (const listener of listeners) listener();
    },
    save_changes() {},
    on: (_change, listener) => listeners.add(listener),
    off: (_change, listener) => listeners.delete(listener),
  };
}

const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
/** What a value of the page's JSON stands for: bytes travel as text. */
const decoded = (_, value) => typeof value?.base64 === "string" ? bytes(value.base64) : value;

/** Put the live picture in place of every still one whose state the page holds; `pictures` are modules by kind. */
export function bringToLife(pictures) {
  const shown = new Map(); // how often each name of a picture has been used: a screen reader lists them by name
  for (const figure of document.querySelectorAll("figure[data-mha-live]")) {
    const kept = document.querySelector(`script[data-mha-state="${figure.dataset.mhaLive}"]`);
    const { kind, state } = kept ? JSON.parse(kept.textContent, decoded) : {};
    if (!pictures[kind]) continue;
    const place = document.createElement("div");
    pictures[kind].render({ model: pageModel(state), el: place });
    const live = place.querySelector(".mha-live");
    if (!live) continue;
    const name = live.getAttribute("aria-label"), count = (shown.get(name) ?? 0) + 1;
    shown.set(name, count);
    if (count > 1) live.setAttribute("aria-label", `${name} (${count})`);
    figure.replaceWith(place);
  }
}
