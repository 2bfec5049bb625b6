// On a page without a kernel: a model with what pictures ask of it, made from the state that the page holds.

export class PageModel {
  constructor(state) {
    this.state = state;
    this.listeners = {};
  }
  get(name) {
    return this.state[name];
  }
  set(name, value) {
    if (JSON.stringify(this.state[name]) === JSON.stringify(value)) return;
    this.state[name] = value;
    for (const listener of [...(this.listeners[`change:${name}`] ?? [])]) listener();
  }
  save_changes() {}
  on(event, listener) {
    (this.listeners[event] ??= []).push(listener);
  }
  off(event, listener) {
    this.listeners[event] = (this.listeners[event] ?? []).filter((other) => other !== listener);
  }
}

function decoded(value) {
  if (typeof value?.base64 !== "string") return value;
  return Uint8Array.from(atob(value.base64), (letter) => letter.charCodeAt(0));
}

/** Put the live picture in place of every still one whose state the page holds; `pictures` are modules by kind. */
export function bringToLife(pictures) {
  for (const figure of document.querySelectorAll("figure[data-mha-live]")) {
    const kept = document.querySelector(`script[data-mha-state="${figure.dataset.mhaLive}"]`);
    const entry = kept && JSON.parse(kept.textContent);
    if (!entry || !pictures[entry.kind]) continue;
    const state = Object.fromEntries(Object.entries(entry.state).map(([name, value]) => [name, decoded(value)]));
    const place = document.createElement("div");
    pictures[entry.kind].render({ model: new PageModel(state), el: place });
    if (place.querySelector(".mha-live")) figure.replaceWith(place);
  }
}
