// The next word of a real language model, and a switch for each of its heads: does the word hold without them?

import { button, element, number, picture, roomy, roving, set, times } from "./elements.js";
import { scale } from "./heat_map.js";
import { isSame, percent, quoted, seen, TEN, textsOf } from "./next_words.js";
import { asker, ownText } from "./own_text.js";
import { firstLargest } from "./told.js";

const DEAREST = 3; // nats where the grey of the switches ends
const HELPS = 0.1; // nats from which a cut that makes the word likelier is marked
const SURE = 0.3; // of a word that is less likely than this, many cuts make another
const UNKNOWN = "This page knows each head cut alone, all sets of the heads with a letter, and the draws. " +
  "In JupyterLab, where SmolLM2 is installed, every cut is computed.";

export default picture((shared) => {
  const { data, state, controls, pointer, choose, point, pointing, headline, say } = shared;
  const { layers, heads, groups, draws } = data, count = layers * heads;
  const texts = textsOf(data), kept = data.titles.map((_, i) => texts.all[i]);
  const bar = element("progress", { max: 1, "aria-label": "heads measured", hidden: true });
  const { canAsk, question, once } = asker(shared, texts.learn, (value) => set(bar, { value }));
  const placeOf = (head) => ({ layer: Math.floor(head / heads), head: head % heads });
  const nameOf = (head) => `layer ${placeOf(head).layer}, head ${placeOf(head).head}`;
  const roleOf = (head) => groups.find((group) => group.heads.includes(head))?.name;
  const letterOf = (role) => role.replace("the ", "")[0];
  const current = () => texts.get(state.text) ?? kept[state.example];

  // The text, and what comes next
  const write = (i) => ({ example: Number(i), text: "", query: kept[i].n - 1, cut: [] });
  const strip = controls({ example: { label: "text", options: data.titles, write } });
  const own = ownText(canAsk, "a text of your own", (text, tell) => {
    question({ text }, tell, () => choose({ text, query: texts.get(text).n - 1, cut: [] }));
  });
  const line = element("div", { class: "words", role: "group", "aria-label": "the text: choose the query" });
  const slot = element("span", { class: "slot" }), gaze = roomy("title");
  const [most] = kept.map(({ tokens }) => tokens.map(seen)).sort((a, b) => b.join().length - a.join().length);
  const room = [...most, "a word, not a word 50 %"].map((word) => element("span", {}, word)); // the longest text and slot
  const bars = times(TEN, () => {
    const [name, track, share] = ["name", "track-bar", "share"].map((part) => element("span", { class: part }));
    const [fill, ghost] = ["fill", "ghost"].map((part) => element("i", { class: part }));
    track.append(fill, ghost);
    return { node: element("div", { class: "next-bar" }, name, track, share), name, share, fill, ghost };
  });

  // A switch for each head
  const cells = times(count, (head) => {
    const isCut = () => state.cut.includes(head), others = () => state.cut.filter((other) => other !== head);
    const flip = () => choose({ cut: isCut() ? others() : [...state.cut, head], ...placeOf(head) });
    const onfocus = () => point({ head });
    return button("", flip, { class: "head-cell", role: "switch", onfocus, ...pointing({ head }) });
  });
  const axis = times(heads, String).join("\n"); // shown beside the first layer of a line
  const columns = times(layers, (layer) => {
    const name = element("span", { "aria-hidden": true }, layer), own = cells.slice(layer * heads, (layer + 1) * heads);
    return element("div", { class: "layer-column", "data-heads": axis }, name, ...own);
  });
  // Arrow keys move as one sees it: down a layer's heads, right to the next layer.
  roving(times(count, (i) => cells[(i % layers) * heads + Math.floor(i / layers)]), layers);
  const grid = element("div", { class: "head-grid", role: "group", "aria-label": "all heads" }, ...columns);
  grid.addEventListener("focusout", () => point(null));
  const sample = (kind, words, text = "") =>
    element("span", { class: "sample" }, element("i", { class: `key-cell ${kind}`, "--cost": 0 }, text), words);
  const ramp = element("span", { class: "sample" }, "0", element("i", { class: "cost-ramp" }));
  ramp.append(`${DEAREST} nats lost without it`);
  const axes = `${count} heads: columns are layers, rows are heads:`, samples = [ramp, sample("flips", "another word")];
  const legend = element("p", { class: "title legend" }, axes, ...samples, sample("", "likelier", "−"));

  // Groups of heads, and as many others
  /** Cut some heads, and show the one of them that attends least to the start. */
  function cutAll(cut) {
    const text = current(), query = text.n - 1, away = cut.map((head) => Math.max(...text.look(head, query).slice(1)));
    choose({ cut, query, ...(cut.length ? placeOf(cut[firstLargest(away, 2)]) : {}) });
  }
  const drawn = {}; // which of each kind of draw comes next
  const drawAnew = (where, cuts) => cutAll(cuts[drawn[where] = ((drawn[where] ?? -1) + 1) % cuts.length]);
  const five = groups[0].heads, both = Object.entries(draws), isDrawn = (cut) => (other) => isSame(cut, other);
  const chip = (content, act, isOn) => ({ node: button(content, act, { class: "chip" }), isOn });
  const chips = [chip("all heads on", () => cutAll([]), (cut) => !cut.length)];
  for (const { name, heads: own } of groups) {
    const letter = element("b", { "aria-hidden": true }, letterOf(name));
    const words = own.length > 1 ? `${name} (${own.length})` : name;
    chips.push(chip([letter, words], () => cutAll(own), (cut) => isSame(cut, own)));
  }
  for (const [where, cuts] of both) {
    chips.push(chip(`5 others, ${where} ⟳`, () => drawAnew(where, cuts), (cut) => cuts.some(isDrawn(cut))));
  }
  const group = { class: "tools", role: "group", "aria-label": "cut a group" };
  const tools = element("div", group, ...chips.map(({ node }) => node));

  // What Python is asked
  const each = button("what does each head cost alone?", () => {
    set(bar, { hidden: null, value: 0 });
    question({ text: current().text, each: true }, () => set(bar, { hidden: true }));
  });
  /** Ask once for what is to be shown and not known: a text, or a cut; beside a group, all draws. */
  function askFor(text, cut) {
    const what = state.text && !texts.get(state.text) ? { text: state.text } : { text: text.text, cuts: [cut] };
    const draws = both.flatMap(([, cuts]) => cuts), isOfGroup = isSame(cut, five) || draws.some(isDrawn(cut));
    once(what, isOfGroup ? { ...what, cuts: [cut, ...draws] } : what);
  }

  let shown = null, words = [];
  function rebuild(text) {
    shown = text;
    words = text.tokens.map((token, i) => {
      const kind = { class: i ? "word" : "word special", ...pointing({ key: i }) };
      return button(i ? seen(token) : "start", () => choose({ query: i }), kind);
    });
    line.replaceChildren(...words, slot);
    roving(words, words.length, (query) => choose({ query }));
  }

  function paintText(text, head) {
    const query = Math.min(state.query, text.n - 1), weights = text.look(head, query), role = roleOf(head);
    words.forEach((word, i) => {
      const title = `weight ${number(weights[i])}`;
      set(word, { "--w": weights[i].toFixed(3), "aria-pressed": i === query, title, ".later": i > query });
    });
    const key = pointer.pointed?.key ?? firstLargest(weights, 2);
    const [who, whom] = [query, key].map((i) => i ? quoted(text.tokens[i]) : "the start");
    const rests = key === 0 && weights[0] > 0.5 ? " It rests there; that does not make it idle." : "";
    const of = nameOf(head) + (role ? ` (${role})` : "");
    gaze.show(`${of}: ${who} attends to ${whom}, ${number(weights[key])}.${rests}`);
  }

  function paintNext(text, found, cut) {
    const target = text.words[0], top = found?.first, wrong = found?.changes ? "wrong" : "";
    const old = wrong ? [element("s", {}, seen(target))] : [];
    const [word, sure] = found ? [seen(top), percent(found.firstNats)] : ["?", ""];
    set(slot, { class: `slot ${wrong}` }).replaceChildren(element("b", {}, word), ...old, element("small", {}, sure));
    headline(...claim(text, found, cut));
    // The ten words of the whole model stand still, so that each bar can be compared with itself; a newcomer is last.
    const isNew = wrong && !text.words.slice(0, TEN).includes(top);
    bars.forEach(({ node, name, share, fill, ghost }, i) => {
      const isLast = isNew && i === TEN - 1, word = isLast ? top : text.words[i];
      const nats = isLast ? found.firstNats : found?.nats[i], before = isLast ? 0 : Math.exp(-text.whole.nats[i]);
      set(name, { text: seen(word) });
      set(share, { text: found ? percent(nats) : "" });
      set(fill, { "--p": found ? Math.exp(-nats).toFixed(4) : 0 });
      set(ghost, { "--p": before.toFixed(4), hidden: cut.length && before ? null : true });
      set(node, { class: `next-bar ${word === top ? `most ${wrong}` : ""}` });
    });
  }

  /** How many heads change the word, each cut alone. */
  const numChanging = (text) => text.each().filter(({ changes }) => changes).length;
  /** How many heads the word hangs on, or what comes without those that are cut: parts of the headline. */
  function claim(text, found, cut) {
    const target = text.words[0];
    if (!cut.length) {
      const changing = numChanging(text);
      if (!text.each().length) return [`With all ${count} heads: `, quoted(target)];
      if (!changing) return [`${quoted(target)} stays, `, `whichever of ${count} heads`, " is cut alone"];
      const change = changing === 1 ? "changes" : "change";
      return ["", `${changing} of ${count} heads`, `, each cut alone, ${change} ${quoted(target)}`];
    }
    const named = cut.length > 1 && groups.find(({ heads: own }) => isSame(cut, own));
    const some = named ? `the ${cut.length} ${named.name} heads` : `${cut.length} of ${count} heads`;
    const wrong = found?.changes ? "wrong" : "", still = found && !wrong ? " still" : "";
    const bold = element("b", { class: wrong }, found ? quoted(found.first) : "…");
    return [`Without ${cut.length === 1 ? nameOf(cut[0]) : some}:${still} `, bold, wrong && `, not ${quoted(target)}`];
  }

  function paintHeads(text, cut, pointed) {
    const singles = text.each();
    cells.forEach((cell, i) => {
      const role = roleOf(i), { cost = 0, changes = false, nats } = singles[i] ?? {};
      const alone = nats ? `; without it ${quoted(text.words[0])} ${percent(nats[0])}` : "";
      const label = `${nameOf(i)}${role ? `, ${role}` : ""}${alone}`, full = Math.max(0, Math.min(cost / DEAREST, 1));
      set(cell, { "--cost": full.toFixed(3), "aria-checked": !cut.includes(i), "aria-label": label });
      const sign = role ? letterOf(role) : cost <= -HELPS ? "−" : "";
      set(cell, { text: sign, ".flips": changes, ".pointed": i === pointed });
    });
  }

  /** What a cut does to the word, in words. */
  function effect(text, cut) {
    const { cost, changes, first, nats } = text.after(cut);
    const helps = cost <= -HELPS ? ", likelier than with all heads" : "";
    const comes = changes ? `; ${quoted(first)} comes first` : "";
    return `${quoted(text.words[0])} ${percent(text.whole.nats[0])} → ${percent(nats[0])}${helps}${comes}.`;
  }

  /** What stands beside a cut: as many others, of the same layers and of all; and the same cut in other texts. */
  function beside(text, cut) {
    const hits = (cuts, of) => {
      const changed = text.changedBy(cuts);
      return changed === null ? [] : [`${changed} of ${cuts.length} ${of}`];
    };
    if (cut.length === 1) {
      const [head] = cut, { layer } = placeOf(head), others = times(count, (i) => [i]).filter(([i]) => i !== head);
      const near = others.filter(([i]) => placeOf(i).layer === layer);
      const told = [...hits(near, "other heads of its layer"), ...hits(others, "of all others")].join(", and ");
      const elsewhere = kept.filter((other) => other !== text && other.after(cut).changes).length;
      const breaks = layer < 2 && elsewhere > 2 ? ": it breaks much, which is no sign of a job" : "";
      const alone = told && ` Cut alone, ${told} change the word.`;
      return `${alone} In ${elsewhere} other texts this head does${breaks}.`;
    }
    const isFive = isSame(cut, five);
    const told = both.flatMap(([where, cuts]) => hits(cuts, `draws of 5 others (${where})`));
    if (!isFive && !both.some(([, cuts]) => cuts.some(isDrawn(cut)))) return "";
    const chance = told.length ? ` The word changes in ${told.join(" and in ")}.` : "", singles = text.each();
    if (!isFive || !singles.length) return chance;
    const sum = number(five.reduce((total, head) => total + singles[head].cost, 0));
    return `${chance} Cut one at a time, the five cost ${sum} nats in all; together ${number(text.after(cut).cost)}.`;
  }

  function paint() {
    const text = current(), { cut } = state, found = text.after(cut), pointed = pointer.pointed?.head;
    const head = pointed ?? state.layer * heads + state.head;
    if (text !== shown) rebuild(text);
    if (!found || state.text && state.text !== text.text) askFor(text, cut);
    paintText(text, head);
    paintNext(text, found, cut);
    paintHeads(text, cut, head);
    for (const { node, isOn } of chips) set(node, { "aria-pressed": isOn(cut) });
    set(each, { hidden: text.each().length || !canAsk ? true : null });
    const isUnsure = Math.exp(-text.whole.nats[0]) < SURE;
    const unsure = isUnsure ? " The model is unsure here, and many cuts change an unsure word." : "";
    const tried = !cut.length && pointed !== undefined && text.each().length ? [pointed] : cut;
    if (tried !== cut) say(`Without ${nameOf(pointed)} alone: ${effect(text, tried)}${beside(text, tried)}`);
    else if (!cut.length) {
      const alone = text.each().length ? `${numChanging(text)} of ${count} heads, each cut alone, change it.` : "";
      const likeliest = `${quoted(found.first)} is likeliest, ${percent(found.firstNats)}.`;
      say(`${likeliest}${unsure}`, alone);
    } else if (!found) say(canAsk ? "Python is asked; the first answer takes some seconds." : UNKNOWN);
    else {
      const what = cut.length === 1 ? nameOf(cut[0]) : `${cut.length} heads`;
      say(`${what} cut: ${effect(text, cut)}${beside(text, cut)}${unsure}`);
    }
  }

  const row = (name, ...parts) => element("div", { class: name }, ...parts);
  gaze.keep([128]);
  const sentence = row("sentence next-line roomy", line, row("words room", ...room));
  const chosen = element("details", { class: "chosen-texts" }, element("summary", {}, "how the texts were chosen"));
  chosen.append(element("p", {}, data.chosen));
  const likeliest = row("next-bars", ...bars.map(({ node }) => node)), heading = row("heading", gaze.node, scale());
  return {
    nodes: [row("texts", strip, own, chosen), sentence, heading, likeliest, tools, legend, grid, each, bar],
    paint,
    hint: "Click a head to cut it, or a group.",
    room: [60, 0, 300],
  };
});
