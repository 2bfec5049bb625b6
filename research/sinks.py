"""How much weight does SmolLM2 put on the first position, whatever is there? ``make research-sinks``; one minute.

Twenty-four rows of prose, behind four first tokens: the one with which its conversations began, the one that ends a
text, an ordinary word, and none. Queries from position 16 on. Writes sinks.json into the library.
"""

import torch
from torch import Tensor

from mha_lib.models.smollm2 import FIRST_TOKEN, SmolLM2, smollm2
from research.kept import kept_file, rounded, write_compact
from research.real_texts import calibration_prose, rows

ROWS, FIRST_QUERY = 24, 16
ENDS_A_TEXT = 0  # <|endoftext|>


def main() -> None:
    """Measure every first token and write the results."""
    model = smollm2()
    texts = rows(model, calibration_prose())[:ROWS]
    (the,) = model.tokenize(" the")
    firsts = {"<|im_start|>": FIRST_TOKEN, "<|endoftext|>": ENDS_A_TEXT, "the": the, "no first token": None}
    results = {name: rounded(measure(model, behind(texts, first)), 3) for name, first in firsts.items()}
    write_compact(kept_file("sinks"), results)
    print(results)


def behind(texts: Tensor, first: int | None) -> Tensor:
    """Put a first token before each text."""
    return texts if first is None else torch.cat([torch.full_like(texts[:, :1], first), texts], dim=1)


@torch.no_grad()
def measure(model: SmolLM2, ids: Tensor) -> dict:
    """Mean weight on the first and the second position, by layer for the first, and the share of heads above a half."""
    model(ids)
    weights = torch.stack([layer[:, :, FIRST_QUERY:] for layer in model.attention_weights])  # (layers, b, h, q, k)
    heads = weights[..., :2].mean(dim=(1, 3))  # (layers, h, 2)
    uniform = (1 / torch.arange(FIRST_QUERY + 1.0, ids.shape[1] + 1)).mean()
    return {
        "first": heads[..., 0].mean().item(),
        "second": heads[..., 1].mean().item(),
        "uniform": uniform.item(),
        "above a half": (heads[..., 0] > 0.5).double().mean().item(),
        "layers": heads[..., 0].mean(dim=1).tolist(),
    }


if __name__ == "__main__":
    main()
