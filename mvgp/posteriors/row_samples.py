r"""Joint samples of a whole row at the price of products with the kernel's root: nothing N x N is formed or factored.

Under a prior of one term the cells (m, n) of row m have the covariance :math:`k_M(m, m) K_N` before anything was
observed, and :math:`C = K_N P W` with the observed ones: P picks the observed columns, W holds :math:`k_M(m, m_t)`.
With a root, :math:`K_N = G G^T`, and :math:`R = k_M(m, m)^{1/2} G` that of the row,

.. math:: S = R\, (I - U A^{-1} U^T)\, R^T, \qquad U = G^T P W / k_M(m, m)^{1/2}, \qquad A = K_{TT} + D.

The bracket is a small correction of the identity. With :math:`A = L L^T` and
:math:`L^{-1} U^T U L^{-T} = V \operatorname{diag}(s) V^T` its symmetric root is

.. math:: I - U F U^T, \qquad F = L^{-T} V \operatorname{diag}\bigl(1 / (1 + \sqrt{1 - s})\bigr) V^T L^{-1},

so that a sample is R times (noise less :math:`U F U^T` noise). For a sum of terms the roots stand side by side.

Only rows near m matter: observations in the others are left out as long as a bound on their influence allows it. With
J the observations in use, :math:`X = A_J^{-1} C_J^T` and r what it leaves of the whole system, leaving out the others
adds :math:`r^T A^{-1} r \le \|r\|^2 / \mu` to S, with :math:`\mu` a lower bound on the eigenvalues of A. As r at row m'
is :math:`K_N (k_M(m, m') I - \sum_j k_M(m', j) P_j X_j)` at the observed columns, sums over rows bound its norm:

.. math:: \|r\| ^2 \le \|K_N\|^2 \sum_{m'} \bigl(|k_M(m, m')| + \sum_j |k_M(m', j)|\, \|X_j\|\bigr)^2.

The root is a Chebyshev series as long as :data:`ROOT_ACCURACY` asks for; all of S then is that of a kernel which
agrees with K_N to twice this share in every direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from linear_operator import LinearOperator
from linear_operator.operators import (
    ConstantMulLinearOperator,
    DenseLinearOperator,
    DiagLinearOperator,
    RootLinearOperator,
    SumLinearOperator,
)
from torch import Tensor

from ..linalg import chebyshev
from ..linalg.chebyshev import ChebyshevLinearOperator
from ..linalg.spectra import SpectralLinearOperator, root, spectral_bounds
from ..linalg.stacked import GramLinearOperator
from .query import Query
from .system import ObservedSystem

ROOT_ACCURACY = 5e-4  # of a root, relative to its smallest eigenvalue
LEFT_OUT = 1e-2  # share of a small variance that observations far from the row may take away, and are left out
BLOCK = 128  # columns of a product with a series at a time
DRAWS = 1024  # samples at a time
MOST_OBSERVATIONS = 3000  # that the samples of a row are conditioned on
SINGLE_NOISE = 1e-4  # share of the prior's variance that the noise has to have for single precision


@dataclass(frozen=True)
class RowSampler:
    """The joint distribution, with mean 0, of all N cells of a row: R (I - U F U^T) times noise.

    :param roots: R, side by side: operators (N, D_q) with their scales.
    :param reach: U (D, J); D is the sum of the D_q.
    :param inner: F (J, J).
    :param observations: how many it is conditioned on; observations far from the row are left out.
    :param left_out: bound on what these would have taken from any variance.
    """

    roots: tuple[tuple[LinearOperator, float], ...]
    reach: Tensor
    inner: Tensor
    observations: int
    left_out: float

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """(S, N)"""
        size = self.roots[0][0].shape[-2]
        out = self.reach.new_empty(num_samples, size)
        for start in range(0, num_samples, DRAWS):
            count = min(DRAWS, num_samples - start)
            shape = (len(self.reach), count)
            noise = torch.randn(shape, generator=generator, dtype=out.dtype, device=out.device)
            noise -= self.reach @ (self.inner @ (self.reach.mT @ noise))
            parts = noise.split([op.shape[-1] for op, _ in self.roots])
            each = [scale * times(op, part) for (op, scale), part in zip(self.roots, parts, strict=True)]
            out[start : start + count] = sum(each[1:], each[0]).mT
        return out

    def scaled(self, scale: float) -> RowSampler:
        """Of ``scale`` times the covariance."""
        roots = tuple((op, scale**0.5 * own) for op, own in self.roots)
        return replace(self, roots=roots, left_out=scale * self.left_out)


def times(op: LinearOperator, dense: Tensor) -> Tensor:
    """(N, C): a product in blocks that suit single precision."""
    if isinstance(op, ChebyshevLinearOperator):
        return chebyshev.apply(op.matrix, op.series, dense.contiguous(), BLOCK)
    return op._matmul(dense)


def short_series(op: LinearOperator) -> LinearOperator:
    """A root with a series as short as :data:`ROOT_ACCURACY` allows; other operators as they are."""
    if not isinstance(op, ChebyshevLinearOperator):
        return op
    low, size = float(op.values.min()), float(chebyshev.coefficients(op.values).abs().sum())
    return ChebyshevLinearOperator(op.values, op.matrix, max(op.tolerance, ROOT_ACCURACY * low / size))


def has_cheap_root(op: LinearOperator) -> bool:
    """Whether a root is known without eigenpairs."""
    if isinstance(op, SumLinearOperator):
        return all(has_cheap_root(term) for term in op.linear_ops)
    if isinstance(op, ConstantMulLinearOperator):
        return has_cheap_root(op.base_linear_op)
    known = ChebyshevLinearOperator | SpectralLinearOperator | GramLinearOperator
    return isinstance(op, known | DiagLinearOperator | RootLinearOperator)


def symmetric_correction(system: Tensor, gram: Tensor) -> Tensor:
    """F (J, J) from A (J, J) and U^T U (J, J), see above."""
    factor = torch.linalg.cholesky(system)
    half = torch.linalg.solve_triangular(factor, gram, upper=False)
    seen = torch.linalg.solve_triangular(factor, half.mT, upper=False)
    values, vectors = torch.linalg.eigh((seen + seen.mT) / 2)
    back = torch.linalg.solve_triangular(factor.mT, vectors, upper=True)  # L^-T V
    return (back / (1 + (1 - values.clamp(0, 1)).sqrt())) @ back.mT


def working_precision(system_dtype: torch.dtype, noise: float, prior: float) -> torch.dtype:
    """Single precision unless the noise is tiny against the prior's variance."""
    return torch.float32 if noise >= SINGLE_NOISE * prior else system_dtype


def floor_variance(noise: float, prior: float) -> float:
    """A small variance: that of a cell that was measured itself, with this noise."""
    return prior * noise / (prior + noise)


def conditional_row(system: ObservedSystem, query: Query) -> RowSampler | None:
    """The sampler of the row of ``query``, whose columns are the prior's own; None where it would not pay.

    Every column kernel has to have a cheap root, and few enough observations have to be near the row.
    """
    if any(part.col_side.is_new for part in query.parts) or len(query.pairs.active_rows) != 1:
        return None
    closed, row = system.closed_form, query.pairs.active_rows
    if closed is not None:
        if query.is_new:
            return None
        weights = closed.row_vectors[row[0]].square() @ closed.spectrum  # (S,)
        whole = DenseLinearOperator(closed.col_vectors * weights.clamp_min(0).sqrt())
        return plain_sampler(whole, len(system.pairs))
    if not all(has_cheap_root(part.col_side.op) for part in query.parts):
        return None
    terms = [_Term(part, row) for part in query.parts]
    return _Choice(system, terms).sampler()


def plain_sampler(whole: LinearOperator, observations: int) -> RowSampler:
    """Of a row whose covariance has the root ``whole`` (N, D)."""
    like = torch.zeros((), dtype=whole.dtype, device=whole.device)
    reach, inner = like.new_zeros(whole.shape[-1], 0), like.new_zeros(0, 0)
    return RowSampler(((whole, 1.0),), reach, inner, observations, 0.0)


class _Term:
    """One term of the prior, seen from a row.

    :param part: the row under this term.
    :param row: (1,) its position.
    """

    def __init__(self, part: Query, row: Tensor) -> None:
        self.row_op, self.col_op = part.row_side.op, part.col_side.op
        self.coupling = part.row_side.columns(row).squeeze(1)  # (M,) k_M(m, .)
        self.own = float(part.row_side.diagonal(row))  # k_M(m, m)
        self.largest = spectral_bounds(self.col_op)[1]  # of the eigenvalues of K_N


class _Choice:
    """Which observations the samples of a row are conditioned on, and the sampler given them."""

    def __init__(self, system: ObservedSystem, terms: Sequence[_Term]) -> None:
        self.system, self.pairs = system, system.pairs
        self.terms = [term for term in terms if term.own > 0]
        noise = float(system.noise.min()) if len(self.pairs) else 1.0
        self.prior = sum(term.own * term.largest for term in self.terms)  # at least any prior variance of the row
        self.working = working_precision(system.noise.dtype, noise, self.prior)
        self.allowed = LEFT_OUT * floor_variance(noise, self.prior)
        self.roots = [short_series(root(term.col_op.to(self.working))) for term in self.terms]

    def sampler(self) -> RowSampler | None:
        """Given as few observations as the bound allows."""
        if not self.terms:
            return None
        active = self.pairs.active_rows
        near = sum(term.largest * term.coupling[active].abs() for term in self.terms)  # (M',)
        assert isinstance(near, Tensor)
        order = near.argsort(descending=True)
        rest = near[order].square().flip(0).cumsum(0).flip(0)  # (M',) what is left without the first ones
        target = 0.01 * self.allowed * self.system.lowest_eigenvalue
        while True:
            kept = active[order[: int((rest > target).sum())]].sort().values
            chosen = torch.isin(self.pairs.rows, kept).nonzero().squeeze(1)  # (J,)
            if len(chosen) > MOST_OBSERVATIONS:
                return None
            sampler = self._given(chosen, kept)
            if sampler.left_out <= self.allowed:
                return sampler
            target /= 10

    def _given(self, chosen: Tensor, kept: Tensor) -> RowSampler:
        pairs = self.pairs[chosen]
        noise = self.system.noise[chosen] if self.system.noise.dim() else self.system.noise
        cols, local = torch.unique(pairs.cols, return_inverse=True)
        slots = torch.searchsorted(kept, pairs.rows)  # (J,)
        reaches, between, matrix = [], [], torch.zeros(len(pairs), len(pairs), dtype=torch.float64, device=cols.device)
        for term, half in zip(self.terms, self.roots, strict=True):
            picked = torch.zeros(half.shape[-2], len(cols), dtype=self.working, device=cols.device)
            seen = times(half.mT, picked.scatter_(0, cols.unsqueeze(0), 1.0))  # (D, c): G^T P
            of_cols = (seen.mT @ seen).double()  # (c, c): K_N at the observed columns
            near = rows_of(term.row_op, kept).double()  # (M, R)
            between.append(near)
            matrix += near[pairs.rows][:, slots] * of_cols[local][:, local]
            reaches.append(seen[:, local] * (term.coupling[pairs.rows] / term.own**0.5).to(self.working))
        matrix.diagonal().add_(noise.double())
        reach = torch.cat(reaches)  # (D, J)
        gram = (reach.mT @ reach).double()
        inner = symmetric_correction(matrix, gram)
        roots = tuple((half, term.own**0.5) for term, half in zip(self.terms, self.roots, strict=True))
        left_out = self._left_out(slots, kept, between, matrix, gram)
        return RowSampler(roots, reach, inner.to(self.working), len(pairs), left_out)

    def _left_out(self, slots: Tensor, kept: Tensor, between: Sequence[Tensor], matrix: Tensor, gram: Tensor) -> float:
        """The bound on the variance that the rows which are not ``kept`` (R,) would take away."""
        active = self.pairs.active_rows
        others = active[~torch.isin(active, kept)]
        if len(others) == 0:
            return 0.0
        sizes = (self.prior * solution_sizes(matrix, gram, slots, len(kept))).sqrt()  # (R,) at least |X_j|
        total = torch.zeros(len(others), dtype=torch.float64, device=kept.device)
        for term, near in zip(self.terms, between, strict=True):
            total += term.largest * (term.coupling[others].abs().double() + near[others].abs() @ sizes)
        return float(total.square().sum()) / self.system.lowest_eigenvalue


def solution_sizes(matrix: Tensor, gram: Tensor, slots: Tensor, count: int) -> Tensor:
    """(R,): the squared norm of A^-1 U^T at the observations of each row, at least; ``slots`` (J,) are their rows."""
    solved = torch.linalg.solve(matrix, torch.linalg.solve(matrix, gram).mT)  # A^-1 U^T U A^-1
    sizes = torch.zeros(count, dtype=torch.float64, device=slots.device)
    return sizes.index_add_(0, slots, solved.diagonal()).clamp_min(0)


def rows_of(op: LinearOperator, which: Tensor) -> Tensor:
    """(M, R): columns of a row kernel."""
    if isinstance(op, DenseLinearOperator):
        return op.tensor[:, which]
    picked = torch.zeros(op.shape[-1], len(which), dtype=op.dtype, device=op.device)
    return times(op, picked.scatter_(0, which.unsqueeze(0), 1.0))


THRESHOLDS = 65  # that are tried
FEW = 256  # contenders, below which better standard deviations are not worth their time


@dataclass(frozen=True)
class Contenders:
    r"""The items of a row that can reach its top k, by a union bound.

    Let the k leaders be the items of largest mean. If each of them is at least t and everybody who was dropped is below
    t, nobody who was dropped is in the top k, and none is ahead of a leader. With means m_i and standard deviations
    s_i, or upper bounds of these, the chance that this fails is at most

    .. math:: \sum_{\text{leaders}} \Phi\left(\frac{t - m_l}{s_l}\right) +
        \sum_{\text{dropped}} \Phi\left(\frac{m_j - t}{s_j}\right),

    however the items are correlated. P(in the top k) of a contender is off by at most this number if only contenders
    are sampled, and that of everybody else is below it. The threshold t is the one that leaves the fewest contenders.

    :param items: (C,) positions among the candidates, ascending.
    :param dropped: bound on the probability that anybody else is in the top k, or ahead of one of the k leaders.
    """

    items: Tensor
    dropped: float

    def __len__(self) -> int:
        return len(self.items)


def find_contenders(mean: Tensor, std: Tensor, k: int, epsilon: float) -> Contenders:
    """The smallest set of contenders that the union bound allows.

    :param mean: (N,) of each candidate.
    :param std: (N,) standard deviations, or upper bounds of these.
    :param k: how many places the top has.
    :param epsilon: largest probability that somebody who was dropped should not have been.

    Example:
        >>> import torch
        >>> from mvgp.posteriors.row_samples import find_contenders
        >>> mean, std = torch.tensor([3.0, 2.9, 0.0, -1.0]), torch.full((4,), 0.1)
        >>> find_contenders(mean, std, k=1, epsilon=1e-3).items.tolist()
        [0, 1]

    """
    mean, std = mean.double(), std.double()
    everybody = torch.arange(len(mean), device=mean.device)
    if k >= len(mean):
        return Contenders(everybody, 0.0)
    order = mean.argsort(descending=True, stable=True)
    leaders, others = order[:k], order[k:]
    low = float((mean[leaders] - 8 * std[leaders]).min())
    best, fewest = Contenders(everybody, 0.0), len(mean)
    for at in torch.linspace(low, float(mean[leaders].min()), THRESHOLDS, dtype=torch.float64).tolist():
        failing = float(_tail(at - mean[leaders], std[leaders]).sum())
        if failing >= epsilon:
            continue
        chance, places = _tail(mean[others] - at, std[others]).sort()
        total = chance.cumsum(0)
        count = int((total <= epsilon - failing).sum())
        if count and len(mean) - count < fewest:
            fewest = len(mean) - count
            kept = torch.cat([leaders, others[places[count:]]]).sort().values
            best = Contenders(kept, failing + float(total[count - 1]))
    return best


def _tail(lead: Tensor, std: Tensor) -> Tensor:
    """P(z >= 0) for z normal with mean ``lead``; without a standard deviation it is 0 or 1, a tie counts as reached."""
    certain = (lead >= 0).double()
    return torch.where(std > 0, torch.special.ndtr(lead / std.clamp_min(1e-300)), certain)


def narrow(mean: Tensor, k: int, epsilon: float, bounds: Sequence[Callable[[Tensor], Tensor]]) -> Contenders:
    """Contenders from better and better standard deviations, each computed for those who are left alone.

    :param bounds: functions from positions (C,) to upper bounds (C,) of their standard deviations, the cheapest first.
    """
    kept, spent = torch.arange(len(mean), device=mean.device), 0.0
    std = torch.full_like(mean, torch.inf, dtype=torch.float64)
    for number, bound in enumerate(bounds):
        if number and len(kept) <= max(FEW, 2 * k):
            break
        std[kept] = torch.minimum(std[kept], bound(kept).double())
        share = epsilon if number + 1 == len(bounds) else epsilon / 2
        contenders = find_contenders(mean[kept], std[kept], k, share - spent)
        kept, spent = kept[contenders.items], spent + contenders.dropped
    return Contenders(kept, spent)
