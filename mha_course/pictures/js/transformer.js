// The forward pass of mha_lib's small Transformers, from their parameters by the names that torch gives them.

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
 * `parameters` are the model's state by name, `blocks` the names of its blocks. `run(inputs, gates)` takes what the
 * model's embedding does, {patches} or {ids, fields} or {source, target}, with `valid` tokens, and gates [block][head]. It
 * returns for every block the weights [block][head] -> (queries, keys) and `valid`, how many keys counted (for each
 * query, where they differ), and the logits (tokens, outputs).
 */
export function transformer(parameters, blocks) {
  const affine = (X, name) => linear(X, parameters[`${name}.weight`], parameters[`${name}.bias`]);
  const norm = (X, name) => layerNorm(X, parameters[`${name}.weight`], parameters[`${name}.bias`]);

  /** ids (n * fields) -> (n, hiddens): the sum of each token's vectors, and its position's. */
  function embedTokens(ids, fields, name) {
    const table = parameters[`${name}.tokens.weight`], positions = parameters[`${name}.positions`];
    const X = matrix(ids.length / fields, table.columns);
    X.data.set(positions.data.subarray(0, X.data.length));
    ids.forEach((id, i) => {
      const x = rowOf(X, Math.floor(i / fields));
      rowOf(table, id).forEach((number, j) => x[j] += number);
    });
    return X;
  }

  function embedPatches(patches) {
    const embedded = affine(patches, "embedding.patches");
    const X = matrix(1 + patches.rows, embedded.columns, parameters["embedding.positions"].data.slice());
    parameters["embedding.class_token"].data.forEach((number, i) => X.data[i] += number);
    embedded.data.forEach((number, i) => X.data[X.columns + i] += number);
    return X;
  }

  /** A block's output and its heads' weights; tokens X look at `context`. */
  function block(name, X, context, valid, gates) {
    const attention = `blocks.${name}.attention`;
    const queries = affine(X, `${attention}.W_q`);
    const [keys, values] = ["W_k", "W_v"].map((projection) => affine(context, `${attention}.${projection}`));
    const weights = attentionWeights(queries, keys, gates.length, valid);
    X = norm(added(X, affine(mix(weights, values, gates), `${attention}.W_o`)), `blocks.${name}.norm`);
    if (`blocks.${name}.feed_forward.0.weight` in parameters) {
      const hidden = affine(X, `blocks.${name}.feed_forward.0`);
      hidden.data.forEach((number, i) => hidden.data[i] = Math.max(number, 0));
      X = norm(added(X, affine(hidden, `blocks.${name}.feed_forward.2`)), `blocks.${name}.feed_forward_norm`);
    }
    return [X, weights];
  }

  function runEncoder(X, valid, gates) {
    const weights = blocks.map((name, i) => {
      const [output, seen] = block(name, X, X, valid, gates[i]);
      X = output;
      return seen;
    });
    return { weights, valid: blocks.map(() => valid), logits: affine(X, "output") };
  }

  function runEncoderDecoder({ source, target, valid }, gates) {
    const from = embedTokens(source, 1, "source_embedding"), to = embedTokens(target, 1, "target_embedding");
    const soFar = Array.from(target, (_, i) => i + 1);
    const [X, first] = block("encoder", from, from, valid, gates[0]);
    const [Y, second] = block("decoder", to, to, soFar, gates[1]);
    const [Z, third] = block("cross", Y, X, valid, gates[2]);
    return { weights: [first, second, third], valid: [valid, soFar, valid], logits: affine(Z, "output") };
  }

  function run(inputs, gates) {
    if (inputs.source) return runEncoderDecoder(inputs, gates);
    const X = inputs.patches ? embedPatches(inputs.patches) : embedTokens(inputs.ids, inputs.fields, "embedding");
    return runEncoder(X, inputs.valid ?? X.rows, gates);
  }
  return { run };
}
