"""Run a script as ``python -c`` runs it in a process of its own, in which torch has been imported and nothing else.

A server starts once, imports torch, and forks for each script: importing torch is most of what such a process takes.
"""

import multiprocessing
import os
import sys
import tempfile
import traceback
from pathlib import Path

FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["torch"])


def run(script, **env):
    """What the script prints, and what it says on stderr.

    Args:
        env: variables of its environment, set before it begins.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("out", "err")]
        process = FRESH.Process(target=_run, args=(script, env, *files))
        process.start()
        process.join()
        process.close()
        out, err = (file.read_text(encoding="utf-8") for file in files)
        return out, err


def _run(script, env, *files):
    os.environ |= env
    for descriptor, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), descriptor)
    sys.stdout, sys.stderr = (open(descriptor, "w", encoding="utf-8") for descriptor in (1, 2))
    try:
        exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
