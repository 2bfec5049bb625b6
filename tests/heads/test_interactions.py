"""Natural twins are found, frozen heads say what they said, and who hears a head is told by its absence."""

import copy

import pytest
import torch
from head_models import TASK, encoder, examples
from on_device import DEVICE

from mha_course import heads
from mha_course.heads.interactions import direct_effects, frozen_downstream_costs, most_redundant_pair
from mha_course.models import find_task, shipped_model


@pytest.fixture(scope="module")
def case():
    task = find_task("lookups")
    return shipped_model("lookups"), task.held_out[:64].to(DEVICE), task


def without(case, *gone):
    model, batch, task = case
    gates = torch.ones(2, 6)
    for place in gone:
        gates[place] = 0
    return task.accuracy(model, batch, gates)


def test_twins_are_the_pair_that_hides_most(case):
    found = most_redundant_pair(*case)
    whole = without(case)
    hidden = {}
    for one in range(6):
        for other in range(one + 1, 6):
            singles = 2 * whole - without(case, (0, one)) - without(case, (0, other))
            hidden[one, other] = whole - without(case, (0, one), (0, other)) - singles
    assert tuple(found["heads"]) == max(hidden, key=hidden.get)
    one, other = found["heads"]
    assert found["alone"] == pytest.approx([whole - without(case, (0, one)), whole - without(case, (0, other))])
    assert found["together"] == pytest.approx(whole - without(case, (0, one), (0, other)))


def test_later_heads_that_nobody_hears_make_no_difference(case):
    """With the second layer's columns of W_o at 0, free and frozen are the same."""
    model, batch, task = case
    deaf = copy.deepcopy(model)
    deaf.attentions[1].W_o.weight.data.zero_()
    found = frozen_downstream_costs(deaf, batch, task)
    torch.testing.assert_close(found["free"], found["frozen"], rtol=0, atol=1e-6)
    assert found["free"].abs().max() > 0.01


def test_heads_that_are_heard_only_through_later_ones_cost_nothing_when_these_are_frozen(case):
    model, batch, task = case
    found = frozen_downstream_costs(model, batch, task)
    gates = torch.ones(7, 2, 6)
    gates[1:, 0] -= torch.eye(6)
    losses = heads.evaluate(model, batch, task, gates).loss
    torch.testing.assert_close(found["free"], losses[1:] - losses[0], rtol=0, atol=1e-5)
    assert found["free"][2] > 0.3 and found["frozen"][2].abs() < 0.01  # head 2 counts, and later heads pass it on


def test_a_head_is_heard_by_all_later_heads_together_and_by_each_in_part():
    model = encoder(num_layers=3, num_heads=2)
    batch = examples(model)
    later = [(block, head) for block in (1, 2) for head in (0, 1)]

    def losses(*changed, gates=None):
        """With words of chosen heads put in place by hand."""

        def put(block):
            def hook(module, arguments, output):
                output = output.clone()
                for head, words in ((head, words) for place, head, words in changed if place == block):
                    output[:, head] = words
                return output

            return model.attentions[block].attention.register_forward_hook(hook)

        hooks = [put(block) for block in range(3)]
        with torch.no_grad():
            found = TASK.losses(model(batch.inputs, batch.valid_lens, gates), batch.targets)
        for hook in hooks:
            hook.remove()
        return found

    gone = torch.ones(3, 2)
    gone[0, 1] = 0
    in_model = heads.of(model, batch.inputs, batch.valid_lens)
    whole = [*in_model.outputs().values()]
    with in_model.ablated({next(iter(in_model.layers)): [1]}):
        lacking = [*in_model.outputs().values()]
    for listeners in ([(1, 0)], later):
        found = direct_effects(model, batch, TASK, (0, 1), listeners)
        torch.testing.assert_close(found["whole"], losses())
        torch.testing.assert_close(found["cut"], losses(gates=gone))
        frozen = [(block, head, whole[block][:, head]) for block, head in listeners]
        misled = [(block, head, lacking[block][:, head]) for block, head in listeners]
        torch.testing.assert_close(found["frozen"], losses(*frozen, gates=gone))
        torch.testing.assert_close(found["misled"], losses(*misled))
        assert not torch.allclose(found["frozen"], found["cut"]) and not torch.allclose(found["misled"], found["whole"])
    free_and_frozen = frozen_downstream_costs(model, batch, TASK)
    cost = found["frozen"].double().mean() - found["whole"].double().mean()
    torch.testing.assert_close(cost, free_and_frozen["frozen"][1])
