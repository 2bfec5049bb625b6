// What mha_lib's layer computes, on plain arrays. A matrix is {rows, columns, data}, data row after row.

export const matrix = (rows, columns, data = new Float32Array(rows * columns)) => ({ rows, columns, data });

/** Row `index` of a matrix, not copied. */
export const rowOf = ({ columns, data }, index) => data.subarray(index * columns, (index + 1) * columns);

/** Rows `start` to `start + count`, not copied. */
export const rowsOf = ({ columns, data }, start, count) =>
  matrix(count, columns, data.subarray(start * columns, (start + count) * columns));

/** Bytes as they travel, which may start anywhere in a message, copied. */
export function bytesOf({ buffer, byteOffset, byteLength }) {
  return new Uint8Array(buffer.slice(byteOffset, byteOffset + byteLength));
}

/** Whole numbers from their bytes, two each. */
export const integers = (bytes) => new Uint16Array(bytesOf(bytes).buffer);

/** A float16 from its bits: a sign, five of an exponent, ten of a fraction. (Not every browser has Float16Array.) */
function half(bits) {
  const exponent = bits >> 10 & 31, fraction = (bits & 1023) / 1024, sign = bits >> 15 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction);
}

/** Tensors by name, as `pack` in live.py laid them one after the other. More than two axes are folded. */
export function unpack({ parameters, shapes, halves }) {
  const numbers = new Float32Array(halves ? integers(parameters).length : bytesOf(parameters).buffer);
  if (halves) integers(parameters).forEach((bits, i) => numbers[i] = half(bits));
  let start = 0;
  return Object.fromEntries(shapes.map(([name, shape]) => {
    const columns = shape.at(-1) ?? 1, size = shape.reduce((product, length) => product * length, 1);
    return [name, matrix(size / columns, columns, numbers.subarray(start, start += size))];
  }));
}

/** X Wᵀ + b, as torch.nn.Linear: (n, in), (out, in), (out) -> (n, out). Four outputs at a time, which is faster. */
export function linear({ rows, columns: size, data: x }, { rows: outputs, data: w }, bias) {
  const Y = matrix(rows, outputs), sums = new Float64Array(4);
  for (let row = 0; row < rows; row++) {
    for (let out = 0; out < outputs; out += 4) {
      const start = out * size;
      let a = 0, b = 0, c = 0, d = 0;
      for (let i = 0; i < size; i++) {
        const one = x[row * size + i], at = start + i; // beyond the last output there is nothing, and no sum of it is kept
        a += one * w[at];
        b += one * w[at + size];
        c += one * w[at + 2 * size];
        d += one * w[at + 3 * size];
      }
      [sums[0], sums[1], sums[2], sums[3]] = [a, b, c, d];
      for (let k = 0; k < 4 && out + k < outputs; k++) {
        Y.data[row * outputs + out + k] = sums[k] + (bias ? bias.data[out + k] : 0);
      }
    }
  }
  return Y;
}

/** Softmax over the first `valid` scores. The others weigh exactly 0, and all do where none is valid. */
export function softmax(scores, valid = scores.length) {
  const weights = new Float32Array(scores.length);
  let largest = -Infinity;
  for (let i = 0; i < valid; i++) largest = Math.max(largest, scores[i]);
  let total = 0;
  for (let i = 0; i < valid; i++) total += weights[i] = Math.exp(scores[i] - largest);
  for (let i = 0; i < valid; i++) weights[i] /= total;
  return weights;
}

/** How many keys count for a query, when lengths are one number for all queries, or a list of one for each. */
export const lengthFor = (valid, query) => typeof valid === "number" ? valid : valid[query];

/** The weights of every head, [head] -> (queries, keys), from projected queries and keys. */
export function attentionWeights(queries, keys, numHeads, valid = keys.rows) {
  const size = queries.columns / numHeads, scale = 1 / Math.sqrt(size);
  return Array.from({ length: numHeads }, (_, head) => {
    const weights = matrix(queries.rows, keys.rows);
    const scores = new Float32Array(keys.rows);
    for (let query = 0; query < queries.rows; query++) {
      for (let key = 0; key < keys.rows; key++) {
        const q = query * queries.columns + head * size, k = key * keys.columns + head * size;
        let sum = 0;
        for (let i = 0; i < size; i++) sum += queries.data[q + i] * keys.data[k + i];
        scores[key] = sum * scale;
      }
      rowOf(weights, query).set(softmax(scores, lengthFor(valid, query)));
    }
    return weights;
  });
}

/** Every head's average of the values times its gate, side by side: (queries, heads * size). */
export function mix(weights, values, gates) {
  const size = values.columns / weights.length;
  const output = matrix(weights[0].rows, values.columns);
  weights.forEach(({ rows, columns, data }, head) => {
    for (let query = 0; query < rows; query++) {
      for (let key = 0; key < columns; key++) {
        const share = gates[head] * data[query * columns + key];
        if (share === 0) continue;
        const to = query * output.columns + head * size, from = key * values.columns + head * size;
        for (let i = 0; i < size; i++) output.data[to + i] += share * values.data[from + i];
      }
    }
  });
  return output;
}

/** A model's answer: what is told of other numbers is chosen by `firstLargest`. */
export const indexOfLargest = (numbers) => numbers.reduce((best, x, i) => x > numbers[best] ? i : best, 0);
export const sumOf = (numbers) => numbers.reduce((total, x) => total + x, 0);
