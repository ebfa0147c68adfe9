"""What a run ran on: machine, versions, commit."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "torch",
    "gpytorch",
    "linear_operator",
    "botorch",
    "scikit-learn",
    "implicit",
    "numpy",
    "scipy",
)
MEASURED = ("mvgp/**/*.py", "benchmarks/book/contestants/*.py", "benchmarks/book/server.py")


def machine() -> dict[str, str]:
    """Processor, cores, memory, system."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{_system()}, Linux {platform.release()}" if os.name == "posix" else platform.platform(),
    }


def versions() -> dict[str, str]:
    """Of Python and the packages that take part."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def commit() -> str:
    """The commit, and whether files of the measured code differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", "mvgp", "benchmarks/book")
        return git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "not known (no git)"


def code_digest() -> str:
    """Equal as long as nothing that is measured has changed."""
    found = hashlib.sha256()
    for path in sorted(path for pattern in MEASURED for path in ROOT.glob(pattern)):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\1")
    return found.hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()
