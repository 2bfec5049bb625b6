"""What a call asks of the device: operators, and tensors of q × k numbers, for ours, torch.nn and d2l.

It needs no GPU: all is on torch's ``meta`` device, which knows shapes alone and is no CPU, so that the layer goes the
way it goes on a GPU, with products of half precision that give single precision, which no CPU has. What a fused
operator does inside is not seen: ``scaled_dot_product_attention`` counts as one, and so does a product that adds.
On a GPU each of these tensors is written to its memory and read again, which takes most of the time of such a call.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import gpu, report
from benchmarks.contenders import Cell
from mha_lib.attention import masked_scores

CELL = Cell(32, 256, 512, 8)  # for every cell of ``gpu`` the counts are the same
CASES = [case for case in gpu.CASES if "training" not in case]
SHORT = {torch.float32: "f32", torch.bfloat16: "bf16", torch.bool: "bool", torch.int64: "i64"}


class Traffic(TorchDispatchMode):
    """Counts operators, and tensors of q × k numbers that they write, by dtype and size."""

    def __init__(self, num_queries: int, num_keys: int):
        super().__init__()
        self.shape, self.with_spare = (num_queries, num_keys), (num_queries, num_keys + masked_scores.SPARE)
        self.bytes = 0
        self.operators: Counter[str] = Counter()
        self.written: Counter[tuple[torch.dtype, int]] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = {id_of_memory(X) for X in tree_leaves((args, kwargs)) if isinstance(X, Tensor)}
        result = function(*args, **(kwargs or {}))
        results = [X for X in tree_leaves(result) if isinstance(X, Tensor)]
        writes = any(one.alias_info is not None and one.alias_info.is_write for one in function._schema.returns)
        if writes or not all(id_of_memory(X) in given for X in results):  # a view computes nothing
            self.count(function.overloadpacket.__name__, results)
        return result

    def count(self, name: str, results: Iterable[Tensor]) -> None:
        """Note that this operator wrote these."""
        self.operators[name] += 1
        for X in results:
            if X.shape[-2:] in (self.shape, self.with_spare):
                self.written[X.dtype, X.shape[:-2].numel()] += 1
                self.bytes += X.numel() * X.itemsize

    def for_each_head(self) -> int:
        """The number of tensors that are as large as the largest, which is one with an axis of heads."""
        largest = max((of_each for _, of_each in self.written), default=0)
        return sum(times for (_, of_each), times in self.written.items() if of_each == largest > CELL.batch)

    def __str__(self) -> str:
        """The number of operators, and of tensors by dtype; those that all heads share are marked."""
        largest = max((of_each for _, of_each in self.written), default=0)
        tensors = Counter[str]()
        for (dtype, of_each), times in self.written.items():
            tensors[SHORT[dtype] + ("" if of_each == largest and of_each > CELL.batch else " of all heads")] += times
        written = ", ".join(f"{times} {name}" for name, times in sorted(tensors.items())) or "none"
        return f"{self.operators.total()}; {written}"


def id_of_memory(X: Tensor) -> int:
    """Return what two tensors have in common if one is a view of the other."""
    return X.untyped_storage()._cdata


def traffic(call: Callable[[], object], num_queries: int, num_keys: int) -> Traffic:
    """Return what one call asks of the device."""
    seen = Traffic(num_queries, num_keys)

    def fused(queries: Tensor, keys: Tensor, values: Tensor, *masks, **others) -> Tensor:
        """One operator, as on a GPU; on ``meta`` torch would take it apart."""
        with torch.utils._python_dispatch._disable_current_modes():
            output = queries.new_empty(*queries.shape[:-1], values.shape[-1])
        seen.count("scaled_dot_product_attention", [output])
        return output

    multiply = torch.baddbmm

    def product(added: Tensor, Q: Tensor, K: Tensor, *, out_dtype: torch.dtype | None = None, **others) -> Tensor:
        """One operator in any case; on ``meta`` torch has none that gives another dtype."""
        if out_dtype is None:
            return multiply(added, Q, K, **others)
        with torch.utils._python_dispatch._disable_current_modes():
            scores = added.new_empty(*Q.shape[:-1], K.shape[-1], dtype=out_dtype)
        seen.count("baddbmm", [scores])
        return scores

    stand_ins = mock.patch.multiple(torch, baddbmm=product), mock.patch.multiple(F, scaled_dot_product_attention=fused)
    can = mock.patch.object(masked_scores, "_gives_single", lambda device, dtype: True)
    with torch.no_grad(), stand_ins[0], stand_ins[1], can, seen:
        call()
    return seen


def counts(case: str, dtype: torch.dtype, cell: Cell = CELL) -> Mapping[str, Traffic]:
    """Return what each contender asks of the device for one call."""
    calls = gpu.calls_of(case, cell, dtype, device="meta")
    return {name: traffic(calls[name], cell.n, cell.n) for name in ("ours", "torch", "d2l")}


def row(case: str, dtype: torch.dtype) -> list[str]:
    """The counts of one case, and whether the better peer writes less than ours."""
    found = counts(case, dtype)
    mib = [f"{one.bytes / 2**20:.0f}" for one in found.values()]
    ours, *peers = (one.for_each_head() for one in found.values())
    verdict = "yes" if ours > min(peers) else "no"
    return [case, SHORT[dtype], *map(str, found.values()), " / ".join(mib), verdict]


def main() -> None:
    """Print and write the table."""
    body = [row(case, dtype) for dtype in gpu.DTYPES for case in CASES]
    head = [
        "case",
        "numbers",
        "ours",
        "torch.nn",
        "d2l",
        "MiB written: ours / torch.nn / d2l",
        "more of them than the better",
    ]
    text = (
        f"Operators; tensors of q × k numbers that they write. Case {CELL}, torch {torch.__version__}. "
        f"Nothing is timed, and what a fused operator does inside is not seen.\n\n{report.markdown(head, body)}"
    )
    print(text)
    (report.RESULTS / "traffic.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
