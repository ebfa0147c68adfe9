"""Commands run in this process, as a user would have seen them."""

import sys
from types import SimpleNamespace

from mvgp.prioritise.cli.entry import run


def command(capsysbinary, *arguments):
    """The exit code, what went to stdout, and what went to stderr."""
    capsysbinary.readouterr()
    code = run([str(one) for one in arguments])
    sys.stdout.flush()
    out, err = capsysbinary.readouterr()
    return SimpleNamespace(code=code, out=out.decode(), err=err.decode())
