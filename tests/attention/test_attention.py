"""Numbers, gradients and shapes of the attentions; that each is its formula is tried in ``test_random_calls``."""

from contextlib import nullcontext

import pytest
import torch
from on_device import DEVICE
from references import (
    CASES,
    LENGTHS,
    WAYS,
    assert_same,
    check,
    close,
    make_layer,
    masked_softmax,
    on_way,
    random_numbers,
    sequences,
)
from torch.autograd import gradcheck
from torch.func import functional_call

import mha_lib
from mha_lib import AdditiveAttention, DotProductAttention, KernelPooling, MultiHeadAttention
from mha_lib.attention import FusedAttention

GIVEN, SAME_SIZES = sequences(), sequences(same_sizes=True)
every_way = pytest.mark.parametrize("way", WAYS)
every_length = pytest.mark.parametrize("valid_lens", LENGTHS.values(), ids=LENGTHS)


@pytest.mark.parametrize("shift", [-3e6, 0, 3e6])
@every_length
def test_softmax_of_scores_below_any_fixed_fill_value(valid_lens, shift):
    for scores in (random_numbers(3, 5, 6) + shift, random_numbers(3, 4, 5, 6) + shift):
        assert_same(mha_lib.masked_softmax(scores, valid_lens), masked_softmax(scores, valid_lens))


@pytest.mark.parametrize("dtype, length", [(torch.bfloat16, 260), (torch.float16, 2052)])
def test_lengths_in_low_precision_keep_their_last_key(dtype, length):
    weights = mha_lib.masked_softmax(torch.zeros(1, 1, length + 10), torch.tensor([length], dtype=dtype))
    assert (weights > 0).sum() == length


# Long examples are attended to one at a time, each on its valid keys alone.

LONG = torch.tensor([0, 256, 100, 1])


@pytest.mark.cpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(4, 2, 256, 3), (4, 256, 3)])
@pytest.mark.parametrize("way", ["kernel", "formula"])
def test_skipping_padding_changes_nothing(way, shape, causal, kernel_calls):
    results = []
    for skip_padding, valid_lens in ((True, LONG), (True, LONG.float()), (False, LONG)):
        layer, given = on_way(FusedAttention(), way), [random_numbers(*shape).requires_grad_() for _ in range(3)]
        layer.skip_padding = skip_padding
        output = layer(*given, valid_lens, causal=causal)
        output.backward(random_numbers(*shape).flip(0))
        results.append((output, layer.attention_weights, *(X.grad for X in given)))
    close(results[0], results[2])
    close(results[1], results[2])
    numbers = [call.num_keys for call in kernel_calls]
    assert numbers == ([*LONG, *LONG, 256] if way == "kernel" else [])


@pytest.mark.parametrize(
    "n, valid_lens",
    [(256, LONG[:, None].expand(4, 256)), (256, None), (255, LONG.clamp(max=255)), (256, LONG[:0])],
    ids=["a length for each query", "no lengths", "short examples", "no example"],
)
def test_otherwise_there_is_one_call(n, valid_lens, kernel_calls):
    X = random_numbers(4 if valid_lens is None else len(valid_lens), 2, n, 3)
    FusedAttention()(X, X, X, valid_lens)
    assert len(kernel_calls) == 1


# Gradients.


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_way_has_the_gradients_of_the_formula(case):
    results = []
    for way in (*WAYS, "plain"):
        layer = make_layer(attention=DotProductAttention()) if way == "plain" else make_layer()
        given = [X.clone().requires_grad_() for X in GIVEN]
        on_way(layer, way)(*given, **case).square().sum().backward()
        results.append([X.grad for X in (*given, *layer.parameters())])
    for other in results[:-1]:
        close(other, results[-1])


@pytest.mark.parametrize("valid_lens", [None, torch.tensor([2, 0]), torch.tensor([[1, 2, 0], [3, 4, 2]])], ids=str)
def test_gradients_are_finite_differences(valid_lens):
    """Those of queries, keys, values, gates, scores and all parameters that can be trained."""
    torch.manual_seed(0)
    multi_head = MultiHeadAttention(4, 2, bias=True, query_size=2, key_size=3, value_size=2)
    layers = {multi_head: 3, DotProductAttention(): 2, AdditiveAttention(3, query_size=2, key_size=3): 3}
    for layer, key_size in (layers | {KernelPooling(0.7): 2, KernelPooling(0.7, learnable=True): 2}).items():
        parameters = {name: p for name, p in layer.double().named_parameters() if p.requires_grad}
        given = [random_numbers(2, 3, 2), random_numbers(2, 4, key_size), random_numbers(2, 4, 2)]
        gates = [random_numbers(2)] * (layer is multi_head)

        def call(queries, keys, values, *others, layer=layer, parameters=parameters, gates=gates):
            state = dict(zip(parameters, others[len(gates) :], strict=True))
            return functional_call(layer, state, (queries, keys, values, valid_lens, *others[: len(gates)]))

        assert gradcheck(call, [*(X.requires_grad_() for X in (*given, *gates)), *parameters.values()])
    for heads in ((), (2,)):
        scores = random_numbers(2, *heads, 3, 4).requires_grad_()
        assert gradcheck(lambda scores: mha_lib.masked_softmax(scores, valid_lens), scores)


MASKS = [{}, {"valid_lens": torch.tensor([[2, 0, 3], [1, 3, 3]])}, {"causal": True}]
in_forward_mode = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own use of it


@pytest.mark.real_device
@every_way
@in_forward_mode
@pytest.mark.parametrize("masks", MASKS, ids=str)
def test_forward_mode_is_a_finite_difference(way, masks):
    """The kernel has no derivatives in forward mode; the formula steps in."""
    layer = on_way(FusedAttention(), way)
    for heads in ((), (2,)):
        # Of one size: else the kernel itself goes by the formula.
        given = [X.requires_grad_() for X in random_numbers(3, 2, *heads, 3, 2)]
        assert gradcheck(lambda *given: layer(*given, **masks), given, fast_mode=True, check_forward_ad=True)


@pytest.mark.real_device
@pytest.mark.parametrize("masks", MASKS, ids=str)
def test_second_derivatives_where_weights_are_kept(masks):
    """Gradient penalties need them. The CPU's kernel has none: the error says what to set."""
    layer, refused = FusedAttention(), nullcontext()  # in float64 a GPU takes another kernel, which has them
    if DEVICE.type == "cpu":
        refused = pytest.raises(RuntimeError, match=r"Set keep_weights .*layer\.attention\.keep_weights = True")
    for heads in ((), (2,)):
        given = [X.requires_grad_() for X in random_numbers(3, 2, *heads, 3, 2)]
        for layer.keep_weights in (False, True):
            (first,) = torch.autograd.grad(layer(*given, **masks).square().sum(), given[0], create_graph=True)
            if not layer.keep_weights:
                with refused:
                    first.sum().backward()
        first.square().sum().backward()
        assert torch.autograd.gradgradcheck(lambda *given: layer(*given, **masks), given, fast_mode=True)


@pytest.mark.real_device
@in_forward_mode
def test_forward_mode_without_gradients():
    X, tangent = random_numbers(2, 3, 4), random_numbers(2, 3, 5)[..., :4]
    expected = torch.func.jvp(lambda X: DotProductAttention()(X, X, X), (X,), (tangent,))
    for way in WAYS:
        with torch.no_grad(), torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(X, tangent)
            layer = on_way(FusedAttention(), way)
            close(tuple(torch.autograd.forward_ad.unpack_dual(layer(dual, dual, dual))), expected)


@every_way
@pytest.mark.parametrize("bias", [False, True])
def test_an_empty_row_gives_the_output_bias_and_no_gradient(way, bias):
    valid_lens, given = LENGTHS["empty rows"], [X.clone().requires_grad_() for X in GIVEN]
    layer, empty = on_way(make_layer(bias=bias), way), valid_lens == 0
    output = layer(*given, valid_lens)
    close(output[empty], (layer.W_o.bias.detach() if bias else output.new_zeros(1)).expand_as(output[empty]))
    assert (layer.attention_weights.transpose(1, 2)[empty] == 0).all()
    with torch.autograd.set_detect_anomaly(True):  # NaN on the way back is an error, even one that is masked later
        output.square().sum().backward()
    assert (given[0].grad[empty] == 0).all()
    assert (given[0].grad[~empty] != 0).any()
    assert all(X.grad.isfinite().all() for X in (*given, *layer.parameters()))


# Shapes at their ends, and memory.


@pytest.mark.real_device
def test_sizes_may_be_taken_from_a_call_in_inference_mode():
    layer = MultiHeadAttention(8, 4, bias=True).double()
    with torch.inference_mode():
        first = layer(*GIVEN)
    output = layer(*GIVEN)
    close(output, first)
    output.sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.real_device
def test_sizes_left_out_are_taken_from_the_first_call_or_from_a_state_dict():
    explicit, called, loaded = make_layer(), *(MultiHeadAttention(8, 4, bias=True).double() for _ in range(2))
    called(*GIVEN)
    assert [p.shape for p in called.parameters()] == [p.shape for p in explicit.parameters()]
    check(called, *GIVEN)
    for lazy in (called, loaded):
        lazy.load_state_dict(explicit.state_dict())
        close(lazy(*GIVEN), explicit(*GIVEN), atol=0)
    additive = AdditiveAttention(8).double()
    additive(*GIVEN)
    assert (additive.W_q.weight.shape, additive.W_k.weight.shape) == ((8, 7), (8, 9))


# Heads and tokens change places.


def test_every_entry_lands_where_the_index_formula_says():
    """That a round trip comes back proves nothing about the way."""
    for b, n, heads, p in ((2, 4, 5, 20), (3, 1, 2, 3), (1, 4, 1, 2), (0, 3, 2, 2), (2, 0, 3, 1), (2, 3, 4, 1)):
        X = torch.arange(b * n * heads * p).reshape(b, n, heads * p)
        split, folded = mha_lib.split_heads(X, heads), mha_lib.transpose_qkv(X, heads)
        assert split.shape == (b, heads, n, p) and folded.shape == (b * heads, n, p)
        for i, h, t, f in torch.ones(split.shape).nonzero().tolist()[::7]:
            assert split[i, h, t, f] == folded[i * heads + h, t, f] == X[i, t, h * p + f]
        assert torch.equal(mha_lib.merge_heads(split), X)
        assert torch.equal(mha_lib.transpose_output(folded, heads), X)
    assert mha_lib.transpose_qkv(torch.arange(8).reshape(1, 2, 4), 2).tolist() == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


def test_split_heads_is_a_view_and_a_strided_tensor_makes_the_round_trip():
    X = random_numbers(2, 4, 6)
    assert mha_lib.split_heads(X, 3).data_ptr() == X.data_ptr()
    strided = random_numbers(4, 6, 2).permute(2, 0, 1)
    assert torch.equal(mha_lib.merge_heads(mha_lib.split_heads(strided, 3)), strided)
    assert torch.equal(mha_lib.transpose_output(mha_lib.transpose_qkv(strided, 3), 3), strided)
