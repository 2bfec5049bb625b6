// The heads of a small model: look at each, switch it off, and see what becomes of the answers. All is computed here.

import { indexOfLargest, integers, rowOf, softmax, unpack } from "./attention.js";
import { digitStage } from "./digit_stage.js";
import { button, element, number, picture, roving, set, slider, times } from "./elements.js";
import { scale } from "./heat_map.js";
import { tokenStage } from "./token_stage.js";
import { transformer } from "./transformer.js";

function build({ model, choose, repaint, say }) {
  const blocks = model.get("blocks"), task = model.get("task");
  const computer = transformer(unpack(model.get("parameters"), model.get("shapes")), blocks);
  const example = examplesOf(model, task);
  const numHeads = model.get("gates")[0].length;
  const every = (gate) => blocks.map(() => Array(numHeads).fill(gate));
  const isWhole = (gates) => gates.flat().every((gate) => gate === 1);

  let pointed = null, now = null, whole = null, message = "", stopJudging = () => {};
  const point = (what) => {
    pointed = what;
    repaint();
  };
  const makeStage = task.kind === "digits" ? digitStage : tokenStage;
  const stage = makeStage({ model, choose, repaint, point, example, blocks });

  // ------------------------------------------------------------------------------------------------- which example
  const show = (i) => {
    stage.leave();
    choose({ example: Math.max(0, Math.min(example.count - 1, i)), drawn: null });
  };
  const browser = slider("example", { min: 0, max: example.count - 1, onmove: show });
  const earlier = button("‹", () => show(model.get("example") - 1), { "aria-label": "the example before" });
  const later = button("›", () => show(model.get("example") + 1), { "aria-label": "the next example" });
  const browse = element("div", { class: "browse" }, earlier, browser.node, later, ...(stage.tool ? [stage.tool] : []));

  // ------------------------------------------------------------------------------------------------- the heads
  const cards = blocks.flatMap((_, layer) => times(numHeads, (head) => makeCard(layer, head)));
  function makeCard(layer, head) {
    const shown = stage.card({ layer, head });
    const track = element("i", { class: "track" });
    const toggle = element("button", { type: "button", class: "switch", role: "switch" }, track, String(head));
    set(toggle, { onclick: () => flip(layer, head), onblur: () => point(null) });
    set(toggle, {
      onfocus: () => {
        if (!toggle.matches(":focus-visible")) return;
        choose({ layer, head });
        point({ layer, head });
      },
    });
    const top = element("div", { class: "card-top" }, toggle, ...(shown.corner ? [shown.corner] : []));
    const enter = () => point({ layer, head }), leave = () => point(null);
    const node = element("div", { class: "card", onpointerenter: enter, onpointerleave: leave }, top, shown.node);
    return { layer, head, shown, toggle, node };
  }
  const rows = blocks.map((name, layer) => {
    const own = cards.filter((card) => card.layer === layer).map(({ node }) => node);
    const title = element("p", { class: "title" }, name);
    return element("div", { class: "layer", role: "group", "aria-label": `heads of ${name}` }, title, ...own);
  });
  roving(cards.map(({ toggle }) => toggle), numHeads);
  function flip(layer, head) {
    const gates = model.get("gates").map((row) => [...row]);
    gates[layer][head] = gates[layer][head] ? 0 : 1;
    choose({ gates });
  }

  // ------------------------------------------------------------------------------------------------- many at once
  const presets = { "all on": every(1), "all off": every(0), ...model.get("presets") };
  const presetButtons = Object.entries(presets).map(([name, gates]) => [gates, button(name, () => choose({ gates }))]);
  const meter = element("div", { class: "meter", role: "img" }, element("i"), element("i", { class: "before" }));
  const score = element("span", { class: "score" });
  const breaker = button("break it", breakIt, { title: "switch off as few heads as change the answer" });
  const tools = element("div", { class: "tools" }, ...presetButtons.map(([, node]) => node), breaker);
  const test = element("div", { class: "test" }, meter, score);

  /** The fewest heads whose loss changes an answer: all sets of up to three, then always the one that is missed most. */
  function breakIt() {
    const gates = model.get("gates"), inputs = stage.current(), before = answersOf(inputs, gates);
    const on = cards.filter(({ layer, head }) => gates[layer][head] > 0);
    const without = (gone) => {
      const left = gates.map((row) => [...row]);
      for (const { layer, head } of gone) left[layer][head] = 0;
      return left;
    };
    const changes = (gone) => answersOf(inputs, without(gone)).some((answer, i) => answer !== before[i]);
    let sets = [[]];
    for (let size = 1; size <= Math.min(3, on.length); size++) {
      sets = sets.flatMap((gone) => on.slice(on.indexOf(gone.at(-1)) + 1).map((card) => [...gone, card]));
      const found = sets.find(changes);
      if (found) return choose({ gates: without(found) });
    }
    const surety = (gone) => {
      const { laid } = run(inputs, without(gone));
      return laid.reduce((sum, logits, i) => sum + softmax(logits)[before[i]], 0);
    };
    let gone = [];
    while (gone.length < on.length) {
      const next = on.filter((card) => !gone.includes(card)).map((card) => [...gone, card]);
      const left = next.map(surety);
      gone = next[left.indexOf(Math.min(...left))];
      if (changes(gone)) return choose({ gates: without(gone) });
    }
    message = "No set of heads changes this answer.";
    repaint();
  }

  // ------------------------------------------------------------------------------------------------- computing
  function run(inputs, gates) {
    const result = computer.run(inputs, gates);
    return { ...result, laid: stage.laid(result.logits) };
  }
  function answersOf(inputs, gates) {
    return run(inputs, gates).laid.map(indexOfLargest);
  }
  function compute() {
    const inputs = stage.current(), gates = model.get("gates");
    message = "";
    now = { ...run(inputs, gates), gates };
    whole = isWhole(gates) ? now : run(inputs, every(1));
    if (judged !== String(gates)) judge(gates);
  }
  /** Accuracy, loss and changed answers on all held-out examples, some at a time so that nothing waits for it. */
  let judged = null, wholeScore = null;
  const wholeAnswers = [];
  function judge(gates) {
    stopJudging();
    judged = String(gates);
    let i = 0, right = 0, changed = 0, total = 0, loss = 0, timer;
    const some = () => {
      for (const end = performance.now() + 8; i < example.count && performance.now() < end; i++) {
        const target = example.targets(i), { laid } = run(stage.inputs(i), gates);
        wholeAnswers[i] ??= isWhole(gates) ? laid.map(indexOfLargest) : answersOf(stage.inputs(i), every(1));
        laid.forEach((logits, place) => {
          const answer = indexOfLargest(logits);
          right += answer === target[place];
          changed += answer !== wholeAnswers[i][place];
          loss -= Math.log(Math.max(softmax(logits)[target[place]], 1e-30));
          total += 1;
        });
      }
      const wholeRight = wholeAnswers.slice(0, i).reduce((sum, found, n) => {
        const target = example.targets(n);
        return sum + found.filter((answer, place) => answer === target[place]).length;
      }, 0);
      wholeScore = wholeRight / total;
      set(meter, { "--p": right / total, "--before": wholeScore });
      const parts = [`${(100 * right / total).toFixed(1)} % of ${total.toLocaleString("en")} held-out answers right`];
      if (!isWhole(gates)) parts.push(`${(100 * wholeScore).toFixed(1)} % with all heads`, `${changed} changed`);
      score.textContent = `${parts.join(", ")}; loss ${number(loss / total)} nats`;
      set(meter, { "aria-label": score.textContent });
      if (i < example.count) timer = setTimeout(some);
    };
    timer = setTimeout(some, 40);
    stopJudging = () => clearTimeout(timer);
  }

  // ------------------------------------------------------------------------------------------------- showing
  function paint() {
    const root = stageNode.closest(".mha-live") ?? stageNode;
    const i = model.get("example"), gates = now.gates;
    const target = stage.isOwn() ? null : example.targets(i);
    const answer = stage.paint({ root, now, whole, pointed, target });
    for (const { layer, head, shown, toggle, node } of cards) {
      const weights = now.weights[layer][head], on = gates[layer][head] > 0;
      shown.paint(weights, now.valid[layer], stage.shade);
      node.classList.toggle("off", !on);
      node.classList.toggle("pointed", pointed?.layer === layer && pointed?.head === head);
      set(toggle, { "aria-checked": on, "aria-label": `${blocks[layer]}, head ${head}` });
      const query = Math.min(model.get("query"), weights.rows - 1);
      set(shown.node, { "aria-label": `${blocks[layer]}, head ${head}: ${strongest(layer, head, query)}` });
    }
    for (const [preset, node] of presetButtons) set(node, { "aria-pressed": String(preset) === String(gates) });
    earlier.disabled = i === 0;
    later.disabled = i === example.count - 1;
    browser.show(i, stage.isOwn() ? "yours" : String(i));
    say(
      message || `${pointed?.layer === undefined && pointed?.key === undefined ? heads(gates) : pointedAt()} ${answer}`,
    );
  }
  function strongest(layer, head, query) {
    const row = rowOf(now.weights[layer][head], query), key = indexOfLargest(row);
    return `from ${stage.queryNames(layer)[query]} most weight, ${number(row[key])}, on ${stage.keyNames(layer)[key]}.`;
  }
  function pointedAt() {
    const layer = pointed.layer ?? model.get("layer"), head = pointed.head ?? model.get("head");
    const weights = now.weights[layer][head], query = Math.min(pointed.query ?? model.get("query"), weights.rows - 1);
    const name = `${blocks[layer]}, head ${head}${now.gates[layer][head] ? "" : " (off)"}`;
    if (pointed.layer === undefined && task.kind === "digits") {
      return `Patch ${stage.keyNames(layer)[pointed.key]}: click it to look from there.`;
    }
    if (pointed.key === undefined) return `${name}: ${strongest(layer, head, query)}`;
    const weight = number(rowOf(weights, query)[pointed.key], 3);
    return `${name}: ${stage.queryNames(layer)[query]} → ${stage.keyNames(layer)[pointed.key]} weighs ${weight}.`;
  }
  function heads(gates) {
    const off = blocks.map((name, layer) => [name, gates[layer].flatMap((gate, head) => gate ? [] : [head])]);
    const named = off.filter(([, gone]) => gone.length).map(([name, gone]) => `${name}: ${gone.join(", ")}`);
    const query = model.get("query"), names = stage.queryNames(model.get("layer"));
    const from = `Looking from ${names[Math.min(query, names.length - 1)]}.`;
    return `${from} ${named.length ? `Heads off: ${named.join("; ")}.` : "All heads are on."}`;
  }

  const left = element("div", { class: "left" }, ...stage.left, browse, scale(stage.marks, stage.shade), tools, test);
  const right = element("div", { class: "right" }, ...rows, stage.answer);
  const stageNode = element("div", { class: `stage ${task.kind}`, "--heads": numHeads }, left, right);
  return {
    nodes: [stageNode],
    compute,
    paint,
    computed: ["example", "drawn", "gates"],
    painted: ["query", "layer", "head"],
    end: () => stopJudging(),
  };
}

/** The held-out examples: whole numbers that Python packed, cut into one piece for each example. */
function examplesOf(model, task) {
  const targets = integers(model.get("targets")), inputs = integers(model.get("inputs"));
  const lengths = integers(model.get("lengths")), labels = integers(model.get("labels"));
  const count = task.count;
  const piece = (numbers, i) => numbers.subarray(i * numbers.length / count, (i + 1) * numbers.length / count);
  return {
    count,
    inputs: (i) => Array.from(piece(inputs, i)),
    targets: (i) => piece(targets, i),
    length: (i) => lengths.length ? lengths[i] : undefined,
    labels: (i, start, size) => Array.from(piece(labels, i).subarray(start, start + size), (word) => task.words[word]),
  };
}

export default { render: picture(build) };
