"""The same layer elsewhere: the formula as a loop, torch's layer, d2l's layer, and weights moved between them."""

import math
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from mha_lib.attention.masks import valid_keys
from mha_lib.attention.multi_head import MultiHeadAttention
from mha_lib.attention.pooling import DotProductAttention

D2lLayer: TypeAlias = Any  # d2l.MultiHeadAttention, an nn.Module: the package has no types


def loop_over_heads(
    layer: MultiHeadAttention,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    valid_lens: Tensor | None = None,
    head_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """What ``layer`` computes (without dropout), written as the formula: one example, one head, one query at a time.

    Slow and plain on purpose. It shares no code with the layer, so the two can be held against each other.

    It takes the weights from ``layer``, and other arguments as ``MultiHeadAttention.forward`` does. It returns the
    output (batch, num_queries, num_hiddens) and the weights (batch, num_heads, num_queries, num_keys).

    Source: Vaswani et al. 2017, section 3.2.2; d2l 11.5.1.
    """
    (batch_size, num_queries, _), num_keys = queries.shape, keys.shape[1]
    head_size = layer.W_q.weight.shape[0] // layer.num_heads
    lengths = torch.full((batch_size, 1), num_keys) if valid_lens is None else valid_lens.reshape(batch_size, -1)
    lengths = lengths.expand(batch_size, num_queries)
    gates = queries.new_ones(layer.num_heads) if head_mask is None else head_mask
    gates = gates.expand(batch_size, layer.num_heads)
    weights = queries.new_zeros(batch_size, layer.num_heads, num_queries, num_keys)
    output = []
    for b in range(batch_size):
        for t in range(num_queries):
            valid = int(lengths[b, t])
            heads = []
            for h in range(layer.num_heads):
                rows, shared = _rows(h, head_size), _rows(layer.key_value_head_of[h], head_size)
                q = _project(layer.W_q, rows, queries[b, t])
                scores = [q.dot(_project(layer.W_k, shared, keys[b, j])) / math.sqrt(head_size) for j in range(valid)]
                pooled = queries.new_zeros(head_size)
                if valid:
                    shifted = torch.stack(scores) - max(scores).detach()
                    share = shifted.exp() / shifted.exp().sum()
                    weights[b, h, t, :valid] = share.detach()
                    pooled = sum(
                        (share[j] * _project(layer.W_v, shared, values[b, j]) for j in range(valid)), start=pooled
                    )
                heads.append(gates[b, h] * pooled)
            output.append(_project(layer.W_o, slice(None), torch.cat(heads)))
    return torch.stack(output).reshape(batch_size, num_queries, layer.num_hiddens), weights


def _rows(head: int, head_size: int) -> slice:
    """The rows of a projection that belong to a head."""
    return slice(head * head_size, (head + 1) * head_size)


def _project(linear: nn.Linear, rows: slice, x: Tensor) -> Tensor:
    """The chosen rows of a linear map, applied to one vector."""
    product = linear.weight[rows] @ x
    return product if linear.bias is None else product + linear.bias[rows]


def to_torch(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    """torch's layer with the weights of ours (batch first; mode, dropout and what is trained are kept).

    Raises:
        ValueError: ``layer`` has what torch's layer cannot have: a query size other than ``num_hiddens``, heads that
            share keys and values, other scores than dot products, maps of which some are trained where torch stacks
            them; or sizes that are still open (call it once first).
    """
    _check_is_plain(layer, "torch's")
    for name, linear in (("query_size", layer.W_q), ("key_size", layer.W_k), ("value_size", layer.W_v)):
        if nn.parameter.is_lazy(linear.weight):
            raise ValueError(f"layer has an open {name}: call it once, or give the size, before moving its weights")
    query_size, key_size, value_size = (W.weight.shape[1] for W in (layer.W_q, layer.W_k, layer.W_v))
    if query_size != layer.num_hiddens:
        raise ValueError(
            f"layer must have query_size = num_hiddens for torch's layer, got {query_size} and {layer.num_hiddens}"
        )
    weight, dropout = layer.W_o.weight, layer.attention.dropout.p
    peer = nn.MultiheadAttention(
        layer.num_hiddens, layer.num_heads, dropout, bias=layer.W_o.bias is not None, batch_first=True,
        kdim=key_size, vdim=value_size, device=weight.device, dtype=weight.dtype,
    )  # fmt: skip
    stacked = [[ours for name in "qkv" if (ours := getattr(layer, f"W_{name}").bias) is not None]]
    if peer.in_proj_weight is not None:
        stacked.append([layer.W_q.weight, layer.W_k.weight, layer.W_v.weight])
    if any(len({ours.requires_grad for ours in parts}) > 1 for parts in stacked):
        raise ValueError("layer must train W_q, W_k and W_v all or none for torch's layer, which stacks them")
    with torch.no_grad():
        for theirs, ours in _matching_parameters(peer, layer):
            theirs.copy_(ours)
    for name, theirs in peer.named_parameters():
        theirs.requires_grad_(layer.get_parameter(_OUR_NAMES[name]).requires_grad)
    return peer.train(layer.training)


# The name in our layer of each parameter of torch's; three that torch stacks go by the first of ours.
_OUR_NAMES = {
    "in_proj_weight": "W_q.weight", "in_proj_bias": "W_q.bias", "q_proj_weight": "W_q.weight",
    "k_proj_weight": "W_k.weight", "v_proj_weight": "W_v.weight", "out_proj.weight": "W_o.weight",
    "out_proj.bias": "W_o.bias",
}  # fmt: skip


def _check_is_plain(layer: MultiHeadAttention, whose: str) -> None:
    """Refuse a layer that computes what other libraries' layers do not."""
    if type(layer.attention).scores is not DotProductAttention.scores:
        raise ValueError(
            f"layer must attend by plain dot products for {whose} layer, got attention={type(layer.attention).__name__}"
        )
    if layer.num_key_value_heads != layer.num_heads:
        raise ValueError(
            f"layer must have as many key/value heads as heads for {whose} layer, "
            f"got num_key_value_heads={layer.num_key_value_heads}, num_heads={layer.num_heads}"
        )


def from_torch(peer: nn.MultiheadAttention) -> MultiHeadAttention:
    """Our layer with the weights of torch's (always batch first; mode, dropout and what is trained are kept).

    Raises:
        ValueError: ``peer`` was made with ``add_bias_kv`` or ``add_zero_attn``, which our layer does not have.
    """
    if peer.bias_k is not None or peer.add_zero_attn:
        raise ValueError("peer must have add_bias_kv=False and add_zero_attn=False: our layer adds no keys of its own")
    layer = MultiHeadAttention(
        peer.embed_dim, peer.num_heads, peer.dropout, bias=peer.in_proj_bias is not None,
        query_size=peer.embed_dim, key_size=peer.kdim, value_size=peer.vdim,
    ).to(peer.out_proj.weight)  # fmt: skip
    with torch.no_grad():
        for theirs, ours in _matching_parameters(peer, layer):
            ours.copy_(theirs).requires_grad_(theirs.requires_grad)
    return layer.train(peer.training)


def _matching_parameters(peer: nn.MultiheadAttention, layer: MultiHeadAttention) -> list[tuple[Tensor, Tensor]]:
    """Pairs (torch's, ours) of the same weights; torch stacks the three input maps when their sizes are equal."""
    ours = (layer.W_q, layer.W_k, layer.W_v)
    if peer.in_proj_weight is not None:
        theirs = peer.in_proj_weight.chunk(3)
    else:
        theirs = (peer.q_proj_weight, peer.k_proj_weight, peer.v_proj_weight)
    pairs = [(peer.out_proj.weight, layer.W_o.weight)] + [(t, o.weight) for t, o in zip(theirs, ours, strict=True)]
    if layer.W_o.bias is not None:
        pairs += [(peer.out_proj.bias, layer.W_o.bias)]
        pairs += [(t, o.bias) for t, o in zip(peer.in_proj_bias.chunk(3), ours, strict=True)]
    return pairs


def call_torch(
    peer: nn.MultiheadAttention, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run torch's layer (batch first) with ``valid_lens``, which it only knows as masks.

    It returns output (batch, num_queries, num_hiddens) and weights (batch, num_heads, num_queries, num_keys).
    """
    masks = {} if valid_lens is None else torch_masks(valid_lens, keys.shape[1], peer.num_heads)
    return peer(queries, keys, values, need_weights=True, average_attn_weights=False, **masks)


def torch_masks(valid_lens: Tensor, num_keys: int, num_heads: int) -> dict[str, Tensor]:
    """``valid_lens`` as the mask argument of ``torch.nn.MultiheadAttention`` (there, True means: not allowed)."""
    forbidden = ~valid_keys(valid_lens, num_keys)
    if valid_lens.dim() == 1:
        return {"key_padding_mask": forbidden.squeeze(1)}
    return {"attn_mask": forbidden.repeat_interleave(num_heads, dim=0)}


def load_d2l() -> ModuleType:
    """The book's own package, ``d2l.torch``.

    The package imports torchvision, although its attention needs none of it. A torchvision built for another torch
    stops that import over a missing operator; then the operators are declared, and the import goes through.

    Raises:
        ImportError: d2l, or something it imports, is not installed; the message has the command.
    """
    try:
        return _import_d2l()
    except ImportError as error:
        raise ImportError(
            f"d2l could not be imported ({error}). Install it beside this torch without its own old pins: "
            "python -m pip install pandas scipy requests pillow matplotlib-inline "
            "&& python -m pip install --no-deps d2l==1.0.3 torchvision"
        ) from error
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared_operators.append(operators)
    return _import_d2l()


_declared_operators: list[torch.library.Library] = []  # a library that is collected takes its operators with it


def _import_d2l() -> ModuleType:
    from d2l import torch as d2l

    return d2l


def to_d2l(layer: MultiHeadAttention) -> nn.Module:
    """``d2l.MultiHeadAttention`` with the weights of ours (mode, dropout and what is trained are kept).

    Raises:
        ValueError: ``layer`` has what d2l's layer cannot have: heads that share keys and values, or other scores.
    """
    _check_is_plain(layer, "d2l's")
    weight, has_bias = layer.W_o.weight, layer.W_o.bias is not None
    peer = load_d2l().MultiHeadAttention(layer.num_hiddens, layer.num_heads, layer.attention.dropout.p, has_bias)
    peer.to(weight).load_state_dict(layer.state_dict())
    _train_the_same(layer, peer)
    return peer.train(layer.training)


def from_d2l(peer: D2lLayer) -> MultiHeadAttention:
    """Our layer with the weights of ``d2l.MultiHeadAttention`` (mode, dropout and what is trained are kept).

    Raises:
        ValueError: ``peer`` was never called, so that its sizes are still open.
    """
    state = peer.state_dict()
    if any(nn.parameter.is_lazy(tensor) for tensor in state.values()):
        raise ValueError("peer has open sizes: call d2l's layer once before moving its weights")
    layer = MultiHeadAttention(
        state["W_o.weight"].shape[0], peer.num_heads, peer.attention.dropout.p, bias="W_o.bias" in state,
        query_size=state["W_q.weight"].shape[1], key_size=state["W_k.weight"].shape[1],
        value_size=state["W_v.weight"].shape[1],
    ).to(state["W_o.weight"])  # fmt: skip
    layer.load_state_dict(state)
    _train_the_same(peer, layer)
    return layer.train(peer.training)


def _train_the_same(source: nn.Module, target: nn.Module) -> None:
    """Give the parameters of ``target`` the ``requires_grad`` of those of ``source`` that have the same names."""
    for name, parameter in source.named_parameters():
        target.get_parameter(name).requires_grad_(parameter.requires_grad)


def call_d2l(
    peer: D2lLayer, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run d2l's layer; returns what ``call_torch`` does."""
    output = peer(queries, keys, values, valid_lens)
    return output, peer.attention.attention_weights.unflatten(0, (-1, peer.num_heads))
