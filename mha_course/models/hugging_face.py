"""Hugging Face's transformers, which need not be installed: ``pip install "mha-course[transformers]"``."""

import importlib
from types import ModuleType

from mha_course.models import smollm2
from mha_lib.attention.torchvision_operators import import_beside_torchvision

THEIR_NAMES = {  # what a part is called in the file of weights, and in transformers
    r"token_embd": "model.embed_tokens",
    r"output_norm": "model.norm",
    r"blk\.(\d+)\.attn_norm": r"model.layers.\1.input_layernorm",
    r"blk\.(\d+)\.attn_([qkv])": r"model.layers.\1.self_attn.\2_proj",
    r"blk\.(\d+)\.attn_output": r"model.layers.\1.self_attn.o_proj",
    r"blk\.(\d+)\.ffn_norm": r"model.layers.\1.post_attention_layernorm",
    r"blk\.(\d+)\.ffn_(gate|up|down)": r"model.layers.\1.mlp.\2_proj",
}


def load_transformers() -> ModuleType:
    """Import and return Hugging Face's ``transformers``, even if the installed torchvision does not fit this torch.

    ``transformers`` imports torchvision where that is installed, later than its own import, and with an error that
    names another reason; therefore torchvision is imported first.

    Raises:
        ImportError: it is not installed; the message has the command.
    """
    try:
        import_beside_torchvision(lambda: importlib.import_module("torchvision"))
    except ImportError:  # then transformers does without it
        pass
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(
            f'transformers could not be imported ({error}). Install it: pip install "mha-course[transformers]"'
        ) from error


def smollm2_of_transformers():
    """Load the language model SmolLM2 as a ``LlamaForCausalLM`` of Hugging Face's transformers, in eval mode.
    Its weights come from the file that ``smollm2`` reads.

    ``LlamaForCausalLM.from_pretrained(folder, gguf_file=smollm2.FILE)`` gives the same model in three times the time.

    Raises:
        ImportError: transformers, the package of the weights, or gguf is not installed; the message has the command.
        ValueError: as in ``smollm2``.
    """
    transformers = load_transformers()
    file = smollm2.weights_file()
    config = transformers.LlamaConfig(
        vocab_size=smollm2.VOCAB_SIZE,
        hidden_size=smollm2.NUM_HIDDENS,
        intermediate_size=smollm2.FFN_NUM_HIDDENS,
        num_hidden_layers=smollm2.NUM_LAYERS,
        num_attention_heads=smollm2.NUM_HEADS,
        num_key_value_heads=smollm2.NUM_KEY_VALUE_HEADS,
        rms_norm_eps=smollm2.EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": smollm2.ROTATION_BASE},
        tie_word_embeddings=True,
    )
    model = transformers.LlamaForCausalLM(config)
    weights, head_size = smollm2.weights_in(file, THEIR_NAMES), smollm2.NUM_HIDDENS // smollm2.NUM_HEADS
    for name, weight in weights.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):  # rows of a pair are neighbours; there, halves
            weights[name] = weight.unflatten(0, (-1, head_size // 2, 2)).transpose(1, 2).flatten(end_dim=2)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights)
    return model.eval()
