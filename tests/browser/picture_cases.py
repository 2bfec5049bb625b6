"""One of every live picture, and what tests do with it on a page without a kernel."""

import functools
import math
import re
from decimal import ROUND_HALF_UP, Decimal

import torch
from axe_playwright_python.sync_playwright import Axe
from layer_of_lookups import layer_of_lookups

from mha_course import models, pictures
from mha_course.models.tasks import find_task
from mha_course.pictures.live import bundle
from tools.lab_page import PATIENCE, Heard


@functools.cache
def model(name):
    """An untrained model of a task: what a picture computes does not depend on training."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return find_task(name).model().eval()


def points():
    """Twelve keys and values."""
    x = torch.linspace(0, 6, 12) ** 1.2
    return x, torch.sin(x) + 0.1 * x.round()


def training_run():
    """Five steps of three heads that grow sharper."""
    scores = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))
    return torch.stack([(step * scores).softmax(-1) for step in range(5)])


@functools.cache
def born():
    """Three steps of two layers of two heads, made to count more than eighty steps of training would."""
    run = models.train_on_repeats(seed=3, keep=range(0, 81, 40), progress=False)
    for state in run.states:
        state |= {name: 8 * value for name, value in state.items() if "W_o" in name}
    return run


def scores_and_measures(seed=0):
    """A score for every set of two layers of three heads, made of nothing but chance, and two measures."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(64, generator=generator, dtype=torch.float64)
    return values, {name: torch.rand(2, 3, generator=generator) for name in ("loud", "sharp")}


def words_with_features(head_size, seed=0):
    """Vectors of five words with eight features and the matrices of a head: whole numbers, many of them 0."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(5, 8, generator=generator).round()
    W_q, W_k = torch.randint(-2, 3, (2, head_size, 8), generator=generator).float()
    return X, W_q, W_k, list("abcde"), [f"feature {i}" for i in range(8)]


def who_thanked_whom():
    """The head of notebook 00 that asks for subject and object at once."""
    female, person, pronoun, verb, subject, object_ = torch.eye(6)
    X = torch.stack([female + person + subject, verb, person + object_, pronoun, 0 * verb])
    ask_both, W_role = torch.stack([6 * verb, 6 * verb]), torch.stack([subject, object_])
    names = ["female", "person", "pronoun", "verb", "subject", "object"]
    return pictures.HandMadeHead(X, ask_both, W_role, ["queen", "thanked", "waiter", "she", "late"], names)


def motion(**first):
    """Three queries, four keys and their values, of two features each, so that there are arrows for all."""
    queries = torch.tensor([[1.0, 2.0], [-0.5, 1.5], [2.0, -1.25]])
    keys = torch.tensor([[2.0, 1.0], [-0.5, -1.5], [-2.0, 0.5], [0.75, -2.0]])
    values = torch.tensor([[2.0, 0.5], [-1.0, 2.0], [-2.0, -1.0], [1.0, -2.0]])
    return pictures.DotProductStepper(queries, keys, values, **first)


CASES = {
    "digits": lambda: pictures.HeadExplorer(model("digits"), example=3, query=6),
    "layer": lambda: layer_of_lookups(head=1, cell=7),
    "ring": lambda: pictures.RingExplorer(num_heads=3, valid_lens=9),
    "ring of a model": lambda: pictures.RingExplorer(models.ring_lab(), off=[6]),
    "transpose": lambda: pictures.TransposeStepper(num_heads=3, step=2),
    "masks": lambda: pictures.MaskExplorer(valid_len=2),
    "kernel": lambda: pictures.KernelExplorer(*points(), truth=torch.sin, x_unit="h", y_unit="m"),
    "slow motion": lambda: motion(query=1, valid_len=3, step=4),
    "cache": lambda: pictures.CacheStepper(pieces="4, 3, 1", mistake="new keys before old ones", step=7),
    "packed texts": lambda: pictures.PackedTextsExplorer(border=6),
    "paged cache": lambda: pictures.PagedCacheStepper(step=12, block_size=2, row=1),
    "sentence": lambda: pictures.SentenceExplorer(query=9, layer=1, head=3),
    "next word": lambda: pictures.NextWordExplorer(cut=[157]),
    "births": lambda: pictures.BirthExplorer(born(), step=1, head=1, query=20),
    "hand-made head": who_thanked_whom,
    "head switches": lambda: pictures.HeadSwitches(*scores_and_measures(), cut=[(0, 2), (1, 0), (1, 1)]),
    "scrubber": lambda: pictures.TrainingScrubber(training_run(), range(0, 50, 10), losses=[3, 2, 1, 0.5, 0.4], step=2),
}

# All attributes and texts that a reader could notice, but for the line that speaks a moment later and the score, which
# goes on counting, as a number: what looks alike has the same. (The text itself would be long to send.)
LOOKS = """
() => {
    const section = document.querySelector('section.mha-live');
    const copy = section.cloneNode(true);
    copy.querySelectorAll('.spoken, .test, .hint, .room').forEach(node => node.remove());
    copy.querySelectorAll('[tabindex]').forEach(node => node.removeAttribute('tabindex'));
    copy.querySelectorAll('[data-lm-suppress-shortcuts]')
        .forEach(node => node.removeAttribute('data-lm-suppress-shortcuts'));
    const inputs = [...section.querySelectorAll('input, select')].map(node => node.checked + node.value);
    const text = copy.outerHTML + inputs;
    window.seen ??= new Map();
    return seen.get(text) ?? (seen.set(text, seen.size), seen.size - 1);
}
"""
NEXT_FRAME = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))"

# The same number, when nothing is searched for any more.
LOOKS_AT_LAST = f"""
async patience => {{
    const end = performance.now() + 1000 * patience;
    await ({NEXT_FRAME})();
    while (document.querySelector('section.mha-live [aria-busy]')) {{
        if (performance.now() > end) throw new Error('the picture is still busy');
        await new Promise(requestAnimationFrame);
    }}
    return ({LOOKS})();
}}
"""

# Focuses a control, if it is there and does not lead to where the picture is already; says what kind it is and its
# name, or null after the last one.
FOCUS = """
number => {
    const node = document.querySelectorAll('.mha-live :is(input, select, button)')[number];
    if (!node) return null;
    if (node.disabled || !node.checkVisibility() || node.ariaPressed === 'true') return ['cannot move'];
    node.focus();
    return [node.type, node.ariaLabel ?? node.textContent];
}
"""
KEYS = {"range": ("ArrowRight", "ArrowLeft"), "checkbox": ("Space",), "select-one": ("ArrowDown", "ArrowUp")}


def moved_and_idle(evaluate, press, looks):
    """The controls of a picture that a key of theirs moves, and those that none moves, by their names.

    Args:
        evaluate: runs a JavaScript function in the page, as ``evaluate(function)`` or ``evaluate(function, argument)``.
        press: presses a key of this name.
        looks: a value that is the same for what looks the same.
    """
    found, seen, number = {True: [], False: []}, looks(), 0

    def moves(key):
        nonlocal seen
        before = seen
        press(key)
        seen = looks()
        return seen != before

    while control := evaluate(FOCUS, number):  # not a list: a control may take others away
        kind, *name = control
        if name:
            found[any(map(moves, KEYS.get(kind, ("Enter",))))] += name
        number += 1
    return found[True], found[False]


LOAD = """
async text => {
    window.code = await import(URL.createObjectURL(new Blob([text], { type: 'text/javascript' })));
    window.bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
}
"""


def load(page, *modules):
    """Make all functions of modules and of those that they import callable as ``code.name``."""
    text = re.sub(r"^export ", "", "\n".join(map(bundle, modules)), flags=re.MULTILINE)
    names = re.findall(r"^(?:function\*?|const|class) (\w+)", text, re.MULTILINE)
    page.evaluate(LOAD, f"{text}\nexport {{ {', '.join(names)} }};")


class LivePage:
    """A picture's saved page in ``page`` of Chromium, with its faults."""

    def __init__(self, page, folder, picture, *, width=1280, scheme="light"):
        self.path = pictures.save_html(picture, folder / "picture.html")
        self.page, self.heard = page, Heard(page)
        page.set_default_timeout(1000 * PATIENCE)
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto(self.path.as_uri())
        self.section = page.locator("section.mha-live")
        self.section.wait_for()

    def looks(self):
        """A number for what a reader sees when nothing is searched for any more: the same for the same."""
        return self.page.evaluate(LOOKS_AT_LAST, PATIENCE)

    def reading(self):
        """The line that reads the picture."""
        self.page.evaluate(NEXT_FRAME)
        return self.section.locator(".reading").text_content()


def violations(page, context, **options):
    """The rules of axe that parts of a page break, each with the first place; what passes is not collected."""
    found = Axe().run(page, context=context, options={"resultTypes": ["violations"], **options}).response["violations"]
    return [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found]


def told(x, digits=2):
    """A number as text, a half rounded away from 0."""
    if not math.isfinite(x):
        return "NaN" if x != x else "∞" if x > 0 else "−∞"
    text = str(Decimal(str(round(x, digits + 3))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")
