// Numbers on their way through transpose_qkv and back: each travels from its place in one step to that in the next.

import { button, element, parts, picture, roving, set, times, tr } from "./elements.js";

const WIDTH = 42, LEAST = 27, HEIGHT = 28, GROUP = 10, TABLE = 30, TITLE = 24, LETTER = 7.2; // pixels

const axesInWords = () => [tr("batch"), tr("tokens"), tr("heads"), tr("features")];
const oneOf = () => [tr("example"), tr("token"), tr("head"), tr("feature")];
const RIGHT = "0, 2, 1, 3", UNMOVED = "0, 1, 2, 3";

/** The address of the i-th number of a tensor. */
const addressOf = (i, shape) =>
  shape.map((size, axis) => Math.floor(i / shape.slice(axis + 1).reduce((product, own) => product * own, 1)) % size);

/** Numbers in a row as [table][row][group], the last axes as rows and groups; the first ones count the tables. */
function tablesOf(tags, shape, inGroups) {
  const [rows, groups, size] = inGroups ? shape.slice(1) : [shape.at(-2), 1, shape.at(-1)], row = groups * size;
  const group = (from) => times(groups, (g) => tags.slice(from + g * size, from + (g + 1) * size));
  return times(tags.length / rows / row, (t) => times(rows, (r) => group((t * rows + r) * row)));
}

export default picture(({ data, state, controls, choose, headline, say }) => {
  const options = Object.fromEntries(data.orders.map((axes) => [axes, `permute(${axes})`]));
  const strip = controls({
    batch_size: { label: tr("batch"), min: 1, max: 3 },
    num_tokens: { label: tr("tokens"), min: 1, max: 5 },
    num_heads: { label: tr("heads"), min: 1, max: 4 },
    head_size: { label: tr("features a head"), min: 1, max: 4 },
    axes: { options },
  });
  const path = element("div", { class: "tools path" });
  const stage = element("div", { class: "travel", role: "group", "aria-label": tr("numbers: choose one to follow") });
  const width = () => stage.clientWidth || 900;
  const names = element("div");
  let shown = "", cells = [];

  /** What every move does, and where the numbers stand after it; a number is its own address. */
  function moves() {
    const { batch_size: b, num_tokens: n, num_heads: h, head_size: d } = state, sizes = [b, n, h, d];
    const axes = state.axes.split(", ").map(Number), turned = axes.map((axis) => sizes[axis]);
    const tags = times(b * n * h * d, (i) => addressOf(i, sizes).join(""));
    const moved = tags.map((_, i) => {
      const place = addressOf(i, turned);
      return times(4, (axis) => place[axes.indexOf(axis)]).join("");
    });
    const [exampleWord, , headWord] = oneOf(), example = (i) => `[${i}] ${exampleWord} ${i}`;
    const own = (i) => `[${i}] ${exampleWord} ${Math.floor(i / h)}, ${headWord} ${i % h}`;
    const pair = (i) => addressOf(i, turned.slice(0, 2)).map((at, k) => `${oneOf()[axes[k]]} ${at}`).join(", ");
    const start = { shape: [b, n, h * d], name: "X", tags, title: example };
    const cut = { shape: sizes, name: "reshape", tags, title: example, inGroups: true };
    const isUnmoved = state.axes === UNMOVED, by = { ...cut, inGroups: isUnmoved, shape: turned, tags: moved };
    const permuted = { ...by, name: "permute", title: isUnmoved ? example : pair };
    const folded = { shape: [b * h, n, d], name: "reshape", tags: moved, title: own, isFolded: true };
    const back = [permuted, cut, start].map((move, i) => ({ ...move, name: ["reshape", "permute", "reshape"][i] }));
    const backTo = (name) => tr("back: {name}", { name });
    const all = [start, cut, permuted, folded, ...back.map((move) => ({ ...move, name: backTo(move.name) }))];
    return all.map((move) => ({ ...move, tables: tablesOf(move.tags, move.shape, move.inGroups) }));
  }

  /** What the present step does: parts of the headline. */
  function seen(step, strangers, count) {
    const right = state.axes === RIGHT, order = state.axes.split(", ").map((axis) => axesInWords()[axis]).join(", ");
    if (step === 0) return parts("Start: *a row is a token*, its heads side by side");
    if (step === 1) return parts("reshape: *nothing moves*, each row is cut into heads");
    if (step === 2 && state.axes === UNMOVED) return parts("permute: *nothing moves*");
    if (step === 2) return right ? parts("permute: *heads come before tokens*") : ["permute: ", order];
    if (step === 3 && strangers) {
      const [start, numbers, end] = parts("reshape: *{strangers} of {count} numbers* stand in another’s place", {
        strangers,
        count,
      });
      return [start, element("b", { class: "wrong" }, numbers), end];
    }
    if (step === 3) return parts("reshape: *each table* is one head of one example");
    if (step === 4) return parts("back: *the batch is unfolded*");
    if (step === 5) return parts("back: *tokens come before heads* again");
    return right
      ? parts("back: *every number is where it was*")
      : parts("back: *every number is where it was*, though the tables were wrong");
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
            places.set(tag, { x: at, y: y + TITLE + r * h, table: i, row: r });
          })
        )
      );
      return { x, y, text: title(i) };
    });
    return { places, titles, height: Math.ceil(tables.length / beside) * tableHeight - TABLE, w, h };
  }

  function paint() {
    const all = moves(), { step } = state, present = all[step], follow = String(state.follow).padStart(4, "0");
    const { places, titles, height, w, h } = layout(present), tags = [...places.keys()].sort();
    const at = (x, y) => ({ "--x": `${x}px`, "--y": `${y}px` });
    if (tags.join() !== shown) {
      const act = (tag) => choose({ follow: Number(tag) === state.follow ? -1 : Number(tag) });
      cells = tags.map((tag) => button(tag, () => act(tag), { class: "tag", "--head": `var(--head-${tag[2]})` }));
      roving(cells, cells.length);
    }
    shown = tags.join();
    if (cells[0].parentNode !== stage) stage.replaceChildren(names, ...cells); // else they stay, and so they travel
    names.replaceChildren(...titles.map(({ x, y, text }) => element("p", { class: "title", ...at(x, y) }, text)));
    let strangers = 0;
    for (const node of cells) {
      const tag = node.textContent, { x, y, table, row } = places.get(tag), head = Number(tag[2]);
      const isStranger = Boolean(present.isFolded) &&
        (Number(tag[0]) * state.num_heads + head !== table || Number(tag[1]) !== row);
      strangers += isStranger;
      set(node, { ...at(x, y), "--cell": `${w - 2}px`, "--line": `${h - 2}px` });
      set(node, { "aria-pressed": tag === follow });
      node.classList.toggle("stranger", isStranger);
    }
    set(stage, { "--tall": `${height}px` });
    if (path.childElementCount !== all.length) {
      path.replaceChildren(...all.map((_, i) => button("", () => choose({ step: i }))));
    }
    all.forEach((move, i) => {
      const place = move.tags.indexOf(follow), at = place < 0 ? "" : `[${addressOf(place, move.shape).join(", ")}]`;
      path.children[i].replaceChildren(
        move.name,
        element("code", {}, `(${move.shape.join(", ")})`),
        element("b", {}, at),
      );
      set(path.children[i], { "aria-pressed": i === step });
    });
    const told = { step, last: all.length - 1, name: present.name, shape: present.shape.join(", ") };
    const where = tr("Step {step} of {last}, {name}: ({shape}).", told);
    headline(...seen(step, strangers, tags.length));
    const words = `${where} ${read(present, step, all.length - 1, strangers, tags)}`;
    const stands = present.tags.indexOf(follow);
    const at_ = stands < 0 ? "" : addressOf(stands, present.shape).join(", ");
    say(stands < 0 ? words : `${words} ${tr("{number} stands at [{at}].", { number: follow, at: at_ })}`);
  }

  function read(present, step, last, strangers, tags) {
    if (strangers) {
      const told = { strangers, count: tags.length };
      return tr("{strangers} of {count} numbers, outlined, stand where another head, example or token belongs.", told);
    }
    if (present.isFolded) return tr("Every table holds the numbers of one head of one example.");
    if (step === last && state.axes === RIGHT) return tr("Every number is back where it was.");
    if (step === last) {
      return tr("Every number is back where it was. Wrong axes come back right, too: a round trip proves nothing.");
    }
    if (present.name === "reshape") return tr("Nothing has moved: every token's row is cut into its heads.");
    if (step && state.axes === RIGHT) return tr("Every head has its own rows, one for each token.");
    if (step) return tr("The axes are in the order {axes}, where 0, 2, 1, 3 is right.", { axes: state.axes });
    const tag = tags.at(-1), [e, t, h, f] = tag;
    const told = { tag, e, t, h, f };
    return tr("A row is a token; a colour is a head. {tag} is example {e}, token {t}, head {h}, feature {f}.", told);
  }

  return { nodes: [strip, path, stage], paint };
});
