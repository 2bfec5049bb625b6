"""The same layer elsewhere: the formula as a loop, torch's layer, d2l's layer, and weights moved between them."""

import math
from operator import attrgetter
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from mha_lib.attention.arguments import check_size
from mha_lib.attention.masks import check_valid_lens, valid_keys
from mha_lib.attention.multi_head import MultiHeadAttention
from mha_lib.attention.plain_layers import check_plain, parameters_of
from mha_lib.attention.torch_calls import CalledLikeTorch
from mha_lib.attention.torchvision_operators import import_beside_torchvision

__all__ = [
    "as_torch", "call_d2l", "call_torch", "from_d2l", "from_torch", "loop_over_heads", "to_d2l", "to_torch",
    "torch_masks",
]  # fmt: skip

D2lLayer: TypeAlias = Any  # d2l.MultiHeadAttention, an nn.Module: the package has no types


def loop_over_heads(
    layer: MultiHeadAttention, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None,
    head_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Compute the layer's output and attention weights, without dropout, by loops over examples, queries and heads.

    >>> layer, X = MultiHeadAttention(8, 2, query_size=8, key_size=8, value_size=8), torch.randn(1, 3, 8)
    >>> torch.allclose(loop_over_heads(layer, X, X, X)[0], layer(X, X, X), atol=1e-6)
    True

    It is slow and plain on purpose. It shares no code with the layer, so the two can be compared.
    It takes the weights from ``layer``, and other arguments as ``MultiHeadAttention.forward`` does. It returns the
    output (batch, num_queries, num_hiddens) and the weights (batch, num_heads, num_queries, num_keys).

    Source: Vaswani et al. 2017, section 3.2.2; d2l 11.5.1.
    """
    (batch_size, num_queries, _), num_keys = queries.shape, keys.shape[1]
    if valid_lens is not None:
        check_valid_lens(valid_lens, batch_size, num_queries, num_keys)
    head_size = layer.W_q.weight.shape[0] // layer.num_heads
    lengths = torch.full((batch_size, 1), num_keys) if valid_lens is None else valid_lens.reshape(batch_size, -1)
    lengths = lengths.expand(batch_size, num_queries)
    gates = (queries.new_ones(layer.num_heads) if head_mask is None else head_mask).expand(batch_size, layer.num_heads)
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
    """Convert this library's layer to ``nn.MultiheadAttention`` (batch first) with the same weights and dropout.
    Training or eval mode and frozen parameters are kept, too.

    >>> layer, X = MultiHeadAttention(8, 2, query_size=8, key_size=8, value_size=8), torch.randn(1, 3, 8)
    >>> torch.allclose(to_torch(layer)(X, X, X)[0], layer(X, X, X), atol=1e-6)
    True

    Raises:
        TypeError: ``layer`` is not a layer of this library.
        ValueError: ``layer`` has what torch's layer cannot have: a query size other than ``num_hiddens``, heads whose
            size is not num_hiddens / num_heads (as after some were removed), heads that share keys and values,
            methods of its own, adapters, quantised maps or hooks (see ``plain_layers``), maps of which some are trained
            where torch stacks them; or sizes that are still open (call it once first).
    """
    check_plain(layer, "torch's")
    ours = parameters_of(layer, "layer", "torch's")
    for name, size in (("W_q", "query_size"), ("W_k", "key_size"), ("W_v", "value_size")):
        if nn.parameter.is_lazy(ours[f"{name}.weight"]):
            raise ValueError(f"layer has an open {size}: call it once, or give the size, before moving its weights")
    query_size, key_size, value_size = (ours[f"{name}.weight"].shape[1] for name in ("W_q", "W_k", "W_v"))
    if query_size != layer.num_hiddens:
        raise ValueError(
            f"layer must have query_size = num_hiddens for torch's layer, got {query_size} and {layer.num_hiddens}"
        )
    if layer.num_heads * layer.head_size != layer.num_hiddens:
        raise ValueError(
            "layer must have num_heads · head_size = num_hiddens for torch's layer, got "
            f"{layer.num_heads} · {layer.head_size} and {layer.num_hiddens}; to_d2l has no such limit, and before "
            "heads are removed, to_torch works"
        )
    weight, dropout = ours["W_o.weight"], layer.attention.dropout.p
    peer = nn.MultiheadAttention(
        layer.num_hiddens, layer.num_heads, dropout, bias="W_o.bias" in ours, batch_first=True,
        kdim=key_size, vdim=value_size, device=weight.device, dtype=weight.dtype,
    )  # fmt: skip
    for name, theirs in peer.named_parameters():
        parts = [ours[part] for part in _OUR_NAMES[name]]
        if len({part.requires_grad for part in parts}) > 1:
            raise ValueError("layer must train W_q, W_k and W_v all or none for torch's layer, which stacks them")
        with torch.no_grad():
            theirs.copy_(torch.cat([part.to(theirs) for part in parts]))
        theirs.requires_grad_(parts[0].requires_grad)
    return peer.train(layer.training)


# The name in our layer of each parameter of torch's, which stacks the three input maps where their sizes are equal.
_OUR_NAMES = {
    "in_proj_weight": ("W_q.weight", "W_k.weight", "W_v.weight"), "in_proj_bias": ("W_q.bias", "W_k.bias", "W_v.bias"),
    "q_proj_weight": ("W_q.weight",), "k_proj_weight": ("W_k.weight",), "v_proj_weight": ("W_v.weight",),
    "out_proj.weight": ("W_o.weight",), "out_proj.bias": ("W_o.bias",),
}  # fmt: skip


def from_torch(peer: nn.MultiheadAttention) -> MultiHeadAttention:
    """Convert ``nn.MultiheadAttention`` to this library's layer with the same weights and dropout.
    Training or eval mode and frozen parameters are kept, too.

    Raises:
        TypeError: ``peer`` is not torch's layer.
        ValueError: ``peer`` has what our layer does not have: ``batch_first=False``, ``add_bias_kv``,
            ``add_zero_attn``, a ``forward`` of its own, or quantised maps.
    """
    if not isinstance(peer, nn.MultiheadAttention):
        raise TypeError(
            f"peer must be a torch.nn.MultiheadAttention, got {type(peer).__name__}; "
            "of a block it is block.self_attn, and d2l's layer goes by from_d2l"
        )
    if peer.bias_k is not None or peer.add_zero_attn:
        raise ValueError("peer must have add_bias_kv=False and add_zero_attn=False: our layer adds no keys of its own")
    if type(peer).forward is not nn.MultiheadAttention.forward or not isinstance(peer.out_proj.weight, Tensor):
        raise ValueError(
            f"peer must compute as torch.nn.MultiheadAttention does, on numbers as they are, got {type(peer).__name__} "
            "with a forward of its own or with quantised maps: convert before quantising"
        )
    if not peer.batch_first:
        raise ValueError(
            "peer must have batch_first=True: our layer takes (batch, number, size) alone. Set peer.batch_first = "
            "True, and swap the first two axes of what it is called with"
        )
    layer = MultiHeadAttention(
        peer.embed_dim, peer.num_heads, peer.dropout, bias=peer.in_proj_bias is not None,
        query_size=peer.embed_dim, key_size=peer.kdim, value_size=peer.vdim,
    ).to(peer.out_proj.weight)  # fmt: skip
    for name, parts in _OUR_NAMES.items():
        theirs = attrgetter(name)(peer)  # as it is computed, where torch prunes or normalises it
        for part, their_part in zip(parts, () if theirs is None else theirs.chunk(len(parts)), strict=False):
            with torch.no_grad():
                layer.get_parameter(part).copy_(their_part).requires_grad_(theirs.requires_grad)
    return layer.train(peer.training)


def as_torch(layer: MultiHeadAttention, batch_first: bool = True) -> CalledLikeTorch:
    """Wrap this library's layer in a module that is called like ``nn.MultiheadAttention`` and takes its masks.

    It replaces the layer in torch's blocks: ``block.self_attn = as_torch(from_torch(block.self_attn))``.

    Args:
        batch_first: as in torch's layer; False for sequences (number, batch, size).

    Raises:
        TypeError: ``layer`` is not a layer of this library.
    """
    return CalledLikeTorch(layer, batch_first)


def call_torch(
    peer: nn.MultiheadAttention, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run a batch-first ``nn.MultiheadAttention`` with ``valid_lens`` converted to masks; return output and weights.

    >>> output, weights = call_torch(nn.MultiheadAttention(8, 2, batch_first=True), *[torch.randn(1, 3, 8)] * 3)
    >>> output.shape, weights.shape
    (torch.Size([1, 3, 8]), torch.Size([1, 2, 3, 3]))

    It returns output (batch, num_queries, num_hiddens) and weights (batch, num_heads, num_queries, num_keys).

    Raises:
        ValueError: ``peer`` has ``batch_first=False``: it would attend across the batch.
    """
    if not peer.batch_first:
        raise ValueError("peer must have batch_first=True: with False it attends along the first axis, the batch")
    masks = {} if valid_lens is None else torch_masks(valid_lens, keys.shape[1], peer.num_heads)
    return peer(queries, keys, values, need_weights=True, average_attn_weights=False, **masks)


def torch_masks(valid_lens: Tensor, num_keys: int, num_heads: int) -> dict[str, Tensor]:
    """Convert ``valid_lens`` to a mask argument of ``nn.MultiheadAttention``, in a dict by the argument's name.
    In the mask, True means masked. Lengths that this library's layer refuses are refused here, too.

    >>> torch_masks(torch.tensor([1, 3]), num_keys=3, num_heads=2)
    {'key_padding_mask': tensor([[False,  True,  True],
            [False, False, False]])}
    """
    check_size("num_heads", num_heads)
    forbidden = ~valid_keys(valid_lens, num_keys)
    if valid_lens.dim() == 1:
        return {"key_padding_mask": forbidden.squeeze(1)}
    return {"attn_mask": forbidden.repeat_interleave(num_heads, dim=0)}


def load_d2l() -> ModuleType:
    """Import and return ``d2l.torch``, the Python package of the book "Dive into Deep Learning".

    The package imports torchvision, although its attention needs none of it; one that was built for a different torch
    does not stop it.

    Raises:
        ImportError: d2l, or something it imports, is not installed; the message has the command.
    """
    try:
        return import_beside_torchvision(_import_d2l)
    except ImportError as error:
        raise ImportError(
            f"d2l could not be imported ({error}). Install it beside this torch without its own old pins: "
            "python -m pip install pandas scipy requests pillow matplotlib-inline "
            "&& python -m pip install --no-deps d2l==1.0.3 torchvision"
        ) from error


def _import_d2l() -> ModuleType:
    from d2l import torch as d2l

    return d2l


def to_d2l(layer: MultiHeadAttention) -> nn.Module:
    """Convert this library's layer to ``d2l.MultiHeadAttention`` with the same weights and dropout.
    Training or eval mode and frozen parameters are kept, too.

    Raises:
        TypeError: ``layer`` is not a layer of this library.
        ValueError: ``layer`` has what d2l's layer cannot have: heads that share keys and values, methods of its own,
            adapters, quantised maps or hooks (see ``plain_layers``).
    """
    check_plain(layer, "d2l's")
    ours = parameters_of(layer, "layer", "d2l's")
    has_bias = "W_o.bias" in ours
    peer = load_d2l().MultiHeadAttention(layer.num_hiddens, layer.num_heads, layer.attention.dropout.p, has_bias)
    _fill(peer.to(ours["W_o.weight"]), ours)
    return peer.train(layer.training)


def from_d2l(peer: D2lLayer) -> MultiHeadAttention:
    """Convert ``d2l.MultiHeadAttention`` to this library's layer with the same weights and dropout.
    Training or eval mode and frozen parameters are kept, too.

    Raises:
        TypeError: ``peer`` is not d2l's layer.
        ValueError: ``peer`` was never called (its sizes are open), or has adapters, quantised maps or hooks.
    """
    needed = ("W_q", "W_k", "W_v", "W_o", "num_heads", "attention")
    if isinstance(peer, MultiHeadAttention) or not all(hasattr(peer, name) for name in needed):
        raise TypeError(
            f"peer must be a d2l.MultiHeadAttention, got {type(peer).__module__}.{type(peer).__name__}; "
            "torch's layer goes by from_torch"
        )
    theirs = parameters_of(peer, "peer", "our")
    if any(map(nn.parameter.is_lazy, theirs.values())):
        raise ValueError("peer has open sizes: call d2l's layer once before moving its weights")
    W_q, W_k, W_v, W_o = (theirs[f"{name}.weight"] for name in needed[:4])
    layer = MultiHeadAttention(
        len(W_o), peer.num_heads, peer.attention.dropout.p, bias="W_o.bias" in theirs, query_size=W_q.shape[1],
        key_size=W_k.shape[1], value_size=W_v.shape[1], head_size=len(W_q) // peer.num_heads,
    ).to(W_o)  # fmt: skip
    _fill(layer, theirs)
    return layer.train(peer.training)


def _fill(layer: nn.Module, parameters: dict[str, Tensor]) -> None:
    """Give a layer these weights and biases, by name, and their ``requires_grad``."""
    layer.load_state_dict(parameters)
    for name, parameter in parameters.items():
        layer.get_parameter(name).requires_grad_(parameter.requires_grad)


def call_d2l(
    peer: D2lLayer, queries: Tensor, keys: Tensor, values: Tensor, valid_lens: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run ``d2l.MultiHeadAttention``; return its output and its weights (batch, num_heads, num_queries, num_keys)."""
    output = peer(queries, keys, values, valid_lens)
    return output, peer.attention.attention_weights.unflatten(0, (-1, peer.num_heads))
