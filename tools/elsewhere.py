"""Run the notebooks of notebooks/elsewhere, each in an environment of its own, and the book's layer beside them.

    python -m tools.elsewhere jax keras      run these, write them, what they found, and the table
    python -m tools.elsewhere --test         run all, and compare with what is committed

A framework that cannot be installed is reported and skipped. What a notebook finds is kept in
``benchmarks/results/elsewhere.json``, and shown in the tables of ``notebooks/elsewhere/README.md``.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpec

from tools import notebooks

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks" / "elsewhere"
RESULTS = ROOT / "benchmarks" / "results" / "elsewhere.json"
PYTHON = os.environ.get("BOOK_PYTHON", "python3.11")  # for which the pins are
BOOK = {"jax": "jax", "keras": "tensorflow", "mxnet": "mxnet"}  # notebook -> the book's framework, in its environment
PORTS = (*BOOK, "kotlin")
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"

sys.path.insert(0, str(FOLDER))
from golden_vectors import in_words  # noqa: E402  (it stands beside the notebooks, which import it too)


def install(port):
    """Make the environment of a port if it is not there; whether it is there now."""
    needed = {PYTHON: "Name yours: BOOK_PYTHON=…"}
    if port == "kotlin":
        needed["java"] = "Kotlin's kernel needs Java 11 or newer; on Debian: sudo apt install default-jre-headless"
    for program, remedy in needed.items():
        if not shutil.which(program):
            print(f"There is no {program} here. {remedy}")
            return False
    environment, pins = ROOT / f".venv-elsewhere-{port}", FOLDER / "pins" / f"{port}.txt"
    stamp, key = environment / "installed", hashlib.sha256(pins.read_bytes() + os.fsencode(ROOT)).hexdigest()
    if not stamp.exists() or stamp.read_text() != key:
        print(f"Installing the packages of {environment.name}: about a minute, up to 1.5 GB", flush=True)
        pip = [environment / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
        steps = [PYTHON, "-m", "venv", "--clear", environment], [*pip, "--no-deps", "--requirement", pins]
        if any(subprocess.call(step) for step in steps):
            return False
        stamp.write_text(key)
    return True


def kernel_of(port):
    """What starts the kernel of a port, with its environment's commands; JupyterLab knows it from now on."""
    environment, kotlin = ROOT / f".venv-elsewhere-{port}", port == "kotlin"
    file = environment / "share" / "jupyter" / "kernels" / ("kotlin" if kotlin else "python3") / "kernel.json"
    spec = json.loads(file.read_text()) | {"env": {"PATH": f"{environment / 'bin'}{os.pathsep}${{PATH}}"}}
    spec["argv"][0] = str(environment / "bin" / "python")
    spec["display_name"] = f"{'Kotlin' if kotlin else 'Python'} (elsewhere: {port})"
    known = Path(sys.prefix, "share", "jupyter", "kernels", f"elsewhere-{port}")
    known.mkdir(parents=True, exist_ok=True)
    (known / "kernel.json").write_text(json.dumps(spec))

    class Kernel(AsyncKernelManager):
        @property
        def kernel_spec(self):
            return KernelSpec(resource_dir=str(file.parent), **spec)

        def format_kernel_cmd(self, extra_arguments=None):
            return super().format_kernel_cmd(None if kotlin else extra_arguments)  # they are IPython's

        def start_kernel(self, **arguments):
            # Kotlin's kernel logs all that it does, and prints what it sends
            quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL) if kotlin else {}
            return super().start_kernel(**quiet, **arguments)

    return Kernel, {"display_name": spec["display_name"], "language": spec["language"], "name": known.name}


def run(port):
    """The notebook of a port as it comes out, as text, and what it and the book's layer have found."""
    notebook = notebooks.read(FOLDER / f"{port}.ipynb")
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "found.jsonl")
        env = notebooks.clean_environment() | {"MHA_ELSEWHERE": str(lines)}
        kernel, spec = kernel_of(port)
        notebooks.execute(notebook, FOLDER, env, kernel)
        python = ROOT / f".venv-elsewhere-{port}" / "bin" / "python" if port in BOOK else sys.executable
        book = [python, FOLDER / "d2l_layer.py", BOOK.get(port, "torch")]  # torch is in the course's own environment
        subprocess.run(book, env=env, check=True, stdout=subprocess.DEVNULL)
        found = [json.loads(line) for line in lines.read_text().splitlines()]
    notebooks.normalise(notebook)
    notebook.metadata.kernelspec = nbformat.from_dict(spec)
    if port == "kotlin":
        notebook.metadata.language_info = nbformat.from_dict({"name": "kotlin", "file_extension": ".kt"})
    notebooks.set_ids(notebook.cells, port)
    nbformat.validate(notebook)
    return nbformat.v4.writes(notebook) + "\n", found


def in_table(entry):
    """What has been found as the tables say it, so that two machines say the same."""
    if "found" in entry:
        return entry | {"found": {name: in_words(off, entry["dtype"]) for name, off in entry["found"].items()}}
    return entry | {"off": f"off by {entry['off']:.1f}"} if "off" in entry else entry


def table(*rows):
    head, *others = rows
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *others))


def tables(results):
    """The tables of the page, in Markdown: layers by case, traps, planted bugs."""
    found = [entry for port in PORTS for entry in results[port]]
    layers = sorted((one for one in found if "found" in one), key=lambda one: "this layer" not in one["layer"])
    cases = []
    for one in layers:
        words, exact = in_table(one)["found"], one["found"]
        shown = (f"ok, {exact[name]:.0e}" if words[name] == "ok" else words[name] for name in exact)
        cases.append([one["layer"], one["dtype"], *shown])
    traps = [[one["layer"], one["trap"], in_table(one)["off"]] for one in found if "trap" in one]
    caught = {port: {one["bug"]: one["caught"] for one in results[port] if "bug" in one} for port in PORTS}
    bugs = [[bug, *(f"caught by {caught[port][bug]} of 10" for port in PORTS)] for bug in caught["kotlin"]]
    return "\n".join(
        (
            table(["layer", "numbers", *layers[0]["found"]], *cases),
            table(["framework's own layer", "trap", "output"], *traps),
            table(["planted bug", *PORTS], *bugs),
        )
    )


def with_tables(page, results):
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{tables(results)}\n{END}{rest.partition(END)[2]}"


def main():
    parser = argparse.ArgumentParser(description="Run the notebooks of notebooks/elsewhere.")
    parser.add_argument("ports", nargs="*", help="default: all")
    parser.add_argument("--test", action="store_true", help="compare with what is committed, and write nothing")
    arguments = parser.parse_args()
    results, failed = json.loads(RESULTS.read_text()), False
    for port in arguments.ports or PORTS:
        if not install(port):
            print(f"REPORT: {port} is skipped, since it could not be installed")
            continue
        try:
            text, found = run(port)
        except notebooks.NotebookError as error:
            print(f"{port}: {error}", flush=True)
            failed = True
            continue
        path, known = FOLDER / f"{port}.ipynb", [*map(in_table, found)] == [*map(in_table, results[port])]
        if arguments.test:
            same = known and text == path.read_text()
            print(f"{port}: {'as committed' if same else 'NOT as committed'}", flush=True)
            failed |= not same
        else:
            path.write_text(text)
            results[port] = results[port] if known else found  # the last digits are those of one machine
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            page = FOLDER / "README.md"
            page.write_text(with_tables(page.read_text(), results))
            print(f"{port}: written", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
