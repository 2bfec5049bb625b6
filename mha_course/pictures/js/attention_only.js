// The forward pass of models/induction.py, attention and nothing else, at any kept step of a training run.

import { attentionWeights, linear, matrix, mix, rowOf, rowsOf } from "./attention.js";
import { added, layerNorm } from "./transformer.js";

/** Turn each pair of features, i of a head's first half with i of its second, by an angle that grows with the place. */
function rotate(X, numHeads, base) {
  const Y = matrix(X.rows, X.columns), size = X.columns / numHeads, half = size / 2;
  for (let at = 0; at < X.data.length; at++) {
    const place = Math.floor(at / X.columns), feature = at % size, isFirst = feature < half;
    const angle = place * base ** (-2 * (feature % half) / size);
    const turned = X.data[isFirst ? at + half : at - half] * Math.sin(angle);
    Y.data[at] = X.data[at] * Math.cos(angle) + (isFirst ? -turned : turned);
  }
  return Y;
}

/**
 * `run(step, ids, gates)` for gates [layer][head]: the weights [layer][head] -> (queries, keys), and logits (tokens, letters).
 * `parameters` are the model's state by name, each with one copy below the other for each of `numSteps` steps.
 */
export function attentionOnly(parameters, numSteps, base) {
  return (step, ids, gates) => {
    const tensor = (name) => {
      const all = parameters[name], rows = all.rows / numSteps;
      return rowsOf(all, step * rows, rows);
    };
    const norm = (X, i) => layerNorm(X, tensor(`norms.${i}.weight`), tensor(`norms.${i}.bias`));
    const table = tensor("embedding.weight"), soFar = ids.map((_, i) => i + 1);
    let X = matrix(ids.length, table.columns);
    ids.forEach((id, i) => rowOf(X, i).set(rowOf(table, id)));
    const weights = gates.map((open, layer) => {
      const projected = (Y, name) => linear(Y, tensor(`layers.${layer}.${name}.weight`)), Y = norm(X, layer);
      const [queries, keys] = ["W_q", "W_k"].map((name) => rotate(projected(Y, name), open.length, base));
      const own = attentionWeights(queries, keys, open.length, soFar);
      X = added(X, projected(mix(own, projected(Y, "W_v"), open), "W_o"));
      return own;
    });
    return { weights, logits: linear(norm(X, gates.length), tensor("output.weight")) };
  };
}

/** The places of a row whose letter can be foretold: it followed the letter before it there, the last time that one came. */
export function foretold(row) {
  const earlier = row.map((_, i) => i > 1 ? row.lastIndexOf(row[i - 1], i - 2) : -1);
  return [...row.keys()].filter((i) => earlier[i] >= 0 && row[earlier[i] + 1] === row[i]);
}
