// models/neighbours.py in the browser: its forward pass, its gradients by hand, and its training, in a worker.

import { attentionWeights, indexOfLargest, lengthFor, linear } from "./attention.js";
import { matrix, mix, rowOf, rowsOf, softmax } from "./attention.js";
import { inSlices } from "./elements.js";

export const RING = 12, ALPHABET = 10, SHIFTS = [1, -1, 2, -2]; // how many letters before its reader each answer stands
export const STEPS = 400;
const EVERY = 4, BATCH = 32, RATE = 3e-3, FEATURES = 24, READ_OUT = SHIFTS.length * ALPHABET;

/** The parameters by name, [name, rows, columns], in the order of torch's state_dict. */
const shapesOf = (size) => [
  ["embedding.positions", RING, size],
  ["embedding.tokens.weight", ALPHABET, size],
  ...["q", "k", "v", "o"].map((letter) => [`attention.W_${letter}.weight`, size, size]),
  ["read_out.0.weight", READ_OUT, size],
  ["read_out.0.bias", 1, READ_OUT],
];

/** Parameters by name, as views of the numbers that hold them all. */
export function laid(flat, size = FEATURES) {
  let start = 0;
  return Object.fromEntries(
    shapesOf(size).map(([name, rows, columns]) => {
      return [name, matrix(rows, columns, flat.subarray(start, start += rows * columns))];
    }),
  );
}

/** Logits and all that they are made of, for rows of letters one after the other; weights [row][head]. */
export function forward(parameters, letters, numHeads, valid = RING, gates = Array(numHeads).fill(1)) {
  const tokens = parameters["embedding.tokens.weight"], positions = parameters["embedding.positions"];
  const X = matrix(letters.length, tokens.columns), C = matrix(X.rows, X.columns), weights = [];
  for (let i = 0; i < X.data.length; i++) {
    const row = Math.floor(i / X.columns), feature = i % X.columns;
    X.data[i] = tokens.data[letters[row] * X.columns + feature] + positions.data[row % RING * X.columns + feature];
  }
  const [Q, K, V] = ["q", "k", "v"].map((letter) => linear(X, parameters[`attention.W_${letter}.weight`]));
  for (let row = 0; row < X.rows; row += RING) {
    const own = attentionWeights(rowsOf(Q, row, RING), rowsOf(K, row, RING), numHeads, valid);
    C.data.set(mix(own, rowsOf(V, row, RING), gates).data, row * X.columns);
    weights.push(own);
  }
  const Y = linear(C, parameters["attention.W_o.weight"]);
  const logits = linear(Y, parameters["read_out.0.weight"], parameters["read_out.0.bias"]);
  return { X, Q, K, V, C, Y, weights, logits };
}

/** The letter that token `i` has to predict as answer `message`, in rows one after the other. */
export const dueAt = (letters, i, message) => letters[i - i % RING + (i % RING - SHIFTS[message] + RING) % RING];

/** For each token of `letters` its four answers. */
export function answersOf({ logits }) {
  const every = matrix(logits.rows * SHIFTS.length, ALPHABET, logits.data);
  return Array.from({ length: every.rows }, (_, i) => indexOfLargest(rowOf(every, i)));
}

/** How many letters have all answers right, some rows at a time; the sum is returned at the end. */
export function* countRight(parameters, letters, numHeads, valid, gates) {
  const some = 16 * RING;
  let right = 0;
  for (let start = 0; start < letters.length; start += some) {
    const rows = letters.subarray(start, start + some),
      answers = answersOf(forward(parameters, rows, numHeads, valid, gates));
    for (let i = 0; i < rows.length; i++) {
      if (SHIFTS.every((_, message) => answers[i * SHIFTS.length + message] === dueAt(rows, i, message))) right++;
    }
    yield;
  }
  return right;
}

/** From dY of Y = X Wᵀ: adds dW, and returns dX. Four outputs at a time, which is twice as fast. */
function backLinear({ data: dy }, { rows, columns: size, data: x }, { rows: outputs, data: w }, { data: dw }) {
  const dX = matrix(rows, size), dx = dX.data;
  for (let row = 0; row < rows; row++) {
    for (let out = 0; out < outputs; out += 4) {
      const at = row * outputs + out, a = dy[at], b = dy[at + 1], c = dy[at + 2], d = dy[at + 3];
      for (let i = 0, to = row * size, from = out * size; i < size; i++, to++, from++) {
        const one = x[to];
        dx[to] += a * w[from] + b * w[from + size] + c * w[from + 2 * size] + d * w[from + 3 * size];
        dw[from] += a * one;
        dw[from + size] += b * one;
        dw[from + 2 * size] += c * one;
        dw[from + 3 * size] += d * one;
      }
    }
  }
  return dX;
}

/** From dC, the gradients of queries, keys and values of every head. */
function backAttention(dC, { Q, K, V, weights }, numHeads) {
  const size = Q.columns, width = size / numHeads, scale = 1 / Math.sqrt(width), dWeights = new Float32Array(RING);
  const made = [Q, K, V].map(({ rows, columns }) => matrix(rows, columns)), [dq, dk, dv] = made.map(({ data }) => data);
  const [dc, q, k, v] = [dC, Q, K, V].map(({ data }) => data);
  weights.forEach((heads, example) =>
    heads.forEach(({ data }, head) => {
      for (let query = 0; query < RING; query++) {
        const from = (example * RING + query) * size + head * width, row = query * RING;
        let mean = 0;
        for (let key = 0; key < RING; key++) {
          const to = (example * RING + key) * size + head * width, weight = data[row + key];
          let sum = 0;
          for (let i = 0; i < width; i++) {
            sum += dc[from + i] * v[to + i];
            dv[to + i] += weight * dc[from + i];
          }
          mean += weight * (dWeights[key] = sum);
        }
        for (let key = 0; key < RING; key++) {
          const to = (example * RING + key) * size + head * width,
            score = data[row + key] * (dWeights[key] - mean) * scale;
          for (let i = 0; i < width; i++) {
            dq[from + i] += score * k[to + i];
            dk[to + i] += score * q[from + i];
          }
        }
      }
    })
  );
  return made;
}

/** Add to `gradients`, laid as the parameters, those of the mean cross-entropy of all answers, and return the loss. */
export function backward(parameters, gradients, letters, numHeads) {
  const made = forward(parameters, letters, numHeads),
    { X, C, Y, logits } = made,
    count = letters.length * SHIFTS.length;
  const dLogits = matrix(logits.rows, logits.columns);
  let loss = 0;
  for (let i = 0; i < count; i++) {
    const start = i * ALPHABET, shares = softmax(logits.data.subarray(start, start + ALPHABET));
    const due = dueAt(letters, Math.floor(i / SHIFTS.length), i % SHIFTS.length);
    loss -= Math.log(shares[due]) / count;
    for (let letter = 0; letter < ALPHABET; letter++) {
      const gradient = (shares[letter] - (letter === due ? 1 : 0)) / count;
      dLogits.data[start + letter] = gradient;
      gradients["read_out.0.bias"].data[start % READ_OUT + letter] += gradient;
    }
  }
  const back = (dY, input, name) => backLinear(dY, input, parameters[name], gradients[name]);
  const dC = back(back(dLogits, Y, "read_out.0.weight"), C, "attention.W_o.weight");
  const inputs = backAttention(dC, made, numHeads).map((dY, i) => back(dY, X, `attention.W_${"qkv"[i]}.weight`));
  const tokens = gradients["embedding.tokens.weight"].data, positions = gradients["embedding.positions"].data;
  for (let i = 0; i < X.data.length; i++) {
    const row = Math.floor(i / X.columns),
      feature = i % X.columns,
      gradient = inputs[0].data[i] + inputs[1].data[i] + inputs[2].data[i];
    tokens[letters[row] * X.columns + feature] += gradient;
    positions[row % RING * X.columns + feature] += gradient;
  }
  return loss;
}

/** Numbers from 0 to 1 that look random (mulberry32). */
function randomOf(seed) {
  return () => {
    seed = seed + 0x6D2B79F5 | 0;
    let t = Math.imul(seed ^ seed >>> 15, 1 | seed);
    t = t + Math.imul(t ^ t >>> 7, 61 | t) ^ t;
    return ((t ^ t >>> 14) >>> 0) / 4294967296;
  };
}

/** New parameters, as torch draws them: embeddings from a normal distribution, matrices from a uniform one. */
function fresh(random) {
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const uniform = () => (2 * random() - 1) / Math.sqrt(FEATURES);
  const drawnBy = shapesOf(FEATURES).map((
    [name, rows, columns],
  ) => [name.startsWith("embedding") ? normal : uniform, rows * columns]);
  return Float32Array.from(drawnBy.flatMap(([draw, count]) => Array.from({ length: count }, draw)));
}

/** Train with Adam (Kingma & Ba 2015); yields the parameters at some steps, and the accuracy on the rows `test`. */
export function* training({ numHeads, seed, test }) {
  const random = randomOf(seed), flat = fresh(random), parameters = laid(flat);
  const [slopes, means, squares] = [1, 2, 3].map(() => new Float32Array(flat.length)), gradients = laid(slopes);
  for (let step = 0; step <= STEPS; step++) {
    if (step % EVERY === 0) {
      const right = yield* countRight(parameters, test, numHeads);
      yield { step, accuracy: right / test.length, flat: flat.slice() };
    }
    slopes.fill(0);
    backward(parameters, gradients, Uint8Array.from({ length: BATCH * RING }, () => ALPHABET * random()), numHeads);
    for (let i = 0; i < flat.length; i++) {
      means[i] += .1 * (slopes[i] - means[i]);
      squares[i] += .001 * (slopes[i] ** 2 - squares[i]);
      const mean = means[i] / (1 - .9 ** (step + 1)), square = squares[i] / (1 - .999 ** (step + 1));
      flat[i] -= RATE * mean / (Math.sqrt(square) + 1e-8);
    }
    yield;
  }
}

/** All that `training` needs, as the text of a worker: it cannot import its neighbours. */
function workerText() {
  const numbers = { RING, ALPHABET, SHIFTS, STEPS, EVERY, BATCH, RATE, FEATURES, READ_OUT };
  const shared = [matrix, rowOf, rowsOf, lengthFor, softmax, linear, attentionWeights, mix, indexOfLargest];
  const model = [shapesOf, laid, forward, dueAt, answersOf, countRight, backLinear, backAttention, backward];
  const lines = Object.entries(numbers).map(([name, value]) => `const ${name} = ${JSON.stringify(value)};`);
  lines.push(...[...shared, ...model, randomOf, fresh, training].map((part) => `const ${part.name} = ${part};`));
  lines.push("onmessage = ({ data }) => { for (const one of training(data)) one && postMessage(one); };");
  return lines.join("\n");
}

/** Train in a worker, or in slices where a page allows none: `hear(kept)` at each kept step. Returns what ends it. */
export function train(options, hear) {
  function* heard() {
    for (const one of training(options)) {
      if (one) hear({ ...one, isSliced: true });
      yield;
    }
  }
  const slices = () => stop = inSlices(heard());
  let stop;
  try {
    const address = URL.createObjectURL(new Blob([workerText()], { type: "text/javascript" })),
      worker = new Worker(address);
    worker.onmessage = ({ data }) => hear(data);
    worker.onerror = (event) => (event.preventDefault(), slices());
    worker.postMessage(options);
    stop = () => (worker.terminate(), URL.revokeObjectURL(address));
  } catch {
    slices();
  }
  return () => stop();
}
