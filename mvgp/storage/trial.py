"""Whether the numbers of a file make a posterior: covariances that are some, sizes that do not overflow, answers."""

from __future__ import annotations

import warnings

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
from ..linalg.preconditioner import EXACT_LIMIT
from ..linalg.solvers import CHOLESKY_LIMIT
from ..linalg.spectra import SpectralLinearOperator, eigenpairs, tolerance
from ..linalg.stacked import GramLinearOperator
from ..posteriors.covariance import NoCovariance, PosteriorCovariance, unscaled
from ..posteriors.factor import LaplaceCovariance
from ..posteriors.gaussian import GaussianPosterior
from ..posteriors.query import LowRankCoefficients, SparseCoefficients
from ..posteriors.whole_lists import WholeListCovariance
from ..priors.matrix_gp import MatrixGP

EIGEN_SIZE = 512  # of a dense kernel up to which its eigenvalues are computed; beyond, Cholesky's factor
GRID = 10**6  # cells of a matrix up to which all means are computed, and a sample of it
FACTOR_ERROR = 1e-3  # relative; far above rounding, on this machine or another


def check_operator(op: LinearOperator, where: str, *, thorough: bool) -> float:
    """A bound on the entries of a kernel matrix, which is refused unless it is finite and positive semi-definite.

    :param thorough: whether to look at the eigenvalues of a matrix without structure.
    """
    op = op.detach()
    if isinstance(op, ChebyshevLinearOperator):
        return _not_negative(op.values, where, slack=op.tolerance)
    if isinstance(op, SpectralLinearOperator):
        return _not_negative(op.spectrum, where)
    if isinstance(op, DiagLinearOperator):
        return _not_negative(op.diagonal(), where)
    if isinstance(op, GramLinearOperator):
        return _not_negative(op.scale, where) * _not_negative(op.features.squared_norms(), where)
    if isinstance(op, ConstantMulLinearOperator):
        return _not_negative(op.expanded_constant, where) * check_operator(op.base_linear_op, where, thorough=thorough)
    if isinstance(op, SumLinearOperator):
        return sum(check_operator(term, where, thorough=thorough) for term in op.linear_ops)
    if isinstance(op, InterpolatedLinearOperator):
        return check_operator(op.base_linear_op, where, thorough=thorough)
    matrix = op.to_dense()
    if not bool(torch.isfinite(matrix).all()):
        raise StorageError(f"{where}: expected a kernel with finite values, got others")
    if thorough and len(matrix) <= EXACT_LIMIT:
        _check_psd(matrix, where)
    return float(matrix.abs().amax())


def _check_psd(matrix: Tensor, where: str) -> None:
    """As a root of the matrix needs it, up to rounding in how its entries were computed."""
    skew = float((matrix - matrix.mT).abs().amax())
    if skew > 10 * torch.finfo(matrix.dtype).eps ** 0.5 * float(matrix.abs().amax()):
        raise StorageError(
            f"{where}: expected a symmetric kernel matrix, got one that rounding has spoilt by {skew:.2g}"
        )
    if len(matrix) <= EIGEN_SIZE:
        eigenpairs(matrix, where)
        return
    lift = tolerance(matrix) * float(matrix.abs().sum(-1).amax())  # at least that times the largest eigenvalue
    _, info = torch.linalg.cholesky_ex(matrix + lift * torch.eye(len(matrix), dtype=matrix.dtype))
    if int(info) > 0:
        raise StorageError(f"{where}: expected a kernel matrix that is positive semi-definite, got another")


def _not_negative(values: Tensor, where: str, slack: float = 0.0) -> float:
    largest = float(values.amax()) if values.numel() else 0.0
    fits = bool(torch.isfinite(values).all()) and bool((values >= -slack * abs(largest)).all())
    if not fits:
        raise StorageError(f"{where}: expected a kernel whose spectrum is finite and not negative, got another")
    return largest


def check_size(
    where: str,
    prior: MatrixGP,
    coefficients: SparseCoefficients | LowRankCoefficients,
    covariance: PosteriorCovariance | NoCovariance,
    largest: list[float],
) -> None:
    """Refuse numbers so large or so small that what is computed from them overflows.

    :param largest: bounds on the entries of both kernel matrices.
    """
    room = torch.finfo(prior.dtype).max ** 0.5  # so that squares fit
    if isinstance(coefficients, SparseCoefficients):
        size = float(coefficients.values.double().abs().sum())
    else:
        left, right = (part.double().abs().sum(0) for part in (coefficients.left, coefficients.right))
        size = float(left @ right)
    entry = largest[0] * largest[1]
    shift = max((float(part.double().abs().amax()) for part in _mean_parts(prior) if part.numel()), default=0.0)
    if not size * entry + shift < room or not size < room:
        raise StorageError(
            f"{where}: expected means that fit in {prior.dtype}, got a bound of {size * entry + shift:.3g}"
        )
    if isinstance(covariance, NoCovariance):
        return
    noise = covariance.noise.double()
    count = max(len(covariance.pairs), 1)
    sizes = (entry * count, float(noise.amax()), 1 / float(noise.amin())) if noise.numel() else (entry,)
    if not all(0 <= one < room for one in sizes):
        raise StorageError(f"{where}: expected variances that fit in {prior.dtype}, got kernels up to {entry:.3g}")


def _mean_parts(prior: MatrixGP) -> list[Tensor]:
    """Every number of the prior mean, inner ones included."""
    module = prior.mean_module
    return [part.detach() for part in (*module.parameters(), *module.buffers())]


def settled(
    found: LaplaceCovariance, coefficients: LowRankCoefficients, ops: tuple[LinearOperator, LinearOperator], where: str
) -> LaplaceCovariance:
    """The covariance with factors whose product is the mean of the coefficients; refused if there are none.

    Factors are coordinates with respect to roots of the kernels. Where those come from eigenvectors, another machine
    may find them with other signs or turned; then the factors are turned likewise, which keeps their lengths.
    """
    if _agrees(found, coefficients, ops):
        return found
    lengths = found.x.norm(dim=0), found.z.norm(dim=0)  # (R,) both square roots of the mean's singular values
    half = (lengths[0] * lengths[1]).sqrt()
    x = found.row_root.mT._matmul(coefficients.left) / half
    z = found.col_root.mT._matmul(coefficients.right) * half
    turned = LaplaceCovariance(found.row_root, found.col_root, x, z, found.pairs, found.noise)
    kept = all(
        float((new.norm(dim=0) - old).norm()) <= FACTOR_ERROR * float(old.norm())
        for new, old in zip((x, z), lengths, strict=True)
    )
    if not kept or not _agrees(turned, coefficients, ops):
        raise StorageError(f"{where}: expected factors whose product is the mean of the coefficients, got others")
    return turned


def _agrees(
    found: LaplaceCovariance, coefficients: LowRankCoefficients, ops: tuple[LinearOperator, LinearOperator]
) -> bool:
    """Whether factors and coefficients have the same products with some random vectors."""
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(ops[1].shape[-1], 8, generator=generator, dtype=found.x.dtype)
    left, right = found.row_root._matmul(found.x), found.col_root._matmul(found.z)
    wanted = ops[0]._matmul(coefficients.times(ops[1]._matmul(probe)))
    return float((left @ (right.mT @ probe) - wanted).norm()) <= FACTOR_ERROR * float(wanted.norm())


def check_answers(posterior: GaussianPosterior, where: str) -> None:
    """Ask about some cells; no answer, or one that is not finite, is a refusal. What is too large is not asked."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they come again with the user's own questions
            _ask(posterior, where)
    except StorageError:
        raise
    except (MvgpError, ArithmeticError, RuntimeError, ValueError) as error:
        raise StorageError(
            f"{where}: expected a posterior that answers, got {type(error).__name__}: {error}; load(..., trial=False) "
            "takes it as it is"
        ) from error


def _ask(posterior: GaussianPosterior, where: str) -> None:
    m, n = posterior.shape
    pairs = posterior.conditional.pairs
    at = {(0, 0), (m - 1, n - 1)}
    at |= {(int(pairs.rows[place]), int(pairs.cols[place])) for place in (0, -1) if len(pairs)}
    rows, cols = (torch.tensor(side) for side in zip(*sorted(at), strict=True))
    answers = {"mean": posterior.scores() if m * n <= GRID else posterior.mean(rows, cols)}
    if _is_quick(posterior):
        try:
            answers["variance"] = posterior.variance(rows, cols)
            joint = posterior.joint(rows, cols)
            answers["joint covariance"] = joint.matrix
            generator = torch.Generator().manual_seed(0)
            answers["joint sample"] = joint.sample(1, generator)
            if n <= EIGEN_SIZE:  # whole rows, whose ranks are asked for; rounding may spoil these alone
                for row in torch.linspace(0, m - 1, min(m, 16)).long().tolist():
                    line = posterior.joint(torch.full((n,), row), torch.arange(n))
                    answers[f"joint sample of row {row}"] = line.sample(1, generator)
            if max(m, n) <= EIGEN_SIZE:
                answers["sample"] = posterior.sample(rows, cols, generator=generator)
        except SizeError:  # too large for an answer, and so it was when it was saved
            pass
    for name, values in answers.items():
        if not bool(torch.isfinite(values).all()):
            raise StorageError(f"{where}: expected a posterior with finite answers, got another {name}")


def _is_quick(posterior: GaussianPosterior) -> bool:
    """Whether variances of a few cells take no longer than a second or so."""
    if isinstance(posterior.conditional, NoCovariance):
        return False
    inner = unscaled(posterior.conditional)[0]
    if isinstance(inner, WholeListCovariance):
        return len(inner._listed) * posterior.shape[1] <= CHOLESKY_LIMIT
    return isinstance(inner, LaplaceCovariance) or len(inner.pairs) <= CHOLESKY_LIMIT
