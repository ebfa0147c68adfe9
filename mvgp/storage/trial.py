"""The trial of a loaded posterior: kernels that are covariances, numbers that do not overflow, finite answers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence

import torch
from linear_operator import LinearOperator
from linear_operator.operators import (
    ConstantMulLinearOperator,
    DiagLinearOperator,
    InterpolatedLinearOperator,
    SumLinearOperator,
)
from torch import Tensor

from ..errors import MvgpError, SizeError, StorageError
from ..linalg.chebyshev import ChebyshevLinearOperator
from ..linalg.spectra import SpectralLinearOperator, eigenpairs, tolerance
from ..linalg.stacked import GramLinearOperator
from ..posteriors.covariance import NoCovariance, PosteriorCovariance, WholeListCovariance, unscaled
from ..posteriors.factor import LaplaceCovariance
from ..posteriors.gaussian import GaussianPosterior
from ..posteriors.query import LowRankCoefficients, SparseCoefficients
from ..priors.matrix_gp import MatrixGP
from ..priors.sums import SumGP
from .fields import Fields

Operators = tuple[LinearOperator, LinearOperator]  # both kernel matrices

DENSE_SIZE = 3072  # of a dense kernel up to which it is checked to be positive semi-definite
EIGEN_SIZE = 512  # of a dense kernel up to which that is by its eigenvalues; beyond, by a Cholesky factor
MEAN_CELLS = 10**6  # of a matrix up to which all means are computed
VARIANCE_PAIRS = 3000  # observed pairs up to which variances are computed, in a second or so
FACTOR_ERROR = 1e-3  # relative; far above rounding, on this machine or another


def check_operator(op: LinearOperator, parts: Fields, *, thorough: bool) -> float:
    """A bound on the entries of a kernel matrix, which is refused unless it is finite and positive semi-definite.

    A matrix without structure is looked at for that only if ``thorough``.
    """
    op = op.detach()
    if isinstance(op, ChebyshevLinearOperator):
        return _not_negative(op.values, parts, slack=op.tolerance)
    if isinstance(op, SpectralLinearOperator):
        return _not_negative(op.spectrum, parts)
    if isinstance(op, DiagLinearOperator):
        return _not_negative(op.diagonal(), parts)
    if isinstance(op, GramLinearOperator):
        return _not_negative(op.scale, parts) * _not_negative(op.features.squared_norms(), parts)
    if isinstance(op, ConstantMulLinearOperator):
        return _not_negative(op.expanded_constant, parts) * check_operator(op.base_linear_op, parts, thorough=thorough)
    if isinstance(op, SumLinearOperator):
        return sum(check_operator(term, parts, thorough=thorough) for term in op.linear_ops)
    if isinstance(op, InterpolatedLinearOperator):
        return check_operator(op.base_linear_op, parts, thorough=thorough)
    matrix = op.to_dense()
    parts.require(torch.isfinite(matrix).all(), "", "a kernel with finite values")
    largest = float(matrix.abs().amax())
    if thorough and len(matrix) <= DENSE_SIZE:
        _check_psd(matrix, largest, parts)
    return largest


def _check_psd(matrix: Tensor, largest: float, parts: Fields) -> None:
    """As a root of the matrix needs it, up to rounding in how its entries were computed."""
    skew = float((matrix - matrix.mT).abs().amax())
    symmetric = skew <= 10 * torch.finfo(matrix.dtype).eps ** 0.5 * largest
    parts.require(symmetric, "", "a symmetric kernel matrix", f"one that rounding has spoilt by {skew:.2g}")
    if len(matrix) <= EIGEN_SIZE:
        eigenpairs(matrix, parts.where)
        return
    lift = tolerance(matrix) * float(matrix.abs().sum(-1).amax())  # at least that times the largest eigenvalue
    _, info = torch.linalg.cholesky_ex(matrix + lift * torch.eye(len(matrix), dtype=matrix.dtype))
    parts.require(int(info) <= 0, "", "a kernel matrix that is positive semi-definite", "another")


def _not_negative(values: Tensor, parts: Fields, slack: float = 0.0) -> float:
    largest = float(values.amax()) if values.numel() else 0.0
    fits = torch.isfinite(values).all() and (values >= -slack * abs(largest)).all()
    parts.require(fits, "", "a kernel whose spectrum is finite and not negative", "another")
    return largest


def check_size(
    parts: Fields,
    prior: MatrixGP | SumGP,
    coefficients: Sequence[SparseCoefficients | LowRankCoefficients],
    covariance: PosteriorCovariance | NoCovariance,
    largest: Sequence[float],
) -> None:
    """Refuse numbers that overflow in what is computed.

    ``coefficients`` and ``largest``, bounds on the entries of the covariance, are those of each term.
    """
    room = torch.finfo(prior.dtype).max ** 0.5  # so that squares fit
    sizes_of = [_size(own) for own in coefficients]
    size, entry = max(sizes_of), sum(largest)
    numbers = [*prior.mean_module.parameters(), *prior.mean_module.buffers()]
    shift = max((float(part.detach().double().abs().amax()) for part in numbers if part.numel()), default=0.0)
    bound = sum(own * each for own, each in zip(sizes_of, largest, strict=True)) + shift
    parts.require(bound < room and size < room, "", f"means that fit in {prior.dtype}", f"a bound of {bound:.3g}")
    if isinstance(covariance, NoCovariance):
        return
    noise = covariance.noise.double()
    count = max(len(covariance.pairs), 1)
    sizes = (entry * count, float(noise.amax()), 1 / float(noise.amin())) if noise.numel() else (entry,)
    fits = all(0 <= size < room for size in sizes)
    parts.require(fits, "", f"variances that fit in {prior.dtype}", f"kernels up to {entry:.3g}")


def _size(coefficients: SparseCoefficients | LowRankCoefficients) -> float:
    """A bound on the sum of the absolute values of A."""
    if isinstance(coefficients, SparseCoefficients):
        return float(coefficients.values.double().abs().sum())
    left, right = (part.double().abs().sum(0) for part in (coefficients.left, coefficients.right))
    return float(left @ right)


def align_factors(
    covariance: LaplaceCovariance, coefficients: LowRankCoefficients, ops: Operators, parts: Fields
) -> LaplaceCovariance:
    """The covariance with factors whose product is the mean of the coefficients; refused if there are none.

    Factors are coordinates with respect to roots of the kernels. Where those come from eigenvectors, another machine
    may compute them with other signs or rotated; then the factors are rotated likewise, which keeps their lengths.
    """
    if _agrees(covariance, coefficients, ops):
        return covariance
    lengths = covariance.x.norm(dim=0), covariance.z.norm(dim=0)  # (R,) square roots of the mean's singular values
    half = (lengths[0] * lengths[1]).sqrt()
    row_root, col_root = covariance.row_root, covariance.col_root
    x, z = row_root.mT._matmul(coefficients.left) / half, col_root.mT._matmul(coefficients.right) * half
    rotated = LaplaceCovariance(row_root, col_root, x, z, covariance.pairs, covariance.noise)
    kept = all(
        float((factor.norm(dim=0) - length).norm()) <= FACTOR_ERROR * float(length.norm())
        for factor, length in zip((x, z), lengths, strict=True)
    )
    fits = kept and _agrees(rotated, coefficients, ops)
    parts.require(fits, "", "factors whose product is the mean of the coefficients")
    return rotated


def _agrees(covariance: LaplaceCovariance, coefficients: LowRankCoefficients, ops: Operators) -> bool:
    """Whether factors and coefficients have the same products with some random vectors."""
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(ops[1].shape[-1], 8, generator=generator, dtype=covariance.x.dtype)
    left, right = covariance.row_root._matmul(covariance.x), covariance.col_root._matmul(covariance.z)
    product = ops[0]._matmul(coefficients.times(ops[1]._matmul(probe)))
    return float((left @ (right.mT @ probe) - product).norm()) <= FACTOR_ERROR * float(product.norm())


def check_answers(posterior: GaussianPosterior, parts: Fields) -> None:
    """Ask about some cells; no answer, or one that is not finite, is a refusal. What is too large is not asked."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come again with the user's own questions
            for name, values in _ask(posterior):
                finite = torch.isfinite(values).all()
                parts.require(finite, "", "a posterior with finite answers", f"another {name}")
    except StorageError:
        raise
    except (MvgpError, ArithmeticError, RuntimeError, ValueError) as error:
        raise StorageError(
            f"{parts.where}: expected a posterior that answers, got {type(error).__name__}: {error}; "
            "load(..., trial=False) takes it as it is"
        ) from error


def _ask(posterior: GaussianPosterior) -> Iterator[tuple[str, Tensor]]:
    """Answers by name, about the corners of the matrix and some observed cells."""
    m, n = posterior.shape
    pairs = posterior.conditional.pairs
    cells = {(0, 0), (m - 1, n - 1)}
    cells |= {(int(pairs.rows[index]), int(pairs.cols[index])) for index in (0, -1) if len(pairs)}
    rows, cols = (torch.tensor(side) for side in zip(*sorted(cells), strict=True))
    yield "mean", posterior.scores() if m * n <= MEAN_CELLS else posterior.mean(rows, cols)
    if posterior._duals is not None and len(pairs) <= MEAN_CELLS:
        for row, col in sorted(cells):
            why = posterior.explain(row, col)
            yield "explanation", torch.cat([why.shares.double(), torch.tensor([why.unlabelled, why.residual])])
    if not _is_quick(posterior):
        return
    with contextlib.suppress(SizeError):  # too large for an answer, and so it was when it was saved
        yield "variance", posterior.variance(rows, cols)
        joint, generator = posterior.joint(rows, cols), torch.Generator().manual_seed(0)
        yield "joint covariance", joint.matrix
        yield "joint sample", joint.sample(1, generator)
        if n <= EIGEN_SIZE:  # whole rows, whose ranks are asked for; rounding may spoil these alone
            for row in torch.linspace(0, m - 1, min(m, 16)).long().tolist():
                line = posterior.joint(torch.full((n,), row), torch.arange(n))
                yield f"joint sample of row {row}", line.sample(1, generator)
        if max(m, n) <= EIGEN_SIZE:
            yield "sample", posterior.sample(rows, cols, generator=generator)


def _is_quick(posterior: GaussianPosterior) -> bool:
    """Whether variances of a few cells take no longer than a second or so."""
    if isinstance(posterior.conditional, NoCovariance):
        return False
    inner = unscaled(posterior.conditional)[0]
    if isinstance(inner, WholeListCovariance):
        return len(inner._listed) * posterior.shape[1] <= VARIANCE_PAIRS
    return isinstance(inner, LaplaceCovariance) or len(inner.pairs) <= VARIANCE_PAIRS
