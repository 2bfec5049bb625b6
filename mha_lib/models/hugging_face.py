"""Hugging Face's transformers, which need not be installed: ``pip install ".[transformers]"``."""

import importlib
from types import ModuleType

from mha_lib.attention.torchvision_operators import import_beside_torchvision


def load_transformers() -> ModuleType:
    """Import Hugging Face's ``transformers``, beside a torchvision that was built for another torch, too.

    It imports torchvision where that is installed, later than its own import, and with an error that names another
    reason; therefore torchvision is imported first.

    Raises:
        ImportError: it is not installed; the message has the command.
    """
    try:
        import_beside_torchvision(lambda: importlib.import_module("torchvision"))
    except ImportError:  # then transformers does without it
        pass
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise ImportError(
            f'transformers could not be imported ({error}). Install it: python -m pip install ".[transformers]"'
        ) from error
