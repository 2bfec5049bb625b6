"""An instructor who does what the teaching notes say, command by command, gets the marks that are due."""

import json
import os
import re
import subprocess

from in_nbgrader import IN_NBGRADER
from notebook_tools import ROOT, SOLUTIONS, make_notebooks

from classroom.course import ASSIGNMENT, NBGRADER, Course, of_an_instructor
from classroom.hand_ins import cells_copied, hand_in, of_nbgrader, solved, unsolved
from tools import stubs

NOTES = (ROOT / "notebooks" / "TEACHING.md").read_text(encoding="utf-8")
[SECTION] = re.findall(r"(?ms)^## Homework, from handing out to marks$(.*?)^## ", NOTES)
PREPARE, RELEASE, GRADE = re.findall(r"(?s)```bash\n(.*?)```", SECTION)
ASSIGNED = next(path for path in SOLUTIONS if path.stem == "04_transpose_qkv")

pytestmark = IN_NBGRADER


def in_a_shell(folder, commands):
    """Run the notes' first commands in the project, then ``commands`` in the course; nothing is installed anew."""
    script = f'set -e\n{PREPARE}\ncd "{folder}"\n{commands}'
    env = of_an_instructor(folder) | {"PYTHON": "true"}
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_give_the_marks_that_are_due(tmp_path):
    """All right; the first half of the answers; all right and then damaged, every answer and check copied."""
    course = tmp_path / "my course"
    course.mkdir()
    said = in_a_shell(course, RELEASE)
    [export] = re.findall(r"export PATH=.*", said)
    assert os.path.expandvars(re.findall(r'"(.*?):', export)[0]) == str(NBGRADER / "bin")
    path = ASSIGNED
    questions = list(stubs.stubs_from(make_notebooks.read(path)))
    first_half = questions[: len(questions) // 2]
    for learner, answer, damage in (
        ("good", solved, None),
        ("half", lambda cell: (solved if cell.id in first_half else unsolved)(cell), None),
        ("damaged", solved, cells_copied),
    ):
        notebook = hand_in(make_notebooks.read(course / "release" / ASSIGNMENT / path.name), path, answer)
        if damage:
            damage(notebook)
        folder = course / "submitted" / learner / ASSIGNMENT
        folder.mkdir(parents=True)
        (folder / path.name).write_text(json.dumps(notebook), encoding="utf-8")
    in_a_shell(course, GRADE)
    points = [
        cell.metadata.nbgrader.points for cell in of_nbgrader(make_notebooks.read(path)) if cell.metadata.nbgrader.grade
    ]
    lines = [line.split(",") for line in (course / "canvas.csv").read_text(encoding="utf-8").splitlines()[2:]]
    marks = {line[3]: float(line[-1]) for line in lines}
    assert marks == {"good": sum(points), "half": sum(points[: len(first_half)]), "damaged": sum(points)}
    assert 0 < marks["half"] < marks["good"]
    assert len(list(course.glob("feedback/*/attention/*.html"))) == len(marks)


def test_without_mha_lib_nothing_is_graded(tmp_path):
    """The kernel that nbgrader brings along has no mha_course: no zeros, no marks, and a line that tells what to do."""
    kernel = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    course = Course(tmp_path, [ASSIGNED.name])
    released = course.released(ASSIGNED.name)
    course.submit("ada", ASSIGNED.name, hand_in(released, ASSIGNED, solved))
    kernel.parent.mkdir(parents=True)
    argv = [str(NBGRADER / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    said = course.nbgrader("autograde", ASSIGNMENT, fails=True, JUPYTER_PATH=str(tmp_path / "jupyter"))
    assert "Nothing was graded" in said and "No module named 'mha_course'" in said and "make nbgrader" in said
    assert course.grades() == [] and not (tmp_path / "autograded").exists()
