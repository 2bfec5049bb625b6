"""Settings of nbgrader for these exercises. In the folder of your course:

    nbgrader_config.py                              this file
    source/attention/01_attention_pooling.ipynb     the solutions that you chose, under a name of yours

    nbgrader generate_assignment attention          makes release/attention, for your learners
    nbgrader autograde attention                    grades submitted/<learner>/attention

The kernel named python3 that nbgrader finds must have ``mha_lib``, and the learners' too. Set ``MHA_SOLUTIONS=off`` in
the learners' environment as well, if ``exercises.solution`` is not to show them worked answers.
"""

import os

from nbconvert.preprocessors import TagRemovePreprocessor
from nbgrader.converters import GenerateAssignment

c = get_config()  # noqa: F821 - nbgrader defines it
os.environ["MHA_SOLUTIONS"] = "off"  # for grading: no worked answers, and nothing is kept of what was tried
c.ClearSolutions.code_stub = {"python": "...  # your code here"}
# The text after a check says why the solution is as it is: learners' copies leave it out.
c.GenerateAssignment.preprocessors = [TagRemovePreprocessor, *GenerateAssignment.preprocessors.default()]
c.TagRemovePreprocessor.enabled = True
c.TagRemovePreprocessor.remove_cell_tags = {"reason"}
c.Execute.timeout = 180  # seconds a cell; the first time, a model may have to be trained
