"""SolveReport, certificates and penalties as plain descriptions: numbers by name."""

from __future__ import annotations

from typing import cast, get_args

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError, SizeError, StorageError
from ..linalg.conjugate_gradients import SolveReport
from ..linalg.pairs import PairIndex
from ..linalg.patterns import Pattern
from ..linalg.roots import root
from ..linalg.solvers import Method
from ..mean.certificate import Certificate
from ..mean.penalties import Penalty, SpectralElasticNet, TraceBall
from ..mean.problem import LowRank
from ..posteriors.covariance import ConditionalCovariance, NoCovariance, PosteriorCovariance, ScaledCovariance
from ..posteriors.factor import LaplaceCovariance
from ..posteriors.query import Coefficients, LowRankCoefficients, SparseCoefficients
from ..posteriors.whole_lists import WholeListCovariance
from ..priors.matrix_gp import MatrixGP
from .budget import Spending, Tree
from .fields import Fields

Operators = tuple[LinearOperator, LinearOperator]
Covariance = ConditionalCovariance | LaplaceCovariance | WholeListCovariance | ScaledCovariance | NoCovariance

KEYS: dict[str, tuple[str, ...]] = {  # what each kind is made of
    "conditional": ("pairs", "noise", "tolerance", "method", "max_iterations"),
    "laplace": ("pairs", "noise", "x", "z"),
    "whole lists": ("pairs", "noise", "weight", "tolerance"),
    "scaled": ("scale", "of"),
    "none": ("pairs", "reason", "error"),
}
REASONS: dict[str, type[Exception]] = {"InputError": InputError, "SizeError": SizeError}


def describe_covariance(found: PosteriorCovariance | NoCovariance) -> Tree:
    """A covariance by its observed pairs and their noise."""
    if type(found) is ConditionalCovariance:
        return {
            "kind": "conditional",
            "pairs": describe_pairs(found.pairs),
            "noise": found.noise,
            "tolerance": float(found.tolerance),
            "method": found._method,
            "max_iterations": int(found.max_iterations),
        }
    if type(found) is LaplaceCovariance:
        return {
            "kind": "laplace",
            "pairs": describe_pairs(found.pairs),
            "noise": found.noise,
            "x": found.x,
            "z": found.z,
        }
    if type(found) is WholeListCovariance:
        return {
            "kind": "whole lists",
            "pairs": describe_pairs(found.pairs),
            "noise": found.noise,
            "weight": float(found.weight),
            "tolerance": float(found.tolerance),
        }
    if type(found) is ScaledCovariance:
        return {"kind": "scaled", "scale": found.scale, "of": describe_covariance(found.inner)}
    if type(found) is NoCovariance and REASONS.get(found.error.__name__) is found.error:
        return {
            "kind": "none",
            "pairs": describe_pairs(found.pairs),
            "reason": found.reason,
            "error": found.error.__name__,
        }
    raise InputError(f"conditional: the covariances of FullGP, TraceGP and FactorGP can be saved, got {found!r}")


def restore_covariance(given: Fields, prior: MatrixGP, ops: Operators, spending: Spending) -> Covariance:
    """The inverse of :func:`describe_covariance`; solvers and roots are made again from the prior's kernels."""
    kind = given.text("kind", KEYS)
    given.only("kind", *KEYS[kind])
    if kind == "scaled":
        return _scaled(given, prior, ops, spending)
    pairs = restore_pairs(given.fields("pairs"), prior.shape)
    if kind == "none":
        return NoCovariance(pairs, given.label("reason", 1000), REASONS[given.text("error", REASONS)])
    noise = _noise(given, prior, pairs)
    if kind == "whole lists":
        if noise.dim():
            raise StorageError(f"{given.where}.noise: expected one number, got {noise.numel()}")
        links = PositiveUnlabelled(pairs.rows, pairs.cols, prior.shape, given.number("weight"))
        return WholeListCovariance(ops, links, noise, tolerance=_tolerance(given, prior))
    if kind == "conditional":
        spending.budget.allows("iterations", given.whole("max_iterations", 1), f"{given.where}.max_iterations")
        method = cast(Method, given.text("method", get_args(Method)))
        complete = noise.dim() == 0 and len(pairs) == prior.shape[0] * prior.shape[1]
        if method == "spectral" and not complete:
            raise StorageError(f"{given.where}.method: expected another than spectral, which is for whole grids")
        return ConditionalCovariance(
            ops,
            pairs,
            noise,
            tolerance=_tolerance(given, prior),
            method=method,
            max_iterations=given.whole("max_iterations", 1),
        )
    for op in ops:  # dense eigenpairs, at most
        spending.need(given.where, memory_bytes=4 * 8 * op.shape[-1] ** 2, operations=10 * op.shape[-1] ** 3)
    row_root, col_root = root(ops[0]), root(ops[1])
    x = given.finite("x", prior.dtype, (row_root.shape[-1], None))
    z = given.finite("z", prior.dtype, (col_root.shape[-1], x.shape[1]))
    return LaplaceCovariance(row_root, col_root, x, z, pairs, noise)


def _scaled(given: Fields, prior: MatrixGP, ops: Operators, spending: Spending) -> ScaledCovariance:
    scale, inner = given.positive("scale"), given.fields("of")
    inner.text("kind", ("conditional", "whole lists"))
    found = restore_covariance(inner, prior, ops, spending)
    assert not isinstance(found, NoCovariance)
    return ScaledCovariance(found, scale)


def _tolerance(given: Fields, prior: MatrixGP) -> float:
    """A relative residual that the precision can reach."""
    tolerance = given.positive("tolerance")
    least = torch.finfo(prior.dtype).eps
    if not least <= tolerance < 1:
        raise StorageError(f"{given.where}.tolerance: expected a number from {least:.2g} to 1, got {tolerance}")
    return tolerance


def _noise(given: Fields, prior: MatrixGP, pairs: PairIndex) -> Tensor:
    """() or (T,), positive."""
    shape = () if given.array("noise").dim() == 0 else (len(pairs),)
    noise = given.finite("noise", prior.dtype, shape)
    if noise.numel() and float(noise.min()) < 0:
        raise StorageError(f"{given.where}.noise: expected variances that are not negative, got {float(noise.min())}")
    if noise.numel() and float(noise.min()) == 0:
        raise StorageError(f"{given.where}.noise: expected positive variances, got 0")
    return noise


KernelOperators = tuple[LinearOperator, LinearOperator]
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


def restore_low_rank(given: Fields, prior: MatrixGP, ops: KernelOperators) -> LowRank:
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


def describe_solve_report(found: SolveReport) -> Tree:
    """How well a linear system was solved."""
    return {
        "method": found.method,
        "residual": float(found.residual),
        "tolerance": float(found.tolerance),
        "iterations": int(found.iterations),
    }


def restore_solve_report(given: Fields) -> SolveReport:
    """The inverse of :func:`describe_solve_report`."""
    return SolveReport(
        given.label("method"), given.number("residual", 0), given.positive("tolerance"), given.whole("iterations")
    )


def describe_certificate(found: Certificate | None) -> Tree | None:
    """The evidence for a mean."""
    if found is None:
        return None
    return {
        "primal": float(found.primal),
        "dual": float(found.dual),
        "tolerance": float(found.tolerance),
        "iterations": int(found.iterations),
        "rank": int(found.rank),
        "solver": found.solver,
        "failure_probability": found.failure_probability,
    }


def restore_certificate(given: Fields) -> Certificate:
    """The inverse of :func:`describe_certificate`."""
    return Certificate(
        primal=given.number("primal"),
        dual=given.number("dual"),
        tolerance=given.positive("tolerance"),
        iterations=given.whole("iterations"),
        rank=given.whole("rank"),
        solver=given.label("solver"),
        failure_probability=given.optional_probability("failure_probability"),
    )


def describe_penalty(found: Penalty) -> Tree:
    """What the mean solves."""
    if type(found) is SpectralElasticNet:
        return {"kind": "SpectralElasticNet", "lam": float(found.lam), "alpha": float(found.alpha)}
    if type(found) is TraceBall:
        return {"kind": "TraceBall", "radius": float(found.radius), "ridge": float(found.ridge)}
    raise InputError(f"penalty: SpectralElasticNet and TraceBall can be saved, got {type(found).__name__}")


def restore_penalty(given: Fields) -> SpectralElasticNet | TraceBall:
    """The inverse of :func:`describe_penalty`."""
    if given.text("kind", ("SpectralElasticNet", "TraceBall")) == "TraceBall":
        given.only("kind", "radius", "ridge")
        return TraceBall(given.number("radius"), given.number("ridge"))
    given.only("kind", "lam", "alpha")
    return SpectralElasticNet(given.number("lam"), given.number("alpha"))
