"""The drawings: readable everywhere, self-contained, and their numbers are right."""

import base64
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from mha_course.models import find_task
from mha_course.pictures import Drawing

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
DIAGRAMS = sorted((ROOT / "mha_course" / "pictures" / "drawings").glob("*.svg"))
every_diagram = pytest.mark.parametrize("path", DIAGRAMS, ids=lambda path: path.stem)


def root(name):
    (path,) = (path for path in DIAGRAMS if path.stem == name)
    return ET.parse(path).getroot()


def by_id(svg, identifier):
    return svg.find(f".//*[@id='{identifier}']")


def numbers(group):
    """All texts of class "number", in drawing order, as floats (the minus sign is U+2212)."""
    texts = (text for text in group.iter(f"{SVG}text") if "number" in text.get("class", "").split())
    return [float(text.text.replace("−", "-").replace("∞", "inf")) for text in texts]


@every_diagram
def test_is_said_in_words_and_stands_alone(path):
    """A title and a description for screen readers; nothing is fetched, nothing runs."""
    text = path.read_text(encoding="utf-8")
    svg = ET.fromstring(text)
    title, desc = svg[0], svg[1]
    assert (title.tag, desc.tag) == (f"{SVG}title", f"{SVG}desc")
    assert len(title.text) >= 10 and len(desc.text) >= 100
    assert svg.get("role") == "img" and svg.get("aria-labelledby").split() == [title.get("id"), desc.get("id")]
    assert text.count("http") == 1 and "@import" not in text, "the only address is the SVG namespace"
    assert not {f"{SVG}{tag}" for tag in ("script", "image", "foreignObject")} & {element.tag for element in svg.iter()}


@every_diagram
def test_is_read_at_any_size_and_in_the_dark(path):
    """Text has 12 pixels at a width of 800; an opaque panel keeps it readable on any page, in each mode that it has."""
    text = path.read_text(encoding="utf-8")
    sizes = [float(size) for size in re.findall(r"font(?:-size)?[:=]\s*\"?([\d.]+)", text)]
    _, _, width, _ = map(float, ET.fromstring(text).get("viewBox").split())
    assert sizes and min(sizes) * 800 / width >= 12
    assert text.count(".panel {") == 1 + text.count("@media (prefers-color-scheme: dark)")


def test_multi_head_attention_heatmaps_differ_and_their_rows_sum_to_1():
    svg = root("multi_head_attention")
    heatmaps = []
    for head in range(3):
        cells = by_id(svg, f"multi-head-attention-head-{head}").findall(f"{SVG}rect[@fill-opacity]")
        heatmaps.append(np.array([float(cell.get("fill-opacity")) for cell in cells]).reshape(4, 4))
    np.testing.assert_allclose(np.sum(heatmaps, axis=-1), 1)
    assert not any(np.array_equal(heatmaps[i], heatmaps[j]) for i, j in [(0, 1), (0, 2), (1, 2)])


def test_masking_numbers():
    svg = root("masking")
    scores = np.reshape(numbers(by_id(svg, "masking-scores")), (3, 4))
    mask = numbers(by_id(svg, "masking-mask"))
    valid_lens, masked = np.array(mask[:3]), np.reshape(mask[3:], (3, 4))
    weights_and_sum = np.reshape(numbers(by_id(svg, "masking-weights")), (3, 5))
    values = np.reshape(numbers(by_id(svg, "masking-values")), (4, 2))
    output = np.reshape(numbers(by_id(svg, "masking-output")), (3, 2))

    valid = np.arange(4) < valid_lens[:, None]
    np.testing.assert_array_equal(masked, np.where(valid, scores, -np.inf))
    exponentials = np.exp(scores) * valid
    weights = exponentials / np.maximum(exponentials.sum(axis=1, keepdims=True), 1e-9)
    np.testing.assert_array_equal(weights_and_sum[:, :4], weights.round(2))
    np.testing.assert_array_equal(weights_and_sum[:, :4].sum(axis=1).round(9), weights_and_sum[:, 4])
    np.testing.assert_array_equal(weights_and_sum[:, 4], [1, 1, 0])
    np.testing.assert_array_equal(output, (weights @ values).round(2))
    for step in ("mask", "weights"):
        assert len(by_id(svg, f"masking-{step}").findall(f"{SVG}rect[@class='masked']")) == (~valid).sum()


def test_attention_pooling_numbers():
    svg = root("attention_pooling")
    keys_group = by_id(svg, "attention-pooling-keys")
    keys = np.array(numbers(keys_group))
    query = float(re.search(r"q = ([\d.]+)", "".join(keys_group.itertext()))[1])
    weights = np.array(numbers(by_id(svg, "attention-pooling-weights")))
    equation = "".join(by_id(svg, "attention-pooling-sum").itertext())
    terms = np.array(re.findall(r"([\d.]+) · ([\d.]+)", equation), dtype=float)
    answer = float(re.search(r"= ([\d.]+)\s*$", equation)[1])

    kernel = np.exp(-((query - keys) ** 2) / 2)
    exact = kernel / kernel.sum()
    np.testing.assert_array_equal(weights, exact.round(2))
    assert weights.sum().round(9) == 1
    np.testing.assert_array_equal(terms[:, 0], weights)
    assert answer == (exact @ terms[:, 1]).round(2)


def test_the_cards_of_the_lookups_are_the_first_row_that_is_held_out_with_its_answers():
    svg, task = root("lookups_row"), find_task("lookups")
    shown = [[int(part.text) for part in by_id(svg, f"lookups-row-{i}").iter() if "number" in (part.get("class") or "")]
             for i in range(12)]  # fmt: skip
    assert [[value, label, wants] for label, value, wants in shown] == task.fields(task.held_out, 0)
    answers = [text for text in svg.findall(f"{SVG}text") if "number" in text.get("class", "").split()]
    questions = [text.text.partition(",")[0] for text in svg.findall(f"{SVG}text[@class='small']")]
    told = dict(zip(questions, (int(text.text) for text in answers), strict=True))
    assert told == dict(zip(task.questions, task.held_out.targets[0, 7].tolist(), strict=True))
    centres = [float(by_id(svg, f"lookups-row-{i}")[1].get("x")) for i in range(12)]
    ends = [float(re.search(r"H([\d.]+)", path.get("d"))[1]) for path in svg.findall(f"{SVG}path[@marker-end]")]
    assert [centres.index(end) for end in ends] == [0, 3, 4, 6]  # first, wanted label, 3 back, 1 back


def test_a_notebook_shows_the_drawing_itself_with_its_own_words():
    shown = Drawing("attention_pooling", "Follow <one> weight.")
    html = shown._repr_html_()
    assert ET.fromstring(base64.b64decode(re.search(r"base64,([^\"]+)", html)[1])).tag == f"{SVG}svg"
    assert root("attention_pooling")[1].text in repr(shown) and f'alt="{shown}"' in html
    assert "Follow &lt;one&gt; weight." in html
    with pytest.raises(ValueError, match=r"name must be one of attention_pooling.*got 'no'"):
        Drawing("no")
