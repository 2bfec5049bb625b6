// Where the keys and values of texts that come and go are kept: in one rectangle, and in blocks with a table.

import { sumOf } from "./attention.js";
import { amount, button, drawn, element, picture, set, times, titled } from "./elements.js";
import { heatMap } from "./heat_map.js";
import { player } from "./player.js";

const CALM = 800; // milliseconds between two steps that play
const PITCH = 1.6, HEAD = 0.6; // of a line of the memory, in places: all of it, and the numbers of its blocks
const TOLD = "Letters: texts. Numbers: positions of the marked text, in its row and in its blocks. " +
  "Hatched: keys and values of a text that has left; the mask must hide them.";

export default picture((parts) => {
  const { data, state, pointer, choose, point, headline, say } = parts, { texts, places, longest, line } = data;
  const rows = times(data.rows, (row) => row), count = rows.length * longest;
  let reading = null;

  const time = player(times(data.steps, (step) => step), parts, [], { label: "step", pause: CALM });
  const sizes = Object.keys(places).map(Number);
  const chip = (size) => button(size, () => choose({ block_size: size }), { "aria-label": `blocks of ${size}` });
  const chips = sizes.map(chip);

  const rowAt = (i) => Math.floor(i / longest), blockAt = (i) => Math.floor(i / state.block_size);
  const ownerAt = (i) => rows.find((row) => reading.tables[row].includes(blockAt(i)));
  const mapOf = (name, height, width, rowOf) => {
    const onhover = (at) => point(at && { name, i: at.cell, row: rowOf(at.cell) });
    const onpick = ({ cell }) => choose({ row: rowOf(cell) ?? state.row });
    return heatMap(height, width, { numbers: true, label: name, onpick, onmove: onhover, onhover });
  };
  const maps = {
    rectangle: mapOf("rectangle", rows.length, longest, rowAt),
    memory: mapOf("memory", count / line, line, ownerAt),
  };
  set(maps.memory.node, { viewBox: `0 0 ${line} ${PITCH * count / line}` });
  const corner = (i) => [i % line, PITCH * Math.floor(i / line) + HEAD];
  maps.memory.cells.forEach((cell, i) => set(cell, { transform: `translate(${corner(i).join(" ")})` }));

  const names = rows.map((row) => button("", () => choose({ row }), { class: "glyph" }));
  const entries = rows.map(() => [element("th", { scope: "row" }), element("td")]);
  const div = (name, ...nodes) => element("div", name ? { class: name } : {}, ...nodes);
  const tables = element("table", { class: "figures" }, ...entries.map((cells) => element("tr", {}, ...cells)));
  const rectangle = div("framed", div("row-names", ...names), maps.rectangle.node);
  const left = div("", titled("one rectangle: a row for each text"), rectangle, element("p", {}, TOLD));
  const memory = div("memory-of", maps.memory.node, div("", titled("the tables"), tables));
  const right = div("", titled("memory in blocks of ", element("span", { class: "tools" }, ...chips)), memory);

  function compute() {
    const { step, block_size: size } = state, rectangle = Array(count).fill(null), memory = [...rectangle];
    times(step + 1, (now) =>
      texts.forEach((text, i) => {
        const at = now - text.first;
        if (at < 0 || at >= text.length) return;
        rectangle[text.row * longest + at] = memory[places[size][i][at]] = { text, at };
      }));
    const here = texts.filter(({ first, length }) => first <= step && step < first + length);
    const texted = rows.map((row) => here.find((text) => text.row === row));
    const counts = texted.map((text) => text ? step - text.first + 1 : 0);
    const placesOf = (row) => texted[row] ? places[size][texts.indexOf(texted[row])].slice(0, counts[row]) : [];
    const tables = rows.map((row) => placesOf(row).filter((_, at) => at % size === 0).map((place) => place / size));
    const numbers = tables.flat().length, sums = { numbers, tokens: sumOf(counts), taken: size * numbers };
    reading = { rectangle, memory, here, texted, counts, tables, ...sums };
  }

  /** Who has left before this step, and who comes. */
  function news() {
    const { step } = state;
    const left = texts.filter(({ first, length }) => first + length === step).map(({ name }) => `${name} has left`);
    const come = texts.filter(({ first }) => first === step).map(({ name, row }) => `${name} takes row ${row}`);
    return [...left, ...come].join(", ") || "each text writes one token";
  }

  /** Show what each place of a map holds; returns its words. */
  function paintMap(name, marked) {
    const map = maps[name], held = reading[name], { pointed } = pointer;
    const isHeld = (i) => held[i] !== null && reading.here.includes(held[i].text);
    const isOld = (i) => held[i] !== null && !isHeld(i), isRead = (i) => isHeld(i) && held[i].text.row === marked;
    map.show(held.map(() => 0), isOld);
    map.cells.forEach((cell, i) => set(cell.children[1], { text: isRead(i) ? held[i].at : held[i]?.text.name ?? "" }));
    map.mark("held", isHeld);
    map.mark("read", isRead);
    map.mark("pointed", (i) => pointed?.name === name && pointed.i === i);
    const place = (i) => name === "memory" ? [`Block ${blockAt(i)}`, state.block_size] : [`Row ${rowAt(i)}`, longest];
    const what = (i) => held[i] ? `${isOld(i) ? "old, " : ""}${held[i].text.name} at position ${held[i].at}` : "empty";
    const words = (i) => `${place(i)[0]}, place ${i % place(i)[1]}: ${what(i)}`;
    map.say(words);
    return words;
  }

  function paintBlocks(size, marked) {
    const blocks = times(count / size, (block) => {
      const [x, y] = corner(block * size), owner = ownerAt(block * size), edge = x ? `M${x},${y}v1` : "";
      const kind = owner === undefined ? "free" : owner === marked ? "taken marked" : "taken";
      const box = { class: `block ${kind}`, x: x + 0.08, y: y + 0.04, width: size - 0.16, height: 0.92, rx: 0.1 };
      const name = drawn("text", { class: "block-name", x: x + 0.08, y: y - 0.12, text: block });
      return [drawn("rect", box), drawn("path", { class: "between", d: edge }), name];
    });
    maps.memory.over.replaceChildren(...blocks.flat());
  }

  /** What the text of a row attends to, or that the row has none. */
  function attends(row) {
    const { texted, counts, tables } = reading, text = texted[row], blocks = tables[row];
    if (!text) return `Row ${row} has no text, and its table is empty`;
    const own = `${text.name} in row ${row} attends to ${amount(counts[row], "place", "places")}`;
    return `${own}, in ${blocks.length === 1 ? "block" : "blocks"} ${blocks.join(", ")}`;
  }

  function paint() {
    const { step, block_size: size } = state, { texted, tables, numbers, tokens, taken } = reading;
    const { pointed } = pointer, marked = pointed?.row ?? state.row;
    const unused = amount(taken - tokens, "unused place", "unused places");
    const small = element("small", {}, attends(marked));
    headline(`Blocks of ${size} reserve `, unused, `, the rectangle ${count - tokens}`, small);
    time.paint();
    chips.forEach((chip, i) => set(chip, { "aria-pressed": sizes[i] === size }));
    const words = { rectangle: paintMap("rectangle", marked), memory: paintMap("memory", marked) };
    paintBlocks(size, marked);
    rows.forEach((row) => {
      const name = texted[row]?.name ?? "–", texts = [`${row}: ${name}`, tables[row].join(" ")];
      const aloud = `row ${row}, ${texted[row] ? `text ${name}` : "no text"}`;
      set(names[row], { text: texts[0], "aria-label": aloud, "aria-pressed": row === state.row });
      entries[row].forEach((cell, i) => set(cell, { text: texts[i], class: row === marked ? "chosen" : null }));
    });
    const at = pointed ? `${words[pointed.name](pointed.i)}. ` : "", told = amount(numbers, "number", "numbers");
    const held = `${tokens} tokens take ${count} places in the rectangle, ${taken} in blocks`;
    say(`${at}Step ${step}: ${news()}. ${held}; the tables hold ${told}.`);
  }

  return {
    nodes: [time.node, div("cached paged", left, right)],
    compute,
    paint,
    hint: "Move the step, change the block size, or choose a row.",
    room: [55, 60, 180],
    end: time.stop,
  };
});
