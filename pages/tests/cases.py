"""Answers to the exercises that have a page: right ones in further styles, and wrong ones by another hand."""

import inspect

STYLES = {  # bodies of the functions, or of a class's method forward
    "layer_by_formula": """
        pairs = (self.W_q, queries), (self.W_k, keys), (self.W_v, values)
        Q, K, V = (W(X).unflatten(-1, (self.num_heads, -1)) for W, X in pairs)
        scores = torch.einsum("bqhp,bkhp->bhqk", Q, K) * Q.shape[-1] ** -0.5
        if valid_lens is not None:
            scores = scores.masked_fill(torch.arange(keys.shape[1]) >= valid_lens.view(len(keys), 1, -1, 1), -math.inf)
        self.attention_weights = scores.softmax(-1).nan_to_num(0)
        return self.W_o(torch.einsum("bhqk,bkhp->bqhp", self.dropout(self.attention_weights), V).flatten(2))

        maps, outputs, p = [], [], queries.shape[-1] // self.num_heads
        for head in range(self.num_heads):
            own = slice(head * p, (head + 1) * p)
            Q, K, V = self.W_q(queries)[..., own], self.W_k(keys)[..., own], self.W_v(values)[..., own]
            maps.append(masked_softmax(Q @ K.mT / math.sqrt(p), valid_lens))
            outputs.append(self.dropout(maps[-1]) @ V)
        self.attention_weights = torch.stack(maps, dim=1)
        return self.W_o(torch.cat(outputs, dim=-1))

        b, n, d = queries.shape
        maps = (self.W_q, queries), (self.W_k, keys), (self.W_v, values)
        Q, K, V = [W(X).view(b, -1, self.num_heads, d // self.num_heads).transpose(1, 2) for W, X in maps]
        self.attention_weights = masked_softmax(Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1)), valid_lens)
        return self.W_o((self.dropout(self.attention_weights) @ V).transpose(1, 2).reshape(b, n, d))

        maps, output = [], self.W_o.bias if self.W_o.bias is not None else 0
        columns = self.W_o.weight.chunk(self.num_heads, 1)
        parts = [X.chunk(self.num_heads, -1) for X in (self.W_q(queries), self.W_k(keys), self.W_v(values))]
        for q, k, v, o in zip(*parts, columns):
            maps.append(masked_softmax(torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5, valid_lens))
            output = output + torch.bmm(F.dropout(maps[-1], self.dropout.p, self.training), v) @ o.T
        self.attention_weights = torch.stack(maps, 1)
        return output

        split = lambda X: X.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        scores = split(self.W_q(queries)) @ split(self.W_k(keys)).mT / (queries.shape[-1] / self.num_heads) ** 0.5
        if valid_lens is not None:
            valid = torch.arange(keys.shape[1]) < valid_lens.reshape(len(keys), 1, -1, 1)
            scores = torch.where(valid, scores, -1e9)
        self.attention_weights = F.softmax(scores, dim=-1)
        heads = self.dropout(self.attention_weights) @ split(self.W_v(values))
        return self.W_o(heads.transpose(1, 2).flatten(2))
""",
    "transpose_qkv": """
    X = X.reshape(X.shape[0], X.shape[1], num_heads, -1).permute(0, 2, 1, 3)
    return X.reshape(-1, X.shape[2], X.shape[3])

    return X.unflatten(-1, (num_heads, -1)).transpose(1, 2).flatten(0, 1)

    batch, n, d = X.shape
    p = d // num_heads
    out = torch.zeros(batch * num_heads, n, p)
    for b in range(batch):
        for h in range(num_heads):
            out[b * num_heads + h] = X[b, :, h * p:(h + 1) * p]
    return out

    return torch.stack(X.chunk(num_heads, dim=-1), dim=1).view(-1, X.shape[1], X.size(2) // num_heads)

    b, n, d = X.size()
    X = torch.einsum("bnhp->bhnp", X.view(b, n, num_heads, d // num_heads))
    return X.contiguous().view(b * num_heads, n, d // num_heads)
""",
    "transpose_output": """
    X = X.reshape(-1, num_heads, X.shape[1], X.shape[2]).permute(0, 2, 1, 3)
    return X.reshape(X.shape[0], X.shape[1], -1)

    return X.unflatten(0, (-1, num_heads)).transpose(1, 2).flatten(2)

    rows = []
    for i in range(0, X.shape[0], num_heads):
        rows.append(torch.cat([X[i + h] for h in range(num_heads)], dim=1))
    return torch.stack(rows)

    return torch.cat([X[h::num_heads] for h in range(num_heads)], dim=-1)

    t, n, p = X.shape
    return X.view(t // num_heads, num_heads, n, p).movedim(1, 2).contiguous().view(-1, n, num_heads * p)
""",
    "masked_weights": """
    if valid.dtype != torch.bool:
        valid = torch.arange(scores.size(-1)) < (valid[:, None, None] if valid.dim() == 1 else valid[:, :, None])
    weights = torch.softmax(torch.where(valid, scores, -torch.inf), dim=-1)
    return torch.where(weights.isnan(), 0.0, weights)

    out = torch.zeros_like(scores)
    for b in range(scores.shape[0]):
        for i in range(scores.shape[1]):
            row = valid[b] if valid.dim() == 1 else valid[b, i]
            kept = row if valid.dtype == torch.bool else torch.arange(scores.shape[2]) < row
            if kept.any():
                out[b, i, kept] = torch.softmax(scores[b, i, kept], dim=0)
    return out

    mask = valid
    if valid.dtype is not torch.bool:
        lengths = valid.unsqueeze(-1) if valid.dim() == 1 else valid
        mask = torch.arange(scores.shape[2])[None, None, :].expand(scores.shape) < lengths.unsqueeze(-1)
    s = scores.clone()
    s[mask.expand_as(s).logical_not()] = -math.inf
    top = s.amax(dim=-1, keepdim=True).clamp(min=-3e38)
    e = torch.exp(s - top)
    return e / e.sum(dim=-1, keepdim=True).clamp(min=1e-30)

    if valid.dtype != torch.bool:
        valid = (torch.arange(scores.shape[-1]) < valid.reshape(len(valid), -1, 1)).expand(scores.shape)
    low = torch.full_like(scores, torch.finfo(scores.dtype).min)
    return F.softmax(torch.where(valid, scores, low), dim=-1).masked_fill(~valid, 0)

    if valid.dtype == torch.long:
        lengths = valid if valid.dim() == 2 else valid.view(-1, 1).repeat(1, scores.shape[1])
        valid = torch.arange(scores.shape[-1]).view(1, 1, -1) < lengths.unsqueeze(2)
    return scores.masked_fill(valid == False, -math.inf).softmax(-1).nan_to_num(0.0)
""",
    "sum_over_heads": """
    p = W_q.shape[0] // num_heads
    total = torch.zeros(queries.shape[0], queries.shape[1], W_o.shape[0])
    for h in range(num_heads):
        a, b = h * p, h * p + p
        Q, K, V = queries @ W_q[a:b].T, keys @ W_k[a:b].T, values @ W_v[a:b].T
        A = masked_softmax(torch.bmm(Q, K.transpose(1, 2)) / math.sqrt(p), valid_lens)
        total += torch.bmm(A, V) @ W_o[:, a:b].T
    return total

    parts = []
    for q, k, v, o in zip(W_q.chunk(num_heads), W_k.chunk(num_heads), W_v.chunk(num_heads), W_o.chunk(num_heads, 1)):
        scores = (queries @ q.t()) @ (keys @ k.t()).transpose(-2, -1) * len(q) ** -0.5
        parts.append(masked_softmax(scores, valid_lens) @ (values @ v.t()) @ o.t())
    return torch.stack(parts).sum(0)

    pairs = ((queries, W_q), (keys, W_k), (values, W_v))
    Q, K, V = [(X @ W.T).unflatten(-1, (num_heads, -1)).transpose(1, 2) for X, W in pairs]
    mask = torch.arange(K.shape[2]) >= valid_lens[:, None, None, None]
    A = torch.softmax((Q @ K.mT / Q.shape[-1] ** 0.5).masked_fill(mask, -1e6), dim=-1)
    return (A @ V).transpose(1, 2).flatten(2) @ W_o.T

    heads = []
    for i in range(num_heads):
        rows = torch.arange(len(W_q)).reshape(num_heads, -1)[i]
        q, k, v = F.linear(queries, W_q[rows]), F.linear(keys, W_k[rows]), F.linear(values, W_v[rows])
        w = masked_softmax(torch.einsum("bqp,bkp->bqk", q, k) / math.sqrt(len(rows)), valid_lens)
        heads.append(w @ v)
    return F.linear(torch.cat(heads, dim=-1), W_o)

    p = W_q.size(0) // num_heads
    W_q, W_k, W_v = (W.view(num_heads, p, -1) for W in (W_q, W_k, W_v))
    heads = ((queries @ q.mT, keys @ k.mT, values @ v.mT) for q, k, v in zip(W_q, W_k, W_v))
    outputs = [masked_softmax(q @ k.mT / math.sqrt(p), valid_lens) @ v for q, k, v in heads]
    return torch.cat(outputs, 2) @ W_o.T
""",
}
LAYER = """class MultiHeadAttention(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout=0.0, bias=False):
        super().__init__()
        self.num_heads, self.dropout = num_heads, nn.Dropout(dropout)
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(num_hiddens, num_hiddens, bias=bias) for _ in range(4))

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
"""
VALID = "(torch.arange(scores.shape[-1]) < valid_lens[:, None, None])"
WEIGHTS, FILL = "masked_softmax(scores, valid_lens)", "scores if valid_lens is None else scores.masked_fill"
WRONG_LAYERS = f"""
/ math.sqrt(Q.shape[-1]) -> _ || math.sqrt(Q.shape[-1]) -> math.sqrt(h) || math.sqrt(Q.shape[-1]) -> Q.shape[-1]
    || math.sqrt(Q.shape[-1]) -> math.sqrt(queries.shape[-1]) || / math.sqrt -> * math.sqrt || self.W_v(values) ->
    self.W_k(values) || self.W_v(values) -> self.W_v(keys) || self.W_k(keys) -> self.W_q(keys) || self.W_q(queries)
    -> self.W_k(queries) ; self.W_k(keys) -> self.W_q(keys) || transpose_qkv(self.W_v(values), h) ->
    self.W_v(values).reshape(K.shape) || transpose_output(heads, h) -> heads.reshape(queries.shape) ||
    transpose_output(heads, h) -> heads || .repeat_interleave(h, dim=0) -> .repeat(h) || .repeat_interleave(h,
    dim=0) -> _ || self.W_o( -> ( || return self -> return queries + self || self.dropout(weights), V -> weights, K
    || {WEIGHTS} -> scores.softmax(-1) || {WEIGHTS} -> scores.softmax(1) || {WEIGHTS} -> ({FILL}(~{VALID},
    0.0)).softmax(-1) || {WEIGHTS} -> ({FILL}(~{VALID}, -100.0)).softmax(-1) || {WEIGHTS} -> ({FILL}({VALID},
    -1e9)).softmax(-1) || {WEIGHTS} -> scores.exp() / scores.exp().sum(-1, keepdim=True) || {WEIGHTS} ->
    {WEIGHTS}.softmax(-1) || {WEIGHTS} -> scores || h = self.num_heads -> h = 1 || self.dropout(weights) ->
    F.dropout(weights, self.dropout.p) || self.attention_weights = -> weights_by_head = || = weights.unflatten(0,
    (-1, h)) -> = weights || = weights.unflatten(0, (-1, h)) -> $.mean(1) || = weights.unflatten -> =
    self.dropout(weights).unflatten || bias=bias -> bias=False || bias=bias -> bias=True || transpose_output(heads,
    h)) -> $, weights || if valid_lens is not None: -> if True: || K.transpose(1, 2) -> K || self.num_heads =
    num_heads -> pass || super().__init__() -> pass || self.W_q = -> self.wq = || return self -> self ||
    self.W_q(queries) -> self.W_q(queries.mul_(2)) => wrong
"""
RETURNS = """-R; R[:1]; [R]; (R,); list(R); R.tolist(); R + 1; R * 3; R.mT; R.sum(1); R.flip(0); R.roll(1, 1); None; 'R'
R.shape; R[None]; R.mT.view(-1); R + Q; R @ R; R * 0; R / 2; R > 0; R.long(); R.abs(); R * R; R.softmax(-1); R.mean(0)
R.reshape(len(R) / 1, -1)"""  # what is returned instead of the right result R: slips of any exercise


def right_answers(exercise, worked):
    """The sources of five right answers, behind the worked one."""
    if exercise.__name__ == "layer_by_formula":
        return [worked, *(LAYER + body.strip("\n") + "\n" for body in STYLES[exercise.__name__].split("\n\n"))]
    head = f"def {exercise.__name__}({', '.join(inspect.signature(exercise.right).parameters)}):\n"
    return [worked, *(head + body.strip("\n") + "\n" for body in STYLES[exercise.__name__].split("\n\n"))]


def other_answers(solution):
    """Wrong answers by no table: what is returned is changed in the worked answer's last line."""
    head, _, last = solution.rstrip().rpartition("return ")
    indent = head.rpartition("\n")[2]
    return [f"{head}R = {last}\n{indent}return {code.strip()}\n" for code in RETURNS.replace("\n", ";").split(";")]
