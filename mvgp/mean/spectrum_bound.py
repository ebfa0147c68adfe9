r"""Upper bounds on the singular values of the gradient, so that a certificate does not flatter.

Singular values from a Krylov space are too small, and a direction that the space has never met is missing. The dual
bound (11) wants values that are not below the true ones. Two ways to have them:

- **Exactly**, from a dense eigenvalue problem, where the smaller side of the matrix is short.
- **With a stated probability**, from Lanczos runs started at fresh random vectors. Let Y be the gradient in B, with the
  known part :math:`U^T Y V` and the rest :math:`D = (I - UU^T) Y (I - VV^T)`. A run on :math:`D^T D` from :math:`v_0`
  gives orthonormal polynomials :math:`p_0, p_1, \dots` with :math:`\sum_j p_j(\lambda_1)^2 \le 1 / \gamma^2`, where
  :math:`\gamma` is the cosine between :math:`v_0` and the top singular vector. For a random :math:`v_0` it is rarely
  small, which bounds :math:`\lambda_1` from above. See Van Dorsselaer, Hochstenbach and Van der Vorst, *Computing
  probabilistic bounds for extreme eigenvalues of symmetric matrices with the Lanczos method*, 2000.

The pieces go together by the operator inequality, for any t > 0,

.. math:: Y^T Y \preceq \begin{pmatrix} A^T A + (1 + t) E^T E & 0 \\ 0 & (1 + 1/t) D^T D \end{pmatrix}, \qquad
          A = U^T Y V, \quad E = (I - UU^T) Y V,

which holds when :math:`U^T Y (I - VV^T) = 0`, as a subspace pass leaves it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from ..linalg.spectra import spectral_bounds
from ..progress import report_step
from .low_rank import LowRank, StepOperator, orthonormal, scaled_gram, subspace_pass
from .problem import MeanProblem, Penalty, SpectralElasticNet, TraceBall, times

EXACT_LIMIT = 512  # longest short side whose singular values are computed exactly, unless the caller says otherwise
PROBES = 8  # random vectors; a bound fails only if it fails for all of them
QUICK_STEPS = (
    64  # of Lanczos, up to which the largest value settles to all digits; at the edge of a bulk it takes hundreds
)
MAX_ATTEMPTS = 8  # at a bound, each with more of the spectrum known
MAX_MET = 512  # dimension of the space in which singular values are computed to see that a goal is out of reach


@dataclass(frozen=True)
class SpectrumBound:
    """Numbers that are not below the singular values of Y, up to a stated probability."""

    values: Tensor  # (k,) double precision, with as many repetitions as the bound allows for
    failure: float  # probability that one of them is too small; 0 where they are exact
    triplets: LowRank  # the leading ones it rests on, those included that were met on the way
    images: Tensor  # (N, p) right images of the largest directions met outside; none where probes reached the goal
    is_sharp: bool  # False where the singular values met would have reached the goal, but their bounds did not


def exact_values(problem: MeanProblem, theta: Tensor, leading: int = 0) -> tuple[Tensor, Tensor]:
    """Every singular value of Y, from a dense eigenvalue problem on the shorter side.

    (min(M, N),) values, descending, in double precision; (N, leading) right images of the first vectors.
    """
    theta_rows, theta_cols = problem.sparse(theta)
    by_rows = problem.shape[0] <= problem.shape[1]
    eye = torch.eye(min(problem.shape), dtype=problem.dtype, device=problem.device)
    if by_rows:
        inner = times(theta_rows, problem.cols_times(times(theta_cols, eye)))  # Theta K_N Theta^T
    else:
        inner = times(theta_cols, problem.rows_times(times(theta_rows, eye)))  # Theta^T K_M Theta
    root = problem.short_root
    squares, vectors = torch.linalg.eigh(root.mT @ ((inner + inner.mT) / 2).double() @ root)
    images = (root @ vectors.flip(1)[:, :leading]).to(problem.dtype)  # of left or of right vectors
    if by_rows:
        images = problem.cols_times(times(theta_cols, images))
    return squares.clamp_min(0).sqrt().flip(0), images


def has_exact_values(problem: MeanProblem, limit: int = EXACT_LIMIT) -> bool:
    """Whether the smaller side is at most ``limit`` long, and the matrix not too long on the other."""
    return min(problem.shape) <= limit and problem.shape[0] * problem.shape[1] <= 16 * limit**2


def needs_largest_alone(penalty: Penalty) -> bool:
    """Whether the dual bound of a penalty depends on the largest singular value of the gradient, and on no other."""
    return isinstance(penalty, SpectralElasticNet | TraceBall) and penalty.ridge == 0


def largest_value(
    problem: MeanProblem, theta: Tensor, *, failure: float = 1e-8, max_steps: int = 256, exact_limit: int = EXACT_LIMIT
) -> float:
    """The largest singular value of Y: exactly, or from random probes.

    From probes it is more than 1 % below the truth with a probability of at most ``failure``, unless ``max_steps`` end
    the runs before that is shown; as a rule it is right to six digits, and to many more where few steps show it.
    """
    if not bool((theta != 0).any()) or 0.0 in (spectral_bounds(problem.row_op)[1], spectral_bounds(problem.col_op)[1]):
        return 0.0
    if has_exact_values(problem, exact_limit):
        return float(exact_values(problem, theta)[0][0])
    runs = LanczosRuns(problem, theta, None, failure)
    before = 0.0
    while True:
        runs.extend(8)
        largest = runs.largest_square()
        is_quick = theta.dtype == torch.float64 and runs.steps <= QUICK_STEPS
        settled = largest - before <= (1e-12 if is_quick else 1e-6) * largest
        if runs.is_exhausted or runs.steps >= max_steps or (settled and runs.upper_square() <= 1.02 * largest):
            return math.sqrt(largest)
        before = largest


def spectrum_edge(penalty: Penalty, triplets: LowRank, rank: int) -> float:
    """Where the singular values of Y that belong to the mean end: the weight of the trace norm, if there is one."""
    trace = getattr(penalty, "trace", None)
    if trace is not None:
        return float(trace)
    return float(triplets.values[rank - 1]) * (1 - 1e-6) if 0 < rank <= len(triplets.values) else math.inf


def bound_spectrum(
    problem: MeanProblem,
    theta: Tensor,
    triplets: LowRank,
    edge: float,
    dual_of: Callable[[Tensor], float],
    goal: float,
    *,
    failure: float = 1e-8,
    max_steps: int = 512,
    exact_limit: int = EXACT_LIMIT,
) -> SpectrumBound:
    """Bounds on the singular values of Y that are sharp enough to show a dual value of ``goal``, if there are such.

    Values above the edge that an attempt meets outside the known part blur its bounds; then they become known, and
    fresh random vectors start another attempt.

    :param triplets: leading ones of Y, from a subspace pass.
    :param edge: those with larger values, up to rounding, are the known part; at the optimum, the values of the mean.
    :param dual_of: the dual bound (11) from singular values of Y; it does not grow with them.
    :param goal: runs end as soon as the dual bound reaches it, or the singular values met so far show that it cannot.
    :param failure: probability that the bounds of one attempt do not hold.
    """
    if not bool((theta != 0).any()):
        return SpectrumBound(torch.zeros(0, dtype=torch.float64), 0.0, triplets, triplets.right_image[:, :0], True)
    if has_exact_values(problem, exact_limit):
        values, images = exact_values(problem, theta, leading=min(2 * PROBES, *problem.shape))
        return SpectrumBound(values, 0.0, triplets, images, True)
    stated = 0.0
    for attempt in range(MAX_ATTEMPTS):
        # at the optimum the values of the mean are the edge, up to rounding: they are known, too
        known = KnownPart.of(problem, theta, triplets, int((triplets.values > edge * (1 - 1e-6)).sum()))
        runs, stated = LanczosRuns(problem, theta, known, failure, attempt), stated + failure
        patience = max(24, known.left.shape[1] // (2 * PROBES)) if attempt < MAX_ATTEMPTS - 1 else max_steps
        while True:
            runs.extend(max(8, runs.steps // 2))
            upper = runs.upper_square()
            # no more eigenvalues of that size than the squared Frobenius norm of Y has room for
            count = min(problem.shape) - known.left.shape[1]
            if upper > 0:
                square = runs.frobenius_square - float(known.inside.trace() + known.leak.trace())  # less ||Y V||_F^2
                count = max(min(count, math.ceil(max(square, 0.0) / upper)), 1)
            values, dual = known.best_values(upper, count, edge, dual_of, goal)
            if dual >= goal:
                return SpectrumBound(values, stated, triplets, triplets.right_image[:, :0], True)
            squares, images = runs.met(edge)
            is_out_of_reach = dual_of(known.lower_values(squares)) < goal
            if is_out_of_reach or runs.is_exhausted or runs.steps >= max_steps:
                return SpectrumBound(values, stated, triplets, images, is_out_of_reach)
            if runs.steps >= patience and int((squares > edge**2).sum()) >= PROBES:
                break  # the bound suffers from values above the edge that are not known yet: take them in
        images = torch.cat([triplets.right_image, images], dim=1)
        triplets = subspace_pass(problem, StepOperator(problem, theta), images)
    raise AssertionError("unreachable: the last attempt has no patience to lose")


@dataclass(frozen=True)
class KnownPart:
    """Orthonormal U and V in dual coordinates with :math:`U^T Y (I - VV^T) = 0`, and Y on V."""

    left: Tensor  # C (M, k)
    left_image: Tensor  # K_M C (M, k)
    right: Tensor  # D (N, k)
    right_image: Tensor  # K_N D (N, k)
    inside: Tensor  # A^T A (k, k), double precision
    leak: Tensor  # E^T E (k, k), double precision

    @classmethod
    def of(cls, problem: MeanProblem, theta: Tensor, triplets: LowRank, count: int) -> KnownPart:
        """From the first ``count`` triplets of a subspace pass, their vectors made orthonormal once more."""
        left, left_image = orthonormal(triplets.left[:, :count], triplets.left_image[:, :count])
        right, right_image = orthonormal(triplets.right[:, :count], triplets.right_image[:, :count])
        moved = times(problem.pattern.matrix(theta), right_image)  # (M, k): dual coordinates of Y V
        core = (left_image.mT @ moved).double()
        inside = core.mT @ core
        whole = scaled_gram(moved, problem.rows_times(moved))
        return cls(left, left_image, right, right_image, inside, whole - inside)

    def lower_values(self, squares: Tensor) -> Tensor:
        r"""Values whose dual bound is not below that of Y, from Ritz values of :math:`D^T D`.

        The blocks on the diagonal of :math:`Y^T Y` are majorised by its eigenvalues, the Ritz values (q,) by those of
        their block, and the conjugate of the penalty is a convex function of the squares.
        """
        inside = torch.linalg.eigvalsh(self.inside + self.leak).clamp_min(0)
        return torch.cat([inside, squares.to(inside)]).sqrt()

    def best_values(
        self, rest: float, count: int, edge: float, dual_of: Callable[[Tensor], float], goal: float
    ) -> tuple[Tensor, float]:
        """The values with the best dual bound over some t, and that bound; the first that reaches ``goal`` will do.

        :param rest: upper bound on the largest eigenvalue of D^T D; ``count`` of that size there may be, at least 1.
        :param edge: what the rest had better not count as more than.
        """
        levels = [edge] * math.isfinite(edge) + [factor * math.sqrt(rest) for factor in (1.0001, 1.001, 1.01, 1.1)]
        best = torch.zeros(0, dtype=torch.float64), -math.inf
        for level in dict.fromkeys(levels):  # sqrt((1 + 1 / t) rest), which the rest counts as
            if level**2 <= rest * (1 + 1e-9):
                continue
            t = rest / (level**2 - rest)
            squares = torch.linalg.eigvalsh(self.inside + (1 + t) * self.leak).clamp_min(0)
            tail = torch.full((count if rest > 0 else 0,), level, dtype=torch.float64, device=squares.device)
            values = torch.cat([squares.sqrt(), tail])
            dual = dual_of(values)
            if dual > best[1]:
                best = values, dual
            if dual >= goal:
                break
        return best


class LanczosRuns:
    r"""Lanczos runs on :math:`D^T D` from random vectors, side by side, in dual coordinates.

    :param known: what is left out of D; None for D = Y.
    :param failure: probability that :meth:`upper_square` is below the largest eigenvalue.
    :param attempt: other numbers start from other random vectors.
    """

    def __init__(
        self, problem: MeanProblem, theta: Tensor, known: KnownPart | None, failure: float, attempt: int = 0
    ) -> None:
        self.problem, self.known = problem, known
        self.matrix, self.matrix_t = problem.sparse(theta)
        generator = torch.Generator().manual_seed(seed_of(theta, attempt))
        start = torch.randn(problem.shape[1], PROBES, generator=generator, dtype=torch.float64)
        dual = start.to(problem.dtype).to(problem.device)
        image = problem.cols_times(dual)
        if known is not None:  # (I - VV^T) x
            for _ in range(2):
                share = known.right.mT @ image
                dual, image = dual - known.right @ share, image - known.right_image @ share
            image = problem.cols_times(dual)
        norms = (dual * image).sum(0).clamp_min(0).double().sqrt()  # (s,)
        self.is_exhausted = not bool((norms > 0).all())
        norms = torch.where(norms > 0, norms, torch.ones_like(norms))
        # <v_0, x> is normal with standard deviation ||G_N x||, and ||D x|| <= ||G_M^T Theta|| ||G_N x||: with this
        # chance for each run, gamma >= share * sqrt(lambda) for the top eigenvector x of eigenvalue lambda
        each = failure ** (1 / PROBES)
        of_rows, of_cols = spectral_bounds(problem.row_op)[1], spectral_bounds(problem.col_op)[1]
        reach = math.sqrt(of_rows) * spectral_norm_bound(problem, theta)
        self.share = each * math.sqrt(math.pi / 2) / (reach * norms.cpu().numpy())  # (s,)
        self.limit = reach**2 * of_cols  # no eigenvalue is above it
        self.frobenius_square = of_rows * of_cols * float(theta.double().square().sum())  # at least ||Y||_F^2
        self.basis = (dual / norms.to(dual)).T.unsqueeze(1).contiguous()  # (s, q, N)
        self.basis_image = (image / norms.to(image)).T.unsqueeze(1).contiguous()
        self.diagonal, self.off_diagonal = np.zeros((PROBES, 0)), np.zeros((PROBES, 0))  # (s, q)
        self.scale = 0.0  # the largest number in the tridiagonal matrices

    @property
    def steps(self) -> int:
        """Q"""
        return int(self.diagonal.shape[1])

    def _product(self, image: Tensor) -> Tensor:
        """(N, s): dual coordinates of D^T D x = (I - VV^T) Y^T (I - UU^T) Y x, from K_N x."""
        left_image = self.problem.rows_times(times(self.matrix, image))
        if self.known is None:
            return times(self.matrix_t, left_image)
        left_image = left_image - self.known.left_image @ (self.known.left.mT @ left_image)
        fresh = times(self.matrix_t, left_image)
        return fresh - self.known.right @ (self.known.right_image.mT @ fresh)

    def extend(self, steps: int) -> None:
        """Go on by some steps, or until the whole space is exhausted."""
        room = torch.empty(PROBES, self.basis.shape[1] + steps, self.basis.shape[2]).to(self.basis)
        room_image, count = torch.empty_like(room), self.basis.shape[1]
        room[:, :count], room_image[:, :count] = self.basis, self.basis_image
        diagonal, off_diagonal = [], []
        for _ in range(steps):
            if self.is_exhausted:
                break
            report_step("certificate")
            image = room_image[:, count - 1].T.contiguous()  # (N, s)
            fresh = self._product(image).T.unsqueeze(1)  # (s, 1, N)
            for again in (False, True):  # against all earlier vectors, twice
                share = room_image[:, :count] @ fresh.mT  # (s, q, 1)
                if not again:
                    diagonal.append(share[:, -1, 0].double().cpu().numpy())
                fresh = fresh - share.mT @ room[:, :count]
            dual = fresh.squeeze(1)
            image = self.problem.cols_times(dual.T.contiguous()).T
            norms = (dual * image).sum(1).clamp_min(0).double().sqrt()
            off_diagonal.append(norms.cpu().numpy())
            self.scale = max(self.scale, float(diagonal[-1].max()), float(off_diagonal[-1].max()))
            smallest = 10 * torch.finfo(room.dtype).eps * self.scale
            self.is_exhausted = bool((norms <= smallest).any()) or count >= self.problem.shape[1]
            norms = torch.where(norms > 0, norms, torch.ones_like(norms)).unsqueeze(1).to(dual)
            room[:, count], room_image[:, count] = dual / norms, image / norms
            count += 1
        self.basis, self.basis_image = room[:, :count], room_image[:, :count]
        if diagonal:
            self.diagonal = np.concatenate([self.diagonal, np.stack(diagonal, 1)], 1)
            self.off_diagonal = np.concatenate([self.off_diagonal, np.stack(off_diagonal, 1)], 1)

    def largest_square(self) -> float:
        """The largest eigenvalue met; never above the true one."""
        last = (self.steps - 1, self.steps - 1)
        runs = zip(self.diagonal, self.off_diagonal[:, :-1], strict=True) if self.steps else ()
        return max(0.0, *(float(eigh_tridiagonal(*run, True, select="i", select_range=last)[0]) for run in runs), 0.0)

    def upper_square(self) -> float:
        """An upper bound on the largest eigenvalue; it fails with probability ``failure`` at most.

        The largest lambda with share^2 lambda sum_j p_j(lambda)^2 <= 1 for any run, by repeated subdivision.
        """
        low, high = self.largest_square(), self.limit
        if self.is_exhausted:  # an invariant space: whatever the start vector holds is in it
            return low * (1 + 1e-12) + 10 * torch.finfo(self.basis.dtype).eps * low
        for _ in range(12):
            grid = np.linspace(low, high, 34)[1:]
            below = self._is_possible(grid)
            if below[-1]:
                return high
            first = int(np.argmin(below))  # the first that is not possible
            low, high = (low if first == 0 else float(grid[first - 1])), float(grid[first])
            if high - low <= 1e-9 * high:
                break
        return high

    def _is_possible(self, grid: np.ndarray) -> np.ndarray:
        """(g,) whether the largest eigenvalue can be as large as each entry of the grid, for at least one run."""
        before, now = np.zeros((PROBES, len(grid))), np.ones((PROBES, len(grid)))
        total = np.ones_like(now)
        limit = 1 / (self.share[:, None] ** 2 * np.maximum(grid, 1e-300))
        floor = np.finfo(float).tiny
        for j in range(self.steps):
            off_diagonal = self.off_diagonal[:, j - 1 : j] if j else np.zeros((PROBES, 1))
            divisor = np.maximum(self.off_diagonal[:, j : j + 1], floor)
            with np.errstate(over="ignore"):
                ahead = ((grid - self.diagonal[:, j : j + 1]) * now - off_diagonal * before) / divisor
                before, now, total = now, ahead, total + ahead**2
            over = total > limit  # decided; keep the numbers small
            before, now = np.where(over, 0.0, before), np.where(over, 0.0, now)
            total = np.where(over, np.inf, total)
        return np.asarray((total <= limit).any(0))

    def met(self, edge: float) -> tuple[Tensor, Tensor]:
        """Ritz values (squares) in the span of all runs, and right images (N, p) of their vectors above ``edge``.

        At least two vectors for each run. Bases that have grown nearly dependent count once.
        """
        steps = min(self.steps, MAX_MET // PROBES)  # the first steps of each run
        basis = self.basis[:, :steps].reshape(PROBES * steps, -1)  # (s q, N)
        image = self.basis_image[:, : steps + 1].reshape(PROBES * (steps + 1), -1)
        gram = (basis @ image.T).double().view(PROBES * steps, PROBES, steps + 1)
        diagonal, off_diagonal = (
            torch.from_numpy(part[:, :steps].copy()).to(gram) for part in (self.diagonal, self.off_diagonal)
        )
        # (s q, s, q): <b, D^T D b'> by the recurrence
        moved = gram[:, :, :-1] * diagonal + gram[:, :, 1:] * off_diagonal
        moved[:, :, 1:] += gram[:, :, : steps - 1] * off_diagonal[:, :-1]
        own, moved = gram[:, :, :-1].reshape(PROBES * steps, -1), moved.reshape(PROBES * steps, -1)
        sizes, turn = torch.linalg.eigh((own + own.mT) / 2)
        kept = sizes > 1e-3
        turn = turn[:, kept] / sizes[kept].sqrt()
        small = turn.mT @ moved @ turn
        squares, vectors = torch.linalg.eigh((small + small.mT) / 2)
        count = min(max(int((squares > edge**2).sum()), 2 * PROBES), len(squares))
        leading = (turn @ vectors[:, -count:]).flip(1).to(basis)  # (s q, p)
        own_image = self.basis_image[:, :steps].reshape(PROBES * steps, -1)
        return squares.clamp_min(0), (leading.mT @ own_image).T.contiguous()


def seed_of(theta: Tensor, attempt: int) -> int:
    """A seed that is fresh for every gradient, and the same for the same one: a fit can be repeated bit for bit."""
    part = theta.detach()[:: max(1, theta.numel() // 1_000_000)].contiguous().cpu()
    digest = hashlib.blake2b(part.numpy().tobytes(), digest_size=8, salt=attempt.to_bytes(8, "big")).digest()
    return int.from_bytes(digest, "big") >> 1


def spectral_norm_bound(problem: MeanProblem, theta: Tensor) -> float:
    """Of the matrix Theta: the smaller of its Frobenius norm and the root of its largest row sum times column sum."""
    frobenius = math.sqrt(float(theta.double().square().sum()))
    ones = [torch.ones(size, 1, dtype=problem.dtype, device=problem.device) for size in problem.shape]
    sizes, sizes_t = problem.sparse(theta.abs())
    row_sum, col_sum = float(times(sizes, ones[1]).max()), float(times(sizes_t, ones[0]).max())
    return min(frobenius, math.sqrt(row_sum * col_sum) * (1 + 1e-5))
