"""What the core says in numbers: its cells show it, no name is bound twice, and its bounds hold."""

import ast
import re
from collections import Counter

import pytest
import torch
from notebook_tools import ROOT, code, make_notebooks, text_of, text_of_output

from mha_course.exercises.first_pruning import BEST, accuracy_without, found_by_greedy_search
from mha_course.models.heads_needed import accuracy_by_seed

NOTEBOOK = make_notebooks.read(ROOT / "notebooks" / "00_start_here.ipynb")
TEXT = text_of("00_start_here")
SHOWN = {cell.source: "\n".join(map(text_of_output, cell.outputs)) for cell in code(NOTEBOOK)}
CLAIMS = {  # words of the text → what an output must hold
    "Here *queen* receives 0.46": "queen 0.46",
    "(0.92, 0.97, 0.01), a female person": "she receives [0.92, 0.97, 0.01]",
    "*Queen* receives 0.46 in the first sentence": "she was late {'queen': 0.46, 'waiter': 0.07}",
    "0.34 at its new position, where *waiter* was before": "she was late {'queen': 0.34, 'waiter': 0.09}",
    "One head names both letters for about a fifth": "one head: both letters right for 0.2",
    "Only 0.145 of the answers are still right": "right answers: 0.145\nwithout any head: 0.13",
    "0.96 at four. After that leave-one-out is lower. With eight heads removed it has 0.63": "leave-one-out 0.63",
    "which goes from 0.57 to 0.79": "random orders 0.57 to 0.79",
    "with 0.92 against 0.72": "greedy: 0.92, after 300 more steps 1.00\nrandom: 0.72, after 300 more steps 1.00",
}


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
    assert [round(end[heads], 2) for heads in (3, 12) for end in (low, high)] == [0.69, 0.95, 0.65, 0.94]
    assert "three for 69 to 95 %" in TEXT and "reach 65 to 94 %" in TEXT


def test_greedy_search_finds_the_five_that_the_check_knows():
    assert accuracy_without(tuple(found_by_greedy_search())) == pytest.approx(BEST, abs=5e-4)
    greedy = next(shown for source, shown in SHOWN.items() if source.startswith("def cost"))
    first = ast.literal_eval(re.findall(r"greedy +(.*)", greedy)[0])[:5]
    assert sorted(first) == sorted(found_by_greedy_search())


def test_a_hand_out_holds_no_complete_class():
    assert not any("repeat_interleave(h" in source or "class CompleteAttention" in source for source in SHOWN)
    assert not any("self.W_o(transpose_output(heads, h))" in shown for shown in SHOWN.values())


def test_the_core_is_short():
    lines = [len(re.findall(r"(?m)^(?!\s*#).*\S", source)) for source in SHOWN]
    tasks = r"exercises\.(transpose_qkv|layer_\w+|covering_head|five_heads)\("  # the stubs and checks of the exercises
    story = [source for source in SHOWN if "your code here" not in source and not re.match(tasks, source)]
    assert 40 <= len(story) <= 55 and sum(lines) <= 320
    assert max(len(line) for source in SHOWN for line in source.splitlines()) <= 88
    assert len(re.findall(r"\*\*Predict", TEXT)) <= 9  # one of them explains the word
