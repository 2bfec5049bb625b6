"""Layers by other hands: those of public models are called right, by their variants; wrong ones never."""

import pytest
import wrong_by_rule
from public_layers import PUBLIC

from mha_course.exercises import check_layer

pytestmark = [pytest.mark.usefixtures("in_this_process"), pytest.mark.quarter]


@pytest.mark.parametrize("model", PUBLIC)
def test_a_public_layer_is_right_and_its_variant_is_told(model):
    handed, words = PUBLIC[model]
    verdict = check_layer(**handed)
    assert verdict, verdict
    assert [word for word in words if word not in verdict.text] == [], verdict


@pytest.mark.parametrize("kind", wrong_by_rule.KINDS)
def test_a_layer_that_the_rules_change_is_right_before(kind):
    verdict = check_layer(wrong_by_rule.layer(kind))
    assert verdict, verdict


@pytest.mark.long
def test_wrong_layers_by_rule_are_never_called_right_and_mostly_named():
    states, named, told = [], [], []
    for kind, old, new, words in wrong_by_rule.WRONG:
        verdict = check_layer(wrong_by_rule.layer(kind, old, new))
        states.append(verdict.state)
        named.append(verdict.state == "wrong" and any(word in verdict.text for word in words))
        told += [f"{kind}: {new}: {verdict.state}: {verdict.text}"] * (not named[-1])
    print(f"{len(states)} wrong layers, {sum(named)} named", *told, sep="\n")
    assert len(states) >= 80 and set(states) == {"wrong"} and sum(named) >= 0.7 * len(named)
