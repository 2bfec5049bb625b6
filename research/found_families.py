"""Of how many architectures of transformers does ``heads.of`` find the heads? ``python -m research.found_families``.

Every causal and masked language model that a small configuration without knowledge of it can build, with random
weights. A model is found where each layer has the heads that its configuration names, and a gate gives exactly what
columns of zeros in its output projection give. Writes found_families.md.
"""

import argparse
import copy
import random
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.report import markdown
from mha_course.models import load_transformers
from mha_lib import heads
from mha_lib.heads.any_model import FoundHeads
from mha_lib.heads.found_removal import first_tensor
from research.kept import write_report

WIDTH, INNER, LAYERS, HEADS = 48, 64, 2, 6
SIZES = {  # every name by which a configuration may call them
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "emb_dim", "embed_dim", "dim", "word_embed_proj_dim"), WIDTH),
    **dict.fromkeys(("embedding_size",), WIDTH),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "d_ff", "hidden_dim"), INNER),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "vocab_size", "max_position_embeddings"), INNER),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers"), LAYERS),
    **dict.fromkeys(("decoder_layers", "encoder_layers", "num_key_value_heads", "num_kv_heads"), LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), HEADS),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads"), HEADS),
    **dict.fromkeys(("head_dim", "d_kv", "qk_nope_head_dim", "v_head_dim"), WIDTH // HEADS),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "rotary_dim", "qk_rope_head_dim"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    "n_positions": 64, "num_experts_per_tok": 2, "num_nextn_predict_layers": 0,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attention_types": [[["global"], LAYERS]],
}  # fmt: skip
LARGEST, SECONDS = 3_000_000, 30  # parameters of one model, and CPU time that it may take
EXPECTED = 130  # architectures found; those that are large or hard to build change between releases of transformers
FOUND, WRONG, NAMED, EMPTY = "found", "wrong", "named as not understood", "no attention seen"
NOT_BUILT, LARGE, SLOW, NOT_TRIED = "not built", "too large", "too slow", "not tried"


def main() -> None:
    """Try the architectures in a random order until the time is over, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="CPU time after which no further one is tried")
    parser.add_argument("names", nargs="*", help="only these architectures")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    transformers = load_transformers()
    transformers.logging.set_verbosity_error()
    _ = transformers.PreTrainedModel  # what all models import, for which no model's time is meant
    kinds = architectures()
    chosen = arguments.names or random.Random(0).sample(sorted(kinds), len(kinds))
    verdicts = {}
    for kind in chosen:
        over = time.process_time() > 60 * arguments.minutes
        verdicts[kind] = (NOT_TRIED, "") if over else verdict(kind, kinds[kind])
        print(kind, *verdicts[kind], flush=True)
    if not arguments.names:
        write_report(__file__, report(verdicts))
        count = Counter(said for said, _ in verdicts.values())
        if count[WRONG] or count[FOUND] < EXPECTED:
            raise SystemExit(f"{count[FOUND]} found and {count[WRONG]} wrong: at least {EXPECTED} and 0 were expected")


def architectures() -> dict[str, str]:
    """The causal and masked language models of transformers: their names, and the class that builds each."""
    auto = load_transformers().models.auto.modeling_auto
    masked = dict.fromkeys(auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, "AutoModelForMaskedLM")
    return masked | dict.fromkeys(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, "AutoModelForCausalLM")


def verdict(kind: str, auto: str) -> tuple[str, str]:
    """What came of one architecture, and a detail."""
    try:
        with at_most(SECONDS):
            model = built(kind, auto)
            if model is None:
                return LARGE, ""
            ids = torch.randint(5, 60, (2, 7), generator=torch.Generator().manual_seed(0))
            with torch.no_grad():
                first_tensor(model(input_ids=ids))
    except Exception as error:  # whatever a configuration without knowledge of the model leads to
        return NOT_BUILT, type(error).__name__
    try:
        with at_most(SECONDS):
            return judged(model, {"input_ids": ids}, named_heads(model.config))
    except TimeoutError:
        return SLOW, ""
    except Exception as error:  # an error of ours is a wrong answer
        return WRONG, f"{type(error).__name__}: {error}"


def built(kind: str, auto: str) -> nn.Module | None:
    """A small model of this architecture with random weights; None where it is too large."""
    transformers = load_transformers()
    make = transformers.CONFIG_MAPPING[kind]
    plain = make()
    known = {name for name in plain.to_dict() if not isinstance(getattr(plain, name, 0), list)}
    known |= {"attention_types"} if hasattr(plain, "attention_types") else set()
    sizes = {name: value for name, value in SIZES.items() if name in known}
    try:
        config = make(**sizes)
    except Exception:
        config = make(**{name: value for name, value in sizes.items() if name != "head_dim"})
    of = getattr(transformers, auto).from_config
    with torch.device("meta"):
        if sum(parameter.numel() for parameter in of(config).parameters()) > LARGEST:
            return None
    torch.manual_seed(0)
    return of(config).eval()


def named_heads(config: Any) -> set[int]:
    """The numbers of heads that a configuration names, for all layers or for some."""
    named = [getattr(config, "num_attention_heads", None)]
    named += [number for name, number in config.to_dict().items() if name.endswith("num_attention_heads")]
    return {number for number in named if isinstance(number, int)}


def judged(model: nn.Module, example: Mapping[str, Tensor], num_heads: set[int]) -> tuple[str, str]:
    """Whether the heads of a model are found, and a detail."""
    found = heads.of(model, **example)
    if not found.layers:
        return (NAMED, next(iter(found.unknown.values()))) if found.unknown else (EMPTY, "")
    numbers = Counter(layer.num_heads for layer in found.layers.values())
    if num_heads and not set(numbers) <= num_heads:
        return WRONG, f"heads {dict(numbers)}, the configuration says {sorted(num_heads)}"
    first, *_, last = [*found.layers, *found.layers]
    off = max(distance_from_columns(model, found, name, example) for name in (first, last))
    if off > 0:
        return WRONG, f"gate and columns differ by {off:.1e}"
    if any(weights.min() < 0 or weights.sum(dim=-1).max() > 1 + 1e-5 for weights in found.maps().values()):
        return WRONG, "rows of a map sum to more than 1"
    layer = next(iter(found.layers.values()))
    rest = f", {len(found.unknown)} not understood" if found.unknown else ""
    return FOUND, f"{len(found.layers)} layers of {layer.num_heads} heads on {layer.num_key_value_heads}{rest}"


def distance_from_columns(model: nn.Module, found: FoundHeads, name: str, example: Mapping[str, Tensor]) -> float:
    """How far the model with a head gated is from one with zeros in the columns of its output projection."""
    layer = found.layers[name]
    head = 1 % layer.num_heads
    features = slice(head * layer.head_size, (head + 1) * layer.head_size)
    zeroed = copy.deepcopy(model)
    mixing = zeroed.get_submodule(layer.mixing)
    with torch.no_grad():
        weight = mixing.get_parameter("weight")  # of transformers' own Conv1D with its input first
        (weight.T if type(mixing).__name__ == "Conv1D" else weight)[:, features] = 0
        with found.ablated({name: [head]}):
            gated = first_tensor(model(**example))
        return (gated - first_tensor(zeroed(**example))).abs().max().item()


def report(verdicts: Mapping[str, tuple[str, str]]) -> str:
    """The verdicts as a page."""
    version = load_transformers().__version__
    counts = Counter(kind for kind, _ in verdicts.values())
    lines = [f"# Heads found in the language models of transformers {version}", ""]
    lines += [", ".join(f"{number} {kind}" for kind, number in counts.most_common()) + ".", ""]
    rows = [[name, *verdicts[name]] for name in sorted(verdicts) if verdicts[name][0] not in (NOT_BUILT, LARGE)]
    return "\n".join([*lines, markdown(("architecture", "verdict", "detail"), rows), ""])


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise a TimeoutError where the block takes more CPU time."""

    def stop(*_) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


if __name__ == "__main__":
    main()
