// What all pictures share: elements, controls, keyboard, the line that reads a picture, and the frame around it.

const SVG = "http://www.w3.org/2000/svg";

/** Set attributes: `on…` are listeners, `--…` custom properties; null takes one away, true and false are written out. */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else if (value === null) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
  return node;
}

function filled(node, attributes, children) {
  set(node, attributes).append(...children);
  return node;
}

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

export function times(count, make) {
  return Array.from({ length: count }, (_, i) => make(i));
}

/** A number as text: two digits, no sign in front of a zero. */
export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : "−∞";
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** The same within a cell: a weight's leading zero is left out. */
export function short(weight) {
  return weight > 0.995 ? "1" : weight < 0.005 ? "0" : Number.isNaN(weight) ? "NaN" : number(weight).slice(1);
}

export function button(content, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, ...[content].flat());
}

/**
 * A strip of controls, each for one choice: a list if it has `options` (names by value), a box if it is a `check`, else
 * a slider. `read` and `write` stand between the choice and the control, `words` says its value, `off` disables it.
 */
export function controls({ state, choose }, specs, attributes = { class: "controls" }) {
  const own = Object.entries(specs).map(([name, spec]) => {
    const { label = name, options, check, read = () => state[name], write = (value) => ({ [name]: value }) } = spec;
    const { words = String, off = () => false, min = 0, max, step = 1 } = spec;
    const items = Object.entries(options ?? {}).map(([value, text]) => element("option", { value }, text));
    const input = options
      ? element("select", { "aria-label": label }, ...items)
      : element("input", check ? { type: "checkbox" } : { type: "range", min, max, step, "aria-label": label });
    const value = () => check ? input.checked : options ? input.value : Number(input.value);
    input.addEventListener(options || check ? "change" : "input", () => choose(write(value())));
    const output = element("output"), text = element("span", {}, label);
    const parts = check ? [input, text] : options ? [text, input] : [text, input, output];
    const node = element("label", { class: `control ${check ? "check" : options ? "list" : ""}` }, ...parts);
    const paint = () => {
      const now = read();
      if (check) input.checked = now;
      else input.value = now;
      if (parts.includes(output)) set(input, { "aria-valuetext": output.textContent = words(now) });
      node.classList.toggle("off", input.disabled = off());
    };
    return { node, paint };
  });
  return {
    node: element("div", attributes, ...own.map(({ node }) => node)),
    paint: () => own.forEach((o) => o.paint()),
  };
}

/** One tab stop for items in rows of `columns`; arrow keys, Home and End move the focus, and `onmove` hears where. */
export function roving(items, columns, onmove = () => {}) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  const stopAt = (chosen) => items.forEach((item, i) => set(item, { tabindex: i === chosen ? 0 : -1 }));
  const target = (i, key) => {
    const start = i - i % columns, last = Math.min(start + columns, items.length) - 1;
    if (key === "Home" || key === "End") return key === "Home" ? start : last;
    const to = i + steps[key];
    return steps[key] ** 2 === 1 && columns > 1 && (to < start || to > last) ? i : to;
  };
  items.forEach((item, i) => {
    item.addEventListener("focus", () => stopAt(i));
    item.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in steps || /^(Home|End)$/.test(event.key))) {
        return;
      }
      event.preventDefault();
      const to = target(i, event.key);
      if (to === i || !items[to]) return;
      items[to].focus();
      onmove(to);
    });
  });
  stopAt(0);
  return stopAt;
}

/** The line below a picture. What is seen changes at once; a screen reader hears where it comes to rest. */
function readingLine() {
  const seen = element("p", { class: "reading" }), spoken = element("p", { class: "spoken", role: "status" });
  let wait;
  const say = (text) => {
    seen.textContent = text;
    clearTimeout(wait);
    wait = setTimeout(() => spoken.textContent = text, 400);
  };
  return { nodes: [seen, spoken], say, end: () => clearTimeout(wait) };
}

const NEEDED = "color-mix(in oklab, light-dark(#000, #fff), #000)";

/**
 * What a front end calls to show a picture.
 *
 * `build` gets `data`, which stays, `state`, the present choices by name, `choose({name: value})`, `point(what)`, which
 * keeps what the reader points at in `here.pointed`, `repaint` and `say`. It returns `nodes` to show, `compute()` for
 * after a choice, `paint()` for every change, and `end()`.
 */
export function picture(build) {
  return function render({ model, el }) {
    const name = model.get("title");
    if (!CSS.supports("color", NEEDED)) {
      el.textContent = `${name}: this picture moves from Chrome 123, Firefox 120 and Safari 17.5 on.`;
      return;
    }
    let asked = 0, isStale = true;
    const frame = element("section", { class: "mha-live", "aria-label": name }), line = readingLine(), here = {};
    const show = () => {
      asked = 0;
      if (isStale) parts.compute?.();
      isStale = false;
      parts.paint();
    };
    const repaint = () => asked ||= requestAnimationFrame(show);
    const point = (what) => (here.pointed = what, repaint());
    const choose = (values) => {
      for (const [choice, value] of Object.entries(values)) model.set(choice, value);
      model.save_changes();
    };
    const state = new Proxy({}, { get: (_, choice) => model.get(choice) });
    const parts = build({ model, data: model.get("data"), state, here, frame, choose, point, repaint, say: line.say });
    frame.append(...parts.nodes, ...line.nodes);
    // JupyterLab asks the focused element itself whether it may take the keys.
    frame.addEventListener("focusin", (event) => set(event.target, { "data-lm-suppress-shortcuts": true }));
    el.replaceChildren(frame);
    const changed = () => (isStale = true, repaint());
    model.on("change", changed);
    show();
    return () => {
      model.off("change", changed);
      cancelAnimationFrame(asked);
      line.end();
      parts.end?.();
      el.replaceChildren(); // JupyterLab holds on to views that are gone, so nothing should stand in them
    };
  };
}
