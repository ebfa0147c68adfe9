"""Code in a process of its own, as a reader would run it, without waiting for PyTorch to be imported each time.

Where the platform can fork, children come from a server that has imported the libraries underneath, but nothing of mvgp.
"""

import contextlib
import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path

LIBRARIES = [
    "gpytorch",
    "linear_operator",
    "numpy",
    "pandas",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.special",
    "torch",
]
CAN_FORK = "forkserver" in multiprocessing.get_all_start_methods()


def _child(script, folder, stdout, stderr):
    for path, stream, number in ((stdout, sys.stdout, 1), (stderr, sys.stderr, 2)):
        stream.flush()
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    sys.argv = [script]
    os.chdir(folder)
    runpy.run_path(script, run_name="__main__")


def run(code, folder):
    """``code`` run with ``folder`` as working directory: its return code, and what it wrote."""
    if not CAN_FORK:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    script, stdout, stderr = (Path(folder) / f".{name}" for name in ("script.py", "stdout", "stderr"))
    script.write_text(code, encoding="utf-8")
    child = context.Process(target=_child, args=(str(script), str(folder), str(stdout), str(stderr)))
    child.start()
    child.join()
    written = [path.read_text(encoding="utf-8") if path.exists() else "" for path in (stdout, stderr)]
    for path in (script, stdout, stderr):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    return subprocess.CompletedProcess([str(script)], child.exitcode, *written)
