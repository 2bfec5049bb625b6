// Numbers on their way through transpose_qkv and back: each travels from its place in one step to that in the next.

import { button, element, picture, set, times } from "./elements.js";

const WIDTH = 42, LEAST = 27, HEIGHT = 28, GROUP = 10, TABLE = 30, TITLE = 24, LETTER = 7.2; // pixels

export default picture(({ state, controls, choose, say }) => {
  const strip = controls({
    batch_size: { label: "batch", min: 1, max: 3 },
    num_tokens: { label: "tokens", min: 1, max: 5 },
    num_heads: { label: "heads", min: 1, max: 4 },
    head_size: { label: "features a head", min: 1, max: 4 },
    wrong: { label: "the wrong reshape, without permute", check: true, write: (on) => ({ wrong: on, step: 0 }) },
  });
  const path = element("div", { class: "tools path" }),
    stage = element("div", { class: "travel", role: "img", tabindex: 0 });
  const width = () => stage.clientWidth || 900;
  const names = element("div");
  let shown = "", cells = [];

  /** Where the numbers stand after each move: [table][row][group] of tags; a tag is its own address. */
  function moves() {
    const { batch_size: b, num_tokens: n, num_heads: h, head_size: d } = state;
    const tokens = times(b, (e) => times(n, (t) => [times(h * d, (i) => `${e}${t}${Math.floor(i / d)}${i % d}`)]));
    const split = tokens.map((rows) => rows.map(([row]) => times(h, (head) => row.slice(head * d, (head + 1) * d))));
    const byHead = split.flatMap((rows) => times(h, (head) => rows.map((groups) => [groups[head]])));
    const table = (i) => `example ${Math.floor(i / h)}, head ${i % h}`;
    const start = { shape: [b, n, h * d], name: "X", tables: tokens, title: (i) => `[${i}] example ${i}` };
    const folded = { shape: [b * h, n, d], name: "reshape", title: (i) => `[${i}] ${table(i)}`, isFolded: true };
    if (state.wrong) {
      const flat = tokens.flat(3);
      const tables = times(b * h, (i) => times(n, (t) => [flat.slice((i * n + t) * d, (i * n + t + 1) * d)]));
      return [start, { ...folded, tables }, { ...start, name: "back: reshape" }];
    }
    const cut = { ...start, shape: [b, n, h, d], name: "reshape", tables: split };
    const title = (i) => `[${Math.floor(i / h)}, ${i % h}] ${table(i)}`;
    const turned = { shape: [b, h, n, d], name: "permute", tables: byHead, title };
    const returning = { reshape: turned, permute: cut, "reshape ": start };
    const ways = Object.entries(returning).map(([name, move]) => ({ ...move, name: `back: ${name.trim()}` }));
    return [start, cut, turned, { ...folded, tables: byHead }, ...ways];
  }

  /** The left upper corner of every number, the titles, and the height of all, side by side as long as there is room. */
  function layout({ tables, title }) {
    const groups = tables[0][0].length, columns = tables[0][0].flat().length, gaps = (groups - 1) * GROUP;
    const w = Math.max(Math.min(WIDTH, (width() - gaps) / columns), LEAST), h = w < 36 ? 0.75 * HEIGHT : HEIGHT;
    const tableWidth = columns * w + gaps, tableHeight = TITLE + tables[0].length * h + TABLE;
    const pitch = Math.max(tableWidth, LETTER * title(0).length) + TABLE;
    const beside = Math.max(Math.floor((width() + TABLE) / pitch), 1);
    const places = new Map();
    const titles = tables.map((rows, i) => {
      const x = i % beside * pitch, y = Math.floor(i / beside) * tableHeight;
      rows.forEach((row, r) =>
        row.forEach((group, g) =>
          group.forEach((tag, f) => {
            const at = x + (g * group.length + f) * w + g * GROUP;
            places.set(tag, { x: at, y: y + TITLE + r * h, table: i });
          })
        )
      );
      return { x, y, text: title(i) };
    });
    return { places, titles, height: Math.ceil(tables.length / beside) * tableHeight - TABLE, w, h };
  }

  function paint() {
    const all = moves(), step = Math.min(state.step, all.length - 1), present = all[step];
    const { places, titles, height, w, h } = layout(present), tags = [...places.keys()].sort();
    const at = (x, y) => ({ "--x": `${x}px`, "--y": `${y}px` });
    if (tags.join() !== shown) {
      cells = tags.map((tag) => element("span", { class: "tag", "--head": `var(--head-${tag[2]})` }, tag));
    }
    shown = tags.join();
    if (cells[0].parentNode !== stage) stage.replaceChildren(names, ...cells); // else they stay, and so they travel
    names.replaceChildren(...titles.map(({ x, y, text }) => element("p", { class: "title", ...at(x, y) }, text)));
    let strangers = 0;
    for (const node of cells) {
      const { x, y, table } = places.get(node.textContent);
      const isStranger = Boolean(present.isFolded) && Number(node.textContent[2]) !== table % state.num_heads;
      strangers += isStranger;
      set(node, { ...at(x, y), "--cell": `${w - 2}px`, "--line": `${h - 2}px` });
      node.classList.toggle("stranger", isStranger);
    }
    set(stage, { "--tall": `${height}px` });
    if (path.childElementCount !== all.length) {
      path.replaceChildren(...all.map((_, i) => button("", () => choose({ step: i }))));
    }
    all.forEach((move, i) => {
      path.children[i].replaceChildren(move.name, element("code", {}, `(${move.shape.join(", ")})`));
      set(path.children[i], { "aria-pressed": i === step });
    });
    const where = `Step ${step} of ${all.length - 1}, ${present.name}: (${present.shape.join(", ")}).`;
    const words = `${where} ${read(present, step, all.length - 1, strangers, tags)}`;
    set(stage, { "aria-label": words });
    say(words);
  }

  function read(present, step, last, strangers, tags) {
    if (strangers) return `${strangers} of ${tags.length} numbers, outlined, are in the table of another head.`;
    if (present.isFolded) return "Every table holds the numbers of one head of one example.";
    if (step === last) {
      const also = state.wrong ? " The wrong reshape comes back right, too: a round trip proves nothing." : "";
      return `Every number is back where it was.${also}`;
    }
    if (present.name === "reshape") return "Nothing has moved: every token's row is cut into its heads.";
    if (step) return "Every head has its own rows, one for each token.";
    const tag = tags.at(-1), [e, t, h, f] = tag;
    return `A row is a token; a colour is a head. ${tag} is example ${e}, token ${t}, head ${h}, feature ${f}.`;
  }

  return { nodes: [strip, path, stage], paint };
});
