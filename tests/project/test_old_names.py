"""A notebook saved when all was in mha_lib still runs: old imports lead to mha_course, with one warning.

Each script is a process of its own, since a warning comes once and an import is kept.
"""

import inspect
import json
from pathlib import Path

import pytest
import torch
from fresh_process import run

from mha_course import heads
from mha_course.exercises.whole_layer import CompleteAttention
from mha_course.models import find_task, shipped_model
from mha_lib import old_names

ROOT = Path(__file__).resolve().parents[2]
# What the notebooks imported in version 0.2.0, a line of each kind.
SAVED = """
import mha_lib.exercises
import mha_lib.pictures
import mha_lib.museum
import mha_lib.checking
from mha_lib import MultiHeadAttention, exercises, heads, language, masked_softmax, merge_heads, models, pictures
from mha_lib.attention import ScoredAttention, causal, converters, rule_matrix, shape_trace
from mha_lib.attention.converters import as_torch, from_torch
from mha_lib.exercises.setup_check import check_setup
from mha_lib.heads import head_grid, leave_one_out, load_results, prune
from mha_lib.heads.coalitions import pruning_curve, ranks, set_members
from mha_lib.heads.controls import OF_EACH, OF_MEAN, SIGNED
from mha_lib.heads.interactions import frozen_downstream_costs
from mha_lib.heads.kept_results import LanguageModelResults, SmallModelResults
from mha_lib.models import find_task, finetune, shipped_model, with_layer
from mha_lib.models import induction, positional, pretrained
from mha_lib.models import load_transformers, smollm2_of_transformers
from mha_lib.models import right_words, shipped_recurrent, torch_decoder_layer, train_neighbours, train_one_head
from mha_lib.models import Transformer
from mha_lib.models.pretrained import SentenceMaps
from mha_lib.models.tasks import TASKS
from mha_lib.models.transformer import TokenEmbedding
from mha_lib.museum import bugs, decoding_layer, decoding_tests, edge_cases, editable_layer, layer_tests
"""
SAME = """
import mha_course.exercises.whole_layer, mha_course.heads.seeds, mha_course.models.smollm2
assert mha_lib.exercises is mha_course.exercises and pictures is mha_course.pictures and language is mha_course.language
assert mha_lib.museum is mha_course.museum and mha_lib.checking is mha_course.checking
assert heads.plant_heads is mha_course.heads.plant_heads and heads.sweep is mha_course.heads.seeds.sweep
assert heads.shapley is mha_course.heads.shapley and ranks is mha_course.heads.ranks
assert models is mha_course.models and Transformer is mha_course.models.Transformer
assert models.trained is mha_course.models.trained and shipped_model is mha_course.models.shipped_model
import mha_lib.exercises.whole_layer, mha_lib.models.smollm2
assert mha_lib.exercises.whole_layer is mha_course.exercises.whole_layer
assert mha_lib.models.smollm2 is mha_course.models.smollm2
"""


def test_every_import_of_a_saved_notebook_runs_with_one_warning():
    out, err = run(f"{SAVED}{SAME}\nprint('done')")
    assert out == "done\n"
    [told] = [line for line in err.splitlines() if "Warning" in line]
    assert told.startswith("<string>:2: FutureWarning: mha_lib.exercises has moved: write `from mha_course import")


MOVED = [  # old import, what is to be written now
    ("from mha_lib import exercises", "from mha_course import exercises"),
    ("import mha_lib.pictures", "from mha_course import pictures"),
    ("from mha_lib.models import shipped_model", "from mha_course import models"),
    ("from mha_lib.heads import leave_one_out", "from mha_course.heads import leave_one_out"),
    ("from mha_lib.heads.measures import gate_gradient", "from mha_course.heads import measures"),
    ("import mha_lib.models.training", "from mha_course import models"),
    ("from mha_lib import heads; heads.load_results('births')", "from mha_course.heads import load_results"),
    ("from mha_lib.museum.layer_check import check_layer", "from mha_course import museum"),
    ("from mha_lib.attention import shape_trace", "from mha_course.models import shape_trace"),
    ("from mha_lib.attention.shape_trace import trace_heads", "from mha_course.models import shape_trace"),
]


@pytest.mark.parametrize("old, new", MOVED)
def test_the_warning_names_the_new_import_at_the_line_of_the_old_one(old, new):
    _, err = run(f"import torch\n\n{old}")
    assert err.startswith("<string>:3: FutureWarning: ") and f"write `{new}`" in err and err.count("Warning") == 1


def test_what_did_not_move_gives_no_warning_and_loads_nothing_of_the_course():
    script = """
import sys
from mha_lib import MultiHeadAttention, heads
from mha_lib.heads.plans import PlanTable
heads.entropy, heads.of, PlanTable
print(hasattr(heads, "no_such_name"), [name for name in sys.modules if name.startswith("mha_course")])
"""
    assert run(script) == ("False []\n", "")


@pytest.fixture
def without_course(tmp_path):
    """What a script begins with where mha_lib is installed, and mha_course is not."""
    (tmp_path / "mha_lib").symlink_to(ROOT / "mha_lib")
    have_it = "pathlib.Path(folder or '.', 'mha_course').exists()"
    return f"import pathlib, sys; sys.path = [{str(tmp_path)!r}, *(folder for folder in sys.path if not {have_it})]\n"


@pytest.mark.parametrize("old, new", MOVED[:5])
def test_without_the_course_the_error_names_the_new_import_and_the_command(without_course, old, new):
    _, err = run(f"{without_course}import mha_lib\n{old}")
    last = err.splitlines()[-1]
    assert last.startswith("ImportError: mha_lib.") and f"`{new}`" in last and "`pip install mha-course`" in last


def test_without_the_course_the_library_works(without_course):
    script = "from mha_lib import MultiHeadAttention, heads\nprint(heads.of.__name__, hasattr(heads, 'no_such_name'))"
    assert run(without_course + script) == ("of False\n", "")


def test_all_that_is_said_to_have_moved_is_there():
    rooms = {"heads": "heads", "attention": "models"}
    script = "\n".join(
        f"from mha_course.{rooms[old]} import {', '.join(old_names.GONE[old])}" for old in old_names.GONE
    )
    assert run(script) == ("", "")


def test_measures_by_their_old_names_give_what_the_methods_give():
    task, model = find_task("lookups"), shipped_model("lookups")
    batch = task.held_out[:16]
    found, loss, score = heads.of(model, batch.inputs), task.loss_on(batch), task.loss_on(batch, "accuracy")
    for name, options, expected in (
        ("leave_one_out", {}, found.leave_one_out(score)),
        ("leave_one_out", {"ablation": "mean", "score": "loss"}, found.leave_one_out(loss, by="mean")),
        ("gate_gradient", {}, found.gate_gradient(loss, signed=False)),
        ("integrated_gradients", {"steps": 2}, found.integrated_gradients(loss, steps=2)),
        ("monte_carlo_shapley", {"num_orders": 2}, found.shapley(score, num_orders=2)),
        ("confidence", {"leave_out": [0]}, found.confidence(ignore=[0])),
        ("negative_entropy", {}, found.entropy()),
        ("output_norm", {}, found.output_norm()),
    ):
        with pytest.warns(
            FutureWarning, match=r"write `heads\.of\(model, batch\.inputs\)\.\w+`: it is a method now"
        ) as told:
            got = getattr(heads, name)(model, batch, task, **options)
        assert told[0].filename == __file__
        torch.testing.assert_close(got, expected.table)
    with pytest.warns(FutureWarning):
        outputs = heads.head_outputs(model, batch)
    assert all(map(torch.equal, outputs, found.outputs().values()))
    assert heads.least_heads(model, got, 3) == {
        name: found.plan(got, remove=3, spare=0).get(f"blocks.{name}.attention", []) for name in model.blocks
    }
    with pytest.raises(ValueError, match=r"number must be between 0 and 12, got 13"):
        heads.least_heads(model, got, 13)
    path = found.integrated_gradients(loss, steps=2).table
    none, full = heads.evaluate(model, batch, task, torch.tensor([0.0, 1.0])[:, None, None].expand(2, 2, 6)).loss
    assert heads.completeness_residual(path, model, batch, task) == pytest.approx((none - full - path.sum()).item())
    gradient = found.gate_gradient(loss, signed=False).table
    with pytest.warns(FutureWarning):
        normalised = heads.gate_gradient(model, batch, task, normalise=True)
    torch.testing.assert_close(normalised, gradient / gradient.norm(dim=1, keepdim=True))
    with pytest.raises(AttributeError, match=r"module 'mha_course\.heads' has no attribute 'no_such_name'"):
        heads.no_such_name  # noqa: B018


def test_what_a_learner_has_predicted_solved_and_written_is_found_by_old_names_and_new(tmp_path):
    kept = {
        "first guess": {"text": "one head is enough"},
        "transpose_qkv": {"tries": 3, "solved": True},
        "the layer of notebook 00": {"text": inspect.getsource(CompleteAttention).replace("CompleteAttention", "Mine")},
    }
    path = tmp_path / ".cache" / "mha_lib" / "progress.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(kept), encoding="utf-8")
    for package in ("mha_lib", "mha_course"):
        script = f"""
from {package} import exercises
from mha_course import kept_work
print(exercises.my_layer().__name__, kept_work.kept()["transpose_qkv"], kept_work.kept()["first guess"]["text"])
"""
        out, _ = run(script, HOME=str(tmp_path), MHA_PROGRESS="", MHA_SOLUTIONS="")
        assert out == "Mine {'tries': 3, 'solved': True} one head is enough\n"
