"""Simulated students of a class on JupyterHub: over HTTP and the kernel's websocket, and one in a real browser.

Each logs in, runs two notebooks from top to bottom with a new kernel each, and answers an exercise. ``took`` holds the
seconds of each step; what goes wrong is raised as a ``ClassError``.
"""

import json
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import requests
import websocket

from tools import notebooks as make_notebooks
from tools import stubs
from tools.lab_page import NotebookPage, cell_faults

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
FIRST, SECOND = "03_multi_head_attention.ipynb", "06_heads_at_work.ipynb"
PATIENCE = 900  # seconds without a word after which a server or a kernel counts as lost
PICTURE = re.compile("<(table|figure|img)")
# Notes when the first table or picture stands in the page. Outputs that were saved are cleared before.
FIRST_PICTURE = """
const seen = setInterval(() => {
    if (!document.querySelector('.jp-OutputArea-output :is(table, figure, img)')) return;
    window.firstPicture = Date.now();
    clearInterval(seen);
}, 50)
"""
FILL_AND_RUN = """
const notebook = jupyterapp.shell.currentWidget.content;
notebook.activeCellIndex = %d;
notebook.activeCell.model.sharedModel.setSource(%s);
await jupyterapp.commands.execute('notebook:run-cell');
notebook.activeCellIndex += 1;
await jupyterapp.commands.execute('notebook:run-cell');
"""


class ClassError(Exception):
    """Something that should not happen in a class; the message says what."""


def exercise(number: int) -> tuple[str, str, int]:
    """A worked answer of the second notebook, the check that follows it, and where in the notebook its stub stands."""
    story = make_notebooks.read(NOTEBOOKS / SECOND).cells
    answers = [cell for cell in make_notebooks.read(NOTEBOOKS / "solutions" / SECOND).cells if stubs.is_solution(cell)]
    answer = answers[number % len(answers)]
    place = next(place for place, cell in enumerate(story) if cell.id == answer.id)
    return answer.source, story[place + 1].source, place


def check_verdict(text: str) -> None:
    """Complain where a right answer was not called right."""
    if "✓ Right" not in text:
        raise ClassError(f"a right answer was told: {text[:200]}")


class Student:
    """One student over HTTP, as a browser would be: with cookies, a form to log in, and tokens against forgery.

    ``number`` says which exercise is answered.
    """

    def __init__(self, hub: str, name: str, number: int = 0) -> None:
        self.hub, self.name, self.number = hub, name, number
        self.server = f"{hub}/user/{self.name}"
        self.web, self.took = requests.Session(), dict[str, float]()

    def take_part(self) -> None:
        """All that a student does."""
        start = time.time()
        self.log_in()
        self.get_notebooks()
        self.note("log in", time.time() - start)
        for name in (FIRST, SECOND):
            self.work_through(name)
        self.note("everything", time.time() - start)

    def note(self, step: str, seconds: float) -> None:
        """Keep how long a step took, and say so."""
        self.took[step] = seconds
        print(f"{self.name}: {step}, {seconds:.0f} s", flush=True)

    def work_through(self, name: str) -> None:
        """Run a notebook with a kernel of its own; in the second one, answer an exercise."""
        opened = time.time()
        with self.kernel(name) as kernel:
            pictures = [at for cell in code_cells(name) for at in kernel.run(cell.source, cell.metadata)[1]]
            self.note(f"{name[:2]} first picture", pictures[0] - opened)
            self.note(f"{name[:2]} all cells", time.time() - opened)
            if name == SECOND:
                answer, check, _ = exercise(self.number)
                check_verdict(kernel.run(answer)[0] + kernel.run(check)[0])

    def log_in(self) -> None:
        """Log in, and wait for a server; where too many start at once, ask again when the hub says."""
        self.web.get(f"{self.hub}/hub/login", timeout=PATIENCE)
        form = {"username": self.name, "password": "any", "_xsrf": self.token("/hub/")}
        answer = self.web.post(f"{self.hub}/hub/login", data=form, timeout=PATIENCE)
        while not answer.ok or not answer.url.startswith(f"{self.server}/"):
            if answer.status_code >= 400 and answer.status_code != 429:
                raise ClassError(f"the hub answered {answer.status_code} {answer.reason} at {answer.url}")
            time.sleep(float(answer.headers.get("Retry-After", 1)))
            answer = self.web.get(f"{self.hub}/hub/spawn", timeout=PATIENCE)

    def get_notebooks(self) -> None:
        """Follow the address that a new server opens: nbgitpuller's page, and the request that this page sends."""
        page = self.ask("GET", "")
        if "/git-pull?" not in page.url:
            raise ClassError(f"a new server opened {page.url}, and not nbgitpuller")
        said = self.ask("GET", f"git-pull/api?{page.url.partition('?')[2]}").text
        if '"phase": "finished"' not in said:
            raise ClassError(f"nbgitpuller: {said[-400:]}")

    def token(self, path: str) -> str:
        """The token against forgery that is sent back with what changes something."""
        return next((c.value or "" for c in self.web.cookies if c.name == "_xsrf" and c.path == path), "")

    def ask(self, method: str, path: str, **content) -> requests.Response:
        """What the student's server answers to a request."""
        headers = {"X-XSRFToken": self.token(f"/user/{self.name}/")}
        answer = self.web.request(method, f"{self.server}/{path}", headers=headers, timeout=PATIENCE, **content)
        if not answer.ok:
            raise ClassError(f"{method} {path}: {answer.status_code} {answer.text[:200]}")
        return answer

    @contextmanager
    def kernel(self, name: str) -> Iterator["Kernel"]:
        """A new kernel for a notebook, shut down at the end."""
        wanted = {"path": f"notebooks/{name}", "name": name, "type": "notebook", "kernel": {"name": "python3"}}
        session = self.ask("POST", "api/sessions", json=wanted).json()
        address = f"{self.server}/api/kernels/{session['kernel']['id']}/channels".replace("http", "ws", 1)
        cookies = "; ".join(f"{c.name}={c.value}" for c in self.web.cookies if f"/user/{self.name}/".startswith(c.path))
        kernel = Kernel(websocket.create_connection(address, cookie=cookies, timeout=PATIENCE))
        yield kernel
        kernel.socket.close()
        self.ask("DELETE", f"api/sessions/{session['id']}")


class Kernel:
    """A kernel at the other end of a websocket."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self.socket, self.session = socket, uuid.uuid4().hex

    def run(self, code: str, metadata: dict | None = None) -> tuple[str, list[float]]:
        """Run a cell: the text that it shows, and when each picture or table came."""
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": self.session, "username": ""}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
        message = {"header": header | {"version": "5.3"}, "parent_header": {}, "metadata": {}, "content": content}
        self.socket.send(json.dumps(message | {"channel": "shell", "buffers": []}))
        shown, pictures, due = "", [], {"idle", "execute_reply"}
        while due:
            answer = self.receive()
            if answer["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            kind, content = answer["header"]["msg_type"], answer["content"]
            due -= {kind, content.get("execution_state")}
            if kind == "error" and "raises-exception" not in (metadata or {}).get("tags", []):
                raise ClassError(f"{content['ename']}: {content['evalue'][:200]} in: {code[:60]}")
            if kind in ("display_data", "execute_result"):
                shown += content["data"].get("text/plain", "")
                pictures += [time.time()] * bool(PICTURE.search(content["data"].get("text/html", "")))
        return shown, pictures

    def receive(self) -> dict:
        """The next message; those with the binary state of widgets are left to a browser."""
        try:
            while isinstance(frame := self.socket.recv(), bytes):
                pass
            answer = json.loads(frame)
        except (websocket.WebSocketException, OSError, ValueError) as error:
            raise ClassError(f"a kernel is lost: {type(error).__name__} {error}") from error
        if answer["content"].get("execution_state") in ("dead", "restarting", "autorestarting"):
            raise ClassError(f"a kernel is lost: {answer['content']['execution_state']}")
        return answer


def code_cells(name: str):
    """The code cells of a notebook."""
    return [cell for cell in make_notebooks.read(NOTEBOOKS / name).cells if cell.cell_type == "code"]


class BrowserStudent(Student):
    """One student in a real browser; ``page`` is Playwright's."""

    def __init__(self, hub: str, name: str, number: int, page) -> None:
        super().__init__(hub, name, number)
        self.page = page
        page.set_default_timeout(1000 * PATIENCE)

    def work_through(self, name: str) -> None:
        opened = time.time()
        notebook = NotebookPage(self.page, SimpleNamespace(address=self.server, token=""), f"notebooks/{name}")
        notebook.do("await jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
        self.page.evaluate(FIRST_PICTURE)
        notebook.run_all()
        ended = time.time()
        self.page.wait_for_function("window.firstPicture")
        self.note(f"{name[:2]} first picture", self.page.evaluate("window.firstPicture") / 1000 - opened)
        self.note(f"{name[:2]} all cells", ended - opened)
        if faults := list(cell_faults(notebook.code_cells())):
            raise ClassError("; ".join(faults))
        if not list(notebook.live_pictures()):
            raise ClassError(f"no picture of {name} is live")
        if name == SECOND:
            answer, _, place = exercise(self.number)
            notebook.do(FILL_AND_RUN % (place, json.dumps(answer)))
            check_verdict(str(notebook.cells()[place + 1]["outputs"]))
        notebook.save()
        notebook.do("await jupyterapp.shell.currentWidget.sessionContext.shutdown()")

    def get_notebooks(self) -> None:
        """Wait until nbgitpuller's page has opened the lab, and this the first notebook."""
        self.page.wait_for_url(f"{self.server}/lab/tree/notebooks/**")
        # A notebook that is opened before this one is there would lose its place in front to it.
        self.page.locator(".jp-NotebookPanel .jp-Notebook-ExecutionIndicator").wait_for()

    def log_in(self) -> None:
        self.page.goto(f"{self.hub}/hub/login")
        self.page.fill("input[name=username]", self.name)
        self.page.fill("input[name=password]", "any")
        self.page.click("input[type=submit]")
        deadline = time.time() + PATIENCE
        while not self.page.url.startswith(f"{self.server}/"):
            if time.time() > deadline:
                raise ClassError(f"no server came; the browser shows {self.page.url}")
            self.page.wait_for_timeout(5000)
            if not self.page.url.startswith((f"{self.hub}/hub/spawn-pending", f"{self.server}/")):
                self.page.goto(f"{self.hub}/hub/spawn")
