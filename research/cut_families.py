"""Is what ``mha_lib.heads`` says of many families of models right? ``python -m research.cut_families``.

Twenty-six families of transformers and sixteen of timm, small and with random weights. For each: maps equal those of
eager attention, a gate equals columns of zeros, leave-one-out equals a pass without each head, and a smaller model
equals the gated one, also saved and loaded, unless ``remove`` refuses. Writes cut_families.md.
"""

import argparse
import copy
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.report import markdown
from mha_course.models import load_transformers
from mha_lib import heads
from mha_lib.heads.any_model import FoundHeads
from mha_lib.heads.found_removal import first_tensor
from research.found_families import SIZES, distance_from_columns
from research.kept import write_report

WRONG = "wrong"
IDS = {"input_ids": torch.randint(5, 60, (2, 7), generator=torch.Generator().manual_seed(0))}
PIXELS = {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
SOUND = {"input_values": torch.randn(2, 4000, generator=torch.Generator().manual_seed(0))}
VISION = dict(image_size=32, patch_size=8)
STAGES = dict(depths=[1, 1], num_heads=[2, 4], embed_dim=16, window_size=4, image_size=32)
TOWER = dict(hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6)
QFORMER = dict(TOWER, vocab_size=64, encoder_hidden_size=48, cross_attention_frequency=1)
OPT = dict(TOWER, vocab_size=64, ffn_dim=64, word_embed_proj_dim=48, max_position_embeddings=64, model_type="opt")
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Tensor]]] = {  # class, what its configuration adds, example
    "Qwen3": ("Qwen3ForCausalLM", {}, IDS),
    "Qwen3-MoE": ("Qwen3MoeForCausalLM", {}, IDS),
    "Qwen3-Next": ("Qwen3NextForCausalLM", dict(layer_types=["linear_attention", "full_attention"]), IDS),
    "Gemma 3": ("Gemma3ForCausalLM", {}, IDS),
    "Gemma 3n": ("Gemma3nForCausalLM", dict(num_kv_shared_layers=0), IDS),
    "gpt-oss": ("GptOssForCausalLM", {}, IDS),
    "DeepSeek-V3": ("DeepseekV3ForCausalLM", dict(num_key_value_heads=6, head_dim=4), IDS),
    "Llama 4": ("Llama4ForCausalLM", {}, IDS),
    "ModernBERT": ("ModernBertForMaskedLM", {}, IDS),
    "SmolLM3": ("SmolLM3ForCausalLM", {}, IDS),
    "OLMo-3": ("Olmo3ForCausalLM", {}, IDS),
    "MiniMax-M2": ("MiniMaxM2ForCausalLM", {}, IDS),
    "Phi-3": ("Phi3ForCausalLM", {}, IDS),
    "Jamba": ("JambaForCausalLM", dict(attn_layer_period=2, attn_layer_offset=1, use_mamba_kernels=False), IDS),
    "Bamba": ("BambaForCausalLM", dict(
        attn_layer_indices=[1], mamba_n_heads=8, mamba_d_head=12, mamba_n_groups=1), IDS),
    "Falcon-H1": ("FalconH1ForCausalLM", dict(mamba_n_heads=8, mamba_d_head=12, mamba_n_groups=1, mamba_d_ssm=96), IDS),
    "T5": ("T5ForConditionalGeneration", {}, IDS | {"decoder_input_ids": IDS["input_ids"][:, :5]}),
    "ViT": ("ViTForImageClassification", VISION, PIXELS),
    "DINOv3": ("DINOv3ViTModel", VISION, PIXELS),
    "Swin": ("SwinForImageClassification", dict(STAGES, patch_size=2), PIXELS),
    "Segformer": ("SegformerForSemanticSegmentation", dict(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 24], patch_sizes=[7, 3],
        strides=[4, 2], num_attention_heads=[2, 4], mlp_ratios=[2, 2], decoder_hidden_size=16), PIXELS),
    "CLIP": ("CLIPModel", dict(text_config=SIZES, vision_config=dict(TOWER, **VISION)), IDS | PIXELS),
    "SigLIP": ("SiglipModel", dict(text_config=SIZES, vision_config=dict(TOWER, **VISION)), IDS | PIXELS),
    "BLIP-2": ("Blip2ForConditionalGeneration", dict(
        vision_config=dict(TOWER, **VISION), qformer_config=QFORMER, text_config=OPT, num_query_tokens=4,
        image_token_index=63), PIXELS | {"input_ids": torch.cat([torch.full((2, 4), 63), IDS["input_ids"]], dim=1)}),
    "Whisper": ("WhisperModel", dict(num_mel_bins=8, max_source_positions=20), {
        "input_features": torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(0)),
        "decoder_input_ids": IDS["input_ids"]}),
    "Wav2Vec2": ("Wav2Vec2Model", dict(
        conv_dim=[16, 16], conv_stride=[5, 4], conv_kernel=[10, 8], num_feat_extract_layers=2,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2), SOUND),
}  # fmt: skip
SMALL = dict(img_size=32, depth=2)
TIMM: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": SMALL, "deit_tiny_distilled_patch16_224": SMALL, "deit3_small_patch16_224": SMALL,
    "beit_base_patch16_224": SMALL | dict(embed_dim=48, num_heads=6),
    "eva02_tiny_patch14_224": dict(img_size=28, depth=2),
    "cait_xxs24_224": SMALL, "swin_tiny_patch4_window7_224": dict(img_size=56, depths=(1, 1), num_heads=(3, 6)),
    "swinv2_tiny_window8_256": dict(img_size=64, depths=(1, 1), num_heads=(3, 6)), "pit_ti_224": dict(img_size=64),
    "visformer_tiny": dict(img_size=64), "levit_128s": dict(img_size=64), "mobilevit_xxs": {},
    "mvitv2_tiny": dict(img_size=64), "xcit_nano_12_p16_224": SMALL, "coat_lite_tiny": dict(img_size=64),
    "edgenext_xx_small": {},
}  # fmt: skip
REFUSED = {
    "visformer_tiny",
    "mvitv2_tiny",
    "xcit_nano_12_p16_224",
    "coat_lite_tiny",
    "edgenext_xx_small",
}  # named as not understood
NOTES = {"cait_xxs24_224": "maps are those after talking heads, whose rows need not sum to 1"}


def main() -> None:
    """Judge the families, write the report, and fail where one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these families")
    chosen = parser.parse_args().names
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    load_transformers().logging.set_verbosity_error()
    rows = []
    for name in chosen or [*FAMILIES, *TIMM]:
        try:
            rows.append((name, *judged(name, *built(name))))
        except Exception as error:  # an error of ours is a wrong answer
            rows.append((name, WRONG, f"{type(error).__name__}: {error}".splitlines()[0][:160]))
        print(*rows[-1], flush=True)
    if not chosen:
        text = "# Families of models: seen, gated, measured, removed, saved\n\n"
        write_report(__file__, text + markdown(("family", "verdict", "detail"), rows) + "\n")
    if any(verdict == WRONG for _, verdict, _ in rows):
        raise SystemExit("some are wrong")


def built(name: str) -> tuple[nn.Module, dict[str, Any], bool]:
    """A small model with random weights, its example, and whether it is of transformers."""
    torch.manual_seed(0)
    if name in TIMM:
        import timm

        model = timm.create_model(name, num_classes=5, **TIMM[name]).eval()
        return model, {"x": torch.randn(2, 3, *[TIMM[name].get("img_size", 64)] * 2)}, False
    transformers = load_transformers()
    kind, added, example = FAMILIES[name]
    make = getattr(transformers, kind)
    plain = make.config_class()
    known = {each for each in plain.to_dict() if not isinstance(getattr(plain, each, 0), list | dict)}
    sizes = {each: value for each, value in SIZES.items() if each in known} if "text_config" not in added else {}
    return make._from_config(make.config_class(**sizes | added)).eval(), dict(example), True


def judged(name: str, model: nn.Module, example: Mapping[str, Any], is_theirs: bool) -> tuple[str, str]:
    """Whether all that is said of a model is right, and a detail."""
    found = heads.of(model, *example.values()) if not is_theirs else heads.of(model, **example)
    if name in REFUSED:
        return ("named", next(iter(found.unknown.values()))[:100]) if found.unknown else (WRONG, "found, not refused")
    if not found.layers:
        return WRONG, "no heads found"
    if is_theirs and (off := distance_from_eager(model, found, example)) > 1e-5:
        return WRONG, f"maps are off by {off:.1e}"
    call = example if is_theirs else {}
    first, *_, last = [*found.layers, *found.layers]
    if is_theirs and max(distance_from_columns(model, found, one, call) for one in (first, last)) > 0:
        return WRONG, "a gate differs from columns of zeros"
    run = (lambda m: first_tensor(m(**example))) if is_theirs else (lambda m: m(example["x"]))
    loss = lambda m: run(m).double().square().flatten(start_dim=1).mean(dim=1)  # noqa: E731
    costs = found.leave_one_out(loss, layers=[first, last])
    with torch.no_grad():
        for layer in (first, last):
            with found.ablated({layer: [0]}):
                without = loss(model).mean()
            if abs(float(without - loss(model).mean()) - float(costs[layer][0])) > 1e-9:
                return WRONG, f"leave-one-out of {layer} is no brute force"
    detail = f"{len(found.layers)} layers" + (f"; {NOTES[name]}" if name in NOTES else "")
    importance = {first: torch.arange(found.layers[first].num_heads).double()}
    groups = found.layers[first].num_heads // found.layers[first].num_key_value_heads
    try:
        smaller, removal = found.remove(found.plan(importance, remove=groups, spare=0))
    except ValueError as error:
        return "right, cut refused", f"{detail}; {str(error)[:120]}"
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        heads.save_pruned(smaller, removal, Path(folder) / "cut")
        fresh = None if is_theirs else copy.deepcopy(model)
        again = heads.load_pruned(Path(folder) / "cut", model=fresh)
        if not torch.equal(run(again), run(smaller)):
            return WRONG, "what is loaded differs"
    return "right", detail


def distance_from_eager(model: nn.Module, found: FoundHeads, example: Mapping[str, Any]) -> float:
    """How far maps are from the nearest of the same shape that eager attention reports; 0 where it reports none."""
    eager: Any = copy.deepcopy(model)
    try:
        eager.set_attn_implementation("eager")
        with torch.no_grad():
            theirs = [X for X in attentions_in(eager(**example, output_attentions=True)) if X.dim() == 4]
    except Exception:  # a model without eager attention, or one that cannot report it
        return 0.0
    off = 0.0
    for weights in found.maps().values():
        for each in weights if weights.dim() == 5 else [weights]:
            alike = [(X - each).abs().max().item() for X in theirs if X.shape == each.shape]
            off = max(off, min(alike, default=0.0))
    return off


def attentions_in(output: Any) -> Iterator[Tensor]:
    """The attention weights anywhere in an output of transformers."""
    for name, part in output.items():
        if "attentions" in name:
            yield from (X for X in part if isinstance(X, Tensor))
        elif hasattr(part, "items"):
            yield from attentions_in(part)


if __name__ == "__main__":
    main()
