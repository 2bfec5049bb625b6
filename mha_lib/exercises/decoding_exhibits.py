"""Rooms of the bug museum with layers as language models have them: code, question, and the answer with its source.

``decoding_tests.TESTS`` is their panel. Every thread that an answer links has been read.
"""

from dataclasses import dataclass

import torch

from mha_lib.exercises.decoding_layer import BASE, DecodingLayer


@dataclass(frozen=True)
class Exhibit:
    """A room of the museum.

    Attributes:
        title, opening: what stands over the code and before it; neither gives the bug away.
        layer: the class that hangs there.
        question: what is to be predicted.
        answer: what is wrong, and where it was found; folded away at the end.
    """

    title: str
    opening: str
    layer: type[DecodingLayer]
    question: str
    answer: str


class MaskedAtFirst(DecodingLayer):
    def allowed(self, num_old, num_new):
        if num_old:
            return torch.ones(num_new, num_old + num_new, dtype=torch.bool)
        return torch.ones(num_new, num_new, dtype=torch.bool).tril()


class FromTheTopLeft(DecodingLayer):
    def allowed(self, num_old, num_new):
        return torch.ones(num_new, num_old + num_new, dtype=torch.bool).tril()


class NeverEmptied(DecodingLayer):
    def start(self):
        return


class SharedInTurn(DecodingLayer):
    def share(self, X):
        return X.repeat(1, self.num_heads // self.num_key_value_heads, 1, 1)


class PlacesOfThePiece(DecodingLayer):
    def places(self, num_old, num_new):
        return torch.arange(num_new)


class TurnedInNeighbours(DecodingLayer):
    def rotate(self, X, places):
        size = X.shape[-1]
        angles = places[:, None] * BASE ** (-torch.arange(0, size, 2) / size)
        x, y = X[..., 0::2], X[..., 1::2]
        turned = torch.stack([x * angles.cos() - y * angles.sin(), x * angles.sin() + y * angles.cos()], dim=-1)
        return turned.flatten(-2)


EXHIBITS = [
    Exhibit(
        "Nothing to hide",
        "A layer that reads a text piece by piece. Once there is a cache, all its keys belong to the past.",
        MaskedAtFirst,
        "Which of the six tests catch it?",
        "The keys of the *new* piece are not all in the past of its first token. With a single new token nothing has "
        "to be masked, so reading one by one is right, and so is reading all at once, when there is no cache yet. Only "
        "a piece of several tokens on top of a cache sees its own future.\n\n"
        "**Found in** [TinyLLM](https://github.com/Mikyx-1/TinyLLM/issues/17), where the mask was made only without a "
        "cache, and the prompt was read with an empty one attached: training was right, and the generated text was "
        "not.",
    ),
    Exhibit(
        "The diagonal",
        "One line makes the table of what may be attended to, for any number of old tokens and of new ones.",
        FromTheTopLeft,
        "At which key does the first query's row end?",
        "`tril()` begins in the top left corner: new query number i sees the keys 0 to i, as if it stood at place i. "
        "As long as a text is read at once this is right. A single new query sees key 0 and nothing else. "
        "`tril(num_old)` puts the last query at the last key.\n\n"
        "**Found in** everybody's code who passed `is_causal=True` with a cache: torch's flag means the top left "
        "corner (pytorch [108108](https://github.com/pytorch/pytorch/issues/108108), "
        "[144858](https://github.com/pytorch/pytorch/issues/144858)). In "
        "[executorch](https://github.com/pytorch/executorch/pull/21749) the *reference* that others were compared with "
        "had it.",
    ),
    Exhibit(
        "Another text",
        "Between two texts there is nothing to do: the layer goes on with the next.",
        NeverEmptied,
        "Which single test of all would have been enough, and which one cannot see it at all?",
        "The cache is never emptied, so the second text begins behind the first one and reads it as its own past. The "
        "first text is right, and with it the reference, which reads only one. Whatever reads two texts sees it. In "
        "Python the same happens with a default argument, `cache={}`, which is made once.\n\n"
        "**Found in** [litgpt](https://github.com/Lightning-AI/litgpt/pull/1596), whose cache was cleared incompletely "
        "between two calls of `generate`; [DeepSpeed](https://github.com/deepspeedai/DeepSpeed/pull/2669) came to "
        "reset it at the beginning of each text.",
    ),
    Exhibit(
        "Two for four",
        "Four heads of queries share two heads of keys and values. Each is copied as often as it is needed.",
        SharedInTurn,
        "Does a test that compares the layer with itself see it?",
        "`repeat` gives the shared heads 0, 1, 0, 1 to the heads 0, 1, 2, 3, where 0, 0, 1, 1 is due. Reading in "
        "pieces is as wrong as reading at once, so every test that compares the layer with itself passes. With one "
        "shared head, or with four, both orders are the same. `repeat_interleave` is the cure.\n\n"
        "**Found in** the reference implementation of ONNX's attention "
        "([7274](https://github.com/onnx/onnx/pull/7274)), and for some days in axlearn "
        "([842](https://github.com/apple/axlearn/pull/842)).",
    ),
    Exhibit(
        "Where am I?",
        "Rotary positions need to know where the new tokens stand.",
        PlacesOfThePiece,
        "What does a layer that is trained on whole texts notice of it?",
        "Places begin at 0 in every piece. Read at once, the text is right, so training and every test of a full pass "
        "are too. Read one by one, each token stands at place 0, and the layer no longer knows any order. The first "
        "new token stands at place `num_old`.\n\n"
        "**Found in** [mlx-vlm](https://github.com/Blaizzy/mlx-vlm/issues/1983): every generated token got place 0, "
        "while the prompt was right. Pieces of several tokens that all got the place of the first: "
        "[omlx](https://github.com/jundot/omlx/pull/2363).",
    ),
    Exhibit(
        "Pairs",
        "The features are turned in pairs, each at its own speed.",
        TurnedInNeighbours,
        "Is it a bug? Ask what the layer promises.",
        "By itself it is right: neighbours 0 and 1, 2 and 3 are the pairs of the paper. But weights that were trained "
        "with the pairs of two halves do not fit, and the layer's docstring promises halves. Both are rotations, so no "
        "test of what a rotation must do can tell them apart; only the reference can.\n\n"
        "**Found in** the question that readers ask of transformers' Llama "
        "([25199](https://github.com/huggingface/transformers/issues/25199)): Meta's weights are for neighbours, and "
        "the conversion permutes them once for halves, so both programs are right, each with its own weights. The "
        "answer of flash-attention's author is the same "
        "([288](https://github.com/Dao-AILab/flash-attention/issues/288)).",
    ),
]
