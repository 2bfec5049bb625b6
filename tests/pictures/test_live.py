"""Live pictures as Python sees them: choices are checked, stills have words, modules fit together."""

import functools
import io
import re
import shutil
import struct
from pathlib import Path

import ipywidgets
import numpy as np
import pytest
import torch
import traitlets
from PIL import Image

from mha_course import models, pictures
from mha_course.models import pretrained
from mha_course.models.heads_needed import trained_neighbours
from mha_course.models.neighbours import NeighbourModel, held_out_rows
from mha_course.models.tasks import find_task
from mha_course.pictures.cache_stepper import VECTORS
from mha_course.pictures.live import MODULES, bundle, pack
from mha_course.pictures.shared_with_js import colours, weight_colours

ENTRIES = sorted(path.name for path in MODULES.glob("*.js") if "export default" in path.read_text())


@functools.cache
def reader():
    """An untrained model of the digits."""
    torch.manual_seed(0)
    return find_task("digits").model().eval()


@pytest.fixture
def model():
    return reader()


@pytest.mark.parametrize("entry", [*ENTRIES, "page.js"])
def test_names_in_a_bundle_are_unique(entry):
    text = bundle(entry)
    names = re.findall(r"^(?:export )?(?:async )?(?:function|const|let|class) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names)) > 0
    assert not re.search(r"^import ", text, re.MULTILINE)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)


def test_tensors_are_packed_one_after_the_other():
    packed = pack({"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([7.5])})
    assert packed["shapes"] == [["a", [2, 3]], ["b", [1]]]
    assert struct.unpack("<7f", packed["parameters"]) == (0, 1, 2, 3, 4, 5, 7.5)


def test_the_scale_of_weights_gets_ever_darker_on_light_and_brighter_on_dark():
    for dark in (False, True):
        shades = weight_colours(np.linspace(0, 1, 101), dark).astype(float) @ [0.2126, 0.7152, 0.0722]
        assert (np.diff(shades) > 0).all() if dark else (np.diff(shades) < 0).all()
    assert {"query", "key", "value", "low", "mid", "high"} <= colours().keys()


def test_choices_can_be_observed_and_linked(model):
    explorer, slider, seen = pictures.HeadExplorer(model), ipywidgets.IntSlider(max=16), []
    explorer.observe(lambda change: seen.append(change["new"]), "query")
    ipywidgets.link((slider, "value"), (explorer, "query"))
    slider.value = 5
    explorer.query = 7
    assert (seen, slider.value) == ([5, 7], 7)


def test_gates_reach_the_answer(model):
    explorer = pictures.HeadExplorer(model, example=4)
    whole, _ = explorer.answer()
    explorer.gates = torch.zeros(2, 6)
    none, _ = explorer.answer()
    batch = find_task("digits").held_out[4:5]
    with torch.no_grad():
        torch.testing.assert_close(whole, model(batch.inputs)[0, 0])
        torch.testing.assert_close(none, model(batch.inputs, None, torch.zeros(2, 6))[0, 0])


def test_a_notebook_without_a_kernel_shows_a_still_picture_with_words(model):
    explorer = pictures.HeadExplorer(model, example=3, query=6)
    data, _ = explorer._repr_mimebundle_()
    assert data["text/plain"] == repr(explorer)
    html = data["text/html"]
    assert re.search(r'<img alt="[^"]*A 5 is read as \d[^"]*patch r1c1', html)
    assert "<figcaption>" in html and "<script" not in html
    still = explorer.still()
    assert Image.open(io.BytesIO(still.png)).width == 2 * still.width
    assert len(still.png) < 20_000


def test_who_edits_a_module_sees_it_in_the_next_picture_where_that_is_asked_for(monkeypatch, tmp_path):
    folder = shutil.copytree(MODULES, tmp_path / "js")
    monkeypatch.setattr("mha_course.pictures.live.MODULES", folder)
    for edit, asked, seen in (("void 1;", "", False), ("void 2;", "reload", True)):
        monkeypatch.setenv("MHA_LIVE_JS", asked)
        with (folder / "mask_explorer.js").open("a", encoding="utf-8") as file:
            file.write(f"\n{edit}\n")
        assert (edit in pictures.MaskExplorer()._esm) == seen
    monkeypatch.undo()
    monkeypatch.setenv("MHA_LIVE_JS", "reload")
    assert pictures.MaskExplorer()._esm == bundle("mask_explorer.js")


def test_a_saved_page_needs_nothing_else(model, tmp_path):
    page = pictures.save_html(pictures.HeadExplorer(model), tmp_path / "heads.html").read_text()
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert page.count("<img alt=") == 1


@functools.cache
def born(**sizes):
    return models.train_on_repeats(seed=1, keep=range(3), progress=False, **sizes)


def hand_made(num_words, num_features, head_size):
    """Vectors of words, W_q and W_k."""
    return torch.rand(num_words, num_features), *torch.rand(2, head_size, num_features)


PLACES = {
    "digits": (
        lambda **first: pictures.HeadExplorer(reader(), **first),
        [
            ("gates", torch.ones(2, 5), r"gates must be numbers from 0 to 1 of shape \(2, 6\)"),
            ("gates", [[2.0] * 6] * 2, "gates must be numbers from 0 to 1"),
            ("gates", "all", "gates must be"),
            ("example", 360, "example must be between 0 and 359, got 360"),
            ("query", 17, "query must be between 0 and 16, got 17"),
            ("head", -1, "head must be between 0 and 5"),
            ("drawn", [0.5] * 63, "drawn must be None or 64 numbers from 0 to 1"),
            ("drawn", [1.5] * 64, "drawn must be None or 64 numbers"),
        ],
    ),
    "masks": (
        lambda **first: pictures.MaskExplorer(torch.randn(5, generator=torch.Generator().manual_seed(0)), **first),
        [
            ("valid_len", 6, "valid_len must be between 0 and 5, got 6"),
            ("shift", 7, r"shift.*any of \[0, -3000000\]"),
        ],
    ),
    "kernel": (
        lambda **first: pictures.KernelExplorer(torch.tensor([2.0, 0.0, 1.0]), torch.tensor([5.0, 1.0, 3.0]), **first),
        [
            ("bandwidth", 0.0, "bandwidth must be above 0"),
            ("query", 2.5, "query must be between 0 and 2"),
        ],
    ),
    "ring": (
        pictures.RingExplorer,
        [
            ("num_heads", 5, r"num_heads must be one of \[1, 2, 3, 4, 6, 8, 12\], got 5"),
            ("split_into", 5, r"split_into must be one of \[0, 1, 2, 3, 4, 6, 8, 12\], got 5"),
            ("off", [4], r"off must be different heads from 0 to 3, got \[4\]"),
            ("valid_lens", 13, "valid_lens must be between 1 and 12, got 13"),
            ("letters", "abcdefghijkl", "letters must be 12 letters of abcdefghij, got 'abcdefghijkl'"),
            ("query", 12, "query must be between 0 and 11"),
            ("explore", 1, r"explore must be one of \[True, False\], got 1"),
        ],
    ),
    "transpose": (
        pictures.TransposeStepper,
        [("num_heads", 5, "num_heads.*should not be greater than 4"), ("step", 7, "step must be between 0 and 6")],
    ),
    "slow motion": (
        pictures.DotProductStepper,
        [
            ("query", 1, "query must be between 0 and 0"),
            ("valid_len", 5, "valid_len must be between 0 and 4"),
            ("numbers", {"queries": [[1.0]]}, r"numbers must be finite numbers of the shapes .*\(1, 2\)"),
            ("numbers", {"queries": "many"}, "numbers must be finite numbers"),
        ],
    ),
    "cache": (
        pictures.CacheStepper,
        [
            ("step", 9, "step must be between 0 and 8, got 9"),
            ("pieces", "4, 4", "pieces.*any of .*'4, 3, 1'"),
            ("mistake", "no mask", "mistake must be one of .*'new keys before old ones'"),
        ],
    ),
    "cache with one mistake": (
        lambda **first: pictures.CacheStepper(mistakes=["masked only at first"], **first),
        [("mistake", "aligned at the top left", r"must be one of \['none', 'masked only at first'\], got 'aligned")],
    ),
    "packed texts": (
        pictures.PackedTextsExplorer,
        [
            ("border", 13, "border must be between 0 and 12, got 13"),
            ("positions", "by column", "positions.*any of .*'start again', 'go on'"),
        ],
    ),
    "paged cache": (
        pictures.PagedCacheStepper,
        [
            ("step", 18, "step must be between 0 and 17, got 18"),
            ("row", 4, "row must be between 0 and 3, got 4"),
            ("block_size", 3, r"block_size.*any of \[1, 2, 4, 8\], not the int 3"),
        ],
    ),
    "sentence": (
        pictures.SentenceExplorer,
        [
            ("example", 12, "example must be between 0 and 11"),
            ("layer", 6, "layer must be between 0 and 5"),
            ("head", 12, "head must be between 0 and 11"),
        ],
    ),
    "next word": (
        pictures.NextWordExplorer,
        [
            ("example", 8, "example must be between 0 and 7"),
            ("query", 12, "query must be between 0 and 11"),
            ("layer", 30, "layer must be between 0 and 29"),
            ("cut", [3, 270], "cut must be different heads from 0 to 269"),
            ("cut", [3, 3], r"cut must be different heads .* got \[3, 3\]"),
        ],
    ),
    "births": (
        lambda **first: pictures.BirthExplorer(born(), **first),
        [
            ("step", 3, "step must be between 0 and 2"),
            ("layer", 2, "layer must be between 0 and 1"),
            ("query", 33, "query must be between 0 and 32"),
            ("letters", "abc", "letters must be 33 letters of abc"),
            ("letters", "!" * 33, "letters must be 33 letters of abc"),
            ("cut", [(1, 0), (0, 2)], r"cut must be a list of \(layer, head\), each below \(2, 2\)"),
            ("cut", 3, r"cut must be a list of \(layer, head\), .* got 3"),
        ],
    ),
    "hand-made head": (
        lambda **first: pictures.HandMadeHead(*hand_made(2, 3, 1), ["a", "b"], ["x", "y", "z"], **first),
        [
            ("query", 2, "query must be between 0 and 1"),
            ("numbers", {"W_q": [[1.0]], "W_k": [[1.0]]}, r"numbers must be finite numbers of the shapes .*\(1, 3\)"),
        ],
    ),
    "head switches": (
        lambda **first: pictures.HeadSwitches(torch.rand(16), {"loud": torch.rand(2, 2)}, **first),
        [
            ("by", "size", "by must be one of .*the best set.*loud.*got 'size'"),
            ("cut", [(0, 0), (2, 0)], r"cut must be a list of \(layer, head\), each below \(2, 2\)"),
        ],
    ),
    "scrubber": (
        lambda **first: pictures.TrainingScrubber(torch.full((2, 3, 4, 4), 0.25), [0, 10], **first),
        [("step", 2, "step must be between 0 and 1"), ("query", 4, "query must be between 0 and 3")],
    ),
}


@pytest.mark.parametrize(
    ("make", "choice", "value", "message"),
    [(make, *case) for make, cases in PLACES.values() for case in cases],
)
def test_a_wrong_choice_is_named_and_not_taken(make, choice, value, message):
    picture = make()
    assert choice in picture.choices
    before = getattr(picture, choice)
    with pytest.raises(traitlets.TraitError, match=message):
        setattr(picture, choice, value)
    assert getattr(picture, choice) == before
    with pytest.raises(traitlets.TraitError, match=message):
        make(**{choice: value})


@pytest.mark.parametrize("name", PLACES)
def test_all_pictures_have_a_still_one_with_words(name):
    picture = PLACES[name][0]()
    still = picture.still()
    assert Image.open(io.BytesIO(still.png)).width == 2 * still.width
    assert still.alt.startswith(picture.title) and re.search(r"\d", still.alt) and still.caption
    assert len(still.png) < 36_000  # most have less than 25,000; the ring has many curves


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pictures.MaskExplorer(torch.zeros(9)), r"shape \(num_keys,\) with 1 to 8 keys, got \(9,\)"),
        (lambda: pictures.KernelExplorer(torch.zeros(3), torch.zeros(2)), r"got \(3,\) and \(2,\)"),
        (lambda: pictures.KernelExplorer(torch.ones(3), torch.zeros(3)), "at least two different numbers"),
        (lambda: pictures.KernelExplorer(torch.arange(3), torch.ones(3), x_range=(0, 1)), "must hold all points"),
        (lambda: pictures.DotProductStepper(torch.zeros(1, 3)), r"got \(1, 3\), \(4, 2\) and \(4, 2\)"),
        (lambda: pictures.CacheStepper(mistakes=["none"]), r"some of \['masked only at first', .* got \['none'\]"),
        (
            lambda: pictures.HandMadeHead(*hand_made(2, 3, 1), ["a", "b", "c"], ["x", "y", "z"]),
            r"shapes \(3, 3\), \(d, 3\) and \(d, 3\), as words and features say.* got \(2, 3\), \(1, 3\) and",
        ),
        (
            lambda: pictures.HandMadeHead(*hand_made(2, 3, 4), ["a", "b"], ["x", "y", "z"]),
            r"at most 8 words, 16 features and d = 3, got \(2, 3\), \(4, 3\)",
        ),
        (
            lambda: pictures.HeadSwitches(torch.rand(16), {"loud": torch.rand(2, 2), "sharp": torch.rand(4)}),
            r"measures must have one shape \(num_layers, num_heads\), got \[\(2, 2\), \(4,\)\]",
        ),
        (lambda: pictures.HeadSwitches(torch.rand(16), {}), r"measures must have one shape .*, got \[\]"),
        (
            lambda: pictures.HeadSwitches(torch.rand(8), {"loud": torch.rand(2, 2)}),
            r"values must be a score .*, got shape \(8,\) for 4 heads",
        ),
        (
            lambda: pictures.HeadSwitches(-torch.rand(16) - 0.1, {"loud": torch.rand(2, 2)}),
            "values must be a score from 0 to 1",
        ),
        (
            lambda: pictures.HeadSwitches(torch.rand(2**14), {"loud": torch.rand(2, 7)}),
            "every set of at most 12 heads, got shape",
        ),
        (lambda: pictures.HeadExplorer(reader(), "lookups"), "task must be one of digits, got lookups"),
        (lambda: pictures.TrainingScrubber(torch.zeros(2, 1, 3, 3), [0]), "steps must have 2 entries"),
        (
            lambda: pictures.BirthExplorer(born(keys_from_before=True)),
            "run must be of a model without keys_from_before",
        ),
        (
            lambda: pictures.RingExplorer(find_task("lookups").model()),
            "model must be a NeighbourModel for four letters with a linear read-out, got Encoder",
        ),
        (lambda: pictures.RingExplorer(NeighbourModel(2, 3)), "for four letters .*, got NeighbourModel for 3 letters"),
        (
            lambda: pictures.RingExplorer(models.with_layer(models.ring_lab(), Unmasked)),
            r"attention of model must be .*, but its class Unmasked gives logits .* off, with head_mask \[0.0, 1.0",
        ),
        (lambda: pictures.SentenceExplorer([]), "sentences must be of one model"),
    ],
)
def test_data_that_do_not_fit_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_still_of_slow_motion_shows_what_every_number_is_made_of():
    motion = pictures.DotProductStepper(torch.tensor([[1.0, 2.0], [-0.5, 1.5]]), query=1, valid_len=3)
    queries, keys, values = motion.tensors
    weights, output = motion.result()
    scores = keys @ queries[1]
    masked = torch.where(torch.arange(4) < 3, scores / 2**0.5, -torch.inf)
    tables = {"query 1": queries[1], "keys": keys, "q · k": scores, "÷ √2": scores / 2**0.5, "mask": masked}
    tables |= {"softmax": weights, "values": values, "output": output}
    words = motion.still().drawing.words
    for title, numbers in tables.items():
        shown = words[words.index(title) + 1 :][: numbers.numel()]
        assert [float(word.replace("−", "-").replace("∞", "inf")) for word in shown] == pytest.approx(
            numbers.flatten().tolist(), abs=0.006
        ), title


@pytest.mark.parametrize(("pieces", "step", "read"), [("4, 3, 1", 5, 7), ("4, 3, 1", 7, 7), ("one by one", 3, 3)])
def test_a_cache_has_read_the_piece_that_has_begun_and_no_other(pieces, step, read):
    picture = pictures.CacheStepper(pieces=pieces, step=step)
    weights, outputs, kept = picture.result()
    Q, K, V = VECTORS[:, None, :read]
    right = torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=True)[0]
    torch.testing.assert_close(outputs, right)
    assert kept == [*range(read)] and weights.shape == (read, 8)


def test_the_still_of_births_tells_the_loss_of_its_row_without_the_heads_that_are_cut():
    run, row = born(), torch.arange(11).repeat(3)
    model = run.model_at(2)
    with torch.no_grad():
        logits = model(row[None, :-1], model.all_but((1, 0)))[0]
    loss = torch.nn.functional.cross_entropy(logits, row[1:], reduction="none")[11:].mean()
    still = pictures.BirthExplorer(run, letters="abcdefghijk" * 3, cut=[(1, 0)]).still()
    assert float(re.search(r"Step 2, without layer 1, head 0: (\S+) nats", still.alt)[1]) == pytest.approx(
        loss, abs=0.02
    )
    assert "layer 1, head 0, cut" in still.drawing.words
    assert re.search(r"\d of 21 letters right", still.caption)
    unlike = "".join(chr(97 + i) for i in range(26)) + "ABCDEFG"
    assert "no piece of this row is repeated" in pictures.BirthExplorer(run, letters=unlike).still().alt


def test_the_ring_tells_what_its_model_does_trained_split_and_with_heads_off():
    explorer = pictures.RingExplorer(num_heads=4, valid_lens=12)
    (letters, truth), model = held_out_rows(4), trained_neighbours(4)

    def right(model, gates):
        with torch.no_grad():
            named = model(letters[:64], None, gates).argmax(dim=-1)
        return (named == truth[:64]).all(dim=-1).double().mean().item()

    assert explorer.accuracy() == right(model, torch.ones(4)) > 0.99
    lost = right(model, torch.ones(4)) - right(model, torch.tensor([1.0, 0, 1, 1]))
    assert f"head 1 {explorer.jobs()[1]}, {100 * lost:.0f} %" in explorer.still().alt
    explorer.off = [1]
    assert explorer.accuracy() == right(model, torch.tensor([1.0, 0, 1, 1]))
    explorer.split_into = 1
    assert explorer.off == [] and explorer.heads == 1
    split = NeighbourModel(1)
    split.load_state_dict(model.state_dict())
    assert explorer.accuracy() == right(split, torch.ones(1)) < 0.1
    own = pictures.RingExplorer(model)
    assert (own.num_heads, own.accuracy()) == (4, right(model, torch.ones(4)))


def test_the_ring_opens_on_one_head_beside_four_until_something_is_chosen():
    explorer, by_default = pictures.RingExplorer(), trained_neighbours(1)
    alt, (letters, truth) = explorer.still().alt, held_out_rows(4)
    with torch.no_grad():
        right = (by_default(letters[:64]).argmax(dim=-1) == truth[:64]).all(dim=-1).double().mean().item()
    assert f"1 head of 24 features: all four neighbours right for {100 * right:.1f} %" in alt and right < 0.02
    assert "4 heads of 6 features: all four neighbours right for 100 %" in alt and "head 0" not in alt
    assert [explorer.still().drawing.words.count(words) for words in ("1 head", "4 heads", "all four right")] == [
        1,
        1,
        2,
    ]
    explorer.valid_lens = 11
    assert explorer.explore and "head 0" in explorer.still().alt
    assert pictures.RingExplorer(query=3).explore and pictures.RingExplorer(models.ring_lab()).explore
    with pytest.raises(traitlets.TraitError, match=r"explore must be one of \[True\], got False"):
        pictures.RingExplorer(models.ring_lab(), explore=False)


class Mine(torch.nn.Module):
    """A learner's layer: it keeps no weights, and knows no sizes but its number of heads."""

    def __init__(self, num_hiddens, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (torch.nn.Linear(num_hiddens, num_hiddens) for _ in range(4))

    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        inputs = (self.W_q, queries), (self.W_k, keys), (self.W_v, values)
        Q, K, V = (W(X).unflatten(2, (self.num_heads, -1)).transpose(1, 2) for W, X in inputs)
        heads = torch.nn.functional.scaled_dot_product_attention(Q, K, V)
        if head_mask is not None:
            heads = heads * head_mask[:, None, None]
        return self.W_o(heads.transpose(1, 2).flatten(2))


class Unmasked(Mine):
    def forward(self, queries, keys, values, valid_lens=None, head_mask=None):
        return super().forward(queries, keys, values)


@pytest.mark.parametrize("make", [models.ring_lab, lambda: models.with_layer(models.ring_lab(), Mine)])
def test_the_ring_tells_of_a_given_model_what_each_head_and_each_pair_is_worth(make):
    model, (letters, truth) = make(), held_out_rows(4)
    explorer = pictures.RingExplorer(model)

    def lost(*heads):
        gates = torch.tensor([float(head not in heads) for head in range(8)])
        with torch.no_grad():
            named = model(letters[:64], head_mask=gates).argmax(dim=-1)
        return f"{100 * (named != truth[:64]).any(dim=-1).double().mean().item():.0f} %"

    alt = explorer.still().alt
    for name, pair in {"one before": (1, 3), "one after": (0, 5), "two before": (2, 6), "two after": (4, 7)}.items():
        assert f"{pair[0]} + {pair[1]} {name}, {lost(*pair)}" in alt and lost(*pair) > "60 %"
        for head in pair:
            assert re.search(rf"head {head} {name} \.\d\d, {lost(head)}", alt)
    explorer.off = [3]
    assert re.search(rf"head 1 one before \.\d\d, {lost(1, 3)}; .* head 3 one before \.\d\d, off", explorer.still().alt)
    explorer.off = [1, 3]
    assert "1 + 3 one before, off" in explorer.still().alt
    explorer.off, explorer.split_into = [], 4
    assert "a neighbour's heads" not in explorer.still().alt


def test_the_page_of_twenty_steps_stays_small(tmp_path):
    explorer = pictures.BirthExplorer(models.train_on_repeats(seed=1, keep=range(0, 62, 2), progress=False))
    assert len(explorer.steps) == 20 and (explorer.steps[0], explorer.steps[-1]) == (0, 60)
    assert pictures.save_html(explorer, tmp_path / "births.html").stat().st_size <= 770_000


def test_the_still_of_the_next_word_tells_what_comes_and_marks_what_is_cut():
    whole, cut = (pictures.NextWordExplorer(cut=cut) for cut in ((), [156, 157, 158, 168, 169]))
    assert whole.still().drawing.words[0] == "13 of 270 heads, each cut alone, change “Miller”"
    assert cut.still().drawing.words[0] == "Without the 5 induction heads: “Obama”, not “Miller”"
    lines = [len(picture.still().drawing.shapes) for picture in (whole, cut)]
    assert lines[1] == lines[0] + 10, "two lines cross each head that is cut"
    assert "“Miller” 0.30" in whole.still().alt and "“Miller” 0.00" in cut.still().alt
    assert "“Obama”, not “Miller”. “Obama” 0.61" in cut.still().alt


def test_a_sentence_of_another_length_keeps_the_word_inside():
    explorer = pictures.SentenceExplorer(example=6, query=14)
    explorer.example = 8
    assert explorer.query < len(explorer.maps[8].tokens)
    assert 0 <= explorer.layer < 6


def test_the_still_of_a_training_run_names_each_head_beside_uniform_attention():
    maps = torch.stack([torch.full((1, 4, 4), 0.25), torch.eye(4)[torch.tensor([[3, 0, 1, 2]])]])
    scrubber = pictures.TrainingScrubber(maps, [0, 50], titles=["learning"], step=1)
    assert "Step 50 of 50. Preferred keys: learning: the previous token 100 %, uniform 25 %." in scrubber.still().alt


def test_heads_made_by_hand_stand_under_their_own_title():
    made = pretrained.SentenceMaps("abca", list("abca"), torch.eye(4)[[3, 0, 1, 2]].expand(2, 1, 4, 4))
    jobs = {(1, 0): "one back"}
    explorer = pictures.SentenceExplorer([made], named=jobs, title="A head of mine", layer=1, query=2)
    assert explorer.still().alt.startswith("A head of mine. abca. Layer 1, head 0, “c” → “b” (1.00).")
    assert pictures.SentenceExplorer([made]).title == pictures.SentenceExplorer().title != explorer.title


def test_a_page_is_written_in_the_encoding_that_it_declares(model, tmp_path, monkeypatch):
    """Wherever the machine's own is another one, too."""
    own = Path.write_text
    monkeypatch.setattr(Path, "write_text", lambda self, text, encoding="ascii": own(self, text, encoding=encoding))
    page = pictures.save_html(pictures.HeadExplorer(model), tmp_path / "heads.html").read_text(encoding="utf-8")
    assert "break it" in page and "✎" in page
