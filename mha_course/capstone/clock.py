"""How many times as fast a smaller model is: two models timed in turns, beside the most that could be gained."""

import time
from statistics import median

import torch
from torch import nn

ROUNDS = 21  # of these the 6th and the 16th, in order, enclose the median in 97 % of all samples


def paired_speed(whole: nn.Module, smaller: nn.Module, inputs: tuple) -> tuple[float, float, float]:
    """Return how many times as fast the smaller model is, the median over paired rounds, and an interval of 97 %.

    Both are called in turns, so that whatever else the machine does disturbs both.
    """
    ratios = []
    with torch.no_grad():
        for number in range(ROUNDS + 2):  # two to warm up
            seconds = {}
            for model in (whole, smaller) if number % 2 else (smaller, whole):
                start = time.perf_counter()
                model(*inputs)
                seconds[id(model)] = time.perf_counter() - start
            ratios.append(seconds[id(whole)] / seconds[id(smaller)])
    ordered = sorted(ratios[2:])
    return median(ordered), ordered[5], ordered[15]


def ceiling(whole: nn.Module, smaller: nn.Module) -> float:
    """Return how many times as fast the smaller model could be, by the products of its matrices with one token.

    Embeddings are looked up, and not multiplied. What attention itself computes is left out, which is little for texts
    shorter than the features of a token are many.
    """
    return _products(whole) / _products(smaller)


def _products(model: nn.Module) -> int:
    looked_up = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    matrices = [matrix for name, matrix in model.named_parameters() if name.endswith("weight") and matrix.dim() == 2]
    return sum(matrix.numel() for matrix in matrices if id(matrix) not in looked_up)
