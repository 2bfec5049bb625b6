// How many heads does it take? Bars for the models with 1 to 12 heads; of the chosen one the maps and the answers for a row.

import { indexOfLargest, matrix, rowOf, softmax, unpack } from "./attention.js";
import { button, drawn, element, number, parts, picture, roving, set, times, tr } from "./elements.js";
import { heatMap, scale } from "./heat_map.js";

const LETTERS = "abcdefghij";

/** A share as text, with a decimal near 0 and near 1. */
function percent(share) {
  const digits = (share > 0.0005 && share < 0.0095) || (share > 0.99 && share < 1) ? 1 : 0;
  return `${(100 * share).toFixed(digits)} %`;
}

export default picture(({ data, state, controls, pointer, choose, point, headline, say }) => {
  const { letters, truth, counts, features, names, order, jobs } = data, kept = unpack(data), size = letters.length;
  const keptOf = (heads, part) => kept[`${state.num_letters}.${heads}.${part}`];
  const rightOf = (heads) => {
    const { rows, data: shares } = keptOf(heads, "accuracy");
    const every = times(rows, (seed) => shares[seed * (size + 1) + state.valid_lens]);
    return { own: every[0], least: Math.min(...every), most: Math.max(...every) };
  };
  const manyHeads = (count) => count === 1 ? tr("1 head") : tr("{count} heads", { count });
  let weights = [], cards = [];

  const bars = counts.map((heads) => {
    const share = element("span"), fill = element("i", { class: "fill" }), range = element("i", { class: "range" });
    const ground = element("span", { class: "ground-of" }, fill, range), name = element("b", {}, String(heads));
    return {
      heads,
      share,
      node: button([share, ground, name], () => choose({ num_heads: heads }), { class: "heads-bar" }),
    };
  });
  roving(bars.map(({ node }) => node), counts.length, (i) => choose({ num_heads: counts[i] }));
  const barsTitle = element(
    "p",
    { class: "title" },
    tr("num_heads. Height: all letters right; line: five seeds"),
  );
  const chart = element("div", {}, barsTitle, element("div", { class: "heads-bars" }, ...bars.map(({ node }) => node)));

  const tokens = letters.map((letter, i) =>
    button(LETTERS[letter], () => choose({ query: i }), { class: "token", onpointerenter: () => point({ query: i }) })
  );
  roving(tokens, size, (i) => choose({ query: i }));
  const named = order.map((message) => {
    const cells = times(size, () => element("td"));
    return { message, cells, node: element("tr", {}, element("th", { scope: "row" }, names[message]), ...cells) };
  });
  const heading = element(
    "tr",
    {},
    element("th", { scope: "row" }, tr("letter")),
    ...tokens.map((one) => element("td", {}, one)),
  );
  const table = element("table", { class: "named-letters" }, heading, ...named.map(({ node }) => node));
  set(table, { "aria-label": tr("letters, and what the model names"), onpointerleave: () => point(null) });
  const lengths = controls({ valid_lens: { max: size } }, { class: "lengths-of" });
  const row = element(
    "div",
    { class: "row-of-letters" },
    lengths,
    table,
    element("i", { class: "end", "aria-hidden": "true" }),
  );
  const maps = element("div", { class: "head-maps" });

  const choices = [2, 4].map((count) => button(tr("{count} letters", { count }), () => choose({ num_letters: count })));
  const hint = element("p", { class: "title" }, tr("rows: queries, columns: keys; hatched: masked"));
  const tools = element("div", { class: "tools", role: "group", "aria-label": tr("letters to name") }, ...choices);

  function compute() {
    const { num_heads: count, valid_lens: valid } = state, scores = keptOf(count, "scores");
    weights = times(count, (head) => {
      const own = matrix(size, size);
      for (let query = 0; query < size; query++) {
        rowOf(own, query).set(softmax(rowOf(scores, head * size + query), valid));
      }
      return own;
    });
    if (cards.length !== count) rebuild(count);
  }

  /** New maps, when there are more heads or fewer. */
  function rebuild(count) {
    cards = times(count, (head) => {
      const onhover = (cell) =>
        point(cell === null ? null : { head, query: Math.floor(cell / size), key: cell % size });
      const onpick = (cell) => choose({ query: Math.floor(cell / size) });
      const map = heatMap(size, size, { gap: 0.08, "aria-hidden": true, onpick, onhover });
      const band = drawn("path", { class: "query" }), end = drawn("path", { class: "edge" }), job = element("span");
      map.over.append(end, band);
      const top = element("p", {}, element("b", {}, count > 6 ? String(head) : tr("head {head}", { head })), " ", job);
      return { map, band, end, job, node: element("div", { class: "head-map" }, top, map.node) };
    });
    set(maps, { "--columns": Math.max(count > 6 ? count / 2 : count, 3), "--few": count > 4 ? 3 : 2 });
    maps.classList.toggle("many", count > 4);
    set(maps, { "--across": count === 8 ? 4 / 6 : 1 });
    maps.replaceChildren(...cards.map(({ node }) => node));
  }

  function paint() {
    const { num_heads: count, num_letters: asked, valid_lens: valid } = state;
    const query = pointer.pointed?.query ?? state.query, right = rightOf(count);
    bars.forEach(({ heads, share, node }) => {
      const { own, least, most } = rightOf(heads);
      set(share, { text: percent(own) });
      set(node, { "aria-pressed": heads === count, "--own": own, "--least": least, "--most": most });
      set(node, {
        "aria-label": tr("{heads}: {share}, five seeds {least} to {most}", {
          heads: manyHeads(heads),
          share: percent(own),
          least: percent(least),
          most: percent(most),
        }),
      });
    });
    const answers = keptOf(count, "answers").data;
    named.forEach(({ message, cells, node }) => {
      set(node, { hidden: message < asked ? null : "" });
      if (message >= asked) return;
      cells.forEach((cell, i) => {
        const answer = answers[(valid * size + i) * asked + message];
        set(cell, { text: LETTERS[answer], class: answer === truth[i][message] ? "" : "wrong" });
      });
    });
    tokens.forEach((token, i) => {
      set(token, {
        "aria-pressed": i === state.query,
        "aria-label": tr("{letter}, position {i}", { letter: LETTERS[letters[i]], i }),
      });
      token.classList.toggle("pointed", i === query);
      token.classList.toggle("masked", i >= valid);
    });
    set(row, { "--at": valid / size });
    choices.forEach((one, i) => set(one, { "aria-pressed": asked === [2, 4][i] }));
    cards.forEach(({ map, band, end, job }, head) => {
      map.show(weights[head].data, (cell) => cell % size >= valid);
      set(band, { d: `M0,${query}H${size}V${query + 1}H0Z` });
      set(end, { d: valid < size ? `M${valid},0V${size}` : "" });
      set(job, { text: jobs[`${asked}.${count}`][head] });
    });
    const told = { heads: manyHeads(count), share: percent(right.own), letters: asked, size: features / count };
    const seen = count === asked
      ? parts("*{heads}*, one for each letter: *{share} right*", told)
      : count < asked
      ? parts("*{heads}* for {letters} letters: *{share} right*", told)
      : parts("*{heads}* of {size} features: *{share} right*", told);
    const [before, who, each, share, end] = seen;
    const masked = valid < size ? tr(", {valid} of {size} keys valid", { valid, size }) : "";
    headline(before, who, each, share, `${end}${masked}`, element("small", {}, task(asked)));
    say(read(query, right));
  }

  const task = (asked) =>
    asked === 2
      ? tr("Each token names the letter before it and the one after it, on a ring of {size}.", { size })
      : tr("Each token names the two letters before it and the two after it, on a ring of {size}.", { size });

  function read(query, { least, most }) {
    const { head, key } = pointer.pointed ?? {};
    const named = (i) => tr("{letter} (position {i})", { letter: LETTERS[letters[i]], i }), from = named(query);
    if (key !== undefined && head < weights.length) {
      const told = { head, query: from, key: named(key), weight: number(rowOf(weights[head], query)[key], 3) };
      return key >= state.valid_lens
        ? tr("Head {head}, query {query}, key {key}: masked.", told)
        : tr("Head {head}, query {query}, key {key}: weight {weight}.", told);
    }
    const [low, high] = [least, most].map(percent);
    const seeds = low === high
      ? tr("Five seeds: {low} each.", { low })
      : tr("Five seeds: {low} to {high}.", { low, high });
    if (!state.valid_lens) return `${seeds} ${tr("No key is valid, so every weight is 0.")}`;
    const best = weights.map((own) => indexOfLargest(rowOf(own, query)));
    const keys = times(size, (key) => key).filter((key) => best.includes(key));
    const reached = keys.map((key) => {
      const heads = best.flatMap((own, head) => own === key ? [head] : []);
      const told = { letter: LETTERS[letters[key]], key, heads: heads.join(", ") };
      return heads.length > 1
        ? tr("{letter} at {key} (heads {heads})", told)
        : tr("{letter} at {key} (head {heads})", told);
    });
    const valid = tr("{valid} of {size} keys valid.", { valid: state.valid_lens, size });
    const goes = tr("From {query} the most weight goes to {keys}.", { query: from, keys: reached.join(", ") });
    return `${seeds} ${valid} ${goes}`;
  }

  const below = element("div", { class: "below-maps" }, scale(), hint, tools);
  const nodes = [element("div", { class: "heads-top" }, chart, row), maps, below];
  return { nodes, compute, paint, hint: tr("Choose a bar, or move the edge of valid_lens.") };
});
