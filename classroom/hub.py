"""A class on JupyterHub, for real: ``python -m classroom.hub --students 30`` (make bench-class).

A hub, its proxy and a server for each student run on this machine, under the settings of jupyterhub_config.py. All
students log in at once, get the notebooks by nbgitpuller, run 03, end its kernel, run 06 and answer an exercise: all
over HTTP and the kernel's websocket but the last, who has a real browser. Then five of them get a new edition and hand
in to nbgrader, in the same hub. A class of thirty is written to results/classroom.md. Exits with 1 if anybody fails.
Needs Linux and Chromium.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import psutil
import requests

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "classroom" / "results" / "classroom.md"
CONFIG = ROOT / "classroom" / "jupyterhub_config.py"
PROGRAMS = ROOT / ".venv-class" / "bin"
FULL = 30
GIB_A_STUDENT = 0.4  # as measured with thirty
PAGE = """# A class on JupyterHub

`make bench-class` wrote this: {number} students at once, one in Chromium, all others over HTTP and the kernel's
websocket. Nobody reads or thinks: each logs in, runs all cells of 03, ends the kernel, runs all of 06 and answers an
exercise. In a class of people the waits are shorter. The notebooks come by nbgitpuller when a server starts; "log in"
includes it.

{machine}

**{result}.**{failures}

"log in" lasts until the own server answers; six start at a time, and the hub tells the others to try again. The
seconds of a notebook count from opening it, with its kernel's start.

| seconds | median | slowest | in Chromium |
|---|---|---|---|
{times}

The most that was seen of each, every two seconds, with up to {kernels} kernels at a time. PSS may be added up; RSS is
what a student takes alone, in a container.

| MiB | median | largest |
|---|---|---|
{sizes}

At the fullest moment {least_free:.1f} GiB of this machine were free.

## A new edition in the same hub

Five students change a notebook, the instructor changes others of its cells, adds one, and a notebook, and nbgitpuller
pulls this into their homes.

{editions}

## nbgrader in the same hub

An instructor releases an assignment, students fetch it, answer and hand in, the instructor collects, grades and
returns, and the students fetch what was returned; all by the requests that nbgrader's panels send.

{grades}

## The settings

[jupyterhub_config.py](../jupyterhub_config.py) is what an instructor copies; it ran as it stands here:

```python
{config}
```
"""

try:
    from playwright.sync_api import sync_playwright

    from classroom.hand_out import make_repository, update
    from classroom.memory import Memory, free_memory
    from classroom.panels import INSTRUCTOR, grade, prepare_course
    from classroom.students import BrowserStudent, ClassError, Student
    from tools.lab_page import CHROMIUM, FLAGS, free_ports
except ImportError as error:
    sys.exit(f"{error}\nThis runs in the environment that make lab installs; make bench-class installs the rest.")


@contextmanager
def hub(folder: Path):
    """A hub that keeps all its files in ``folder``: its address and process. In the end nothing of it runs on."""
    port, hub_port, api_port = free_ports(3)
    address = f"http://127.0.0.1:{port}"
    given = {  # what is of this trial alone: anybody may log in, and all servers belong to one user of this machine
        "JupyterHub.authenticator_class": "dummy",
        "Authenticator.allow_all": True,
        "JupyterHub.spawner_class": "simple",
        "SimpleLocalProcessSpawner.home_dir_template": f"{folder}/homes/{{username}}",
        "JupyterHub.bind_url": address,
        "JupyterHub.hub_port": hub_port,
        "ConfigurableHTTPProxy.api_url": f"http://127.0.0.1:{api_port}",
        # A proxy in Python, since pip alone installs it. It would give up on an answer after 20 seconds.
        "ConfigurableHTTPProxy.command": ["configurable-http-proxy", "--proxy-timeout=900000"],
    }
    command = [str(PROGRAMS / "jupyterhub"), f"--config={CONFIG}", *(f"--{name}={own}" for name, own in given.items())]
    env = os.environ | {"CLASS_FOLDER": str(folder), "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}
    with open(folder / "hub.log", "w") as log:
        # In a session of its own: Ctrl-C ends it by way of this function, which then knows what it had started.
        process = psutil.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        while not answers(f"{address}/hub/api"):
            if process.poll() is not None:
                raise SystemExit(f"The hub did not start:\n{(folder / 'hub.log').read_text()[-3000:]}")
            time.sleep(0.5)
        yield address, process
    finally:
        family = [process, *process.children(recursive=True)] if process.is_running() else []
        with suppress(psutil.NoSuchProcess):
            process.terminate()
        for left in psutil.wait_procs(family, timeout=60)[1]:
            left.kill()


def answers(address: str) -> bool:
    """Whether the hub, and not its proxy alone, answers there."""
    try:
        return requests.get(address, timeout=60).ok
    except requests.ConnectionError:
        return False


def make_homes(folder: Path, names: list[str]) -> None:
    """The folder that a class shares, with the course's kernel and a repository of the notebooks, and all homes."""
    command = [sys.executable, "-m", "ipykernel", "install", f"--prefix={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    for part in ("models", "exchange"):
        (folder / part).mkdir()
    (folder / "exchange").chmod(0o777)
    make_repository(folder / "notebooks")
    for name in names:
        home = folder / "homes" / name
        (home / ".jupyter").mkdir(parents=True)
        settings = "c.ServerApp.allow_root = True\nc.LabApp.expose_app_in_browser = True\n"  # for the browser's student
        (home / ".jupyter" / "jupyter_server_config.py").write_text(settings)
    prepare_course(folder / "homes")


def hold_class(address: str, names: list[str]) -> tuple[list[Student], dict[str, str]]:
    """All students at once; those, and what went wrong with whom."""
    failures: dict[str, str] = {}

    def take_part(student: Student) -> None:
        try:
            student.take_part()
        except Exception as error:
            failures[student.name] = f"{type(error).__name__}: {error}"
            print(f"{student.name} FAILED: {failures[student.name]}", flush=True)

    *over_http, last = names
    students = [Student(address, name, number) for number, name in enumerate(over_http)]
    threads = [threading.Thread(target=take_part, args=[student], daemon=True) for student in students]
    with sync_playwright() as playwright:
        for thread in threads:
            thread.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 2000})
        students.append(BrowserStudent(address, last, len(over_http), page))
        take_part(students[-1])
        browser.close()
    for thread in threads:
        thread.join()
    return students, failures


def report(
    machine: str, students: list[Student], failures: dict[str, str], memory: Memory, parts: dict[str, list[str]]
) -> str:
    """All figures, as a page."""
    finished = sum("everything" in student.took for student in students)
    lost = sum("a kernel is lost" in failure for failure in failures.values())
    times, missing = [], float("nan")
    for step in students[-1].took:
        own = [student.took.get(step, missing) for student in students[:-1]] or [missing]
        times.append(f"| {step} | {median(own):.0f} | {max(own):.0f} | {students[-1].took[step]:.0f} |")
    sizes = [
        f"| {part} | {median(own.values()):.0f} | {max(own.values()):.0f} |"
        for part, own in sorted(memory.most.items())
    ]
    return PAGE.format(
        number=len(students),
        machine=machine,
        result=f"{finished} of {len(students)} finished, {lost} kernels were lost",
        failures="".join(f"\n- {name}: {failure}" for name, failure in sorted(failures.items())),
        times="\n".join(times),
        sizes="\n".join(sizes),
        kernels=memory.kernels,
        least_free=memory.least_free,
        **{part: "\n".join(lines) for part, lines in parts.items()},
        config=CONFIG.read_text(encoding="utf-8").rstrip(),
    )


def main() -> bool:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--students", type=int, default=FULL, help="how many; fewer than thirty write no report")
    names = [f"student{number:02d}" for number in range(parser.parse_args().students)]
    if not (PROGRAMS / "jupyterhub").exists() or CHROMIUM is None:
        sys.exit("This needs Chromium on the PATH, and the packages that make bench-class installs into .venv-class.")
    if free_memory() < (needed := GIB_A_STUDENT * len(names) + 1):
        sys.exit(f"{len(names)} students need about {needed:.0f} GiB; {free_memory():.1f} are free. Fewer: STUDENTS=3")
    for interruption in (signal.SIGINT, signal.SIGTERM):  # what runs is ended, and what lies about is removed
        signal.signal(interruption, lambda number, _: sys.exit(128 + number))
    machine = (
        f"The machine: {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, of which "
        f"{free_memory():.1f} were free; load average {os.getloadavg()[0]:.1f} when it began."
    )
    print(machine, flush=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make_homes(folder, [*names, INSTRUCTOR])
        with hub(folder) as (address, process):
            memory = Memory(process)
            memory.start()
            students, failures = hold_class(address, names)
            memory.stop.set()
            parts = {}
            for part, run in {
                "editions": lambda: update(address, names[:5], folder / "notebooks"),
                "grades": lambda: grade(address, names[:5]),
            }.items():
                try:
                    parts[part] = run()
                except ClassError as error:
                    failures[part], parts[part] = str(error), ["It failed."]
    page = report(machine, students, failures, memory, parts)
    print(page)
    if len(names) >= FULL:
        REPORT.write_text(page, encoding="utf-8")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
