"""A real JupyterLab, and what a test or a benchmark does in its page, in Chromium."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
PATIENCE = 300  # seconds after which something counts as stuck; nothing is asserted of how long anything takes
BROKEN_WIDGET = re.compile("Error displaying widget|[Mm]odel not found")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def free_ports(number):
    """Ports of this machine that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Lab:
    """A JupyterLab that serves ``folder`` and reads nothing from the user's home; its own files go to ``private``."""

    def __init__(self, folder, private):
        self.folder, self.log = folder, private / "lab.log"
        self.token = secrets.token_hex(16)
        self.address = f"http://127.0.0.1:{free_ports(1)[0]}"
        settle(private)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *self.options()], env=environment(private), stdout=log, stderr=log
            )
        try:
            self.wait()
        except BaseException:
            self.process.kill()
            raise

    def options(self):
        """Arguments for JupyterLab."""
        return [
            "--no-browser",
            "--allow-root",
            "--expose-app-in-browser",
            f"--port={self.address.rpartition(':')[2]}",
            "--ServerApp.port_retries=0",
            f"--MappingKernelManager.kernel_info_timeout={PATIENCE}",
            "--KernelManager.shutdown_wait_time=0",  # a kernel that is not needed any more need not tidy up
            f"--ServerApp.root_dir={self.folder}",
            f"--IdentityProvider.token={self.token}",
        ]

    def ask(self, path, method="GET"):
        """The server's answer to a request."""
        request = urllib.request.Request(
            self.address + path, method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.loads(response.read() or "null")

    def wait(self):
        """Return when the server answers."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                return self.ask("/api/status")
            except OSError:
                time.sleep(0.2)
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()}")

    def end_kernels(self):
        """Shut all kernels down."""
        for kernel in self.ask("/api/kernels"):
            self.ask(f"/api/kernels/{kernel['id']}", method="DELETE")

    def stop(self):
        """End the server and its kernels."""
        self.process.terminate()
        self.process.wait(PATIENCE)

    def write(self, name, *sources):
        """Make a notebook of code cells; returns its path below ``folder``."""
        kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        cells = [new_code_cell(source) for source in sources]
        nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), self.folder / name)
        return name


def environment(private):
    """Environment variables for a JupyterLab that knows this interpreter's kernel alone."""
    places = ["CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"]
    folders = [f"JUPYTER_{place}" for place in places] + ["JUPYTERLAB_WORKSPACES_DIR", "JUPYTERLAB_SETTINGS_DIR"]
    return os.environ | {
        **{name: str(private / name.lower()) for name in [*folders, "IPYTHONDIR", "MHA_CACHE"]},
        "JUPYTER_PATH": f"{sys.prefix}/share/jupyter",
        "JUPYTER_PREFER_ENV_PATH": "1",
        "OMP_NUM_THREADS": "1",
    }


def settle(private):
    """Write settings without which a page is now and then not what was asked for, on a busy machine."""
    config, settings = private / "jupyter_config_dir/labconfig", private / "jupyterlab_settings_dir/@jupyterlab"
    contents = {
        # Where no notebook is open, JupyterLab shows its launcher: at times in front of the next notebook.
        config / "page_config.json": {"disabledExtensions": {"@jupyterlab/launcher-extension": True}},
        # Two saves at the same time, one by JupyterLab itself, would ask which of the two is to be kept.
        settings / "docmanager-extension/plugin.jupyterlab-settings": {"lastModifiedCheckMargin": 1000 * PATIENCE},
    }
    for path, content in contents.items():
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content))


class Heard:
    """What a page does that nobody sees: errors in its console, with what is thrown and not caught, and requests."""

    def __init__(self, page):
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.listeners = {
            "console": lambda message: self.errors.extend([message.text] if message.type == "error" else []),
            "pageerror": lambda error: self.errors.append(f"uncaught: {error}"),
            "request": lambda request: self.requests.append(request.url),
        }
        for event, listener in self.listeners.items():
            page.on(event, listener)

    def end(self):
        """Hear no more: the page goes on to something else."""
        for event, listener in self.listeners.items():
            self.page.remove_listener(event, listener)


class NotebookPage:
    """One notebook in a page of JupyterLab.

    Args:
        page: Playwright's page.
        lab: the ``Lab`` that serves the notebook.
        path: the notebook's path below the lab's folder.
    """

    def __init__(self, page, lab, path):
        self.page, self.heard = page, Heard(page)
        page.set_default_timeout(1000 * PATIENCE)
        if page.url.startswith(lab.address):
            self.do(f"await jupyterapp.commands.execute('docmanager:open', {{ path: '{path}' }})")
        else:
            page.goto(f"{lab.address}/lab/tree/{path}?reset&token={lab.token}")
        self.panel = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        self.panel.locator(".jp-Notebook-ExecutionIndicator").wait_for()
        page.wait_for_function(f"jupyterapp.shell.currentWidget?.context?.path === '{path}'")
        # The toolbar says "idle" before the kernel can take work; what is run then is lost.
        self.do(
            "const context = jupyterapp.shell.currentWidget.sessionContext;"
            "await context.ready; await context.session.kernel.info"
        )

    def close(self):
        """Close the notebook without saving it; the page stays."""
        self.do(
            "const { currentWidget } = jupyterapp.shell;"
            "currentWidget.context.model.dirty = false; currentWidget.close()"
        )
        self.panel.wait_for(state="detached")
        self.heard.end()

    def do(self, script):
        """Run JavaScript that awaits something, and wait for its end (``evaluate`` alone would wait for ever)."""
        start = (
            "() => { window.ended = null; (async () => { %s })()"
            ".then(() => { ended = 'well' }, error => { ended = String(error) }) }"
        )
        self.page.evaluate(start % script)
        ended = self.page.wait_for_function("window.ended").json_value()
        if ended != "well":
            raise RuntimeError(f"{ended} in: {script}")

    def run_all(self):
        """Unfold all parts, clear all outputs, so that a saved picture cannot pass for a new one, and run all cells."""
        self.do(
            "await jupyterapp.commands.execute('notebook:expand-all-headings');"
            "await jupyterapp.commands.execute('notebook:clear-all-cell-outputs');"
            "await jupyterapp.commands.execute('notebook:run-all-cells')"
        )

    def save(self):
        """Save the notebook, as Ctrl+S does."""
        self.do("await jupyterapp.commands.execute('docmanager:save')")

    def cells(self):
        """The cells as the notebook's model holds them (what is in the page changes between releases)."""
        content = self.page.evaluate("jupyterapp.shell.currentWidget.content.model.toJSON()")
        return [dict(cell, source="".join(cell["source"])) for cell in content["cells"]]

    def code_cells(self):
        """The code cells that are not empty."""
        return [cell for cell in self.cells() if cell["cell_type"] == "code" and cell["source"].strip()]

    def live_pictures(self):
        """All live pictures, one after the other, each brought into view.

        They appear some time after their cells have run; each also says what it shows as HTML.
        """
        live = self.panel.locator("section.mha-live")
        views = [output.get("data", {}) for cell in self.cells() for output in cell.get("outputs", [])]
        is_live = [WIDGET_VIEW in data and "data-mha-live" in str(data.get("text/html")) for data in views]
        for number in range(sum(is_live)):
            live.nth(number).wait_for(state="attached")
        for picture in live.all():
            picture.scroll_into_view_if_needed()
            yield picture


def cell_faults(cells):
    """What went wrong in running the cells."""
    for cell in cells:
        start = cell["source"][:60]
        if not cell["execution_count"]:
            yield f"not run: {start}"
        for output in cell["outputs"]:
            if output["output_type"] == "error" and "raises-exception" not in cell["metadata"].get("tags", []):
                yield f"{output['ename']}: {output['evalue']} in: {start}"


def faults_after_reopening(open_notebook, path):
    """What JupyterLab cannot display of a notebook that was run and saved, however often it is opened once more.

    Once is not enough to tell. JupyterLab looks for saved widgets at two times, when the notebook opens and when its
    kernel is connected; if the second is done first, what is drawn in between is "not found", and stays so until it
    is opened again (jupyterlab_widgets 3.0.17, ``restoreWidgets``). On a busy machine this can happen twice in a row.
    """
    for _ in range(5):
        if not (faults := widget_faults(open_notebook(path))):
            break
    return faults


def widget_faults(notebook):
    """What JupyterLab cannot display: in the place of each there must be the widget, or a picture with alt text."""
    shown = notebook.panel.locator(".jp-Cell")
    for number, cell in enumerate(notebook.cells()):
        if any(WIDGET_VIEW in output.get("data", {}) for output in cell.get("outputs", [])):
            area = shown.nth(number).locator(".jp-Cell-outputArea")
            area.scroll_into_view_if_needed()
            described = area.get_by_role("img", name=re.compile(r"\w"))
            alive = area.locator("section.mha-live, .jupyter-widgets").or_(described)
            alive.or_(area.get_by_text(BROKEN_WIDGET)).first.wait_for(state="attached", timeout=600_000)
    return notebook.panel.get_by_text(BROKEN_WIDGET).all_inner_texts()


def answers(picture):
    """Whether a key that moves one of a live picture's controls, which an opening may hide, changes the line that reads
    the picture.
    """
    if (opening := picture.locator(".ring-opening button")).is_visible():
        opening.click()
    line = picture.locator(".reading")
    before = line.text_content()
    for control in picture.locator("input[type=range]:enabled, select:enabled, .rail button:enabled").all():
        for key in ("ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"):
            control.press(key)
            for _ in range(50):  # a busy machine paints late; two keys before it has painted would undo each other
                picture.page.wait_for_timeout(60)
                if line.text_content() != before:
                    return True
    return False
