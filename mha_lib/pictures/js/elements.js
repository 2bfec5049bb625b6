// What all pictures share: elements, keyboard, the line that reads a picture, and the frame around it.

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

export function element(name, attributes = {}, ...children) {
  const node = set(document.createElement(name), attributes);
  node.append(...children);
  return node;
}

export function drawn(name, attributes = {}, ...children) {
  const node = set(document.createElementNS(SVG, name), attributes);
  node.append(...children);
  return node;
}

export function times(count, make) {
  return Array.from({ length: count }, (_, i) => make(i));
}

/** A number as text: two digits, no sign in front of a zero. */
export function number(value, digits = 2) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** The same within a cell: a weight's leading zero is left out. */
export function short(weight) {
  return weight > 0.995 ? "1" : weight < 0.005 ? "0" : number(weight).slice(1);
}

export function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

/** A named slider with its value in words; `show(position, words)` moves it. */
export function slider(name, { min, max, step = 1, onmove, ...attributes }) {
  const input = element("input", { type: "range", min, max, step, "aria-label": name, ...attributes });
  input.addEventListener("input", () => onmove(Number(input.value)));
  const output = element("output");
  const node = element("label", { class: "control" }, element("span", {}, name), input, output);
  return {
    node,
    input,
    show(position, words = String(position)) {
      input.value = position;
      output.textContent = words;
      set(input, { "aria-valuetext": words });
    },
  };
}

export function checkbox(name, onmove) {
  const input = element("input", { type: "checkbox" });
  input.addEventListener("change", () => onmove(input.checked));
  return { node: element("label", { class: "control check" }, input, element("span", {}, name)), input };
}

/** A list to choose from: names by value. */
export function choice(name, options, onmove) {
  const items = Object.entries(options).map(([value, text]) => element("option", { value }, text));
  const input = element("select", { "aria-label": name }, ...items);
  input.addEventListener("change", () => onmove(input.value));
  return { node: element("label", { class: "control list" }, element("span", {}, name), input), input };
}

/** One tab stop for items in rows of `columns`; arrow keys, Home and End move the focus, and `onmove` hears where. */
export function roving(items, columns, onmove = () => {}) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  const stopAt = (chosen) => items.forEach((item, i) => set(item, { tabindex: i === chosen ? 0 : -1 }));
  const target = (i, key) => {
    const start = i - i % columns;
    if (key === "Home") return start;
    if (key === "End") return Math.min(start + columns, items.length) - 1;
    const to = i + steps[key];
    const sideways = key === "ArrowLeft" || key === "ArrowRight";
    return sideways && to - to % columns !== start ? i : to;
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

/** Let Enter and Space do what a click does, for elements that are not buttons by themselves. */
export function pressable(node, act) {
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act();
  });
}

/** The line below a picture. What is seen changes at once; a screen reader hears where it comes to rest. */
function readingLine() {
  const seen = element("p", { class: "reading" }), spoken = element("p", { class: "spoken", role: "status" });
  let wait;
  return {
    nodes: [seen, spoken],
    say(text) {
      seen.textContent = text;
      clearTimeout(wait);
      wait = setTimeout(() => spoken.textContent = text, 400);
    },
    end: () => clearTimeout(wait),
  };
}

const NEEDED = "color-mix(in oklab, light-dark(#000, #fff), #000)";

/**
 * What a front end calls to show a picture.
 *
 * `build({ model, choose, repaint, say })` returns `nodes` to show, `paint()` that brings them to the present state,
 * `compute()` for what takes longer, `computed` and `painted` (the traits that each depends on), and `end()`.
 */
export function picture(build) {
  return function render({ model, el }) {
    const name = model.get("title");
    if (!CSS.supports("color", NEEDED)) {
      el.textContent = `${name}: this picture moves from Chrome 123, Firefox 120 and Safari 17.5 on.`;
      return;
    }
    let asked = 0;
    const repaint = () => asked ||= requestAnimationFrame(() => (asked = 0, parts.paint()));
    const choose = (values) => {
      for (const [trait, value] of Object.entries(values)) model.set(trait, value);
      model.save_changes();
    };
    const line = readingLine();
    const parts = build({ model, choose, repaint, say: line.say });
    const compute = () => (parts.compute?.(), repaint());
    const frame = element("section", { class: "mha-live", "aria-label": name }, ...parts.nodes, ...line.nodes);
    // JupyterLab asks the focused element itself whether it may take the keys.
    frame.addEventListener("focusin", (event) => set(event.target, { "data-lm-suppress-shortcuts": true }));
    frame.classList.add(...(parts.classes ?? []));
    el.replaceChildren(frame);
    const listeners = [
      ...(parts.computed ?? []).map((trait) => [`change:${trait}`, compute]),
      ...(parts.painted ?? []).map((trait) => [`change:${trait}`, repaint]),
    ];
    for (const [event, listener] of listeners) model.on(event, listener);
    parts.compute?.();
    parts.paint();
    return () => {
      for (const [event, listener] of listeners) model.off(event, listener);
      cancelAnimationFrame(asked);
      line.end();
      parts.end?.();
      el.replaceChildren(); // JupyterLab holds on to views that are gone, so nothing should stand in them
    };
  };
}
