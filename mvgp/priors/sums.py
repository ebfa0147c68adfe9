"""SumGP: a sum of independent Kronecker terms, and its mean."""

from __future__ import annotations

import copy
from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from ..checks import check_generator, check_instance, refuse_gradient
from ..errors import InputError
from ..hooks import Described
from ..linalg.pair_operator import CovarianceSumLinearOperator, PairLinearOperator
from ..linalg.pairs import PairIndex
from ..tensor_checks import check_cells, check_shape
from .matrix_gp import MatrixGP, given_name
from .means import MatrixMean, ZeroMean


class SumGP(Described, gpytorch.models.GP):
    r"""A sum of independent terms: :math:`Z = \sum_q Z_q,\ Z_q \sim \mathcal{GP}(b_q, K_{Mq} \otimes K_{Nq})`.

    Written as ``first + second``, or ``sum([...])``. A term is a :class:`~mvgp.MatrixGP` over the same matrix: a graph
    of its own, a main effect (:class:`~mvgp.kernels.ConstantKernel` on one axis), another lengthscale.

    :param terms: priors of the same shape and precision; sums among them count by their own terms.

    Example:
        >>> import mvgp
        >>> from mvgp.kernels import ConstantKernel, DiffusionKernel, Graph
        >>> rows, cols = DiffusionKernel(Graph([(0, 1), (1, 2)], 3)), DiffusionKernel(Graph([(0, 1)], 2))
        >>> prior = mvgp.MatrixGP(rows, cols) + mvgp.MatrixGP(ConstantKernel(3), cols)
        >>> prior.shape, len(prior.terms), prior.covariance().shape
        ((3, 2), 2, torch.Size([6, 6]))

    """

    def __init__(self, *terms: MatrixGP | SumGP) -> None:
        super().__init__()
        parts: list[MatrixGP] = []
        for at, term in enumerate(terms):
            check_instance(term, f"terms[{at}]", (MatrixGP, SumGP), "mvgp.MatrixGP or a sum of them")
            parts.extend(term.terms)
        if not parts:
            raise InputError("terms: expected at least one prior, got none")
        for at, part in enumerate(parts):
            if part.shape != parts[0].shape:
                raise InputError(f"terms[{at}]: expected shape {parts[0].shape} as in the first term, got {part.shape}")
            if part.dtype != parts[0].dtype:
                raise InputError(f"terms[{at}]: expected {parts[0].dtype} as in the first term, got {part.dtype}")
        self.summands = torch.nn.ModuleList(parts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shape[0]} x {self.shape[1]}, {len(self.terms)} terms)"

    @property
    def terms(self) -> tuple[MatrixGP, ...]:
        """The terms, each a MatrixGP."""
        return tuple(self.summands)  # type: ignore[arg-type]

    def __add__(self, other: Any) -> SumGP:
        return SumGP(self, other) if isinstance(other, MatrixGP | SumGP) else NotImplemented

    def __radd__(self, other: Any) -> SumGP:
        """Zero plus a sum is the sum: Python's ``sum`` begins with 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.terms[0].shape

    @property
    def dtype(self) -> torch.dtype:
        """Of parameters, means and covariances."""
        return self.terms[0].dtype

    @property
    def mean_module(self) -> MatrixMean:
        """The sum of the terms' means."""
        means = [term.mean_module for term in self.terms]
        others = [mean for mean in means if not isinstance(mean, ZeroMean)]
        return SumMean(*others) if len(others) > 1 else (others or means)[0]

    def pairs(self, rows: Any, cols: Any) -> PairIndex:
        """The checked cells (``rows``, ``cols``), each (Q,) or one number."""
        return PairIndex(*check_cells(rows, cols, self.shape), self.shape)

    def snapshot(self) -> SumGP:
        """A copy as it is now, all of it constant; what terms share stays shared."""
        memo: dict[int, Any] = {id(b): b.detach().clone() for b in self.buffers() if b.requires_grad}
        return copy.deepcopy(self, memo).requires_grad_(False)

    def refuse_gradients(self) -> None:
        """Raise if inputs, or other data of a term, require a gradient, which a posterior would lose."""
        for at, term in enumerate(self.terms):
            for name, values in term.named_buffers():
                refuse_gradient(values, f"terms[{at}].{given_name(name)}")

    def forward(self, rows: Any, cols: Any) -> MultivariateNormal:
        """The prior at pairs (``rows``, ``cols``), each (Q,): mean (Q,) and a lazy covariance (Q, Q)."""
        pairs = self.pairs(rows, cols)
        covariances = [
            PairLinearOperator(term.row_axis.covariance(), term.col_axis.covariance(), pairs) for term in self.terms
        ]
        return MultivariateNormal(self.mean_module(pairs.rows, pairs.cols), CovarianceSumLinearOperator(*covariances))

    def covariance(self) -> CovarianceSumLinearOperator:
        r""":math:`\sum_q K_{Mq} \otimes K_{Nq}`, (M N, M N), lazy, row-major."""
        return CovarianceSumLinearOperator(*(term.covariance() for term in self.terms))

    def mean_matrix(self) -> Tensor:
        """(M, N): the sum of the prior means."""
        return torch.stack([term.mean_matrix() for term in self.terms]).sum(0)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """(M, N): an exact sample, the sum of one of each term; it carries no gradient."""
        check_generator(generator)
        return torch.stack([term.sample(generator) for term in self.terms]).sum(0)


MatrixGP._sum_type = SumGP


class SumMean(MatrixMean):
    r"""The sum of several prior means, :math:`b = \sum_q b_q`.

    :param means: at least one.

    Example:
        >>> import torch
        >>> from mvgp.priors import ConstantMean, RowBiasMean
        >>> from mvgp.priors.sums import SumMean
        >>> SumMean(ConstantMean(1.0), RowBiasMean([0.0, 2.0]))(torch.tensor([0, 1]), torch.tensor([0, 0])).detach()
        tensor([1., 3.], dtype=torch.float64)

    """

    def __init__(self, *means: MatrixMean) -> None:
        for at, mean in enumerate(means):
            check_instance(mean, f"means[{at}]", MatrixMean, "a mean of mvgp.priors")
        if not means:
            raise InputError("means: expected at least one, got none")
        super().__init__(means[0].zero.dtype)
        self.zero = means[0].zero
        self.means = torch.nn.ModuleList(means)

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse a prior of a shape that one of them is no mean of."""
        for mean in self.means:
            mean.check_shape(check_shape(shape))  # type: ignore[operator]

    @property
    def uses_inputs(self) -> bool:  # type: ignore[override]
        """Whether one of them does."""
        return any(mean.uses_inputs for mean in self.means)

    def block(self, rows: Tensor | None, cols: Tensor | None, **inputs: Any) -> Tensor:
        """See :class:`MatrixMean`."""
        parts = [mean.block(rows, cols, **(inputs if mean.uses_inputs else {})) for mean in self.means]  # type: ignore[operator]
        return sum(parts, self.zero)

    def at(self, rows: Tensor | None, cols: Tensor | None, **inputs: Any) -> Tensor:
        """See :class:`MatrixMean`."""
        parts = [mean.at(rows, cols, **(inputs if mean.uses_inputs else {})) for mean in self.means]  # type: ignore[operator]
        return sum(parts, self.zero)
