// Where numbers go in transpose_qkv and back: a rail of steps, tiles that move, and the order in which they are read.

import { button, element, parts, picture, roving, set, times, titled, tr } from "./elements.js";

// Pixels: a tile's width at most, beside other tables, and at least, its height; gaps between groups and between tables;
// the names of rows, a line of names above a table, and a letter of them.
const WIDTH = 54, GOOD = 34, LEAST = 26, HEIGHT = 30, GROUP = 12, TABLE = 26, EDGE = 64, LINE = 16, LETTER = 6.6;
const TOP = 4 * LINE;

const axesInWords = () => [tr("batch"), tr("tokens"), tr("heads"), tr("features")];
const namesOfOne = () => [tr("example"), tr("token"), tr("head"), tr("feature")];
const RIGHT = "0, 2, 1, 3", UNMOVED = "0, 1, 2, 3";

/** The address of the i-th number of a tensor. */
const addressOf = (i, shape) =>
  shape.map((size, axis) => Math.floor(i / shape.slice(axis + 1).reduce((product, own) => product * own, 1)) % size);
const indexOf = (tag, { tags, shape }) =>
  tags.includes(tag) ? `[${addressOf(tags.indexOf(tag), shape).join(", ")}]` : "";
const spelled = (tag) => namesOfOne().map((name, axis) => `${name} ${tag[axis]}`).join(tr(", "));

/** Numbers in a row as [table][row][group], the last axes as rows and groups; the first ones count the tables. */
function tablesOf(tags, shape, inGroups) {
  const [rows, groups, size] = inGroups ? shape.slice(1) : [shape.at(-2), 1, shape.at(-1)], row = groups * size;
  const group = (from) => times(groups, (g) => tags.slice(from + g * size, from + (g + 1) * size));
  return times(tags.length / rows / row, (t) => times(rows, (r) => group((t * rows + r) * row)));
}

/** What every move does, and where the numbers are after it, with this order in `permute`; a number is its own address. */
function movesOf({ batch_size: b, num_tokens: n, num_heads: h, head_size: d }, order) {
  const sizes = [b, n, h, d], axes = order.split(", ").map(Number), turned = axes.map((axis) => sizes[axis]);
  const tags = times(b * n * h * d, (i) => addressOf(i, sizes).join(""));
  const moved = tags.map((_, i) => {
    const place = addressOf(i, turned);
    return times(4, (axis) => place[axes.indexOf(axis)]).join("");
  });
  const one = namesOfOne(), example = (i) => [`[${i}]`, `${one[0]} ${i}`];
  const own = (i) => [`[${i}]`, [`${one[0]} ${Math.floor(i / h)}`, `${one[2]} ${i % h}`].join(tr(", "))];
  const pair = (i) => {
    const places = addressOf(i, turned.slice(0, 2));
    return [`[${places.join(", ")}]`, places.map((at, k) => `${one[axes[k]]} ${at}`).join(tr(", "))];
  };
  const start = { shape: [b, n, h * d], name: "X", tags, title: example, row: one[1], column: one[3] };
  const cut = { ...start, shape: sizes, name: "reshape", inGroups: true };
  const permuted = order === UNMOVED
    ? { ...cut, name: "permute" }
    : { shape: turned, name: "permute", tags: moved, title: pair, row: one[axes[2]], column: one[axes[3]] };
  const folded = { ...start, shape: [b * h, n, d], name: "reshape", tags: moved, title: own, isFolded: true };
  const back = [permuted, cut, start].map((move, i) => ({ ...move, name: ["reshape", "permute", "reshape"][i] }));
  const all = [start, cut, permuted, folded, ...back];
  return all.map((move) => ({ ...move, tables: tablesOf(move.tags, move.shape, move.inGroups) }));
}

export default picture(({ data, state, controls, pointer, choose, point, pointing, repaint, headline, say }) => {
  const follow = ({ buttons, clientX, clientY }) => {
    const over = buttons && document.elementFromPoint(clientX, clientY)?.closest(".station");
    const step = stations.indexOf(over);
    if (step >= 0 && step !== state.step) choose({ step });
  };
  const rail = element("div", { class: "rail", role: "group", "aria-label": tr("steps"), onpointermove: follow });
  const stations = times(7, (i) => {
    const parts = ["i", "span", "code", "b"].map((kind) => element(kind));
    return button(parts, () => choose({ step: i }), { class: "station" });
  });
  for (const [name, from, to] of [["transpose_qkv", 0, 4], ["transpose_output", 4, 7]]) {
    const look = { class: "rail-of", "--count": to - from };
    rail.append(element("div", look, element("code", {}, name), ...stations.slice(from, to)));
  }
  roving(stations, 7, (step) => choose({ step }));

  const stage = element("div", { class: "travel", role: "group", "aria-label": tr("numbers: choose one to follow") });
  const width = () => stage.clientWidth || 900, names = element("div", { "aria-hidden": "true" });
  const orders = ["X", tr("now"), RIGHT].map((name) => {
    const field = element("div", { class: "in-order" });
    return { field, cells: [], node: element("div", { class: "order" }, element("span", {}, name), field) };
  });
  const reading = element("div", { class: "orders", "aria-hidden": "true" });
  const key = tr("read row by row (flatten). Colour: head. Darker: later token");
  reading.append(titled(key), ...orders.map(({ node }) => node));
  let shown = "", tiles = [], moves = [], right = [], wrong = new Set();

  const open = { sizes: false, order: false };
  const options = Object.fromEntries(data.orders.map((axes) => [axes, `permute(${axes})`]));
  const sizes = controls({
    batch_size: { label: tr("batch"), min: 1, max: 3 },
    num_tokens: { label: tr("tokens"), min: 1, max: 5 },
    num_heads: { label: tr("heads"), min: 1, max: 4 },
    head_size: { label: tr("features a head"), min: 1, max: 4 },
  });
  const order = controls({ axes: { label: tr("order of axes"), options } });
  const toggles = {
    sizes: button("", () => (open.sizes = !open.sizes, repaint())),
    order: button("", () => (open.order = !isOpen("order"), choose({ axes: RIGHT }), repaint())),
  };
  const isOpen = (name) => open[name] || name === "order" && state.axes !== RIGHT;
  const more = element("div", { class: "tools more" }, ...Object.values(toggles), sizes, order);

  function compute() {
    moves = movesOf(state, state.axes);
    right = state.axes === RIGHT ? moves : movesOf(state, RIGHT);
    wrong = new Set(strangers());
  }

  /** How many numbers are at another place in the order of reading than before the step. */
  const movedBy = (step) => moves[step].tags.filter((tag, i) => tag !== moves[step - 1].tags[i]).length;
  const isStranger = (tag, table, row) =>
    Number(tag[0]) * state.num_heads + Number(tag[2]) !== table || Number(tag[1]) !== row;
  const strangers = () =>
    moves[3].tables.flatMap((rows, t) => rows.flatMap(([group], r) => group.filter((tag) => isStranger(tag, t, r))));

  /** What the present step does: parts of the headline. */
  function seen(step, count, wrong) {
    const { num_heads: h, batch_size: b } = state, isRight = state.axes === RIGHT;
    const axes = axesInWords(), order = state.axes.split(", ").map((axis) => axes[axis]).join(tr(", "));
    const told = { h, wrong, count, order, matrices: b * h, moved: step && movedBy(step) };
    const [before, many, after] = parts("reshape: *{wrong} of {count} numbers* are in another’s place", told);
    return [
      parts("X: *a row is a token*, its {h} heads side by side", told),
      parts("reshape *moves {moved} of {count} numbers*: it cuts each row into {h} heads", told),
      isRight
        ? parts("permute *moves {moved} of {count} numbers*: each head’s tokens come together", told)
        : parts("permute *moves {moved} of {count} numbers*: {order}", told),
      wrong
        ? [before, element("b", { class: "wrong" }, many), after]
        : parts("reshape *moves {moved} of {count} numbers*: {matrices} matrices, one head of one example each", told),
      parts("back: reshape *moves {moved} of {count} numbers*, the first axis is split again", told),
      parts("back: permute *moves {moved} of {count} numbers*, each token’s heads come together", told),
      wrong
        ? parts("back: *every number is where it was*, though {wrong} of {count} numbers were in another’s place", told)
        : parts("back: *every number is where it was*"),
    ][step];
  }

  function words(step, wrong) {
    if (step === 0) return tr("A number is its own address: example, token, head, feature.");
    if (step === 3 && wrong) return tr("Outlined numbers are where another head, example or token belongs.");
    if (step === 6 && wrong) return tr("A wrong order comes back right, too: a round trip does not detect it.");
    if (moves[step].name === "permute") {
      return tr("permute changes the order in which the numbers are read; their memory stays as it was.");
    }
    return tr("reshape reads the numbers in the same order and only changes where a row ends.");
  }

  /** The left upper corner of every number, the names at the edges, and the height of all, side by side as there is room. */
  function layout({ tables, title, row, column }) {
    const [groups, size] = [tables[0][0].length, tables[0][0][0].length], gaps = (groups - 1) * GROUP;
    const columns = groups * size, room = width() - EDGE;
    const named = Math.max(...title(0).map((line) => LETTER * line.length)) + 12;
    const widthOf = (count) => ((room - (count - 1) * TABLE) / count - gaps) / columns; // of a tile, with so many tables
    const isWide = (count) => widthOf(count) >= GOOD && count * named <= room + 12;
    const most = times(tables.length, (i) => tables.length - i).find(isWide) ?? 1; // tables side by side
    const w = Math.max(Math.min(WIDTH, widthOf(most)), LEAST), pitch = Math.max(columns * w + gaps + TABLE, named);
    const tableHeight = TOP + tables[0].length * HEIGHT + TABLE - 8, places = new Map(), edges = [];
    const xOf = (x, i) => x + i * w + Math.floor(i / size) * GROUP;
    const name = (x, y, text, kind = "column", wide = 0) => edges.push({ x, y, text, kind, wide });
    tables.forEach((rows, t) => {
      const x = EDGE + t % most * pitch, y = Math.floor(t / most) * tableHeight, lift = groups > 1 ? LINE : 0;
      const [index, table] = title(t);
      name(x, y + LINE - lift, index, "index");
      name(x, y + 2 * LINE - lift, table, "table");
      if (groups > 1) times(groups, (g) => name(xOf(x, g * size), y + 2 * LINE, tr("head {head}", { head: g })));
      times(columns, (i) => name(xOf(x, i), y + 3 * LINE, i % (groups > 1 ? size : columns), "column", w - 2));
      if (t % most === 0) {
        name(0, y + 3 * LINE, column, "row");
        rows.forEach((_, r) => name(0, y + TOP + r * HEIGHT + 5, `${row} ${r}`, "row"));
      }
      rows.forEach((own, r) =>
        own.flat().forEach((tag, i) => places.set(tag, { x: xOf(x, i), y: y + TOP + r * HEIGHT }))
      );
    });
    return { places, edges, height: Math.ceil(tables.length / most) * tableHeight - TABLE + 8, w };
  }

  /** New tiles, when there are more numbers or fewer. */
  function rebuild(tags) {
    const act = (tag) => choose({ follow: Number(tag) === state.follow ? -1 : Number(tag) });
    const look = (tag) => ({ "--head": `var(--head-${tag[2]})`, "--token": tag[1] });
    tiles = tags.map((tag) => {
      const acts = { ...pointing(tag), onfocus: () => point(tag), onblur: () => point(null), ...look(tag) };
      return button("", () => act(tag), { class: "tag", "aria-label": `${tag}: ${spelled(tag)}`, ...acts });
    });
    roving(tiles, tiles.length);
    stage.replaceChildren(names, ...tiles);
    for (const strip of orders) {
      strip.cells = new Map(tags.map((tag) => [tag, element("i", look(tag))]));
      set(strip.field, { "--of": tags.length }).replaceChildren(...strip.cells.values());
    }
    shown = tags.join();
  }

  function paint() {
    const { step, axes } = state, present = moves[step], follow = String(state.follow).padStart(4, "0");
    const { pointed } = pointer, { places, edges, w } = layout(present), tags = moves[0].tags;
    if (tags.join() !== shown) rebuild(tags); // else they stay, and so they travel
    const at = (x, y) => ({ "--x": `${x}px`, "--y": `${y}px` });
    names.replaceChildren(...edges.map(({ x, y, text, kind, wide }) => {
      const look = { class: `edge-name ${kind}`, ...at(x, y), ...(wide && { "--wide": `${wide}px` }) };
      return element("span", look, text);
    }));
    const isMarked = (tag) => tag === follow || tag === pointed;
    tags.forEach((tag, i) => {
      const { x, y } = places.get(tag), look = { ".stranger": present.isFolded && wrong.has(tag) };
      set(tiles[i], { ...at(x, y), ...look, "aria-pressed": tag === follow, text: isMarked(tag) ? tag : "" });
    });
    const tall = Math.max(...moves.map((move) => layout(move).height)); // of all steps, so that nothing below moves
    set(stage, { "--tall": `${tall}px`, "--cell": `${w - 2}px` });
    orders.forEach(({ cells, node }, i) => {
      const own = [moves[0], present, right[step]][i].tags;
      set(node, { hidden: i === 2 && axes === RIGHT ? "" : null });
      own.forEach((tag, place) =>
        set(cells.get(tag), { "--at": place / own.length, class: isMarked(tag) ? "marked" : null })
      );
    });
    stations.forEach((station, i) => {
      const texts = ["", moves[i].name, `(${moves[i].shape.join(", ")})`, indexOf(follow, moves[i])];
      texts.forEach((text, part) => set(station.children[part], { text }));
      set(station, { "aria-pressed": i === step });
    });
    const fold = (toggle, body, isOpen, text) => {
      set(toggle, { text, "aria-expanded": isOpen });
      set(body, { hidden: isOpen ? null : "" });
    };
    fold(toggles.sizes, sizes, open.sizes, `${tr("sizes")} ${moves[1].shape.join(" · ")} ${open.sizes ? "▴" : "▾"}`);
    const offer = isOpen("order") ? tr("back to 0, 2, 1, 3 ▴") : tr("try another order ▾");
    fold(toggles.order, order, isOpen("order"), offer);
    headline(...seen(step, tags.length, wrong.size));
    const tag = [pointed, follow].find((one) => places.has(one));
    const told = tag && { tag, address: spelled(tag), at: indexOf(tag, present), i: present.tags.indexOf(tag) };
    const where = tag ? tr("{tag} ({address}) is at {at}, number {i} in reading order.", told) : "";
    say([where, words(step, wrong.size)].filter(Boolean).join(tr(" ")));
  }

  const hint = tr("Choose a step, or a number to follow it.");
  return { nodes: [rail, stage, reading, more], compute, paint, hint, room: [84, 0, 220] };
});
