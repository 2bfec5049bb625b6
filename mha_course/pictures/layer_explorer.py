"""One trained layer, live: its own projections, split into more or fewer heads."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import traitlets
from torch import Tensor, nn

from mha_course.language import listed, sentences, tr
from mha_course.models.any_layer import MAPS, linear_maps, num_heads_of
from mha_course.pictures.heat_maps import MOST_LABELS, beside, draw_maps, masked_keys, room_for
from mha_course.pictures.live import LivePicture, OneOf, Place, choice, pack, refuse, without_stars
from mha_course.pictures.picture import Canvas, signed
from mha_course.pictures.ring_explorer import many, percent
from mha_course.rounding import first_largest, rounded
from mha_lib.attention import MultiHeadAttention
from mha_lib.attention.converters import from_torch
from mha_lib.figures import grid_shape, labels

MOST_HEADS = 25
NAMES = "query_names", "key_names"


class LayerExplorer(LivePicture):
    """Show the attention maps of a layer in a widget, with sliders for ``num_heads`` and ``valid_lens``.

    With another number of heads the layer's projections are split anew, and not trained anew.

    Args:
        layer: its W_q and W_k are used; it is left as it is. An ``nn.MultiheadAttention`` will do, and any other layer
            with ``num_heads`` and the linear maps ``W_q, W_k, W_v, W_o``, such as a learner's.
        queries, keys: (batch, num_queries, query_size) and (batch, num_keys, key_size).
        query_names, key_names: names of the tokens, a list for each sequence; left out, their positions.
        accuracies: the accuracy of the layer's model by ``num_heads``, with the weights split, not trained anew; left
            out, none is told.
        splits: the numbers of heads that can be chosen; left out, all up to 25 that divide the layer's size.
        first: first values of the attributes.

    Attributes:
        num_heads: one of ``splits``.
        valid_lens: how many keys count, for each example; a tensor will do, it reads as a list.
        example, head, cell: the sequence that is shown, and what of it in large; cells are counted row by row.
            Left out, head and cell are where one head's weight exceeds most that of all others.

    Raises:
        TypeError: ``layer`` is of another kind.
        ValueError: queries or keys have a shape that does not fit, or there are not as many names as tokens.
    """

    module = "layer_explorer"

    num_heads, valid_lens = OneOf(lambda self: self.divisors), choice(traitlets.Any())
    example = Place(lambda self: len(self.tensors[0]))
    head = Place(lambda self: self.num_heads)
    cell = Place(lambda self: self.tensors[0].shape[1] * self.tensors[1].shape[1])

    def __init__(
        self,
        layer: nn.Module,
        queries: Tensor,
        keys: Tensor,
        *,
        query_names: Sequence[Sequence[str]] | None = None,
        key_names: Sequence[Sequence[str]] | None = None,
        accuracies: Mapping[int, float] | None = None,
        splits: Sequence[int] | None = None,
        **first: Any,
    ):
        if isinstance(layer, nn.MultiheadAttention):
            with torch.random.fork_rng(devices=()):
                layer = from_torch(layer)
        if not isinstance(layer, MultiHeadAttention):
            layer = _of_the_same_maps(layer)
        for name, X, projection in (("queries", queries, layer.W_q), ("keys", keys, layer.W_k)):
            if X.dim() != 3 or X.shape[-1] != projection.in_features or not X.numel():
                size = projection.in_features
                raise ValueError(f"{name} must have shape (batch, tokens, {size}), got {tuple(X.shape)}")
        if len(queries) != len(keys):
            raise ValueError(f"queries and keys must have one batch size, got {len(queries)} and {len(keys)}")
        self.layer, self.tensors = layer, (queries.detach(), keys.detach())
        tensors = {"W_q": layer.W_q.weight, "W_k": layer.W_k.weight, "queries": queries, "keys": keys}
        biases = {"b_q": layer.W_q.bias, "b_k": layer.W_k.bias}
        self.num_hiddens, num_keys = layer.W_q.out_features, keys.shape[1]
        self.divisors = list(splits or (n for n in range(1, MOST_HEADS + 1) if self.num_hiddens % n == 0))
        if any(self.num_hiddens % heads for heads in self.divisors) or layer.num_heads not in self.divisors:
            need = f"divide {self.num_hiddens}, and {layer.num_heads}, the layer's own, is one of them"
            raise ValueError(f"splits must be numbers of heads that {need}, got {self.divisors}")
        data = pack(tensors | {name: bias for name, bias in biases.items() if bias is not None}) | {
            "divisors": self.divisors,
            "trained": layer.num_heads,
            "accuracies": [accuracies[heads] for heads in self.divisors] if accuracies else [],
            "sizes": [len(queries), queries.shape[1], num_keys],
            "query_names": names_of("query_names", query_names, queries),
            "key_names": names_of("key_names", key_names, keys),
        }
        first = {"num_heads": layer.num_heads, "valid_lens": [num_keys] * len(keys), **first}
        super().__init__(tr("Heads of one layer"), data, **first)
        if not {"head", "cell"} & set(first):
            self.head, self.cell = self._standing_out()

    @classmethod
    def of_maps(cls, maps: Tensor, **first: Any) -> "LayerExplorer":
        """Show attention weights as they are; where fewer keys are chosen to be valid, theirs are normalised anew.

        Args:
            maps: of one layer, (batch, num_heads, num_queries, num_keys), such as
                ``mha_lib.heads.of(model, …).maps()["encoder.layer.0"]``; every row sums to 1.
            first: ``query_names``, ``key_names``, and first values of the attributes.

        Raises:
            ValueError: ``maps`` has another shape, or a row that does not sum to 1.
        """
        if not isinstance(maps, Tensor) or maps.dim() != 4 or not maps.numel():
            got = tuple(maps.shape) if isinstance(maps, Tensor) else type(maps).__name__
            raise ValueError(f"maps must be of one layer, (batch, num_heads, num_queries, num_keys), got {got}")
        maps = maps.detach().float().cpu()
        (_, h, _, k), sums = maps.shape, maps.sum(dim=-1)
        if wrong := ((sums - 1).abs() > 1e-2).nonzero().tolist():
            place = "example {}, head {}, query {}".format(*wrong[0])
            raise ValueError(
                f"maps must have rows that sum to 1, got {sums[tuple(wrong[0])].item():.2f} for {place}: leave out "
                "padding, or draw them by heatmaps, which takes rows with a sink or without a key"
            )
        # A layer with these weights: a query is the logarithms of its weights, and a key is a number.
        with torch.random.fork_rng(devices=()), torch.no_grad():
            layer = MultiHeadAttention(h * k, h, query_size=h * k, key_size=k, value_size=k)
            layer.W_q.weight.copy_(k**0.5 * torch.eye(h * k))
            layer.W_k.weight.copy_(torch.eye(k).repeat(h, 1))
        queries = maps.clamp(min=1e-30).log().transpose(1, 2).flatten(start_dim=2)
        return cls(layer, queries, torch.eye(k).expand(len(maps), k, k), splits=[h], **first)

    @traitlets.validate("valid_lens")
    def _validate_valid_lens(self, proposal):
        (batch, num_keys), value = self.tensors[1].shape[:2], proposal["value"]
        lengths = value.tolist() if isinstance(value, Tensor) else value
        fits = isinstance(lengths, list | tuple) and len(lengths) == batch
        if not fits or any(type(length) is not int or not 0 <= length <= num_keys for length in lengths):
            refuse("valid_lens", f"{batch} whole numbers from 0 to {num_keys}", value)
        return list(lengths)

    @traitlets.observe("num_heads")
    def _stay_among_the_heads(self, change):
        self.head = min(self.head, change["new"] - 1)

    def _standing_out(self) -> tuple[int, int]:
        """Find the head and the cell whose weight exceeds most that of every other head."""
        with torch.random.fork_rng(devices=()):  # the layer that computes them is made of random numbers at first
            weights = torch.from_numpy(rounded(self.weights()[self.example].flatten(1), 4))
        lead = weights.sort(dim=0, descending=True).values
        cell = first_largest(lead[0] - lead[1] if len(lead) > 1 else lead[0])
        return first_largest(weights[:, cell]), cell

    def weights(self) -> Tensor:
        """Return what torch makes of the present state: (batch, num_heads, num_queries, num_keys)."""
        (queries, keys), layer = self.tensors, _of_maps(linear_maps(self.layer, MAPS), self.num_heads)
        with torch.no_grad():
            values = torch.zeros(*keys.shape[:2], layer.W_v.in_features)
            layer(queries, keys, values, torch.tensor(self.valid_lens))
        return layer.attention_weights

    def draw(self) -> tuple[Canvas, str, str]:
        """Draw the maps of all heads on the chosen sequence."""
        weights, length = self.weights()[self.example], self.valid_lens[self.example]
        num_heads, num_queries, num_keys = weights.shape
        masks = [masked_keys(torch.tensor(length), num_queries, num_keys)] * num_heads
        names = self.data["query_names"][self.example], self.data["key_names"][self.example]
        longest, left = max(num_queries, num_keys), beside(names[0])
        side = max(130.0, 11 * min(longest, MOST_LABELS))  # a map's, so that its names fit each other
        wide = next((columns for columns in range(6, 1, -1) if room_for(columns, left) >= side * num_keys / longest), 1)
        _, columns = grid_shape(num_heads, wide)
        titles = [tr("head {head}", head=head) for head in range(num_heads)]
        side = min(side, room_for(columns, left) * longest / num_keys)
        canvas = draw_maps(list(weights), titles, columns, side, masks, names)
        query, key = divmod(self.cell, num_keys)
        for (x, y), (cell, _) in canvas.maps.items():
            canvas.box(x + key * cell - 2, y + query * cell - 2, cell + 3, cell + 3, line="text", thickness=2)
        largest = listed(map(signed, weights.amax(dim=(1, 2)).tolist()))
        words = {"heads": many(num_heads), "size": self.num_hiddens // num_heads}
        words |= {"example": self.example, "valid": length}
        if len(self.divisors) == 1 < self.num_hiddens:  # of maps, whose layer has features of no meaning
            state = (
                tr("{heads}; sequence {example} has 1 valid key.", **words)
                if length == 1
                else tr("{heads}; sequence {example} has {valid} valid keys.", **words)
            )
        else:
            state = (
                tr("{heads} of {size} features; sequence {example} has 1 valid key.", **words)
                if length == 1
                else tr("{heads} of {size} features; sequence {example} has {valid} valid keys.", **words)
            )
        most = tr("Largest weight of each head: {weights}.", weights=largest)
        told = [*self._split(), self._claim(weights)]
        claim = sentences([*(tr("{sentence}.", sentence=one) for one in told), self._beside(weights)])
        caption = sentences([claim, tr("This cell is framed in every head.")])
        return canvas, sentences([claim, state, most, tr("Hatched keys are masked.")]), caption

    def _split(self) -> list[str]:
        """The live picture's headline where the weights are split anew: into how many heads, and the accuracy then."""
        if self.num_heads == self.layer.num_heads:
            return []
        told = {"heads": many(self.num_heads), "trained": many(self.layer.num_heads)}
        if not self.data["accuracies"]:
            return [without_stars(tr("*{heads}*, split from weights trained as {trained}", **told))]
        told["share"] = percent(self.data["accuracies"][self.divisors.index(self.num_heads)])
        return [without_stars(tr("*{heads}*, split from weights trained as {trained}: *{share} right*", **told))]

    def _claim(self, weights: Tensor) -> str:
        """The headline otherwise: how much of its weight the query of the chosen cell gives to its key."""
        at, length = divmod(self.cell, weights.shape[2]), self.valid_lens[self.example]
        names = [self.data[which][self.example][place] for which, place in zip(NAMES, at, strict=True)]
        query, key = (
            f"{letter}{name}" if name == str(place) else tr("“{name}”", name=name)
            for letter, name, place in zip("qk", names, at, strict=True)
        )
        if not length:
            return without_stars(tr("With no valid key, every weight of every head is *0*"))
        if at[1] >= length:
            return without_stars(tr("*No head* attends to {key}: it is masked", key=key))
        told = {"head": self.head, "query": query, "key": key, "share": signed(100 * weights[self.head][at].item(), 0)}
        return without_stars(tr("Head {head}: {query} attends to {key} with *{share} %* of its weight", **told))

    def _beside(self, weights: Tensor) -> str:
        """What the other heads give to the same key; empty where that says nothing."""
        at, others = divmod(self.cell, weights.shape[2]), len(weights) - 1
        if not others or at[1] >= self.valid_lens[self.example]:
            return ""
        most = weights[[h for h in range(len(weights)) if h != self.head], at[0], at[1]].max()
        told = {"others": others, "share": signed(100 * most.item(), 0)}
        if others == 1:
            return tr("In the other head: {share} %.", **told)
        return tr("In the {others} other heads: at most {share} %.", **told)


def _of_the_same_maps(layer: nn.Module) -> MultiHeadAttention:
    """Return a layer of the library that projects queries and keys as a layer of another class, such as a learner's."""
    try:
        W_q, W_k, W_v, W_o = linear_maps(layer, MAPS)
    except TypeError as lacking:
        raise TypeError(
            "layer must be a MultiHeadAttention, an nn.MultiheadAttention or a layer with the linear maps "
            f"{', '.join(MAPS)}, got {type(layer).__name__}; of any other, LayerExplorer.of_maps shows the maps"
        ) from lacking
    return _of_maps((W_q, W_k, W_v, W_o), num_heads_of(layer))


def _of_maps(maps: Sequence[nn.Linear], num_heads: int) -> MultiHeadAttention:
    """Return a layer with these linear maps W_q, W_k, W_v and W_o, not copied, split into so many heads."""
    size, (query_size, key_size, value_size, _) = maps[0].out_features, (W.in_features for W in maps)
    with torch.random.fork_rng(devices=()):
        layer = MultiHeadAttention(size, num_heads, query_size=query_size, key_size=key_size, value_size=value_size)
    layer.W_q, layer.W_k, layer.W_v, layer.W_o = maps
    return layer.eval()


def names_of(what: str, names: Sequence[Sequence[str]] | None, X: Tensor) -> list[list[str]]:
    """Check the token names of each sequence in X and return them; if None, return the tokens' positions as names.

    Raises:
        ValueError: there is not one list for each sequence, or not one name for each token.
    """
    batch, tokens = X.shape[:2]
    given = labels(what, names or [None] * batch, batch)
    return [[str(name) for name in labels(what, own, tokens)] for own in given]
