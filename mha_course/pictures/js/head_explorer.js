// The heads of a small model: look at each, switch it off, and see what becomes of the answers. All is computed here.

import { indexOfLargest, integers, rowOf, softmax, unpack } from "./attention.js";
import { digitStage } from "./digit_stage.js";
import { button, element, inSlices, number, picture, roomy, set, times, titled } from "./elements.js";
import { headCards } from "./head_cards.js";
import { scale } from "./heat_map.js";
import { firstLargest } from "./told.js";
import { transformer } from "./transformer.js";

const MOST_BROKEN = 3; // "break it" tries all sets of up to this many heads

export default picture((parts) => {
  const { data, state, controls, pointer, choose, point, pointing, repaint, headline, say } = parts, { blocks } = data;
  const computer = transformer(unpack(data), blocks), example = examplesOf(data);
  const numHeads = state.gates[0].length;
  const every = (gate) => blocks.map(() => Array(numHeads).fill(gate));
  const isWhole = (gates) => gates.flat().every((gate) => gate === 1);
  const stage = digitStage({ ...parts, example });
  let gated = null, whole = null, judged = null, weighed = {}, found = {};
  let [stopSearching, stopJudging, stopWeighing] = times(3, () => () => {});

  const show = (i) => (stage.leave(), { example: i, drawn: null });
  const words = (i) => stage.isOwn() ? "yours" : i;
  const browser = controls({ example: { max: example.count - 1, write: show, words } }, { class: "slider" });
  const step = (text, by, label) => button(text, () => choose(show(state.example + by)), { "aria-label": label });
  const earlier = step("‹", -1, "the example before"), later = step("›", 1, "the next example");
  const browse = element("div", { class: "browse" }, earlier, browser, later);

  const nameOf = ({ layer, head }) => `${blocks[layer]}, head ${head}`, shortName = ({ head }) => `head ${head}`;
  const isCut = ({ layer, head }) => !state.gates[layer][head];
  const flip = (place) => choose({ gates: changed(state.gates, [place], isCut(place) ? 1 : 0) });
  const switches = headCards({ isCut, flip }, blocks.length, numHeads, numHeads, shortName);
  const cards = switches.cards.map(({ place, toggle, top, node }) => {
    const shown = stage.card(place), focus = () => toggle.matches(":focus-visible") && (choose(place), point(place));
    set(toggle, { onblur: () => point(null), onfocus: focus, "aria-label": nameOf(place) });
    top.append(shown.corner);
    set(node, pointing(place)).append(shown.node);
    return { ...place, shown, node };
  });
  const rows = blocks.map((name, layer) => {
    const own = cards.filter((card) => card.layer === layer).map(({ node }) => node);
    return element("div", { class: "layer", role: "group", "aria-label": `heads of ${name}` }, titled(name), ...own);
  });
  /** The gates with some heads at another gate. */
  const changed = (gates, some, to) => {
    const isIn = (layer, head) => some.some((card) => card.layer === layer && card.head === head);
    return gates.map((row, layer) => row.map((gate, head) => isIn(layer, head) ? to : gate));
  };

  const presets = { "all on": every(1), "all off": every(0) };
  const presetButtons = Object.entries(presets).map(([name, gates]) => [gates, button(name, () => choose({ gates }))]);
  const meter = element("div", { class: "meter", role: "img" }, element("i"), element("i", { class: "before" }));
  const score = roomy("score");
  const breaker = button("break it", breakIt, { title: "switch off as few heads as change the answer" });
  const note = element("p", { class: "spoken", role: "status" });
  const tools = element("div", { class: "tools" }, ...presetButtons.map(([, node]) => node), breaker, note);

  /** What "break it" looks at, and what it says of that; a choice of anything else ends the search and the words. */
  const subjectOf = (gates) => JSON.stringify([state.example, state.drawn, gates]);
  const tell = (gates, words, isSearching = false) => {
    found = { subject: subjectOf(gates), words, isSearching };
    repaint();
  };
  function breakIt() {
    stopSearching();
    tell(state.gates, "searching …", true);
    stopSearching = inSlices(search(state.gates, stage.current()));
  }
  /** Switch off the fewest heads whose loss changes an answer. */
  function* search(gates, inputs) {
    const before = answerOf(inputs, gates), on = cards.filter(({ layer, head }) => gates[layer][head] > 0);
    if (stage.isEmpty()) return tell(gates, "Draw a digit first.");
    let sets = [[]];
    for (let size = 1; size <= Math.min(MOST_BROKEN, on.length); size++) {
      sets = sets.flatMap((gone) => on.slice(on.indexOf(gone.at(-1)) + 1).map((card) => [...gone, card]));
      for (const gone of sets) {
        yield;
        const fewer = changed(gates, gone, 0), after = answerOf(inputs, fewer);
        if (after === before) continue;
        tell(fewer, `Without ${gone.map(nameOf).join(" and ")}: read as ${after}, not ${before}.`);
        return choose({ gates: fewer });
      }
    }
    if (!on.length) return tell(gates, "All heads are off: nothing is left to break.");
    const tooMany = `It takes more than ${MOST_BROKEN} heads to change this answer. Try another example.`;
    tell(gates, on.length > MOST_BROKEN ? tooMany : "The heads that are on do not change this answer.");
  }
  function run(inputs, gates) {
    const { weights, logits } = computer(inputs, gates);
    return { weights, logits: rowOf(logits, 0) }; // the class token's
  }
  const answerOf = (inputs, gates) => indexOfLargest(run(inputs, gates).logits);

  function compute() {
    const inputs = stage.current(), { gates } = state, subject = subjectOf(gates);
    if (found.subject !== subject) {
      stopSearching();
      found = {};
    }
    gated = { ...run(inputs, gates), gates };
    whole = isWhole(gates) ? gated : run(inputs, every(1));
    if (weighed.subject !== subject) {
      stopWeighing();
      weighed = { subject };
      if (isWhole(gates)) stopWeighing = inSlices(weigh(inputs, indexOfLargest(whole.logits), weighed));
    }
    if (judged !== String(gates)) judge(gates);
  }
  /** Find the head without which the answer changes, of several the one without which it loses most nats. */
  function* weigh(inputs, own, found) {
    const without = [];
    for (const card of cards) {
      const { logits } = run(inputs, changed(every(1), [card], 0));
      const lost = -Math.log(Math.max(softmax(logits)[own], 1e-30));
      without.push({ card, logits, lost, changes: indexOfLargest(logits) !== own });
      yield;
    }
    const changing = without.filter(({ changes }) => changes), those = changing.length ? changing : without;
    found.dearest = those[firstLargest(those.map(({ lost }) => lost), 2)];
    repaint();
  }
  const wholeAnswers = [];
  const tellScore = (words) => (score.show(words), set(meter, { "aria-label": words }));
  function judge(gates) {
    stopJudging();
    judged = String(gates);
    tellScore("counting …"); // what is right among the first few would be a false figure
    meter.classList.add("counting");
    stopJudging = inSlices(count(gates), 40);
  }
  /** Accuracy, loss and changed answers on all held-out examples. */
  function* count(gates) {
    const total = example.count;
    let right = 0, wholeRight = 0, changed = 0, loss = 0;
    for (let i = 0; i < total; i++) {
      const target = example.target(i), { logits } = run(stage.inputs(i), gates), answer = indexOfLargest(logits);
      const before = wholeAnswers[i] ??= isWhole(gates) ? answer : answerOf(stage.inputs(i), every(1));
      right += answer === target;
      wholeRight += before === target;
      changed += answer !== before;
      loss -= Math.log(Math.max(softmax(logits)[target], 1e-30));
      yield;
    }
    const percent = (count) => `${(100 * count / total).toFixed(1)} %`;
    const words = [`${percent(right)} of ${total.toLocaleString("en")} held-out answers right`];
    if (!isWhole(gates)) words.push(`${percent(wholeRight)} with all heads`, `${changed} changed`);
    tellScore(`${words.join(", ")}; loss ${number(loss / total)} nats`);
    set(meter, { "--p": right / total, "--before": wholeRight / total, ".counting": false });
  }

  function paint() {
    const { gates } = gated, { pointed } = pointer, target = stage.isOwn() ? null : example.target(state.example);
    const { told, ...answer } = stage.paint({ gated, whole, target });
    const { dearest } = weighed, said = above(gates, answer);
    headline(...found.words ? [...said.slice(0, 3), element("small", {}, found.words)] : said);
    switches.paint();
    for (const { layer, head, shown, node } of cards) {
      shown.paint(gated.weights[layer][head], stage.shade);
      const isPointed = pointed?.layer === layer && pointed?.head === head;
      set(node, { ".named": dearest?.changes && dearest.card.node === node, ".pointed": isPointed });
      set(shown.node, { "aria-label": `${nameOf({ layer, head })}: ${strongest(layer, head, state.query)}` });
    }
    for (const [preset, node] of presetButtons) set(node, { "aria-pressed": String(preset) === String(gates) });
    earlier.disabled = state.example === 0;
    later.disabled = state.example === example.count - 1;
    set(note, { text: found.words ?? "" });
    set(breaker, { "aria-busy": found.isSearching ? true : null });
    set(meter, { "aria-busy": isWhole(gates) && !dearest ? true : null });
    say(`${pointed ? pointedAt(pointed) : allHeads(gates)} ${told}`);
  }
  /** Which head matters most, that none does, or what the model says without those that are off: parts of the headline. */
  function above(gates, { now, before, lost, fades, isWrong, instead = "" }) {
    if (instead) return ["", instead];
    if (isWhole(gates)) {
      if (!weighed.dearest) return ["With all heads: ", now];
      const { card, logits, changes } = weighed.dearest, name = nameOf(card);
      if (changes) return [`${name[0].toUpperCase()}${name.slice(1)} matters most: without it `, ...lost(logits)];
      const less = fades(logits) && `Without ${name}: ${fades(logits)}. `;
      const small = element("small", {}, `${less}“break it” looks for several heads that do.`);
      return ["", "No single head", " changes this answer", small];
    }
    const off = cards.filter(({ layer, head }) => !gates[layer][head]), changed = before !== now;
    const some = off.length < 3 ? off.map(nameOf).join(" and ") : `these ${off.length} heads`;
    const which = off.length ? `Without ${off.length === cards.length ? "any head" : some}` : "With these gates";
    const claim = changed ? `${now}, not ${before}` : `still ${now}`;
    return [`${which}: `, element("b", { class: changed || isWrong ? "wrong" : "" }, claim)];
  }
  function strongest(layer, head, query) {
    const row = rowOf(gated.weights[layer][head], query), key = firstLargest(row, 2);
    return `from ${stage.names[query]} most weight, ${number(row[key])}, on ${stage.names[key]}.`;
  }
  function pointedAt({ layer = state.layer, head = state.head, query = state.query, key }) {
    if (pointer.pointed.layer === undefined) return `Patch ${stage.names[key]}: ${stage.doesAClick()}.`;
    const name = `${nameOf({ layer, head })}${gated.gates[layer][head] ? "" : " (off)"}`;
    if (key === undefined) return `${name}: ${strongest(layer, head, query)}`;
    const weight = number(rowOf(gated.weights[layer][head], query)[key], 3);
    return `${name}: ${stage.names[query]} → ${stage.names[key]} weighs ${weight}.`;
  }
  function allHeads(gates) {
    const off = blocks.map((name, layer) => [name, gates[layer].flatMap((gate, head) => gate ? [] : [head])]);
    const gone = off.filter(([, heads]) => heads.length).map(([name, heads]) => `${name}: ${heads.join(", ")}`);
    return `From ${stage.names[state.query]}. ${gone.length ? `Heads off: ${gone.join("; ")}.` : "All heads are on."}`;
  }

  const pens = element("div", { class: "tools" }, ...stage.tools);
  const test = element("div", { class: "test" }, meter, score.node);
  const left = element("div", { class: "left" }, ...stage.left, pens, browse, scale(stage.marks, stage.shade), test);
  const right = element("div", { class: "right" }, ...rows, stage.answer);
  const heads = { "--heads": numHeads, "--narrow": numHeads > 6 ? 3 : numHeads };
  score.keep([87]);
  return {
    nodes: [tools, element("div", { class: "stage digits", ...heads }, left, right)],
    compute,
    paint,
    hint: "Switch a head off, or choose a cell.",
    room: [56, 92, 125],
    end: () => (stopSearching(), stopJudging(), stopWeighing()),
  };
});

/** The held-out examples: whole numbers that Python packed, cut into one piece for each example. */
function examplesOf({ count, ...data }) {
  const [targets, inputs] = ["targets", "inputs"].map((name) => integers(data[name]));
  const inputsOf = (i) => Array.from(inputs.subarray(i * inputs.length / count, (i + 1) * inputs.length / count));
  return { count, inputs: inputsOf, target: (i) => targets[i] };
}
