"""What the tests have in common that run real nbgrader."""

import pytest

from classroom.course import NBGRADER

IN_NBGRADER = [
    pytest.mark.slow,
    pytest.mark.xdist_group("nbgrader"),
    pytest.mark.skipif(not (NBGRADER / "installed").exists(), reason="nbgrader is not there: make nbgrader"),
]
