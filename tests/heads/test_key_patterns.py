"""Heads are named by what their maps show, and each name comes with the weight of uniform attention."""

import pytest
import torch

from mha_course.heads.key_patterns import strongest_patterns

TOKENS = list("kbbackdbe")


def noisy(keys, size=9, share=0.8, causal=False):
    """A map whose queries give ``share`` of their weight to one key each, and the rest to random ones."""
    rest = torch.rand(size, size, generator=torch.Generator().manual_seed(3))
    if causal:
        keys, rest = [min(key, query) for query, key in enumerate(keys)], rest.tril()
    return share * torch.eye(size)[keys] + (1 - share) * rest / rest.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("its own token", [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ("the previous token", [0, 0, 1, 2, 3, 4, 5, 6, 7]),
        ("the earlier copy", [0, 1, 1, 3, 0, 0, 6, 2, 8]),
        ("the token after the earlier copy", [0, 1, 2, 3, 0, 1, 6, 3, 8]),
        ("“b” at 1", [1] * 9),
    ],
)
def test_a_head_is_named_by_the_keys_that_it_prefers(words, keys, causal):
    weights = noisy(keys, causal=causal)
    ((found,),) = strongest_patterns(weights[None, None], TOKENS, TOKENS)
    assert found.words == words
    start = int(causal)  # token 0 has no choice
    rows = [query for query in range(start, 9) if TOKENS[query] in TOKENS[:query] or "earlier" not in words]
    rows = [query for query in rows if query or words != "the previous token"]
    chosen = [keys[query] for query in rows]
    assert found.weight == pytest.approx(weights[rows, chosen].mean().item(), abs=1e-6)
    shares = [1 / (query + 1) if causal else 1 / 9 for query in rows]
    assert found.uniform == pytest.approx(sum(shares) / len(shares), abs=1e-6)


def test_only_what_every_head_could_do_counts_where_queries_are_other_tokens_than_keys():
    maps = torch.rand(2, 3, 4, 9, generator=torch.Generator().manual_seed(0)).softmax(dim=-1)
    maps[1, 2, :, 6] += 0.3
    maps[1, 2] /= maps[1, 2].sum(dim=-1, keepdim=True)
    found = strongest_patterns(maps, list("wxyz"), TOKENS)
    assert found[1][2].words == "“d” at 6" and found[1][2].uniform == pytest.approx(1 / 9)
    assert found[1][2].weight == pytest.approx(maps[1, 2, :, 6].mean().item())
    assert all(each.words.startswith("“") for row in found for each in row)


def test_later_keys_count_as_masked_only_where_no_head_attends_to_them():
    both = torch.stack([noisy([0, 0, 1, 2, 3, 4, 5, 6, 7], causal=True), noisy([1, 2, 3, 4, 5, 6, 7, 8, 8])])
    ((one_back, one_on),) = strongest_patterns(both[None], TOKENS, TOKENS)
    assert (one_back.words, one_on.words) == ("the previous token", "the next token")
    assert one_back.uniform == one_on.uniform == pytest.approx(1 / 9)


def test_what_uniform_attention_gives_is_no_preference():
    """Its own token has more weight here than the token after the copy, but no more than uniform attention gives it."""
    weights = torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None]
    copies = [2, 5, 7]
    weights[copies] = 0.985 * weights[copies] + 0.015 * torch.eye(9)[[2, 1, 3]]
    ((found,),) = strongest_patterns(weights[None, None], TOKENS, TOKENS)
    assert found.words == "the token after the earlier copy"
    assert found.weight < weights.diagonal()[1:].mean()
