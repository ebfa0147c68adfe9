"""PairwiseSVM: a support vector machine on pairs, as ProDiGe has it."""

from __future__ import annotations

import copy
from typing import Any, Literal

import gpytorch
import torch
from linear_operator import LinearOperator
from torch import Tensor

from ..checks import (
    check_choice,
    check_flag,
    check_instance,
    check_iterations,
    check_positive,
    check_tolerance,
    check_whole_number,
    refuse_gradient,
)
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError, SizeError
from ..hooks import Described
from ..likelihoods.losses import Data
from ..linalg.cost import Estimate, Work
from ..linalg.pair_operator import PairLinearOperator
from ..linalg.pairs import PairIndex
from ..mean.problem import Certificate, warn_or_raise
from ..mean.support_vectors import solve_hinge, solve_squared_hinge
from ..posteriors.covariance import NoCovariance
from ..posteriors.explain import Duals
from ..posteriors.gaussian import GaussianPosterior
from ..posteriors.query import SparseCoefficients
from ..posteriors.updates import Fantasies, Fit, moved_coefficients
from ..priors.matrix_gp import MatrixGP
from ..priors.means import ConstantMean, ZeroMean
from ..progress import Progress, progress_bar
from .estimates import FitSize
from .recipe import kernel_operators, known_links, remembered

SVMSolver = Literal["auto", "svc", "newton"]
REASON = (
    "a support vector machine has scores (mean, scores) but no variance, covariance or samples; "
    "for those fit FullGP or TraceGP"
)
SVC_PASSES = 6000.0  # over the kernel matrix, as a rule
NEWTON_PRODUCTS = 60.0  # with the kernel matrix


class PairRanker(GaussianPosterior):
    r"""The result of :class:`~mvgp.models.PairwiseSVM`: :math:`f(m, n) = b + k_M(m) A k_N(n)^T`.

    It answers like a posterior where only the mean is asked for (``mean``, ``scores``, metrics); all else is refused.

    :param prior: a copy of the prior as it was when fitted, its mean the bias b.
    :param ops: its covariances (K_M, K_N).
    :param coefficients: A, on the observed pairs.
    :param pairs: the observed pairs.
    :param bias: b.
    :param certificate: evidence: duality gap, iterations, solver.
    """

    def __init__(
        self,
        prior: MatrixGP,
        ops: tuple[LinearOperator, LinearOperator],
        coefficients: SparseCoefficients,
        pairs: PairIndex,
        *,
        bias: float,
        certificate: Certificate,
    ) -> None:
        super().__init__(prior, ops, coefficients, NoCovariance(pairs, REASON))
        self.bias, self.certificate = bias, certificate


class PairwiseSVM(Described, gpytorch.Module):
    r"""A classifier of pairs with kernel :math:`K_M(m, m') K_N(n, n')` and a bias, used to rank: the baseline ProDiGe.

    With costs :math:`c_t` = cost x weight of the entry x weight of its class it minimises

    .. math:: \tfrac12 \|f\|_K^2 + \sum_t c_t (1 - y_t f_t)_+ \quad \text{(svc)} \qquad \text{or} \qquad
        \tfrac12 \|f\|_K^2 + \tfrac12 \sum_t c_t (1 - y_t f_t)_+^2 \quad \text{(newton).}

    The second one needs products with :math:`K_{TT}` only, never the matrix itself. Mordelet and Vert, *ProDiGe:
    Prioritization Of Disease Genes with multitask machine learning from positive and unlabeled examples*, 2011.

    :param prior: its kernels are used; its mean has to be zero, the bias stands in for it.
    :param cost: of an error on a negative with weight 1. A large cost fits the labels closely.
    :param positive_weight: how much more an error on a positive costs; ``balanced`` gives both classes the same
        total, however many negatives were sampled.
    :param solver: ``svc`` (scikit-learn), ``newton``, or ``auto``: svc up to ``dense_limit`` pairs.
    :param tolerance: relative duality gap; 1e-5 in double precision, 1e-3 in single.
    :param max_iterations: Newton steps.
    :param strict: whether missing the tolerance is an error rather than a warning.
    :param dense_limit: pairs up to which ``auto`` builds the dense kernel matrix.
    :param list_limit: cells of whole lists up to which they are taken.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.models.pairwise_svm import PairwiseSVM
        >>> kernel = DiffusionKernel(Graph([(0, 1), (1, 2)], 3))
        >>> prior = mvgp.MatrixGP(kernel, gpytorch.kernels.RBFKernel(), col_inputs=torch.linspace(0, 1, 5))
        >>> data = mvgp.ObservedMatrix([0, 2, 1, 1], [1, 4, 4, 0], [1, -1, -1, 1], shape=(3, 5))
        >>> ranker = PairwiseSVM(prior, cost=10.0, solver="newton").fit(data)
        >>> (ranker.mean([0, 2], [1, 4]) > 0).tolist(), ranker.certificate.converged
        ([True, False], True)

    """

    def __init__(
        self,
        prior: MatrixGP,
        *,
        cost: float = 1.0,
        positive_weight: float | Literal["balanced"] = "balanced",
        solver: SVMSolver = "auto",
        tolerance: float | None = None,
        max_iterations: int = 100,
        strict: bool = False,
        dense_limit: int = 3000,
        list_limit: int = 4_000_000,
    ) -> None:
        super().__init__()
        check_instance(prior, "prior", MatrixGP, "mvgp.MatrixGP")
        if not isinstance(prior.mean_module, ZeroMean):
            raise InputError(
                f"prior: expected a zero mean, which the machine's own bias replaces, got "
                f"{type(prior.mean_module).__name__}"
            )
        self.prior, self.cost = prior, check_positive(cost, "cost")
        self.positive_weight: float | Literal["balanced"] = "balanced"
        if not (isinstance(positive_weight, str) and positive_weight == "balanced"):
            self.positive_weight = check_positive(positive_weight, "positive_weight (or 'balanced')")
        self.solver: SVMSolver = check_choice(solver, "solver", ("auto", "svc", "newton"))
        self.tolerance = None if tolerance is None else check_tolerance(tolerance)
        self.max_iterations, self.strict = check_iterations(max_iterations), check_flag(strict, "strict")
        self.dense_limit = check_whole_number(dense_limit, "dense_limit", 0)
        self.list_limit = check_whole_number(list_limit, "list_limit", 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.prior.shape[0]} x {self.prior.shape[1]}, cost {self.cost:g})"

    def fit(self, data: Data, *, progress: Progress = "auto") -> PairRanker:
        """The ranker given ``data``, whose values are +1 and -1.

        On whole lists (``PositiveUnlabelled``) the links are the positives, and every other cell of a list is a
        negative with its weight.

        :param progress: True, False or "auto", see :mod:`mvgp.progress`.
        """
        refuse_gradient(data, "data")
        self.prior.refuse_gradients()
        prior = self.prior.snapshot()
        with progress_bar("fit", progress=progress):
            ranker = self._train(data, prior, None)
        ranker._fit = Fit(data, remembered(self, prior))
        return ranker

    def estimate(self, data: Data) -> Estimate:
        """What :meth:`fit` of ``data`` will take on this machine; see :meth:`mvgp.TraceGP.estimate`."""
        self._check_data(data)
        size = FitSize(self.prior, data)
        count = float(size.count)
        if self._uses_svc(size.count):
            return size.estimate(
                "PairwiseSVM", "svc", Work(gemm=SVC_PASSES * count**2, move=4 * count**2), 4 * count**2
            )
        products = NEWTON_PRODUCTS * size.product()
        return size.estimate("PairwiseSVM", "newton", products, 20 * count + 3.0 * size.active[0] * size.active[1])

    def _uses_svc(self, count: int) -> bool:
        return self.solver == "svc" or (self.solver == "auto" and count <= self.dense_limit)

    def _check_data(self, data: Any) -> None:
        """Observed entries, or whole lists that are not too long."""
        check_instance(data, "data", (ObservedMatrix, PositiveUnlabelled), "mvgp.ObservedMatrix")
        if isinstance(data, PositiveUnlabelled) and data.num_cells > self.list_limit:
            raise SizeError(
                f"data: a support vector machine takes whole lists of up to {self.list_limit:,} cells in all "
                f"(list_limit), there are {data.num_cells:,}; sample negatives, or use FullGP or TraceGP"
            )

    def _update(self, posterior: PairRanker, data: Data) -> PairRanker:
        """From the old coefficients; scikit-learn's solver takes none, and starts over."""
        refuse_gradient(data, "data")
        ranker = self._train(data, self.prior, posterior)
        ranker._fit = Fit(data, self)
        return ranker

    def _fantasies(self, posterior: Any, rows: Any, cols: Any, values: Any, weights: Any) -> Fantasies:
        raise InputError("fantasise: a support vector machine takes labels; use condition")

    @torch.no_grad()
    def _train(self, data: Data, prior: MatrixGP, before: PairRanker | None) -> PairRanker:
        labels, weights = self._labels(data)
        ops = kernel_operators(prior, data) if before is None else before._ops
        pattern = data.pattern.to(labels.device)
        pairs = PairIndex(pattern.rows, pattern.cols, data.shape)
        op, costs = PairLinearOperator(*ops, pairs), self.cost * weights
        tolerance = self.tolerance or (1e-5 if prior.dtype == torch.float64 else 1e-3)
        if self._uses_svc(len(pairs)):
            solution = solve_hinge(op, labels, costs, tolerance=tolerance)
        else:
            start = None
            if before is not None and isinstance(before.coefficients, SparseCoefficients):
                start = moved_coefficients(before.coefficients.pattern, before.coefficients.values, pattern)
            most = self.max_iterations
            solution = solve_squared_hinge(op, labels, costs, tolerance=tolerance, max_iterations=most, start=start)
        advice = "allow more iterations, loosen the tolerance, lower the cost, or use float64"
        # a warning names the line where fit is called
        warn_or_raise(solution.certificate, "the machine", advice, strict=self.strict, stacklevel=4)
        prior = copy.copy(prior)  # the kernels are shared, the mean is its own
        prior._modules = dict(prior._modules)
        prior.mean_module = ConstantMean(solution.bias, dtype=prior.dtype).to(labels.device).requires_grad_(False)
        coefficients = SparseCoefficients(pattern, solution.coefficients)
        ranker = PairRanker(prior, ops, coefficients, pairs, bias=solution.bias, certificate=solution.certificate)
        ranker._duals = Duals(pattern, solution.coefficients, known_links(data))
        return ranker

    def _labels(self, data: Any) -> tuple[Tensor, Tensor]:
        """(T,) labels and (T,) weights, those of the classes included."""
        self._check_data(data)
        like = self.prior.mean_module.zero
        if isinstance(data, PositiveUnlabelled):
            labels = torch.full((data.num_cells,), -1.0, dtype=like.dtype, device=like.device)
            weights = torch.full_like(labels, data.weight)
            labels[data.positions.to(like.device)] = weights[data.positions.to(like.device)] = 1.0
        else:
            bad = data.values.abs() != 1
            if bad.any():
                at = int(bad.nonzero()[0])
                cell = (int(data.rows[at]), int(data.cols[at]))
                raise InputError(f"data: expected labels +1 and -1, got {data.values[at].item()} at {cell}")
            labels = data.values.to(like)
            weights = torch.ones_like(labels) if data.weights is None else data.weights.to(like)
        positive = labels > 0
        if len(labels) == 0:
            raise InputError("data: a support vector machine needs labels of both classes, got no observations")
        if positive.all() or not positive.any():
            raise InputError(f"data: expected labels of both classes, got {len(labels)} times {labels[0].item():+.0f}")
        if self.positive_weight == "balanced":
            ratio = float(weights[~positive].sum() / weights[positive].sum())
        else:
            ratio = float(self.positive_weight)
        return labels, torch.where(positive, ratio * weights, weights)
