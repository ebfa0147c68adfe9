r"""log det(K_TT + D) by stochastic Lanczos quadrature, preconditioned; gradients of values that were computed so.

Conjugate gradients on A x = z with preconditioner M run the Lanczos process on :math:`M^{-1/2} A M^{-1/2}` from
:math:`M^{-1/2} z`. With rates a_j and ratios b_j its tridiagonal matrix has

.. math:: \tau_{jj} = \frac{1}{a_j} + \frac{b_{j-1}}{a_{j-1}}, \qquad \tau_{j,j+1} = \frac{\sqrt{b_j}}{a_j},

and :math:`(-1)^j M^{-1} r_j / (r_j^T M^{-1} r_j)^{1/2}` are its basis vectors times :math:`M^{-1/2}`. So the iteration
keeps its coefficients, and the logarithm follows from them by quadrature.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import check_flag, check_instance, check_memory, check_positive, check_seed, check_whole_number
from ..errors import InputError
from ..linalg import cost
from ..linalg.conjugate_gradients import Solution, SolveReport
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.pairs import BLOCK, PairIndex
from ..linalg.solvers import Preconditioner
from ..linalg.sums import make_sum_solver, operators, pair_terms
from ..tensor_checks import check_float_tensor, refuse_where

DROP = 1e-9  # directions of a gradient with a smaller share than this are left out
PROBES = 16
GRID_BYTES = 128 * 2**20  # memory for the scattered vectors of one batch
BASIS_BYTES = 256 * 2**20  # memory for the basis vectors of one batch of probes
STEPS = 32  # iterations that the size of a batch expects


def log_determinant(
    covariance: LinearOperator,
    noise: Tensor,
    reference: Reference,
    *,
    tolerance: float,
    max_iterations: int = 1000,
    derivative: bool = False,
) -> LogDeterminant:
    r"""For A = K_TT + D, log det A = log det M + tr log(M^-1/2 A M^-1/2), the trace by probes z with E[z z^T] = M.

    With e = M^-1/2 z each probe gives :math:`e^T \log(M^{-1/2} A M^{-1/2})\, e`. The estimate has no bias, and no error
    where A = M. It is a smooth function of A, and ``vectors`` hold its own derivative, not an estimate of the true one.

    :param covariance: K_TT (T, T).
    :param noise: (T,) diagonal of D.
    :param reference: M and the probes.
    :param tolerance: relative residual of the runs; missing it is an error.
    :param max_iterations: of a run.
    :param derivative: whether to keep the vectors of the derivative even if covariance and noise need no gradient.
    """
    check_noise(covariance, noise)
    check_instance(reference, "reference", Reference, "mvgp.hyperparameters.probes.Reference")
    if not reference.fits(pair_terms(covariance)[0].left):
        raise InputError("reference: expected one of the same pairs, got one of others")
    max_iterations = check_whole_number(max_iterations, "max_iterations")
    tolerance = check_positive(tolerance, "tolerance")
    differentiate = torch.is_grad_enabled() and any(t.requires_grad for t in (*covariance.representation(), noise))
    keep = check_flag(derivative, "derivative") or differentiate
    fixed, each_noise = covariance.detach(), noise.detach().unsqueeze(1)

    def matmul(x: Tensor) -> Tensor:
        return fixed._matmul(x) + each_noise * x

    size, count = reference.probes.shape
    width = max(1, BASIS_BYTES // (size * STEPS * reference.probes.element_size()))
    values, kept, residual, products = [], [], 0.0, 0
    with torch.no_grad():
        for probes in reference.probes.split(width, dim=1):
            # the recurrence's own residual drifts from the true one
            run = krylov(matmul, reference.apply, probes, 0.9 * tolerance, max_iterations, keep_basis=keep)
            gap = (probes - matmul(run.solution)).norm(dim=0) / probes.norm(dim=0)
            residual, products = max(residual, float(gap.max())), max(products, run.diagonal.shape[1] + 1)
            quadrature, eigenvalues, eigenvectors = log_quadrature(run)
            values.append(quadrature)
            if keep:
                kept.append(log_derivative(run, eigenvalues, eigenvectors) / count**0.5)
        solve_report = SolveReport("cg", residual, tolerance, products)
        Solution(reference.probes, solve_report).checked()
        each = reference.log_det + torch.cat(values)
        vectors = torch.cat(kept, dim=1) if keep else None
    value = each.mean()
    if differentiate and vectors is not None:
        value = with_gradients(value, form_gradients(covariance, noise, vectors, vectors.new_ones(vectors.shape[1])))
    return LogDeterminant(value, each, float(each.std()) / count**0.5, vectors, solve_report)


@dataclass(frozen=True)
class LogDeterminant:
    r"""An estimate of log det A.

    :param value: (), with gradients to the covariance and the noise where they were requested.
    :param each: (P,) the estimate from each probe alone; without a gradient.
    :param standard_error: of the value, from the spread over the probes.
    :param vectors: (T, C) with :math:`\sum_c x_c^T dA\, x_c` the derivative of the value; None unless requested.
    :param solve_report: how well A x = z was solved for the probes z.
    """

    value: Tensor
    each: Tensor
    standard_error: float
    vectors: Tensor | None
    solve_report: SolveReport


@dataclass(frozen=True)
class Reference:
    r"""M = F F^T + D of some parameters, or M = D where the spectrum is narrow.

    log det A = log det M + tr log(M^-1/2 A M^-1/2) holds for any M, so M may stay the same while the parameters of A
    move: then the estimate is a smooth function of them, as an optimiser needs it.

    :param pairs: the T observed cells.
    :param noise: (T,) diagonal of D.
    :param preconditioner: applies M^-1; None stands for D^-1.
    :param probes: (T, P) with expectation of z z^T equal to M.
    :param log_det: () log det M.
    """

    pairs: PairIndex
    noise: Tensor
    preconditioner: Preconditioner | None
    probes: Tensor
    log_det: Tensor

    @classmethod
    @torch.no_grad()
    def build(
        cls,
        covariance: LinearOperator,
        noise: Tensor,
        *,
        probes: int = PROBES,
        seed: int = 0,
        precondition: bool = True,
    ) -> Reference:
        """The reference of a covariance K_TT (T, T) and ``noise`` (T,).

        :param probes: how many, at least 2.
        :param seed: of the probes; the same seed gives the same ones.
        :param precondition: False takes M = D in any case.
        """
        probes, seed = check_whole_number(probes, "probes", 2), check_seed(seed)  # an error bar needs 2
        check_noise(covariance, noise)
        check_memory(float(probes) * len(noise), "probes", f"{probes} vectors of {len(noise)} numbers each")
        fixed, noise, pairs = covariance.detach(), noise.detach(), pair_terms(covariance)[0].left
        preconditioner = None
        if check_flag(precondition, "precondition"):
            solver: Any = make_sum_solver(operators(fixed), pairs, noise, method="cg")
            preconditioner = solver.preconditioner
        generator = torch.Generator().manual_seed(seed)
        if preconditioner is not None:
            noise = preconditioner.noise.squeeze(1)  # a sum of terms counts by its diagonal what it leaves out
        below = noise.sqrt().unsqueeze(1) * _signs(len(noise), probes, generator, noise)
        log_det = noise.log().sum()
        if preconditioner is None or preconditioner.rank == 0:
            return cls(pairs, noise, None, below, log_det)
        log_det = log_det + 2 * preconditioner.chol.diagonal().log().sum()
        above = preconditioner.up(_signs(preconditioner.rank, probes, generator, noise))
        return cls(pairs, noise, preconditioner, above + below, log_det)

    def apply(self, dense: Tensor) -> Tensor:
        """(T, C): M^-1 times (T, C)."""
        check_float_tensor(dense, "dense", (len(self.pairs), None), like=self.noise)
        return dense / self.noise.unsqueeze(1) if self.preconditioner is None else self.preconditioner(dense)

    def fits(self, pairs: PairIndex) -> bool:
        """Whether it was made for these pairs."""
        check_instance(pairs, "pairs", PairIndex, "a PairIndex")
        return torch.equal(self.pairs.rows, pairs.rows) and torch.equal(self.pairs.cols, pairs.cols)


def check_noise(covariance: Any, noise: Any) -> None:
    """K_TT of observed pairs, and (T,) positive noise."""
    pair_terms(check_instance(covariance, "covariance", LinearOperator, "a PairLinearOperator"))
    check_float_tensor(noise, "noise", (covariance.shape[-1],), like=covariance, finite=True)
    refuse_where(noise.detach() <= 0, noise.detach(), "noise", "a positive number")


def _signs(count: int, probes: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """(count, probes) of -1 and 1."""
    bits = torch.randint(0, 2, (count, probes), generator=generator)
    return (2 * bits - 1).to(dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class Krylov:
    """What C runs leave behind; a run that ended early is padded with decoupled steps."""

    solution: Tensor  # (T, C) approximations of A^-1 z
    diagonal: Tensor  # (C, J) of the tridiagonal matrices
    beside: Tensor  # (C, J - 1) beside the diagonal
    scale: Tensor  # (C,) z^T M^-1 z
    basis: list[Tensor]  # J matrices (T, C), the basis vectors times M^-1/2; empty unless requested


def krylov(
    matmul: Callable[[Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor],
    probes: Tensor,
    tolerance: float,
    max_iterations: int,
    *,
    keep_basis: bool,
) -> Krylov:
    """Conjugate gradients from zero for ``probes`` (T, C), until every relative residual is at ``tolerance``.

    ``matmul`` maps (T, C) to A times it, ``precondition`` to M^-1 times it.
    """
    goal = tolerance * probes.norm(dim=0)  # (C,)
    x, r = torch.zeros_like(probes), probes.clone()
    y = precondition(r)
    p, ry = y.clone(), (r * y).sum(0)
    scale, live, ones = ry.clone(), ry > 0, torch.ones_like(ry)
    rates: list[Tensor] = []
    ratios: list[Tensor] = []
    basis: list[Tensor] = []
    while live.any() and len(rates) < max_iterations:
        if keep_basis:
            basis.append(torch.where(live, (-1) ** len(rates) * y / torch.where(live, ry, ones).sqrt(), 0))
        ap = matmul(p)
        curvature = (p * ap).sum(0)
        live = live & (curvature > 0)
        rate = torch.where(live, ry / torch.where(live, curvature, ones), ones)
        step = torch.where(live, rate, 0)
        x += step * p
        r -= step * ap
        y = precondition(r)
        following = (r * y).sum(0)
        live = live & (r.norm(dim=0) > goal) & (following > 0)
        rates.append(rate)
        ratios.append(torch.where(live, following / torch.where(live, ry, ones), 0))
        p = torch.where(live, y + ratios[-1] * p, 0)
        ry = following
    if not rates:  # nothing to do: all probes are zero
        return Krylov(x, torch.ones_like(scale).unsqueeze(1), scale.new_zeros(len(scale), 0), scale, [])
    a, b = torch.stack(rates, dim=1), torch.stack(ratios, dim=1)  # (C, J)
    diagonal = 1 / a
    diagonal[:, 1:] += b[:, :-1] / a[:, :-1]
    return Krylov(x, diagonal, b[:, :-1].sqrt() / a[:, :-1], scale, basis)


def log_quadrature(run: Krylov) -> tuple[Tensor, Tensor, Tensor]:
    r"""(C,) values of :math:`e^T \log(M^{-1/2} A M^{-1/2})\, e` with e = M^-1/2 z, and the eigenpairs they came from.

    Gauss quadrature: with eigenvalues t_j (C, J) and eigenvectors q_j (C, J, J) of the tridiagonal matrices it is
    :math:`z^T M^{-1} z \sum_j q_{1j}^2 \log t_j`.
    """
    off_diagonal = torch.diag_embed(run.beside, 1)
    values, vectors = torch.linalg.eigh(torch.diag_embed(run.diagonal) + off_diagonal + off_diagonal.mT)
    return run.scale * (vectors[:, 0].square() * values.log()).sum(-1), values, vectors


def log_derivative(run: Krylov, values: Tensor, vectors: Tensor) -> Tensor:
    r"""(T, C'): vectors x with :math:`\sum_c x_c^T\, dA\, x_c` the derivative of the sum of all quadratures.

    In the eigenvectors of a symmetric matrix the derivative of its logarithm multiplies entry (j, k) of the change by
    the divided difference :math:`(\log t_j - \log t_k) / (t_j - t_k)`. Applied to the tridiagonal matrix, that leaves
    a positive semi-definite J x J matrix for each run, whose leading eigenvectors are combined from the basis.
    """
    first = vectors[:, 0] * run.scale.sqrt().unsqueeze(1)  # (C, J)
    ratio = (values.unsqueeze(2) - values.unsqueeze(1)) / values.unsqueeze(1)  # (C, J, J): t_j / t_k - 1
    close = ratio.abs() < 1e-6
    safe = torch.where(close, 1.0, ratio)
    divided = torch.where(close, 1 - ratio / 2, torch.log1p(safe) / safe) / values.unsqueeze(1)
    weight = divided * first.unsqueeze(1) * first.unsqueeze(2)
    share, inner = torch.linalg.eigh(vectors @ weight @ vectors.mT)
    parts = []
    for c in range(share.shape[0]):
        kept = share[c] > DROP * share[c, -1]
        mix = inner[c][:, kept] * share[c, kept].sqrt()  # (J, K)
        parts.append(torch.stack([vector[:, c] for vector in run.basis], dim=1) @ mix)
    return torch.cat(parts, dim=1)


class _WithGradients(torch.autograd.Function):
    """A value () that was computed elsewhere, with known gradients by some tensors."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor], *tensors: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph: the gradients are constants and would be wrong once more
            raise InputError(
                "create_graph: second derivatives are offered where the value comes from a dense factor "
                "(method='cholesky'), not by this method"
            )
        return (upstream[0], None, *[upstream[0] * gradient for gradient in ctx.gradients])


def with_gradients(value: Tensor, pieces: Iterable[tuple[Tensor, Tensor | None]]) -> Tensor:
    """() ``value``, whose own gradient stays, with those by some tensors on top; second derivatives are refused."""
    used = [(tensor, gradient) for tensor, gradient in pieces if tensor.requires_grad and gradient is not None]
    if not used:
        return value
    tensors, gradients = zip(*used, strict=True)
    attached: Tensor = _WithGradients.apply(value, gradients, *tensors)
    return attached


def with_derivative(
    value: Tensor,
    covariance: LinearOperator,
    residual: Tensor,
    noise: Tensor,
    alpha: Tensor,
    vectors: Tensor | None,
) -> Tensor:
    r"""() ``value``, with gradient :math:`\frac12 \alpha^T dA\, \alpha - \frac12 \sum_c x_c^T dA\, x_c - \alpha^T dr`.

    K_TT (T, T), the residual r (T,) and the noise D, () or (T,), take it; alpha (T, 1) is A^-1 r, ``vectors`` (T, C)
    are the x_c, if there are any.
    """
    signed = alpha if vectors is None else torch.cat([alpha, vectors], dim=1)
    weights = torch.full((signed.shape[1],), -0.5, dtype=signed.dtype, device=signed.device)
    weights[0] = 0.5
    pieces = form_gradients(covariance, noise, signed, weights)
    return with_gradients(value, [*pieces, (residual, -alpha.squeeze(1))])


@torch.no_grad()
def form_gradients(
    covariance: LinearOperator,
    noise: Tensor,
    vectors: Tensor,
    weights: Tensor,
    *,
    gram_side: int = 8192,
    gram_columns: int = 1024,
) -> list[tuple[Tensor, Tensor | None]]:
    r"""The gradient of :math:`\sum_c w_c x_c^T (K_{TT} + D) x_c` by each tensor of K_TT, and by the noise.

    With X_c the vectors scattered into matrices, the derivative by K_M is :math:`\sum_c w_c X_c K_N X_c^T`, a matrix as
    large as K_M. It is formed first: then the kernel is differentiated once and not once for each vector.

    K_TT is (T, T), the noise D () or (T,), ``vectors`` (T, C) the x_c, ``weights`` (C,) the w_c. Up to ``gram_side``
    rows and columns derivatives by kernel matrices are formed, and handled ``gram_columns`` at a time.
    """
    by_noise = (weights * vectors.square()).sum(1)  # (T,)
    of_terms = [_term_gradients(part, vectors, weights, gram_side, gram_columns) for part in pair_terms(covariance)]
    return [*itertools.chain(*of_terms), (noise, by_noise if noise.dim() else by_noise.sum())]


def _term_gradients(
    covariance: PairLinearOperator, vectors: Tensor, weights: Tensor, gram_side: int, gram_columns: int
) -> list[tuple[Tensor, Tensor | None]]:
    """The gradient by each tensor of one term of K_TT; see :func:`form_gradients`."""
    tensors = covariance.representation()
    if not any(tensor.requires_grad for tensor in tensors):
        return []
    product, (rows, cols) = covariance.product, covariance.left.active_shape
    if max(rows, cols) > gram_side or not (product.row.dense_fits and product.col.dense_fits):
        width = max(1, GRID_BYTES // (rows * cols * vectors.element_size()))
        batches = zip((weights * vectors).split(width, dim=1), vectors.split(width, dim=1), strict=True)
        return list(zip(tensors, _total(covariance, batches), strict=True))
    by_row, by_col = vectors.new_zeros(rows, rows), vectors.new_zeros(cols, cols)
    for c in range(vectors.shape[1]):
        x, x_t = _scattered(covariance.left, vectors[:, c])
        by_row.add_(_product(x, _product(x, product.col.dense).mT), alpha=float(weights[c]))
        by_col.add_(_product(x_t, _product(x_t, product.row.dense).mT), alpha=float(weights[c]))
    of_rows = _contracted(covariance.row_op, by_row, covariance.left.active_rows, gram_columns)
    of_cols = _contracted(covariance.col_op, by_col, covariance.left.active_cols, gram_columns)
    return list(zip(tensors, (*of_rows, *of_cols), strict=True))


def _scattered(pairs: PairIndex, values: Tensor) -> tuple[Tensor, Tensor]:
    """(M', N') and (N', M'): the matrix with ``values`` (T,) at the pairs, sparse if that pays, and its transpose."""
    if len(pairs) / cost.SPARSE > pairs.active_shape[0] * pairs.active_shape[1] / cost.GEMM:
        grid = pairs.scatter(values.unsqueeze(1)).squeeze(0)
        return grid, grid.mT
    entries = pairs.to_pattern(values)
    return pairs.pattern.matrix(entries), pairs.pattern.matrix_t(entries)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """(A, C): a sparse or dense (A, B) times a dense (B, C), sparse by blocks of columns that fit the cache."""
    if left.layout == torch.strided:
        return left @ right
    out = right.new_empty(left.shape[0], right.shape[1])
    for to, part in zip(out.split(BLOCK, dim=1), right.split(BLOCK, dim=1), strict=True):
        to.copy_(left @ part.contiguous())
    return out


def _contracted(op: LinearOperator, inner: Tensor, active: Tensor, columns: int) -> list[Tensor | None]:
    """The gradient of <inner, K> for K the block of ``op`` at ``active`` x ``active``, for each tensor of ``op``."""

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for part, values in zip(active.split(columns), inner.split(columns, dim=1), strict=True):
            left, right = inner.new_zeros(op.shape[-1], len(part)), inner.new_zeros(op.shape[-1], len(part))
            left[active] = values
            right[part, torch.arange(len(part), device=part.device)] = 1
            yield left, right

    return _total(op, batches())


def _total(op: LinearOperator, batches: Iterable[tuple[Tensor, Tensor]]) -> list[Tensor | None]:
    """The gradient of sum(left * (K right)) over the batches, for each tensor of ``op``; None is 0."""
    total: list[Tensor | None] = [None] * len(op.representation())
    for left, right in batches:
        pieces = op._bilinear_derivative(left, right)
        total = [b if a is None else a if b is None else a + b for a, b in zip(total, pieces, strict=True)]
    return total
