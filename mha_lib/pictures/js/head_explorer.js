// The heads of a small model: look at each, switch it off, and see what becomes of the answers. All is computed here.

import { indexOfLargest, integers, rowOf, softmax, unpack } from "./attention.js";
import { digitStage } from "./digit_stage.js";
import { button, element, number, picture, roving, set, times } from "./elements.js";
import { scale } from "./heat_map.js";
import { tokenStage } from "./token_stage.js";
import { transformer } from "./transformer.js";

const MOST_BROKEN = 3; // "break it" tries all sets of so many heads

export default picture((parts) => {
  const { data, state, controls, here, choose, point, repaint, say } = parts, { blocks, kind } = data;
  const computer = transformer(unpack(data), blocks), example = examplesOf(data);
  const numHeads = state.gates[0].length;
  const every = (gate) => blocks.map(() => Array(numHeads).fill(gate));
  const isWhole = (gates) => gates.flat().every((gate) => gate === 1);
  const stage = (kind === "digits" ? digitStage : tokenStage)({ ...parts, example });
  let now = null, whole = null, message = "", stopJudging = () => {};

  const show = (i) => (stage.leave?.(), { example: i, drawn: null });
  const words = (i) => stage.isOwn?.() ? "yours" : i;
  const browser = controls({ example: { max: example.count - 1, write: show, words } }, { class: "slider" });
  const step = (text, by, label) => button(text, () => choose(show(state.example + by)), { "aria-label": label });
  const earlier = step("‹", -1, "the example before"), later = step("›", 1, "the next example");
  const browse = element("div", { class: "browse" }, earlier, browser, later);

  const cards = blocks.flatMap((_, layer) => times(numHeads, (head) => makeCard({ layer, head })));
  function makeCard(one) {
    const { layer, head } = one, shown = stage.card(one), enter = () => point(one), leave = () => point(null);
    const flip = () => choose({ gates: changed(state.gates, [one], state.gates[layer][head] ? 0 : 1) });
    const toggle = button([element("i", { class: "track" }), head], flip, { class: "switch" });
    const focus = () => toggle.matches(":focus-visible") && (choose(one), point(one));
    set(toggle, { role: "switch", onblur: leave, onfocus: focus });
    const top = element("div", { class: "card-top" }, toggle, ...(shown.corner ? [shown.corner] : []));
    const node = element("div", { class: "card", onpointerenter: enter, onpointerleave: leave }, top, shown.node);
    return { layer, head, shown, toggle, node };
  }
  const rows = blocks.map((name, layer) => {
    const own = cards.filter((card) => card.layer === layer).map(({ node }) => node);
    const title = element("p", { class: "title" }, name);
    return element("div", { class: "layer", role: "group", "aria-label": `heads of ${name}` }, title, ...own);
  });
  roving(cards.map(({ toggle }) => toggle), numHeads);
  /** The gates with some heads at another gate. */
  const changed = (gates, some, to) => {
    const isIn = (layer, head) => some.some((card) => card.layer === layer && card.head === head);
    return gates.map((row, layer) => row.map((gate, head) => isIn(layer, head) ? to : gate));
  };

  const presets = { "all on": every(1), "all off": every(0), ...data.presets };
  const presetButtons = Object.entries(presets).map(([name, gates]) => [gates, button(name, () => choose({ gates }))]);
  const meter = element("div", { class: "meter", role: "img" }, element("i"), element("i", { class: "before" }));
  const score = element("span", { class: "score" });
  const breaker = button("break it", breakIt, { title: "switch off as few heads as change the answer" });
  const many = [...presetButtons.map(([, node]) => node), breaker, ...(stage.tools ?? [])];
  const tools = element("div", { class: "tools" }, ...many);

  /** Switch off the fewest heads whose loss changes an answer. */
  function breakIt() {
    const { gates } = state, inputs = stage.current(), before = answersOf(inputs, gates);
    const on = cards.filter(({ layer, head }) => gates[layer][head] > 0);
    let sets = [[]];
    for (let size = 1; size <= Math.min(MOST_BROKEN, on.length); size++) {
      sets = sets.flatMap((gone) => on.slice(on.indexOf(gone.at(-1)) + 1).map((card) => [...gone, card]));
      const changes = (gone) => answersOf(inputs, changed(gates, gone, 0)).some((answer, i) => answer !== before[i]);
      const found = sets.find(changes);
      if (found) return choose({ gates: changed(gates, found, 0) });
    }
    message = `No set of up to ${MOST_BROKEN} heads changes this answer.`;
    repaint();
  }

  function run(inputs, gates) {
    const result = computer.run(inputs, gates);
    return { ...result, laid: stage.laid(result.logits) };
  }
  const answersOf = (inputs, gates) => run(inputs, gates).laid.map(indexOfLargest);

  function compute() {
    const inputs = stage.current(), { gates } = state;
    message = "";
    now = { ...run(inputs, gates), gates };
    whole = isWhole(gates) ? now : run(inputs, every(1));
    if (judged !== String(gates)) judge(gates);
  }
  /** Accuracy, loss and changed answers on all held-out examples, some at a time so that nothing waits for it. */
  let judged = null;
  const wholeAnswers = [];
  function judge(gates) {
    stopJudging();
    judged = String(gates);
    let i = 0, right = 0, wholeRight = 0, changed = 0, total = 0, loss = 0, timer;
    const some = () => {
      for (const end = performance.now() + 8; i < example.count && performance.now() < end; i++) {
        const target = example.targets(i), { laid } = run(stage.inputs(i), gates);
        wholeAnswers[i] ??= isWhole(gates) ? laid.map(indexOfLargest) : answersOf(stage.inputs(i), every(1));
        laid.forEach((logits, place) => {
          const answer = indexOfLargest(logits), before = wholeAnswers[i][place];
          right += answer === target[place];
          wholeRight += before === target[place];
          changed += answer !== before;
          loss -= Math.log(Math.max(softmax(logits)[target[place]], 1e-30));
          total += 1;
        });
      }
      set(meter, { "--p": right / total, "--before": wholeRight / total });
      const percent = (count) => `${(100 * count / total).toFixed(1)} %`;
      const words = [`${percent(right)} of ${total.toLocaleString("en")} held-out answers right`];
      if (!isWhole(gates)) words.push(`${percent(wholeRight)} with all heads`, `${changed} changed`);
      score.textContent = `${words.join(", ")}; loss ${number(loss / total)} nats`;
      set(meter, { "aria-label": score.textContent });
      if (i < example.count) timer = setTimeout(some);
    };
    timer = setTimeout(some, 40);
    stopJudging = () => clearTimeout(timer);
  }

  function paint() {
    const { gates } = now, { pointed } = here, target = stage.isOwn?.() ? null : example.targets(state.example);
    const answer = stage.paint({ now, whole, target });
    for (const { layer, head, shown, toggle, node } of cards) {
      const weights = now.weights[layer][head], name = `${blocks[layer]}, head ${head}`;
      shown.paint(weights, now.valid[layer], stage.shade);
      node.classList.toggle("off", !gates[layer][head]);
      node.classList.toggle("pointed", pointed?.layer === layer && pointed?.head === head);
      set(toggle, { "aria-checked": gates[layer][head] > 0, "aria-label": name });
      set(shown.node, { "aria-label": `${name}: ${strongest(layer, head, state.query)}` });
    }
    for (const [preset, node] of presetButtons) set(node, { "aria-pressed": String(preset) === String(gates) });
    earlier.disabled = state.example === 0;
    later.disabled = state.example === example.count - 1;
    say(message || `${pointed ? pointedAt(pointed) : allHeads(gates)} ${answer}`);
  }
  function strongest(layer, head, query) {
    const weights = now.weights[layer][head], from = Math.min(query, weights.rows - 1);
    const row = rowOf(weights, from), key = indexOfLargest(row);
    return `from ${stage.namesOf(layer)[0][from]} most weight, ${number(row[key])}, on ${
      stage.namesOf(layer)[1][key]
    }.`;
  }
  function pointedAt({ layer = state.layer, head = state.head, query = state.query, key }) {
    if (kind === "digits" && here.pointed.layer === undefined) {
      return `Patch ${stage.namesOf()[1][key]}: click it to look from there.`;
    }
    const name = `${blocks[layer]}, head ${head}${now.gates[layer][head] ? "" : " (off)"}`;
    if (key === undefined) return `${name}: ${strongest(layer, head, query)}`;
    const weight = number(rowOf(now.weights[layer][head], query)[key], 3);
    return `${name}: ${stage.namesOf(layer)[0][query]} → ${stage.namesOf(layer)[1][key]} weighs ${weight}.`;
  }
  function allHeads(gates) {
    const off = blocks.map((name, layer) => [name, gates[layer].flatMap((gate, head) => gate ? [] : [head])]);
    const gone = off.filter(([, heads]) => heads.length).map(([name, heads]) => `${name}: ${heads.join(", ")}`);
    const names = stage.namesOf(state.layer)[0], from = names[Math.min(state.query, names.length - 1)];
    return `Looking from ${from}. ${gone.length ? `Heads off: ${gone.join("; ")}.` : "All heads are on."}`;
  }

  const under = [browse, scale(stage.marks, stage.shade), tools, element("div", { class: "test" }, meter, score)];
  const left = element("div", { class: "left" }, ...stage.left, ...under);
  const right = element("div", { class: "right" }, ...rows, stage.answer);
  const heads = { "--heads": numHeads, "--narrow": numHeads > 4 ? 3 : numHeads };
  const nodes = [element("div", { class: `stage ${kind}`, ...heads }, left, right)];
  return { nodes, compute, paint, end: () => stopJudging() };
});

/** The held-out examples: whole numbers that Python packed, cut into one piece for each example. */
function examplesOf({ count, words, ...data }) {
  const [targets, inputs, lengths, labels] = ["targets", "inputs", "lengths", "labels"].map((name) =>
    integers(data[name])
  );
  const piece = (numbers, i) => numbers.subarray(i * numbers.length / count, (i + 1) * numbers.length / count);
  return {
    count,
    inputs: (i) => Array.from(piece(inputs, i)),
    targets: (i) => piece(targets, i),
    length: (i) => lengths.length ? lengths[i] : undefined,
    labels: (i, start, size) => Array.from(piece(labels, i).subarray(start, start + size), (word) => words[word]),
  };
}
