"""What JavaScript computes is what torch computes, to 1e-5, with random gates and lengths."""

import base64
import itertools
import re

import pytest
import torch
from picture_cases import (
    NEXT_FRAME,
    born,
    load,
    model,
    motion,
    points,
    scores_and_measures,
    told,
    words_with_features,
)
from torch.nn import functional as F
from turns import LONG

from mha_course import pictures
from mha_course.models import shape_trace
from mha_course.models.neighbours import NeighbourModel, draw_rows, held_out_rows
from mha_course.models.tasks import find_task
from mha_course.pictures import birth_explorer, cache_stepper, packed_texts_explorer
from mha_course.pictures.live import pack
from mha_course.pictures.picture import short
from mha_course.pictures.shared_with_js import bound
from mha_lib import MultiHeadAttention

pytestmark = [pytest.mark.browser, pytest.mark.quarter]


RUN = """
({ parameters, shapes, blocks, cases }) => {
    const model = code.transformer(code.unpack({ parameters: bytes(parameters), shapes }), blocks);
    return cases.map(({ inputs, gates }) => {
        const { weights, logits } = model(code.matrix(16, 4, Float32Array.from(inputs)), gates);
        return [[...logits.data], weights.flat().flatMap(head => [...head.data])];
    });
}
"""


def test_forward_pass(page):
    task, net, generator = find_task("digits"), model("digits"), torch.Generator().manual_seed(1)
    batch = task.held_out[torch.randperm(len(task.held_out), generator=generator)[:50]]
    shape = 50, len(net.blocks), net.attentions[0].num_heads
    gates = torch.rand(shape, generator=generator)
    gates[::2] = gates[::2].round()
    gates[0] = 0
    with torch.no_grad():
        logits = net(batch.inputs, None, gates)
    packed = pack(net.state_dict())
    load(page, "transformer.js")
    found = page.evaluate(
        RUN,
        {
            "parameters": base64.b64encode(packed["parameters"]).decode(),
            "shapes": packed["shapes"],
            "blocks": list(net.blocks),
            "cases": [{"inputs": batch.inputs[i].flatten().tolist(), "gates": gates[i].tolist()} for i in range(50)],
        },
    )
    for example, (found_logits, found_weights) in enumerate(found):
        weights = torch.cat([layer[example].flatten() for layer in net.attention_weights])
        torch.testing.assert_close(torch.tensor(found_weights), weights, atol=1e-5, rtol=0)
        torch.testing.assert_close(torch.tensor(found_logits), logits[example].flatten(), atol=1e-5, rtol=1e-5)


def test_heads_of_a_layer(page):
    """Every number of heads that divides 60, lengths from 0 to all."""
    load(page, "attention.js")
    generator = torch.Generator().manual_seed(2)
    for case in range(50):
        num_heads = [1, 2, 3, 4, 5, 6, 10, 12, 20][case % 9]
        num_queries, num_keys = (int(torch.randint(1, 9, (), generator=generator)) for _ in range(2))
        length = case % (num_keys + 1)
        queries, keys = (torch.randn(1, n, 60, generator=generator) for n in (num_queries, num_keys))
        layer = MultiHeadAttention(60, num_heads, query_size=60, key_size=60, value_size=60, bias=case % 2 == 1)
        projections = {"W_q": layer.W_q, "W_k": layer.W_k}
        packed = pack(
            {"queries": queries, "keys": keys}
            | {f"{name}.{part}": tensor for name, p in projections.items() for part, tensor in p.named_parameters()}
        )
        with torch.no_grad():
            layer(queries, keys, keys, torch.tensor([length]))
        found = page.evaluate(
            """({ parameters, shapes, heads, length }) => {
                const t = code.unpack({ parameters: bytes(parameters), shapes });
                const [q, k] = ["W_q", "W_k"].map((name, i) =>
                    code.linear([t.queries, t.keys][i], t[`${name}.weight`], t[`${name}.bias`]));
                return code.attentionWeights(q, k, heads, length).flatMap(head => [...head.data]);
            }""",
            {
                "parameters": base64.b64encode(packed["parameters"]).decode(),
                "shapes": packed["shapes"],
                "heads": num_heads,
                "length": length,
            },
        )
        torch.testing.assert_close(torch.tensor(found).float(), layer.attention_weights.flatten(), atol=1e-5, rtol=0)


RING_MODEL = """
({ parameters, shapes, letters, heads, valid, gates }) => {
    const named = code.unpack({ parameters: bytes(parameters), shapes }), row = Uint8Array.from(letters);
    const { weights, logits } = code.forward(named, row, heads, valid, gates);
    const slopes = code.laid(new Float32Array(Object.values(named).reduce((sum, { data }) => sum + data.length, 0)));
    const loss = code.backward(named, slopes, row, heads);
    const flat = Object.fromEntries(Object.entries(slopes).map(([name, { data }]) => [name, [...data]]));
    return [[...logits.data], weights.flatMap((own) => own.flatMap(({ data }) => [...data])), loss, flat];
}
"""


@pytest.mark.parametrize(("heads", "valid"), [(1, 12), (4, 7), (12, 1)])
def test_the_ring_computes_torchs_numbers_and_autograds_gradients(page, heads, valid):
    torch.manual_seed(heads)
    net = NeighbourModel(heads)
    letters, truth = draw_rows(3, 4, torch.Generator().manual_seed(valid))
    gates, packed = torch.rand(heads), pack(net.state_dict())
    load(page, "ring_model.js")
    asked = {"parameters": base64.b64encode(packed["parameters"]).decode(), "shapes": packed["shapes"]}
    asked |= {"letters": letters.flatten().tolist(), "heads": heads, "valid": valid, "gates": gates.tolist()}
    logits, weights, loss, slopes = page.evaluate(RING_MODEL, asked)
    with torch.no_grad():
        expected = net(letters, torch.full((3,), valid), gates)
    own = net.attention.attention_weights
    torch.testing.assert_close(torch.tensor(logits), expected.flatten(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.tensor(weights).float(), own.flatten(), atol=1e-5, rtol=0)
    by_torch = F.cross_entropy(net(letters).flatten(0, 2), truth.flatten())
    by_torch.backward()
    assert loss == pytest.approx(by_torch.item(), abs=1e-5)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(torch.tensor(slopes[name]), parameter.grad.flatten(), atol=1e-4, rtol=0)


TRAIN_RING = """
([heads, seed, letters]) => new Promise((done) => {
    const kept = [];
    code.train({ numHeads: heads, seed, test: Uint8Array.from(letters) }, ({ step, accuracy, isSliced = false }) => {
        kept.push([step, accuracy, isSliced]);
        if (step === 400) done(kept);
    });
})
"""


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 11))])
def test_four_heads_learn_in_the_browser_what_one_does_not(page, seed):
    load(page, "ring_model.js")
    letters = held_out_rows(4)[0][:64].flatten().tolist()
    four = page.evaluate(TRAIN_RING, [4, seed, letters])
    assert [step for step, _, _ in four] == list(range(0, 401, 4)) and not any(sliced for *_, sliced in four)
    assert four[0][1] < 0.01 and four[-1][1] >= 0.99
    if seed < 3:
        assert page.evaluate(TRAIN_RING, [1, seed, letters])[-1][1] < 0.02


PLACES = """
tags => tags.map(tag => [...['--y', '--x'].map(name => parseFloat(tag.style.getPropertyValue(name))),
    parseInt(tag.ariaLabel)])
"""
IN_ORDER = """
(strips, tags) => strips.map(strip =>
    [...strip.children].map((cell, i) => [+cell.style.getPropertyValue('--at'), tags[i]])
        .sort(([a], [b]) => a - b).map(([, tag]) => tag))
"""
SHOWN = "cells => cells.map(cell => cell.ariaLabel.split(': ').pop())"
LANES = "lanes => lanes.map(lane => [...lane.querySelectorAll('.cells > *')].map(c => c.ariaLabel ?? c.textContent))"


def test_every_way_to_mask(live):
    """What the page shows for lengths from 0 to all, at two levels, is what torch makes of it."""
    scores = 2 * torch.randn(5, generator=torch.Generator().manual_seed(2))
    for length, shift, own in ((2, 0, None), (0, 0, None), (4, -3_000_000, None), (0, -3_000_000, scores),
                               (5, -3_000_000, scores), (3, 0, scores)):  # fmt: skip
        explorer = pictures.MaskExplorer(own, valid_len=length, shift=shift)
        view = live(explorer)
        masked = torch.arange(len(explorer.scores)) >= length
        shifted = explorer.scores.double() + shift
        kept = torch.zeros_like(shifted)
        kept[:length] = shifted[:length].softmax(0)
        expected = [kept, *(shifted.masked_fill(masked, fill).softmax(-1) for fill in (-1e6, -torch.inf))]
        shown = view.section.locator(".lane").evaluate_all(LANES)
        assert [cell.split(" ")[0] for cell in shown[1]] == [
            f"{score:.1f}".replace("-", "−") for score in explorer.scores.tolist()
        ]
        for way, (weights, cells, by_python) in enumerate(
            zip(expected, shown[2:], explorer.ways().values(), strict=True)
        ):
            torch.testing.assert_close(by_python, weights, equal_nan=True)
            hides = masked if way == 0 else torch.zeros_like(masked)
            words = [
                "masked" if hidden else "NaN" if weight != weight else short(weight)
                for weight, hidden in zip(weights.tolist(), hides.tolist(), strict=True)
            ]
            assert cells == words, (length, shift, way)
        verdicts = [explorer.verdict(weights) for weights in explorer.ways().values()]
        assert view.section.locator(".verdict").all_text_contents()[2:] == verdicts


def test_kernel_pooling(live):
    for bandwidth, query in ((0.3, 1.0), (2.0, 5.5), (0.05, 3.3)):
        explorer = pictures.KernelExplorer(*points(), x_range=(-1, 99), bandwidth=bandwidth, query=query)
        (value,), (weights,) = explorer.pool(torch.tensor([query]))
        view = live(explorer)
        view.page.evaluate(NEXT_FRAME)
        text = view.reading()
        assert f"pooled value is {value:.2f}".replace("-", "−") in text
        told = [f"{weight:.2f}" for weight in weights.tolist()]
        place = f"{explorer.x[told.index(max(told))]:.2f}".replace("-", "−")
        place = f"at {place}" if told.count(max(told)) == 1 else f"of {told.count(max(told))} points"
        assert f"largest weight is {max(told)}, {place}" in text and f"{max(told)}, {place}" in explorer.still().alt
        shown = view.section.locator("g.cell").evaluate_all("c => c.map(cell => +cell.style.getPropertyValue('--w'))")
        shades = (weights / bound("kernel_explorer.js", "TOP")).clamp(max=1)
        torch.testing.assert_close(torch.tensor(shown).float(), shades, atol=6e-4, rtol=0)


@pytest.mark.parametrize("axes", ["0, 2, 1, 3", "0, 1, 2, 3", "2, 0, 1, 3", "0, 3, 1, 2", "3, 1, 0, 2"])
def test_numbers_stand_where_torch_puts_them(live, axes):
    """Each step of the stepper, read off the page row by row, is torch's tensor, with wrong axes, too."""
    stepper = pictures.TransposeStepper(num_heads=3, num_tokens=5, head_size=2, axes=axes, follow=1321)
    view = live(stepper)
    for number, step in enumerate(stepper.steps()):
        view.section.locator(".station").nth(number).click()
        view.page.evaluate(NEXT_FRAME)
        tags = view.section.locator(".tag").evaluate_all(PLACES)
        rows = {}
        for y, x, tag in sorted(tags):
            rows.setdefault(y, []).append((x, tag))
        in_groups = step.axes == shape_trace.AXES
        tables = step.tensor.flatten(2) if in_groups else step.tensor.flatten(0, -3)
        shown = sorted(tuple(tag for _, tag in row) for row in rows.values())
        columns = len(shown[0]) // tables.shape[2]
        assert len(shown[0]) == columns * tables.shape[2]
        expected = sorted(
            tuple(torch.cat([tables[t, r] for t in range(first, min(first + columns, len(tables)))]).tolist())
            for first in range(0, len(tables), columns)
            for r in range(tables.shape[1])
        )
        assert shown == expected, number
        place = (step.tensor == 1321).nonzero()[0].tolist()
        assert view.section.locator(".station b").nth(number).text_content() == str(place)
        every = [tag for _, _, tag in tags]  # in the order of their addresses, as the strips' cells are
        start, now, by_the_right_order = view.section.locator(".in-order").evaluate_all(IN_ORDER, every)
        right = shape_trace.trace_heads(stepper.steps()[0].tensor, 3)[number].tensor
        shown_orders = start, now, by_the_right_order
        for order, tensor in zip(shown_orders, (stepper.steps()[0].tensor, step.tensor, right), strict=True):
            assert order == tensor.flatten().tolist(), number
        assert view.section.locator(".order:visible").count() == (2 if axes == "0, 2, 1, 3" else 3)
        before = stepper.steps()[max(number - 1, 0)].tensor
        moved = (before.flatten() != step.tensor.flatten()).sum().item()
        headline = view.section.locator(".looks").inner_text()
        if number in (1, 2, 4, 5) or (number == 3 and not stepper.strangers()):
            assert f"moves {moved} of 60 numbers" in headline
            assert (moved == 0) == (step.operation.endswith("reshape") or axes == "0, 1, 2, 3")
        if number == 3:
            assert view.section.locator(".stranger").count() == stepper.strangers()
            assert not stepper.strangers() or headline.startswith(f"reshape: {stepper.strangers()} of 60 numbers")


def test_slow_motion(live):
    """Weights and output of every query and length, 0 included, and of vectors that are dragged, as torch has them."""
    for query, length in ((0, 4), (1, 0), (2, 3), (1, 1)):
        stepper = motion(query=query, valid_len=length, step=4)
        view = live(stepper)
        if query == 2:  # the query, key 1 and value 2 are moved by hand, to the right or down
            numbers = {name: X.clone() for name, X in zip(stepper.shapes, stepper.tensors, strict=True)}
            for name, row, column, key in (("query", 2, 1, "Down"), ("key", 1, 0, "Right"), ("value", 2, 0, "Right")):
                tip = view.section.get_by_role("slider", name="query" if name == "query" else f"{name} {row}").last
                tip.press(f"Arrow{key}")
                view.page.evaluate(NEXT_FRAME)
                numbers["queries" if name == "query" else f"{name}s"][row, column] += -0.25 if column else 0.25
            tip = view.section.get_by_role("slider", name="key 0")
            box, plane = tip.bounding_box(), view.section.locator(".plane").first.bounding_box()["width"]
            view.page.mouse.move(box["x"] + 12, box["y"] + 12)
            view.page.mouse.down()
            view.page.mouse.move(box["x"] + 12 - 0.8 * plane / 6, box["y"] + 12 - 0.8 * plane / 6)  # one to each side
            view.page.mouse.up()
            view.page.evaluate(NEXT_FRAME)
            numbers["keys"][0] += torch.tensor([-1.0, 1.0])
            stepper.numbers = numbers
        weights, output = stepper.result()
        for name, numbers in (("weight", weights), ("output", output)):
            shown = view.section.locator(f".stage-of.{name} .number").all_text_contents()
            assert shown == [f"{x:.2f}".replace("-0.00", "0.00").replace("-", "−") for x in numbers.tolist()]
        widths = view.section.locator(".bar-of").evaluate_all(
            "bars => bars.map(({ offsetLeft, clientWidth, lastChild: bar }) =>"
            " bar.offsetWidth / (clientWidth - bar.offsetLeft + offsetLeft))"
        )
        assert widths == pytest.approx(weights.tolist(), abs=0.02)


def test_one_number_walks_from_its_product_to_the_output(live):
    """It leads through the places of the key of most weight, and each is told; stopped, it is gone."""
    stepper = motion(valid_len=4, step=4)
    view = live(stepper)
    (query, *_), keys, _ = stepper.tensors
    weights, output = stepper.result()
    key = weights.argmax().item()
    scores = keys @ query
    due = [scores[key], scores[key] / 2**0.5, scores[key] / 2**0.5, weights[key], output[0]]
    seen = view.page.evaluate(WATCH_THE_WALKER)
    assert [text for text, *_ in seen] == [f"{x:.2f}".replace("-", "−") for x in due]
    assert [place for _, *place in seen] == [[name, 0 if name == "output" else key] for name in LANES_OF_A_WALK]
    assert not view.section.locator(".walker").is_visible()


LANES_OF_A_WALK = "score", "scaled", "masked", "weight", "output"
# Plays, and notes in each step the number that walks, the lane in which it is and which number of the lane it covers.
WATCH_THE_WALKER = """
async () => {
    const find = (name) => document.querySelector(`.mha-live ${name}`), seen = new Map(), walker = find('.walker');
    const near = (a, b) => Math.hypot(a.left - b.left, a.top - b.top) < 2;
    find('.player button').click();
    do {
        await new Promise(requestAnimationFrame);
        const box = walker.getBoundingClientRect(), numbers = [...document.querySelectorAll('.stage-of .number')];
        const cell = numbers.find((one) => box.width && near(one.getBoundingClientRect(), box));
        if (!cell) continue;
        const lane = cell.closest('.stage-of'), row = [...lane.querySelectorAll('.number')].indexOf(cell);
        seen.set(find('.player input').value, [walker.textContent, lane.className.split(' ')[1], row]);
    } while (!seen.size || !walker.hidden);
    return [...seen.values()];
}
"""


def read_in_pieces(vectors, sizes, mistake):
    """Rows of weights ("masked", None where there is no key), outputs and cache: one query and one key at a time."""
    queries, keys, values = vectors.double()
    rows, outputs, cache = [], [], []
    for size in sizes:
        old, new = list(cache), list(range(len(cache), len(cache) + size))
        cache = new + old if mistake == "new keys before old ones" else old + new
        for query in new:
            if mistake == "masked only at first" and old:
                sees = set(cache)
            elif mistake == "aligned at the top left":
                sees = {key for place, key in enumerate(cache) if place <= query - new[0]}
            else:
                sees = {key for place, key in enumerate(cache) if place <= query}
            powers = {key: torch.exp(queries[query] @ keys[key] / vectors.shape[2] ** 0.5) for key in sees}
            total = sum(powers.values())
            weights = {key: (power / total).item() for key, power in powers.items()}
            rows.append([weights.get(key, "masked") if key in cache else None for key in range(8)])
            outputs.append(sum(weight * values[key] for key, weight in weights.items()))
    return rows, torch.stack(outputs), cache


CUT = {"one by one": [1] * 8, "the whole at once": [8], "4, 3, 1": [4, 3, 1]}
MISTAKES = ("none", "masked only at first", "aligned at the top left", "new keys before old ones")


@pytest.mark.parametrize("pieces", CUT)
def test_a_text_read_in_pieces_with_every_mistake(live, pieces):
    """Weights, cache, and which outputs are how far off, on the page and in Python, are those of a plain loop."""
    _, right, _ = read_in_pieces(cache_stepper.VECTORS, [8], "none")
    view, stepper = live(pictures.CacheStepper(pieces=pieces)), pictures.CacheStepper()
    view.section.get_by_label("tokens read").press("End")
    for mistake in MISTAKES:
        view.section.get_by_label("mistake").select_option(mistake)
        view.page.evaluate(NEXT_FRAME)
        rows, outputs, cache = read_in_pieces(cache_stepper.VECTORS, CUT[pieces], mistake)
        far = (outputs - right).abs().amax(dim=1)
        words = [
            "not in the cache" if weight is None else weight if weight == "masked" else told(weight)
            for weight in itertools.chain(*rows)
        ]
        assert view.section.locator("svg[role=group] .cell").evaluate_all(SHOWN) == words, mistake
        signs = [f"✗ {told(x)}" if x > 1e-5 else "✓" for x in far.tolist()]
        assert view.section.locator(".sums span").all_text_contents() == signs, mistake
        wrong = sum(
            {key for key in range(8) if isinstance(row[key], float)} != {*range(i + 1)} for i, row in enumerate(rows)
        )
        claim = f"{wrong} of 8 queries attend to the wrong keys" if wrong else "8 of 8 queries attend to the right keys"
        assert claim in view.section.locator(".looks").inner_text().replace("\xa0", " "), mistake
        assert view.section.locator(".slots b.k").all_text_contents() == [f"k{i}" for i in cache], mistake
        stepper.pieces, stepper.mistake, stepper.step = pieces, mistake, 8
        weights, found, kept = stepper.result()
        expected = [{"masked": 0, None: torch.nan}.get(weight, weight) for weight in itertools.chain(*rows)]
        torch.testing.assert_close(weights.flatten(), torch.tensor(expected), equal_nan=True, atol=1e-6, rtol=0)
        torch.testing.assert_close(found.double(), outputs, atol=1e-5, rtol=0)
        assert kept == cache
        still = stepper.still()
        assert [word for word in still.drawing.words if word.startswith(("✗", "✓"))] == signs, mistake
        assert f"wrong keys: {wrong} of 8." in still.alt, mistake


def test_the_menu_of_the_cache_offers_only_the_given_mistakes(live):
    stepper = pictures.CacheStepper(mistakes=["aligned at the top left"], pieces="4, 3, 1", step=7)
    view = live(stepper)
    menu = view.section.get_by_label("mistake")
    assert menu.locator("option").all_text_contents() == ["none", "aligned at the top left"]
    menu.select_option("aligned at the top left")
    view.page.evaluate(NEXT_FRAME)
    assert view.section.locator(".looks b").inner_text().replace("\xa0", " ").startswith("3 of 7 queries attend")


def test_the_slider_of_the_cache_goes_from_piece_to_piece_and_the_work_is_counted(live):
    view = live(pictures.CacheStepper(pieces="4, 3, 1", step=0))
    slider, seen = view.section.get_by_label("tokens read"), []
    for key in ("ArrowRight",) * 3 + ("ArrowLeft",) * 3:
        slider.press(key)
        view.page.evaluate(NEXT_FRAME)
        seen.append((slider.input_value(), *view.section.locator("table td").all_text_contents()[1:]))
    there = [("4", "4", "4", "16", "16"), ("7", "7", "11", "37", "65"), ("8", "8", "19", "45", "129")]
    assert seen == [*there, *there[1::-1], ("0", *"0000")]
    view.section.get_by_label("pieces").select_option("one by one")
    slider.press("End")
    view.page.evaluate(NEXT_FRAME)
    assert view.section.locator("table td").all_text_contents()[1:] == ["8", "36", "36", "204"]


def read_row(tokens, places, W_q, W_k, border, masked, again):
    """Words for the weights of a causal head on one row, and its outputs: one query and one key at a time."""
    ids = [int(masked and i >= border) for i in range(12)]
    X = [tokens[i] + places[i - border if again and i >= border else i] for i in range(12)]
    words, outputs = [], []
    for i in range(12):
        powers = {
            j: torch.exp((W_q @ X[i]) @ (W_k @ X[j]) / len(X[i]) ** 0.5) for j in range(i + 1) if ids[i] == ids[j]
        }
        shares = {j: power / sum(powers.values()) for j, power in powers.items()}
        words += [told(shares[j].item()) if j in shares else "masked" for j in range(12)]
        outputs.append(sum(share * X[j] for j, share in shares.items()))
    return words, torch.stack(outputs)


def test_two_texts_in_one_row_with_every_border(live):
    """Weights and distances from each text alone, on the page and in Python, are those of a plain loop."""
    view = live(pictures.PackedTextsExplorer(border=0))
    python, slider = pictures.PackedTextsExplorer(), view.section.get_by_label("border before token")
    own = [getattr(packed_texts_explorer, name).double() for name in ("TOKENS", "PLACES", "W_Q", "W_K")]
    _, alone = read_row(*own, 5, masked=True, again=True)
    for border in range(13):
        python.border, python.masked, python.positions = border, border % 3 != 2, ("start again", "go on")[border % 2]
        view.section.get_by_label("mask by text").set_checked(python.masked)
        view.section.get_by_label("positions").select_option(python.positions)
        view.page.evaluate(NEXT_FRAME)
        words, outputs = read_row(*own, border, python.masked, python.positions == "start again")
        signs = [f"✗ {told(x)}" if x > 1e-5 else "✓" for x in (outputs - alone).abs().amax(dim=1).tolist()]
        shown = view.section.locator("svg[role=group] .cell").evaluate_all(SHOWN)
        assert [word.removesuffix(", a leak") for word in shown] == words, border
        assert view.section.locator(".sums span").all_text_contents() == signs, border
        assert [word for word in python.still().drawing.words if word.startswith(("✗", "✓"))] == signs, border
        slider.press("ArrowRight")
    view.section.locator("svg[role=group]").click()
    view.page.evaluate(NEXT_FRAME)
    assert slider.input_value() == "6"


def test_places_of_a_cache_in_blocks_in_every_step(live):
    """Contents, tables and counts of the page are Python's, which a test of its own holds to counting."""
    python = pictures.PagedCacheStepper(step=0, row=3)
    view = live(python)
    slider, names = view.section.get_by_role("slider"), "ABCDEFGH"
    for size in (1, 2, 4, 8) if LONG else (2,):
        view.section.get_by_role("button", name=f"blocks of {size}").click()
        slider.press("Home")
        for step in range(18):
            python.block_size, python.step = size, step
            view.page.evaluate(NEXT_FRAME)
            here, held = python.present(), python.contents()
            for grid, own in zip(view.section.locator("svg[role=group]").all(), held, strict=True):
                old = [one is not None and one[0] not in here.values() for one in own]
                due = [f"{names[one[0]]} at position {one[1]}" if one else "empty" for one in own]
                due = [f"old, {words}" if is_old else words for words, is_old in zip(due, old, strict=True)]
                assert grid.locator(".cell").evaluate_all(SHOWN) == due
                shown = ["" if one is None else str(one[1]) if one[0] == here.get(3) else names[one[0]] for one in own]
                assert grid.locator(".cell").all_text_contents() == shown, (size, step)
            rows = view.section.locator(".paged td").all_text_contents()
            assert rows == [" ".join(map(str, python.tables().get(row, []))) for row in range(4)]
            assert view.section.locator(".block.taken").count() == sum(map(len, python.tables().values()))
            assert view.section.locator(".looks").inner_text().startswith(python.still().caption.split(".")[0])
            slider.press("ArrowRight")


def test_pointing_at_a_place_marks_all_places_of_its_text_in_order(live):
    view = live(pictures.PagedCacheStepper())
    grids = view.section.locator("svg[role=group]")
    for grid, cell, row, blocks in ((0, 2, 0, "0, 4, 5"), (1, 21, 0, "0, 4, 5"), (1, 8, 2, "2, 6, 3")):
        grids.nth(grid).locator(".cell").nth(cell).hover()
        view.page.evaluate(NEXT_FRAME)
        for own in grids.all():
            marked = own.locator(".cell.read").all_text_contents()
            assert sorted(map(int, marked)) == list(range(len(marked)))
        small = view.section.locator(".looks small").inner_text()
        assert f"in row {row} attends to {len(marked)} places, in blocks {blocks}" in small
    view.section.get_by_role("button", name="row 1").click()
    view.page.mouse.move(0, 0)
    view.page.evaluate(NEXT_FRAME)
    assert view.section.locator(".looks small").inner_text() == "F in row 1 attends to 2 places, in block 1"


@pytest.mark.parametrize("head_size", [1, 2, 3])
def test_a_head_made_by_hand(live, head_size):
    """Numbers moved and typed, swapped matrices, and the start again: queries, keys and weights are torch's."""
    X, W_q, W_k, words, features = words_with_features(head_size, seed=head_size)
    picture = pictures.HandMadeHead(X, W_q, W_k, words, features)
    view = live(picture)

    def plain(row):
        return ", ".join(f"{x:g}".replace("-", "−") for x in row.tolist())

    def check(W_q, W_k):
        view.page.evaluate(NEXT_FRAME)
        queries, keys = X @ W_q.T, X @ W_k.T
        weights = (queries @ keys.T / head_size**0.5).softmax(dim=1)
        shown = view.section.locator("svg[role=group] .cell").evaluate_all(SHOWN)
        assert shown == [f"{weight:.2f}" for weight in weights.flatten().tolist()]
        vectors = view.section.locator(".figures td:not(:empty)").all_text_contents()
        assert vectors == [plain(own[i]) for i in range(5) for own in (queries, keys)]
        numbers = view.section.locator(".by-hand .number").all_text_contents()
        assert numbers == [plain(x[None]) if x else "·" for x in torch.cat([W_q, W_k]).flatten()]
        picture.numbers = {"W_q": W_q, "W_k": W_k}
        torch.testing.assert_close(picture.result()[2], weights)
        assert f"{words[1]}: {plain(queries[1])}" in picture.still().drawing.words

    check(W_q, W_k)
    rows, chosen = {"W_q": W_q.clone(), "W_k": W_k.clone()}, view.section.get_by_label("chosen number")
    last = head_size - 1
    for name, row, column, key in [("W_q", last, 3, "ArrowRight"), ("W_k", 0, 5, "ArrowLeft"), ("W_k", last, 7, "End")]:
        own = f"{name} {row}, {features[column]}:" if head_size > 1 else f"{name}, {features[column]}:"
        view.section.locator(f'.number[aria-label^="{own}"]').click()
        view.page.evaluate(NEXT_FRAME)  # the slider shows the chosen number
        chosen.press(key)
        rows[name][row, column] = {"End": 20}.get(key, rows[name][row, column] + (1 if key == "ArrowRight" else -1))
        check(rows["W_q"], rows["W_k"])
    for key, value in (("7", 7), ("-", -7), ("0", 0)):
        view.section.locator(".by-hand .number").nth(8 * last + 3).press(key)
        rows["W_q"][last, 3] = value
        check(rows["W_q"], rows["W_k"])
    view.section.get_by_role("button", name="swap").click()
    check(rows["W_k"], rows["W_q"])
    view.section.get_by_role("button", name="start again").click()
    check(W_q, W_k)


def test_what_heads_are_worth_in_any_company_and_what_measures_keep(live):
    """Switches, slider and buttons lead to the sets that a plain search over all of them finds; so does Python."""
    values, measures = scores_and_measures(seed=3)
    heads = [(layer, head) for layer in range(2) for head in range(3)]
    score = {
        frozenset(head for i, head in enumerate(heads) if number >> i & 1): value
        for number, value in enumerate(values.tolist())
    }
    picture = pictures.HeadSwitches(values, measures)
    assert picture.cut == [list(min(heads, key=lambda head: measures["loud"][head]))], "five are on at first"
    picture.cut = []
    view, all_heads, on = live(picture), frozenset(heads), frozenset(heads)

    def signed(number):
        return f"{number:.2f}".replace("-0.00", "0.00").replace("-", "−")

    def check():
        view.page.evaluate(NEXT_FRAME)
        worth = {head: score[on | {head}] - score[on - {head}] for head in heads}
        assert view.section.locator(".card b").all_text_contents() == [signed(worth[head]) for head in heads]
        assert view.section.locator(".looks b").text_content() == f"{score[on]:.2f} right"
        framed = view.section.locator(".card").evaluate_all("all => all.map(one => one.matches('.pointed'))")
        cheapest = min(sorted(on), key=lambda head: round(worth[head], 2), default=None)
        assert framed == [head == cheapest for head in heads]
        same = [own for own in score if len(own) == len(on)]
        kept = {name: sorted(heads, key=lambda head: -own[head])[: len(on)] for name, own in measures.items()}
        expected = [max(score[own] for own in same), *(score[frozenset(own)] for own in kept.values())]
        expected += [min(score[own] for own in same), sum(score[own] for own in same) / len(same)]
        shown = view.section.locator(".kept-bars .next-bar > span:last-child").all_text_contents()
        assert shown == [f"{value:.2f}" for value in expected]
        picture.cut = [head for head in heads if head not in on]
        named = re.findall(r"layer (\d), head (\d)", picture.still().alt)
        assert {(int(layer), int(head)) for layer, head in named} == (on if 0 < len(on) < 6 else set())
        words = picture.still().drawing.words
        beside_all = [score[all_heads] - score[all_heads - {head}] for head in heads]
        pairs = zip(heads, beside_all, strict=True)
        assert [word for word in words if "(−" in word or "(0" in word] == [
            f"{signed(worth[head])} ({signed(alone)})" for head, alone in pairs
        ]
        assert words[-2 * len(expected) + 1 :: 2] == [f"{value:.2f}" for value in expected]
        return cheapest

    for head in [(0, 1), (1, 2), (0, 1), (0, 0)]:
        view.section.get_by_role("switch").nth(3 * head[0] + head[1]).click()
        on ^= {head}
        cheapest = check()
    view.section.get_by_role("button", name="cut the cheapest").click()
    on -= {cheapest}
    check()
    view.section.get_by_role("button", name="sharp").click()  # chooses by what the slider keeps heads, too
    for key in ("Home", "ArrowRight", "ArrowRight", "End", "ArrowLeft"):
        view.section.get_by_label("heads kept").press(key)
        size = {"Home": 0, "End": 6}.get(key, len(on) + (1 if key == "ArrowRight" else -1))
        on = frozenset(sorted(heads, key=lambda head: -measures["sharp"][head])[:size])
        check()
    view.section.get_by_label("keep by").select_option("the worst set")
    view.section.get_by_label("heads kept").press("ArrowLeft")
    on = min((own for own in score if len(own) == 4), key=score.get)
    check()


def rounded(model):
    """A model with the numbers that travel to the page, which have half precision."""
    model.load_state_dict({name: tensor.half() for name, tensor in model.state_dict().items()})
    return model


def test_a_model_being_born_computes_what_torch_computes(page):
    """Weights, logits and what can be foretold, of random rows without random heads, from the numbers that travel."""
    explorer, generator, cases, expected = pictures.BirthExplorer(born()), torch.Generator().manual_seed(0), [], []
    for i in range(9):
        step, letters = i % 3, 5 if i % 2 else 64
        row, gates = torch.randint(letters, (33,), generator=generator), torch.rand(2, 2, generator=generator).round()
        model = rounded(explorer.run.model_at(explorer.steps[step]))
        with torch.no_grad():
            expected.append((model(row[None, :-1], gates)[0], model.attention_weights[:, 0]))
        cases.append({"step": step, "row": row.tolist(), "gates": gates.tolist()})
    load(page, "attention_only.js")
    data = explorer.data | {"parameters": base64.b64encode(explorer.data["parameters"]).decode()}
    run = """({ data, cases }) => {
        const tensors = code.unpack({ ...data, parameters: bytes(data.parameters) });
        const run = code.attentionOnly(tensors, data.steps.length, data.base);
        return cases.map(({ step, row, gates }) => {
            const { weights, logits } = run(step, row.slice(0, -1), gates);
            return [[...logits.data], weights.flat().flatMap(head => [...head.data]), code.foretold(row)];
        });
    }"""
    found = page.evaluate(run, {"data": data, "cases": cases})
    for (own_logits, own_weights, places), (logits, weights), case in zip(found, expected, cases, strict=True):
        torch.testing.assert_close(torch.tensor(own_logits), logits.flatten(), rtol=0, atol=1e-4)
        torch.testing.assert_close(torch.tensor(own_weights), weights.flatten(), rtol=0, atol=1e-5)
        after, known = {}, []  # letter -> the one that came after it last; where that came again
        for i, (letter, next_one) in enumerate(itertools.pairwise(case["row"]), start=1):
            if after.get(letter) == next_one:
                known.append(i)
            after[letter] = next_one
        assert places == known
        assert birth_explorer.foretold("".join(birth_explorer.ALPHABET[letter] for letter in case["row"])) == known
    assert sum(len(places) for _, _, places in found) > 10


def test_half_precision_is_read_to_the_last_bit(page):
    numbers = torch.cat(
        [
            torch.randn(500, generator=torch.Generator().manual_seed(0)),
            torch.tensor([0.0, -0.0, 6e-8, -3e-5, 6.1e-5, 65504.0]),
        ]
    ).reshape(-1, 2)
    load(page, "attention.js")
    packed = pack({"numbers": numbers}, halves=True)
    sent = packed | {"parameters": base64.b64encode(packed["parameters"]).decode()}
    read = "sent => [...code.unpack({ ...sent, parameters: bytes(sent.parameters) }).numbers.data]"
    assert page.evaluate(read, sent) == numbers.half().float().flatten().tolist()


def test_stepping_cutting_and_typing_show_the_loss_that_torch_finds(live):
    view, run, row = live(pictures.BirthExplorer(born())), born(), torch.arange(11).repeat(3)
    view.section.locator(".letters button").first.focus()
    view.page.keyboard.type("abcdefghijk" * 3)
    for step, cut in ((2, []), (1, [(1, 0)]), (0, [(0, 0), (1, 1)])):
        view.section.get_by_label("training step").fill(str(step))
        switches = [view.section.get_by_role("switch", name=f"layer {layer}, head {head}") for layer, head in cut]
        for switch in switches:
            switch.click()
        view.looks()
        model = rounded(run.model_at(run.steps[step]))
        with torch.no_grad():
            logits = model(row[None, :-1], model.all_but(*cut))[0]
        losses = F.cross_entropy(logits, row[1:], reduction="none")[11:]
        right = (logits.argmax(dim=-1) == row[1:])[11:].sum().item()
        shown = view.section.locator(".looks").text_content()
        assert f"Step {run.steps[step]}:" in shown and f"{right} of 21" in shown
        legend = view.section.locator(".keys .gated").text_content()
        assert float(legend.split()[-1]) == pytest.approx(losses.mean().item(), abs=0.006)
        for switch in switches:
            switch.click()
    view.section.locator(".letters button").nth(11).focus()
    view.page.keyboard.type("lmnopqrstuvwxyzABCDEFG")
    view.looks()
    assert "no piece of this row is repeated" in view.section.locator(".looks").text_content()
    for _ in range(3):
        view.section.get_by_role("button", name="new row").click()
        view.looks()
        shown, drawn = view.section.locator(".letters .word"), view.section.locator(".letters .said:is(.right, .wrong)")
        count = len(set(shown.all_text_contents()))
        assert 33 - 14 <= count <= 33 - 10, "a piece of 10 to 14 letters comes again, and all others differ"
        assert drawn.count() == 33 - count - 1, "all letters of it but the first can be foretold"


def test_the_maps_of_births_show_the_weights_and_a_click_finds_its_letter(live):
    explorer = pictures.BirthExplorer(born(), step=2, cut=[(0, 1)])
    view, (_, _, weights) = live(explorer), explorer.read([(0, 1)])
    paths = "map => [...map.querySelectorAll('path.shade')].map(path => path.getAttribute('d'))"
    for place, expected in enumerate(weights.flatten(0, 1)):
        found = torch.zeros(32, 32)
        for level, squares in enumerate(view.section.locator(".card .map").nth(place).evaluate(paths), start=1):
            for x, y in re.findall(r"M(\d+) (\d+)h1v1h-1z", squares):
                found[int(y), int(x)] = level / 40
        torch.testing.assert_close(found, expected, rtol=0, atol=1 / 80 + 1e-4)
    box = view.section.locator(".card .map").nth(2).bounding_box()
    view.page.mouse.move(box["x"] + box["width"] * 5.5 / 32, box["y"] + box["height"] * 20.5 / 32)
    assert f"layer 1, head 0 puts a weight, {weights[1, 0, 20, 5]:.2f}, on {explorer.letters[5]} at 5" in view.reading()
    view.page.mouse.down()
    view.page.mouse.up()
    view.page.mouse.move(0, 0)
    assert f"From {explorer.letters[20]} at 20, layer 1, head 0 puts most weight" in view.reading()
