"""The questions on paper: what their model answers say is computed again, by torch or by sampling, for many seeds."""

import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from classroom.papers import QUESTIONS, numbers_of, sheets

VARIANCES, RESHAPE, OVER_HEADS, COSTS, ONE_HEAD, SOFTMAX = QUESTIONS
SEEDS = pytest.mark.parametrize("seed", range(20))


@SEEDS
def test_the_variance_of_a_score(seed):
    found = numbers_of(seed, VARIANCES)
    torch.manual_seed(seed)
    q, k = (torch.randn(20_000, found["p"], dtype=torch.float64) * found[name] ** 0.5 for name in "ab")
    scores = (q * k).sum(dim=1)
    assert abs(scores.var().item() / found["variance"] - 1) < 0.06
    assert abs((scores / found["divisor"]).var().item() - 1) < 0.06 and found["divisor"] ** 2 == found["variance"]


@SEEDS
def test_what_a_single_reshape_puts_where(seed):
    found = numbers_of(seed, RESHAPE)
    n, d, h, p, i, j = (found[name] for name in ("n", "d", "h", "p", "i", "j"))
    X = torch.arange(n * d).reshape(n, d)
    wrong, right = X.reshape(h, n, p), X.unflatten(1, (h, p)).transpose(0, 1)
    assert torch.equal(wrong[i, j], X[found["token"], found["first"] : found["last"] + 1])
    assert torch.equal(right[i, j], X[j, found["own_first"] : found["own_last"] + 1])
    assert not torch.equal(wrong[i, j], right[i, j])
    assert (wrong[0] // d).unique().tolist() == [*range(found["ntoken"] + 1)] and found["ntoken"] < found["end"]
    for m, heads in ((1, h), (n, 1)):
        X = torch.arange(m * heads * p).reshape(m, heads * p)
        assert torch.equal(X.reshape(heads, m, p), X.unflatten(1, (heads, p)).transpose(0, 1))


def test_no_parameters_bring_a_later_token_into_matrix_0():
    """The derivative of its outputs with respect to later tokens is 0, for random parameters."""
    found = numbers_of(1, RESHAPE)
    n, d, h, p = (found[name] for name in ("n", "d", "h", "p"))
    W = torch.randn(3, d, d)

    def head_0(X):
        Q, K, V = ((X @ w).reshape(h, n, p)[0] for w in W)
        return torch.softmax(Q @ K.T, dim=-1) @ V

    def token_0(X):
        Q, K, V = ((X @ w).reshape(h, n, p) for w in W)
        return ((torch.softmax(Q @ K.mT, dim=-1) @ V).reshape(n, d) @ torch.randn(d, d))[:1]

    for output in (head_0, token_0):
        behind = torch.autograd.functional.jacobian(output, torch.randn(n, d)).abs().sum(dim=(0, 1, 3))
        assert behind.nonzero().flatten().tolist() == [*range(found["ntoken"] + 1)]


@SEEDS
def test_the_output_is_a_sum_over_heads(seed):
    found = numbers_of(seed, OVER_HEADS)
    W_o = torch.tensor([[found["a"], found["b"]], [found["c"], found["d"]]])
    heads = torch.tensor([[found["x"], found["y"]]])
    assert (heads @ W_o).tolist() == [[found["one"], found["two"]]]
    assert (heads * torch.tensor([1, 0]) @ W_o).tolist() == [[found["xa"], found["xb"]]]
    H, W = torch.randn(3, 4, 5, dtype=torch.float64), torch.randn(15, 7, dtype=torch.float64)  # 3 heads, 4 tokens
    parts = sum(H[i] @ W[5 * i : 5 * i + 5] for i in range(3))
    assert torch.allclose(torch.cat([*H], dim=1) @ W, parts)


@SEEDS
def test_the_costs_are_those_that_torch_counts(seed):
    found = numbers_of(seed, COSTS)
    n, d, h = found["n"], found["d"], found["h"]

    def counted(n, d, h):
        """Multiplications of the four matrices, and of scores and averages."""
        with torch.device("meta"):
            X, W = torch.empty(n, d), torch.empty(d, d)
            Q = K = V = torch.empty(h, n, d // h)
            with FlopCounterMode(display=False) as maps:
                for _ in range(4):
                    X @ W
            with FlopCounterMode(display=False) as products:
                (Q @ K.mT) @ V
        return maps.get_total_flops() // 2, products.get_total_flops() // 2

    assert counted(n, d, h) == (found["maps"], found["products"]) == counted(n, d, 2 * h)
    maps, products = counted(found["equal"], d, h)
    assert maps == products and found["weights"] == h * n * n
    assert found["parameters"] == sum(torch.nn.Linear(d, d, bias=False, device="meta").weight.numel() for _ in "qkvo")


@SEEDS
def test_two_keys_alone_can_be_preferred_and_equal_weights_hide_the_order(seed):
    found = numbers_of(seed, ONE_HEAD)
    keys = torch.tensor([float(key) for key in found["keys"].split(", ")])
    assert len(keys.unique()) == 6
    queries = torch.linspace(-3, 3, 1000)  # none is 0
    preferred = keys[(queries[:, None] * keys).argmax(dim=1)].unique()
    assert preferred.tolist() == [found["smallest"], found["largest"]]
    u, v = torch.randn(2, 5, dtype=torch.float64)
    a, rest = found["a"], found["rest"]
    assert torch.allclose((a * v + rest * u) - (a * u + rest * v), found["times"] * (v - u)) and a + rest == 1
    assert torch.equal(0.5 * u + 0.5 * v, 0.5 * v + 0.5 * u)


@SEEDS
def test_the_gradient_of_the_softmax_is_that_of_autograd(seed):
    found = numbers_of(seed, SOFTMAX)
    s = torch.tensor([float(found["k"]), 1, 1], dtype=torch.float64).log().requires_grad_()
    v = torch.tensor([found["v1"], found["v2"], found["v3"]], dtype=torch.float64)
    weights = torch.softmax(s, dim=0)
    output = weights @ v
    (slopes,) = torch.autograd.grad(output, s, retain_graph=True)
    told = torch.tensor([float(found[name]) for name in ("s1", "s2", "s3")], dtype=torch.float64)
    assert torch.allclose(slopes, told) and torch.allclose(output, torch.tensor(float(found["o"])).double())
    assert torch.allclose(weights, torch.tensor([found["k"], 1, 1]).double() / found["below"])
    assert torch.allclose(slopes, weights * (v - output)) and told.sum() == 0
    jacobian = torch.autograd.functional.jacobian(lambda s: torch.softmax(s, dim=0), s.detach())
    assert torch.allclose(jacobian, weights.diag() - torch.outer(weights, weights))


def test_a_sheet_has_no_answers_and_another_seed_has_other_numbers():
    (asked, answered), (other, _) = sheets(7), sheets(8)
    assert "<b>" not in asked and answered.count("<b>") >= 12 and asked != other
    texts = (re.sub("(?s)<style>.*</style>", "", page) for page in (asked, answered))
    assert not any("{" in text or "}" in text for text in texts)


def test_a_question_has_five_points_and_each_is_for_something():
    assert len(QUESTIONS) == 6
    assert {sum(points for points, _ in question.rubric) for question in QUESTIONS} == {5}
    assert len({str(numbers_of(seed, question)) for seed in range(20) for question in QUESTIONS}) > 60
