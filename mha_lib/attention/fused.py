"""Scaled dot-product attention once more: the same numbers, faster. Letters as in ``pooling``."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_lib.attention import arguments
from mha_lib.attention.execution import in_plain_call, in_transform
from mha_lib.attention.kept_weights import lazy_weights, nothing_was_kept
from mha_lib.attention.masked_scores import gives_single, masked_scores
from mha_lib.attention.masks import Masks, empty_rows
from mha_lib.attention.pooling import DotProductAttention, for_each_head, zero_masked

# Not every exporter takes the kernel with shared heads. (torch 2.6 has only the wider question.)
is_exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


class FusedAttention(DotProductAttention):
    """Compute scaled dot-product attention by torch's fused kernel, which does not store the attention weights.

    The weights are therefore computed when ``attention_weights`` is first read; until the next call, in ``eval`` and
    ``inference_mode`` too, a call's queries and keys stay alive for them. The formula takes over where the kernel would
    be slower (function transforms; on the CPU, dropout in training) or wrong (a subclass with ``scores`` or ``weights``
    of its own), and for derivatives in forward mode, which the kernel lacks.

    Attributes:
        takes_groups: whether keys and values may have fewer heads, (b, g, k, d), as in a layer with
            ``num_key_value_heads``: neighbouring heads of the queries share them, and the kernel takes them without
            copies, but where the formula, a mask for each head, or export needs them. Off, because tokens before heads,
            (b, n, h, d), would be taken for such groups.
        keep_weights: always use the formula, and keep the weights: faster if they are read after every call, else a
            waste of memory. The result is the same up to rounding, in half precision too. Second derivatives need it.
        keep_inputs: keep a call's queries and keys for its weights. False: nothing of a call stays alive (except the
            weights, with ``keep_weights``), and ``attention_weights`` says how to get them.
        skip_padding: attend to long examples one at a time, each with its valid keys alone. The result is the same up
            to rounding; on the CPU it is faster, the more padding there is.
    """

    keep_weights = False
    keep_inputs = True
    skip_padding = True

    def forward(self, queries, keys, values, valid_lens=None, *, attn_mask=None, causal=False) -> Tensor:
        self.store_weights(None)
        flags = dict(keep_weights=self.keep_weights, keep_inputs=self.keep_inputs, skip_padding=self.skip_padding)
        if self.keep_weights is True or self._is_overridden():
            arguments.check_flags(**flags)
            return super().forward(queries, keys, values, valid_lens, attn_mask=attn_mask, causal=causal)
        arguments.check_pooling(self, queries, keys, values, same_size=True, causal=causal, **flags)
        masks = Masks((*queries.shape[:-1], keys.shape[-2]), queries, valid_lens, attn_mask, causal)
        plain = in_plain_call(queries)
        output = self._output(queries, keys, values, masks, plain)
        if plain:
            kept = lazy_weights(self.weights, queries, keys, masks) if self.keep_inputs else nothing_was_kept
            self.store_weights(kept)
        return output

    def _output(self, queries, keys, values, masks: Masks, plain: bool) -> Tensor:
        """The averages; masks are joined only where the kernel has no faster way."""
        # The kernel's causal mask starts at the first key: the same as ours where there are as many queries as keys.
        causal, valid_lens = masks.causal, masks.valid_lens
        kernel_is_causal = causal and queries.shape[-2] == keys.shape[-2] and not self._goes_by_formula(queries)
        if masks.attn_mask is None and causal == kernel_is_causal:  # then no mask of q × k numbers is needed
            if valid_lens is None:
                return self._average(queries, keys, values, None, causal, plain)
            if self.skip_padding and plain and padding_is_worth_skipping(queries, keys, valid_lens):
                examples = zip(queries.split(1), keys.split(1), values.split(1), valid_lens.tolist(), strict=True)
                cut = [(q, k[..., : int(n), :], v[..., : int(n), :]) for q, k, v, n in examples]
                return torch.cat([self._average(q, k, v, None, causal, plain) for q, k, v in cut])
        return self._average(queries, keys, values, masks.joined(), False, plain)

    def weights(self, queries: Tensor, keys: Tensor, mask: Tensor | None = None) -> Tensor:
        """The formula's weights, masked within the product, and in place when no gradient is needed: much faster."""
        if self._is_overridden():
            return super().weights(queries, keys, mask)
        arguments.check_same_size(queries, keys)
        (keys,), is_empty = zero_masked(mask, for_each_head(keys, queries)), empty_rows(mask)
        in_place = in_plain_call(queries) and not torch.is_grad_enabled() and not in_transform()  # saves a buffer
        by_formula = mask is None and not (in_place and gives_single(queries))
        scores = self.scores(queries, keys) if by_formula else masked_scores(queries, keys, mask, is_empty, in_place)
        weights = torch.softmax(scores, dim=-1, out=scores if in_place else None).to(queries.dtype)
        if is_empty is not None:
            weights = weights[..., : keys.shape[-2]]  # without spare keys; on the CPU contiguous, and 0 beside NaN
            weights = weights.masked_fill(is_empty, 0.0) if weights.is_cpu else weights
        return weights

    def _average(self, queries, keys, values, mask: Tensor | None, is_causal: bool, plain: bool) -> Tensor:
        """The output alone."""
        by_formula = self._goes_by_formula(queries)
        if keys.dim() == 4 and keys.shape[1] != queries.shape[1]:  # heads share keys and values
            of_heads = mask is not None and mask.dim() == 4 and mask.shape[1] > 1
            if of_heads or by_formula or is_exporting():
                keys, values = for_each_head(keys, queries), for_each_head(values, queries)
        if by_formula:
            return self.dropout(self.weights(queries, keys, mask)) @ zero_masked(mask, values)[0]  # (b, q, d)
        dropout = self.dropout.p if self.training else 0.0
        if mask is not None and plain and not torch.is_grad_enabled() and queries.is_cpu:
            output = kernel(queries, keys, values, plain=plain, mask=mask, dropout=dropout)
            if math.isfinite(output.sum()):  # no NaN came in
                return output
        keys, values = zero_masked(mask, keys, values)
        output = kernel(queries, keys, values, plain=plain, mask=mask, is_causal=is_causal, dropout=dropout)
        # On an H100 cuDNN's kernel gives numbers for a row without a key, in half precision and with a bool mask.
        is_sure = mask is None or mask.shape[-2] == 1 or queries.is_cpu  # one row for all: where empty, values are 0
        is_empty = None if is_sure else empty_rows(mask)
        return output if is_empty is None else output.masked_fill(is_empty, 0.0)

    def _goes_by_formula(self, queries: Tensor) -> bool:
        return in_transform() or (self.training and self.dropout.p > 0 and queries.is_cpu)  # its kernel has no dropout

    def _is_overridden(self) -> bool:
        return type(self).scores is not DotProductAttention.scores or type(self).weights is not FusedAttention.weights


def kernel(queries, keys, values, *, plain: bool, mask: Tensor | None, is_causal=False, dropout=0.0) -> Tensor:
    """Run ``F.scaled_dot_product_attention`` on inputs with a head axis, (b, h, n, d), or without one, (b, n, d)."""
    if queries.dim() == 3:
        mask = mask if mask is None or mask.dim() == 2 else mask[:, None]  # (b, q, k) -> (b, 1, q, k)
        heads = (X[:, None] for X in (queries, keys, values))  # (b, n, d) -> (b, 1, n, d)
        return kernel(*heads, plain=plain, mask=mask, is_causal=is_causal, dropout=dropout).squeeze(1)
    groups = keys.shape[1] != queries.shape[1]
    output = F.scaled_dot_product_attention(queries, keys, values, mask, dropout, is_causal, enable_gqa=groups)
    if plain and (node := output.grad_fn) and "ScaledDotProduct" in node.name():
        node.register_hook(_derived_once)
    return output


def _derived_once(gradients: tuple, _: tuple) -> tuple:
    """Make a derivative of the kernel's gradients, which torch lacks, an error that says how to get one."""
    return tuple(_DerivedOnce.apply(X) if X is not None and X.requires_grad else X for X in gradients)


class _DerivedOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gradient: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, *_: Tensor) -> Tensor:
        raise RuntimeError(
            "second derivatives: torch's kernel has none. Set keep_weights of the attention to True, as in "
            "layer.attention.keep_weights = True, and call it again"
        )


def padding_is_worth_skipping(queries: Tensor, keys: Tensor, valid_lens: Tensor) -> bool:
    """Return whether running each example alone, on its valid keys only, is faster than masking the padded batch."""
    is_long = queries.shape[-2] * keys.shape[-2] >= 256 * 256
    return is_long and valid_lens.is_cpu and valid_lens.dim() == 1 and len(valid_lens) > 0
