"""The exercises of notebook 08 on removal: heads taken out of a layer, and the fewest heads that keep the accuracy."""

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mha_course import heads
from mha_course.checking.exercise import exercise, judged
from mha_course.checking.running import MistakeError, run_safely
from mha_course.checking.wording import kind_of
from mha_course.exercises.whole_layer import my_layer

NUM_HIDDENS, NUM_HEADS = 12, 4
REMOVALS = ([1], [3], [0, 2], [1, 2])  # of four heads
CLOSE = 1e-4
PROJECTIONS = ("W_q", "W_k", "W_v")


def smaller_layer(layer, removed):
    small = copy.deepcopy(layer)
    rows = torch.arange(len(layer.W_q.weight)).unflatten(0, (layer.num_heads, -1))
    stay = [head for head in range(layer.num_heads) if head not in removed]
    kept = rows[stay].flatten()
    for linear in (small.W_q, small.W_k, small.W_v):
        linear.weight = nn.Parameter(linear.weight[kept])
        if linear.bias is not None:
            linear.bias = nn.Parameter(linear.bias[kept])
    small.W_o.weight = nn.Parameter(small.W_o.weight[:, kept])
    small.num_heads = layer.num_heads - len(removed)
    return small


@judged(
    right=smaller_layer,
    idea="Head i owns p rows of `W_q`, `W_k` and `W_v`, and the p columns of `W_o` with the same numbers.",
    begin="Begin with a copy of the layer, and the numbers of the rows of all heads that stay.",
)
def remove_heads(function: Callable[[nn.Module, list[int]], nn.Module]) -> str:
    """Check a learner's function that removes heads from an attention layer: outputs must equal those of masked heads.

    function(layer, removed): a layer with W_q, W_k, W_v, W_o and num_heads, and a list of heads → a smaller layer.
    """
    for removed, bias in itertools.product(REMOVALS, (True, False)):
        require_removed(function, removed, bias)
    return "The smaller layers give the same outputs as the gates, with fewer parameters."


def require_removed(function: Callable, removed: list[int], bias: bool) -> None:
    """Raise a ``MistakeError`` unless ``function`` removes exactly the heads in ``removed`` from a layer."""
    layer: Any = my_layer()(NUM_HIDDENS, NUM_HEADS, bias=bias).eval()
    X, before = torch.randn(2, 5, NUM_HIDDENS), copy.deepcopy(layer.state_dict())
    numbers = list(range(NUM_HEADS))

    def attempt(X: Tensor) -> Any:
        small = function(layer, list(removed))
        if not isinstance(small, nn.Module):
            return small
        is_unchanged = layer.num_heads == NUM_HEADS and all(
            before[name].shape == value.shape and torch.equal(before[name], value)
            for name, value in layer.state_dict().items()
        )
        count = sum(parameter.numel() for parameter in small.parameters())
        sizes = [list(getattr(small, name).weight.shape) for name in (*PROJECTIONS, "W_o")]
        try:
            output, error = small(X, X, X).detach(), ""
        except Exception as raised:  # whatever a layer of mixed sizes raises
            output, error = torch.zeros(0), f"{type(raised).__name__}: {raised}"
        return is_unchanged, count, sizes, output, error, small.num_heads

    (outcome,) = run_safely(attempt, [(X,)])
    where = f"With heads {removed} of {NUM_HEADS} removed"
    if outcome.error:
        error = ": ".join(filter(None, outcome.error))
        raise MistakeError(
            f"{where}, your function raises {error}." + (f" The line: {outcome.line}" * bool(outcome.line))
        )
    if not isinstance(outcome.value, tuple):
        raise MistakeError(f"A layer is needed; the function returns {kind_of(outcome.value)}.")
    is_unchanged, count, sizes, output, error, num_heads = outcome.value
    kept = [head for head in numbers if head not in removed]
    if not is_unchanged:
        raise MistakeError(f"{where}, the layer that was given has changed. Change a copy of it, by `copy.deepcopy`.")
    if text := of_sizes(sizes, len(kept)):
        raise MistakeError(f"{where}: {text}")
    if error:
        told = f" It has `num_heads` = {num_heads}, and {len(kept)} heads are left." if num_heads != len(kept) else ""
        raise MistakeError(f"{where}, the new layer raises {error.splitlines()[0]}.{told}")
    expected = masked_output(layer, X, kept)
    if output.shape == expected.shape and torch.allclose(output, expected, atol=CLOSE):
        whole = sum(value.numel() for value in before.values())
        gone = len(removed) * (NUM_HIDDENS // NUM_HEADS) * (4 * NUM_HIDDENS + 3 * bias)
        if count != whole - gone:
            raise MistakeError(
                f"{where}, the output is right, but {count} parameters are left; {whole - gone} are needed. "
                "The rows of the biases go, too."
            )
        return
    raise MistakeError(f"{where}, {of_output(layer, X, output, removed, num_heads)}")


def of_sizes(sizes: list[list[int]], kept: int) -> str:
    """Return which of the four weight shapes is wrong for a layer of ``kept`` heads, as a message; "" if none is."""
    rows, whole = kept * NUM_HIDDENS // NUM_HEADS, [NUM_HIDDENS, NUM_HIDDENS]
    right = [[rows, NUM_HIDDENS]] * 3 + [[NUM_HIDDENS, rows]]
    if sizes == right:
        return ""
    if sizes == [whole] * 4:
        return (
            "all weights have their old sizes: the gates were left in. Remove rows and columns, so that less is stored."
        )
    if sizes[3] == [rows, NUM_HIDDENS]:
        return f"`W_o` has lost rows: its weight is {tuple(sizes[3])}. Head i owns *columns* of `W_o`."
    if sizes[0] == [NUM_HIDDENS - rows, NUM_HIDDENS]:
        return "only the removed heads are left. Keep the others."
    for name, size, needed in zip((*PROJECTIONS, "W_o"), sizes, right, strict=True):
        if size != needed:
            return f"the weight of `{name}` must be {tuple(needed)}, it is {tuple(size)}."
    return ""


def masked_output(layer: Any, X: Tensor, kept: Sequence[int]) -> Tensor:
    """Return the layer's self-attention output for X with the heads in ``kept`` active and all others masked."""
    gates = torch.zeros(NUM_HEADS)
    gates[list(kept)] = 1
    return layer(X, X, X, head_mask=gates).detach()


def of_output(layer: Any, X: Tensor, output: Tensor, removed: list[int], num_heads: int) -> str:
    """Return a message on why a pruned layer's ``output`` is wrong, such as that it keeps wrong heads of ``layer``."""
    numbers, after_each = list(range(NUM_HEADS)), list(range(NUM_HEADS))
    for head in removed:  # where every removal moves the numbers of the heads behind it
        if head < len(after_each):
            del after_each[head]
    if num_heads != NUM_HEADS - len(removed):
        return f"`num_heads` is {num_heads}; it must be {NUM_HEADS - len(removed)}."
    for size in range(1, NUM_HEADS):
        for kept in itertools.combinations(numbers, size):
            if torch.allclose(output, masked_output(layer, X, kept), atol=CLOSE):
                if list(kept) == sorted(removed):
                    return "the output is that of the removed heads alone. Keep the others."
                if list(kept) == after_each:
                    return (
                        f"the output is that of heads {list(kept)}: after one removal the heads behind it have moved "
                        "up. Collect all rows first, then remove them at once."
                    )
                return f"the output is that of heads {list(kept)}."
    return (
        "the output is not that of the layer with their gates at 0. Take the same rows from `W_q`, `W_k` and `W_v` and "
        "from their biases, and the columns of the same numbers from `W_o`. The bias of `W_o` stays."
    )


def accuracies(num_heads: int) -> tuple[Tensor, Tensor]:
    """Return two random tensors (2**num_heads,), accuracies of every subset of heads, mostly higher for larger ones."""
    sizes = heads.set_members(torch.arange(2**num_heads), num_heads).sum(dim=1)
    common = 0.5 * (sizes / num_heads) ** 0.5 + 0.3 * torch.rand(2**num_heads)
    first, second = (common + 0.15 * torch.rand(2**num_heads) for _ in range(2))
    return (first / first.max()).double(), (0.95 * second / second.max()).double()


@exercise(
    trials=lambda: [
        (*accuracies(number), share) for number, share in ((3, 0.8), (4, 0.9), (5, 0.85), (6, 0.9), (7, 0.8))
    ],
    praise="Each set is chosen on the calibration set, and its size on other examples.",
    idea="There is one best set for each size. Choose all of them first, then ask which of them do well enough.",
    begin="Begin with `heads.best_sets`, which gives the best set of every size.",
    mistakes="""
    best_sets(calibration) -> best_sets(test) => The sets are chosen on the test set, which must choose none of them.
    test[chosen] >= share * test[-1] -> calibration[chosen] >= share * calibration[-1] => The accuracy is that on the
        calibration set, where the sets were chosen: it is partly luck. Use the test set here.
    best_sets(calibration) -> best_sets(test) ; test[chosen] >= share * test[-1] -> calibration[chosen] >= share *
        calibration[-1] => The two sets of examples are exchanged.
    share * test[-1] -> share => The accuracy is compared with `share` itself. Compare it with that share of the
        accuracy with all heads.
    share * test[-1] -> share * calibration[-1] => The accuracy with all heads is that on the calibration set. Compare
        on one set of examples.
    share * test[-1] -> share * test.max() => The accuracy is compared with that of the best set. Compare it with that
        of all heads, the last set.
    nonzero()[0] -> nonzero()[-1] => This is the largest set that is good enough. Return the smallest.
    chosen[enough.nonzero()[0]].item() -> enough.nonzero()[0].item() => This is the number of heads. Return the number
        of the set.
    chosen[enough.nonzero()[0]].item() -> chosen.flip(0)[(~enough.flip(0)).nonzero()[0] - 1].item() => The search
        stops at the first size that is not good enough, from above. Look at all sizes.
    """,
)
def smallest_set(calibration, test, share):
    """Find the smallest set of heads, best of its size in ``calibration``, that keeps ``share`` of the full accuracy.

    calibration, test (2**num_heads,): accuracy with every set of heads, numbered as in ``mha_course.heads.coalitions``,
    on two sets of examples; share, a number from 0 to 1 → the number of a set. For each size, take the set that is best
    on the calibration set. Of these, return the smallest that has at least this share of the accuracy with all heads on
    the test set.
    """
    chosen = heads.best_sets(calibration)
    enough = test[chosen] >= share * test[-1]
    return chosen[enough.nonzero()[0]].item()
