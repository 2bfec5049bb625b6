"""Wrong layers by rule: one line of a right layer of a kind is written otherwise, whatever the check's tables hold."""

import math

import torch
import torch.nn.functional as F  # noqa: F401 (lines of layers use it)
from torch import nn

RIGHT = """
def forward(self, x, valid_lens=None):
    B, N, D = x.shape
    H, P = self.heads, D // self.heads
    valid_lens = torch.full((B,), N) if valid_lens is None else valid_lens
    keep = (torch.arange(N) < valid_lens[:, None, None, None]).expand(B, 1, N, N)
    keep = keep & CAUSAL
    q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)
    q, k, v = (t.view(B, N, H, P).transpose(1, 2) for t in (q, k, v))
    q, k = NORM(q), NORM(k)
    q, k = TURN(q), TURN(k)
    s = q @ k.transpose(-2, -1)
    s = s / math.sqrt(P)
    s = s + BIAS
    s = s.masked_fill(~keep, -math.inf)
    a = s.softmax(-1)
    a = torch.dropout(a, self.rate, self.training)
    o = a @ v
    o = o.transpose(1, 2).reshape(B, N, D)
    return self.W_o(o)
"""
KINDS = {  # what is put in for the words in capitals
    "plain": {},
    "causal": {"CAUSAL": "torch.ones(N, N).tril().bool()"},
    "rotary": {"TURN": "rotary", "CAUSAL": "torch.ones(N, N).tril().bool()"},
    "rotary neighbours": {"TURN": "of_pairs"},
    "normed": {"NORM": "rms"},
    "normed and rotary": {"NORM": "rms", "TURN": "rotary", "CAUSAL": "torch.ones(N, N).tril().bool()"},
    "alibi": {"BIAS": "alibi(H, N)", "CAUSAL": "torch.ones(N, N).tril().bool()"},
}
NOTHING = {"CAUSAL": "True", "TURN": "", "NORM": "", "BIAS": "0"}
SCORES, SOFTMAX, SPLIT = "s = s / math.sqrt(P)", "a = s.softmax(-1)", "t.view(B, N, H, P).transpose(1, 2)"
MERGE, MAPS = "o.transpose(1, 2).reshape(B, N, D)", "self.W_q(x), self.W_k(x), self.W_v(x)"
ANY = {  # what stands there → what is written instead → words that a true name has
    (SCORES, "pass"): ["not divided", "should not change with the size"],
    (SCORES, "s = s * math.sqrt(P)"): ["multiplied by √", "should not change with the size"],
    (SCORES, "s = s / P"): ["by the head size instead", "should not change with the size"],
    (SOFTMAX, "a = s.softmax(-1).softmax(-1)"): ["applied twice"],
    (SOFTMAX, "a = s.masked_fill(~keep, 0)"): ["no softmax"],
    (SOFTMAX, "a = s.nan_to_num(neginf=-1e9).softmax(-2)"): ["over the queries"],
    (SOFTMAX, "a = s.nan_to_num(neginf=-1e9).softmax(1)"): ["over the heads"],
    (MERGE, "o.reshape(B, N, D)"): ["merged by a reshape"],
    (MERGE, "o.permute(0, 2, 3, 1).flatten(2)"): ["interleaved"],
    (MERGE, "o.flip(1).transpose(1, 2).reshape(B, N, D)"): ["reverse order"],
    ("self.W_o(o)", "o"): ["W_o has no effect"],
    ("self.W_o(o)", "self.W_o(o).relu()"): ["ReLU follows"],
    (MAPS, "self.W_q(x), self.W_k(x), self.W_k(x)"): ["values go through W_k", "keys are averaged"],
    (MAPS, "self.W_k(x), self.W_q(x), self.W_v(x)"): ["W_q and W_k have changed places"],
}
PLAIN = {
    (SPLIT, "t.view(B, H, N, P)"): ["split into heads by a reshape"],
    (SPLIT, "t.view(B, N, P, H).permute(0, 3, 1, 2)"): ["changed places", "every num_heads-th"],
    (SCORES, "s = s / math.sqrt(D)"): ["√num_hiddens"],
    (SCORES, "s = s / math.sqrt(N)"): ["root of a size"],
    ("o = a @ v", "o = a @ k"): ["keys are averaged"],
    ("~keep, -math.inf", "~keep, 0"): ["become 0 before the softmax"],
    ("~keep, -math.inf", "~keep, -10.0"): ["not low enough"],
    ("~keep, -math.inf", "keep, -1e9"): ["inverted"],
    ("~keep, -math.inf", "~keep.mT, -1e9"): ["on the queries"],
    ("s = s.masked_fill(~keep, -math.inf)", "pass"): ["mask has no effect"],
    ("o = a @ v", "o = (a @ v) / H"): ["averaged instead of added"],
}
TURNED = {
    ("TURN(q), TURN(k)", "TURN(q), k"): ["queries alone"],
    ("TURN(q), TURN(k)", "q, TURN(k)"): ["keys alone"],
    ("TURN(q), TURN(k)", "TURN(q), TURN(k); v = TURN(v)"): ["values as well"],
    ("TURN(q), TURN(k)", "TURN(q), TURN(k, sign=-1)"): ["opposite directions"],
    ("TURN(q), TURN(k)", "TURN(TURN(q)), TURN(TURN(k))"): ["twice"],
    ("TURN(q), TURN(k)", "TURN(q), TURN(k, start=1)"): ["differ by one"],
}
NORMED = {
    ("NORM(q), NORM(k)", "NORM(q), k"): ["queries alone"],
    ("NORM(q), NORM(k)", "q, NORM(k)"): ["keys alone"],
    ("NORM(q), NORM(k)", "NORM(q), NORM(k); v = NORM(v)"): ["values as well"],
    ("NORM(q), NORM(k)", "NORM(q, 2), NORM(k, 2)"): ["over the tokens"],
}
SLOPED = {("+ BIAS", "- BIAS"): ["grows with the distance"], ("alibi(H, N)", "alibi(H, N).flip(0)"): ["reverse order"]}


def rotary(x, sign=1, start=0):
    angles = sign * (torch.arange(x.shape[2]) + start)[:, None] / 10000 ** (torch.arange(0, x.shape[3], 2) / x.shape[3])
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


def of_pairs(x, sign=1, start=0):
    halves = torch.cat([x[..., ::2], x[..., 1::2]], dim=-1)
    return torch.stack(rotary(halves, sign, start).chunk(2, dim=-1), dim=-1).flatten(-2)


def rms(x, dim=-1):
    return x / (x.square().mean(dim, keepdim=True) + 1e-6).sqrt()


def alibi(heads, number):
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * i / power) for i in range(1, power + 1)]
    slopes += [2 ** (-4 * i / power) for i in range(1, 2 * (heads - power), 2)]
    distance = (torch.arange(number)[:, None] - torch.arange(number)).abs()
    return -torch.tensor(slopes)[:, None, None] * distance


def layer(kind, old="", new=""):
    """A class of layers of a kind, with one piece of its source written otherwise."""
    source = RIGHT
    for word, put in {**NOTHING, **KINDS[kind]}.items():
        source, old, new = (text.replace(word, put) for text in (source, old, new))
    assert not old or source.count(old) == 1, old
    names = dict(globals())
    exec(source.replace(old, new) if old else source, names)

    class Made(nn.Module):
        forward = names["forward"]

        def __init__(self, size, heads, dropout=0.0):
            super().__init__()
            self.heads, self.rate = heads, dropout
            self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(size, size, bias=False) for _ in range(4))

    return Made


WRONG = [
    (kind, old, new, words)
    for kind, rules in {
        "plain": ANY | PLAIN,
        "rotary": ANY | TURNED,
        "normed": {rule: words for rule, words in ANY.items() if rule[1] != "s = s / P"} | NORMED,  # it is a cosine
        "normed and rotary": dict(list(ANY.items())[:7]) | TURNED,
        "rotary neighbours": TURNED,
        "alibi": dict(list(ANY.items())[:10]) | SLOPED,
    }.items()
    for (old, new), words in rules.items()
]
