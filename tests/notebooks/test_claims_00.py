"""What the core says in numbers: its cells show it, no name is bound twice, and its bounds hold."""

import ast
import re
from collections import Counter

import pytest
import torch
from notebook_tools import ROOT, code, make_notebooks, text_of, text_of_output

from mha_course.exercises.whole_layer import CompleteAttention
from mha_course.models import with_layer
from mha_course.models.heads_needed import accuracy_by_seed
from mha_course.models.kept_layer import SENTENCES
from mha_course.models.neighbours import fit_neighbours, held_out_rows
from mha_course.models.pretrained import minilm
from mha_course.models.ring_lab import DROP, NUM_HIDDENS, right_without, ring_lab

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "00_start_here.ipynb")
TEXT = text_of("00_start_here")
SHOWN = {cell.source: "\n".join(map(text_of_output, cell.outputs)) for cell in code(NOTEBOOK)}
CLAIMS = {  # words of the text → what an output must hold
    "Here *she* gives *queen* 0.46": "queen 0.46",
    "One head returns the same two numbers for both sentences": (
        "queen thanked               0.49              0.98            0.95            0.96            0.01            "
        "0.96\nwaiter thanked              0.49              0.98            0.01            0.96            0.95"
    ),
    "(0.91, 0.96), a female person": "output of she [0.91, 0.96]",
    "head 1 holds a female person and head 2 a person": "thanked [0.2, 0.4, 0.95, 0.96, 0.01, 0.96]",
    "*Queen* receives 0.46, as in the first picture": "queen 0.46, waiter 0.07",
    "0.34 at its new position, where *waiter* was before": "queen 0.34, waiter 0.09",
    "With one head, hardly any position has all four answers right": "num_heads 1: all four right for 0.0",
    "with four heads, nearly all have": "num_heads 4: all four right for 1.0",
    "Judged one at a time, all eight heads look useless": "costs [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]",
    "Without heads 1 and 3, 0.69 of *one before* is lost": "heads 1, 3           0.69          ·",
    "Head 2 puts 0.19 of its weight there": "head 2        0.19 ",
    "without all three, 0.88 is lost": "heads 1, 2, 3        0.88          ·           ·          ·",
    "The 24 other pairs cost nothing": "24 of 28 pairs cost nothing",
    "all gradients are nearly 0": "largest gradient 2e-05",
    "the four heads that seem least important are two pairs": "first four to remove [0, 1, 3, 5]",
    "the order is only that of the numbers": "leave-one-out [0, 1, 2, 3, 4, 5, 6, 7]",
    "Greedy search loses nothing": "1.00 right with four heads removed: greedy",
    "Four random heads lose only 0.19 on average": "0.78 right with four heads removed: leave-one-out\n"
    "0.61 right with four heads removed: gradient\n0.81 right with four heads removed: random, mean",
    "without leave-one-out's four heads, 0.78": "0.78 right with four heads removed: leave-one-out",
    "Head 7 attended to *two after*, as head 4 does. Now it attends to *one before*": "after 100 more steps 1.00; "
    "heads 4 to 7 attend to two after, one after, two before, one before",
    "For *she*, it is the most important head of its layer. Averaged over the tokens, head 8 moves more": "she  "
    "[0.5, 1.2, 1.3, 2.3, 1.2, 1.0, 0.9, 1.2, 1.1, 0.8, 0.4, 0.3]\n     rank of head 3: 1\n"
    "mean [0.7, 0.8, 1.0, 1.2, 1.1, 0.8, 0.9, 1.0, 1.3, 0.6, 0.4, 0.5]\n     rank of head 3: 2",
}
WORST_FOUR = (0, 2, 5, 6)  # of the 70 choices, their removal leaves the fewest right


def bound(node):
    """Names that a cell binds at its top level, loops and branches included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield child.name
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        elif not isinstance(child, ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp | ast.Lambda):
            yield from bound(child)


@pytest.mark.parametrize("words", CLAIMS)
def test_a_claim_is_in_the_text_and_a_cell_shows_it(words):
    assert words in TEXT
    assert any(CLAIMS[words] in shown for shown in SHOWN.values())


def test_no_name_is_bound_in_two_cells_so_that_one_can_come_back_to_the_class():
    counts = Counter(name for source in SHOWN for name in set(bound(ast.parse(source))))
    assert len(counts) > 60 and [name for name, count in counts.items() if count > 1] == []


def test_the_bars_are_what_the_text_says_of_five_runs():
    ends = accuracy_by_seed()
    low, high = ({heads: end(shares).item() for heads, shares in ends.items()} for end in (torch.min, torch.max))
    assert high[1] < 0.005 and 0.035 < low[2] and high[2] < 0.065 and low[4] > 0.995
    assert [round(end[heads], 2) for heads in (3, 12) for end in (low, high)] == [0.68, 0.96, 0.63, 0.94]
    assert "three for 68 to 96 %" in TEXT and "reach 63 to 94 %" in TEXT


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 2])
def test_twelve_narrow_heads_learn_more_slowly_than_in_the_steps_that_four_need(seed):
    assert "Twelve heads of 2 features learn more slowly" in TEXT
    letters, truth = held_out_rows(4)
    answers = fit_neighbours(12, 4, seed=seed, steps=1600)(letters).argmax(-1)
    assert (answers == truth).all(-1).double().mean() > 0.99


def agreement(seed, steps):
    """How the ranks of the eight heads by the gradient and by leave-one-out correlate after so many steps."""
    letters, truth = (part[:128] for part in held_out_rows(4))
    model = fit_neighbours(8, 4, seed=seed, steps=steps, num_hiddens=NUM_HIDDENS, drop=DROP)
    gates = torch.ones(8, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(model(letters, head_mask=gates).flatten(0, 2), truth.flatten())
    costs = torch.stack([-right_without(model, [head]).mean() for head in range(8)])
    gradient = torch.autograd.grad(loss, gates)[0].abs()
    ranks = torch.stack([x.argsort().argsort().double() for x in (costs, gradient)])
    return torch.corrcoef(ranks)[0, 1].item()


@pytest.mark.cpu
@pytest.mark.long
def test_half_trained_the_gradient_mostly_agrees_with_leave_one_out():
    early, later = [sorted(agreement(seed, steps) for seed in range(8)) for steps in (60, 100)]
    assert "its ranking agreed with leave-one-out's in seven of eight runs (correlation above 0.64" in TEXT
    assert later[1] > 0.64, later
    assert early[5] < 0.3 and "at step 60, rarely" in TEXT, early


@pytest.mark.cpu
@pytest.mark.long
def test_the_worst_four_recover_and_the_average_of_single_gradients_begins_with_the_same_heads():
    here = {"Layer": CompleteAttention}  # what the notebook's cells define, without running them all
    for source in SHOWN:
        for part in ast.parse(source).body:
            if isinstance(part, ast.Import | ast.ImportFrom | ast.FunctionDef) or "shifts = " in ast.unparse(part)[:9]:
                exec(compile(ast.Module([part], []), "<00>", "exec"), here)
    here["lab"] = lab = with_layer(ring_lab(), CompleteAttention)
    torch.manual_seed(1)
    tuned = here["train"](here["prune"](WORST_FOUR), 100)
    assert here["right"](tuned, torch.randint(10, (500, 12))).double().mean() > 0.995
    assert "The worst four of 70 recover, too" in TEXT

    gradient = torch.zeros(8)
    for row in torch.randint(10, (128, 12), generator=torch.Generator().manual_seed(7)):
        gates = torch.ones(8, requires_grad=True)
        gradient += torch.autograd.grad(here["ring_loss"](lab, row[None], head_mask=gates), gates)[0].abs()
    assert sorted(gradient.argsort().tolist()[:4]) == [0, 1, 3, 5] and "Here both pick the same four heads" in TEXT


def test_in_the_whole_of_minilm_later_heads_move_the_pronoun_more():
    try:
        model = with_layer(minilm(), CompleteAttention)
    except ImportError as missing:
        pytest.skip(str(missing))
    ids, _ = model.tokenize([SENTENCES[0]])

    @torch.no_grad()
    def she(*removed):
        mask = torch.ones(72)
        mask[list(removed)] = 0
        return model(ids, head_mask=mask.view(6, 12))[0, 9]

    moved = torch.stack([(she(head) - she()).norm() for head in range(72)])
    ahead = (moved > moved[12 + 3]).nonzero().flatten()
    assert len(ahead) == 25 and ahead.min() >= 24 and (moved - moved[15]).abs().sort().values[1] > 0.005
    assert "25 of the 72 heads move *she* more, all of them in later layers" in TEXT


def test_the_complete_class_stands_folded_below_its_cell_and_in_no_other():
    assert not any("repeat_interleave(h" in source or "class CompleteAttention" in source for source in SHOWN)
    pages = [str(output.get("data", {}).get("text/html")) for cell in code(NOTEBOOK) for output in cell.outputs]
    [page] = [page for page in pages if "self.W_o(transpose_output(heads, h))" in page]
    assert page.startswith("<details><summary>")


def test_the_core_is_short():
    lines = [len(re.findall(r"(?m)^(?!\s*#).*\S", source)) for source in SHOWN]
    tasks = r"exercises\.(transpose_qkv|layer_\w+|covering_head|four_heads)\("  # the stubs and checks of the exercises
    story = [source for source in SHOWN if "your code here" not in source and not re.match(tasks, source)]
    assert 40 <= len(story) <= 55 and sum(lines) <= 320
    assert max(len(line) for source in SHOWN for line in source.splitlines()) <= 88
    assert len(re.findall(r"\*\*Predict", TEXT)) <= 9  # one of them explains the word
