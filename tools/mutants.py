"""Break random places of the library, one at a time, and see whether that room's quick tests notice: ``make mutants``.

    python -m tools.mutants                                        16 places of each room, seed 1
    python -m tools.mutants --places 4 --seed 2 --rooms pictures   fewer, others, one room alone

Works in copies of the tree under build/mutants, and keeps a line of JSON for each place that was tried: started again,
it goes on where it stopped, and tries a place anew where its file or that room's tests have changed. Ends with the
places that no test noticed. Some of these cannot be noticed, since the program does the same as before; the others are
promises that no test holds. Tests that no longer end count as having noticed.
"""

import argparse
import ast
import difflib
import functools
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "mutants"
ROOMS = sorted({path.parent.name for path in ROOT.glob("mha_*/*/__init__.py")})
# Without those that drive a browser, start a kernel or train for long.
QUICK_TESTS = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-m", "not slow and not browser", "--tb=line"]
PATIENCE = 3  # tests that take this many times as long as with nothing broken have gone astray
SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
WORDS = ast.JoinedStr | ast.Import | ast.ImportFrom  # no test should hold these to the letter
NOT_BROKEN = {"annotation", "returns", "msg", "exc", "decorator_list"}


def mutants(node: ast.AST) -> Iterator[str]:
    """What may stand in the place of a piece of code."""
    match node:
        case ast.Compare(ops=[first, *others]):
            yield with_field(node, "ops", [SWAPPED[type(first)](), *others])
        case ast.BoolOp() | ast.BinOp() if type(node.op) in SWAPPED:
            yield with_field(node, "op", SWAPPED[type(node.op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            yield f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool()):
            yield repr(not node.value)
        case ast.Constant(value=int() | float()):
            yield repr(node.value + 1)
        case ast.Assign() | ast.AugAssign() | ast.Expr() | ast.Raise() | ast.Return() | ast.If() | ast.For():
            yield "pass"


def with_field(node: ast.AST, name: str, content: object) -> str:
    """The code of a node in which one field is replaced."""
    return f"({ast.unparse(type(node)(**(vars(node) | {name: content})))})"


def places(node: ast.AST, at_top: bool = True) -> Iterator[tuple[ast.AST, str]]:
    """Every piece of code that may be broken, and what stands there then."""
    for name, field in ast.iter_fields(node):
        for child in field if isinstance(field, list) else [field]:
            is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if name in NOT_BROKEN or is_docstring or isinstance(child, WORDS) or not isinstance(child, ast.AST):
                continue
            yield from ((child, new) for new in mutants(child) if not (at_top and new == "pass"))
            yield from places(child, at_top and not isinstance(child, ast.FunctionDef))


def broken(source: str, node: ast.AST, new: str) -> str:
    """The source with another text in the place of a node; all else stays on its line."""
    lines = source.encode().splitlines(keepends=True)
    begin, end = (
        sum(map(len, lines[: getattr(node, f"{at}lineno") - 1])) + getattr(node, f"{at}col_offset")
        for at in ("", "end_")
    )
    return (b"".join(lines)[:begin] + new.encode() + b"".join(lines)[end:]).decode()


def sampled(room: str, count: int, seed: int) -> list[tuple[Path, ast.AST, str]]:
    """Random places of a room, drawn from all, but from only a third of the many statements to delete."""
    rng = random.Random(f"{seed} {room}")
    files = sorted(ROOT.glob(f"mha_*/{room}/*.py"))
    every = [(path.relative_to(ROOT), *place) for path in files for place in places(ast.parse(path.read_text("utf-8")))]
    return rng.sample([place for place in every if place[2] != "pass" or rng.random() < 1 / 3], count)


def failure(tree: Path, room: str, first: str = "", limit: float | None = None) -> str | None:
    """The first of a room's tests that fails in a tree, those of the file ``first`` tried first; None if all pass."""
    tests = sorted((tree / "tests" / room).glob("test_*.py"), key=lambda test: (first not in test.stem, test.stem))
    # No compiled file may outlive the place that it was made from, no trained model the code that trained it.
    env = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "MHA_CACHE": str(tree / "models")}
    try:
        done = subprocess.run([*QUICK_TESTS, *tests], cwd=tree, env=env, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return "does not end"
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return "; ".join(lines)[:160] or f"pytest ended with {done.returncode}" if done.returncode else None


def try_room(room: str, count: int, seed: int) -> list[dict]:
    """Every sampled place of a room, with the test that noticed it, or None."""
    tree, log = FOLDER / room, FOLDER / f"{room}.jsonl"
    kept = {line["key"]: line for line in map(json.loads, log.read_text("utf-8").splitlines())} if log.exists() else {}
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
    tests, limit, found = b"".join(path.read_bytes() for path in sorted(tree.glob(f"tests/{room}/*.py"))), None, []
    for path, node, new in sampled(room, count, seed):
        source = (ROOT / path).read_text("utf-8")
        after = broken(source, node, new)
        key = hashlib.sha256(after.encode() + tests).hexdigest()
        if key not in kept:
            if limit is None:
                begin, failed = time.monotonic(), failure(tree, room)
                if failed:
                    raise SystemExit(f"The tests of {room} must pass before anything is broken: {failed}")
                limit = PATIENCE * (time.monotonic() - begin) + 60
            (tree / path).write_text(after, "utf-8")
            noticed = failure(tree, room, path.stem, limit)
            (tree / path).write_text(source, "utf-8")
            change = [*difflib.unified_diff(source.splitlines(), after.splitlines(), n=0, lineterm="")][3:]
            kept[key] = {"key": key, "place": f"{path}:{node.lineno}", "change": change, "noticed": noticed}
            with log.open("a", encoding="utf-8") as file:
                print(json.dumps(kept[key], ensure_ascii=False), file=file)
        found.append(kept[key])
        print(f"{len(found)} of {count}, {kept[key]['place']}: {kept[key]['noticed'] or 'SURVIVED'}", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Break random places of the library; list what no test notices.")
    parser.add_argument("--places", type=int, default=16, help="how many of each room")
    parser.add_argument("--seed", type=int, default=1, help="which places")
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=ROOMS)
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=2) as pool:
        outcomes = pool.map(functools.partial(try_room, count=given.places, seed=given.seed), given.rooms)
        for room, found in zip(given.rooms, list(outcomes), strict=True):
            survivors = [place for place in found if place["noticed"] is None]
            print(f"\n{room}: {len(found) - len(survivors)} of {len(found)} noticed")
            for place in survivors:
                print("", place["place"], *place["change"], sep="\n    ")
