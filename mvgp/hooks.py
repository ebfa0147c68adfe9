"""Calls against the direction of imports: the package root fills them in, so that no module imports downstream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _not_filled_in(*_: Any, **__: Any) -> None:
    raise RuntimeError("mvgp has not been imported as a package; import mvgp first")


describe: Callable[[Any], Any] = _not_filled_in  # see mvgp.descriptions
conformal: Callable[..., Any] = _not_filled_in  # a ranker, held-out links, and options; see mvgp.metrics.conformal
save_posterior: Callable[[Any, Any], None] = _not_filled_in  # a posterior and a path; see mvgp.storage.save


class Described:
    """Shows itself in a notebook as :func:`mvgp.describe` has it."""

    def _repr_html_(self) -> str:
        """A table of HTML."""
        text: str = describe(self)._repr_html_()
        return text
