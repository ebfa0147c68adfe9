"""A prioritiser in a file: its posteriors as :mod:`mvgp.storage` describes them, ids and known links beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..checks import check_path
from ..data import PositiveUnlabelled
from ..errors import InputError, StorageError
from ..metrics.sources import Ranker
from ..posteriors import GaussianPosterior
from ..storage.archive import read, told, write
from ..storage.budget import Budget, Spending, check_budget
from ..storage.fields import Fields
from ..storage.posteriors import describe_posterior, restore_posterior
from ..storage.tree import on_cpu

KIND = "Prioritiser"
TEXTS = ("model", "setting", "source")


def store(
    path: str | os.PathLike[str], rankers: Sequence[Ranker], known: PositiveUnlabelled, described: dict[str, Any]
) -> None:
    """Write it; what cannot be saved is an error before anything is written."""
    path = check_path(path)
    for ranker in rankers:
        if not isinstance(ranker, GaussianPosterior):
            raise InputError(
                f"model {described['model']!r} cannot be saved; those with a posterior can: trace, whole, ..."
            )
    tree = {
        "kind": KIND,
        "posteriors": [describe_posterior(one) for one in rankers if isinstance(one, GaussianPosterior)],
        "known": {"rows": known.rows, "cols": known.cols, "weight": known.weight},
        **described,
    }
    write(path, on_cpu(tree))


def restore(
    path: str | os.PathLike[str], budget: Budget | None = None
) -> tuple[tuple[GaussianPosterior, ...], PositiveUnlabelled, dict[str, Any]]:
    """The posteriors, the known links, and texts and ids by name."""
    path, granted = check_path(path), check_budget(budget)
    with told(path):
        content = Fields(read(path, granted), "content")
        if content.text("kind") != KIND:
            kind = content.text("kind")
            raise StorageError(f"expected a saved prioritiser (mvgp rank --save), got one {kind}; mvgp.load reads that")
        spending = Spending(granted)
        posteriors = tuple(restore_posterior(one, spending, trial=True) for one in content.each("posteriors"))
        shapes = {one.shape for one in posteriors}
        if len(shapes) != 1:
            raise StorageError(f"content.posteriors: expected at least one, all of one shape, got {sorted(shapes)}")
        m, n = posteriors[0].shape
        described: dict[str, Any] = {name: content.text(name) for name in TEXTS}
        for name, size in (("row_ids", m), ("col_ids", n), ("row_names", m), ("col_names", n)):
            described[name] = _texts(content, name, size, distinct=name.endswith("ids"))
        links = content.fields("known")
        rows = links.positions("rows", m)
        cols = links.positions("cols", n, len(rows))
        return posteriors, PositiveUnlabelled(rows, cols, (m, n), links.number("weight")), described


def _texts(content: Fields, name: str, size: int, distinct: bool) -> tuple[str, ...]:
    found = content.items(name)
    if len(found) != size or not all(isinstance(one, str) for one in found):
        raise StorageError(f"content.{name}: expected {size} texts, got {len(found)} items")
    if distinct and len(set(found)) < size:
        raise StorageError(f"content.{name}: expected distinct ids, got some twice")
    return tuple(found)
