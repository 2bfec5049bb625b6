"""Three tasks small enough to be learned on the spot, with data that needs no network.

``digits``: what does the image show? (8×8 images, as patches); ``lookups``: five questions about a
sequence, whose answers stand at known places; ``dates``: a date in one of eight notations → its ISO form.
A task holds everything a training run needs: batches, held-out data, a fresh model, and what counts as right.
"""

import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mha_course.models.transformer import Encoder, EncoderDecoder, PatchEmbedding, TokenEmbedding, Transformer

# The test set of the UCI's handwritten digits (Alpaydin and Kaynak 1998, https://doi.org/10.24432/C50P49, CC BY 4.0) as
# sklearn.datasets.load_digits has it, images and target as bytes.
IMAGES = Path(__file__).with_name("digits.npz")
HELD_OUT_SEED = 2**31  # no training run is likely to draw with it; torch reads only the low 32 bits of a seed


@dataclass(frozen=True)
class Batch:
    """Hold a batch of examples: the inputs for ``model(inputs, valid_lens)``, and the right answers.

    ``inputs`` is a tensor or a pair of tensors, ``valid_lens`` None or (batch,), ``targets`` (batch, …) integers.
    """

    inputs: Tensor | tuple[Tensor, Tensor]
    valid_lens: Tensor | None
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: slice | Tensor) -> "Batch":
        """The chosen examples (a slice, or a tensor of numbers or of bools)."""
        return self._each(lambda X: X[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """Return the same examples on the device of a model."""
        return self._each(lambda X: X.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        valid_lens = None if self.valid_lens is None else change(self.valid_lens)
        if isinstance(self.inputs, Tensor):
            return Batch(change(self.inputs), valid_lens, change(self.targets))
        source, target = self.inputs
        return Batch((change(source), change(target)), valid_lens, change(self.targets))


class Task:
    """Define a training task, with its data, model and loss: an abstract base class."""

    name: str
    steps: int
    batch_size = 64
    learning_rate = 3e-3

    def model(self) -> Transformer:
        """Return a fresh model, untrained."""
        raise NotImplementedError

    def batches(self, generator: torch.Generator) -> Iterator[Batch]:
        """Training data without end, drawn with ``generator``."""
        raise NotImplementedError

    @cached_property
    def held_out(self) -> Batch:
        """Examples that no training run sees, always the same."""
        raise NotImplementedError

    def token_labels(self, batch: Batch, example: int) -> list[tuple[list[str], list[str]]]:
        """For each of the model's blocks, a word for every query and for every key of one example."""
        raise NotImplementedError

    def logits(self, output: Tensor) -> Tensor:
        """Return a model's output in the shape ``(*targets.shape, number of classes)``."""
        return output

    def losses(self, output: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of each answer, in nats, in the shape of ``targets``."""
        logits = self.logits(output)
        return F.cross_entropy(logits.flatten(end_dim=-2), targets.flatten(), reduction="none").view_as(targets)

    def loss_on(self, batch: Batch, score: str = "loss") -> Callable[[Transformer], Tensor]:
        """Return a loss for the measures of ``heads.of``: a function of the model that gives that of each example.

        With ``score="accuracy"`` it is minus the share of right answers.
        """
        if score not in ("loss", "accuracy"):
            raise ValueError(f"score must be one of loss, accuracy, got {score!r}")

        def loss(model: Transformer) -> Tensor:
            output = model(batch.inputs, batch.valid_lens)
            if score == "loss":
                return self.losses(output, batch.targets).reshape(len(batch), -1).mean(dim=1)
            return -self.correct(output, batch.targets).double().mean()  # a mean of means would round equals apart

        return loss

    def correct(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return whether each answer is right, in the shape of ``targets``."""
        return self.logits(output).argmax(dim=-1) == targets

    def accuracy(self, model: Transformer, batch: Batch | None = None, head_mask: Tensor | None = None) -> float:
        """Return the share of right answers (default: on the held-out data), between 0 and 1."""
        return self._correct(model, batch, head_mask).double().mean().item()

    def exact_match(self, model: Transformer, batch: Batch | None = None, head_mask: Tensor | None = None) -> float:
        """Return the share of examples whose answers are all right (exact match), between 0 and 1.

        For a decoder this is the same as when it writes token by token: as long as all that it has written is right, it
        is what the decoder is given here.
        """
        correct = self._correct(model, batch, head_mask)
        return correct.reshape(len(correct), -1).all(dim=1).double().mean().item()

    def _correct(self, model: Transformer, batch: Batch | None, head_mask: Tensor | None) -> Tensor:
        batch = self.held_out.to(model.device) if batch is None else batch
        with torch.no_grad():
            return self.correct(model(batch.inputs, batch.valid_lens, head_mask), batch.targets)


class Digits(Task):
    """Define the task of classifying 8×8 images of digits, read as a class token and 16 patches of 2×2 pixels.

    Every fifth of the 1,797 images is held out. Source: the test set of Alpaydin & Kaynak 1998, "Optical Recognition of
    Handwritten Digits" (UCI, https://doi.org/10.24432/C50P49), CC BY 4.0, as scikit-learn has it.
    """

    name = "digits"
    steps = 600

    def model(self) -> Encoder:
        return Encoder(PatchEmbedding(patch_size=4, num_patches=16, num_hiddens=48), num_hiddens=48, num_outputs=10)

    def batches(self, generator: torch.Generator) -> Iterator[Batch]:
        training = self._images[~self._is_held_out]
        while True:
            yield training[torch.randint(len(training), (self.batch_size,), generator=generator)]

    @cached_property
    def held_out(self) -> Batch:
        return self._images[self._is_held_out]

    @cached_property
    def _images(self) -> Batch:
        with np.load(IMAGES) as kept:
            images, targets = torch.tensor(kept["images"]), torch.tensor(kept["labels"])
        return Batch(to_patches(images.float() / 16), None, targets.long())

    @property
    def _is_held_out(self) -> Tensor:
        return torch.arange(len(self._images)) % 5 == 0

    def logits(self, output: Tensor) -> Tensor:
        return output[..., 0, :]

    def token_labels(self, batch: Batch, example: int) -> list[tuple[list[str], list[str]]]:
        labels = ["class"] + [f"r{row}c{column}" for row in range(4) for column in range(4)]
        return [(labels, labels)] * 2


def to_patches(images: Tensor) -> Tensor:
    """Cut 8×8 images into 2×2 patches, row by row: (batch, 8, 8) → (batch, 16, 4).

    >>> to_patches(torch.zeros(3, 8, 8)).shape
    torch.Size([3, 16, 4])
    """
    return images.unflatten(2, (4, 2)).unflatten(1, (4, 2)).transpose(2, 3).reshape(-1, 16, 4)


def to_images(patches: Tensor) -> Tensor:
    """Put 2×2 patches together to 8×8 images, the inverse of ``to_patches``: (batch, 16, 4) → (batch, 8, 8).

    >>> to_images(torch.zeros(3, 16, 4)).shape
    torch.Size([3, 8, 8])
    """
    return patches.reshape(-1, 4, 4, 2, 2).transpose(2, 3).reshape(-1, 8, 8)


class Lookups(Task):
    """Define a task of five questions about a sequence of 12 tokens, such as the value of the previous token.

    A token is a value (0 to 9), a key (each of 0 to 11 once) and a query (0 to 11). The questions, as in ``questions``:
    the value one place back; three places back (before the first comes the last); the first value; the value whose key
    is the query at i; how many values are below 5. Four want one place each, and the last all of them: five ways to
    attend, for twelve heads.
    """

    name = "lookups"
    steps = 900
    learning_rate = 6e-3
    length = 12
    questions: Sequence[str] = ("1 back", "3 back", "first", "wanted label", "count < 5")
    num_answers = 13  # a value, or a count from 0 to 12

    def model(self) -> Encoder:
        vocab_size = 10 + 2 * self.length
        embedding = TokenEmbedding(vocab_size, self.length, num_hiddens=48)
        return Encoder(embedding, num_hiddens=48, num_outputs=len(self.questions) * self.num_answers, dropout=0.1)

    def batches(self, generator: torch.Generator) -> Iterator[Batch]:
        while True:
            yield self.rows(self.batch_size, generator)

    @cached_property
    def held_out(self) -> Batch:
        return self.rows(512, torch.Generator().manual_seed(HELD_OUT_SEED))

    def rows(self, number: int, generator: torch.Generator) -> Batch:
        """Return rows drawn with ``generator``."""
        shape = number, self.length
        values = torch.randint(10, shape, generator=generator)
        keys = torch.rand(shape, generator=generator).argsort(dim=1)
        queries = torch.randint(self.length, shape, generator=generator)
        place_of_key = keys.argsort(dim=1)
        answers = [
            values.roll(1, dims=1),
            values.roll(3, dims=1),
            values[:, :1].expand(shape),
            values.gather(1, place_of_key.gather(1, queries)),
            (values < 5).sum(dim=1, keepdim=True).expand(shape),
        ]
        ids = torch.stack([values, 10 + keys, 10 + self.length + queries], dim=2)
        return Batch(ids, None, torch.stack(answers, dim=2))

    def logits(self, output: Tensor) -> Tensor:
        return output.unflatten(-1, (len(self.questions), self.num_answers))

    def token_labels(self, batch: Batch, example: int) -> list[tuple[list[str], list[str]]]:
        fields = self.fields(batch, example)
        queries = [f"{value} wants {wanted}" for value, _, wanted in fields]
        keys = [f"{value} has {own}" for value, own, _ in fields]
        return [(queries, keys)] * 2

    def fields(self, batch: Batch, example: int) -> list[list[int]]:
        """Return value, own label and wanted label of each token of one example."""
        return (batch.inputs[example].cpu() - torch.tensor([0, 10, 10 + self.length])).tolist()


class Dates(Task):
    """Define the task of translating a date in one of eight notations to ISO form, such as 2024-03-17.

    Every tenth day is held out, in all notations. The notations are those of ``strftime``, with English names; a year
    of two digits stands for 1969–2068, as POSIX has it.
    """

    name = "dates"
    steps = 900
    notations = (
        "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%y", "%d %b %Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y", "%a %d %b %Y",
    )  # fmt: skip
    source_length = 18
    source_characters = " " + string.digits + string.ascii_letters + ",./"  # the blank is the padding, too
    target_characters = string.digits + "-" + "^"  # ^ stands where a target begins

    def model(self) -> EncoderDecoder:
        source = TokenEmbedding(len(self.source_characters), self.source_length, num_hiddens=48)
        target = TokenEmbedding(len(self.target_characters), len("yyyy-mm-dd"), num_hiddens=48)
        return EncoderDecoder(source, target, num_hiddens=48, num_outputs=len(self.target_characters))

    def batches(self, generator: torch.Generator) -> Iterator[Batch]:
        while True:
            yield self.encode(self._draw(self.batch_size, generator, held_out=False))

    @cached_property
    def held_out_dates(self) -> list[tuple[date, str]]:
        """What the held-out examples are: a date and its notation."""
        return self._draw(512, torch.Generator().manual_seed(HELD_OUT_SEED), held_out=True)

    @cached_property
    def held_out(self) -> Batch:
        return self.encode(self.held_out_dates)

    def _draw(self, number: int, generator: torch.Generator, held_out: bool) -> list[tuple[date, str]]:
        first, num_days = date(1969, 1, 1), 36_520
        days = 10 * torch.randint(num_days // 10, (number,), generator=generator)
        if not held_out:
            days += torch.randint(1, 10, (number,), generator=generator)
        notations = torch.randint(len(self.notations), (number,), generator=generator)
        return [
            (first + timedelta(days=day), self.notations[notation])
            for day, notation in zip(days.tolist(), notations.tolist(), strict=True)
        ]

    def encode(self, dates: list[tuple[date, str]]) -> Batch:
        """Dates, each with its notation → examples. The decoder gets the target shifted by one, behind ``^``."""
        texts = [day.strftime(notation) for day, notation in dates]
        sources = [_ids(text.ljust(self.source_length), self.source_characters) for text in texts]
        targets = torch.tensor([_ids("^" + day.isoformat(), self.target_characters) for day, _ in dates])
        lengths = torch.tensor([len(text) for text in texts])
        return Batch((torch.tensor(sources), targets[:, :-1]), lengths, targets[:, 1:])

    def alignment(self, dates: list[tuple[date, str]]) -> Tensor:
        """Where each character of the answer stands in the source: in the day, the month or the year, as written there.

        It is bool, (len(dates), 10, source_length), with no True in the row of a hyphen.
        """
        wanted = ["year"] * 4 + ["-"] + ["month"] * 2 + ["-"] + ["day"] * 2
        written = [_fields(day, notation) for day, notation in dates]
        return torch.tensor(
            [
                [[here == field for here in fields + [""] * (self.source_length - len(fields))] for field in wanted]
                for fields in written
            ]
        )

    def token_labels(self, batch: Batch, example: int) -> list[tuple[list[str], list[str]]]:
        source = _characters(batch.inputs[0][example], self.source_characters)
        given = _characters(batch.inputs[1][example], self.target_characters)
        answer = _characters(batch.targets[example], self.target_characters)
        return [(source, source), (answer, given), (answer, source)]


def _ids(text: str, characters: str) -> list[int]:
    return [characters.index(character) for character in text]


def _characters(ids: Tensor, characters: str) -> list[str]:
    return [characters[index] for index in ids.tolist()]


def _fields(day: date, notation: str) -> list[str]:
    """For each character of ``day`` in ``notation``: "day", "month", "year", or something else."""
    names = {"%d": "day", "%m": "month", "%b": "month", "%B": "month", "%y": "year", "%Y": "year"}
    pieces = re.findall("%.|[^%]", notation)
    return [names.get(piece, piece) for piece in pieces for _ in day.strftime(piece)]


TASKS = {task.name: task for task in (Digits(), Lookups(), Dates())}


def find_task(name: str) -> Task:
    """Return the task of this library with this name: "digits", "lookups" or "dates".

    >>> find_task("lookups").name
    'lookups'

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}, got {name!r}")
    return TASKS[name]
