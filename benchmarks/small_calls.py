"""A small call, where what surrounds the arithmetic counts most: ``python -m benchmarks.small_calls``.

Batch 2, 4 queries, 6 keys, 100 hiddens, 5 heads, one length an example, as in the book. Each contender makes the mask
that it needs within the call.
"""

import functools
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import measure, report
from mha_lib import MultiHeadAttention
from mha_lib.attention import converters, merge_heads, split_heads, valid_keys

CALLS_A_SAMPLE = 20
SizedCall = Callable[[Tensor, Tensor, Tensor], Tensor]  # queries, keys and values, valid_lens


def contenders(layer: MultiHeadAttention) -> dict[str, SizedCall]:
    """The layer, torch's with the same weights, and torch's kernel behind three projections and behind two."""
    peer = converters.to_torch(layer)
    packed = nn.Linear(100, 200, bias=False)
    with torch.no_grad():
        packed.weight.copy_(torch.cat([layer.W_k.weight, layer.W_v.weight]))

    def torch_layer(X: Tensor, Y: Tensor, valid_lens: Tensor) -> Tensor:
        padding = torch.arange(Y.shape[1]) >= valid_lens[:, None]
        return peer(X, Y, Y, key_padding_mask=padding, need_weights=False)[0]

    def kernel(X: Tensor, K: Tensor, V: Tensor, valid_lens: Tensor) -> Tensor:
        Q, K, V = (split_heads(Z, layer.num_heads) for Z in (layer.W_q(X), K, V))
        mask = valid_keys(valid_lens, K.shape[2]).unsqueeze(1)
        return layer.W_o(merge_heads(F.scaled_dot_product_attention(Q, K, V, mask)))

    def packed_kernel(X: Tensor, Y: Tensor, valid_lens: Tensor) -> Tensor:
        K, V = packed(Y).chunk(2, dim=-1)
        return kernel(X, K, V, valid_lens)

    return {
        "ours": lambda X, Y, valid_lens: layer(X, Y, Y, valid_lens),
        "torch.nn": torch_layer,
        "three projections + kernel": lambda X, Y, valid_lens: kernel(X, layer.W_k(Y), layer.W_v(Y), valid_lens),
        "packed + kernel": packed_kernel,
    }


def twenty(call: SizedCall, training: bool, *given: Tensor) -> None:
    """Twenty calls, forward without gradients, or forward and backward."""
    for _ in range(CALLS_A_SAMPLE):
        with torch.set_grad_enabled(training):
            output = call(*given)
        if training:
            output.sum().backward()


def main(seconds: float = 4.0) -> None:
    """Print and write our microseconds, and every peer's time ÷ ours."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer = MultiHeadAttention(100, 5, query_size=100, key_size=100, value_size=100).eval()
    given = torch.randn(2, 4, 100), torch.randn(2, 6, 100), torch.tensor([3, 2])
    calls, body = contenders(layer), []
    for call in calls.values():
        torch.testing.assert_close(call(*given), calls["ours"](*given), rtol=1e-4, atol=1e-5)
    for training in (False, True):
        samples = {name: functools.partial(twenty, call, training, *given) for name, call in calls.items()}
        times = measure.in_turn(samples, seconds, rounds=9)
        ratios = [str(measure.ratio(times[name], times["ours"])) for name in calls if name != "ours"]
        us = 1e6 * statistics.median(times["ours"]) / CALLS_A_SAMPLE
        body.append([report.PASS[training], f"{us:.0f}", *ratios])
    head = ["pass", "ours, µs", *(f"{name} ÷ ours" for name in calls if name != "ours")]
    text = "A small call, (batch, queries, keys, d, heads) = (2, 4, 6, 100, 5)\n\n" + report.markdown(head, body)
    print(text)
    (report.RESULTS / "small_calls.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
