"""Live pictures saved as a page: alive without a kernel and without a network, by mouse, keyboard and screen reader."""

import io
import itertools
import random
import re

import pytest
import torch
from layer_of_lookups import layer_of_lookups
from picture_cases import CASES, NEXT_FRAME, load, moved_and_idle, violations
from PIL import Image, ImageStat
from small_language_model import small_language_model
from turns import LONG, by_turns

from mha_course import language, models, pictures
from mha_course.heads.kept_results import load_results
from mha_course.models import shipped_model
from mha_course.models.neighbours import held_out_rows
from mha_course.models.tasks import Digits
from mha_course.pictures import ring_explorer
from mha_course.pictures.picture import signed

pytestmark = [pytest.mark.browser, pytest.mark.quarter]


@pytest.mark.parametrize("name", by_turns(CASES, 4))
def test_every_control_works_by_keyboard(live, name):
    page = live(CASES[name]())
    before = page.looks()
    assert page.looks() == before, "what moves by itself would pass for an answer"
    moved, idle = moved_and_idle(page.page.evaluate, page.page.keyboard.press, page.looks)
    assert idle == []
    assert moved


@pytest.mark.parametrize("name", CASES)
def test_a_grid_is_one_tab_stop_with_arrows_inside(live, name):
    page = live(CASES[name]())
    grids = page.section.locator("svg[role=group]")
    for i in range(grids.count()):
        stops = grids.nth(i).locator("[tabindex='0']")
        assert stops.count() == 1
        before = page.looks()
        stops.focus()
        page.page.keyboard.press("ArrowDown")
        for _ in range(i + 1):  # in each grid to another place, since one may follow the other
            page.page.keyboard.press("ArrowRight")
        assert page.page.evaluate("document.activeElement.closest('svg[role=group]') !== null")
        assert page.looks() != before
        assert page.section.locator("[data-lm-suppress-shortcuts]:focus").count() == 1


def test_the_layer_explorer_shows_torchs_numbers(live):
    explorer = layer_of_lookups(head=3, valid_lens=[12, 7])
    page = live(explorer)
    page.section.get_by_label("num_heads").press("ArrowLeft")
    page.section.get_by_label("valid_lens").press("ArrowRight")
    explorer.num_heads, explorer.valid_lens = 4, torch.tensor([12, 8])
    for example in (1, 0):
        page.section.get_by_label("sequence").select_option(str(example))
        page.looks()
        valid, weights = explorer.valid_lens[example], explorer.weights()[example, 3]
        shown = page.section.locator("svg[role=group] .cell").evaluate_all("cells => cells.map(cell => cell.ariaLabel)")
        for i, label in enumerate(shown):
            query, key = divmod(i, 12)
            weight = "masked" if key >= valid else signed(weights[query, key].item())
            assert label == f"query {query}, key {key}: {weight}"
        assert page.section.locator(".row-names span").all_text_contents() == list(
            explorer.data["query_names"][example]
        )
        query, key = divmod(explorer.cell, 12)
        names, at = (explorer.data[name][example] for name in ("query_names", "key_names")), (query, key)
        pair = " attends to ".join(f"“{own[i]}”" for own, i in zip(names, at, strict=True))
        others = explorer.weights()[example, :3, query, key].max()
        headline = page.section.locator(".looks").inner_text().replace("\xa0", " ")
        assert headline.startswith("4 heads, split from weights trained as 6 heads: ")
        assert f"Head 3: {pair} with {signed(100 * weights[query, key].item(), 0)} % of its weight." in headline
        assert f"In the 3 other heads: at most {signed(100 * others.item(), 0)} %." in headline


def test_brackets_join_trained_heads_where_the_weights_are_split_anew(live):
    """Each spans the features of its heads, so that two of three heads of six lie below one trained head."""
    explorer = layer_of_lookups(num_heads=4)
    page = live(explorer, width=759)
    middle = "nodes => nodes.map(node => node.getBoundingClientRect()).map(({ left, right }) => [left, right])"
    old, new = (page.section.locator(f".joined .{name} span").evaluate_all(middle) for name in ("trained", "now"))
    left, right = old[0][0], old[-1][1]
    for spans in (old, new):
        ends = [left + (right - left) * i / len(spans) for i in range(len(spans) + 1)]
        for i, (start, end) in enumerate(spans):
            assert abs(start - ends[i]) < 4 and abs(end - ends[i + 1]) < 4
    assert page.section.locator(".joined").get_attribute("aria-label").split("; ")[1] == "head 1: trained 1 + 2"
    share = f"accuracy {100 * explorer.data['accuracies'][3]:.0f} %"
    assert page.section.locator(".accuracy").text_content() == share


def test_the_blue_edge_of_a_map_is_dragged(live):
    page = live(layer_of_lookups(), width=759)
    box = page.section.locator("svg[role=group]").bounding_box()
    y = box["y"] + box["height"] / 2
    page.page.mouse.move(box["x"] + box["width"] * 8 / 12, y)
    page.page.mouse.down()
    for length in (5, 0, 12):
        page.page.mouse.move(box["x"] + box["width"] * (length + 0.2) / 12, y)
        page.looks()
        assert page.section.get_by_label("valid_lens").input_value() == str(length)
        edges = page.section.locator(".edge").evaluate_all(EDGES)
        assert edges == [f"M{length},0v12"] * 7  # of six heads, and in large
    page.page.mouse.up()


EDGES = "nodes => nodes.map(node => node.getAttribute('d'))"


WORTH_OF_HEADS = "cards => cards.map(card => [card.ariaChecked, card.querySelector('i').textContent])"


def change(lost):
    """How accuracy changes, as a head says it: in points."""
    points = signed(-100 * lost, 0)
    return points if points[0] in "−0" else f"+{points}"


def test_the_ring_tells_pythons_figures_on_every_state(live):
    explorer = pictures.RingExplorer(num_heads=4)
    page = live(explorer)
    section, says = page.section, lambda: page.section.locator(".looks").inner_text().replace("\xa0", " ")

    def agrees(start):
        page.looks()
        right = explorer.accuracy()
        told = ring_explorer.percent(right)
        assert says().startswith(f"{start}: all four right for {told}"), says()
        assert section.locator(".ring-middle b").inner_text() == told
        shown = section.locator(".ring-head").evaluate_all(WORTH_OF_HEADS)
        for head, (on, lost) in enumerate(shown):
            is_off = head in explorer.off
            assert on == str(not is_off).lower()
            assert lost == ("off" if is_off else change(right - explorer.accuracy(head)))
        weights, answers = explorer.look()
        chords = (weights * explorer.gates()[:, None, None])[:, explorer.query].T  # by key and head
        for own, mark in zip(chords, section.locator(".mark").all_text_contents(), strict=True):
            if explorer.heads > 4:
                assert mark == " ".join(str(head) for head in range(explorer.heads) if own[head] >= 0.2)
            else:
                most = own.max().item()
                assert list(map(float, mark.split())) == pytest.approx([most] if most >= 0.15 else [], abs=0.006)
        row = torch.tensor(["abcdefghij".index(letter) for letter in explorer.letters])
        due = torch.stack([row.roll(shift) for shift in (2, 1, -1, -2)], dim=1)
        dots = section.locator("circle").evaluate_all("nodes => nodes.map(node => node.classList[0])")
        assert [dot == "right" for dot in dots] == (answers[:, [2, 0, 1, 3]] == due).flatten().tolist()

    agrees("4 heads, one per neighbour")
    explorer.num_heads = 1
    section.get_by_role("button", name="1 head:").click()
    agrees("1 head for four neighbours")
    assert "One head gives one average of all four." in says()
    explorer.num_heads = 4
    section.get_by_role("button", name="4 heads:").click()
    section.get_by_role("switch").nth(1).click()
    explorer.off = [1]
    agrees("3 of 4 heads on")
    section.get_by_role("slider", name="valid_lens").press("ArrowLeft")
    section.get_by_role("switch").nth(1).click()
    explorer.off, explorer.valid_lens = [], 11
    agrees("11 of 12 keys valid")
    section.get_by_role("slider", name="valid_lens").press("End")
    section.get_by_label("The same weights, split").select_option("2")
    explorer.valid_lens, explorer.split_into = 12, 2
    agrees("2 heads split from 4 heads")
    section.locator(".ring-letter").nth(5).press("a")
    explorer.letters, explorer.query = explorer.letters[:5] + "a" + explorer.letters[6:], 5
    section.get_by_role("button", name="6 heads:").click()
    explorer.num_heads, explorer.split_into = 6, 0
    agrees("6 heads of 4 features")
    section.locator(".ring-letter").nth(5).press("k")
    assert "“k” is not one of the letters a to j" in page.reading()
    agrees("6 heads of 4 features")


def test_the_ring_of_a_model_tells_what_covers_for_what_and_switches_off_a_pair_at_one_touch(live):
    model, (letters, truth), pairs = models.ring_lab(), held_out_rows(4), [(2, 6), (1, 3), (0, 5), (4, 7)]
    section = (page := live(pictures.RingExplorer(model))).section
    switches = {head: section.locator(".ring-head").filter(has_text=re.compile(rf"^{head} ")) for head in range(8)}
    on_pairs = section.locator(".ring-pair")

    def right(*off, row=None):
        gates = torch.tensor([float(head not in off) for head in range(8)])
        with torch.no_grad():
            if row is not None:
                return model(row[None], head_mask=gates)[0].argmax(dim=-1)
            return (model(letters[:64], head_mask=gates).argmax(-1) == truth[:64]).all(-1).double().mean().item()

    def agrees(*off):
        page.looks()
        own = right(*off)
        for heads, node in [((head,), node) for head, node in switches.items()] + list(
            zip(pairs, on_pairs.all(), strict=True)
        ):
            is_off = set(heads) <= set(off)
            told = "off" if is_off else change(own - right(*off, *heads))
            assert node.locator("i").text_content() == told, (off, heads)
            assert node.get_attribute("aria-checked") == str(not is_off).lower()
            assert node.get_attribute("aria-label").endswith(f": {told}")
        row = torch.tensor([ord(letter) - ord("a") for letter in ring_explorer.ROW])
        due = torch.stack([row.roll(shift) for shift in (1, -1, 2, -2)], dim=1)
        expected = (right(*off, row=row) == due)[:, [2, 0, 1, 3]]
        dots = section.locator("circle").evaluate_all("nodes => nodes.map(node => node.classList[0] === 'right')")
        assert dots == expected.flatten().tolist()
        return expected.all(dim=0).tolist()  # by neighbour

    assert agrees() == [True] * 4
    switches[1].click()
    agrees(1)
    on_pairs.nth(1).press("Enter")
    assert agrees(1, 3) == [True, False, True, True], "exactly the dots of their neighbour are empty"
    on_pairs.nth(1).press("Space")
    on_pairs.nth(3).click()
    assert agrees(4, 7) == [True, True, True, False]
    section.get_by_label("The same weights, split").select_option("4")
    page.looks()
    assert on_pairs.count() == 0


@pytest.mark.long
def test_what_the_ring_trains_here_is_said_and_its_curve_can_be_scrubbed(live):
    page = live(pictures.RingExplorer(num_heads=1))
    page.section.get_by_role("button", name="train here").click()
    page.looks()
    course = page.section.locator(".ring-course")
    assert "trained here and now: step 400 of 400" in course.inner_text()
    assert page.section.locator(".curve-of.gated").get_attribute("d").count("L") == 100
    last = page.looks()
    page.section.get_by_role("slider", name="training step").press("Home")
    assert page.looks() != last and "step 0 of 400" in course.inner_text()


@pytest.mark.long
def test_where_a_page_allows_no_worker_the_ring_trains_in_slices_and_says_so(live):
    """What is typed meanwhile is shown at once and stays, and the curve is as long as a worker's."""
    page = live(pictures.RingExplorer(num_heads=4))
    page.page.evaluate("() => { delete window.Worker; }")
    page.section.get_by_role("button", name="train here").click()
    slow, letter = "This page allows no worker, so training is slower.", page.section.locator(".ring-letter").nth(5)
    page.section.locator(".reading", has_text=slow).wait_for()
    letter.press("b")
    page.page.evaluate(NEXT_FRAME)
    assert letter.text_content() == "b" and page.section.locator(".ring-middle [aria-busy]").count() == 1
    page.looks()
    assert letter.text_content() == "b" and slow not in page.reading()
    assert "trained here and now: step 400 of 400" in page.section.locator(".ring-course").inner_text()
    assert page.section.locator(".curve-of.gated").get_attribute("d").count("L") == 100


@pytest.mark.parametrize("spoken", ["en", *(pytest.param(one, marks=pytest.mark.long) for one in ("vi", "zh", "ja"))])
@pytest.mark.parametrize(("width", "scheme"), [(735, "light"), (366, "dark")])
def test_the_ring_opens_on_two_rings_and_a_button_and_tells_pythons_figures(live, width, scheme, spoken, monkeypatch):
    monkeypatch.setattr(language, "_chosen", spoken)
    explorer = pictures.RingExplorer()
    section = (page := live(explorer, width=width + 24, scheme=scheme)).section
    page.looks()
    box, sides = section.bounding_box(), section.locator(".ring-side")
    assert (round(box["width"]), box["height"] <= 640) == (width, True)
    assert section.evaluate(LEAST_CONTRAST) >= 4.5 and page.page.evaluate(PLACES) == []
    assert violations(page.page, ".mha-live") == []
    for side, heads in zip(sides.all(), (1, 4), strict=True):
        explorer.num_heads = heads
        _, answers = explorer.look()
        row = torch.tensor(["abcdefghij".index(letter) for letter in explorer.letters])
        due = torch.stack([row.roll(shift) for shift in (2, 1, -1, -2)], dim=1)
        assert side.locator(".ring-middle b").inner_text() == ring_explorer.percent(explorer.accuracy())
        assert side.locator("> p b").inner_text() == ring_explorer.many(heads)
        dots = side.locator("circle:not(.seat)").evaluate_all(
            "nodes => nodes.map(node => node.classList[0] === 'right')"
        )
        assert dots == (answers[:, [2, 0, 1, 3]] == due).flatten().tolist()
        assert ("fails" in side.get_attribute("class").split()) == (heads == 1)
    assert ring_explorer.percent(explorer.accuracy()) in section.locator(".looks").inner_text().replace("\xa0", " ")
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert section.locator("button, select, [role=slider]").count() == 1, "the rest waits until it is asked for"
    section.get_by_role("button").press("Enter")
    page.looks()
    assert section.locator(".heads-bar:focus").inner_text().endswith("4") and sides.count() == 0


# Of each head its colour and the chords in full: from where, to where, how wide. And the colours of the dots beside.
SPOTLIT = """
side => {
    const tokenAt = point => {
        const [x, y] = point.split(',');
        return (Math.round(6 * Math.atan2(x - 200, 200 - y) / Math.PI) + 12) % 12;
    };
    const chordsOf = path => path.getAttribute('d').split('M').slice(1).map(chord =>
        [...[chord.split(/[QC]/)[0], chord.split(' ').at(-1)].map(tokenAt), Number(path.getAttribute('stroke-width'))]);
    const heads = [...side.querySelectorAll('svg > .strand')].map(({ children }) =>
        [getComputedStyle(children[0]).stroke, [...children].flatMap(chordsOf)]);
    return [heads, [...side.querySelectorAll('circle.near')].map(node => getComputedStyle(node).fill)];
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_opening_shows_one_letters_chords_in_full_and_its_dots_in_their_colours(live, page, scheme):
    page.mouse.move(0, 0)
    section = (opening := live(explorer := pictures.RingExplorer(), scheme=scheme)).section
    for token in (0, 5):
        if token:
            section.locator(".ring-side .mark").nth(token).hover(timeout=9000)
        opening.looks()
        for side, num_heads in zip(section.locator(".ring-side").all(), (1, 4), strict=True):
            explorer.num_heads = num_heads
            heads, dots = side.evaluate(SPOTLIT)
            assert side.locator(".rest").evaluate("node => getComputedStyle(node).opacity") == "0.15"
            drawn = torch.zeros(num_heads, 12)
            for head, (_, chords) in enumerate(heads):
                for query, key, width in chords:
                    assert query == token
                    drawn[head, key] = width
            weights = explorer.look()[0][:, token]
            assert (drawn / 11 - weights).abs().max() < 0.035, "as wide as the weight"
            near = [(token + step) % 12 for step in (-2, -1, 1, 2)]
            assert side.locator(".met text").all_text_contents() == [
                explorer.letters[key] for key in sorted(near) if num_heads == 4
            ]
            if num_heads == 4:
                assert dots == [heads[head][0] for head in drawn[:, near].argmax(dim=0)]
                assert len(set(dots)) == 4
    for num_heads in (1, 4):
        parameters = ring_explorer.trained_neighbours(num_heads).parameters()
        assert f"Both models have {sum(one.numel() for one in parameters):,} parameters." in section.inner_text()


@pytest.mark.long
def test_one_head_and_four_learn_side_by_side_and_both_curves_stay(live, page):
    """And no wrong answer or step changes its height meanwhile."""
    page.emulate_media(reduced_motion="no-preference")
    try:
        section, heights = live(pictures.RingExplorer(), width=735 + 24).section, set()
        for words in ("4 heads learning, step", "One head fails, 4 succeed: all four right for 100"):
            section.locator(".looks", has_text=words).wait_for(timeout=120_000)
            heights.add(section.bounding_box()["height"])
            assert "trained here and now: step" in section.inner_text()
        section.locator(".ring-side.lit").nth(1).wait_for()
    finally:
        page.emulate_media(reduced_motion="reduce")
    assert max(heights) <= 640 and max(heights) - min(heights) <= 4
    section.get_by_role("button", name="Try it yourself").click()
    assert section.locator(".ring-course b").all_text_contents() == ["1 head", "4 heads"], "curves are named"


NOTES_IN_THE_RING = """
section => {
    const { left, top, width } = section.querySelector('.rim').getBoundingClientRect(), radius = width / 2;
    return [...section.querySelectorAll('.ring-corner > *')].filter(node => {
        const box = node.getBoundingClientRect();
        const [x, y] = [[box.left - left, box.right - left], [box.top - top, box.bottom - top]].map(
            ends => Math.max(ends[0] - radius, radius - ends[1], 0));
        return Math.hypot(x, y) < radius;
    }).map(node => node.textContent);
}
"""


@pytest.mark.parametrize("spoken", ["en", *(pytest.param(one, marks=pytest.mark.long) for one in ("vi", "zh", "ja"))])
@pytest.mark.parametrize("width", [735, 366])
def test_the_ring_keeps_its_height_under_the_hand(live, width, spoken, monkeypatch):
    """And no note in its corners runs into it."""
    monkeypatch.setattr(language, "_chosen", spoken)
    page, heights = live(pictures.RingExplorer(explore=True), width=width + 24), set()

    def note():
        page.looks()
        box = page.section.bounding_box()
        assert round(box["width"]) == width and (width < 735 or box["height"] <= 640)
        heights.add(box["height"])
        above, first, last, below = (
            page.section.locator(f".ring-right {name}").bounding_box()
            for name in ("> .title", ".ring-head >> nth=0", ".ring-head >> nth=-1", ".ring-split")
        )
        assert above["y"] + above["height"] <= first["y"] and last["y"] + last["height"] <= below["y"]
        assert page.section.evaluate(NOTES_IN_THE_RING) == []

    for bar in page.section.locator(".heads-bar").all():
        bar.click()
        note()
    page.section.get_by_role("switch").first.click()
    note()
    page.section.locator(".ring-knob").press("ArrowLeft")
    note()
    page.section.locator("select").select_option("2")
    note()
    page.section.locator(".ring-letter").nth(5).press("z")
    note()
    assert max(heights) - min(heights) <= 4
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("make", "buttons"),
    [
        (pictures.MaskExplorer, ".chip"),
        (lambda: pictures.TransposeStepper(axes="0, 1, 2, 3"), ".station"),
        (CASES["head switches"], ".switch"),
        (lambda: pictures.PagedCacheStepper(step=11, row=0), ".paged button"),
    ],
    ids=["masks", "transpose", "switches", "paged cache"],
)
def test_a_picture_and_what_answers_a_touch_are_on_one_screen(live, make, buttons):
    page = live(make(), width=735 + 24)
    for one in page.section.locator(buttons).all():
        one.click()
        page.looks()
        box = page.section.bounding_box()
        assert (round(box["width"]), box["height"] <= 640) == (735, True), (box, page.reading())


# Touches one thing of a picture: moves what can be moved, chooses from a list, clicks or points at what can be clicked.
# What plays or trains by itself, and what opens a fold, is left out.
TOUCH = """
([kind, which, how, far]) => {
    const section = document.querySelector('section.mha-live');
    const of = (items, at) => items[Math.floor(at * items.length)];
    const kinds = ['input[type=range], select, [role=slider]', 'input[type=checkbox], button', '.cell, [role=button]'];
    const isStill = (node) => !node.disabled && node.checkVisibility() &&
        !node.matches('[aria-expanded]') && !/^[▶❚]/.test(node.textContent);
    const seen = kinds.map((one) => [...section.querySelectorAll(one)].filter(isStill));
    const node = of(of(seen.filter(({ length }) => length), kind), which), end = how < 0.3 ? 0 : how > 0.7 ? 1 : far;
    if (node.matches('select')) node.selectedIndex = Math.floor(how * node.length);
    if (node.type === 'range') node.value = Number(node.min) + end * (node.max - node.min);
    if (node.matches('select, [type=range]')) {
        ['input', 'change'].forEach((type) => node.dispatchEvent(new Event(type)));
    } else if (node.role === 'slider') {
        const key = of(['Home', 'End', 'ArrowLeft', 'ArrowRight'], how);
        node.dispatchEvent(new KeyboardEvent('keydown', { key }));
    } else {
        if (how < 0.5) node.dispatchEvent(new MouseEvent('click', { bubbles: true }));
        const names = ['pointerenter', 'pointerover'];
        names.forEach((name) => node.dispatchEvent(new PointerEvent(name, { bubbles: true })));
    }
    return node.ariaLabel ?? node.textContent;
}
"""


TRANSLATED = "hand-made head", "layer", "ring", "ring of a model", "sentence", "transpose"
SPOKEN = [(name, "en") for name in CASES] + list(itertools.product(TRANSLATED, ("vi", "zh", "ja")))


@pytest.mark.parametrize("width", [735, 366])
@pytest.mark.parametrize(("name", "spoken"), by_turns(SPOKEN, 4))
def test_a_picture_keeps_its_height_under_the_hand(live, name, spoken, width, monkeypatch):
    monkeypatch.setattr(language, "_chosen", spoken)
    picture = CASES[name]()
    assert "messages" in picture.data or spoken == "en"
    page, draw = live(picture, width=width + 24), random.Random(1)
    page.looks()
    heights = {page.section.bounding_box()["height"]: "opened"}
    for _ in range(10):
        touched = page.page.evaluate(TOUCH, [draw.random() for _ in range(4)])
        page.looks()
        heights.setdefault(page.section.bounding_box()["height"], touched)
    assert max(heights) - min(heights) <= 4, heights
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_drawn_digit_is_read_and_kept(live):
    page = live(CASES["digits"]())
    before = page.looks()
    page.section.get_by_role("button", name="Draw").click()
    box = page.section.locator(".paper svg").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 10)
    page.page.mouse.up()
    assert page.looks() != before
    darkness = "nodes => nodes.map(node => Number(node.style.getPropertyValue('--dark')))"
    ink = page.section.locator(".ink rect").evaluate_all(darkness)
    assert sum(ink[i] > 0.4 for i in range(64)) >= 8 and all(ink[8 * row] == 0 for row in range(8))
    assert "Your drawing" in page.reading()


# Presses buttons by their words within one task, so that nothing can happen in between, and then counts the frames
# until the search is over.
PRESS = """
async names => {
    const buttons = [...document.querySelectorAll('.mha-live button')];
    for (const name of names) buttons.find(node => node.textContent === name).click();
    const frame = () => new Promise(requestAnimationFrame);
    let frames = 0;
    for (await frame(); document.querySelector('.mha-live [aria-busy]'); await frame()) frames++;
    await frame();
    return frames;
}
"""
HARD, EASY = 54, 53  # digits: three heads change nothing about the first, one head makes an 8 of the second, a 9


@pytest.fixture(scope="module")
def reader():
    return shipped_model("digits")


def test_break_it_switches_off_one_head_and_says_so_beside_its_button(live, reader):
    explorer = pictures.HeadExplorer(reader, example=EASY)
    page = live(explorer)
    page.page.evaluate(PRESS, ["break it"])
    page.page.mouse.move(0, 0)
    (off,) = page.section.locator("[aria-checked=false]").evaluate_all("nodes => nodes.map(node => node.ariaLabel)")
    layer, head = (int(word) for word in re.findall(r"\d", off))
    gates = torch.ones(2, 6)
    gates[layer, head] = 0
    before, explorer.gates = explorer.answer()[0].argmax(), gates
    after = explorer.answer()[0].argmax()
    assert before != after
    assert page.section.locator(".says strong").text_content() == str(after.item())
    note = page.section.locator("button:text-is('break it') + *")
    assert note.text_content() == f"Without layer {layer}, head {head}: read as {after}, not {before}."


def test_break_it_lets_the_page_go_on_and_a_newer_choice_ends_it(live, reader):
    page = live(pictures.HeadExplorer(reader, example=EASY))
    assert page.page.evaluate(PRESS, ["break it", "›", "break it"]) > 3
    assert page.section.locator("[aria-checked=false]").count() == 0
    assert "more than 3 heads" in page.section.locator("button:text-is('break it') + *").text_content()
    page.section.get_by_role("button", name="the example before").click()
    page.looks()
    assert page.section.locator("button:text-is('break it') + *").text_content() == ""


@pytest.mark.parametrize(
    ("first", "press", "words"),
    [
        ({"gates": torch.zeros(2, 6)}, [], "All heads are off: nothing is left to break."),
        ({"gates": torch.eye(12)[1].reshape(2, 6)}, [], "The heads that are on do not change this"),
        ({}, ["✎ Draw"], "Draw a digit first."),
    ],
)
def test_break_it_says_why_it_finds_nothing(live, reader, first, press, words):
    page = live(pictures.HeadExplorer(reader, **{"example": HARD, **first}))
    page.page.evaluate(PRESS, [*press, "break it"])
    assert page.section.locator("button:text-is('break it') + *").text_content().startswith(words)


def test_with_the_pen_a_patch_says_that_it_is_drawn_on_and_an_empty_sheet_reads_as_nothing(live):
    page = live(CASES["digits"]())
    patch = page.section.get_by_role("button", name="patch row 1, column 2")
    patch.hover()
    assert "click it to look from there" in page.reading()
    page.section.get_by_role("button", name="Draw").click()
    patch.hover()
    assert "draw on it" in page.reading() and "empty" in page.reading()
    assert patch.get_attribute("aria-label") == "draw on patch row 1, column 2"
    assert patch.get_attribute("aria-pressed") is None
    assert page.section.locator(".says").inner_text() == "an empty sheet"


class FewDigits(Digits):
    @property
    def held_out(self):
        return super().held_out[:60]


def test_the_score_is_told_when_all_examples_are_counted(live, reader):
    """A share of the first few would be another number at every step."""
    page = live(pictures.HeadExplorer(reader, FewDigits()))
    score = page.section.locator(".score")
    told = score.evaluate_handle(TOLD)
    page.section.get_by_role("switch").first.click()
    score.filter(has_text="with all heads").wait_for()
    figures = [words for words in told.json_value() if "held-out" in words]
    assert figures and all("of 60 held-out answers" in words for words in figures)


TOLD = """
node => {
    const told = [];
    new MutationObserver(() => told.push(node.textContent)).observe(node, { childList: true, subtree: true });
    return told;
}
"""


def test_a_sentence_stands_in_one_line_where_it_can_and_leaves_room_for_its_arcs(live):
    page = live(CASES["sentence"]())
    for width, sentences in ((390, (0, 7)), (624, range(12))):  # of the page: the picture is 24 pixels less wide
        page.page.set_viewport_size({"width": width, "height": 900})
        for sentence in sentences:
            boxes = page.page.evaluate(WORDS, [sentence, width])
            lines = [boxes[0]]
            for box in boxes:
                if box["top"] > lines[-1]["bottom"]:
                    lines.append(box)
            assert width < 600 or len(lines) == 1, (width, sentence)
            assert all(box["size"] >= 12 for box in boxes if not box["special"]), (width, sentence)
            above = [0, *(line["bottom"] for line in lines)]
            room = [line["top"] - end for line, end in zip(lines, above, strict=False)]
            # The arcs of the first of several lines stand below it.
            assert min(room[1:] if len(room) > 1 else room) >= 80 and (len(room) == 1 or room[0] < 20), (
                width,
                sentence,
            )


WORDS = """
async ([sentence, width]) => {
    const choice = document.querySelector('.mha-live select');
    choice.value = sentence;
    choice.dispatchEvent(new Event('change'));
    // A new width is seen by a frame's layout, drawn in the next frame, and there in the one after it.
    for (let frames = 0; frames < 4; frames += innerWidth === width)
        await new Promise(done => requestAnimationFrame(done));
    return [...document.querySelectorAll('.word')].map(word => ({
        top: word.offsetTop,
        bottom: word.offsetTop + word.offsetHeight,
        special: word.textContent.startsWith('['),
        size: parseFloat(getComputedStyle(word).fontSize),
    }));
}
"""


def test_arcs_lead_to_all_words_with_some_weight(live):
    explorer = CASES["sentence"]()
    page = live(explorer)
    weights = explorer.maps[0].weights[1, 3, 9]
    assert page.section.locator(".arc").count() == (weights >= 0.04).sum() < len(weights)


def test_arcs_grow_when_the_word_changes_and_stand_at_once_where_motion_is_reduced(live, page):
    growing = "() => document.querySelector('.arc').getAnimations().length"
    shown = live(CASES["sentence"]())
    for motion, count in (("reduce", 0), ("no-preference", 1)):
        page.emulate_media(reduced_motion=motion)
        try:
            for word, due in ((7, count), (4, count)):
                shown.section.locator(".word").nth(word).evaluate("(word) => word.click()")
                shown.page.evaluate(NEXT_FRAME)
                assert shown.page.evaluate(growing) == due
            shown.section.locator(".glyph").nth(5 + count).evaluate(
                "(glyph) => glyph.click()"
            )  # another head, the same word
            shown.page.evaluate(NEXT_FRAME)
            assert not shown.page.evaluate(growing)
        finally:
            page.emulate_media(reduced_motion="reduce")


def test_a_word_that_is_pointed_at_does_not_outlive_its_sentence(live):
    page = live(pictures.SentenceExplorer(example=7))
    page.section.locator(".word").last.click()
    choice = page.section.get_by_label("sentence")
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        choice.press(key)
        reading = page.reading() + page.section.locator(".looks").inner_text()
        assert "undefined" not in reading and "NaN" not in reading


def test_a_head_in_training_is_named_by_what_python_measures_in_its_map(live):
    run = torch.stack([torch.full((2, 6, 6), 1 / 6), torch.eye(6)[torch.tensor([[0, 0, 1, 2, 3, 4], [2] * 6])]])
    page = live(pictures.TrainingScrubber(run, [0, 70], titles=["head A", "head B"], queries="abcdef", keys="abcdef"))
    headline = page.section.locator(".looks")
    assert "Head A has no clear pattern: " in headline.inner_text()
    page.section.get_by_role("slider").press("End")
    page.looks()
    told = headline.inner_text().replace("\xa0", " ").splitlines()
    assert told[0] == "Head A attends to the previous token with 100 % of its weight"
    assert told[1] == "Step 70 · uniform attention: 17 % · “a” at 0 to “a” at 0, 100 %"
    page.section.get_by_text("head B").click()
    page.looks()
    assert headline.inner_text().replace("\xa0", " ").startswith("Head B attends to “c” at 2 with 100 %")


def test_the_loss_follows_the_slider_and_answers_the_pointer(live):
    """The thumb, 16 pixels wide, stands above the line in the chart, which shows the step that is pressed."""
    page = live(CASES["scrubber"]())
    slider, line = page.section.get_by_role("slider"), page.section.locator(".loss .now")
    for key in ("Home", "ArrowRight", "End"):
        slider.press(key)
        page.looks()
        box, place = slider.bounding_box(), int(slider.input_value()) / 4
        middle = line.bounding_box()["x"] + line.bounding_box()["width"] / 2
        assert abs(box["x"] + 8 + place * (box["width"] - 16) - middle) < 1
    chart = page.section.locator(".loss").bounding_box()
    page.page.mouse.click(chart["x"] + 1, chart["y"] + chart["height"] / 2)
    page.looks()
    assert slider.input_value() == "0" and page.reading().startswith("Step 0,")


def test_the_words_of_a_chart_that_is_dragged_cannot_be_selected(live):
    page = live(CASES["kernel"]())
    page.section.get_by_text("kernel", exact=True).dblclick()
    assert page.page.evaluate("String(getSelection())") == ""


def test_a_step_is_dragged_to_along_the_rail(live):
    page = live(CASES["transpose"]())
    stations = page.section.locator(".station")
    stations.nth(1).hover()
    page.page.mouse.down()
    for number in (5, 4):
        stations.nth(number).hover()
        page.looks()
        assert stations.nth(number).get_attribute("aria-pressed") == "true"
    page.page.mouse.up()


@pytest.mark.parametrize("name", CASES)
def test_what_to_touch_is_said_until_something_is_touched(live, name):
    page = live(CASES[name]())
    hint = page.section.locator(".reading .hint")
    assert hint.text_content().endswith(".")
    control = page.section.locator("input[type=range]:visible, .word, .station, [role=slider]:visible").first
    control.focus()
    for key in ("Home", "End", "ArrowLeft"):  # one of them changes something
        page.page.keyboard.press(key)
    page.looks()
    assert hint.count() == 0


# What one touches with a finger and is not 24 pixels wide and high; over the cells of a map one moves.
SMALL = """
() => [...document.querySelectorAll('.mha-live :is(button, input, select, summary, [role=button])')]
    .filter(node => node.checkVisibility() && !node.closest('svg'))
    .map(node => [node.ariaLabel ?? node.textContent, (node.closest('.check') ?? node).getBoundingClientRect()])
    .filter(([, { width, height }]) => Math.min(width, height) < 23.95)
    .map(([name, { width, height }]) => [name, width, height])
"""


@pytest.mark.parametrize("name", CASES)
def test_what_is_touched_on_a_phone_is_24_pixels_wide_and_high(live, name):
    page = live(CASES[name](), width=390)
    page.looks()
    assert page.page.evaluate(SMALL) == []


def test_on_a_phone_a_chart_is_as_high_as_on_a_wide_screen(live):
    """A curve of 300 pixels' width has room for its values."""
    page = live(CASES["kernel"]())
    heights = {}
    for width in (390, 735):
        page.page.set_viewport_size({"width": width, "height": 900})
        page.looks()
        heights[width] = page.section.locator(".chart").bounding_box()["height"]
    assert heights[390] > 0.85 * heights[735]


def test_nothing_moves_while_the_width_of_a_kernel_is_dragged(live):
    page = live(CASES["kernel"](), width=735 + 24)
    width, boxes = page.section.get_by_role("slider", name="width σ"), []
    for key in ("Home", "End", "ArrowLeft"):
        width.press(key)
        page.looks()
        boxes.append([page.section.locator(name).bounding_box() for name in (".check", ".chart", ".reading")])
    assert boxes[0] == boxes[1] == boxes[2]


def test_the_edge_of_padding_is_dragged_and_headline_and_verdicts_follow(live):
    page = live(CASES["masks"]())
    ground, verdicts = page.section.locator(".edge-ground"), page.section.locator(".verdict")
    box = ground.bounding_box()
    x, y = box["x"] + box["width"] * 2 / 6, box["y"] + box["height"] / 2
    page.page.mouse.move(x, y)
    page.page.mouse.down()
    for end, seen in ((5, "Padding gets nothing: the 5 words"), (6, "Nothing is masked"), (0, "With no valid key")):
        page.page.mouse.move(box["x"] + box["width"] * end / 6 + 8, y)
        page.looks()
        assert page.section.locator(".looks").inner_text().startswith(seen)
        assert page.section.get_by_role("slider").input_value() == str(end)
        edge = page.section.locator(".edge-ground i").bounding_box()
        assert abs(edge["x"] + edge["width"] / 2 - box["x"] - box["width"] * end / 6) < 1.5
    page.page.mouse.up()
    assert verdicts.all_text_contents()[2:] == ["✓ all zeros", "✗ all on padding", "✗ NaN"]


@pytest.mark.parametrize(
    "shown", [pictures.Drawing("block"), pictures.heatmaps(torch.eye(6)[None])], ids=["svg", "png"]
)
def test_stills_are_dark_in_a_dark_theme(page, shown):
    brightness = {}
    for theme in ("light", "dark"):
        page.set_content(f'<body data-theme="{theme}">{shown._repr_html_()}')
        image = Image.open(io.BytesIO(page.get_by_role("img").screenshot())).convert("L")
        brightness[theme] = ImageStat.Stat(image).mean[0]
    assert brightness["dark"] < 60 and brightness["light"] > 195


@pytest.mark.parametrize("name", CASES)
def test_a_headline_states_in_large_letters_what_is_seen_now(live, name):
    """It comes first, and other words stand there after another choice."""
    page = live(CASES[name]())
    headline = page.section.locator("> :first-child")
    page.looks()
    before = headline.inner_text()
    assert len(before.split()) > 2 and 20 <= headline.evaluate(FONT_SIZE) <= 28
    for control in page.section.locator("input[type=range], select, [role=switch], button[aria-pressed=false]").all():
        control.focus()
        control.press("Enter" if control.evaluate("node => node.matches('button')") else "ArrowRight")
        page.looks()
        if headline.inner_text() != before:
            return
    pytest.fail(f"nothing changes “{before}”")


FONT_SIZE = "node => parseFloat(getComputedStyle(node).fontSize)"


@pytest.mark.parametrize("name", CASES)
def test_all_that_is_drawn_lies_inside_and_no_two_words_touch(live, name):
    """On the site, in CI on a phone and a wide screen, too; numbers in cells and names beside them have 10 pixels."""
    page = live(CASES[name]())
    for width in (735, 390, 1440) if LONG else (735,):
        page.page.set_viewport_size({"width": width, "height": 900})
        page.looks()
        assert page.page.evaluate(PLACES) == [], width


# Shapes that leave their drawing, words that leave the picture, words that run into another, and small numbers.
PLACES = """
() => {
    const section = document.querySelector('.mha-live'), faults = [], words = [];
    const leaves = (a, b) => Math.max(b.left - a.left, a.right - b.right, b.top - a.top, a.bottom - b.bottom) > 4;
    for (const drawing of section.querySelectorAll('svg')) {
        const frame = drawing.getBoundingClientRect();
        for (const shape of drawing.querySelectorAll('rect, circle, path:not(.outline), text')) {
            const box = shape.getBoundingClientRect();
            if (box.width + box.height && leaves(box, frame)) faults.push(`outside: ${shape.outerHTML}`);
        }
    }
    const texts = document.createTreeWalker(section, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const { data, parentElement: parent } = texts.currentNode, range = document.createRange();
        if (!data.trim() || !parent.checkVisibility({ visibilityProperty: true })) continue;
        if (parent.closest('.spoken, option, .travel, button:disabled')) continue;
        range.selectNodeContents(texts.currentNode);
        for (const { left, right, top, bottom } of range.getClientRects()) {
            const margin = (bottom - top) / 4; // above and below what is written
            words.push({ node: texts.currentNode, data, left, right, top: top + margin, bottom: bottom - margin });
        }
        const drawing = parent.closest('svg'), unit = drawing ? drawing.clientWidth / drawing.viewBox.baseVal.width : 1;
        const size = parseFloat(getComputedStyle(parent).fontSize) * unit;
        if (size > 0 && size < 9.95) faults.push(`small: ${data}, ${size}`);
    }
    const frame = section.getBoundingClientRect();
    words.forEach((a, i) => {
        if (leaves(a, frame)) faults.push(`outside: ${a.data}`);
        for (const b of words.slice(i + 1)) {
            const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const isBeside = Math.min(a.bottom, b.bottom) > Math.max(a.top, b.top);
            const isProse = [a, b].every(({ node }) => node.parentElement.closest('.looks')); // it flows
            if (a.node !== b.node && across > -0.5 && isBeside && !isProse) faults.push(`${a.data} | ${b.data}`);
        }
    });
    return faults.slice(0, 8);
}
"""


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CASES)
def test_everyone_can_read_it(live, name, scheme):
    """In CI in the dark on a phone, too: no violation for axe, nothing beyond the edge, contrast of 4.5 in cells."""
    page = live(CASES[name](), scheme=scheme, width={"light": 1280, "dark": 390}[scheme])
    assert page.page.evaluate("document.documentElement.scrollWidth") == {"light": 1280, "dark": 390}[scheme]
    assert page.section.evaluate(LEAST_CONTRAST) >= 4.5
    assert page.reading()
    page.section.locator("[role=status]").filter(has_text=page.reading()).wait_for(state="attached")
    assert violations(page.page, ".mha-live") == []


# Draws the computed colours onto a canvas, which knows every notation, and compares their luminances.
LEAST_CONTRAST = """
section => {
    const pen = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
    const luminance = colour => {
        pen.fillStyle = colour;
        pen.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map(
            byte => byte / 255 <= 0.04045 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrasts = [...section.querySelectorAll('.cell')].filter(cell => cell.querySelector('text')?.textContent)
        .map(cell => ['rect', 'text'].map(name => luminance(getComputedStyle(cell.querySelector(name)).fill)))
        .map(([a, b]) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
    return Math.min(21, ...contrasts);
}
"""


ECHO = """
async () => {
    const shown = [], saved = [];
    const model = code.pageModel({ title: "steps", data: {}, step: 0 });
    model.save_changes = () => saved.push(model.get("step"));
    let choose;
    const build = ({ state, choose: given }) => (choose = given, { nodes: [], paint: () => shown.push(state.step) });
    code.picture(build).render({ model, el: document.body });
    choose({ step: 2 });
    model.set("step", 1);
    while (!saved.length) await new Promise(requestAnimationFrame);
    return { shown, saved };
}
"""


def test_a_late_answer_of_the_kernel_undoes_no_choice(page):
    """The kernel repeats each choice that it hears; the echo of 1 may come when the reader is at 2 already."""
    load(page, "page.js", "elements.js")
    seen = page.evaluate(ECHO)
    assert set(seen["shown"]) == {0, 2} and seen["saved"] == [2]


def test_numbers_are_written_with_their_signs(page):
    load(page, "elements.js")
    written = page.evaluate("[Infinity, -Infinity, NaN, -1.234, -0.001].map(value => code.number(value))")
    assert written == ["∞", "−∞", "NaN", "−1.23", "0.00"]


FIVE = [156, 157, 158, 168, 169]


def chip(page, name):
    return page.section.get_by_role("button", name=name, exact=True)


def test_without_the_induction_heads_another_word_comes_and_draws_of_others_stand_beside_it(live):
    explorer = pictures.NextWordExplorer()
    page, kept = live(explorer), explorer.kept[0]
    slot, bars = page.section.locator(".slot"), page.section.locator(".next-bar .name")
    assert "Miller" in slot.text_content() and slot.locator("s").count() == 0
    changing = sum(len(cut) == 1 and place != 0 for cut, place in zip(kept.cuts, kept.first.tolist(), strict=True))
    words = f"{changing} of 270 heads, each cut alone, change “Miller”"
    assert page.section.locator(".looks").inner_text() == words
    words = bars.all_text_contents()
    chip(page, "induction (5)").click()
    page.looks()
    assert (slot.locator("b").text_content(), slot.locator("s").text_content()) == ("Obama", "Miller")
    assert bars.all_text_contents() == [*words[:9], "Obama"], "the others stand still"
    cut = page.section.get_by_role("switch", checked=False)
    assert cut.count() == 5 and "layer 17, head 3, induction" in cut.first.get_attribute("aria-label")
    row = next(one for one in load_results("next_word")["others"] if one["text"].startswith("Barack"))
    told = [
        f"{sum(word != ' Miller' for word in row['words of draws'][where])} of 20 draws of 5 others ({where})"
        for where in ("same layers", "all heads")
    ]
    assert all(words in page.reading() for words in told)
    seen = set()
    for _ in range(20):
        chip(page, "5 others, all heads ⟳").click()
        page.looks()
        seen.add(
            (tuple(cut.evaluate_all("nodes => nodes.map(node => node.ariaLabel)")), slot.locator("b").text_content())
        )
        assert cut.count() == 5 and told[1] in page.reading()
    assert len(seen) == 20
    assert sum(word != "Miller" for _, word in seen) == int(told[1].split()[0])


def test_what_the_page_says_of_any_kept_cut_is_what_was_kept(live):
    """Words, bars and costs, of random sets of the named heads and of single ones, in a text with signs."""
    explorer, generator = pictures.NextWordExplorer(example=4), torch.Generator().manual_seed(0)
    page, kept = live(explorer), explorer.kept[4]
    marked = [144, *FIVE, 188, 211, 227]
    share = "fill => +fill.style.getPropertyValue('--p')"
    for cut in (
        *([head] for head in (0, 12, 188)),
        marked,
        *([marked[i] for i in torch.randperm(9, generator=generator)[:size]] for size in (2, 3, 6)),
    ):
        for head in cut:
            page.section.locator(".head-cell").nth(head).click()
        page.looks()
        first = page.section.locator(".slot b").text_content()
        shares = page.section.locator(".next-bar .fill").evaluate_all(f"fills => fills.map({share})")
        place = kept.cuts.index(tuple(sorted(cut)))
        expected = (-kept.nats[place]).exp()
        if kept.first[place] >= 10:
            expected[-1] = (-kept.first_nats[place]).exp()
        assert first == kept.words[kept.first[place]].strip()
        torch.testing.assert_close(torch.tensor(shares), expected, atol=1e-4, rtol=0)
        page.section.get_by_role("button", name="all heads on").click()


def test_a_cut_that_nobody_kept_is_said_to_be_unknown(live, monkeypatch):
    def missing():  # loading it takes seconds, and the page does not have what it says
        raise ImportError("no model here")

    monkeypatch.setattr("mha_course.pictures.next_word_explorer.smollm2", missing)
    page = live(pictures.NextWordExplorer(cut=[3, 100]))
    assert "This page knows each head cut alone" in page.reading()
    assert page.section.locator(".slot b").text_content() == "?"


def test_a_text_of_ones_own_travels_with_its_page(live):
    own = "w7 w31 w7 w2 w50"
    page = live(pictures.NextWordExplorer(small_language_model(), text=own, cut=[200, 3]))
    assert page.section.locator(".next-line .word").all_text_contents() == ["start", *own.split()]
    assert page.section.locator(".slot b").text_content() != "?"
    assert page.section.get_by_role("textbox").count() == 0, "nobody would answer"


def test_the_page_of_the_next_word_stays_small(tmp_path):
    page = pictures.save_html(pictures.NextWordExplorer(), tmp_path / "next word.html")
    assert page.stat().st_size <= 660_000


# A picture that is painted while it has no box, for a part of one frame, as in JupyterLab while the theme changes.
HIDE_WHILE_PAINTED = """
async () => {
    const section = document.querySelector('section.mha-live'), parent = section.parentElement;
    requestAnimationFrame(() => parent.style.display = 'none');
    section.querySelectorAll('.word')[3].click();
    requestAnimationFrame(() => parent.style.display = '');
    for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame);
    return section.querySelector('svg.arcs').getAttribute('viewBox');
}
"""


def test_what_is_hidden_while_it_is_painted_is_painted_again(live):
    page = live(CASES["sentence"]())
    width = page.section.locator(".words").evaluate("node => node.clientWidth")
    assert page.page.evaluate(HIDE_WHILE_PAINTED).split()[2] == str(width) != "0"


# The signs with which a line of the headline begins that belong to the word before.
SIGNS = """
() => {
    const texts = document.createTreeWalker(document.querySelector('.mha-live .looks'), NodeFilter.SHOW_TEXT);
    const found = { seen: 0, broken: [] }, range = document.createRange();
    let bottom = Infinity;
    while (texts.nextNode()) {
        [...texts.currentNode.data].forEach((sign, i) => {
            range.setStart(texts.currentNode, i);
            range.setEnd(texts.currentNode, i + 1);
            const box = range.getBoundingClientRect();
            if (/[,;:.%…]/.test(sign)) {
                found.seen++;
                if (box.top > bottom - 2) found.broken.push(sign);
            }
            if (/\\S/.test(sign)) bottom = box.bottom;
        });
    }
    return found;
}
"""


@pytest.mark.parametrize("name", ["masks", "ring", "layer", "sentence"])
def test_no_line_of_a_headline_begins_with_a_sign(live, name):
    page = live(CASES[name]())
    broken, seen = [], 0
    for width in range(300, 760, 20):
        page.page.set_viewport_size({"width": width, "height": 900})
        page.looks()
        signs = page.page.evaluate(SIGNS)
        seen += signs["seen"]
        broken += [(width, sign) for sign in signs["broken"]]
    assert seen and broken == []
