"""What 05 says: its block is torch's, its maps are right in any model, and mistakes cost what the solutions say."""

import inspect
import math
import re
import warnings

import pytest
import torch
from notebook_tools import ROOT, make_notebooks, text_of, told
from torch import nn
from torch.nn import functional as F

from mha_course import exercises
from mha_lib.attention import converters

STEM = "05_block_and_torch_layer"
SOLUTIONS = make_notebooks.read(ROOT / "notebooks" / "solutions" / f"{STEM}.ipynb")
REASONS = " ".join(cell.source for cell in SOLUTIONS.cells if "reason" in cell.metadata.get("tags", []))


@pytest.fixture(scope="module")
def section():
    """Everything that the story defines."""
    return told(STEM)


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_block_by_hand_is_torchs_in_both_orders(section, norm_first):
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(30, 5, 17, dropout=0.0, batch_first=True, norm_first=norm_first).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.4)
    X = torch.randn(3, 7, 30, dtype=torch.float64)
    by_hand = section["block_of"](X, layer, lambda Z: section["attend"](Z, layer.self_attn, section["thirds"]))
    torch.testing.assert_close(by_hand, layer(X), rtol=0, atol=1e-12)


def by_the_formula(layer, queries, keys, padding=None, later=None):
    """Maps of torch's layer, one head at a time, from its parameters; axes (batch, tokens, features)."""
    d, p = layer.embed_dim, layer.head_dim
    maps = []
    for head in range(layer.num_heads):
        rows = slice(head * p, (head + 1) * p)
        W_q, W_k, _ = (W[rows] for W in layer.in_proj_weight.split(d))
        b_q, b_k, _ = (b[rows] for b in layer.in_proj_bias.split(d))
        scores = (queries @ W_q.T + b_q) @ (keys @ W_k.T + b_k).mT / math.sqrt(p)
        for out in (None if padding is None else padding[:, None], later):
            scores = scores if out is None else scores.masked_fill(out, -math.inf)
        heights = (scores - scores.amax(dim=-1, keepdim=True)).exp()
        maps.append(heights / heights.sum(dim=-1, keepdim=True))
    return torch.stack(maps, dim=1)


def vision_transformer():
    """torchvision's: norms before, and a whole image of patches."""
    converters.load_d2l()  # declares what torchvision misses where it was built for another torch
    from torchvision.models import VisionTransformer

    model = VisionTransformer(image_size=24, patch_size=8, num_layers=2, num_heads=3, hidden_dim=24, mlp_dim=40)
    return model, (torch.randn(2, 3, 24, 24),), {}, "encoder.layers.encoder_layer_1.self_attention"


def encoder_and_decoder():
    """torch's, with padding and a causal mask."""
    model = nn.Transformer(24, 4, 2, 2, 40, dropout=0.0, batch_first=True)
    masks = {
        "tgt_mask": torch.ones(5, 5, dtype=torch.bool).triu(1),
        "memory_key_padding_mask": torch.arange(7) >= torch.tensor([[7], [4]]),
    }
    return model, (torch.randn(2, 7, 24), torch.randn(2, 5, 24)), masks, "decoder.layers.1.multihead_attn"


def graph_layer():
    """PyTorch Geometric's GPSConv: graphs of unequal size as a padded batch, a mask that it makes itself."""
    from torch_geometric.nn import GPSConv

    graph_of = torch.tensor([0] * 4 + [1] * 6)
    return GPSConv(24, None, heads=4), (torch.randn(10, 24), torch.empty(2, 0, dtype=torch.long), graph_of), {}, "attn"


def pooling_layer():
    """PyTorch Geometric's pooling by a set transformer: learned queries, which look at a graph's nodes."""
    from torch_geometric.nn.aggr import SetTransformerAggregation

    graph_of = torch.tensor([0] * 3 + [1] * 5)
    return SetTransformerAggregation(24, num_seed_points=2, heads=3), (torch.randn(8, 24), graph_of), {}, "pma.mab.attn"


@pytest.mark.parametrize("make", [vision_transformer, encoder_and_decoder, graph_layer, pooling_layer])
def test_maps_of_models_that_nobody_here_wrote(section, make):
    """Each map is held to the formula, on what its layer was given; and the model is left as it was."""
    torch.manual_seed(5)
    with warnings.catch_warnings():  # the strangers' own
        warnings.simplefilter("ignore")
        model, inputs, masks, checked = make()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
        model.eval()
        with torch.no_grad():
            maps, given = section["maps_of"](model, *inputs, **masks), {}
            layers = {name: part for name, part in model.named_modules() if isinstance(part, nn.MultiheadAttention)}
            for name, part in layers.items():
                part.register_forward_pre_hook(
                    lambda _, args, named, name=name: given.update({name: (args, named)}), with_kwargs=True
                )
            model(*inputs, **masks)
    assert list(maps) == list(layers) and checked in maps
    for name, part in layers.items():
        call = inspect.signature(part.forward).bind(*given[name][0], **given[name][1]).arguments
        padding, later = call.get("key_padding_mask"), call.get("attn_mask")
        padding, later = (mask if mask is None or mask.dtype == torch.bool else mask < 0 for mask in (padding, later))
        expected = by_the_formula(part, call["query"], call["key"], padding, later)
        assert maps[name].shape == expected.shape and maps[name].shape[1] == part.num_heads
        torch.testing.assert_close(maps[name], expected, rtol=0, atol=1e-6)
        assert len(part._forward_hooks) == 0 and len(part._forward_pre_hooks) == 1


class UsesItsWeights(nn.Module):
    """A model whose output depends on the weights that its layer returns: averaged, of each head, or none."""

    def __init__(self, *options, **named):
        super().__init__()
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.options, self.named = options, named

    def forward(self, X):
        result, weights = self.attention(X, X, X, *self.options, **self.named)
        return result if weights is None else result * (1 + weights.flatten().cumsum(0)[-2] + weights.dim())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((), {}),
        ((), {"average_attn_weights": False}),
        ((), {"need_weights": False}),
        ((None, False), {}),
        ((None, True, torch.eye(5, dtype=torch.bool)), {}),
        ((torch.arange(5) >= torch.tensor([[5], [3], [4]]), True, None, False), {}),
    ],
)
@pytest.mark.parametrize("shape", [(3, 5, 12), (5, 12)])
def test_a_model_computes_the_same_while_its_maps_are_taken(section, options, named, shape):
    torch.manual_seed(4)
    if len(shape) == 2 and options and options[0] is not None:
        options = (options[0][1], *options[1:])
    model, X, outputs = UsesItsWeights(*options, **named), torch.randn(shape), []
    with torch.no_grad():
        expected = model(X)
        hook = model.register_forward_hook(lambda _, args, output: outputs.append(output))
        maps = section["maps_of"](model, X)
        hook.remove()
        torch.testing.assert_close(outputs[0], expected, rtol=0, atol=1e-6)
        assert maps["attention"].shape == (*shape[:-2], 3, 5, 5)


def test_a_layer_without_a_call_is_an_error_in_a_compiled_model_too(section):
    model, X = nn.TransformerEncoderLayer(32, 8, batch_first=True).eval(), torch.randn(4, 6, 32)
    compiled = torch.compile(model, backend="eager")
    compiled(X)
    with pytest.raises(ValueError, match=r"no call was seen of \['_orig_mod.self_attn'\]: unused, or compiled before"):
        section["maps_of"](compiled, X)
    with torch.compiler.set_stance("force_eager"):
        maps = section["maps_of"](compiled, X)
    torch.testing.assert_close(maps["_orig_mod.self_attn"], section["maps_of"](model, X)["self_attn"])
    model.unused = nn.MultiheadAttention(8, 2)
    with pytest.raises(ValueError, match=r"no call was seen of \['unused'\]"):
        section["maps_of"](model, X)


def test_a_guess_gets_the_share_that_stands_beside_the_block_without_its_sums(section):
    ids, answers = section["ids"], section["answers"]
    guesses = ids[..., 0].mode(dim=1).values[:, None, None].repeat(1, 12, 5)
    guesses[..., 4] = 6
    assert f"A guess from the row's values has accuracy {(guesses == answers).float().mean():.2f}" in text_of(STEM)


def test_a_mask_repeated_the_wrong_way_is_that_of_another_text_for_nearly_every_head():
    given = torch.arange(512)[:, None].repeat(4, 1).view(512, 4)
    assert (given == torch.arange(512)[:, None]).float().mean() < 0.01


def written(section, encoded, padding, later=None):
    """What the decoder writes."""
    masks = {"tgt_mask": section["later"] if later is None else later, "memory_key_padding_mask": padding}
    with torch.no_grad():
        return section["translator"].output(section["decode"](section["Y"], encoded, **masks))


def share_whole(section, output):
    dates = section["dates"]
    return dates.correct(output, dates.held_out.targets).all(dim=1).float().mean().item()


def with_maps(section, program):
    """The dates that come out whole if the encoder's maps are a program's."""
    encode, X, padding = section["encode"], section["T"], section["padding"]
    attention = encode.self_attn
    maps = program(X, attention.in_proj_weight, attention.in_proj_bias, 4, padding)
    maps = maps if maps.dim() == 4 else maps[:, None].expand(-1, 4, -1, -1)
    values = F.linear(X, attention.in_proj_weight, attention.in_proj_bias).chunk(3, -1)[2]
    heard = (maps @ values.unflatten(-1, (4, -1)).transpose(1, 2)).transpose(1, 2).flatten(2)
    encoded = section["block_of"](X, encode, lambda _: attention.out_proj(heard))
    return share_whole(section, written(section, encoded, padding))


def test_dates_padded_on_the_left_come_out_as_other_dates_if_positions_are_columns(section):
    dates, model, lengths, embed = (section[name] for name in ("dates", "translator", "lengths", "embed"))
    X = (embed.tokens(section["left"]) + embed.positions[section["positions"]["column"]]).detach()
    padding = section["left_padding"]
    out = written(section, section["encode"](X, src_key_padding_mask=padding), padding)
    assert f"only {share_whole(section, out):.2f} of the dates are right" in text_of(STEM)
    number = [day.strftime(notation) for day, notation in dates.held_out_dates].index("04/12/26")
    one = dates.held_out[number : number + 1]
    told_dates = [
        "".join(dates.target_characters[c] for c in output.argmax(dim=-1))
        for output in (out[number], model(one.inputs, one.valid_lens)[0])
    ]
    assert "`04/12/26` is read as {} instead of {}.".format(*told_dates) in text_of(STEM)
    whole = dates.correct(out, dates.held_out.targets).all(dim=1)
    assert whole[lengths == 18].all() and not whole[lengths == 8].any()


TOLD = [  # the beginning of what is said of a mistake in every_map, the share that its solution names
    ("W_q and W_k have changed places", 0.49),
    ("The rows are read head by head", 0.24),
    ("The heads are averaged, as by default", 0.73),
    ("Masked scores become 0", 1.00),
    ("W_q's bias is missing", 1.00),
    ("The scores are divided by √num_hiddens", 1.00),
]


@pytest.mark.parametrize(("begins", "share"), TOLD)
def test_what_a_mistake_costs_is_what_its_solution_says(section, begins, share):
    (program,) = {text: program for text, program in exercises.every_map.mistakes if text.startswith(begins)}.values()
    assert with_maps(section, program) == pytest.approx(share, abs=0.006)
    assert share in (0.0, 1.0) or re.search(rf"(?<!\d){share:.2f}", REASONS)


def test_right_maps_cost_nothing(section):
    assert with_maps(section, exercises.every_map.right) > 0.998
