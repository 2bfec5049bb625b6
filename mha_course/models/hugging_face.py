"""Hugging Face's transformers, which need not be installed: ``pip install "mha-course[transformers]"``."""

import importlib
from types import ModuleType

from mha_course.models import smollm2
from mha_lib.attention.torchvision_operators import import_beside_torchvision


def load_transformers() -> ModuleType:
    """Import and return Hugging Face's ``transformers``, even if the installed torchvision does not fit this torch.

    ``transformers`` imports torchvision where that is installed, later than its own import, and with an error that
    names another reason; therefore torchvision is imported first.

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
            f'transformers could not be imported ({error}). Install it: pip install "mha-course[transformers]"'
        ) from error


def smollm2_of_transformers():
    """Load the language model SmolLM2 as a ``LlamaForCausalLM`` of Hugging Face's transformers, in eval mode.
    Its weights come from the file that ``smollm2`` reads.

    Raises:
        ImportError: transformers, the package of the weights, or gguf is not installed; the message has the command.
        ValueError: as in ``smollm2``.
    """
    transformers = load_transformers()
    smollm2.weights_file()  # which says what is missing or damaged
    folder = smollm2.PACKAGE.find(smollm2.FILE).parent
    return transformers.LlamaForCausalLM.from_pretrained(folder, gguf_file=smollm2.FILE).eval()
