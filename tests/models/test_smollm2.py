"""SmolLM2 on this library's layer is the model that its file of weights describes."""

import pytest
import torch

from mha_course import heads
from mha_course.models.smollm2 import FILE, PACKAGE, NextToken, smollm2

TEXTS = ["In 1969 the queen's old waiter,\n\nnaïve as ever,", "Once upon a time there was a head that looked back"]
PROSE = (
    "The old bridge had been closed for a year when the council decided to repair it. Engineers measured every arch "
    "and found that only two of them had to be built again. The work began in spring, and people from both sides of "
    "the river came to watch. By the end of the summer the first carts could cross, and the baker sold more bread."
)
TASK = NextToken()

pytestmark = pytest.mark.xdist_group("smollm2")  # one process loads it, once


@pytest.fixture(scope="module")
def model():
    before = torch.get_rng_state()
    try:
        loaded = smollm2()
    except ImportError as error:
        pytest.skip(str(error))
    assert torch.equal(torch.get_rng_state(), before), "loading moves the caller's random numbers"
    return loaded


@pytest.fixture(scope="module")
def batch(model):
    return TASK.examples(torch.tensor([model.tokenize(text)[:11] for text in TEXTS]))


def reference(ids):
    """A LLaMA in plain functions, token by token and head by head, from the file of weights: (n, vocab_size).

    Args:
        ids: one sequence, (n,).
    """
    import gguf

    file = {
        tensor.name: torch.tensor(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        for tensor in gguf.GGUFReader(PACKAGE.find(FILE)).tensors
    }

    def norm(X, name):
        return X / (X.pow(2).mean(dim=-1, keepdim=True) + 1e-5).sqrt() * file[f"{name}.weight"]

    def turned(vector, place):  # as complex numbers: a pair of features is one
        speeds = torch.tensor([100_000.0 ** (-pair / 32) for pair in range(32)])
        return torch.view_as_complex(vector.view(32, 2)) * torch.polar(torch.ones(32), place * speeds)

    X = file["token_embd.weight"][ids]
    for number in range(30):
        layer = f"blk.{number}"
        Y = norm(X, f"{layer}.attn_norm")
        Q, K, V = (Y @ file[f"{layer}.attn_{name}.weight"].T for name in "qkv")
        attended = torch.zeros(len(ids), 576)
        for head in range(9):
            here, shared = slice(64 * head, 64 * head + 64), slice(64 * (head // 3), 64 * (head // 3) + 64)
            queries = [turned(vector, place) for place, vector in enumerate(Q[:, here])]
            keys = [turned(vector, place) for place, vector in enumerate(K[:, shared])]
            for place, query in enumerate(queries):
                scores = torch.stack([(query * key.conj()).real.sum() / 8 for key in keys[: place + 1]])
                attended[place, here] = scores.softmax(dim=0) @ V[: place + 1, shared]
        X = X + attended @ file[f"{layer}.attn_output.weight"].T
        Y = norm(X, f"{layer}.ffn_norm")
        gate, up = (Y @ file[f"{layer}.ffn_{name}.weight"].T for name in ("gate", "up"))
        X = X + (gate * gate.sigmoid() * up) @ file[f"{layer}.ffn_down.weight"].T
    return norm(X, "output_norm") @ file["token_embd.weight"].T


@pytest.mark.real_device  # the reference views numbers as complex ones
def test_scores_are_those_of_an_independent_forward_pass(model, batch):
    with torch.no_grad():
        found = model(batch.inputs)
        expected = reference(batch.inputs[1])
    torch.testing.assert_close(found[1], expected, rtol=0, atol=2e-3)
    assert found[1].std() > 1  # so that the bound says something


def test_it_expects_english_and_not_noise(model):
    rows = torch.tensor([model.tokenize(PROSE)[:64]])
    noise = rows[:, torch.randperm(64, generator=torch.Generator().manual_seed(0))]
    prose, shuffled = (TASK.loss(model, TASK.examples(ids)).mean() for ids in (rows, noise))
    assert prose < 5.5 < shuffled


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_from_its_tokens_and_digits_stand_alone(model, text):
    ids = model.tokenize(text)
    assert model.tokenizer.decode(ids) == text
    assert [model.tokenizer.decode([one]) for one in model.tokenize("1969")] == list("1969")


def test_a_model_without_heads_computes_what_a_masked_one_does(model, batch):
    plan = {"layer 0": [0, 2, 5], "layer 7": [1, 2, 3, 4], "layer 29": list(range(9))}
    gates = torch.ones(30, 9)
    for name, off in plan.items():
        gates[int(name.split()[1])] = (~torch.isin(torch.arange(9), torch.tensor(off))).float()
    with torch.no_grad():
        masked = model(batch.inputs, None, gates)
        torch.testing.assert_close(heads.prune(model, remove=plan)(batch.inputs), masked, rtol=0, atol=2e-3)
        assert (masked - model(batch.inputs)).abs().max() > 0.1
