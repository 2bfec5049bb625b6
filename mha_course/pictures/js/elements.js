// What all pictures share: elements, controls, keyboard, the line that reads a picture, and the frame around it.

import { rounded } from "./told.js";

const SVG = "http://www.w3.org/2000/svg";
const MOST_LETTERS = 9; // for which a slider keeps room

/**
 * Set attributes: `on…` are listeners, `--…` custom properties, `.…` a class that is there or not, `text` is what stands
 * in the node; null takes one away, true and false are written out. What is as it was is not touched, so that nothing is
 * laid out for it.
 */
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith(".")) node.classList.toggle(name.slice(1), Boolean(value));
    else if (name.startsWith("--")) {
      node.style.getPropertyValue(name) !== String(value) && node.style.setProperty(name, value);
    } else if (name === "text") node.textContent !== String(value) && (node.textContent = value);
    else if (value === null) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
  return node;
}

function filled(node, attributes, children) {
  set(node, attributes).append(...children);
  return node;
}

export const element = (name, attributes = {}, ...children) =>
  filled(document.createElement(name), attributes, children);
export const drawn = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);
/** A line in small letters that names what follows. */
export const titled = (...words) => element("p", { class: "title" }, ...words);
export const times = (count, make) => Array.from({ length: count }, (_, i) => make(i));

let dictionary = {}; // what messages are in the reader's language, by their English
const translated = (message) => dictionary[message] ?? message;
/** Full-width signs bring their own space, and beside Han and kana quotation marks need none. */
const CLOSED_UP =
  / (?=[，。；：、（）「」])|(?<=[，。；：、（）「」]) |(?<=[\u3040-\u9fff]) (?=“)|(?<=”) (?=[\u3040-\u9fff])/g;
const withNamed = (text, named) => text.replace(/\{(\w+)\}/g, (_, name) => String(named[name])).replace(CLOSED_UP, "");
/** A message in the reader's language, with what its braces name put in. */
export const tr = (message, named = {}) => withNamed(translated(message), named);
/** The same as parts of a headline, of which every second is bold: what stands between the message's own asterisks. */
export const parts = (message, named = {}) => translated(message).split("*").map((part) => withNamed(part, named));

/** An untranslated headline as such parts, in which *✗ words* tell what is wrong. */
export const marked = (text) =>
  text.split("*").map((part) => part.startsWith("✗ ") ? element("b", { class: "wrong" }, part.slice(2)) : part);

export const manyHeads = (count) => count === 1 ? tr("1 head") : tr("{count} heads", { count });

/** A count with its noun. */
export const amount = (count, singular, plural) => `${count} ${count === 1 ? singular : plural}`;
/** A number as text: two digits, no sign in front of a zero. */
export function number(value, digits = 2) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  const text = rounded(value, digits).toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

/** A share of right answers, with a decimal near 0 and near 1. */
export function percentOf(share) {
  const digits = (share > 0.0005 && share < 0.0095) || (share > 0.99 && share < 1) ? 1 : 0;
  return tr("{share} %", { share: (100 * share).toFixed(digits).replace(/^-0$/, "0").replace("-", "−") });
}

/** A share in percent, without the sign. */
export const inPercent = (share) => number(100 * share, 0);

/** The same within a cell: a weight's leading zero is left out. */
export function short(weight) {
  const told = rounded(weight, 2);
  return told >= 1 ? "1" : told <= 0 ? "0" : Number.isNaN(told) ? "NaN" : number(told).slice(1);
}

export const button = (content, onclick, attributes = {}) =>
  element("button", { type: "button", onclick, ...attributes }, ...[content].flat());

/** Options of a list that are their own values. */
export const byName = (names) => Object.fromEntries(names.map((name) => [name, name]));

/**
 * A control for one choice: a list if it has `options` (names by value), a box if it is a `check`, else a slider.
 * `read` and `write` stand between the choice and the control, `words` says its value.
 */
function control(state, choose, name, spec) {
  const { label = name, options, check, read = () => state[name], write = (value) => ({ [name]: value }) } = spec;
  const { words = String, min = 0, max, step = 1 } = spec;
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
    input[check ? "checked" : "value"] = read();
    if (!check && !options) {
      set(input, { "aria-valuetext": output.textContent = words(read()) });
      const letters = longest([min, max].map((end) => String(words(end))));
      set(output, { "--letters": Math.min(letters, MOST_LETTERS) }); // its room, so that nothing moves under the hand
    }
  };
  return { node, paint };
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
    const onkeydown = (event) => {
      const isOurs = event.key in steps || event.key === "Home" || event.key === "End";
      if (!isOurs || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const to = target(i, event.key);
      if (to === i || !items[to]) return;
      items[to].focus();
      onmove(to);
    };
    set(item, { onfocus: () => stopAt(i), onkeydown });
  });
  stopAt(0);
  return stopAt;
}

/** Whether a key presses what has the focus, as it does a button. */
export const isPress = ({ key }) => key === "Enter" || key === " ";

/** Let a drawing hear where along its width, or that of `field`, from 0 to 1, the pointer is pressed or dragged. */
export function heed(node, act, field = node) {
  const follow = ({ clientX }) => {
    const { left, width } = field.getBoundingClientRect();
    act(Math.min(Math.max((clientX - left) / width, 0), 1));
  };
  const onpointerdown = (event) => (node.setPointerCapture(event.pointerId), follow(event));
  return set(node, { onpointerdown, onpointermove: (event) => event.buttons && follow(event) });
}

/** Run a generator a few milliseconds at a time, so that nothing waits for it; returns what ends it early. */
export function inSlices(steps, delay = 0) {
  const some = () => {
    const end = performance.now() + 8;
    while (performance.now() < end) if (steps.next().done) return;
    timer = setTimeout(some);
  };
  let timer = setTimeout(some, delay);
  return () => clearTimeout(timer);
}

/** The width of a text, in letters: those of Chinese and Japanese are as wide as two. */
const widthOf = (text) => text.replace(/[^\0-\u2fff]/g, "--").length;
/** The width of the widest text. */
export const longest = (texts) => Math.max(...texts.map(widthOf));

/**
 * A text that keeps the room of its longest variant, so that nothing below it moves under the hand: `keep` gets the
 * letters that its large and its small line may have, and what is shown and longer widens the room.
 */
export function roomy(name) {
  const content = element("span"), lines = times(2, () => element("span")), most = [0, 0];
  const room = element("span", { class: "room", "aria-hidden": true }, ...lines);
  const keep = (lengths) =>
    lengths.forEach((length, i) => {
      if (length <= most[i]) return;
      most[i] = length;
      set(lines[i], { "data-room": "sequences ".repeat(Math.ceil(length / 10)).slice(0, length) });
    });
  const show = (...parts) => {
    content.replaceChildren(...parts);
    const small = widthOf(content.querySelector("small")?.textContent ?? "");
    keep([widthOf(content.textContent) - small, small]);
  };
  return { node: element("p", { class: `roomy ${name}` }, content, room), keep, show };
}

/** The line below a picture, with a hint. What is seen changes at once; a screen reader hears where it comes to rest. */
function readingLine() {
  const { node: seen, keep, show } = roomy("reading"), spoken = element("p", { class: "spoken", role: "status" });
  let wait;
  const say = (text, hint, heard) => {
    show(text, ...(hint ? [" ", element("span", { class: "hint" }, hint)] : []));
    clearTimeout(wait);
    wait = setTimeout(() => spoken.textContent = heard + seen.textContent, 400);
  };
  return { nodes: [seen, spoken], keep, say, end: () => clearTimeout(wait) };
}

/** A text in which no line begins with "%". */
export const unbroken = (text) => text.replaceAll(" %", "\u00a0%");

/** Part `i` of a headline, of which every second is bold. */
const partOf = (text, i) => typeof text !== "string" ? text : i % 2 ? element("b", {}, unbroken(text)) : unbroken(text);

/**
 * What a front end calls to show a picture.
 *
 * `build` gets `data`, which stays; `state`, the choices by name; `controls({name: …})`, a strip of them, painted here;
 * `choose({name: value})`; `point(what)`, which keeps it in `pointer.pointed`, and `pointing(what)`, which lets a node do
 * so; `repaint`; `headline`, which states what is seen, and `say(text, heard)`, which reads it; a screen reader hears first
 * what only the headline shows. It returns `nodes` to show, `compute()` for after a choice, `paint()` for every change,
 * `end()`, a `hint` that says what to touch until something is, and `room`, the most letters of the headline, of its small
 * line and of the reading. `ask(question, hear)` puts a question to Python, and `hear` gets every part of the answer; there
 * is no `ask` on a page without a kernel.
 */
export function picture(build) {
  const render = ({ model, el }) => {
    const name = model.get("title"), data = model.get("data"), { lang = null, messages = {} } = data;
    dictionary = messages;
    if (!CSS.supports("color", "color-mix(in oklab, light-dark(#000, #fff), #000)")) {
      el.textContent = tr("{name}: this picture moves from Chrome 123, Firefox 120 and Safari 17.5 on.", { name });
      return;
    }
    let asked = 0, isStale = true, isHidden = false, isTouched = false;
    const frame = element("section", { class: "mha-live", "aria-label": name, lang }), pointer = {};
    const top = roomy("looks"), line = readingLine(), headline = (...parts) => top.show(...parts.map(partOf));
    const show = () => {
      // While the theme changes, JupyterLab hides a panel for a moment: what is measured then is 0, so wait a frame. What
      // stays hidden for longer is painted when the observer of its size hears that it is back.
      const wasHidden = isHidden;
      isHidden = frame.isConnected && !frame.clientWidth;
      if (isHidden) {
        asked = wasHidden ? 0 : requestAnimationFrame(show);
        return;
      }
      if (isStale) parts.compute?.();
      [asked, isStale] = [0, false];
      parts.paint();
      for (const { paint } of painted) paint();
    };
    const repaint = () => asked ||= requestAnimationFrame(show);
    const point = (what) => (isTouched = true, pointer.pointed = what, repaint());
    const pointing = (what) => ({ onpointerenter: () => point(what), onpointerleave: () => point(null) });
    let unsaved = {}, wait = 0;
    const put = () => Object.entries(unsaved).forEach(([choice, value]) => model.set(choice, value));
    const save = () => {
      put(); // again, since the kernel's echo of an earlier choice may have come in between
      clearTimeout(wait);
      [unsaved, wait] = [{}, 0];
      model.save_changes();
    };
    /** The picture shows a choice at once; Python hears of it a moment later, so that no frame waits for a message. */
    const choose = (values) => {
      isTouched = true;
      Object.assign(unsaved, values);
      put();
      wait ||= setTimeout(save, 60);
    };
    const current = (_, choice) => choice in unsaved ? unsaved[choice] : model.get(choice);
    const state = new Proxy({}, { get: current }), painted = [];
    const controls = (specs, attributes = { class: "controls" }) => {
      const own = Object.entries(specs).map(([name, spec]) => control(state, choose, name, spec));
      painted.push(...own);
      return element("div", attributes, ...own.map(({ node }) => node));
    };
    const hearers = new Map();
    const heard = ({ to, bytes, ...answer }, buffers) =>
      hearers.get(to)?.({ ...answer, ...Object.fromEntries(bytes.map((name, i) => [name, buffers[i]])) });
    const ask = model.send && ((question, hear) => {
      const to = String(Math.random()); // another view of the same picture may be asking, too
      hearers.set(to, hear);
      model.send({ ...question, to });
    });
    if (ask) model.on("msg:custom", heard);
    const say = (text, heard = "") => line.say(text, isTouched ? "" : parts.hint, heard && `${heard} `);
    const acts = { controls, choose, point, pointing, repaint, headline, say, ask };
    const parts = build({ model, data, state, pointer, frame, ...acts });
    const [large = 0, small = 0, read = 0] = parts.room ?? [];
    top.keep([large, small]);
    line.keep([read]);
    frame.append(top.node, ...parts.nodes, ...line.nodes);
    // JupyterLab asks the focused element itself whether it may take the keys.
    frame.addEventListener("focusin", (event) => set(event.target, { "data-lm-suppress-shortcuts": true }));
    el.replaceChildren(frame);
    const changed = () => (isStale = true, repaint());
    model.on("change", changed);
    const resized = new ResizeObserver(repaint);
    resized.observe(frame);
    show();
    return () => {
      model.off("change", changed);
      if (ask) model.off("msg:custom", heard);
      resized.disconnect();
      cancelAnimationFrame(asked);
      if (wait) save();
      line.end();
      parts.end?.();
      el.replaceChildren(); // JupyterLab holds on to views that are gone, so nothing should stand in them
    };
  };
  return { render };
}
