"""Settings of nbgrader for these exercises. In the folder of your course:

    nbgrader_config.py, marks.py                    this file and the one beside it
    source/attention/01_attention_pooling.ipynb     the solutions that you chose, under a name of yours

    nbgrader generate_assignment attention          makes release/attention, for your learners
    nbgrader autograde attention                    grades submitted/<learner>/attention
    nbgrader export --exporter=marks.Canvas ...     writes the marks, see marks.py

The kernel named python3 that nbgrader finds must have ``mha_course``: without it nothing is graded, and a line says so.
The learners' kernel must have it, too. Set ``MHA_SOLUTIONS=off`` in the learners' environment as well, if
``exercises.solution`` is not to show them worked answers.
"""

import functools
import os
import re
import sys

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert.preprocessors import Preprocessor, TagRemovePreprocessor
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.converters import GenerateAssignment
from nbgrader.preprocessors import CheckCellMetadata, ClearOutput, DeduplicateIds, OverwriteCells, OverwriteKernelspec

c = get_config()  # type: ignore[name-defined]  # noqa: F821 - nbgrader defines it
os.environ["MHA_SOLUTIONS"] = "off"  # for grading: no worked answers, and nothing is kept of what was tried
c.ClearSolutions.code_stub = {"python": "...  # your code here"}
c.ClearSolutions.text_stub = "*Your answer, in the place of this line.*"


class ForLearners(Preprocessor):
    """A sheet of exercises is headed so, and has no links to files that learners do not get with it."""

    def preprocess_cell(self, cell, resources, cell_index):
        if cell.cell_type == "markdown":
            text = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", cell.source)
            text = re.sub(r", (each )?with an answer that passes its check, and why\.", ".", text)
            cell.source = text.replace("# Solutions: ", "# Exercises: ")
        return cell, resources


# The text after a check says why the solution is as it is: learners' copies leave it out.
c.GenerateAssignment.preprocessors = [TagRemovePreprocessor, ForLearners, *GenerateAssignment.preprocessors.default()]
c.TagRemovePreprocessor.enabled = c.ForLearners.enabled = True
c.TagRemovePreprocessor.remove_cell_tags = {"reason"}
WITHOUT_LIBRARY = """
Nothing was graded: the kernel python3 that nbgrader starts cannot import mha_course, and everybody would get 0 points.
    {error}
`make nbgrader`, in the project's folder, gives it the kernel. For another nbgrader, use a Python with mha_course:
    .venv/bin/python -m ipykernel install --prefix="{prefix}"
"""
c.Execute.timeout = 180  # seconds a cell, then the next one is run; the first time, a model may have to be trained


class GradeTheLast(DeduplicateIds):
    """Of a cell that was copied or split, the last one is graded, and the others become cells like any other.

    nbgrader 0.9.6 leaves an empty mark on these, takes it for an old format, and stops grading the whole class.
    """

    def preprocess_cell(self, cell, resources, cell_index):
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if not cell.metadata.get("nbgrader"):
            cell.metadata.pop("nbgrader", None)
        return cell, resources


class AddMissing(OverwriteCells):
    """A graded cell that was deleted stands again after the one that came before it.

    So does OverwriteCells.add_missing_cells, but where an answer was deleted with its check, it finds no place, and the
    learner gets no mark.
    """

    def add_missing_grade_cells(self, nb, resources):
        source, place = self.gradebook.find_notebook(self.notebook_id, self.assignment_id), 0
        points = {cell.name: cell.max_score for cell in source.grade_cells}
        answers = {cell.name for cell in source.solution_cells}
        for cell in source.source_cells:
            names = [found.metadata.get("nbgrader", {}).get("grade_id") for found in nb.cells]
            if cell.name in names:
                place = names.index(cell.name) + 1
            elif cell.name in points:
                self.log.warning("Missing grade cell '%s' is added", cell.name)
                nb.cells.insert(place, self.missing_cell_transform(cell, points[cell.name], cell.name in answers))
                place += 1
        return nb, resources


c.Autograde.sanitize_preprocessors = [ClearOutput, GradeTheLast, OverwriteKernelspec, AddMissing, CheckCellMetadata]
c.AddMissing.add_missing_cells = True


@functools.cache
def check_kernel():
    """Stop all grading if the kernel cannot import mha_course; what is well once is not asked again."""
    trial = new_notebook(cells=[new_code_cell("from mha_course import exercises")])
    try:
        NotebookClient(trial, kernel_name="python3", timeout=c.Execute.timeout).execute()
    except CellExecutionError as error:
        sys.exit(WITHOUT_LIBRARY.format(error=f"{error.ename}: {error.evalue}", prefix=sys.prefix))


c.Autograde.pre_convert_hook = lambda **_: check_kernel()  # nbgrader calls it before it looks at a hand-in
