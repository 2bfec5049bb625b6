"""What the tests of the widgets share: one of each, ways to move its controls, and a record of what it paints."""

import random
from dataclasses import dataclass, field

import ipywidgets
import numpy as np
import torch

from mha_lib import widgets
from mha_lib.models.tasks import TASKS, to_images
from mha_lib.widgets import heads_picture, heat_map
from mha_lib.widgets.sheet import Sheet

NUM_EXAMPLES = 3


def random_weights(num_heads, num_queries, num_keys, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(NUM_EXAMPLES, num_heads, num_queries, num_keys, generator=generator)
    return torch.softmax(scores, dim=-1)


# Self-attention and cross-attention, with unequal numbers of heads, queries and keys.
LAYERS = {"encoder": random_weights(3, 6, 6, seed=0), "cross": random_weights(5, 4, 6, seed=1)}
UNTRAINED = [random_weights(3, 6, 6, seed=2), random_weights(5, 4, 6, seed=3)]
LENGTHS = [torch.tensor([6, 4, 2]), torch.tensor([[6, 5, 4, 3], [1, 2, 3, 4], [0, 6, 0, 6]])]


def token_names(layer, example):
    """Names that tell where they belong: q0, k1, … with layer and example."""
    num_queries, num_keys = list(LAYERS.values())[layer].shape[2:]
    return tuple(
        [f"{letter}{number}.{layer}{example}" for number in range(count)]
        for letter, count in (("q", num_queries), ("k", num_keys))
    )


def digits_model(seed=0):
    """A digits model that has learned nothing: its heads look about, which is all that these tests need."""
    torch.manual_seed(seed)
    return TASKS["digits"].model().eval()


def training_points():
    generator = torch.Generator().manual_seed(0)
    x = 5 * torch.rand(30, generator=generator)
    return x, torch.sin(2 * x) + x + 0.3 * torch.randn(30, generator=generator)


def some_digits():
    batch = TASKS["digits"].held_out[:NUM_EXAMPLES]
    return to_images(batch.inputs), batch.targets


def image_explorer():
    images, targets = some_digits()
    return widgets.image_explorer(digits_model(), images, targets=targets)


PRESET = torch.tensor([[1, 0, 1, 0, 1, 0], [0, 0, 1, 1, 1, 1]])

GALLERY = {
    "kernel pooling": lambda: widgets.kernel_pooling(*training_points(), learned_bandwidth=0.4),
    "kernel pooling, one": lambda: widgets.kernel_pooling(*training_points()),
    "masks": widgets.mask_explorer,
    "stepper": widgets.transpose_stepper,
    "heads": lambda: widgets.head_explorer(LAYERS, token_names, valid_lens=LENGTHS, untrained=UNTRAINED),
    "layer": widgets.layer_explorer,
    "images": image_explorer,
    "board": lambda: widgets.head_board(digits_model(), TASKS["digits"], presets={"some": PRESET}),
}


def settings(control):
    """All values that a control can take (of a continuous one, 15 from end to end)."""
    if isinstance(control, ipywidgets.Checkbox):
        return [False, True]
    if isinstance(control, ipywidgets.IntSlider):
        return list(range(control.min, control.max + 1))
    if isinstance(control, ipywidgets.FloatLogSlider):
        return [control.base**exponent for exponent in np.linspace(control.min, control.max, 15).tolist()]
    if isinstance(control, ipywidgets.FloatSlider):
        return np.linspace(control.min, control.max, 15).tolist()
    return list(control.options)


def buttons(widget):
    """All buttons inside a widget."""
    if isinstance(widget, ipywidgets.Button):
        return [widget]
    return [button for child in getattr(widget, "children", ()) for button in buttons(child)]


def random_move(explorer, chooser: random.Random):
    """Do what a user could do now: press a button, or bring a control to one of its values."""
    pressable = [button for button in buttons(explorer) if not button.disabled]
    if pressable and chooser.random() < 0.2:
        return chooser.choice(pressable).click()
    control = chooser.choice([control for control in explorer.controls.values() if not control.disabled])
    control.value = chooser.choice(settings(control))


@dataclass
class Log:
    """What was painted on a sheet.

    Attributes:
        texts: (x, y, text, anchor) of every text.
        pictures: (left, top, pixels) of everything that was pasted, before anything else was painted over it.
    """

    texts: list = field(default_factory=list)
    pictures: list = field(default_factory=list)

    def places(self, text):
        """Where a text stands."""
        return [(x, y) for x, y, written, _ in self.texts if written == text]

    def below(self, title):
        """The pixels of the pictures that stand right below a title, left edge on left edge."""
        return [
            pixels
            for left, top, pixels in self.pictures
            for x, y in self.places(title)
            if x == left and 0 < top - y <= 20
        ]

    def matching(self, pattern):
        """All texts that match a regular expression, in the order in which they were written."""
        return [text for _, _, text, _ in self.texts if pattern.fullmatch(text)]


def record(monkeypatch):
    """Let every sheet keep a ``log``, and fail if a text does not fit on it."""
    write, paste, copy = Sheet.write, Sheet.paste, Sheet.copy

    def recording_write(self, x, y, text, *, anchor="la", size=12, upwards=False, **rest):
        log_of(self).texts.append((x, y, text, anchor))
        box = heat_map.lettering(text, size).shape[:: -1 if not upwards else 1]  # width, height
        for place, letter, length, room in zip((x, y), anchor, box, self.pixels.shape[1::-1], strict=True):
            start = place - {"l": 0, "m": 0.5, "r": 1, "a": 0, "d": 1}[letter] * length
            assert -1 <= start and start + length <= room + 1, f"{text!r} is cut off at the edge"
        write(self, x, y, text, anchor=anchor, size=size, upwards=upwards, **rest)

    def recording_paste(self, left, top, pixels):
        log_of(self).pictures.append((left, top, pixels.copy()))
        paste(self, left, top, pixels)

    def recording_copy(self):
        sheet = copy(self)
        sheet.log = Log(list(log_of(self).texts), list(log_of(self).pictures))
        return sheet

    heads_picture.plan_of.cache_clear()  # what was painted before is on no record
    monkeypatch.setattr(Sheet, "copy", recording_copy)
    monkeypatch.setattr(Sheet, "write", recording_write)
    monkeypatch.setattr(Sheet, "paste", recording_paste)


def log_of(sheet):
    return sheet.__dict__.setdefault("log", Log())
