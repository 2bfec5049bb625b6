"""Files that ship inside the library: trained weights, attention maps, results of long runs."""

from importlib.resources import files


def package_data(path: str, made_by: str) -> bytes:
    """The bytes of a file inside the library, for the functions that hand its data to the notebooks.

    Args:
        path: where it lies below ``mha_lib``, such as "models/weights/digits.safetensors".
        made_by: the command that makes the file, for the error.

    Raises:
        FileNotFoundError: this copy of the library lacks the file; the message says how to get it.
    """
    file = files("mha_lib").joinpath(*path.split("/"))
    if not file.is_file():
        raise FileNotFoundError(
            f"mha_lib/{path} is missing from this copy of mha_lib. Install mha_lib again, or make the file: run "
            f"`{made_by}` in its repository"
        )
    return file.read_bytes()
