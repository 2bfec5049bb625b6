// The forward pass of the small Transformer that reads digits, from its parameters by the names that torch gives them.

import { attentionWeights, linear, matrix, mix, rowOf } from "./attention.js";

export function layerNorm(X, weight, bias) {
  const Y = matrix(X.rows, X.columns);
  for (let row = 0; row < X.rows; row++) {
    const x = rowOf(X, row), y = rowOf(Y, row);
    let mean = 0, variance = 0;
    for (const number of x) mean += number / x.length;
    for (const number of x) variance += (number - mean) ** 2 / x.length;
    const scale = 1 / Math.sqrt(variance + 1e-5);
    for (let i = 0; i < x.length; i++) y[i] = (x[i] - mean) * scale * weight.data[i] + bias.data[i];
  }
  return Y;
}

export const added = (X, Y) => matrix(X.rows, X.columns, X.data.map((number, i) => number + Y.data[i]));

/**
 * A model that runs.
 *
 * `parameters` are the model's state by name, `blocks` the names of its blocks. It takes patches (16, 4) and gates
 * [block][head], and returns for every block the weights [head] -> (queries, keys), and the logits (tokens, outputs).
 */
export function transformer(parameters, blocks) {
  const affine = (X, name) => linear(X, parameters[`${name}.weight`], parameters[`${name}.bias`]);
  const norm = (X, name) => layerNorm(X, parameters[`${name}.weight`], parameters[`${name}.bias`]);

  function embedPatches(patches) {
    const embedded = affine(patches, "embedding.patches");
    const X = matrix(1 + patches.rows, embedded.columns, parameters["embedding.positions"].data.slice());
    parameters["embedding.class_token"].data.forEach((number, i) => X.data[i] += number);
    embedded.data.forEach((number, i) => X.data[X.columns + i] += number);
    return X;
  }

  /** A block's output and its heads' weights. */
  function block(name, X, gates) {
    const attention = `blocks.${name}.attention`;
    const [queries, keys, values] = ["W_q", "W_k", "W_v"].map((projection) => affine(X, `${attention}.${projection}`));
    const weights = attentionWeights(queries, keys, gates.length);
    X = norm(added(X, affine(mix(weights, values, gates), `${attention}.W_o`)), `blocks.${name}.norm`);
    if (`blocks.${name}.feed_forward.0.weight` in parameters) {
      const hidden = affine(X, `blocks.${name}.feed_forward.0`);
      hidden.data.forEach((number, i) => hidden.data[i] = Math.max(number, 0));
      X = norm(added(X, affine(hidden, `blocks.${name}.feed_forward.2`)), `blocks.${name}.feed_forward_norm`);
    }
    return [X, weights];
  }

  return (patches, gates) => {
    let X = embedPatches(patches), own;
    const weights = blocks.map((name, i) => ([X, own] = block(name, X, gates[i]), own));
    return { weights, logits: affine(X, "output") };
  };
}
