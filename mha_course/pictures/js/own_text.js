// A box for a text of the reader's own, where Python runs and has the model.

import { button, element, tr } from "./elements.js";

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
  // No form: in JupyterLab the Enter key would not submit it.
  box.addEventListener("keydown", (event) => event.key === "Enter" && send());
  return element("div", { class: "own-text" }, box, button(tr("show"), send), note);
}
