"""Let torchvision be imported beside a torch of another build; `tools/install.py` puts this into the environments.

Such a torchvision, as the registry's beside a torch for CPUs alone, cannot load its operators, and its import fails
over the first one that is missing, with that of timm and of transformers' models. Where an index has a torchvision of
torch's own build, pip takes it (TORCH_INDEX_URL); elsewhere this declares the operators when torchvision is first
imported. What calls one of them still fails, and says so.

A line of a .pth file imports this whenever Python starts: it must cost nothing until torchvision is asked for.
"""

import sys

OPERATORS = []  # a library that is collected takes its operators with it


class Declare:
    """A finder that finds nothing: it sees the first import of the environment's own torchvision."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torchvision":
            from importlib.machinery import PathFinder
            from pathlib import Path

            spec, here = PathFinder.find_spec(name), Path(__file__).resolve().parent
            if spec is not None and spec.origin is not None and Path(spec.origin).resolve().parents[1] == here:
                sys.meta_path.remove(Declare)
                declare(Path(spec.origin).with_name("_C.so"))
        return None


def declare(extension):
    """Declare the operators that importing torchvision needs, if its extension does not load beside this torch."""
    import torch

    try:
        torch.ops.load_library(extension)
    except (ImportError, OSError):
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        OPERATORS.append(library)


sys.meta_path.insert(0, Declare)
