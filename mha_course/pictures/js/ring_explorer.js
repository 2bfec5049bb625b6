// The Ring: heads that learn, in the browser, to predict four neighbours of each letter on a ring. A weight is a chord.

import { bytesOf, rowOf, unpack } from "./attention.js";
import { button, drawn, element, heed, inPercent, inSlices, longest, manyHeads, parts, percentOf } from "./elements.js";
import { picture, roving, set, short, times, tr } from "./elements.js";
import { answersOf, countRight, dueAt, forward, laid, RING, SHIFTS, STEPS, train } from "./ring_model.js";

const LETTERS_OF_RING = "abcdefghij", CENTRE = 200, RADIUS = 136, RIM = 1.36; // of a drawing 400 wide; in radii
const MOST_LEVELS = 6, FEW_LEVELS = 4, LEAST_CHORD = 0.03, NAMED_CHORD = 0.2; // shades of weight; from which there is a chord, and its head's number
const LEAST_JOB = 0.15, SIGNS_OF = ["−1", "+1", "−2", "+2"], MANY_HEADS = 4, NARROW = 2; // up to which a colour tells a head; features
const ORDER_OF_DOTS = [2, 0, 1, 3], OPENING = [1, 4], WHOLE = 1500; // ms in which all chords stand before one letter's
const CLEAR = .2; // between the names of curves, of their height

/** Where a token stands, `far` radii from the middle. */
function placeOf(token, far = 1) {
  const angle = 2 * Math.PI * token / RING - Math.PI / 2;
  return [CENTRE + far * RADIUS * Math.cos(angle), CENTRE + far * RADIUS * Math.sin(angle)];
}
const pointOf = (token, far) => placeOf(token, far).map((x) => x.toFixed(1)).join(",");

/** The chord of a weight; those of several heads lie side by side, so that none covers another. */
function chordOf(query, key, head, heads) {
  const aside = .09 * (head - (heads - 1) / 2) / Math.max(1, heads / 4), around = (key - query + RING + 6) % RING - 6;
  const start = pointOf(query), beside = [-.9, .9].map((by) => pointOf(query + by, .62 + aside));
  if (!around) return `M${start}C${beside.join(" ")} ${start}`;
  return `M${start}Q${pointOf(query + around / 2, .8 / Math.sqrt(Math.abs(around)) + aside)} ${pointOf(key)}`;
}

const linesOf = (head, heads) => times(RING * RING, (i) => chordOf(Math.floor(i / RING), i % RING, head, heads));
const CHORDS = linesOf(0, 1); // of a head alone

/** A path for each shade of weight, as wide as the weight; plain numbers, since a browser reads these at once. */
function strand(levels, look, width, least, most) {
  const paths = times(levels, (level) => {
    const weight = (level + .5) / levels, opacity = least + (most - least) * weight;
    return drawn("path", { "stroke-width": weight * width, opacity });
  });
  return drawn("g", { class: "strand", ...look }, ...paths);
}
/** Let a strand show the weights of the queries that `holds` names, along their lines. */
function show({ children }, { data }, lines, holds = () => true) {
  const texts = times(children.length, () => "");
  data.forEach((weight, i) => {
    if (weight < LEAST_CHORD || !holds(Math.floor(i / RING))) return;
    texts[Math.min(Math.floor(weight * texts.length), texts.length - 1)] += lines[i];
  });
  texts.forEach((d, level) => set(children[level], { d }));
}

/** Dots around each letter, one for each neighbour, and what fills those of right answers and colours those of `focus`. */
function dotsAround() {
  const dots = times(RING * SHIFTS.length, (i) => {
    const [x, y] = placeOf(Math.floor(i / SHIFTS.length) + .18 * (i % SHIFTS.length - 1.5), 1.215);
    return drawn("circle", { cx: x, cy: y, r: 4.6 });
  });
  const fill = (answers, row, focus, colourOf) =>
    dots.forEach((dot, i) => {
      const token = Math.floor(i / SHIFTS.length), message = ORDER_OF_DOTS[i % SHIFTS.length];
      const isRight = answers[token * SHIFTS.length + message] === dueAt(row, token, message);
      const isNear = token === focus, colour = isNear ? colourOf((token - SHIFTS[message] + RING) % RING) : "";
      set(dot, { class: `${isRight ? "right" : "wrong"}${isNear ? " near" : ""}`, "--own": colour });
    });
  return { dots, fill };
}

export default picture(({ data, state, controls, pointer, choose, point, pointing, repaint, headline, say, frame }) => {
  const { counts, ranges, names, shares } = data, kept = unpack(data), test = bytesOf(data.test);
  const isOwn = !ranges.length, size = kept[`${state.num_heads}.embedding.positions`].columns;
  const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const parametersOf = {}; // by heads, of what was trained before
  for (const [name, part] of Object.entries(kept)) {
    const [heads, ...own] = name.split(".");
    (parametersOf[heads] ??= {})[own.join(".")] = part;
  }
  // what is trained here, by heads, and what ends it; which step is shown; accuracies by state
  const runs = {}, stops = {}, shownAt = {}, found = new Map();
  let seed = 1, judged = "", note = "", strands = [], levels = MOST_LEVELS, last = "", above = "", isOpen = null;
  let isSliced = false, stopJudging = () => {}, isWhole = false, wait;

  const runOf = (heads) => runs[heads]?.length ? runs[heads] : null;
  const parametersAt = (heads, kept) => kept ? kept.laid ??= laid(kept.flat, size) : parametersOf[heads];
  const rowNow = () => Uint8Array.from(state.letters, (letter) => LETTERS_OF_RING.indexOf(letter));
  const slow = tr("This page allows no worker, so training is slower.");
  const onAverage = tr("One head gives one average of all four."), oneEach = tr("Each head attends to one of them.");
  const trainedWhere = (step) =>
    step === undefined
      ? tr("trained in PyTorch, {steps} steps", { steps: STEPS })
      : tr("trained here and now: step {step} of {steps}", { step, steps: STEPS });
  const letterAt = (i) => tr("{letter} (position {i})", { letter: state.letters[i], i });

  // training
  function begin(heads) {
    const run = runs[heads] = [];
    stops[heads] = train({ numHeads: heads, seed: seed++, test }, (one) => {
      if (!one.step) run.length = 0;
      [isSliced, shownAt[heads]] = [one.isSliced, run.push(one) - 1];
      if (one.step === STEPS) halt(heads);
      repaint();
    });
    repaint();
  }
  function halt(heads) {
    stops[heads]?.();
    delete stops[heads];
  }
  const haltAll = (but) => Object.keys(stops).forEach((heads) => Number(heads) === but || halt(heads));
  const pick = (values) => (note = "", choose(values));
  function touch(heads) {
    pick({ num_heads: heads, split_into: 0, off: [] });
    if (!isStill && !stops[heads] && runOf(heads)?.at(-1).step !== STEPS) begin(heads);
  }
  const scrub = (step) => {
    const own = state.num_heads, run = runOf(own);
    if (run && !stops[own]) shownAt[own] = Math.min(Math.max(step, 0), run.length - 1);
    repaint();
  };

  // the ring
  const tokens = times(RING, (i) => {
    const enter = () => point({ query: i }),
      type = (event) => event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey && write(i, event);
    const node = button("", () => pick({ query: i }), { class: "ring-letter", onpointerenter: enter, onkeydown: type });
    const [x, y] = placeOf(i);
    return set(node, { "--x": x / CENTRE / 2, "--y": y / CENTRE / 2 });
  });
  function write(i, event) {
    const letter = event.key.toLowerCase(), { letters } = state;
    if (letter === " ") return;
    event.preventDefault();
    if (LETTERS_OF_RING.includes(letter)) {
      return pick({ letters: letters.slice(0, i) + letter + letters.slice(i + 1), query: i });
    }
    note = tr("“{letter}” is not one of the letters a to j.", { letter });
    repaint();
  }
  roving(tokens, RING, (i) => pick({ query: i }));
  const chords = drawn("g"),
    near = drawn("g"),
    half = (from) => `A${RIM * RADIUS},${RIM * RADIUS} 0 0 1 ${pointOf(from, RIM)}`,
    round = { d: `M${pointOf(-.5, RIM)}${half(5.5)}${half(-.5)}`, pathLength: RING },
    [rest, rim] = ["rim rest", "rim"].map((name) => drawn("path", { class: name, ...round }));
  const { dots, fill } = dotsAround();
  const marks = times(RING, (key) => {
    const [x, y] = placeOf(key, .79);
    return drawn("text", { class: "mark", x, y });
  });
  const drawing = drawn("svg", { viewBox: "0 0 400 400", "aria-hidden": true });
  drawing.append(rest, rim, chords, near, ...dots, ...marks);
  const share = element("b"), fourRight = element("small");
  const middle = element("p", { class: "ring-middle" }, share, fourRight);
  /** What is dragged from one number to another and moved by arrow keys: `act` hears by how much. */
  function slider(name, label, [least, most], act) {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, Home: -Infinity, End: Infinity };
    const onkeydown = (event) => event.key in by && (event.preventDefault(), act(by[event.key]));
    const ends = { "aria-valuemin": least, "aria-valuemax": most };
    return element("div", { class: name, role: "slider", tabindex: 0, "aria-label": label, ...ends, onkeydown });
  }
  const measure = (valid) => pick({ valid_lens: Math.min(Math.max(valid, 1), RING) });
  const knob = slider("ring-knob", tr("valid keys (valid_lens)"), [1, RING], (by) => measure(state.valid_lens + by));
  /** A note in a corner of the ring, a line each. */
  const corner = (kind, ...lines) => element("p", { class: `ring-corner ${kind}` }, ...lines);
  const length = element("b"), colour = element("span"), code = element("code", {}, "valid_lens");
  const dotOf = (kind, words) => element("span", { class: kind }, words);
  const corners = [
    corner("length", length, code),
    corner("low", dotOf("right", tr("right")), dotOf("wrong", tr("wrong"))),
    corner("low last", colour, element("span", {}, tr("width and number: attention weight"))),
  ];
  const ring = element("div", { class: "ring", onpointerleave: () => point(null) }, drawing, middle);
  ring.append(...tokens, knob, ...corners);
  const onpointermove = ({ buttons, clientX, clientY }) => {
    if (!buttons) return;
    const { left, top, width, height } = ring.getBoundingClientRect();
    const turn = Math.atan2(clientX - left - width / 2, top + height / 2 - clientY) / 2 / Math.PI;
    const valid = Math.round((turn + 1) % 1 * RING + .5);
    if (Math.abs(valid - state.valid_lens) < RING / 2) measure(valid); // the end does not jump over the start
  };
  set(knob, { onpointermove, onpointerdown: (event) => knob.setPointerCapture(event.pointerId) });

  // the heads; of a given model, those that attend to the same neighbour stand together, and have its colour
  const isOff = (some) => some.every((head) => state.off.includes(head));
  /** The heads that attend to each neighbour, two before to two after, if `count` heads are those of a given model. */
  const sharesOf = (count) => count === state.num_heads ? shares : [];
  const isByNeighbour = (count) => sharesOf(count).flat().length === count;
  const flip = (some) => {
    const rest = state.off.filter((head) => !some.includes(head));
    pick({ off: isOff(some) ? rest : [...rest, ...some] });
  };
  const heads = element("div", { class: "ring-heads", onpointerleave: () => point(null) });
  let cards = [], pairs = [];
  function rebuild(count) {
    const isMany = count > MANY_HEADS;
    levels = isMany ? FEW_LEVELS : MOST_LEVELS;
    strands = times(count, (head) => {
      const kind = isByNeighbour(count) ? shares.findIndex((own) => own.includes(head)) : head % MANY_HEADS;
      const row = isByNeighbour(count) ? shares[kind].indexOf(head) : Math.floor(head / MANY_HEADS);
      const colour = `var(--ring-${kind})`, look = { "--own": colour };
      look["stroke-dasharray"] = [null, "9 5", "2 4"][Math.min(row, 2)];
      return {
        colour,
        all: isMany ? strand(levels, look, 3.5, .15, .6) : strand(levels, look, 5, .3, .9),
        own: strand(levels, look, isMany ? 6 : 10, .5, 1),
        mini: strand(levels, look, 13, .3, .9),
        lines: linesOf(head, count),
      };
    });
    chords.replaceChildren();
    near.replaceChildren();
    above = "";
    /** A switch of some heads, and the number that says what is lost without them. */
    const gate = (own, kind, ...content) => {
      const worth = content.at(-1), look = { class: kind, "--own": strands[own[0]].colour };
      const onpointerenter = () => point({ heads: own });
      return { own, worth, node: button(content, () => flip(own), { ...look, role: "switch", onpointerenter }) };
    };
    cards = times(count, (head) => {
      const job = element("span"), name = element("span", { class: "head-name" }, element("b", {}, head), " ", job);
      const map = drawn("svg", { viewBox: "40 40 320 320", "aria-hidden": true }, strands[head].mini);
      return { ...gate([head], "ring-head", name, map, element("i")), job };
    });
    pairs = sharesOf(count).flatMap((own, i) => {
      const name = names[ORDER_OF_DOTS[i]];
      return own.length > 1 ? { ...gate(own, "ring-pair", element("span", {}, name), element("i")), name } : [];
    });
    const grouped = pairs.map(({ own, node }) =>
      element("div", { class: "ring-group" }, node, ...own.map((head) => cards[head].node))
    );
    const rest = cards.filter((_, head) => !pairs.some(({ own }) => own.includes(head)));
    set(heads, { "--columns": pairs.length ? 4 : count < 5 ? Math.min(count, 2) : count < 7 ? 3 : 4 });
    heads.classList.toggle("many", isMany);
    heads.replaceChildren(...grouped, ...rest.map(({ node }) => node));
  }
  const told = shares.length
    ? tr("Change without a head, or without all of a neighbour's heads, in points")
    : tr("Heads. Inside: change without it, in points");
  const headsTitle = element("p", { class: "title" }, told);
  const options = { 0: tr("as trained") };
  for (const count of counts) options[count] = tr("into {heads}", { heads: manyHeads(count) });
  const split = controls({
    split_into: {
      label: tr("The same weights, split"),
      options,
      read: () => String(state.split_into),
      write: (value) => ({ split_into: Number(value), off: [] }),
    },
  }, { class: "controls ring-split" });
  const right = element("div", { class: `ring-right ${shares.length ? "shared" : ""}` }, headsTitle, heads, split);

  // how many heads, and the training
  const bars = counts.map((count, i) => {
    const words = element("span"), fill = element("i", { class: "fill" }), range = element("i", { class: "range" });
    const ground = element("span", { class: "ground-of" }, fill, range), name = element("b", {}, count);
    const node = button([words, ground, name], () => touch(count), { class: "heads-bar" });
    const [least, most, kept] = ranges[i] ?? [0, 0, 0];
    return { count, words, least, most, kept, node: set(node, { "--least": least, "--most": most }) };
  });
  roving(bars.map(({ node }) => node), counts.length);
  const barsTitle = element("p", { class: "title" }, tr("Number of heads (num_heads)"));
  const barsTold = element("small", {}, tr("bar: all four right; whisker: range of five runs"));
  const barsOf = element("div", { class: "heads-bars" }, ...bars.map(({ node }) => node));
  const chart = element("div", {}, barsTitle, barsTold, barsOf);
  const lines = Object.fromEntries(counts.map((count) => [count, drawn("path")]));
  const marker = drawn("path", { class: "now" }), ends = drawn("path", { class: "ends", d: "M0,3H100M0,37H100" });
  const curves = drawn("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none" });
  curves.append(ends, ...Object.values(lines), marker);
  const scale = [tr("100 % all four right"), percentOf(0)].map((text) => element("span", {}, text));
  const steps = element("small", {}, ...["0", tr("training step"), STEPS].map((text) => element("span", {}, text)));
  const curveNames = element("div");
  const toStep = (by) => scrub((shownAt[state.num_heads] ?? 0) + by);
  const scrubber = slider("loss named", tr("training step"), [0, STEPS], toStep);
  scrubber.append(curves, curveNames, ...scale);
  heed(scrubber, (at) => scrub(Math.round(at * ((runOf(state.num_heads)?.length ?? 1) - 1))));
  const go = button("", () => {
    if (stops[state.num_heads]) return (halt(state.num_heads), repaint());
    choose({ split_into: 0, off: [] });
    begin(state.num_heads);
  });
  const when = element("span", { class: "title" });
  const course = element("div", { class: "ring-course" }, element("p", {}, go, when), scrubber, steps);
  const below = element("div", { class: "ring-below", hidden: isOwn ? "" : null }, chart, course);

  /** How good the shown heads are, and then what each is worth. */
  function* judge(key, parameters, count, gates) {
    const rate = function* (open) {
      return (yield* countRight(parameters, test, count, state.valid_lens, open)) / test.length;
    };
    const own = found.get(key) ?? { right: yield* rate(gates), worth: {} };
    found.set(key, own);
    repaint();
    const some = [...gates.keys()].map((head) => [head]);
    for (const heads of [...some, ...pairs.map(({ own }) => own)]) {
      if (heads.some((head) => gates[head]) && own.worth[heads] === undefined) {
        own.worth[heads] = own.right - (yield* rate(gates.map((gate, head) => heads.includes(head) ? 0 : gate)));
      }
    }
    own.isDone = true;
    repaint();
  }

  /** What a head attends to, by its mean weights on the four neighbours, and whether it is one alone. */
  function jobOf({ data: weights }, hasWords) {
    const means = SHIFTS.map((shift) =>
      times(RING, (i) => weights[i * RING + (i - shift + RING) % RING] / RING).reduce((a, b) => a + b)
    );
    const most = Math.max(...means),
      named = SHIFTS.flatMap((_, i) => means[i] >= Math.max(LEAST_JOB, most / 2) ? [i] : []);
    const isOne = named.length === 1 && most >= .5;
    return {
      words: isOne && hasWords
        ? names[named[0]]
        : named.length === SHIFTS.length
        ? tr("all four")
        : named.map((i) => SIGNS_OF[i]).join(" ") || tr("spread"),
      only: isOne ? named[0] : null,
      isFar: means[0] + means[1] < means[2] + means[3],
    };
  }

  /** Heads as they are drawn: short chords above long ones, unless heads are too many to be told by it. */
  const farFirst = (jobs) => [...jobs.keys()].sort((a, b) => jobs[b].isFar - jobs[a].isFar);
  const areShared = (jobs) => SHIFTS.every((_, i) => jobs.filter(({ only }) => only === i).length === 1 && !jobs[4]);

  function paint() {
    arrange();
    if (!isOpen) return paintOpening();
    const own = state.num_heads, run = runOf(own), kept = run?.[shownAt[own]], isSplit = state.split_into;
    const count = isSplit || own, valid = state.valid_lens, { off } = state;
    haltAll(own);
    const busy = own in stops;
    if (strands.length !== count) rebuild(count);
    const parameters = parametersAt(own, kept), row = rowNow();
    const gates = times(count, (head) => off.includes(head) ? 0 : 1);
    const made = forward(parameters, row, count, valid, gates), weights = made.weights[0], answers = answersOf(made);
    const isPlain = !off.length && valid === RING && !isSplit,
      key = [own, kept ? `${kept.step}/${runs[own].seed ??= seed}` : "", count, valid, off].join();
    if (kept && isPlain && !found.has(key)) found.set(key, { right: kept.accuracy, worth: {} });
    const known = found.get(key);
    if (judged !== key + busy && !(known?.isDone)) {
      stopJudging();
      judged = key + busy;
      if (!busy || !known) stopJudging = inSlices(judge(key, parameters, count, gates), known ? 60 : 0);
    }
    set(share, { "aria-busy": busy || !known?.isDone ? true : null });

    const focus = pointer.pointed?.query ?? state.query, lit = pointer.pointed?.heads;
    strands.forEach(({ all, own, mini, lines }, head) => {
      show(all, weights[head], lines, (query) => gates[head] && query !== focus);
      show(own, weights[head], lines, (query) => gates[head] && query === focus);
      show(mini, weights[head], CHORDS);
      const dim = lit !== undefined && !lit.includes(head);
      for (const group of [all, own]) group.classList.toggle("dim", dim);
    });
    // Of a letter's chords few heads' largest weight is told, of many their heads.
    marks.forEach((mark, key) => {
      const shares = strands.map((_, head) => gates[head] * rowOf(weights[head], focus)[key]),
        most = Math.max(...shares);
      const numbers = shares.flatMap((weight, head) => weight < NAMED_CHORD ? [] : head).join(" ");
      set(mark, { text: count > MANY_HEADS ? numbers : most < LEAST_JOB ? "" : short(most) });
    });
    tokens.forEach((token, i) => {
      const letter = state.letters[i], label = tr("{letter}, position {i}", { letter, i });
      set(token, { text: letter, "aria-pressed": i === state.query, "aria-label": label });
      token.classList.toggle("pointed", i === focus);
      token.classList.toggle("masked", i >= valid);
    });
    fill(answers, row);
    set(rim, { "stroke-dasharray": `${valid} ${RING}` });
    const [x, y] = placeOf(valid - .5, RIM);
    set(knob, { "--x": x / CENTRE / 2, "--y": y / CENTRE / 2 });
    set(knob, { "aria-valuenow": valid, "aria-valuetext": `${valid} / ${RING}` });
    set(length, { text: tr("valid keys: {valid}", { valid }) });
    set(colour, { text: isByNeighbour(count) ? tr("colour: neighbour") : tr("colour: head") });

    const jobs = weights.map((one) => jobOf(one, count <= MANY_HEADS));
    const order = count > MANY_HEADS ? [...strands.keys()] : farFirst(jobs);
    if (above !== order.join()) {
      above = order.join();
      chords.append(...order.map((head) => strands[head].all));
      near.append(...order.map((head) => strands[head].own));
    }
    const lostOf = (some) => {
      const lost = known?.worth[some];
      if (isOff(some) || lost === undefined || busy) return isOff(some) ? tr("off") : "…";
      const points = inPercent(Math.abs(lost));
      return (points === "0" ? "" : lost > 0 ? "−" : "+") + points;
    };
    cards.forEach(({ job }, head) => set(job, { text: jobs[head].words }));
    for (const { own, name, job, worth, node } of [...cards, ...pairs]) {
      set(worth, { text: lostOf(own) });
      const told = { head: own[0], heads: own.join(tr(", ")), lost: worth.textContent, job: name ?? job.textContent };
      const label = name
        ? tr("heads {heads}: {job}. Change in accuracy without them, in points: {lost}", told)
        : tr("head {head}: {job}. Change in accuracy without it, in points: {lost}", told);
      set(node, { "aria-checked": !isOff(own), "aria-label": label });
    }
    bars.forEach(({ count: heads, words, least, most, kept, node }) => {
      const here = runOf(heads)?.at(-1).accuracy, bar = percentOf(here ?? kept);
      const told = { heads: manyHeads(heads), share: bar, least: percentOf(least), most: percentOf(most) };
      set(words, { text: bar });
      set(node, { "--own": here ?? kept, "aria-pressed": heads === own });
      set(node, { "aria-label": tr("{heads}: {share}, five seeds {least} to {most}", told) });
      node.classList.toggle("here", here !== undefined);
    });
    for (const [heads, line] of Object.entries(lines)) {
      const pointAt = ({ step, accuracy }) => `${(100 * step / STEPS).toFixed(1)},${(37 - 34 * accuracy).toFixed(1)}`;
      const d = runOf(heads) ? `M${runOf(heads).map(pointAt).join("L")}` : "";
      set(line, { d, class: Number(heads) === own ? "curve-of gated" : "curve-of" });
    }
    // Curves that end alike share one name, and the others' stand clear of each other.
    const ended = Object.groupBy(counts.filter(runOf), (heads) => Math.round(8 * runOf(heads).at(-1).accuracy));
    let free = 0;
    curveNames.replaceChildren(
      ...Object.entries(ended).map(([at, heads]) => {
        const height = Math.max(at / 8, free);
        free = height + CLEAR;
        return element("b", { "--at": height }, manyHeads(heads[1] ? heads.join(tr(", ")) : heads[0]));
      }),
    );
    set(marker, { d: kept ? `M${100 * kept.step / STEPS},0V40` : "" });
    set(scrubber, { "aria-valuenow": kept?.step ?? STEPS, "aria-disabled": !run || busy });
    set(go, { text: busy ? `❚❚ ${tr("stop")}` : `▶ ${tr("train here")}` });
    set(when, { text: trainedWhere(kept?.step) });

    if (known) tell({ own, count, isSplit, busy, off, valid, right: known.right, jobs, step: kept?.step });
    const predicted = ORDER_OF_DOTS.map((message) =>
      [answers[focus * SHIFTS.length + message], dueAt(row, focus, message)].map((letter) => LETTERS_OF_RING[letter])
    );
    say(note || (busy && isSliced ? slow : read(focus, predicted)));
  }

  /** What the letter at `focus` predicts, in pairs: its answer, and what is due. */
  function read(focus, predicted) {
    const told = predicted.map(([answer, due]) =>
      answer === due ? answer : tr("{answer} (not {due})", { answer, due })
    );
    return tr("From {query}, two before to two after: {answers}.", {
      query: letterAt(focus),
      answers: told.join(tr(", ")),
    });
  }

  function tell({ own, count, isSplit, busy, off, valid, right, jobs, step }) {
    const told = { heads: manyHeads(count), trained: manyHeads(own), share: percentOf(right), size: size / count };
    Object.assign(told, { on: count - off.length, count, valid, keys: RING, step });
    const isShared = areShared(jobs);
    const isTwice = count === own && shares.length && shares.every(({ length }) => length === 2);
    const first = (...rows) => rows.find(([holds]) => holds)[1], isFew = count < SHIFTS.length;
    const claim = first(
      [isSplit && count !== own, parts("*{heads}* split from {trained}: all four right for *{share}*", told)],
      [off.length, parts("*{on} of {count} heads* on: all four right for *{share}*", told)],
      [valid < RING, parts("*{valid} of {keys} keys* valid: all four right for *{share}*", told)],
      [busy, parts("*{heads}* learning, step {step}: all four right for *{share}*", told)],
      [isShared, parts("*{heads}*, one per neighbour: all four right for *{share}*", told)],
      [isTwice, parts("*{heads}*, two per neighbour: all four right for *{share}*", told)],
      [isFew, parts("*{heads}* for four neighbours: all four right for *{share}*", told)],
      [true, parts("*{heads}* of {size} features: all four right for *{share}*", told)],
    );
    const why = first(
      [count === 1, onAverage],
      [isShared, oneEach],
      [isTwice, tr("Two heads attend to each of them.")],
      [isFew, tr("{count} heads give {count} averages of them.", told)],
      [count === own && told.size === NARROW, tr("Narrow heads need more than {steps} steps.", { steps: STEPS })],
      [true, ""],
    );
    set(share, { text: percentOf(right) });
    set(fourRight, { text: tr("of {letters} test letters have all four right", { letters: test.length }) });
    head(claim, why);
  }
  const task = (why) => tr("Each letter must predict its four neighbours. {why}", { why }).trim();
  function head(claim, why) {
    const text = [...claim, why].join("*");
    if (text === last) return;
    last = text;
    headline(...claim, element("small", {}, task(why)));
  }

  // the opening: one head and four, side by side, learn once they are in sight
  const sides = OPENING.map((count) => {
    const strandsOf = (levels, ...look) =>
      times(count, (head) => strand(levels, { "--own": `var(--ring-${head})` }, ...look));
    const all = strandsOf(MOST_LEVELS, 6, .3, .95),
      own = strandsOf(4 * MOST_LEVELS, 11, 1, 1),
      { dots, fill } = dotsAround();
    const lines = all.map((_, head) => linesOf(head, count)), strands = drawn("g", { class: "rest" });
    const letters = times(RING, (i) => {
      const [x, y] = placeOf(i), seat = drawn("circle", { class: "seat", cx: x, cy: y, r: 15 });
      return drawn("g", pointing({ query: i }), seat, drawn("text", { class: "mark", x, y }));
    });
    const drawing = drawn("svg", { viewBox: "26 26 348 348", "aria-hidden": true });
    drawing.append(strands, ...own, ...dots, ...letters);
    const share = element("b"), fourRight = element("small", {}, tr("all four right"));
    const middle = element("p", { class: "ring-middle" }, share, fourRight);
    const why = element("small"), name = element("p", {}, element("b", {}, manyHeads(count)), why);
    const node = element("div", { class: "ring-side" }, element("div", {}, drawing, middle), name);
    const paint = (row, focus) => {
      const kept = runOf(count)?.at(-1),
        made = forward(parametersAt(count, kept), row, count),
        [weights] = made.weights;
      const right = kept?.accuracy ?? ranges[counts.indexOf(count)][2], jobs = weights.map((own) => jobOf(own));
      const colourOf = (key) => {
        const head = focus === null ? -1 : weights.findIndex((own) => rowOf(own, focus)[key] > .5);
        return head < 0 ? "" : `var(--ring-${head})`;
      };
      all.forEach((group, head) => show(group, weights[head], lines[head]));
      own.forEach((group, head) => show(group, weights[head], lines[head], (query) => query === focus));
      strands.append(...farFirst(jobs).map((head) => all[head]));
      fill(answersOf(made), row, focus, colourOf);
      letters.forEach((letter, i) => {
        set(letter, { "--own": colourOf(i), ".met": colourOf(i), ".pointed": i === focus });
        set(letter.lastChild, { text: state.letters[i] });
      });
      set(share, { text: percentOf(right), "aria-busy": stops[count] ? true : null });
      set(why, { text: count === 1 ? onAverage : areShared(jobs) ? oneEach : "" });
      set(node, { ".fails": right < .5, ".lit": focus !== null });
      return { right, step: kept?.step };
    };
    return { node, paint };
  });
  const onStart = element("small"),
    open = button(tr("Try it yourself"), () => {
      choose({ explore: true });
      arrange();
      bars[counts.indexOf(state.num_heads)].node.focus({ preventScroll: true });
    }, { "aria-expanded": false });
  const opening = element("div", { class: "ring-opening" }, ...sides.map(({ node }) => node));
  opening.append(element("p", {}, open, onStart));
  const total = Object.values(parametersOf[state.num_heads]).reduce((sum, { data }) => sum + data.length, 0);
  const alike = tr("Both models have {count} parameters.", { count: total.toLocaleString(data.lang ?? "en") });
  const key = tr("Line: attention weight. Colour: head. Dots: neighbours −2, −1, +1, +2, filled if right.");
  const learning = (told) => parts("*{heads}* learning, step {step}: all four right for *{share}*", told);
  const won = (told) => parts("One head fails, *{count} succeed*: all four right for *{share}*", told);
  function paintOpening() {
    const row = rowNow(), isLearning = Boolean(runOf(OPENING[1])) && OPENING.some((heads) => stops[heads]);
    isWhole ||= isLearning;
    if (isWhole && !isLearning) wait ||= setTimeout(() => (isWhole = false, repaint()), WHOLE);
    const focus = pointer.pointed?.query ?? (isWhole ? null : state.query);
    const [, { right, step }] = sides.map((side) => side.paint(row, focus));
    const told = { count: OPENING[1], heads: manyHeads(OPENING[1]), share: percentOf(right), step };
    head(isLearning ? learning(told) : won(told), alike);
    set(onStart, { text: trainedWhere(step) });
    say(isLearning && isSliced ? slow : key);
  }

  const hint = isOwn
    ? tr("Switch off a head and watch the others' numbers. A neighbour's name switches off all its heads.")
    : tr("Click a number or a head, drag the blue edge, or type a letter from a to j.");
  const stage = element("div", { class: "ring-stage" }, ring, right), body = element("div");
  /** Show the opening, or what it opens, and keep the room of what it may say. */
  function arrange() {
    if (isOpen === state.explore) return;
    [isOpen, last] = [state.explore, ""];
    body.replaceChildren(...isOpen ? [stage, below] : [opening]);
    const told = { count: OPENING[1], heads: manyHeads(OPENING[1]), share: percentOf(.999), step: STEPS };
    const claims = [learning(told), won(told)].map((own) => own.join(""));
    const most = longest([read(RING - 1, SHIFTS.map(() => ["a", "b"]))]);
    const [large, small, words] = isOpen ? [58, 90, most] : [longest(claims), 0, 0];
    headline("n".repeat(large), element("small", {}, "n".repeat(small)));
    headline("");
    say("n".repeat(words));
  }
  const inSight = new IntersectionObserver(([{ isIntersecting }]) => {
    if (!isIntersecting) return;
    inSight.disconnect();
    if (!state.explore) OPENING.forEach(begin);
  }, { threshold: .4 });
  if (!state.explore && !isStill) inSight.observe(frame);
  const end = () => (haltAll(), stopJudging(), inSight.disconnect(), clearTimeout(wait));
  return { nodes: [body], paint, hint: state.explore ? hint : "", end };
});
