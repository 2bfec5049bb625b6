"""Every notebook runs alone: from any folder, offline, from a cold cache."""

import os

import pytest
from nbformat.v4 import new_code_cell, new_notebook
from notebook_tools import NOTEBOOKS, ROOT, SOLUTIONS, make_notebooks

CACHE_VARIABLES = (
    "MHA_CACHE",
    "MPLCONFIGDIR",
    "IPYTHONDIR",
    "TORCH_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
)
NO_NETWORK = ROOT / "tests" / "notebooks" / "no_network"


@pytest.fixture
def run(tmp_path):
    """Run a notebook in an empty folder of an empty home, without network."""
    home, folder = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    folder.mkdir()
    env = {name: value for name, value in os.environ.items() if name not in CACHE_VARIABLES}
    env |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "PYTHONPATH": str(NO_NETWORK)}

    return lambda notebook: make_notebooks.execute(notebook, folder, env)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_notebook_runs_anywhere(run, path):
    run(make_notebooks.read(path))


def notebook_of(*sources):
    return new_notebook(cells=[new_code_cell(source, metadata={"tags": ["raises-exception"]}) for source in sources])


def test_other_machines_are_refused(run):
    calls = notebook_of(
        "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)",
        "socket.socket().connect_ex(('192.0.2.1', 80))",
        "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 80))",
        "socket.getaddrinfo('example.org', 80)",
        "socket.gethostbyname('example.org')",
        "import urllib.request; urllib.request.urlopen('http://example.org', timeout=1)",
    )
    run(calls)
    for cell in calls.cells:
        assert "no network here" in cell.outputs[0].evalue, cell.source


def test_this_machine_is_reached(run):
    calls = notebook_of(
        "import socket; server = socket.create_server(('localhost', 0))",
        "socket.create_connection(server.getsockname()).close()",
    )
    run(calls)
    assert [cell.outputs for cell in calls.cells] == [[], []]


def test_the_home_is_cold_and_the_repository_out_of_sight(run):
    looks = notebook_of(
        "import os; os.listdir()", "import notebook_tools", "os.path.exists(os.path.expanduser('~/.cache'))"
    )
    run(looks)
    empty, unknown, cached = (cell.outputs[0] for cell in looks.cells)
    assert empty.data["text/plain"] == "[]"
    assert unknown.ename == "ModuleNotFoundError"
    assert cached.data["text/plain"] == "False"
