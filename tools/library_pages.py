"""Write what Sphinx makes the site's pages of the library from: a page for each room, of its docstrings.

What a room offers is what its door hands on, and what notebooks and README take from BEHIND the door.
"""

import importlib
import inspect

BEHIND = {
    "attention": {
        "converters": "loop_over_heads to_torch from_torch call_torch torch_masks to_d2l from_d2l call_d2l",
        "edge_cases": "behaviour_table as_text",
        "shape_trace": "trace_heads tagged_tokens count_copies",
    },
    "models": {
        "transformer": "TokenEmbedding PatchEmbedding Block",
        "induction": "sample_induction_batch held_out_repeats letter_losses",
        "positional": "shipped_positional_model train_positional right_letters",
        "pretrained": "minilm kept_maps kept_figures",
        "smollm2": "smollm2 NextToken",
        "next_words": "next_words kept_next_words",
    },
    "heads": {
        "ablation": "constant_patch hook_heads",
        "interactions": "most_redundant_pair frozen_downstream_costs direct_effects",
        "controls": "beside_chance mean_worth",
        "kept_columns": "SmallModelResults LanguageModelResults",
    },
    "pictures": {},
    "museum": {
        "layer_check": "check_layer assert_layer",
        "layer_tests": "Report run matrix verdict as_text build by_formula shape round_trip all_ones random_reference "
        "token_perturbation gradient ragged_batch",
        "editable_layer": "Layer AdditiveLayer",
        "decoding_layer": "DecodingLayer",
        "decoding_tests": "shape later_tokens in_pieces second_text reference behind_padding some_texts_end bfloat16",
        "bugs": "guess reveal score check_fix",
    },
    "exercises": {"setup_check": "check_setup"},
}
OF_EVERY_PICTURE = "draw, page_data, reply, still"  # for those who write one
INDEX = """# The library

`mha_lib`, from its docstrings; the code of the notebooks leads here. The layer and its parts can be imported from
`mha_lib` itself, everything else from its room:

```{{toctree}}
{rooms}
```
"""


def handed_on(door):
    """The names of the functions and classes that a room's door hands on."""
    return [name for name, value in vars(door).items() if inspect.isfunction(value) or inspect.isclass(value)]


def section(module, names, mark):
    """What autodoc shall show of a module, under a heading, in reStructuredText."""
    importlib.import_module(module)  # a wrong name is an error here, not an empty page
    lines = [module, mark * len(module), "", f".. automodule:: {module}"]
    options = [":imported-members:", ":ignore-module-all:", f":exclude-members: {OF_EVERY_PICTURE}"]
    options += [f":members: {', '.join(names)}"] if names else []
    return "\n".join([*lines, *(f"   {option}" for option in options), ""])


def write(folder):
    """Write the pages, one for each room, and their index."""
    folder.mkdir(parents=True)
    for room, behind in BEHIND.items():
        door = f"mha_lib.{room}"
        parts = [section(door, handed_on(importlib.import_module(door)), "=")]
        parts += [section(f"{door}.{module}", names.split(), "-") for module, names in behind.items()]
        (folder / f"{room}.rst").write_text("\n".join(parts), encoding="utf-8")
    (folder / "index.md").write_text(INDEX.format(rooms="\n".join(BEHIND)), encoding="utf-8")
