"""Models without some of their heads, saved and loaded: equal to the last bit, or refused by name."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_found_removal import Model, made

from mha_lib import heads

PLAN = {"layers.0": [2, 3], "layers.1": [1, 2]}


def saved(folder):
    model, ids, found = made()
    model.embed.register_buffer("scale", torch.rand(3), persistent=False)
    smaller, removal = found.remove(PLAN)
    heads.save_pruned(smaller, removal, folder)
    return smaller, ids, removal


def fresh(seed=3):
    torch.manual_seed(seed)
    model = Model().eval()
    model.embed.register_buffer("scale", torch.zeros(3), persistent=False)
    return model


def test_what_is_loaded_is_equal_and_ties_and_buffers_come_along(tmp_path):
    smaller, ids, _ = saved(tmp_path / "new" / "folder")
    whole = fresh()
    again = heads.load_pruned(tmp_path / "new" / "folder", model=whole)
    assert torch.equal(again(ids).X, smaller(ids).X) and torch.equal(again.embed.scale, smaller.embed.scale)
    assert again.layers[0].out.in_features == 6 and whole.layers[0].out.in_features == 12
    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} == {
        "README.md", "config.json", "pruned.safetensors",
    }  # fmt: skip
    entry = json.loads((tmp_path / "new" / "folder" / "config.json").read_text())["mha_lib"]
    assert entry["plan"] == PLAN and entry["base_class"].endswith("Model")
    assert entry["sizes"]["layers.0.num_heads"] == [4, 2]
    assert 'load_pruned(".", model=Model(…))' in (tmp_path / "new" / "folder" / "README.md").read_text()


def test_tied_parameters_stay_tied(tmp_path):
    model, ids, _ = made()
    model.layers[1].out.bias = model.layers[0].out.bias
    smaller, removal = heads.of(model, ids).remove(PLAN)
    heads.save_pruned(smaller, removal, tmp_path)
    again = heads.load_pruned(tmp_path, model=Model().eval())  # where they are not
    for each in (smaller, again):
        assert each.layers[0].out.bias is each.layers[1].out.bias
    assert torch.equal(again(ids).X, smaller(ids).X)


def test_means_in_a_new_bias_are_loaded(tmp_path):
    def without_bias(model):
        for layer in model.layers:
            layer.out.register_parameter("bias", None)
        return model

    model, ids, _ = made()
    found = heads.of(without_bias(model), ids)
    smaller, removal = found.remove(PLAN, instead=found.means())
    heads.save_pruned(smaller, removal, tmp_path)
    again = heads.load_pruned(tmp_path, model=without_bias(Model()))
    assert torch.equal(again(ids).X, smaller(ids).X) and not again.training


def test_what_does_not_belong_together_is_named(tmp_path):
    smaller, ids, removal = saved(tmp_path)
    _, other = heads.of(fresh(), ids).remove({"layers.0": [2, 3]})
    with pytest.raises(ValueError, match=r"removal is of another model: layers\.0\.into.* must have shape"):
        heads.save_pruned(fresh(), removal, tmp_path)
    with pytest.raises(ValueError, match=r"into\.bias has shape \(12,\) in the model and had \(24,\)"):
        heads.load_pruned(tmp_path, model=smaller)
    weights, config = load_file(tmp_path / "pruned.safetensors"), json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "pruned.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"lacks pruned\.safetensors, which save_pruned writes"):
        heads.load_pruned(tmp_path, model=fresh())
    save_file({**weights, "extra.weight": torch.ones(2)}, tmp_path / "pruned.safetensors")
    with pytest.raises(ValueError, match=r"extra\.weight is not in the model$"):
        heads.load_pruned(tmp_path, model=fresh())
    save_file({name: X for name, X in weights.items() if name != "embed.weight"}, tmp_path / "pruned.safetensors")
    with pytest.raises(ValueError, match=r"embed\.weight is not in pruned\.safetensors$"):
        heads.load_pruned(tmp_path, model=fresh())
    save_file(weights, tmp_path / "pruned.safetensors")
    config["mha_lib"]["shapes"] = {name: list(shape) for name, shape in other.shapes.items()}  # another plan
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ValueError, match=r"layers\.1\.into\.bias has shape \(18,\) in pruned.safetensors, the plan needs"
    ):
        heads.load_pruned(tmp_path, model=fresh())
    config["mha_lib"]["sizes"]["layers.1.num_heads"] = [5, 2]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"layers\.1\.num_heads is 4 in the model and was 5"):
        heads.load_pruned(tmp_path, model=fresh())
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="has no entry mha_lib: it was not written by save_pruned"):
        heads.load_pruned(tmp_path, model=fresh())
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(FileExistsError, match=r"folder must be new or empty, .* holds model\.safetensors"):
        heads.save_pruned(smaller, removal, tmp_path)


def test_no_class_but_those_of_transformers_is_imported_by_its_name(tmp_path):
    saved(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["mha_lib"] |= {"base_class": "os.system", "config": {}, "attention": None, "generation": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"os\.system is no model of transformers"):
        heads.load_pruned(tmp_path)
