// What is asked of Python, where it runs and has the model; and a box for a text of the reader's own.

import { button, element, tr } from "./elements.js";

/**
 * `question(what, tell, then)` asks for what `learn` takes in; `tell` hears what is wrong, or nothing, and then `then` may
 * show it. `once(key, what)` asks a single time. `share` hears how much of a long answer is done.
 */
export function asker({ ask, data, repaint }, learn, share) {
  const canAsk = Boolean(ask && data.can_ask), asked = new Set();
  const question = (what, tell = () => {}, then = () => {}) =>
    ask(what, (answer) => {
      if (answer.share !== undefined) return share(answer.share);
      tell(answer.error ?? "");
      if (!answer.error) (learn(answer), then(), repaint());
    });
  const once = (key, what = key) => {
    const words = JSON.stringify(key);
    if (canAsk && !asked.has(words)) (asked.add(words), question(what));
  };
  return { canAsk, question, once };
}

/** A box and a button that call `act(text, tell)`; `tell` writes what is wrong. Nothing where no one could answer. */
export function ownText(isThere, label, act) {
  if (!isThere) return "";
  const box = element("input", { type: "text", "aria-label": label, placeholder: label, autocomplete: "off" });
  const note = element("p", { class: "own-note", role: "status" });
  const tell = (words) => note.textContent = words;
  const send = () => {
    tell(tr("Python is asked. The first time it loads the model, which takes some seconds."));
    act(box.value, tell);
  };
  box.addEventListener("keydown", (event) => event.key === "Enter" && send()); // no form: JupyterLab would not submit it
  return element("div", { class: "own-text" }, box, button(tr("show"), send), note);
}
