"""The errors of mvgp: one small tree, so that ``except MvgpError`` catches all of them."""

from __future__ import annotations


class MvgpError(Exception):
    """Root of every error that mvgp raises on purpose."""


class InputError(MvgpError, ValueError):
    """An argument is not what was expected; the message says what was, what came, and where."""


class NotPositiveSemidefiniteError(InputError):
    """A matrix that has to be a covariance has a negative eigenvalue."""


class SizeError(MvgpError, ValueError):
    """A computation would need more memory or time than its stated budget."""


class ConvergenceError(MvgpError, RuntimeError):
    """An iterative solver missed its tolerance; the message states the residual it reached."""


class StorageError(MvgpError, ValueError):
    """A file is not a saved posterior, or is one no longer; the message says what was expected and what came."""


def missing_package(what: str, package: str, extra: str) -> ImportError:
    """The error for something that needs a package which is not installed; ``extra`` is that of mvgp that brings it."""
    return ImportError(f"{what}: expected the package {package}, got none; pip install 'mvgp[{extra}]'", name=package)
