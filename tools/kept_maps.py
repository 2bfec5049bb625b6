"""Write what ships of MiniLM: attention maps of twelve sentences, and one layer with its input for two.

``make kept-maps`` calls it.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save

import mha_course
from mha_course.models.kept_layer import FILE, KEPT_LAYER
from mha_course.models.kept_layer import SENTENCES as OF_LAYER
from mha_course.models.pretrained import PACKAGE, MiniLM, minilm
from mha_course.models.threads import single_thread

FOLDER = Path(mha_course.__file__).with_name("models") / "sentences"
SENTENCES = (  # our own; each shows some of the heads that have a name; one shows such a head fooled
    "the queen thanked the old quiet waiter because she was late",
    "the old king kissed the actress and then he left the stage",
    "the actress kissed the tired old king and then she left the stage",
    "my aunt asked the driver whether she could open the window",
    "the king waited for his daughter because he was early",
    "the teacher praised the boy after he had solved the hard problem",
    "a tall thin man read the first short chapter of the thick book",
    "the small grey kitten drank the fresh cold milk in an old dark barn",
    "my sister sold her old red car and bought a unicycle",
    "the boy lost his key, so he waited under the old tree",
    "the dog chased the other dog across the wet field",
    "the wind broke the window, but the new window is strong",
)


def main() -> None:
    """Compute, write, and say how many bytes it is."""
    with single_thread():
        model = minilm()
        kept = [model.maps(sentence) for sentence in SENTENCES]
        layer = layer_with_inputs(model)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER.parents[1] / FILE).write_bytes(save(layer))
    maps = {str(number): in_255ths(one.weights) for number, one in enumerate(kept)}
    (FOLDER / "maps.safetensors").write_bytes(save(maps))
    sha256 = PACKAGE.sha256["model/model.safetensors"]
    about = {
        "what": "attention weights in 255ths: for each sentence (6 layers, 12 heads, queries, keys)",
        "model": "sentence-transformers/all-MiniLM-L6-v2, Apache License 2.0",
        "package": f"{PACKAGE.requirement}, MIT License; model.safetensors with SHA-256 {sha256}",
        "layer": "layer_1.safetensors: attention layer 1 in half precision, with its input for two sentences",
        "sentences": [{"sentence": one.sentence, "tokens": one.tokens} for one in kept],
    }
    (FOLDER / "sentences.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(*(f"{file.name}: {file.stat().st_size:,} bytes" for file in sorted(FOLDER.iterdir())), sep="\n")


@torch.no_grad()
def layer_with_inputs(model: MiniLM) -> dict[str, torch.Tensor]:
    """Return the parameters of the layer that is kept, and its input (n, 384) for each sentence, in half precision."""
    block = model.blocks[f"layer {KEPT_LAYER}"]
    kept = {f"attention.{name}": part for name, part in block.attention.state_dict().items()}
    for number, sentence in enumerate(OF_LAYER):
        ids, _ = model.tokenize([sentence])
        with block.attention.register_forward_pre_hook(
            lambda _, inputs, name=str(number): kept.update({name: inputs[0][0]})
        ):
            model(ids)
    return {name: part.half().contiguous() for name, part in kept.items()}


def in_255ths(weights: torch.Tensor) -> torch.Tensor:
    """Weights whose rows sum to 1 → whole numbers (uint8) whose rows sum to 255, each off by less than 1."""
    exact = 255 * weights
    down = exact.floor()
    rank = (down - exact).argsort(dim=-1).argsort(dim=-1)  # 0 where rounding down took away most
    return (down + (rank < 255 - down.sum(dim=-1, keepdim=True))).to(torch.uint8)


if __name__ == "__main__":
    main()
