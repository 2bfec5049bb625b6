"""Run the notebooks in place and save them in one fixed form: running them again changes no byte.

    python -m tools.notebooks                          every notebook under notebooks/
    python -m tools.notebooks notebooks/03_*.ipynb     only these

A notebook runs in its own folder, on this interpreter, with one thread. Where a cell raises or writes to
stderr, the message names it, the file stays as it was and the exit status is 1. Before a notebook runs, its first
code cell is written (see first_cell.py), and its stub cells are made from the notebook of the same name in
``solutions/``, whose answers are the library's (see stubs.py). The fixed form:

- cell ids are ``<file stem>-NN``, given once and never renumbered, so that a diff shows only what changed;
- no widget state, no progress bars, no times, no metadata but KEPT_CELL_METADATA;
- a cell tagged ``timed`` keeps the measured times that it was saved with while its code is the same;
- an expected error keeps its message, not the frames, which show paths of the machine it ran on.
"""

import argparse
import os
import re
import sys
import time
from pathlib import Path

import nbformat
from ipykernel.kernelspec import RESOURCES, get_kernel_dict
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError

from tools import first_cell, stubs
from tools.languages import LANGUAGES

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
PATIENCE = 3600  # seconds to wait for the kernel itself; a cell may take as long as it needs
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
FOLDS = "jp-MarkdownHeadingCollapsed"  # what stands under such a heading is folded
KEPT_CELL_METADATA = ("tags", "jupyter", "collapsed", "nbgrader", "alt", FOLDS)
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    },
}


class NotebookError(Exception):
    """A notebook that did not run cleanly; the message names the cell."""


class OwnKernel(AsyncKernelManager):
    """A kernel on this interpreter, whatever kernels the user's home holds under the same name."""

    @property
    def kernel_spec(self):
        return KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())


def all_notebooks():
    """The paths of the course's notebooks, without JupyterLab's copies, translations, and those ``elsewhere`` runs."""
    others = {".ipynb_checkpoints", "elsewhere", *LANGUAGES}
    return sorted(path for path in NOTEBOOKS.glob("**/*.ipynb") if others.isdisjoint(path.parts))


def of_the_course():
    """The paths of the numbered notebooks, in order."""
    return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def numbered(number):
    """The notebook with this number, and the name of its file."""
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    return read(path), path.name


def read(path):
    """The notebook at ``path``, not validated: missing and repeated cell ids are mended by ``set_ids``."""
    return nbformat.v4.reads(Path(path).read_text(encoding="utf-8"))


def refuse_faults(notebook):
    """Raise NotebookError where a notebook that has run holds an error that it does not expect, or a warning."""
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                raise NotebookError(f"cell {index} ({cell.id}) failed\n{output.ename}: {output.evalue}")
            if output.get("name") == "stderr":
                raise NotebookError(f"cell {index} ({cell.id}) writes to stderr\n{output.text}")


def execute(notebook, folder, env, kernel_manager_class=OwnKernel):
    """Run every code cell in a fresh kernel and store the outputs in ``notebook``.

    Args:
        folder: the kernel's working directory.
        env: the kernel's environment variables.
        kernel_manager_class: what starts the kernel.

    Raises:
        NotebookError: a cell raises (unless it is tagged ``raises-exception``), kills the kernel or writes to
            stderr.
    """
    client = NotebookClient(
        notebook,
        kernel_manager_class=kernel_manager_class,
        resources={"metadata": {"path": str(folder)}},
        timeout=None,
        startup_timeout=PATIENCE,
        iopub_timeout=PATIENCE,
        raise_on_iopub_timeout=True,
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
    )
    with client.setup_kernel(env=env):
        for index, cell in enumerate(notebook.cells):
            try:
                client.execute_cell(cell, index)
            except (CellControlSignal, DeadKernelError) as error:
                raise NotebookError(f"cell {index} ({cell.id}) failed\n{error}") from error
            for output in cell.get("outputs", []):
                if output.get("name") == "stderr":
                    raise NotebookError(f"cell {index} ({cell.id}) writes to stderr\n{output.text}")


def clean_environment():
    """Environment variables for one thread, and for notebooks that neither read nor change what anybody has kept.

    Worked answers are on: the saved page of 00 shows its complete class.
    """
    return os.environ | {"OMP_NUM_THREADS": "1", "MHA_PROGRESS": "off", "MHA_SOLUTIONS": "", "MHA_LANGUAGE": ""}


def set_ids(cells, stem):
    """Keep the first use of every id ``<stem>-NN``; all other cells get the next free numbers, in order."""
    kept: dict[str, nbformat.NotebookNode] = {}
    for cell in cells:
        if re.fullmatch(rf"{re.escape(stem)}-\d\d+", cell.get("id", "")):
            kept.setdefault(cell.id, cell)
    last = max((int(cell_id.rpartition("-")[2]) for cell_id in kept), default=0)
    for cell in cells:
        if kept.get(cell.get("id")) is not cell:
            last += 1
            cell.id = f"{stem}-{last:02d}"


def normalise_output(output):
    """``output`` in its saved form; None where nothing is left of it, or only the bare name of a widget."""
    if output.output_type == "error":
        output.traceback = [f"{output.ename}: {output.evalue}"]
    if "data" in output:
        output.metadata = {}
        if output.data.pop(WIDGET_VIEW, None) and set(output.data) <= {"text/plain"}:
            return None
        if not any(output.data.values()):  # a progress bar that is done
            return None
    return output


def normalise(notebook):
    """Bring an executed notebook into the fixed form described at the top, all but the ids."""
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    for cell in notebook.cells:
        cell.metadata = {key: cell.metadata[key] for key in KEPT_CELL_METADATA if key in cell.metadata}
        if cell.cell_type == "code":
            outputs = [normalise_output(output) for output in cell.outputs]
            cell.outputs = [output for output in outputs if output is not None]


def keep_times(notebook, saved):
    """Give the cells that are tagged ``timed`` back what they said when they were ``saved`` with the same code."""
    outputs = {cell.source: cell.outputs for cell in saved.cells if "timed" in cell.metadata.get("tags", [])}
    for cell in notebook.cells:
        if cell.source in outputs:
            cell.outputs = outputs[cell.source] or cell.outputs


def fill_stubs(notebook, path):
    """Write the stubs of a story's exercises; in a notebook of solutions the answers, which all have a place there."""
    solutions = path.parent / "solutions" / path.name
    if solutions.exists():
        stubs.write_stubs(notebook, read(solutions))
    if path.parent.name == "solutions":
        from mha_course.exercises import COURSE  # here, since it takes seconds and a story needs none of it

        stubs.write_worked_answers(notebook, {name: exercise.solution for name, exercise in COURSE.items()})
        stubs.write_stubs(read(path.parents[1] / path.name), notebook)


def rebuild(path):
    """Run the notebook at ``path`` and save it, raising NotebookError or StubError before anything is written."""
    if path.parent.name in LANGUAGES:
        raise NotebookError("a notebook in another language is made and run by python -m tools.translations run")
    notebook = read(path)
    notebook.nbformat_minor = 5
    first_cell.write_first_cell(notebook, first_cell.pip_sources())
    set_ids(notebook.cells, path.stem)
    fill_stubs(notebook, path)
    execute(notebook, path.parent, clean_environment())
    keep_times(notebook, read(path))
    normalise(notebook)
    nbformat.validate(notebook)
    path.write_text(nbformat.v4.writes(notebook) + "\n", encoding="utf-8", newline="\n")


def main():
    parser = argparse.ArgumentParser(description="Run notebooks in place and save them in one fixed form.")
    parser.add_argument("paths", nargs="*", type=Path, help="default: every notebook under notebooks/")
    paths = parser.parse_args().paths or all_notebooks()
    failed = False
    for path in paths:
        start = time.monotonic()
        try:
            rebuild(path)
            print(f"{os.path.relpath(path)}  {time.monotonic() - start:.1f} s", flush=True)
        except (NotebookError, stubs.StubError) as error:
            failed = True
            print(f"{os.path.relpath(path)}: {error}", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
