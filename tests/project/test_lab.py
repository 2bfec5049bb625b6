"""`make lab` as a learner meets it, in a home directory that has a python3 kernel of another Python."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from jupyter_client import BlockingKernelClient

ROOT = Path(__file__).parents[2]
START = "notebooks/00_start_here.ipynb"
TOKEN = "token"
FOREIGN_KERNEL = {"argv": ["false", "{connection_file}"], "display_name": "foreign", "language": "python"}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("lab")]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home directory, of Linux and macOS at once, with foreign kernels."""
    home = tmp_path_factory.mktemp("home")
    for data in [".local/share/jupyter", "Library/Jupyter", "named by JUPYTER_PATH"]:
        kernel = home / data / "kernels" / "python3"
        kernel.mkdir(parents=True)
        (kernel / "kernel.json").write_text(json.dumps(FOREIGN_KERNEL))
    return home


@pytest.fixture(scope="module")
def ask(home):
    """`ask(path, data)` is a request to a running lab (what is installed is not looked at here)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = f"--no-browser --port={server.split(':')[1]} --IdentityProvider.token={TOKEN}"
    variables = {
        "HOME": str(home),
        "JUPYTER_PATH": str(home / "named by JUPYTER_PATH"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
    }

    def ask(path, data=None):
        body = json.dumps(data).encode() if data else None
        request = urllib.request.Request(f"http://{server}{path}", body, {"Authorization": f"token {TOKEN}"})
        return urllib.request.urlopen(request)

    with open(home / "log", "w") as log:
        make = subprocess.Popen(
            ["make", "--old-file=install", "--old-file=try-real-models", "lab", f"LAB_ARGS={arguments}"],
            cwd=ROOT,
            env=os.environ | variables,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while make.poll() is None:
        try:
            ask("/api/status")
            break
        except OSError:
            time.sleep(0.25)
    assert make.poll() is None, (home / "log").read_text()
    yield ask
    os.killpg(make.pid, signal.SIGTERM)
    make.wait()


def test_it_opens_the_first_notebook(ask):
    assert ask("/").url.endswith(f"/lab/tree/{START}")
    assert ask(f"/api/contents/{START}").status == 200


def test_the_kernel_is_the_environments_own(ask, home):
    wanted = {"path": START, "name": START, "type": "notebook", "kernel": {"name": "python3"}}
    kernel = json.load(ask("/api/sessions", wanted))["kernel"]["id"]
    client = BlockingKernelClient(connection_file=str(home / "runtime" / f"kernel-{kernel}.json"))
    client.load_connection_file()
    client.start_channels(hb=False)  # on a busy machine a heart that beats late is no dead kernel
    client.wait_for_ready()
    asked = {"python": "sys.executable"}
    reply = client.execute("import sys", user_expressions=asked, reply=True)["content"]
    client.stop_channels()
    answer = reply["user_expressions"]["python"]["data"]["text/plain"]
    assert answer == repr(str(ROOT / ".venv/bin/python"))


@pytest.mark.parametrize(
    ("plugin", "setting", "value"),
    [
        ("@jupyterlab/apputils-extension:notification", "fetchNews", "false"),
        ("@jupyter-widgets/jupyterlab-manager:plugin", "saveState", True),
        ("@jupyterlab/docmanager-extension:plugin", "autosaveInterval", 10),
    ],
)
def test_it_asks_nothing_about_news_keeps_widgets_and_saves_soon(ask, plugin, setting, value):
    """What the lab does where the user has set nothing."""
    plugins = json.load(ask("/lab/api/settings"))["settings"]
    (schema,) = [each["schema"] for each in plugins if each["id"] == plugin]
    assert schema["properties"][setting]["default"] == value
