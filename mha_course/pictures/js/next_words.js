// What is known of a model's next word after some texts: which word comes first without which heads, and at what cost.

import { bytesOf, integers } from "./attention.js";
import { times } from "./elements.js";

export const TEN = 10;
const ROW = TEN + 2; // of each cut: the nats of ten words, the number of the word that comes first, its nats

const keyOf = (cut) => String([...cut].sort((a, b) => a - b));
export const isSame = (cut, other) => keyOf(cut) === keyOf(other);
export const seen = (word) => word.replace(/\n/g, "↵").replace(/^ /, "") || "␣";
export const quoted = (word) => `“${seen(word)}”`;
export function percent(nats) {
  const value = 100 * Math.exp(-nats);
  return value >= 9.5 ? `${value.toFixed(0)} %` : value >= 0.095 ? `${value.toFixed(1)} %` : "< 0.1 %";
}

/** One text. `learn` takes in more cuts of it, as next_words.py packs them; `after(cut)` is what is known of one. */
function textOf({ text, tokens, words, maps, ...part }, count) {
  const n = tokens.length, size = n * (n + 1) / 2, known = new Map();
  let whole = null;
  const learn = ({ words, cuts, rows }) =>
    cuts.forEach((cut, i) => {
      const row = rows.subarray(i * ROW, (i + 1) * ROW), nats = times(TEN, (word) => row[word] / 1000);
      const found = { nats, first: words[row[TEN]], firstNats: row[TEN + 1] / 1000 };
      whole ??= found;
      known.set(keyOf(cut), { ...found, cost: nats[0] - whole.nats[0], changes: found.first !== whole.first });
    });
  learn({ words, ...part });
  const after = (cut) => known.get(keyOf(cut));
  let each = [];
  return {
    ...{ text, tokens, n, words, whole, learn, after },
    /** What is known of every single head; an empty list where not all are. */
    each: () => each.length || !after([count - 1]) ? each : each = times(count, (head) => after([head])),
    /** Where a head looks from one token: weights on it and on all before it. */
    look(head, query) {
      const start = head * size + query * (query + 1) / 2;
      return times(n, (key) => key <= query ? maps[start + key] / 255 : 0);
    },
    /** How many of some cuts change the word; null where one of them is not known. */
    changedBy: (cuts) => cuts.every(after) ? cuts.filter((cut) => after(cut).changes).length : null,
  };
}

/** All texts that a picture holds, by what they say; `learn` takes in what Python answers about one. */
export function textsOf({ texts, cuts, layers, heads }) {
  const count = layers * heads, found = new Map();
  const learn = (answer) => {
    const part = { cuts, ...answer, rows: integers(answer.rows), maps: bytesOf(answer.maps) };
    if (found.has(part.text)) found.get(part.text).learn(part);
    else found.set(part.text, textOf(part, count));
  };
  texts.forEach(learn);
  return { all: [...found.values()], get: (text) => found.get(text), learn };
}
