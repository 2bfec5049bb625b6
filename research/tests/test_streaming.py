"""What streaming heads are measured on and by, tried without the model: texts, plans, draws, and what is kept."""

import json
import sys
from pathlib import Path

import pytest
import torch

from research import streaming

sys.path.append(str(Path(__file__).parents[2] / "tests" / "models"))
from small_language_model import small_language_model

WORDS = "Some heads of a model that reads long texts see only what came last and what came first of all"


class Tokens:
    """A word is a token."""

    def tokenize(self, text):
        return [len(word) for word in text.split()]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two modules, and tests of it, which are no texts."""
    folder = tmp_path / "some_package"
    (folder / "tests").mkdir(parents=True)
    sentence = f"{WORDS}, and number {{}} is one of them."
    for number, name in enumerate(("__init__", "second", "tests/test_it")):
        text = "\n\n".join(sentence.format(f"{number}{line}") for line in range(12))
        source = (
            f'"""{text}\n\nno sentence::\n\nToo short.\n"""\n\nimport os\n\n\ndef f{number}():\n'
            + "    x = [1, 2]\n" * 60
        )
        (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(streaming, "kept_runs", set)
    streaming.modules_of.cache_clear()
    return "some_package"


def test_texts_are_prose_prose_twice_or_code_and_never_of_tests(package):
    (prose,) = {tuple(row) for row in streaming.texts(Tokens(), "prose", 1, 1, [package])["ids"].tolist()}
    lengths = [len(word) for word in WORDS.split()]
    assert len(prose) == 160 and list(prose[: len(lengths) - 1]) == lengths[:-1]
    twice = streaming.texts(Tokens(), "copying", 1, 2, [package])
    assert twice["ids"].shape == (2, 160) and torch.equal(*twice["ids"].split(80, dim=1)) and twice["start"] == 81
    code = streaming.texts(Tokens(), "code", 1, 1, [package])["ids"][0].tolist()
    assert code[:2] == [3, 5] and code[2:6] == [1, 1, 3, 2]  # def f0(): or f1(), then x = [1, 2]
    assert [file.name for file in streaming.modules_of(package)] == ["__init__.py", "second.py"]


def test_a_module_gives_one_text(package):
    assert len(streaming.texts(Tokens(), "prose", 0, 2, [package])["ids"]) == 2
    with pytest.raises(StopIteration):
        streaming.texts(Tokens(), "prose", 0, 3, [package])


def test_a_text_that_shares_eight_words_with_a_kept_one_is_left_out(package, monkeypatch):
    eight = " ".join(WORDS.split()[3:11])
    monkeypatch.setattr(streaming, "kept_runs", lambda: streaming.runs_of_words(f"here {eight.upper()} there"))
    with pytest.raises(StopIteration):
        streaming.texts(Tokens(), "prose", 0, 1, [package])
    monkeypatch.setattr(streaming, "kept_runs", lambda: streaming.runs_of_words(f"here {eight[:-4]} there"))
    assert len(streaming.texts(Tokens(), "prose", 0, 1, [package])["ids"]) == 1


def test_the_judged_seed_is_that_of_the_commit_and_no_package_is_in_both():
    assert f"{streaming.JUDGED_SEED:x}" == streaming.PROTOCOL[:8]
    assert not {*streaming.CALIBRATION_PACKAGES} & {*streaming.JUDGED_PACKAGES}


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """A small model in the place of SmolLM2, and random words in that of texts."""
    monkeypatch.setattr(streaming, "PARTS_FOLDER", tmp_path)

    def texts(model, kind, seed, number, packages):
        ids = torch.randint(2, 60, (2, 40), generator=torch.Generator().manual_seed(seed % 97 + len(kind)))
        return {"ids": ids, "start": 28}

    monkeypatch.setattr(streaming, "texts", texts)
    monkeypatch.setattr(streaming, "TOKENS", 40)
    return streaming.Bench(small_language_model())


@pytest.mark.parametrize(("unit", "number"), [(3, 60), (1, 180), (9, 20)])
def test_a_plan_takes_the_least_important_units_and_its_draws_keep_the_layers(bench, unit, number):
    scores = torch.rand(30, 9, generator=torch.Generator().manual_seed(unit))
    plan = bench.plan(scores, number, unit)
    off = torch.zeros(30, 9, dtype=torch.bool)
    for layer, which in enumerate(bench.found.layers):
        off[layer, plan.get(which, [])] = True
    units = scores.reshape(-1, unit).sum(dim=1), off.reshape(-1, unit)
    assert off.sum() == 180 and torch.equal(units[1].all(dim=1), units[1].any(dim=1))
    assert units[0][units[1][:, 0]].max() < units[0][~units[1][:, 0]].min()
    if unit < 9:
        for other in bench.found.fair_draws(plan, 2):
            assert {name: len(gone) for name, gone in other.items()} == {name: len(gone) for name, gone in plan.items()}


def test_rises_are_those_of_a_mask_and_parts_are_kept(bench):
    found = streaming.tried(bench, number=60, draws=1)
    assert found["code"]["plan"].shape == (2,) and found["code"]["draws"].shape == (1, 2)
    scores = torch.tensor(json.loads((streaming.PARTS_FOLDER / "scores_stream_1.json").read_text())["heads"])
    plan = bench.plan(scores, 60)
    batch = bench.judged["code"]
    with torch.no_grad():
        whole = streaming.loss(bench.model, batch)
        with bench.found.ablated(plan, by="stream", sinks=4, window=24):
            more = streaming.loss(bench.model, batch) - whole
    torch.testing.assert_close(found["code"]["plan"], more, rtol=0, atol=1e-4)
    assert more.abs().max() > 1e-3
    # Kept, and not computed again.
    assert streaming.kept("whole", lambda: 1 / 0) == json.loads((streaming.PARTS_FOLDER / "whole.json").read_text())


def test_the_weight_outside_is_what_streaming_leaves_out(bench):
    found = bench.scores("outside", 1)
    parts = []
    for batch in bench.calibration(1):
        ids = batch["ids"]
        inputs = torch.cat([torch.full_like(ids[:, :1], 1), ids[:, :-1]], dim=1)
        weights = torch.stack([*bench.found.maps(inputs, None, None).values()])  # (30, b, 9, q, k)
        total = torch.zeros(30, 9)
        for i in range(40):
            for j in range(4, i - 23):
                total += weights[:, :, :, i, j].mean(dim=1) / 40
        parts.append(total)
    torch.testing.assert_close(found, torch.stack(parts).mean(dim=0), rtol=0, atol=1e-4)


def test_parts_are_measured_by_name_once_and_printed(bench, monkeypatch, capsys):
    def part(_):
        each = {"plan": [0.5, 0.7, 0.5, 0.7], "draws": [[1.0] * 4, [3.0] * 4]}
        return {"plan": {"layer 0": [0, 1, 2, 4]}, **dict.fromkeys(streaming.STARTS, each)}

    monkeypatch.setattr(streaming, "PARTS", {"base": part})
    monkeypatch.setattr(streaming, "kept_file", lambda name: streaming.PARTS_FOLDER / "in the library.json")
    monkeypatch.setattr(streaming, "smollm2", lambda: bench.model)
    streaming.main([])
    first = capsys.readouterr().out
    assert json.loads((streaming.PARTS_FOLDER / "in the library.json").read_text()) == {"base": part(None)}
    row = first.splitlines()[2].split(" | ")
    assert row[:2] == ["| base", "0.99"] and row[3] == "1.000 to 3.000"
    assert row[2].startswith("0.600 (") and row[4].startswith("-1.400 (")
    monkeypatch.setattr(streaming, "smollm2", lambda: 1 / 0)
    streaming.main(["base"])
    assert capsys.readouterr().out == first


def test_the_cache_that_is_left_counts_whole_groups():
    plan = {f"layer {layer}": list(range(9)) for layer in range(20)} | {"layer 20": [0, 1, 3, 4, 6, 7]}
    assert streaming.cache_left(plan) == pytest.approx((30 + 60 * 28 / 4096) / 90)
