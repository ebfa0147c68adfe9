"""Files inside installed packages, found without running any of their code."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from ..errors import InputError


def package_folder(package: str, install: str) -> Path:
    """Where a package lies.

    :param package: its name.
    :param install: the command that would install it, for the message if it is missing.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"expected the package {package}, whose tables are read, got none: {install}")
    return Path(next(iter(spec.submodule_search_locations)))


def package_version(package: str) -> str:
    """As installed."""
    return metadata.version(package)
