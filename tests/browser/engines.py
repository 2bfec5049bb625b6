"""Firefox and WebKit, each driven by the standard protocol that it speaks itself, and pages that tell their errors.

Playwright drives builds of its own of these two, which cannot be had everywhere; Debian has theirs. Firefox speaks
WebDriver BiDi over a socket, WebKitGTK the older WebDriver over HTTP. Actions of keys and mouse are the same in both.
"""

import base64
import contextlib
import functools
import http.server
import io
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import websocket
from PIL import Image

from tools.lab_page import PATIENCE, free_ports

KEYS = {
    "ArrowRight": "\ue014",
    "ArrowLeft": "\ue012",
    "ArrowDown": "\ue015",
    "ArrowUp": "\ue013",
    "Enter": "\ue006",
    "Space": " ",
}
HEAR = """<script>
window.heard = [];
addEventListener("error", event => heard.push(event.message ?? `not loaded: ${event.target.outerHTML}`), true);
addEventListener("unhandledrejection", event => heard.push(String(event.reason)));
console.error = (...words) => heard.push(words.join(" "));
</script>"""


class HearingServer(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; each page notes its errors in ``heard``, from its very first line on."""

    def send_head(self):
        path = Path(self.translate_path(self.path))
        if path.suffix != ".html" or not path.is_file():
            return super().send_head()
        page = re.sub("(?=<meta )", lambda _: HEAR, path.read_text(encoding="utf-8"), count=1).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        return io.BytesIO(page)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serve(folder):
    """Serve a folder; the address of its pages."""
    handler = functools.partial(HearingServer, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Engine:
    """A browser with one page, whose own files go to ``folder``. A subclass carries the commands over."""

    programs: tuple[str, ...] = ()  # that must be on the PATH

    def __init__(self, folder):
        self.folder = folder
        self.start()

    def start(self):
        """Start the browser, and wait until it listens."""
        raise NotImplementedError

    def evaluate(self, function, *args):
        """What a JavaScript function returns in the page, or what its promise becomes."""
        raise NotImplementedError

    def act(self, source):
        """Let a keyboard or a mouse, of WebDriver's notation, do something."""
        raise NotImplementedError

    def press(self, key):
        """Press a key, of the names in KEYS, in the element that has the focus."""
        strokes = [{"type": kind, "value": KEYS[key]} for kind in ("keyDown", "keyUp")]
        self.act({"type": "key", "id": "keyboard", "actions": strokes})

    def click(self, x, y):
        """Click with the mouse, at a place of the window."""
        move = {"type": "pointerMove", "x": round(x), "y": round(y)}
        buttons = [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")]
        self.act({"type": "pointer", "id": "mouse", "actions": [move, *buttons]})

    def wait_until(self, there):
        """Return the first true answer of a function."""
        deadline = time.monotonic() + PATIENCE
        while not (answer := there()):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"{type(self).__name__} has ended, or did not answer for {PATIENCE} s")
            time.sleep(0.05)
        return answer

    def stop(self):
        """End the browser, and what it has started."""
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait(PATIENCE)


class CrashError(RuntimeError):
    """The browser's page has crashed: where a display is virtual, the software behind it does so now and then."""


class Firefox(Engine):
    """Firefox, through WebDriver BiDi."""

    programs = ("firefox-esr",)

    def start(self):
        log = self.folder / "firefox.log"
        # As tests in Chromium ask for: pictures stand still, and the Ring shows models that ship, and trains none.
        (self.folder / "user.js").write_text('user_pref("ui.prefersReducedMotion", 1);\n')
        with log.open("w") as file:
            self.process = subprocess.Popen(
                ["firefox-esr", "--headless", "--no-remote", f"--profile={self.folder}", "--remote-debugging-port=0"],
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        said = self.wait_until(lambda: re.search(r"WebDriver BiDi listening on (\S+)", log.read_text()))
        self.socket = websocket.create_connection(f"{said[1]}/session", timeout=PATIENCE, suppress_origin=True)
        self.number = 0
        self.command("session.new", capabilities={})
        # A tab that is made by command has the focus; the one that Firefox starts with never gets it without a desktop.
        self.context = self.command("browsingContext.create", type="tab")["context"]

    def command(self, method, **params):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while (answer := json.loads(self.socket.recv())).get("id") != self.number:
            pass
        if answer["type"] == "error":
            raise RuntimeError(f"{method}: {answer['message']}")
        return answer["result"]

    def open(self, address):
        self.command("browsingContext.navigate", context=self.context, url=address, wait="complete")

    def resize(self, width, height):
        size = {"width": width, "height": height}
        self.command("browsingContext.setViewport", context=self.context, viewport=size)

    def evaluate(self, function, *args):
        text = f"async () => JSON.stringify(await ({function})(...{json.dumps(args)}) ?? null)"
        answer = self.command(
            "script.callFunction", functionDeclaration=text, awaitPromise=True, target={"context": self.context}
        )
        if answer["type"] == "exception":
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def stop(self):
        self.socket.close()
        super().stop()

    def act(self, source):
        self.command("input.performActions", context=self.context, actions=[source])

    def screenshot(self):
        answer = self.command("browsingContext.captureScreenshot", context=self.context)
        return Image.open(io.BytesIO(base64.b64decode(answer["data"])))


class WebKit(Engine):
    """WebKitGTK, through WebDriver; it needs a display, which xvfb gives."""

    programs = ("WebKitWebDriver", "xvfb-run")

    def start(self):
        [port] = free_ports(1)
        self.process = subprocess.Popen(
            ["xvfb-run", "--auto-servernum", "WebKitWebDriver", f"--port={port}"],
            env=os.environ
            | {"HOME": str(self.folder), "WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1"},  # root has none
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.session = f"http://127.0.0.1:{port}"
        self.wait_until(self.listens)
        browser = max(Path("/usr/lib").glob("*/webkit*gtk-*/MiniBrowser"))  # webkit2gtk-4.1, later webkitgtk-6.0
        options = {"webkitgtk:browserOptions": {"binary": str(browser), "args": ["--automation"]}}
        made = self.command("/session", capabilities={"alwaysMatch": options})
        self.session += f"/session/{made['sessionId']}"
        self.command("/timeouts", script=1000 * PATIENCE, pageLoad=1000 * PATIENCE)

    def listens(self):
        try:
            return self.command("/status")["ready"]
        except urllib.error.URLError:
            return False

    def command(self, path, **params):
        """POST, or GET where there is nothing to say."""
        data = json.dumps(params).encode() if params else None
        request = urllib.request.Request(self.session + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            told = f"{path}: {error.read().decode()}"
            crashed = any(words in told for words in ("invalid session id", "Could not parse script result", "crash"))
            raise (CrashError if crashed else RuntimeError)(told) from None

    def open(self, address):
        self.command("/url", url=address)

    def resize(self, width, height):
        self.command("/window/rect", width=width, height=height)

    def evaluate(self, function, *args):
        text = (
            "const done = arguments[arguments.length - 1];"
            f"(async () => JSON.stringify(await ({function})(...{json.dumps(args)}) ?? null))()"
            ".then(value => done({ value }), error => done({ error: String(error) }));"
        )
        answer = self.command("/execute/async", script=text, args=[])
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return json.loads(answer["value"])

    def act(self, source):
        self.command("/actions", actions=[source])

    def screenshot(self):
        return Image.open(io.BytesIO(base64.b64decode(self.command("/screenshot"))))
