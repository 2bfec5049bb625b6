"""Switch the heads of a trained model off and on, and see what it can still do."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from ipywidgets import Button, Checkbox
from torch import Tensor

from mha_lib.models.tasks import Batch, Digits, Task, to_images
from mha_lib.models.transformer import Transformer
from mha_lib.widgets.explorer import Explorer
from mha_lib.widgets.sheet import Sheet, coloured, enlarged

WIDTH, SQUARE, BAR, LINE = 840, 32, 250, 32
ON, SHARE, WITH_ALL = "#0072B2", "#56B4E9", "#D55E00"
LARGEST_LOSS = 4.0  # nats, where the bar of the loss ends; guessing among ten costs 2.3
PIECE = 32  # examples at a time: over many moves, large tensors come and go at the price of scattered memory
IMAGES = 9  # how many changed images there is room for


@dataclass(frozen=True)
class Score:
    """What a model can do: accuracy, loss in nats, and its answers (in the shape of the targets)."""

    accuracy: float
    loss: float
    answers: Tensor


def head_board(model: Transformer, task: Task, *, presets: Mapping[str, Tensor] | None = None) -> Explorer:
    """A switch for every head: accuracy, loss and the changed answers on the task's held-out examples.

    Args:
        model: a trained model of ``task``.
        presets: head masks (num_blocks, num_heads) of zeros and ones by name, offered as buttons after "all heads"
            and "no heads".

    Raises:
        ValueError: a preset has another shape, or a gate that is neither 0 nor 1.
    """
    blocks, num_heads = list(model.blocks), model.attentions[0].num_heads
    whole, none = torch.ones(len(blocks), num_heads), torch.zeros(len(blocks), num_heads)
    masks = {"all heads": whole, "no heads": none, **(presets or {})}
    for name, mask in masks.items():
        if mask.shape != whole.shape or not ((mask == 0) | (mask == 1)).all():
            raise ValueError(f"presets: {name!r} must be a mask of zeros and ones, {tuple(whole.shape)}, got {mask}")
    before = score(model, task, whole)

    def paint(**switches: bool) -> tuple[Sheet, str]:
        mask = torch.tensor(list(switches.values())).float().reshape(whole.shape)
        now = score(model, task, mask)
        return paint_board(blocks, mask, before, now, task), read_board(blocks, mask, before, now)

    def preset_button(name: str) -> Button:
        button = Button(description=name, tooltip=f"set the switches: {name}")
        switches = masks[name].bool().flatten().tolist()
        button.on_click(lambda _: board.set(**dict(zip(board.controls, switches, strict=True))))
        return button

    controls = {
        f"block_{block}_head_{head}": Checkbox(
            value=True,
            description=f"{name}, head {head}",
            indent=False,
            tooltip="whether the head is on",
            layout={"width": "130px"},
        )
        for block, name in enumerate(blocks)
        for head in range(num_heads)
    }
    columns = f"repeat({num_heads}, 135px)"
    board = Explorer(
        "Heads on and off", controls, paint, extras=[preset_button(name) for name in masks], columns=columns
    )
    return board


def score(model: Transformer, task: Task, head_mask: Tensor) -> Score:
    """What the model can do on the task's held-out examples with these gates."""
    batch = task.held_out
    pieces = [batch[start : start + PIECE] for start in range(0, len(batch), PIECE)]
    with torch.no_grad():
        output = torch.cat([model(piece.inputs, piece.valid_lens, head_mask) for piece in pieces])
        accuracy = task.correct(output, batch.targets).double().mean().item()
        return Score(accuracy, task.losses(output, batch.targets).mean().item(), task.logits(output).argmax(dim=-1))


def paint_board(blocks: list[str], mask: Tensor, before: Score, now: Score, task: Task) -> Sheet:
    """The switches on the left, what the model can do on the right, images it now reads differently below."""
    top = 34
    below = top + max(LINE * 3, SQUARE * len(blocks)) + 20
    sheet = Sheet(WIDTH, below + (110 if isinstance(task, Digits) else 0))
    paint_switches(sheet, 80, top, blocks, mask)
    left = WIDTH - BAR - 170
    changed = (now.answers != before.answers).double().mean().item()
    bars = {
        "accuracy, 0 to 1": (now.accuracy, before.accuracy, f"{now.accuracy:.3f}"),
        f"loss, 0 to {LARGEST_LOSS:g} nats": (now.loss / LARGEST_LOSS, before.loss / LARGEST_LOSS, f"{now.loss:.3f}"),
        "changed answers": (changed, 0.0, f"{changed:.1%}"),
    }
    for line, (name, (value, reference, text)) in enumerate(bars.items()):
        paint_bar(sheet, left, top + line * LINE, name, value, reference, text)
    sheet.write(left, 8, "the line: with all heads", size=11, colour=WITH_ALL)
    if isinstance(task, Digits):
        paint_changed(sheet, below, task.held_out, before.answers, now.answers)
    return sheet


def paint_switches(sheet: Sheet, left: int, top: int, blocks: list[str], mask: Tensor) -> None:
    """A square for every head, filled if it is on."""
    for row, (name, gates) in enumerate(zip(blocks, mask.tolist(), strict=True)):
        y = top + row * SQUARE
        sheet.write(left - 8, y + SQUARE / 2, name, anchor="rm")
        for head, gate in enumerate(gates):
            x = left + head * SQUARE
            if gate:
                sheet.fill(x + 2, y + 2, SQUARE - 4, SQUARE - 4, ON)
            sheet.outline(x + 2, y + 2, SQUARE - 4, SQUARE - 4, "0.6")
            sheet.write(
                x + SQUARE / 2,
                y + SQUARE / 2,
                str(head) if gate else "off",
                anchor="mm",
                size=11,
                colour="white" if gate else "0.3",
            )
    sheet.write(left, top - 6, "heads", anchor="ld", colour="0.3")


def paint_bar(sheet: Sheet, left: int, top: int, name: str, value: float, reference: float, text: str) -> None:
    """A bar for a value from 0 to 1, with a line where it was with all heads."""
    sheet.write(left - 8, top + LINE / 2, name, anchor="rm")
    sheet.fill(left, top + 6, round(BAR * min(value, 1)), LINE - 12, SHARE)
    sheet.outline(left, top + 6, BAR, LINE - 12, "0.6")
    sheet.fill(left + round(BAR * min(reference, 1)) - 1, top + 3, 3, LINE - 6, WITH_ALL)
    sheet.write(left + BAR + 8, top + LINE / 2, text, anchor="lm")


def paint_changed(sheet: Sheet, top: int, batch: Batch, before: Tensor, now: Tensor) -> None:
    """The first images that are read differently: what they show, and both readings."""
    changed = (now != before).nonzero().flatten()[:IMAGES].tolist()
    title = "read differently now (it shows: before → now)" if changed else "every image is read as with all heads"
    sheet.write(8, top, title, colour="0.3")
    images = to_images(batch.inputs[changed]).numpy()
    for place, (example, image) in enumerate(zip(changed, images, strict=True)):
        left = 8 + 92 * place
        sheet.paste(left, top + 20, enlarged(coloured(image, "gray_r"), 8, 8))
        sheet.outline(left, top + 20, 64, 64, "0.6")
        text = f"{batch.targets[example]}: {before[example]} → {now[example]}"
        sheet.write(left, top + 88, text, size=11)


def read_board(blocks: list[str], mask: Tensor, before: Score, now: Score) -> str:
    """One line: which heads are off, and what the model can do with the others."""
    off = [
        f"{name}: {', '.join(str(head) for head, gate in enumerate(gates) if not gate)}"
        for name, gates in zip(blocks, mask.tolist(), strict=True)
        if not all(gates)
    ]
    changed = int((now.answers != before.answers).sum())
    return (
        f"{int(mask.sum())} of {mask.numel()} heads are on; off are {'; '.join(off) or 'none'}. "
        f"Accuracy {now.accuracy:.3f} (with all {before.accuracy:.3f}), loss {now.loss:.3f} (with all "
        f"{before.loss:.3f}). {changed} of {now.answers.numel()} answers changed."
    )
