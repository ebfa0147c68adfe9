"""Coefficients of a mean, and low-rank matrices, as plain descriptions."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError, StorageError
from ..linalg import PairIndex
from ..linalg.csr import Pattern
from ..posteriors.coefficients import Coefficients, LowRankCoefficients, SparseCoefficients
from ..priors import MatrixGP
from ..solvers.low_rank import LowRank
from .fields import Fields
from .tree import Tree


def describe_coefficients(found: Coefficients) -> Tree:
    """One number for each pair, or two factors."""
    if type(found) is SparseCoefficients:
        pattern = found.pattern
        return {"kind": "sparse", "rows": pattern.rows, "cols": pattern.cols, "values": found.values}
    if type(found) is LowRankCoefficients:
        return {"kind": "low rank", "left": found.left, "right": found.right}
    raise InputError(
        f"coefficients: SparseCoefficients and LowRankCoefficients can be saved, got {type(found).__name__}"
    )


def restore_coefficients(given: Fields, prior: MatrixGP) -> SparseCoefficients | LowRankCoefficients:
    """The inverse of :func:`describe_coefficients`."""
    if given.text("kind", ("sparse", "low rank")) == "sparse":
        rows, cols = restore_cells(given, prior.shape)
        key = rows * prior.shape[1] + cols
        if not bool((key[1:] > key[:-1]).all()):
            raise StorageError(f"{given.where}: expected distinct pairs, row by row, got others")
        return SparseCoefficients(Pattern(rows, cols, prior.shape), given.array("values", prior.dtype, (len(rows),)))
    left, right = _two(given, ("left", "right"), prior)
    return LowRankCoefficients(left, right)


def describe_pairs(pairs: PairIndex) -> Tree:
    """Cells of the matrix."""
    return {"rows": pairs.rows, "cols": pairs.cols}


def restore_pairs(given: Fields, shape: tuple[int, int]) -> PairIndex:
    """The inverse of :func:`describe_pairs`."""
    return PairIndex(*restore_cells(given, shape), shape)


def restore_cells(given: Fields, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """(T,) rows and (T,) columns within the matrix."""
    rows = given.positions("rows", shape[0])
    return rows, given.positions("cols", shape[1], rows.numel())


def describe_low_rank(mean: LowRank | None) -> Tree | None:
    """A matrix in dual coordinates."""
    if mean is None:
        return None
    return {name: getattr(mean, name) for name in ("left", "right", "values", "left_image", "right_image")}


def restore_low_rank(given: Fields, prior: MatrixGP) -> LowRank:
    """The inverse of :func:`describe_low_rank`."""
    values = given.array("values", prior.dtype, (None,))
    left, right = _two(given, ("left", "right"), prior, values.numel())
    left_image, right_image = _two(given, ("left_image", "right_image"), prior, values.numel())
    return LowRank(left, right, values, left_image, right_image)


def _two(given: Fields, names: tuple[str, str], prior: MatrixGP, rank: int | None = None) -> list[torch.Tensor]:
    """(M, R) and (N, R)"""
    left = given.array(names[0], prior.dtype, (prior.shape[0], rank))
    return [left, given.array(names[1], prior.dtype, (prior.shape[1], left.shape[1]))]
