"""Make the page without an exercise, which is data of mha_course: MicroPython, the tensor, the verdict and the editor.

    make page-runtime

The packages are those of pages/package-lock.json, with their hashes; nothing else here needs npm.
"""

import base64
import gzip
import hashlib
import html
import json
import shutil
import subprocess
from pathlib import Path

from pages import export

HERE = Path(__file__).parent
BUILD = HERE.parent / "build" / "page-runtime"
PAGE = HERE.parent / "mha_course" / "exercises" / "page.html"
SOURCES = ("page.html", "page.js", "worker.js", "editor.js", "tensor.py", "verdict.py", "layer.py", "package-lock.json")
CUTS = {  # in micropython.mjs, once each: so a module becomes a plain script, which a worker can run from a file
    "export default _createMicroPythonModule;": "",
    "export async function loadMicroPython": "async function loadMicroPython",
    "createRequire(import.meta.url)": 'createRequire("file:///")',
    "_scriptName=import.meta.url": '_scriptName=""',
    'new URL("micropython.wasm",import.meta.url).href': '"micropython.wasm"',
    "let Module={locateFile:": "let Module={wasmBinary:options.wasm,locateFile:",  # WebKit fetches nothing for a file
}
BEGIN, END = (
    'if(globalThis.loadMicroPython=loadMicroPython,"object"',
    "class PyProxy{constructor",
)  # of node's command line


def as_script(module):
    """MicroPython's module as a script.

    Raises:
        ValueError: what is to be cut does not stand there once.
    """
    counts = {old: module.count(old) for old in (*CUTS, BEGIN, END)}
    if set(counts.values()) != {1}:
        raise ValueError(f"each cut must match once; matches: {counts}")
    module = module[: module.index(BEGIN)] + module[module.index(END) :]
    for old, new in CUTS.items():
        module = module.replace(old, new)
    if "import.meta" in module:
        raise ValueError("import.meta is left in the script")
    return module + "\nglobalThis.loadMicroPython = loadMicroPython;\n"


def made_of():
    """A fingerprint of all that the page is made of."""
    texts = [(HERE / name).read_text(encoding="utf-8") for name in SOURCES]
    return hashlib.sha256(json.dumps([*texts, export.words()]).encode()).hexdigest()


def bundle():
    """The editor and its packages as one script."""
    command = [BUILD / "node_modules/.bin/esbuild", "editor.js", "--bundle", "--minify", "--format=iife"]
    options = ["--global-name=Editor", "--log-level=warning"]
    return subprocess.run([*command, *options], cwd=BUILD, check=True, capture_output=True, text=True).stdout


def install():
    """Install the packages; npm refuses one whose hash is another."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    for name in ("package.json", "package-lock.json", "editor.js"):
        shutil.copy(HERE / name, BUILD)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=BUILD, check=True)


def packed(data):
    """Bytes or a text, compressed, as base64."""
    data = data.encode() if isinstance(data, str) else data
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def page(engine, wasm, editor, licence):
    """The page without an exercise."""
    read = {name: (HERE / name).read_text(encoding="utf-8") for name in SOURCES}
    parts = {
        "editor": editor,
        "runtime": engine + read["worker.js"],
        "wasm": wasm,
        "tensor.py": read["tensor.py"],
        "verdict.py": read["verdict.py"],
        "layer.py": read["layer.py"],
        "words.json": json.dumps(export.words()),
    }
    listed = ",\n".join(f"{json.dumps(name)}: {json.dumps(packed(part))}" for name, part in parts.items())
    text = read["page.html"].replace("@@MADE_OF@@", made_of()).replace("@@PARTS@@", listed)
    text = text.replace("@@LICENCE@@", html.escape(licence.strip()))
    return text.replace("@@SCRIPT@@", read["page.js"])


if __name__ == "__main__":
    install()
    PACKAGES = BUILD / "node_modules"
    MICROPYTHON = PACKAGES / "@micropython/micropython-webassembly-pyscript"
    ENGINE = as_script((MICROPYTHON / "micropython.mjs").read_text(encoding="utf-8"))
    LICENCE = (PACKAGES / "@codemirror/view/LICENSE").read_text(encoding="utf-8")
    PAGE.write_text(page(ENGINE, (MICROPYTHON / "micropython.wasm").read_bytes(), bundle(), LICENCE), encoding="utf-8")
    print(f"{PAGE.relative_to(HERE.parent)}: {PAGE.stat().st_size / 1000:.0f} kB")
