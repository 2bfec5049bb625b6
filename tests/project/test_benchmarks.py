"""The benchmarks compare like with like, and report what they found."""

from importlib.util import find_spec
from unittest import mock

import pytest
import torch

from benchmarks import gpu, layer, measure, memory, report, traffic, writing
from benchmarks.contenders import CONTENDERS, Cell, contenders
from mha_course.models import smollm2

SMALL = Cell(2, 8, 16, 4)


needs_d2l = pytest.mark.skipif(find_spec("d2l") is None, reason="d2l is not installed")


@needs_d2l
@pytest.mark.parametrize("valid_lens", [None, torch.tensor([3, 8])])
def test_contenders_agree(valid_lens):
    calls = contenders(SMALL.layer().eval(), *CONTENDERS)
    layer.check_agreement(calls, SMALL.tokens(), valid_lens)
    calls["wrong"] = lambda X, valid_lens: calls["ours"](X, None) + 1e-3
    with pytest.raises(AssertionError):
        layer.check_agreement(calls, SMALL.tokens(), valid_lens)


@pytest.mark.parametrize(
    "name, number", [("ours", 2), ("ours, masked", 1), ("ours, weights", 1), ("ours, weights kept", 0)]
)
def test_the_masked_contender_skips_no_padding_and_only_kept_weights_need_no_fused_kernel(name, number, kernel_calls):
    cell, lengths = (SMALL, None) if "weights" in name else (Cell(2, 256, 4, 2), torch.tensor([5, 256]))
    contenders(cell.layer().eval(), name)[name](cell.tokens(), lengths)
    assert len(kernel_calls) == number


@needs_d2l
@pytest.mark.parametrize("case", gpu.CASES)
def test_contenders_of_a_gpu_agree_and_fill_a_row(case, monkeypatch):
    monkeypatch.setattr(gpu, "DEVICE", "cpu")
    monkeypatch.setitem(gpu.TOLERANCES, torch.float32, 1e-5)
    row = gpu.row(case, SMALL, torch.float32, rounds=2, repeats=1)
    assert row[:3] == [case, "(2, 8, 16, 4)", "float32"] and len(row) == 8


def test_traffic_counts_operators_that_compute_and_what_they_write():
    def call():
        scores = torch.ones(2, 5, 3, device="meta") @ torch.ones(2, 3, 4, device="meta")
        torch.softmax(scores.transpose(1, 2).transpose(1, 2), dim=-1)
        (scores[0] > 0).sum(-1)

    seen = traffic.traffic(call, num_queries=5, num_keys=4)
    assert seen.operators == {"ones": 2, "bmm": 1, "_softmax": 1, "gt": 1, "sum": 1}
    assert seen.written == {(torch.float32, 2): 2, (torch.bool, 1): 1}
    assert seen.bytes == (2 * 2 * 4 + 1) * 5 * 4


@needs_d2l
@pytest.mark.parametrize("dtype", gpu.DTYPES)
@pytest.mark.parametrize("case", ["no mask", "lengths", "causal"])
def test_without_weights_no_call_of_ours_writes_q_times_k_numbers(case, dtype):
    found = traffic.counts(case, dtype)
    assert found["ours"].bytes == 0 and found["ours"].operators["scaled_dot_product_attention"] == 1
    assert found["d2l"].bytes >= 3 * 32 * 8 * 256 * 256 * dtype.itemsize


@needs_d2l
@pytest.mark.parametrize("dtype", gpu.DTYPES)
@pytest.mark.parametrize("case", ["weights", "lengths, weights"])
def test_weights_take_as_few_tensors_as_the_formula_in_single_precision(case, dtype):
    found = traffic.counts(case, dtype)
    written = {seen: sum(n for (of, _), n in found["ours"].written.items() if of == seen) for seen in gpu.DTYPES}
    half = dtype == torch.bfloat16
    assert written == {torch.float32: 2, torch.bfloat16: int(half)}  # scores, softmax; rounded once
    better = "d2l" if half else "torch"  # which rounds scores in half precision, too: two tensors
    assert found["ours"].for_each_head() <= found[better].for_each_head()
    assert found["ours"].operators["_to_copy"] <= 2 * half  # queries and keys stay in half precision


def test_calls_take_turns():
    log = []
    calls = {name: lambda name=name: log.append(name) for name in "abc"}
    times = measure.in_turn(calls, seconds=0, rounds=20)
    assert {name: len(seconds) for name, seconds in times.items()} == dict.fromkeys("abc", 20)
    rounds = [tuple(log[start : start + 3]) for start in range(0, len(log), 3)]
    assert len(rounds) == 21 and len(set(rounds)) > 3
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)


def test_a_ratio_is_taken_within_the_round():
    assert measure.ratio([2, 20, 200], [1, 10, 100]) == (2, 2, 2)
    assert measure.ratio([1, 2, 3, 4, 5], [1] * 5) == (3, 1.5, 4.5)


@needs_d2l
def test_a_row_and_its_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setitem(layer.CELLS, "paragraphs", SMALL)
    monkeypatch.setitem(layer.CELLS, "pages", SMALL)
    rows = [layer.beside_peers("paragraphs", lengths, lengths, seconds=0, rounds=2) for lengths in (True, False)]
    rows += [layer.with_dropout("paragraphs", seconds=0, rounds=2), layer.with_ragged_lengths("pages", 0, 2)]
    report.write_speed([row | {"allocator": "memory kept"} for row in rows], full=True)
    text = capsys.readouterr().out
    assert text == (tmp_path / "speed.md").read_text(encoding="utf-8")
    assert text.count("paragraphs | (2, 8, 16, 4)") == 3 and "share of the sgemm rate" in text


def test_every_layer_has_a_row_of_its_memory(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    curves = {name: {1024: number, 2048: 2 * number} for number, name in enumerate(memory.LAYERS, start=1)}
    report.write_memory(curves, [], [], full=True)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [[name, str(number), str(2 * number)] for number, name in enumerate(memory.LAYERS, start=1)]


def test_a_process_of_its_own_gives_what_its_function_gives():
    assert measure.in_process_of_its_own(measure.ratio, [2, 20, 200], [1, 10, 100]) == [2, 2, 2]


@pytest.mark.parametrize("number, holds", [(1.25, "yes"), (1.24, "NO")])
def test_a_floor_is_held_against_the_lowest_number(number, holds, monkeypatch):
    row = {"table": "peers", "cell": "paragraphs", "training": False, "lengths": True, "allocator": "memory kept"}
    monkeypatch.setattr(report, "FLOORS", report.FLOORS[:1])
    rows = [row | {"output": {"d2l, weights": (median,)}} for median in (number, 3.0)]
    table = report.table_of_floors([*rows, row | {"skipped": "…"}, *(r | {"cell": "toy"} for r in rows)])
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert lines[2:] == [
        ["output only, against d2l", "1.25", f"{number:.2f}", holds, "paragraphs, forward, valid_lens", ""]
    ]


@pytest.fixture
def small_kinds():
    """Whole, pruned and streaming models of SmolLM2's layers and groups, small."""
    with mock.patch.multiple(smollm2, NUM_HIDDENS=36, FFN_NUM_HIDDENS=8, VOCAB_SIZE=50):
        return writing.models(writing.random_model())


@pytest.mark.parametrize("cell", [writing.Cell("write", 40, 2), writing.Cell("write", 7), writing.Cell("read", 33)])
def test_products_and_bytes_of_writing_are_those_of_a_count(cell, small_kinds):
    found = writing.measured(cell, small_kinds, rounds=2)
    number, old = (cell.tokens, 0) if cell.task == "read" else (1, cell.tokens)
    for kind, (pruned, streaming) in writing.KINDS.items():
        total = num_weights = 0
        for _ in range(30):
            groups = 3 - pruned
            matrices = (3 * groups + 2 * groups) * 4 * 36 + 36 * 12 * groups + 3 * 36 * 8  # queries, keys, values, W_o
            num_weights += matrices + 2 * 36  # norms
            total += number * matrices
            for i in range(old, old + number):
                seen = [i + 1 if group >= streaming else min(i + 1, 28) for group in range(groups)]
                total += 2 * 3 * 4 * sum(seen)
        kept = [old + number if group >= streaming else min(old + number, 28) for group in range(3 - pruned)]
        cache = 30 * 2 * cell.batch * 4 * sum(kept) * 4
        assert found[kind]["products"] == cell.batch * (total + 36 * 50)
        assert found[kind]["cache"] == cache
        assert found[kind]["bytes"] == cache + 4 * (num_weights + 36 * 50 + 36)
    row = writing.table({str(cell): found}).splitlines()[-1]
    ceiling = found["whole"]["bytes"] / found["two thirds stream"]["bytes"]
    assert str(cell) in row and (cell.task == "read" or f"ceiling {ceiling:.2f}" in row)


def test_what_is_timed_in_writing_is_what_the_model_gives(small_kinds):
    model, streaming = small_kinds["a third streams"]
    call, _ = writing.call_of(writing.Cell("read", 33), model, streaming)
    assert torch.equal(call(), call())  # each starts anew
    with torch.no_grad():
        whole, _ = small_kinds["whole"]
        expected = whole(torch.arange(33)[None], None, None)[:, -1]
    call, _ = writing.call_of(writing.Cell("read", 33), whole, small_kinds["whole"][1])
    torch.testing.assert_close(call(), expected, rtol=0, atol=1e-4)


def test_of_a_plan_the_groups_whose_heads_all_stream_keep_less(small_kinds):
    whole, _ = small_kinds["whole"]
    off = {"blocks.layer 3.attention": [0, 1, 2, 4, 5, 6, 7, 8], "blocks.layer 7.attention": [3, 4]}
    kinds = writing.kinds_of_plans(whole, {name: {"plan": off} for name in writing.PLANS})
    model, streaming = kinds["heads"]
    assert model is whole and {layer: groups for layer, groups in streaming.items() if groups} == {"layer 3": [0, 2]}
    found = writing.measured(writing.Cell("write", 40), kinds, rounds=2)
    assert found["base"]["cache"] == 30 * 3 * 2 * 4 * 4 * 41 - 2 * 2 * 4 * 4 * (41 - 28)
    assert found[writing.REMOVED]["cache"] == 72 * 2 * 4 * 4 * 41 and set(found) == {*kinds}
