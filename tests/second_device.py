"""A second device that is pretended on the CPU: real numbers, and an error wherever tensors of two devices meet."""

import sys
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

AWAY = torch.device("lazy", 0)  # a device that torch knows by name alone
MAY_MIX = ("_to_copy", "copy_", "index", "index_put_", "_index_put_impl_")  # as on a GPU: copies, and indices
FROM_LISTS = (torch.tensor, torch.as_tensor, torch.asarray)


class Away(Tensor):
    """A tensor that says it is away; its numbers are those of ``here``, on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, here: Tensor):
        layout = here.size(), here.stride(), here.storage_offset()
        made = Tensor._make_wrapper_subclass(cls, *layout, dtype=here.dtype, device=AWAY)
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})

    def __repr__(self):
        return f"away({self.here})"

    def __deepcopy__(self, memo):
        copied = Away(self.here.clone())
        is_parameter = isinstance(self, torch.nn.Parameter)
        memo[id(self)] = torch.nn.Parameter(copied) if is_parameter else copied
        return memo[id(self)].requires_grad_(self.requires_grad)


def run(function, args, kwargs):
    """One operation of torch: on the CPU, and refused where a GPU would refuse it."""
    name, wanted = function.overloadpacket.__name__, kwargs.get("device")
    goes_away = wanted is not None and torch.device(wanted).type == "lazy"
    given = list(tree_iter((args, kwargs)))
    if not goes_away and not any(isinstance(X, Away) for X in given):
        return function(*args, **kwargs)
    for X in given:
        is_here = isinstance(X, Tensor) and X.dim() and not isinstance(X, Away) and name not in MAY_MIX
        if is_here or isinstance(X, torch.Generator):
            raise RuntimeError(f"{name}: a {type(X).__name__} of the CPU meets the second device")
    here_args, here_kwargs = tree_map_only(Away, lambda X: X.here, (args, kwargs))
    if wanted is not None:
        here_kwargs["device"] = "cpu"
    result = function(*here_args, **here_kwargs)
    if name == "_local_scalar_dense" or not function._schema.returns:
        return result
    if wanted is not None and not goes_away:
        return result.clone()
    if "out" in kwargs or (name.endswith("_") and not name.endswith("__")):  # in place
        return kwargs.get("out", args[0])
    return tree_map_only(Tensor, lambda X: X if isinstance(X, Away) else Away(X), result)


class Operations(TorchDispatchMode):
    """Those that make tensors away out of none."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return run(function, args, kwargs or {})


class Calls(TorchFunctionMode):
    """What torch does in C before any operation runs, and does not know how to do for this device."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in FROM_LISTS and not isinstance(args[0], Tensor):
            args = tree_map_only(Away, lambda X: X.here, args)
            return function(*args, **kwargs | {"device": "cpu"}).to(kwargs.get("device"))
        if isinstance(args[0] if args else None, Away):
            if function in (Tensor.__getitem__, Tensor.__setitem__):
                args = args[0], tree_map_only(list, _index, args[1], is_leaf=lambda i: isinstance(i, list)), *args[2:]
            if function is Tensor.numpy:
                raise TypeError("can't convert lazy device type tensor to numpy")
            if function is Tensor.tolist:
                return args[0].detach().cpu().tolist()
        return function(*args, **kwargs)


def _index(numbers: list) -> Tensor:
    return torch.tensor(numbers, dtype=None if numbers else torch.long).to(AWAY)


@contextmanager
def pretend():
    """Within, there is a second device: ``AWAY``."""
    optimizers = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the name
    fused_on = optimizers._get_fused_kernels_supported_devices
    with (
        mock.patch.object(optimizers, "_get_fused_kernels_supported_devices", lambda: [*fused_on(), AWAY.type]),
        # A module that moves gets new parameters: its old ones cannot become tensors of another class.
        mock.patch.object(torch.__future__, "_overwrite_module_params_on_conversion", True),
        mock.patch.object(torch.accelerator, "synchronize", lambda device=None: None),  # nothing to wait for
        Operations(),
        Calls(),
    ):
        yield
