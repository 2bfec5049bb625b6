"""Links of pages lead to files, and `make links`, tried on a server of this machine, asks the cited addresses."""

import http.server
import re
import threading
from urllib.parse import unquote

import pytest

from tools.links import ROOT, check, cited

SITE_PYTHON = ROOT / ".venv-site" / "bin" / "python"
PAGES = [
    ROOT / "README.md",
    ROOT / "classroom" / "CLAIM.md",
    *sorted(p for p in (ROOT / "notebooks").rglob("*.md") if "my_claim" not in p.parts),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_links_of_a_page_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert links and [link for link in links if not (page.parent / unquote(link)).exists()] == []


@pytest.fixture
def server():
    """Answers of one page with 200, of all others with 404, and of ``/silent`` never as long as the test lasts."""
    ended = threading.Event()

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/silent":
                ended.wait()
            self.send_response(200 if self.path == "/here" else 404)
            self.end_headers()

        do_HEAD = do_GET
        log_message = lambda *_: None  # noqa: E731

    with http.server.ThreadingHTTPServer(("127.0.0.2", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.2:{server.server_port}"
        ended.set()
        server.shutdown()


def test_what_is_gone_and_what_is_silent_is_named_with_its_file_and_line(server, tmp_path, capfd):
    if not SITE_PYTHON.exists():
        pytest.skip("its packages are the site's: run `make site`")
    (tmp_path / "notes.md").write_text(
        f"A [page]({server}/here).\n\nAnother:\n{server}/gone, and (see {server}/silent).\n"
    )
    (tmp_path / "code.py").write_text(f'"""Source: {server}/here."""\n')
    assert not check(tmp_path, ["notes.md", "code.py"], tmp_path / "pages", timeout=1)
    told = capfd.readouterr()
    faults = [line for line in told.err.splitlines() if server in line]
    assert told.out.startswith("4 addresses")
    assert len(faults) == 2 and all("notes.md.md:4" in line for line in faults)
    assert any("/gone" in line and "404" in line for line in faults)
    assert any("/silent" in line and "timed out" in line for line in faults)
    assert check(tmp_path, ["code.py"], tmp_path / "pages", timeout=1)


def test_addresses_are_read_as_people_write_them():
    line = "See [d2l](https://d2l.ai/a_b.html#c), github.com/a/b/issues/1. (Also `https://arxiv.org/abs/1706.03762`.)"
    expected = ["https://d2l.ai/a_b.html#c", "https://github.com/a/b/issues/1", "https://arxiv.org/abs/1706.03762"]
    assert cited(line) == expected
    assert (
        cited("http://127.0.0.1:8888 https://github.com/_owner_/x http://www.w3.org/2000/svg https://example.org") == []
    )
