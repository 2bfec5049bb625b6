"""The panel for layers that read piece by piece: who sees what, and that the right layer is let through."""

import pytest
import torch

from mha_course.models.induction import rope_cos_sin
from mha_course.museum import decoding_tests, layer_tests
from mha_course.museum.decoding_layer import DecodingLayer
from mha_lib import MultiHeadAttention


class MaskedAtFirst(DecodingLayer):
    def allowed(self, num_old, num_new):
        if num_old:
            return torch.ones(num_new, num_old + num_new, dtype=torch.bool)
        return super().allowed(num_old, num_new)


class FromTheTopLeft(DecodingLayer):
    def allowed(self, num_old, num_new):
        return super().allowed(num_old, num_new) & torch.ones(num_new, num_old + num_new, dtype=torch.bool).tril()


class NeverEmptied(DecodingLayer):
    def start(self, padding=0):
        self.padding = torch.as_tensor(padding)


class SharedInTurn(DecodingLayer):
    def share(self, X):
        return X.repeat(1, self.num_heads // self.num_key_value_heads, 1, 1)


class PlacesOfThePiece(DecodingLayer):
    def places(self, num_old, num_new):
        return torch.arange(num_new)


class TurnedInNeighbours(DecodingLayer):
    def rotate(self, X, places):
        cos, sin = rope_cos_sin(places, X.shape[-1])
        x, y = X[..., 0::2], X[..., 1::2]
        turned = torch.stack([x * cos - y * sin, x * sin + y * cos], dim=-1)
        return turned.flatten(-2).to(X.dtype)


class PaddingInTheCacheIsHeard(DecodingLayer):
    def allowed(self, num_old, num_new):
        allowed = super().allowed(num_old, num_new).clone()
        allowed[..., :num_old] = True
        return allowed


class PaddingIsHeardByTheNewTokens(DecodingLayer):
    def allowed(self, num_old, num_new):
        return torch.ones(num_new, num_old + num_new, dtype=torch.bool).tril(num_old)


class PaddingStaysBehind(DecodingLayer):
    def keep(self, rows):
        self.cache = tuple(X[rows] for X in self.cache)
        self.padding = self.padding[: len(rows)]


class FirstRowsGoOn(DecodingLayer):
    def keep(self, rows):
        self.cache = tuple(X[: len(rows)] for X in self.cache)
        self.padding = self.padding[rows]


class ValuesOfOtherRows(DecodingLayer):
    def keep(self, rows):
        K, V = self.cache
        self.cache = K[rows], V[: len(rows)]
        self.padding = self.padding[rows]


class RejectedAreBlank(DecodingLayer):
    def forget(self, number):
        for X in self.cache:
            X[:, :, X.shape[2] - number :] = 0


class AllForgottenWhereNoneIsRejected(DecodingLayer):
    def forget(self, number):
        self.cache = tuple(X[:, :, :-number] for X in self.cache)


class NothingForgotten(DecodingLayer):
    def forget(self, number):
        pass


class PlacesInBfloat16(DecodingLayer):
    def rotate(self, X, places):
        return super().rotate(X, places.to(X.dtype))


class RotatedInEveryPiece(DecodingLayer):
    def remember(self, K, V, places):
        if self.cache:
            K, V = (torch.cat([old, new], dim=2) for old, new in zip(self.cache, (K, V), strict=True))
        self.cache = self.rotate(K, torch.arange(K.shape[2])), V
        return self.cache


IN_PIECES, BESIDE_OTHERS = ["one by one", "pieces of 4, 3, 2"], ["behind padding", "some texts end"]
CAUGHT_BY = {
    MaskedAtFirst: ["pieces of 4, 3, 2", *BESIDE_OTHERS, "rejected guesses"],
    FromTheTopLeft: [*IN_PIECES, *BESIDE_OTHERS, "rejected guesses"],
    NeverEmptied: ["later tokens", *IN_PIECES, "a second text", *BESIDE_OTHERS, "rejected guesses", "bfloat16"],
    SharedInTurn: ["reference"],
    PlacesOfThePiece: [*IN_PIECES, *BESIDE_OTHERS, "rejected guesses"],
    TurnedInNeighbours: ["reference"],
    PaddingInTheCacheIsHeard: BESIDE_OTHERS,
    PaddingIsHeardByTheNewTokens: BESIDE_OTHERS,
    PaddingStaysBehind: ["some texts end"],
    FirstRowsGoOn: ["some texts end"],
    ValuesOfOtherRows: ["some texts end"],
    RejectedAreBlank: ["rejected guesses"],
    AllForgottenWhereNoneIsRejected: ["rejected guesses"],
    NothingForgotten: ["rejected guesses"],
    PlacesInBfloat16: ["bfloat16"],
    RotatedInEveryPiece: [*IN_PIECES, *BESIDE_OTHERS, "rejected guesses"],
}


class KeptUnrotated(DecodingLayer):
    def remember(self, K, V, places):
        if self.cache:
            K, V = (torch.cat([old, new], dim=2) for old, new in zip(self.cache, (K, V), strict=True))
        self.cache = K, V
        return self.rotate(K, torch.arange(K.shape[2])), V


class PlacesCountedFromTheText(DecodingLayer):
    def rotate(self, X, places):
        one_by_one = zip(X, (places - self.padding[:, None]).clamp(min=0), strict=True)
        return torch.stack([super(PlacesCountedFromTheText, self).rotate(x, p) for x, p in one_by_one])


@pytest.mark.parametrize("layer", [DecodingLayer, KeptUnrotated, PlacesCountedFromTheText])
def test_a_right_layer_passes_all(layer):
    nothing = dict.fromkeys(decoding_tests.TESTS, False)
    assert layer_tests.matrix({"right": layer}, decoding_tests.TESTS) == {"right": nothing}
    assert layer_tests.verdict(layer, decoding_tests.TESTS)


@pytest.mark.parametrize("layer", CAUGHT_BY)
def test_a_bug_is_caught_by_the_tests_that_can_see_it_and_by_no_others(layer):
    assert layer_tests.run(layer, decoding_tests.TESTS).caught_by == CAUGHT_BY[layer]


def test_it_is_the_layer_of_this_library_where_nothing_is_rotated():
    class Unturned(DecodingLayer):
        def rotate(self, X, places):
            return X

    layer, X = decoding_tests.layer_and_text(Unturned)
    ours = MultiHeadAttention(16, 4, query_size=16, key_size=16, value_size=16, num_key_value_heads=2)
    ours.load_state_dict(layer.state_dict())
    torch.testing.assert_close(decoding_tests.read(layer, X, [4, 3, 2]), ours(X, X, X, causal=True))
