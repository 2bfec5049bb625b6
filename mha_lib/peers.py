"""The same layer elsewhere: the formula as a loop, torch's layer, d2l's layer, and weights moved between them."""

import math
from types import ModuleType

import torch
from torch import Tensor, nn

from mha_lib.attention import MultiHeadAttention, valid_keys


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

    Args:
        layer: where the weights come from; the rest as in ``MultiHeadAttention.forward``.

    Returns:
        output (batch, num_queries, num_hiddens) and weights (batch, num_heads, num_queries, num_keys).

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
                rows = slice(h * head_size, (h + 1) * head_size)
                q = _project(layer.W_q, rows, queries[b, t])
                scores = [q.dot(_project(layer.W_k, rows, keys[b, j])) / math.sqrt(head_size) for j in range(valid)]
                pooled = queries.new_zeros(head_size)
                if valid:
                    shifted = torch.stack(scores) - max(scores).detach()
                    share = shifted.exp() / shifted.exp().sum()
                    weights[b, h, t, :valid] = share.detach()
                    pooled = sum(share[j] * _project(layer.W_v, rows, values[b, j]) for j in range(valid))
                heads.append(gates[b, h] * pooled)
            output.append(_project(layer.W_o, slice(None), torch.cat(heads)))
    return torch.stack(output).reshape(batch_size, num_queries, layer.num_hiddens), weights


def _project(linear: nn.Linear, rows: slice, x: Tensor) -> Tensor:
    """The chosen rows of a linear map, applied to one vector."""
    product = linear.weight[rows] @ x
    return product if linear.bias is None else product + linear.bias[rows]


def to_torch(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    """torch's layer with the weights of ours (batch first, eval or train mode and dropout kept).

    Raises:
        ValueError: ``layer`` has a query size other than ``num_hiddens``, which torch's layer cannot have, or sizes
            that are still open (call it once first).
    """
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
    with torch.no_grad():
        for theirs, ours in _matching_parameters(peer, layer):
            theirs.copy_(ours)
    return peer.train(layer.training)


def from_torch(peer: nn.MultiheadAttention) -> MultiHeadAttention:
    """Our layer with the weights of torch's (always batch first, eval or train mode and dropout kept).

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
            ours.copy_(theirs)
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

    Returns:
        output (batch, num_queries, num_hiddens) and per-head weights (batch, num_heads, num_queries, num_keys).
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

    The book's package imports torchvision, although its attention needs none of it. A torchvision built for another
    torch stops that import over a missing operator; then the operators are declared, and the import goes through.

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
    """``d2l.MultiHeadAttention`` with the weights of ours (eval or train mode and dropout kept)."""
    weight, has_bias = layer.W_o.weight, layer.W_o.bias is not None
    peer = load_d2l().MultiHeadAttention(layer.num_hiddens, layer.num_heads, layer.attention.dropout.p, has_bias)
    peer.to(weight).load_state_dict(layer.state_dict())
    return peer.train(layer.training)


def from_d2l(peer: nn.Module) -> MultiHeadAttention:
    """Our layer with the weights of ``d2l.MultiHeadAttention`` (eval or train mode and dropout kept).

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
    return layer.train(peer.training)


def call_d2l(
    peer: nn.Module, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run d2l's layer.

    Returns:
        output (batch, num_queries, num_hiddens) and per-head weights (batch, num_heads, num_queries, num_keys).
    """
    output = peer(queries, keys, values, valid_lens)
    return output, peer.attention.attention_weights.unflatten(0, (-1, peer.num_heads))
