"""nbgrader in a class on JupyterHub: an assignment goes out to students, comes back, is graded and returned.

Everything is asked of the servers in the hub, by the requests that the panels of nbgrader send.
"""

import shutil
from pathlib import Path

import nbformat

from classroom.course import ASSIGNMENT, SOLUTIONS
from classroom.course import SETTINGS as OF_THE_PROJECT
from classroom.hand_ins import hand_in, solved, unsolved, wrong
from classroom.students import ClassError, Student

COURSE, INSTRUCTOR = "course", "instructor"
SOLUTION = SOLUTIONS / "03_multi_head_attention.ipynb"
ANSWERS = [solved, wrong, unsolved, solved, solved]
SETTINGS = f"""
import os
c = get_config()
c.CourseDirectory.course_id = "{COURSE}"
c.Exchange.root = os.environ["MHA_CACHE"] + "/../exchange"
"""
# On a real hub nbgrader takes the names from the system; here all servers belong to one user of the machine.
OF_A_STUDENT = 'c.CourseDirectory.student_id = os.environ["JUPYTERHUB_USER"]\n'
OF_THE_INSTRUCTOR = (
    f'c.ExchangeCollect.check_owner = False\nc.CourseDirectory.root = os.path.expanduser("~/{COURSE}")\n'
)


def prepare_course(homes: Path) -> None:
    """nbgrader's settings for everybody, and the folder of the course in the instructor's home."""
    for home in homes.iterdir():
        own = OF_THE_INSTRUCTOR if home.name == INSTRUCTOR else OF_A_STUDENT
        (home / ".jupyter" / "nbgrader_config.py").write_text(SETTINGS + own)
    with open(homes / INSTRUCTOR / ".jupyter" / "nbgrader_config.py", "a") as settings:
        settings.write((OF_THE_PROJECT / "nbgrader_config.py").read_text())
    source = homes / INSTRUCTOR / COURSE / "source" / ASSIGNMENT
    source.mkdir(parents=True)
    shutil.copy(SOLUTION, source)


def grade(hub: str, names: list[str]) -> list[str]:
    """The way of an assignment through five students or fewer: the lines of a table, with points and feedback."""
    instructor = Student(hub, INSTRUCTOR)
    instructor.log_in()
    panel = f"formgrader/api/assignment/{ASSIGNMENT}"
    for step in ("assign", "release"):
        done(instructor, f"{panel}/{step}")
    answers = {Student(hub, name): answer for name, answer in zip(names, ANSWERS, strict=False)}
    for student, answer in answers.items():
        student.log_in()
        exchange(student, "fetch")
        work = f"api/contents/{ASSIGNMENT}/{SOLUTION.name}"
        released = nbformat.from_dict(student.ask("GET", work).json()["content"])
        student.ask("PUT", work, json={"type": "notebook", "content": hand_in(released, SOLUTION, answer)})
        exchange(student, "submit")
    done(instructor, f"{panel}/collect")
    for student in answers:
        done(instructor, f"formgrader/api/submission/{ASSIGNMENT}/{student.name}/autograde")
    for step in ("generate_feedback", "release_feedback"):
        done(instructor, f"{panel}/{step}")
    found = instructor.ask("GET", f"formgrader/api/submissions/{ASSIGNMENT}").json()
    points = {one["student"]: (one["score"], one["max_score"]) for one in found}
    lines = ["| handed in | points | feedback came back |", "|---|---|---|"]
    for student, answer in answers.items():
        score, most = points[student.name]
        if score != (most if answer is solved else 0):
            raise ClassError(f"{student.name} handed in what is {answer.__name__} and got {score} of {most} points")
        lines.append(f"| {answer.__name__} | {score:g} of {most:g} | {feedback(student)} |")
    return lines


def done(instructor: Student, step: str) -> None:
    """A step of the instructor's panel."""
    answer = instructor.ask("POST", step).json()
    print(f"nbgrader: {step.split('/', 2)[2]}", flush=True)
    if not answer["success"]:
        raise ClassError(f"nbgrader, {step}: {answer}")


def exchange(student: Student, action: str) -> None:
    """Fetch or submit, as in a student's panel."""
    wanted = {"course_id": COURSE, "assignment_id": ASSIGNMENT}
    answer = student.ask("POST", f"assignments/{action}", data=wanted).json()
    if not answer.get("success"):
        raise ClassError(f"nbgrader, {action}: {answer}")


def feedback(student: Student) -> str:
    """Fetch what was returned; "yes" if a page is there."""
    exchange(student, "fetch_feedback")
    [folder] = student.ask("GET", f"api/contents/{ASSIGNMENT}/feedback").json()["content"]
    pages = student.ask("GET", f"api/contents/{folder['path']}").json()["content"]
    return "yes" if f"{SOLUTION.stem}.html" in [page["name"] for page in pages] else "NO"
