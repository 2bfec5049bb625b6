"""Planted controls: heads whose importance is known because they were put there, into a model that they do not change.

A measure that ranks one of them wrongly is wrong for a reason that has a name:

- *twins*: one head as two, each saying half. Either can go at little cost, both at the cost of the whole head.
- *cancelling pair*: two heads that say the same, loudly, with opposite signs. Neither can go alone; both can.
- *dead*: a head sure of where to look, whose columns of W_o are 0.
- *constant*: a head that says the same to every token, which W_o's bias takes back.
- *loud but unheard*: a head that adds one number to all features of a token, which the layer norm takes away again.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mha_course.heads.ablation import head_grid
from mha_course.heads.measures import measured
from mha_course.heads.removal import select_heads
from mha_course.models.any_layer import copied
from mha_course.models.tasks import Batch, Task
from mha_course.models.transformer import Transformer
from mha_lib.attention import MultiHeadAttention

HeadIndex = tuple[int, int]  # (block, head)
LOUD = 3.0  # standard deviation of planted columns of W_o; those of a trained model have about 0.2
SHARP = 4.0  # how many times longer a dead head's queries are than those of the head it copies


@dataclass(frozen=True)
class Planted:
    """Hold a model with added heads of known importance (duplicate, cancelling, dead, constant) and their positions."""

    model: Transformer
    twins: tuple[HeadIndex, HeadIndex]
    cancelling: tuple[HeadIndex, HeadIndex]
    dead: HeadIndex
    constant: HeadIndex
    unheard: HeadIndex

    @property
    def controls(self) -> dict[str, tuple[HeadIndex, ...]]:
        """Name of each control → its heads, one or two."""
        return {
            "twins": self.twins,
            "cancelling": self.cancelling,
            "dead": (self.dead,),
            "constant": (self.constant,),
            "unheard": (self.unheard,),
        }


def plant_heads(model: Transformer, batch: Batch, task: Task, seed: int = 0) -> Planted:
    """Copy a two-block model and add to each block three heads of known importance that leave its output unchanged.

    The twins are made of the head without which most accuracy is lost on ``batch``. The cancelling pair is in the same
    block, and the rest is in the other one.

    Args:
        seed: where the planted heads' columns of W_o come from.

    Raises:
        ValueError: the model does not have two blocks.
    """
    num_blocks, num_heads = head_grid(model)
    if num_blocks != 2:
        raise ValueError(f"model must have two blocks, got {num_blocks}: {', '.join(model.blocks)}")
    block, head = divmod(int(measured(model, batch, task, "leave_one_out", "accuracy").argmax()), num_heads)
    first, second, third = range(num_heads, num_heads + 3)
    generator = torch.Generator().manual_seed(seed)
    planted = copied(model)
    here, other = (list(planted.blocks.values())[number] for number in (block, 1 - block))
    here.attention = select_heads(here.attention, [*range(num_heads), head, head, head])
    other.attention = select_heads(other.attention, [*range(num_heads), 0, 0, 0])
    with torch.no_grad():
        _make_twins(here.attention, head, first)
        _make_cancelling(here.attention, second, third, generator)
        _make_dead(other.attention, first)
        _make_constant(other.attention, second, generator)
        _make_unheard(other.attention, third, generator)
    return Planted(
        planted, twins=((block, head), (block, first)), cancelling=((block, second), (block, third)),
        dead=(1 - block, first), constant=(1 - block, second), unheard=(1 - block, third),
    )  # fmt: skip


def _make_twins(attention: MultiHeadAttention, head: int, copied: int) -> None:
    for one in (head, copied):
        _columns(attention, one).div_(2)


def _make_cancelling(attention: MultiHeadAttention, plus: int, minus: int, generator: torch.Generator) -> None:
    columns = _draw(_columns(attention, plus), generator)
    _columns(attention, minus).copy_(-columns)


def _make_dead(attention: MultiHeadAttention, head: int) -> None:
    rows = _rows(attention, head)
    attention.W_q.weight[rows] *= SHARP
    attention.W_q.bias[rows] *= SHARP
    _columns(attention, head).zero_()


def _make_constant(attention: MultiHeadAttention, head: int, generator: torch.Generator) -> None:
    rows = _rows(attention, head)
    attention.W_v.weight[rows] = 0.0
    attention.W_v.bias[rows] = 1.0
    columns = _draw(_columns(attention, head), generator)
    attention.W_o.bias.sub_(columns.sum(dim=1))


def _make_unheard(attention: MultiHeadAttention, head: int, generator: torch.Generator) -> None:
    columns = _columns(attention, head)
    columns.copy_(_draw(columns[:1].clone(), generator).expand_as(columns))


def _draw(columns: Tensor, generator: torch.Generator) -> Tensor:
    """``columns`` themselves, filled with random numbers that are drawn on the CPU, wherever they are."""
    return columns.copy_(columns.cpu().normal_(std=LOUD, generator=generator))


def _rows(attention: MultiHeadAttention, head: int) -> slice:
    """The head's rows of W_q, W_k and W_v."""
    head_size = attention.W_o.in_features // attention.num_heads
    return slice(head * head_size, (head + 1) * head_size)


def _columns(attention: MultiHeadAttention, head: int) -> Tensor:
    """The head's columns of W_o, a view: (num_hiddens, head_size)."""
    return attention.W_o.weight[:, _rows(attention, head)]
