"""The command line: a thin layer over the library."""

from __future__ import annotations

import sys

NEEDED = ("typer", "rich")


def main() -> None:
    """Run a command; a mistake of the user ends in one clear line and exit code 2, an interrupt in exit code 130."""
    try:
        from .entry import run
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        print(f"mvgp: the command line needs the package {error.name}: pip install 'mvgp[cli]'", file=sys.stderr)
        sys.exit(2)
    sys.exit(run(sys.argv[1:]))
