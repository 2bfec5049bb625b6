"""Heads that stream, held against double loops, mask rules and masks of torch's own layer, in double precision."""

import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_lib import heads
from mha_lib.heads import Stream

sys.path.append(str(Path(__file__).parents[1] / "models"))
from small_language_model import small_language_model

SINKS, WINDOW, TOKENS = 2, 3, 9
STREAM = Stream(SINKS, WINDOW)


def sees(i, j, sinks=SINKS, window=WINDOW):
    return j <= i and (j < sinks or j > i - window)


def looped(num_queries, num_keys, sinks, window):
    """Query by query and key by key."""
    first = num_keys - num_queries
    rows = [[sees(first + i, j, sinks, window) for j in range(num_keys)] for i in range(num_queries)]
    return torch.tensor(rows)


@pytest.mark.parametrize(
    "sizes", [(9, 9, 2, 3), (4, 9, 2, 3), (1, 9, 0, 1), (9, 9, 0, 4), (9, 9, 3, 1), (5, 5, 7, 2), (5, 5, 1, 9)]
)
def test_masks_are_those_of_a_double_loop(sizes):
    num_queries, num_keys, sinks, window = sizes
    assert torch.equal(Stream(sinks, window).allowed(num_queries, num_keys), looped(*sizes))


class Causal(nn.Module):
    """One causal layer of six heads on two key-value heads. How attention is computed is a function."""

    def __init__(self, attend):
        super().__init__()
        self.into, self.out, self.attend = nn.Linear(24, 40), nn.Linear(24, 24), attend

    def forward(self, X):
        Q, K, V = (Z.unflatten(-1, (-1, 4)).transpose(1, 2) for Z in self.into(X).split((24, 8, 8), dim=-1))
        return self.out(self.attend(Q, K, V).transpose(1, 2).flatten(2))


def shared_out(*both):
    return (X.repeat_interleave(3, dim=1) for X in both)


def fused(Q, K, V):
    return F.scaled_dot_product_attention(Q, K, V, is_causal=True, enable_gqa=True)


def fused_with_mask(Q, K, V):
    mask = torch.full((TOKENS, TOKENS), -torch.inf).triu(1).to(Q)
    return F.scaled_dot_product_attention(Q, *shared_out(K, V), attn_mask=mask)


def scores_of(Q, K):
    return (Q @ K.mT / 2).masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), -torch.inf)


def by_formula(Q, K, V):
    K, V = shared_out(K, V)
    return scores_of(Q, K).softmax(-1) @ V


def folded(Q, K, V):
    Q, K, V = (X.flatten(0, 1) for X in (Q, *shared_out(K, V)))
    return torch.bmm(torch.softmax(scores_of(Q, K), dim=-1), V).unflatten(0, (-1, 6))


def with_sink(Q, K, V):
    """One more logit, for a sink that is no token."""
    K, V = shared_out(K, V)
    scores = torch.cat([scores_of(Q, K), torch.full((*Q.shape[:-1], 1), 0.3).to(Q)], dim=-1)
    return torch.matmul(scores.softmax(-1)[..., :-1], V)


def expected(model, X, gates, sinks=SINKS, window=WINDOW, has_sink=False):
    """The same output by loops over examples, heads, queries and keys."""
    Q, K, V = (Z.unflatten(-1, (-1, 4)) for Z in model.into(X).split((24, 8, 8), dim=-1))
    rows = []
    for b in range(len(X)):
        for i in range(TOKENS):
            parts = []
            for h in range(6):
                both = []
                for keys in (range(i + 1), [j for j in range(TOKENS) if sees(i, j, sinks, window)]):
                    sizes = [(Q[b, i, h] @ K[b, j, h // 3] / 2).exp() for j in keys]
                    total = sum(sizes) + (torch.tensor(0.3).double().exp() if has_sink else 0)
                    both.append(sum(size * V[b, j, h // 3] for size, j in zip(sizes, keys, strict=True)) / total)
                parts.append(gates[h] * both[0] + (1 - gates[h]) * both[1])
            rows.append(torch.cat(parts))
    return model.out(torch.stack(rows).unflatten(0, X.shape[:2]))


@pytest.fixture(params=[fused, fused_with_mask, by_formula, folded, with_sink])
def made(request):
    torch.manual_seed(3)
    model, X = Causal(request.param).double().eval(), torch.randn(2, TOKENS, 24).double()
    return model, X, heads.of(model, X), {"has_sink": request.param is with_sink}


def close(first, second):
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)


def test_heads_stream_as_in_a_double_loop(made):
    model, X, found, how = made
    (name,) = found.layers
    gates = torch.ones(6).double()
    gates[[1, 3, 4]] = 0
    whole = model(X)
    with found.ablated({name: [1, 3, 4]}, by="stream", sinks=SINKS, window=WINDOW):
        streaming = model(X)
    close(streaming, expected(model, X, gates, **how))
    assert torch.equal(model(X), whole) and (whole - streaming).abs().max() > 1e-3
    for sinks, window in ((SINKS + 1, WINDOW), (SINKS - 1, WINDOW), (SINKS, WINDOW + 1), (SINKS, WINDOW - 1)):
        other = expected(model, X, gates, sinks, window, **how)
        assert (streaming - other).abs().max() > 1e-5


def test_gates_mix_both_and_have_the_gradient_of_the_loop(made):
    model, X, found, how = made
    (name,) = found.layers
    gates = torch.tensor([0.3, 1.0, 0.0, 0.8, 0.5, 0.1]).double().requires_grad_()
    with found.gates({name: gates}, STREAM):
        mixed = model(X)
    wanted = expected(model, X, gates, **how)
    close(mixed, wanted)
    close(*(torch.autograd.grad(Y.square().sum(), gates)[0] for Y in (mixed, wanted)))


def test_importance_is_minus_the_gradient_of_the_gate_for_each_example(made):
    model, X, found, how = made
    (name,) = found.layers
    measured = found.gate_gradient(lambda model, X: model(X).square().sum(dim=(1, 2)), [X], by=STREAM)
    for b in range(2):
        gates = torch.ones(6).double().requires_grad_()
        loss = expected(model, X[b : b + 1], gates, **how).square().sum()
        close(measured.each[name][:, b], -torch.autograd.grad(loss, gates)[0])
    costs = found.leave_one_out(lambda model, X: model(X).square().sum(dim=(1, 2)), [X], by=STREAM)
    for head in range(6):
        with torch.no_grad(), found.ablated({name: [head]}, by=STREAM):
            rise = model(X).square().sum(dim=(1, 2))
        close(costs.each[name][head], (rise - model(X).square().sum(dim=(1, 2))).detach())


def test_by_stream_alone_means_four_sinks_and_a_window_of_24():
    torch.manual_seed(0)
    model, X = Causal(fused).eval(), torch.randn(1, 40, 24)
    found = heads.of(model, X)
    with found.ablated({"": [2]}, by="stream"):
        default = model(X)
    with found.ablated({"": [2]}, by="stream", sinks=4, window=24):
        assert torch.equal(model(X), default)
    loss = lambda model: model(X).square().mean(dim=(1, 2))  # noqa: E731
    measured = [found.gate_gradient(loss, by=by)[""] for by in ("stream", Stream(4, 24), Stream(4, 23))]
    assert torch.equal(*measured[:2]) and not torch.equal(*measured[1:])


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", [torch.bool, torch.float64])
def test_torchs_layers_stream_as_with_a_mask_for_each_head(kind, batch_first):
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(24, 4, 16, batch_first=batch_first).double()
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    X = torch.randn(2, TOKENS, 24).double()
    X = X if batch_first else X.transpose(0, 1)
    later = torch.ones(TOKENS, TOKENS).triu(1).bool()
    forbid = lambda away: away if kind == torch.bool else torch.zeros(away.shape).double().masked_fill(away, -torch.inf)  # noqa: E731
    found = heads.of(model, X, mask=forbid(later), is_causal=True)
    plan = {name: [0, 2] for name in found.layers}
    with found.ablated(plan, by=STREAM):
        streaming = model(X, mask=forbid(later))
    of_heads = torch.stack([later if head in (1, 3) else ~looped(TOKENS, TOKENS, SINKS, WINDOW) for head in range(4)])
    close(streaming, model(X, mask=forbid(of_heads.repeat(2, 1, 1))))
    assert (streaming - model(X, mask=forbid(later))).abs().max() > 1e-3


def test_smollm2_streams_by_group_as_with_a_rule():
    model = small_language_model()
    ids = torch.randint(0, 60, (2, 20), generator=torch.Generator().manual_seed(0))
    found = heads.of(model, ids)
    plan = {name: found.layers[name].group(number % 3) for number, name in enumerate(found.layers) if number % 2}

    def rule(off, b, h, i, j):
        return (i - j < WINDOW) | (j < SINKS) | ~torch.isin(h, torch.tensor(off))  # as in notebook 09

    with torch.no_grad(), ExitStack() as patches:
        with found.ablated(plan, by=STREAM):
            streaming = model(ids, None, None)
        whole = model(ids, None, None)
        for name, off in plan.items():
            attention = model.get_submodule(name)
            masked = partial(attention.forward, attn_mask=partial(rule, off))
            patches.enter_context(patch.object(attention, "forward", masked))
        torch.testing.assert_close(streaming, model(ids, None, None), rtol=0, atol=1e-4)
    assert (streaming - whole).abs().max() > 0.1


def test_what_cannot_stream_is_refused_by_name():
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(24, 3, 16, batch_first=True)
    X, memory, later = torch.randn(2, 5, 24), torch.randn(2, 7, 24), torch.ones(5, 5).triu(1).bool()
    model = nn.TransformerDecoder(layer, 1).eval()
    own, cross = "layers.0.self_attn", "layers.0.multihead_attn"
    found = heads.of(model, X, memory, tgt_mask=later)
    with pytest.raises(ValueError, match=f"^by='stream' needs causal attention, and that of {cross} is not$"):
        with found.ablated({own: [1], cross: [1]}, by="stream"):
            model(X, memory)
    whole = model(X, memory, tgt_mask=later)
    with found.ablated({own: [1]}, by="stream", sinks=1, window=1):
        assert (model(X, memory, tgt_mask=later) - whole).abs().max() > 1e-3
    unmasked = heads.of(model, X, memory)
    with pytest.raises(ValueError, match=f"^by='stream' needs causal attention, and that of {own} is not$"):
        with unmasked.ablated({own: [1]}, by="stream"):
            model(X, memory)
    with pytest.raises(ValueError, match=f"that of {cross} is not"):
        found.gate_gradient(lambda model: model(X, memory, tgt_mask=later).square().mean(dim=(1, 2)), by="stream")


@pytest.mark.parametrize(("wrong", "says"), [
    ({"sinks": -1}, "sinks must be a whole number from 0 on, got -1"),
    ({"window": 0}, "window must be a whole number from 1 on, got 0"),
    ({"window": 2.5}, "window must be a whole number from 1 on, got 2.5"),
])  # fmt: skip
def test_numbers_of_keys_are_checked(wrong, says):
    found = heads.of(Causal(fused).eval(), torch.randn(1, 5, 24))
    with pytest.raises(ValueError, match=says):
        found.ablated({"": [1]}, by="stream", **wrong)
