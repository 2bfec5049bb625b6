"""What 10 says of eight seeds is what the kept results say, and its cells assert what a reader is told."""

import re

from notebook_tools import ROOT, make_notebooks, text_of

from mha_lib.heads.kept_results import load_results

TEXT = text_of("11_heads_being_born")
BIRTHS = {int(seed): result for seed, result in load_results("births").items()}


def heads_above(name, bound):
    """For each seed the heads whose score is above a bound in the end."""
    return {seed: [h for h in (0, 1) if result[name][-1][h] > bound] for seed, result in BIRTHS.items()}


def test_where_the_heads_are_with_eight_seeds():
    looks_back = heads_above("previous_token", 0.5)
    assert [seed for seed in looks_back if looks_back[seed] == [1]] == [5]
    assert sum(heads == [0] for heads in looks_back.values()) == 7
    assert "head 0 in seven of them and head 1 with seed 5" in TEXT
    finds = heads_above("induction", 0.5)
    assert [seed for seed, heads in finds.items() if heads == [0, 1]] == [2, 4]
    assert [seed for seed, heads in finds.items() if heads == [0]] == [3, 5, 6]
    assert [seed for seed, heads in finds.items() if heads == [1]] == [0, 1, 7]
    assert "head 0 with three seeds and head 1 with three; with seeds 2 and 4 both" in TEXT


def test_plateau_and_cliff_are_there_with_every_seed():
    for result in BIRTHS.values():
        at = dict(zip(result["steps"], result["losses"], strict=True))
        assert min(loss for step, loss in at.items() if step <= 500) > 3.8
        assert 50 <= result["fallen"] - result["falling"] <= 400
        assert min(result["losses_elsewhere"]) > 3.8


def test_the_one_layer_story_holds_with_every_seed():
    for result in BIRTHS.values():
        assert result["one_layer"] > 3 and result["keys_from_before"] < 1.5
        assert result["keys_from_before_falling"] * 2 < result["falling"]


def test_one_layer_is_not_said_to_be_unable():
    """Trained six times as long, it falls below 3.3 nats, by what it knows of distances."""
    assert "One layer with ordinary keys does not find the rule in our runs" in TEXT
    assert "up to 1,500. Trained for longer, one layer with ordinary keys may get below 3.3" in TEXT
    assert "One layer cannot do it" not in TEXT


def test_one_layer_is_still_falling_when_its_training_stops():
    notebook = make_notebooks.read(ROOT / "notebooks" / "11_heads_being_born.ipynb")
    (cell,) = [cell for cell in notebook.cells if "one_layer = models.train_on_repeats" in cell.source]
    losses = [float(loss) for loss in re.findall(r"step \d+: ([\d.]+) nats", cell.outputs[0]["text"])]
    assert len(losses) == 4 and losses == sorted(losses, reverse=True)
    assert 3 < losses[-1] < losses[-2] - 0.05
    assert "its loss is still falling when we stop" in TEXT
