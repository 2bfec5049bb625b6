// Numbers on their way through transpose_qkv and back: each travels from its place in one step to that in the next.

import { button, checkbox, element, picture, set, slider, times } from "./elements.js";

const WIDTH = 42, LEAST = 27, HEIGHT = 28, GROUP = 10, TABLE = 30, TITLE = 24; // pixels

function build({ model, choose, say }) {
  const sizeNames = { batch_size: "batch", num_tokens: "tokens", num_heads: "heads", head_size: "features a head" };
  const limits = { batch_size: [1, 3], num_tokens: [1, 5], num_heads: [1, 4], head_size: [1, 4] };
  const sliders = Object.entries(sizeNames).map(([trait, name]) => {
    const [min, max] = limits[trait];
    return [trait, slider(name, { min, max, onmove: (size) => choose({ [trait]: size }) })];
  });
  const wrong = checkbox("the wrong reshape, without permute", (on) => choose({ wrong: on, step: 0 }));
  const back = button("← back", () => choose({ step: model.get("step") - 1 }));
  const forward = button("forward →", () => choose({ step: model.get("step") + 1 }));
  const path = element("div", { class: "path" });
  const stage = element("div", { class: "travel", role: "img", tabindex: 0 });
  const width = () => stage.clientWidth || 900;
  let shown = "", cells = [];

  /** Where the numbers stand after each move: [table][row][group] of tags; a tag is its own address. */
  function moves() {
    const [b, n, h, d] = Object.keys(sizeNames).map((name) => model.get(name));
    const tag = (example, token, head, feature) => ({ example, token, head, feature });
    const tokens = times(b, (e) => times(n, (t) => [times(h * d, (i) => tag(e, t, Math.floor(i / d), i % d))]));
    const split = tokens.map((rows) => rows.map(([row]) => times(h, (head) => row.slice(head * d, (head + 1) * d))));
    const byHead = split.flatMap((rows) => times(h, (head) => rows.map((groups) => [groups[head]])));
    const table = (i) => `example ${Math.floor(i / h)}, head ${i % h}`;
    const start = { shape: [b, n, h * d], name: "X", tables: tokens, title: (i) => `[${i}] example ${i}` };
    const folded = { shape: [b * h, n, d], title: (i) => `[${i}] ${table(i)}`, isFolded: true };
    if (model.get("wrong")) {
      const flat = tokens.flat(3);
      const tables = times(b * h, (i) => times(n, (t) => [flat.slice((i * n + t) * d, (i * n + t + 1) * d)]));
      return [start, { ...folded, name: "reshape", tables }, { ...start, name: "back: reshape" }];
    }
    const cut = { shape: [b, n, h, d], name: "reshape", tables: split, title: start.title };
    const turned = {
      shape: [b, h, n, d],
      name: "permute",
      tables: byHead,
      title: (i) => `[${Math.floor(i / h)}, ${i % h}] ${table(i)}`,
    };
    const end = { ...folded, name: "reshape", tables: byHead };
    const returning = [turned, cut, start].map((move, i) => ({
      ...move,
      name: `back: ${["reshape", "permute", "reshape"][i]}`,
    }));
    return [start, cut, turned, end, ...returning];
  }

  /** The left upper corner of every number, the titles, and the height of all, side by side as long as there is room. */
  function layout({ tables, title }) {
    const widest = Math.max(...tables.map(([row]) => row.flat().length)), gaps = (tables[0][0].length - 1) * GROUP;
    const w = Math.max(Math.min(WIDTH, (width() - gaps) / widest), LEAST), h = w < 36 ? 0.75 * HEIGHT : HEIGHT;
    const places = new Map(), titles = [];
    let x = 0, y = 0, tallest = 0;
    tables.forEach((rows, i) => {
      const groups = rows[0].length, tableWidth = rows[0].flat().length * w + (groups - 1) * GROUP;
      if (x > 0 && x + tableWidth > width()) [x, y, tallest] = [0, y + tallest + TABLE, 0];
      titles.push({ x, y, text: title(i) });
      rows.forEach((row, r) => {
        let left = x;
        row.forEach((group) => {
          for (const { example, token, head, feature } of group) {
            places.set(`${example}${token}${head}${feature}`, { x: left, y: y + TITLE + r * h, table: i });
            left += w;
          }
          left += GROUP;
        });
      });
      tallest = Math.max(tallest, TITLE + rows.length * h);
      x += Math.max(tableWidth, 7.2 * title(i).length) + TABLE;
    });
    return { places, titles, height: y + tallest, w, h };
  }

  function rebuild(tags) {
    shown = tags.join();
    cells = tags.map((tag) => [tag, element("span", { class: `tag head-${tag[2]}` }, tag)]);
    stage.replaceChildren(...cells.map(([, node]) => node));
  }

  function paint() {
    const all = moves(), step = Math.min(model.get("step"), all.length - 1), now = all[step];
    const { places, titles, height, w, h } = layout(now), numHeads = model.get("num_heads");
    const tags = [...places.keys()].sort();
    if (tags.join() !== shown) rebuild(tags);
    let strangers = 0;
    for (const [tag, node] of cells) {
      const { x, y, table } = places.get(tag);
      const isStranger = Boolean(now.isFolded) && Number(tag[2]) !== table % numHeads;
      strangers += isStranger;
      set(node, { "--x": `${x}px`, "--y": `${y}px`, "--cell": `${w - 2}px`, "--line": `${h - 2}px` });
      node.classList.toggle("stranger", isStranger);
    }
    stage.querySelectorAll(".title").forEach((node) => node.remove());
    stage.append(
      ...titles.map(({ x, y, text }) => element("p", { class: "title", "--x": `${x}px`, "--y": `${y}px` }, text)),
    );
    set(stage, { "--tall": `${height}px` });
    if (path.childElementCount !== all.length) {
      path.replaceChildren(...all.map((_, i) => button("", () => choose({ step: i }))));
    }
    all.forEach((move, i) => {
      path.children[i].replaceChildren(move.name, element("code", {}, `(${move.shape.join(", ")})`));
      set(path.children[i], { "aria-pressed": i === step });
    });
    for (const [trait, control] of sliders) control.show(model.get(trait));
    wrong.input.checked = model.get("wrong");
    back.disabled = step === 0;
    forward.disabled = step === all.length - 1;
    const words = read(now, step, all.length - 1, strangers, tags);
    set(stage, { "aria-label": words });
    say(words);
  }

  function read(now, step, last, strangers, tags) {
    const where = `Step ${step} of ${last}, ${now.name}: (${now.shape.join(", ")}).`;
    if (strangers) {
      return `${where} ${strangers} of ${tags.length} numbers, outlined, are in the table of another head.`;
    }
    if (now.isFolded) return `${where} Every table holds the numbers of one head of one example.`;
    if (step === last) {
      const also = model.get("wrong") ? " The wrong reshape comes back right, too: a round trip proves nothing." : "";
      return `${where} Every number is back where it was.${also}`;
    }
    if (now.name === "reshape") return `${where} Nothing has moved: every token's row is cut into its heads.`;
    if (step === 0) {
      const tag = tags[tags.length - 1], [e, t, h, f] = tag;
      return `${where} A row is a token; a colour is a head. ${tag} is example ${e}, token ${t}, head ${h}, feature ${f}.`;
    }
    return `${where} Every head has its own rows, one for each token.`;
  }

  const resized = new ResizeObserver(() => shown && paint());
  resized.observe(stage);
  const tools = element("div", { class: "tools" }, back, forward);
  return {
    nodes: [
      element("div", { class: "controls" }, ...sliders.map(([, { node }]) => node), wrong.node),
      path,
      stage,
      tools,
    ],
    paint,
    painted: [...Object.keys(sizeNames), "wrong", "step"],
    end: () => resized.disconnect(),
  };
}

export default { render: picture(build) };
