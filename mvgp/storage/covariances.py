"""The mean and the covariance of a posterior in a file: what their numbers follow from, checked when it is read."""

from __future__ import annotations

from typing import cast, get_args

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError, SizeError, StorageError
from ..linalg.pairs import PairIndex
from ..linalg.patterns import Pattern
from ..linalg.roots import root
from ..linalg.solvers import Method
from ..mean.low_rank import LowRank
from ..posteriors.covariance import ConditionalCovariance, NoCovariance, PosteriorCovariance, ScaledCovariance
from ..posteriors.factor import LaplaceCovariance
from ..posteriors.query import Coefficients, LowRankCoefficients, SparseCoefficients
from ..posteriors.whole_lists import WholeListCovariance
from ..priors.matrix_gp import MatrixGP
from .archive import Tree
from .budget import Spending
from .fields import Fields

Operators = tuple[LinearOperator, LinearOperator]  # both kernel matrices
Covariance = ConditionalCovariance | LaplaceCovariance | WholeListCovariance | ScaledCovariance | NoCovariance

KEYS: dict[str, tuple[str, ...]] = {  # what each kind is made of
    "conditional": ("pairs", "noise", "tolerance", "method", "max_iterations"),
    "laplace": ("pairs", "noise", "x", "z"),
    "whole lists": ("pairs", "noise", "weight", "tolerance"),
    "scaled": ("scale", "of"),
    "none": ("pairs", "reason", "error"),
}
REASONS: dict[str, type[Exception]] = {"InputError": InputError, "SizeError": SizeError}
FACTORS = ("left", "right", "values", "left_image", "right_image")  # of a mean of low rank
IMAGE_ERROR = 1e-3  # relative; far above rounding, on this machine or another


def describe_covariance(covariance: PosteriorCovariance | NoCovariance) -> Tree:
    """A covariance by its observed pairs and their noise."""
    if type(covariance) is ScaledCovariance:
        return {"kind": "scaled", "scale": covariance.scale, "of": describe_covariance(covariance.inner)}
    if type(covariance) is NoCovariance and REASONS.get(covariance.error.__name__) is covariance.error:
        error = {"reason": covariance.reason, "error": covariance.error.__name__}
        return {"kind": "none", "pairs": _describe_pairs(covariance.pairs), **error}
    own: Tree
    if type(covariance) is ConditionalCovariance:
        own = {"kind": "conditional", "tolerance": float(covariance.tolerance)}
        own |= {"method": covariance._method, "max_iterations": int(covariance.max_iterations)}
    elif type(covariance) is LaplaceCovariance:
        own = {"kind": "laplace", "x": covariance.x, "z": covariance.z}
    elif type(covariance) is WholeListCovariance:
        own = {"kind": "whole lists", "weight": float(covariance.weight), "tolerance": float(covariance.tolerance)}
    else:
        raise InputError(
            f"conditional: the covariances of FullGP, TraceGP and FactorGP can be saved, got {covariance!r}"
        )
    return {**own, "pairs": _describe_pairs(covariance.pairs), "noise": covariance.noise}


def restore_covariance(parts: Fields, prior: MatrixGP, ops: Operators, spending: Spending) -> Covariance:
    """The inverse of :func:`describe_covariance`; solvers and roots are made again from the prior's kernels."""
    kind = parts.text("kind", KEYS)
    parts.only("kind", *KEYS[kind])
    if kind == "scaled":
        scale, inner = parts.positive("scale"), parts.fields("of")
        inner.text("kind", ("conditional", "whole lists"))
        covariance = restore_covariance(inner, prior, ops, spending)
        assert not isinstance(covariance, NoCovariance)
        return ScaledCovariance(covariance, scale)
    parts.fields("pairs").only("rows", "cols")
    pairs = PairIndex(*_restore_cells(parts.fields("pairs"), prior.shape), prior.shape)
    if kind == "none":
        return NoCovariance(pairs, parts.label("reason", 1000), REASONS[parts.text("error", REASONS)])
    noise = _restore_noise(parts, prior, pairs)
    if kind == "whole lists":
        if noise.dim():
            raise StorageError(f"{parts.where}.noise: expected one number, got {noise.numel()}")
        links = PositiveUnlabelled(pairs.rows, pairs.cols, prior.shape, parts.number("weight"))
        return WholeListCovariance(ops, links, noise, tolerance=_restore_tolerance(parts, prior))
    if kind == "conditional":
        iterations = parts.whole("max_iterations", 1)
        spending.budget.allows("iterations", iterations, f"{parts.where}.max_iterations")
        method = cast(Method, parts.text("method", get_args(Method)))
        complete = noise.dim() == 0 and len(pairs) == prior.shape[0] * prior.shape[1]
        if method == "spectral" and not complete:
            raise StorageError(f"{parts.where}.method: expected another than spectral, which is for whole grids")
        tolerance = _restore_tolerance(parts, prior)
        return ConditionalCovariance(ops, pairs, noise, tolerance=tolerance, method=method, max_iterations=iterations)
    for op in ops:  # dense eigenpairs, at most
        spending.need(parts.where, memory_bytes=4 * 8 * op.shape[-1] ** 2, operations=10 * op.shape[-1] ** 3)
    row_root, col_root = root(ops[0]), root(ops[1])
    x = parts.finite("x", prior.dtype, (row_root.shape[-1], None))
    z = parts.finite("z", prior.dtype, (col_root.shape[-1], x.shape[1]))
    return LaplaceCovariance(row_root, col_root, x, z, pairs, noise)


def describe_coefficients(coefficients: Coefficients) -> Tree:
    """One number for each pair, or two factors."""
    if type(coefficients) is SparseCoefficients:
        pattern = coefficients.pattern
        return {"kind": "sparse", "rows": pattern.rows, "cols": pattern.cols, "values": coefficients.values}
    if type(coefficients) is LowRankCoefficients:
        return {"kind": "low rank", "left": coefficients.left, "right": coefficients.right}
    raise InputError(
        f"coefficients: SparseCoefficients and LowRankCoefficients can be saved, got {type(coefficients).__name__}"
    )


def restore_coefficients(parts: Fields, prior: MatrixGP) -> SparseCoefficients | LowRankCoefficients:
    """The inverse of :func:`describe_coefficients`."""
    if parts.text("kind", ("sparse", "low rank")) == "sparse":
        parts.only("kind", "rows", "cols", "values")
        rows, cols = _restore_cells(parts, prior.shape)
        return SparseCoefficients(Pattern(rows, cols, prior.shape), parts.finite("values", prior.dtype, (len(rows),)))
    parts.only("kind", "left", "right")
    return LowRankCoefficients(*_restore_factors(parts, ("left", "right"), prior))


def describe_low_rank(mean: LowRank | None) -> Tree | None:
    """A matrix in dual coordinates."""
    return None if mean is None else {name: getattr(mean, name) for name in FACTORS}


def restore_low_rank(parts: Fields, prior: MatrixGP, ops: Operators) -> LowRank:
    """The inverse of :func:`describe_low_rank`."""
    parts.only(*FACTORS)
    values = parts.finite("values", prior.dtype, (None,))
    if bool((values < 0).any()) or bool((values[1:] > values[:-1]).any()):
        raise StorageError(f"{parts.where}.values: expected singular values, descending, got others")
    left, right = _restore_factors(parts, ("left", "right"), prior, values.numel())
    left_image, right_image = _restore_factors(parts, ("left_image", "right_image"), prior, values.numel())
    for name, op, dual, image in (("left", ops[0], left, left_image), ("right", ops[1], right, right_image)):
        gap = float((op._matmul(dual) - image).norm())
        if not gap <= IMAGE_ERROR * float(image.norm()):
            raise StorageError(f"{parts.where}.{name}_image: expected the kernel times {name}, got another matrix")
    return LowRank(left, right, values, left_image, right_image)


def _describe_pairs(pairs: PairIndex) -> Tree:
    return {"rows": pairs.rows, "cols": pairs.cols}


def _restore_cells(parts: Fields, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """(T,) rows and (T,) columns within the matrix: distinct pairs, row by row, as solvers expect them."""
    rows = parts.positions("rows", shape[0])
    cols = parts.positions("cols", shape[1], rows.numel())
    key = rows * shape[1] + cols
    if not bool((key[1:] > key[:-1]).all()):
        raise StorageError(f"{parts.where}: expected distinct pairs, row by row, got others")
    return rows, cols


def _restore_factors(parts: Fields, names: tuple[str, str], prior: MatrixGP, rank: int | None = None) -> list[Tensor]:
    """(M, R) and (N, R), finite"""
    left = parts.finite(names[0], prior.dtype, (prior.shape[0], rank))
    return [left, parts.finite(names[1], prior.dtype, (prior.shape[1], left.shape[1]))]


def _restore_noise(parts: Fields, prior: MatrixGP, pairs: PairIndex) -> Tensor:
    """() or (T,), positive."""
    shape = () if parts.array("noise").dim() == 0 else (len(pairs),)
    noise = parts.finite("noise", prior.dtype, shape)
    smallest = float(noise.min()) if noise.numel() else 1.0
    if smallest < 0:
        raise StorageError(f"{parts.where}.noise: expected variances that are not negative, got {smallest}")
    if smallest == 0:
        raise StorageError(f"{parts.where}.noise: expected positive variances, got 0")
    return noise


def _restore_tolerance(parts: Fields, prior: MatrixGP) -> float:
    """A relative residual that the precision can reach."""
    tolerance = parts.positive("tolerance")
    minimum = torch.finfo(prior.dtype).eps
    if not minimum <= tolerance < 1:
        raise StorageError(f"{parts.where}.tolerance: expected a number from {minimum:.2g} to 1, got {tolerance}")
    return tolerance
