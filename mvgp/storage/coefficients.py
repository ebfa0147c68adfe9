"""Coefficients of a mean, and low-rank matrices, as plain descriptions."""

from __future__ import annotations

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..errors import InputError, StorageError
from ..linalg import PairIndex
from ..linalg.csr import Pattern
from ..posteriors.coefficients import Coefficients, LowRankCoefficients, SparseCoefficients
from ..priors import MatrixGP
from ..solvers.low_rank import LowRank
from .fields import Fields
from .tree import Tree

Operators = tuple[LinearOperator, LinearOperator]
IMAGE_ERROR = 1e-3  # relative; far above rounding, on this machine or another


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
        given.only("kind", "rows", "cols", "values")
        rows, cols = restore_cells(given, prior.shape)
        return SparseCoefficients(Pattern(rows, cols, prior.shape), given.finite("values", prior.dtype, (len(rows),)))
    given.only("kind", "left", "right")
    left, right = _two(given, ("left", "right"), prior)
    return LowRankCoefficients(left, right)


def describe_pairs(pairs: PairIndex) -> Tree:
    """Cells of the matrix."""
    return {"rows": pairs.rows, "cols": pairs.cols}


def restore_pairs(given: Fields, shape: tuple[int, int]) -> PairIndex:
    """The inverse of :func:`describe_pairs`."""
    given.only("rows", "cols")
    return PairIndex(*restore_cells(given, shape), shape)


def restore_cells(given: Fields, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """(T,) rows and (T,) columns within the matrix: distinct pairs, row by row, as solvers expect them."""
    rows = given.positions("rows", shape[0])
    cols = given.positions("cols", shape[1], rows.numel())
    key = rows * shape[1] + cols
    if not bool((key[1:] > key[:-1]).all()):
        raise StorageError(f"{given.where}: expected distinct pairs, row by row, got others")
    return rows, cols


def describe_low_rank(mean: LowRank | None) -> Tree | None:
    """A matrix in dual coordinates."""
    if mean is None:
        return None
    return {name: getattr(mean, name) for name in ("left", "right", "values", "left_image", "right_image")}


def restore_low_rank(given: Fields, prior: MatrixGP, ops: Operators) -> LowRank:
    """The inverse of :func:`describe_low_rank`."""
    given.only("left", "right", "values", "left_image", "right_image")
    values = given.finite("values", prior.dtype, (None,))
    if bool((values < 0).any()) or bool((values[1:] > values[:-1]).any()):
        raise StorageError(f"{given.where}.values: expected singular values, descending, got others")
    left, right = _two(given, ("left", "right"), prior, values.numel())
    left_image, right_image = _two(given, ("left_image", "right_image"), prior, values.numel())
    for name, op, dual, image in (("left", ops[0], left, left_image), ("right", ops[1], right, right_image)):
        gap = float((op._matmul(dual) - image).norm())
        if not gap <= IMAGE_ERROR * float(image.norm()):
            raise StorageError(f"{given.where}.{name}_image: expected the kernel times {name}, got another matrix")
    return LowRank(left, right, values, left_image, right_image)


def check_same_mean(given: Fields, coefficients: SparseCoefficients | LowRankCoefficients, mean: LowRank) -> None:
    """Refuse a mean whose coefficients say something else than its factors."""
    if (
        not isinstance(coefficients, LowRankCoefficients)
        or not torch.equal(coefficients.right, mean.right)
        or not torch.equal(coefficients.left, mean.left * mean.values)
    ):
        raise StorageError(f"{given.where}.mean: expected the factors of the coefficients, got others")


def _two(given: Fields, names: tuple[str, str], prior: MatrixGP, rank: int | None = None) -> list[torch.Tensor]:
    """(M, R) and (N, R), finite"""
    left = given.finite(names[0], prior.dtype, (prior.shape[0], rank))
    return [left, given.finite(names[1], prior.dtype, (prior.shape[1], left.shape[1]))]
