"""Settings: what the paths of a choice have in common, so that a choice can be resumed only as it was begun."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields

from torch import Tensor

from ..data import PositiveUnlabelled
from ..errors import InputError
from ..models import TraceGP
from ..posteriors.loss import Data
from .negative_sets import NegativeSets
from .splits import Split


@dataclass(frozen=True)
class Settings:
    """All that has an influence on a path, except its trace share and fold.

    :param strengths: of every path, decreasing.
    :param num_folds: how many splits.
    :param metric: its name.
    :param max_rank: a path ends after the first point above it.
    :param patience: a path ends after so many points without a new best.
    :param negatives: how they are drawn.
    :param seed: of splits and negatives.
    :param splits: a digest of the data in all splits.
    :param model: a digest of the recipe and its parameters.
    """

    strengths: tuple[float, ...]
    num_folds: int
    metric: str
    max_rank: int | None
    patience: int | None
    negatives: NegativeSets | None
    seed: int
    splits: str
    model: str

    def check_same(self, other: Settings) -> None:
        """Refuse a choice that was begun with other settings."""
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if mine != theirs:
                raise InputError(f"resume: expected a choice with the same {one.name}, {mine!r}, got {theirs!r}")


def digest_splits(splits: Sequence[Split]) -> str:
    """Equal for equal splits of equal data."""
    found = hashlib.sha256()
    for split in splits:
        for part in (split.train, split.held_out):
            found.update(repr((type(part).__name__, part.shape, len(part))).encode())
            for tensor in _tensors(part):
                found.update(tensor.detach().cpu().numpy().tobytes())
            if isinstance(part, PositiveUnlabelled):
                found.update(repr(part.weight).encode())
    return found.hexdigest()[:16]


def digest_model(model: TraceGP) -> str:
    """Equal for recipes of the same kind with equal parameters; fixed matrices and graphs are not looked at."""
    parts = (type(model.likelihood).__name__, model.prior.shape, model.row_bias, model.col_bias, model.solver)
    found = hashlib.sha256(repr((*parts, model.tolerance, model.max_iterations, model.prior.dtype)).encode())
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def _tensors(data: Data) -> list[Tensor]:
    if isinstance(data, PositiveUnlabelled):
        return [data.rows, data.cols]
    weights = [] if data.weights is None else [data.weights]
    return [data.rows, data.cols, data.values, *weights]
