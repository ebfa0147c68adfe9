r"""learn_grid: hyperparameters of graph kernels from a complete matrix, or from links, at any size that fits memory.

Kernels that are functions of a Laplacian keep its eigenvectors whatever their parameters. With
:math:`R = U_M^T (Y - b) U_N` computed once, every value afterwards costs one pass over the cells:

.. math:: \log p(Y) = -\tfrac12 \sum_{ij} \Big(\frac{R_{ij}^2}{v_{ij}} + \log v_{ij} + \log 2\pi\Big), \quad
    v_{ij} = \kappa_i \omega_j + \sigma^2
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor

from ..checks import check_instance, check_iterations, check_tolerance, refuse_gradient
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..kernels.graph import Graph, GraphKernel
from ..likelihoods.axis_noise import check_gaussian
from ..priors.matrix_gp import MatrixGP
from ..progress import Progress, check_progress
from .learning import LearningResult, Objective, ParameterVector
from .probes import with_gradients

CELLS_AT_ONCE = 1 << 22  # of the matrix, handled at a time


@dataclass(frozen=True, kw_only=True)
class LearnedGrid(LearningResult):
    """The outcome of :func:`learn_grid`.

    :param log_marginal: at the end.
    """

    log_marginal: float


def learn_grid(
    prior: MatrixGP,
    likelihood: GaussianLikelihood,
    data: PositiveUnlabelled | ObservedMatrix,
    *,
    max_steps: int = 100,
    tolerance: float = 1e-3,
    progress: Progress = "auto",
) -> LearnedGrid:
    r"""Maximise the exact log marginal likelihood of a matrix whose every cell counts, in place.

    Links are 1 in a matrix of 0, rows without links included: a regression, which says how far along the graphs links
    agree, not which ranking is best. The eigenvectors of both graphs are needed (up to 16,384 nodes), once.

    Give the scale of the covariance to one kernel only (a ``ScaleKernel`` on one axis): two cannot be told apart. Begin
    with scale and noise of the order of the variance of the labels; from far above it can end where all is noise.

    :param prior: with graph kernels on both axes. The parameters of its mean are not learned.
    :param likelihood: gpytorch's ``GaussianLikelihood``; its noise is learned, too.
    :param data: links, or an ``ObservedMatrix`` with every cell.
    :param max_steps: of L-BFGS.
    :param tolerance: on the largest derivative by a raw parameter over the root of the number of cells. Missing it
        warns.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.

    Example:
        >>> import gpytorch, mvgp
        >>> from mvgp.hyperparameters import learn_grid
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> ring = Graph([(i, (i + 1) % 6) for i in range(6)], 6)
        >>> scaled = gpytorch.kernels.ScaleKernel(DiffusionKernel(ring, shift=0.0))
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 3, 3], [0, 1, 0, 1, 3, 4], shape=(6, 6))
        >>> prior = mvgp.MatrixGP(DiffusionKernel(ring, shift=0.0), scaled)
        >>> learn_grid(prior, gpytorch.likelihoods.GaussianLikelihood(), links, tolerance=1e-2).converged
        True

    """
    check_gaussian(likelihood, "learn_grid")
    check_instance(data, "data", PositiveUnlabelled | ObservedMatrix, "links or an ObservedMatrix")
    check_instance(prior, "prior", MatrixGP, "mvgp.MatrixGP")
    tolerance, max_steps = check_tolerance(tolerance), check_iterations(max_steps, "max_steps")
    progress = check_progress(progress)
    prior.refuse_gradients()
    grid = RotatedGrid(prior, data)
    likelihood.to(torch.float64)  # sums over millions of cells are in double precision
    parts = {"row_kernel": prior.row_axis.kernel, "col_kernel": prior.col_axis.kernel, "likelihood": likelihood}
    objective = Objective(ParameterVector(parts), lambda: grid.log_marginal(likelihood.noise.reshape(())))
    objective.maximise(max_steps, tolerance * len(grid) ** 0.5, unit=len(grid), progress=progress)
    fields = objective.result_fields(tolerance, len(grid))
    result = LearnedGrid(**fields, log_marginal=objective.value)
    result.warn_unless_converged("allow more steps, or begin elsewhere")
    return result


class RotatedGrid:
    """The squared matrix, less the prior mean as it is now, in the eigenvectors of the graphs; and its log density."""

    def __init__(self, prior: MatrixGP, data: PositiveUnlabelled | ObservedMatrix) -> None:
        if data.shape != prior.shape:
            raise InputError(f"data: expected shape {prior.shape} as in the prior, got {data.shape}")
        refuse_gradient(data, "data")
        self.kernels = (prior.row_axis.kernel, prior.col_axis.kernel)
        graphs = [graph_of(self.kernels[0], "row_kernel"), graph_of(self.kernels[1], "col_kernel")]
        dtype, device = prior.dtype, next(self.kernels[0].parameters()).device
        if isinstance(data, PositiveUnlabelled):
            matrix = torch.zeros(data.shape, dtype=dtype)
            matrix[data.rows, data.cols] = 1.0
        elif data.is_complete and data.weights is None:
            matrix = data.values.to(dtype).reshape(data.shape)
        else:
            raise InputError(
                f"data: expected links, or a matrix with every cell and without weights, got {len(data)} of "
                f"{data.shape[0] * data.shape[1]} cells; use learn"
            )
        rows, cols = (torch.arange(size, device=device) for size in data.shape)
        with torch.no_grad():
            matrix = matrix.to(device) - prior.mean_module.block(rows, cols).to(dtype)
            (row_values, row_vectors), (col_values, col_vectors) = (g.eigenpairs(dtype, device) for g in graphs)
            self.squares = (row_vectors.mT @ matrix @ col_vectors).square_()  # (M, N)
        self.eigenvalues = (row_values.double(), col_values.double())

    def __len__(self) -> int:
        return int(self.squares.numel())

    def log_marginal(self, noise: Tensor) -> Tensor:
        """(): with gradients to the kernels' parameters and ``noise`` ()."""
        row, col = (spectrum(kernel, at) for kernel, at in zip(self.kernels, self.eigenvalues, strict=True))
        kappa, omega, sigma = row.detach(), col.detach(), noise.detach()
        value, by_noise = sigma.new_zeros(()), sigma.new_zeros(())
        by_row, by_col = torch.empty_like(kappa), torch.zeros_like(omega)
        step = max(1, CELLS_AT_ONCE // len(omega))
        for start in range(0, len(kappa), step):
            part = slice(start, start + step)
            v = torch.outer(kappa[part], omega).add_(sigma)
            share = self.squares[part] / v  # R^2 / v
            value -= 0.5 * (share.sum() + v.log().sum())
            slope = share.sub_(1).div_(v).mul_(0.5)  # derivative by v
            by_row[part] = slope @ omega
            by_col += slope.mT @ kappa[part]
            by_noise += slope.sum()
        value -= 0.5 * len(self) * math.log(2 * math.pi)
        return with_gradients(value, [(row, by_row), (col, by_col), (noise, by_noise)])


def graph_of(kernel: Kernel, name: str) -> Graph:
    """The graph whose Laplacian the kernel is a function of."""
    if isinstance(kernel, GraphKernel):
        return kernel.graph
    if isinstance(kernel, ScaleKernel):
        return graph_of(kernel.base_kernel, name)
    if isinstance(kernel, AdditiveKernel):
        graphs = [graph_of(part, name) for part in kernel.kernels]
        if all(graph is graphs[0] for graph in graphs):
            return graphs[0]
        raise InputError(f"{name}: expected a sum of kernels on one graph, got {len(graphs)} with different ones")
    raise InputError(
        f"{name}: expected a graph kernel, a ScaleKernel of one or a sum of those, got {type(kernel).__name__}, "
        "whose eigenvectors change with its parameters; use learn"
    )


def spectrum(kernel: Kernel, eigenvalues: Tensor) -> Tensor:
    """(n,): eigenvalues of the kernel at those of the Laplacian; differentiable."""
    if isinstance(kernel, GraphKernel):
        return kernel.spectrum(eigenvalues) + kernel.shift
    if isinstance(kernel, ScaleKernel):
        return kernel.outputscale * spectrum(kernel.base_kernel, eigenvalues)
    return torch.stack([spectrum(part, eigenvalues) for part in kernel.kernels]).sum(0)
