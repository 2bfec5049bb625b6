"""Right answers of 04 to 06, 08 and 10 in other styles than the worked ones: name of an exercise → right answers."""

import itertools
import math

import torch

from mha_lib import MultiHeadAttention
from mha_lib.heads import statistics
from mha_lib.heads.ablation import head_shape
from mha_lib.heads.coalitions import greedy, heads_in
from mha_lib.heads.measures import monte_carlo_shapley, path_gradient

# ---------------------------------------------------------------------------------------------------------------------
# 04


def origin_by_counting(table, row, column, num_heads, head_size):
    example = 0
    while table >= num_heads:
        table, example = table - num_heads, example + 1
    return [example, row, table * head_size + column]


def origin_in_a_tensor(table, row, column, num_heads, head_size):
    example, head = divmod(table, num_heads)
    return torch.tensor([example, row, head * head_size + column])


def split_by_loops(X, num_heads):
    p = X.shape[2] // num_heads
    return torch.stack([example[:, i * p : (i + 1) * p] for example in X for i in range(num_heads)])


def split_by_a_matrix(X, num_heads):
    """Each head's columns picked by a matrix of 0 and 1."""
    columns = torch.eye(X.shape[-1]).chunk(num_heads, dim=1)
    return torch.stack([X @ own for own in columns], dim=1).flatten(end_dim=1)


def split_and_copied(X, num_heads):
    X = X.unflatten(2, (num_heads, -1)).transpose(1, 2).contiguous()
    return X.view(-1, *X.shape[2:])


def merge_by_loops(X, num_heads):
    return torch.stack([torch.cat([*X[i : i + num_heads]], dim=1) for i in range(0, len(X), num_heads)])


def merge_by_writing(X, num_heads):
    output = torch.empty(len(X) // num_heads, X.shape[1], num_heads * X.shape[2])
    for table, content in enumerate(X):
        i, head = divmod(table, num_heads)
        output[i, :, head * X.shape[2] : (head + 1) * X.shape[2]] = content
    return output


def lengths_by_loops(valid_lens, num_heads):
    return torch.stack([length for length in valid_lens for _ in range(num_heads)])


def lengths_by_broadcasting(valid_lens, num_heads):
    return valid_lens[:, None].expand(-1, num_heads, *valid_lens.shape[1:]).flatten(0, 1)


def unfused_by_slices(W, num_heads):
    p = len(W) // num_heads // 3
    parts = [[W[(3 * i + j) * p : (3 * i + j + 1) * p] for i in range(num_heads)] for j in range(3)]
    return tuple(torch.cat(rows) for rows in parts)


def unfused_by_chunks(W, num_heads):
    heads = [head.chunk(3) for head in W.chunk(num_heads)]
    return [torch.cat(parts) for parts in zip(*heads, strict=True)]


# ---------------------------------------------------------------------------------------------------------------------
# 05


def mean_distance_by_loops(weights):
    batch, num_heads, n, _ = weights.shape
    totals = torch.zeros(num_heads)
    for i, j in itertools.product(range(n), repeat=2):
        totals += weights[:, :, i, j].sum(dim=0) * abs(i - j)
    return totals / (batch * n)


def root_of_squared_distance(weights):
    places = torch.arange(weights.shape[-1])
    return (weights * (places - places[:, None]) ** 2).sum(dim=-1).mean(dim=(0, 2)).sqrt()


def share_off_five_diagonals(weights):
    near = sum(weights.diagonal(k, 2, 3).sum(dim=(0, 2)) for k in (-2, -1, 0, 1, 2))
    return 1 - near / (len(weights) * weights.shape[-1])


def evenness_by_loops(weights, valid_lens):
    found = [[] for _ in range(weights.shape[1])]
    for example, length in zip(weights, valid_lens.tolist(), strict=True):
        for h, i in itertools.product(range(len(example)), range(length)):
            row = [w for w in example[h, i].tolist() if w > 0]
            found[h].append(-sum(w * math.log(w, length) for w in row))
    return torch.tensor([sum(rows) / len(rows) for rows in found])


def evenness_by_mask(weights, valid_lens):
    keep = torch.arange(weights.shape[2])[None] < valid_lens[:, None]
    rows = -torch.where(weights > 0, weights * weights.clamp(min=1e-30).log(), 0.0).sum(dim=-1)
    rows = rows / torch.log(valid_lens.float())[:, None, None]
    return torch.stack([rows[:, h][keep].mean() for h in range(rows.shape[1])])


def heard_by_einsum(weights, values, W_o):
    W = W_o.unflatten(1, weights.shape[1:2] + values.shape[-1:])
    return torch.einsum("bhqk,bhkp,ohp->bhqko", weights, values, W).norm(dim=-1)


def heard_by_the_layer(weights, values, W_o):
    """Everything but one head's values is zero: what the layer's W_o makes of the rest."""
    batch, num_heads, num_keys, size = values.shape
    layer = MultiHeadAttention(num_heads * size, num_heads)
    layer.W_o.weight = torch.nn.Parameter(W_o)
    result = []
    for h in range(num_heads):
        alone = torch.zeros(batch, num_keys, num_heads * size)
        alone[..., h * size : (h + 1) * size] = values[:, h]
        result.append(weights[:, h] * layer.W_o(alone).norm(dim=-1)[:, None])
    return torch.stack(result, dim=1)


# ---------------------------------------------------------------------------------------------------------------------
# 06


def cuts_by_recursion(score, num_heads):
    def order_of(kept):
        if not kept:
            return []
        gone = max(kept, key=lambda head: score(tuple(other for other in kept if other != head)))
        return [gone, *order_of([other for other in kept if other != gone])]

    return order_of(list(range(num_heads)))


def cuts_by_cost(score, num_heads):
    kept, order = set(range(num_heads)), torch.empty(num_heads, dtype=torch.long)
    for turn in range(num_heads):
        _, order[turn] = min((score(kept) - score(kept - {head}), head) for head in kept)
        kept -= {order[turn].item()}
    return order


def cuts_by_table(score, num_heads):
    bits = heads_in(torch.arange(2**num_heads), num_heads)
    table = torch.tensor([score(heads.nonzero().flatten()) for heads in bits])
    return greedy(table).argsort().tolist()


def gain_by_combinations(seen, unseen, number):
    num_heads = int(math.log2(len(seen)))
    sets = [sum(2**head for head in heads) for heads in itertools.combinations(range(num_heads), number)]
    return unseen[max(sets, key=lambda heads: seen[heads])] - unseen[sets].mean()


def sampled_shares(model, batch, task):
    """What heads add when they join, in twenty random orders."""
    shape, generator = head_shape(model), torch.Generator().manual_seed(3)
    total = torch.zeros(shape)
    for _ in range(20):
        gates = torch.zeros(shape)
        before = task.accuracy(model, batch, gates)
        for head in torch.randperm(total.numel(), generator=generator).tolist():
            gates.view(-1)[head] = 1
            after = task.accuracy(model, batch, gates)
            total.view(-1)[head] += after - before
            before = after
    return total / 20


def head_by_sentences(chosen_on, judged_on):
    """The highest sum over sentences, sought head by head."""
    places = itertools.product(*map(range, chosen_on.shape[1:]))
    layer, head = max(places, key=lambda place: chosen_on[:, place[0], place[1]].sum())
    return layer, head, (judged_on[:, layer, head].sum() / len(judged_on)).item()


def strangers_by_number(first, second):
    pairs = torch.arange(len(first))
    return first[(pairs + 1) % len(first)], second[pairs - 1]


def evidence_by_cost(whole, without, others):
    """Costs instead of losses: what the whole model does cancels."""
    more = (without - whole) - (others - whole).mean(dim=0)
    return more.mean().item(), (more.var() / more.numel()).sqrt().item()


ROLES = ["same word", "next", "even", "previous", "first", "itself"]
# ---------------------------------------------------------------------------------------------------------------------
# 08 and 10


def step_in_full(new, K, V, W_q, W_k, W_v, W_o):
    """One new token and one head at a time, on the keys so far."""
    num_heads, size = K.shape[1], K.shape[3]
    output = torch.zeros_like(new)
    for b in range(len(new)):
        for t in range(new.shape[1]):
            heads = []
            for h in range(num_heads):
                rows = slice(h * size, (h + 1) * size)
                keys = torch.cat([K[b, h], new[b, : t + 1] @ W_k[rows].T])
                values = torch.cat([V[b, h], new[b, : t + 1] @ W_v[rows].T])
                weights = torch.softmax(keys @ (W_q[rows] @ new[b, t]) / math.sqrt(size), dim=0)
                heads.append(weights @ values)
            output[b, t] = W_o @ torch.cat(heads)
    return output


def step_by_kernel(new, K, V, W_q, W_k, W_v, W_o):
    q, k, v = ((new @ W.T).unflatten(-1, (K.shape[1], -1)).transpose(1, 2) for W in (W_q, W_k, W_v))
    k, v = torch.cat([K, k], dim=2), torch.cat([V, v], dim=2)
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return heads.transpose(1, 2).flatten(2) @ W_o.T


def rope_by_complex_numbers(X, places, base):
    pairs = torch.view_as_complex(X.unflatten(-1, (-1, 2)).contiguous())
    angles = places[:, None] / base ** (torch.arange(0, X.shape[-1], 2) / X.shape[-1])
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def rope_by_loops(X, places, base):
    output, size = X.clone(), X.shape[-1]
    for n, place in enumerate(places.tolist()):
        for j in range(size // 2):
            angle = place * base ** (-2 * j / size)
            x, y = X[..., n, 2 * j], X[..., n, 2 * j + 1]
            output[..., n, 2 * j] = x * math.cos(angle) - y * math.sin(angle)
            output[..., n, 2 * j + 1] = x * math.sin(angle) + y * math.cos(angle)
    return output


def gqa_by_loops(W, num_heads, num_key_value_heads):
    heads = W.chunk(num_heads)
    count = num_heads // num_key_value_heads
    return torch.cat([sum(heads[g * count : (g + 1) * count]) / count for g in range(num_key_value_heads)])


def blocks_by_plain_softmax(queries, keys, values, allowed, block_size):
    scores = (queries @ keys.T / math.sqrt(queries.shape[1])).masked_fill(~allowed, -math.inf)
    return torch.softmax(scores, dim=1) @ values


def induction_by_comparing(weights, letters):
    n = len(letters)
    same = (letters[:, None] == letters) & torch.ones(n, n, dtype=torch.bool).tril(-1)
    return (weights * same.roll(1, dims=1)).sum(dim=(1, 2)) / same.any(dim=1).sum()


def goes_on_by_dictionary(letters):
    after, answers, row = {}, [], letters.tolist()
    for t, letter in enumerate(row):
        if t:
            after[row[t - 1]] = letter
        answers.append(after.get(letter, -1))
    return torch.tensor(answers)


def reordered_by_rows(W_q, W_k, W_v, W_o, num_heads, order):
    size = len(W_q) // num_heads
    rows = torch.cat([torch.arange(head * size, (head + 1) * size) for head in order.tolist()])
    return [W_q[rows], W_k[rows], W_v[rows], W_o[:, rows]]


ON_HEADS = {
    "origin": [origin_by_counting, origin_in_a_tensor],
    "transpose_qkv": [
        split_by_loops,
        split_by_a_matrix,
        split_and_copied,
        lambda X, h: torch.stack(X.chunk(h, dim=-1), dim=1).flatten(0, 1),
        lambda X, h: torch.einsum("bnhp->bhnp", X.reshape(*X.shape[:2], h, -1)).flatten(0, 1),
    ],
    "transpose_output": [
        merge_by_loops,
        merge_by_writing,
        lambda X, h: torch.cat(X.reshape(-1, h, *X.shape[1:]).unbind(1), dim=-1),
    ],
    "lengths_for_heads": [
        lengths_by_loops,
        lengths_by_broadcasting,
        lambda lens, h: lens[torch.arange(len(lens) * h) // h],
        lambda lens, h: torch.stack([lens] * h, dim=1).reshape(len(lens) * h, *lens.shape[1:]).float(),
    ],
    "split_fused": [unfused_by_slices, unfused_by_chunks, lambda W, h: torch.stack([*unfused_by_slices(W, h)])],
    "head_roles": [
        tuple(ROLES),
        dict(enumerate(ROLES)),
        {head: ROLES[head] for head in (5, 3, 1, 0, 2, 4)},
        [f" {role.upper()} " for role in ROLES],
    ],
    "reach": [
        statistics.mean_distance,
        mean_distance_by_loops,
        root_of_squared_distance,
        share_off_five_diagonals,
        lambda weights: statistics.mean_distance(weights[:1]),
    ],
    "evenness": [evenness_by_loops, evenness_by_mask],
    "heard": [heard_by_einsum, heard_by_the_layer],
    "fair_shares": [(0.4, 0.2, 0.2), torch.tensor([0.4, 0.2, 0.2]), [2.4 / 6, 0.2, 1 / 5], [0.4, 0.203, 0.199]],
    "order_of_cuts": [cuts_by_recursion, cuts_by_cost, cuts_by_table],
    "honest_gain": [gain_by_combinations],
    "find_head": [head_by_sentences],
    "strangers": [strangers_by_number],
    "evidence": [evidence_by_cost],
    "own_importance": [sampled_shares, path_gradient, monte_carlo_shapley],
    "step": [step_in_full, step_by_kernel],
    "rope": [rope_by_complex_numbers, rope_by_loops],
    "to_gqa": [gqa_by_loops],
    "blockwise_attention": [blocks_by_plain_softmax],
    "previous_token_share": [lambda weights: torch.stack([head[1:, :-1].diag().mean() for head in weights])],
    "induction_share": [induction_by_comparing],
    "goes_on": [goes_on_by_dictionary],
    "reorder_heads": [reordered_by_rows],
}
