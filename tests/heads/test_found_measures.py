"""Measures on a loss of one's own, held against the library's for its own models."""

import gc
import weakref

import pytest
import torch
from head_models import TASK, encoder, examples
from on_device import DEVICE

from mha_course import heads
from mha_course.heads.measures import measured
from mha_lib.heads.importance import Importance


def made():
    """A model of two layers of three heads, six examples with padding, its heads, and its loss for each example."""
    model = encoder()
    batch = examples(model)

    def loss(model, batch):
        inputs, valid_lens, targets = batch
        return TASK.losses(model(inputs, valid_lens), targets).mean(dim=1)

    return model, batch, heads.of(model, batch.inputs, batch.valid_lens), loss


def loader(batch, sizes=(4, 2)):
    return list(zip(*(X.split(sizes) for X in (batch.inputs, batch.valid_lens, batch.targets)), strict=True))


def stacked(rows):
    return torch.stack(list(rows.values()))


def close(first, second):
    torch.testing.assert_close(first, second, rtol=0, atol=1e-9 if DEVICE.type == "cpu" else 1e-8)


@pytest.mark.parametrize("by", ["zero", "mean"])
def test_leave_one_out_over_batches_is_the_librarys(by):
    model, batch, found, loss = made()
    expected = measured(model, batch, TASK, "leave_one_out", by=by).cpu()
    costs = found.leave_one_out(loss, loader(batch), by)
    close(stacked(costs), expected)
    close(stacked(found.leave_one_out(lambda model, part: loss(model, part).mean(), loader(batch), by)), expected)
    close(stacked(found.leave_one_out(lambda model: loss(model, loader(batch, 6)[0]), by=by)), expected)
    name = [*found.layers][-1]
    assert found.leave_one_out(loss, loader(batch), by, layers=[name]).keys() == {name}
    # By example: those of each example alone.
    instead = found.means(loss, loader(batch)) if by == "mean" else None
    for number in range(6):
        alone = found.leave_one_out(loss, loader(batch, [1] * 6)[number : number + 1], instead=instead)
        close(stacked(costs.each)[..., number], stacked(alone))


def test_means_are_those_of_the_batches_and_give_way_to_others():
    _, batch, found, loss = made()
    part, others = loader(batch)
    own, theirs = found.means(loss, [part]), found.means(loss, [others])
    expected = stacked(found.leave_one_out(loss, [part], instead=own))
    close(stacked(found.leave_one_out(loss, [part], by="mean")), expected)
    given = stacked(found.leave_one_out(loss, [part], by="mean", instead=theirs))
    assert (given - expected).abs().max() > 1e-3


@pytest.mark.parametrize("sizes", [(4, 2), (1,) * 6, (6,)])
def test_resampling_takes_the_next_example_across_batches(sizes):
    model, batch, found, loss = made()
    expected = measured(model, batch, TASK, "leave_one_out", by="resample").cpu()
    close(stacked(found.leave_one_out(loss, loader(batch, sizes), "resample")), expected)
    with pytest.raises(ValueError, match="by='resample' takes the next example, and there is one alone"):
        found.leave_one_out(loss, loader(batch, (1, 5))[:1], "resample")


def test_positions_of_a_shorter_next_example_are_gone_through_again():
    model, batch, found, loss = made()
    name, (long, short) = next(iter(found.layers)), loader(batch, (1, 5))
    short = short[0][:, :3], short[1].clamp(max=3), short[2][:, :3]
    costs = found.leave_one_out(loss, [long, short], "resample", layers=[name])
    theirs = found.outputs(*short[:2])[name][:1]  # (1, h, q, d)
    instead = theirs[:, :, [0, 1, 2, 0, 1, 2, 0]].transpose(1, 2)[None]
    with torch.no_grad():
        whole = loss(model, long)
        with found.gates({name: torch.tensor([1.0, 0.0, 1.0])}, {name: instead}):
            close(costs.each[name][1, :1], (loss(model, long) - whole).double().cpu())


class Watched(list):
    """A loader that counts, whenever it is asked for a batch, earlier batches and tensors of their graphs alive."""

    def __iter__(self):
        given, self.alive, self.saved = [], [], weakref.WeakSet()
        for part in super().__iter__():
            gc.collect()
            self.alive.append((sum(one() is not None for one in given), len(self.saved)))
            part = [X.clone() for X in part]
            given += map(weakref.ref, part)
            yield part
            del part

    def pack(self, X):
        X = X.detach()  # an output that its own graph holds would never go
        self.saved.add(kept := lambda: X)
        return kept


@pytest.mark.cpu
@pytest.mark.parametrize("by", ["zero", "mean", "resample"])
def test_what_is_kept_does_not_grow_with_the_number_of_batches(by):
    _, batch, found, loss = made()
    parts = Watched(loader(batch, (1,) * 6))
    gc.collect()
    gc.freeze()  # what stands here before need not be searched for each batch
    for measure in (found.leave_one_out, found.gate_gradient):
        with torch.autograd.graph.saved_tensors_hooks(parts.pack, lambda kept: kept()):
            measure(loss, parts, by)
        most = 6 if by == "resample" else 3  # the tensors of the batch before; for the next example, of one more
        assert max(parts.alive) == (most, 0) and len(parts.alive) == 6, parts.alive
    gc.unfreeze()


def test_measures_take_means_that_leave_padding_out():
    model, batch, found, loss = made()
    means = found.means(loss, loader(batch))
    valid = lambda part: torch.arange(7) < 2 + 0 * part[1].cpu()[:, None]  # noqa: E731
    name, own = next(iter(found.layers)), found.means(loss, loader(batch), valid=valid)
    assert (own[name] - means[name]).abs().max() > 0.1
    for measure in (found.leave_one_out, found.gate_gradient):
        close(stacked(measure(loss, loader(batch), instead=means)), stacked(measure(loss, loader(batch), "mean")))
    costs = found.leave_one_out(loss, loader(batch), instead=own)[name]
    outputs = found.outputs(batch.inputs, batch.valid_lens)[name]  # (b, h, q, d)
    instead = outputs[:, :, :2].mean(dim=(0, 2))[None, None, None]
    with torch.no_grad():
        whole = loss(model, loader(batch, 6)[0])
        with found.gates({name: torch.tensor([1.0, 1.0, 0.0])}, {name: instead}):
            close(costs[2], (loss(model, loader(batch, 6)[0]) - whole).mean().double().cpu())


@pytest.mark.parametrize("signed", [True, False])
def test_gate_gradients_over_batches_are_the_librarys(signed):
    model, batch, found, loss = made()
    expected = measured(model, batch, TASK, "gate_gradient", signed=signed).cpu()
    close(stacked(found.gate_gradient(loss, loader(batch), signed=signed)), expected)
    mean = lambda model, part: loss(model, part).mean()  # noqa: E731
    close(stacked(found.gate_gradient(mean, loader(batch), signed=signed)), expected)
    one = lambda model: mean(model, loader(batch, 6)[0])  # noqa: E731
    close(stacked(found.gate_gradient(one, signed=signed)), expected)
    expected = measured(model, batch, TASK, "integrated_gradients", steps=3, signed=signed).cpu()
    close(stacked(found.integrated_gradients(loss, loader(batch), signed=signed, steps=3)), expected)


def test_gate_gradients_towards_the_mean_are_differences():
    model, batch, found, loss = made()
    towards, step = found.gate_gradient(loss, loader(batch), by="mean"), 1e-5
    name, substitutes = next(iter(found.layers)), found.substitutes("mean")
    for head in range(3):
        ends = []
        for sign in (1, -1):
            gates = torch.ones(3, dtype=torch.float64)
            gates[head] += sign * step
            with torch.no_grad(), found.gates({name: gates}, substitutes):
                ends.append(loss(model, loader(batch, 6)[0]).mean())
        expected = (ends[1] - ends[0]).cpu() / (2 * step)
        torch.testing.assert_close(towards[name][head], expected, rtol=1e-4, atol=1e-7)


def test_early_layers_are_computed_once_and_what_is_written_into_is_not_reused():
    model = encoder(num_layers=4)
    batch, counts = examples(model), []
    for number, block in enumerate(model.blocks.values()):
        forward = block.feed_forward.forward
        block.feed_forward.forward = lambda X, number=number, forward=forward: counts.append(number) or forward(X)
    found = heads.of(model, batch.inputs, batch.valid_lens)

    def loss(model, batch):
        return TASK.losses(model(batch.inputs, batch.valid_lens), batch.targets).mean(dim=1)

    expected = measured(model, batch, TASK, "leave_one_out").cpu()
    counts.clear()
    close(stacked(found.leave_one_out(loss, [batch])), expected)
    once = 2 + 1  # with all heads; and once more from the last layer on, to compare
    assert [counts.count(number) for number in range(4)] == [1 + 3, 1 + 6, 1 + 9, once - 1 + 12]
    # A block writes into the first and the last output of a module that it calls three times: none is right again.
    block, model.shared = model.blocks["layer 0"], torch.nn.Identity()
    forward, shared = block.forward, model.shared
    shared.forward = lambda X: X + 0.25
    written = lambda X: shared(shared(shared(X).mul_(1.5))).mul_(1.5)  # noqa: E731
    block.forward = lambda X, *rest, **named: forward(written(X), *rest, **named)
    costs = found.leave_one_out(loss, [batch])
    with torch.no_grad():
        whole = loss(model, batch)
        for name in found.layers:
            with found.ablated({name: [1]}):
                close(costs[name][1], (loss(model, batch) - whole).mean().double().cpu())


def test_intervals_are_those_of_examples_drawn_again():
    each = torch.randn(3, 40, dtype=torch.float64) + torch.arange(3)[:, None]
    weights = torch.ones(40, dtype=torch.float64)
    weights[0], each[:, 0] = 0, 50.0  # an example that does not count
    importance = Importance({"a": each}, {"a": weights})
    close(importance["a"], each[:, 1:].mean(dim=1))
    low, high = importance.intervals(draws=4000)["a"].T
    half = 1.96 * each[:, 1:].std(dim=1) / 39**0.5
    torch.testing.assert_close(importance["a"] - low, half, rtol=0.15, atol=0)
    torch.testing.assert_close(high - importance["a"], half, rtol=0.15, atol=0)
    with pytest.raises(ValueError, match="an interval needs two examples or more: let the loss give a number for each"):
        Importance({"a": each[:, :1]}, {"a": weights[:1]}).intervals()


def test_what_cannot_be_measured_is_named():
    _, batch, found, loss = made()
    with pytest.raises(ValueError, match=r"this generator is used up after one pass"):
        found.leave_one_out(loss, (part for part in loader(batch)))
    with pytest.raises(ValueError, match="batches is empty: there is nothing to measure on"):
        found.gate_gradient(loss, [])
    with pytest.raises(ValueError, match=r"batches must be several batches, got one Tensor: write \[batch\]"):
        found.leave_one_out(loss, batch.inputs)
    with pytest.raises(ValueError, match=r"loss is NaN on batch 1$"):
        found.leave_one_out(lambda model, part: loss(model, part) / (len(part[0]) == 4) * 0, loader(batch))
    with pytest.raises(ValueError, match=r"loss must be a mean, or a number for each example, \(batch,\); got \(4, 7"):
        found.leave_one_out(lambda model, part: TASK.losses(model(*part[:2]), part[2]), loader(batch))
    with pytest.raises(ValueError, match=r"loss must give a tensor with a gradient: without torch\.no_grad"):
        found.gate_gradient(lambda model, part: loss(model, part).detach(), loader(batch))
    with pytest.raises(ValueError, match=r"with signed=False, heads must come by example"):
        found.gate_gradient(lambda model, part: loss(model, part)[:3], loader(batch), signed=False)
