"""learn_grid: hyperparameters of graph kernels from a complete matrix, or from links, at any size that fits memory."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from scipy.optimize import minimize
from torch import Tensor
from tqdm import tqdm

from ..checks import check_flag, check_instance, check_iterations, check_tolerance
from ..data import ObservedMatrix, PositiveUnlabelled
from ..errors import InputError
from ..likelihoods.overrides import check_gaussian
from ..priors import MatrixGP
from .parameters import ParameterVector
from .rotated_grid import RotatedGrid


@dataclass(frozen=True)
class LearnedGrid:
    """The outcome of :func:`learn_grid`; the parameters themselves were changed in place.

    :param parameters: constrained value of each parameter, by name.
    :param log_marginal: at the end.
    :param history: log marginal likelihood after each step.
    :param converged: whether ``gradient`` is within ``tolerance``.
    :param gradient: largest derivative by a raw parameter, divided by the root of the number of cells.
    :param tolerance: what was asked for.
    :param evaluations: how often value and gradient were computed.
    """

    parameters: dict[str, Tensor]
    log_marginal: float
    history: tuple[float, ...]
    converged: bool
    gradient: float
    tolerance: float
    evaluations: int


def learn_grid(
    prior: MatrixGP,
    likelihood: GaussianLikelihood,
    data: PositiveUnlabelled | ObservedMatrix,
    *,
    max_steps: int = 100,
    tolerance: float = 1e-3,
    progress: bool = False,
) -> LearnedGrid:
    r"""Maximise the exact log marginal likelihood of a matrix whose every cell counts, in place.

    Of links the matrix has 1 where there is one and 0 elsewhere, rows without links included. That is a regression of
    labels: it says how far along the graphs links agree, not which ranking is best. The eigenvectors of both graphs
    are needed (up to 16,384 nodes), once; see :mod:`~mvgp.evidence.rotated_grid`.

    Give the scale of the covariance to one kernel only (a ``ScaleKernel`` on one axis): two cannot be told apart. Begin
    with scale and noise of the order of the variance of the labels; from far above it can end where all is noise.

    :param prior: with graph kernels on both axes. The parameters of its mean are not learned.
    :param likelihood: gpytorch's ``GaussianLikelihood``; its noise is learned, too.
    :param data: links, or an ``ObservedMatrix`` with every cell.
    :param max_steps: of L-BFGS.
    :param tolerance: on the largest derivative by a raw parameter over the root of the number of cells. Missing it
        warns.
    :param progress: whether to show a bar.

    Example:
        >>> import gpytorch, mvgp
        >>> from mvgp.evidence import learn_grid
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> ring = Graph([(i, (i + 1) % 6) for i in range(6)], 6)
        >>> scaled = gpytorch.kernels.ScaleKernel(DiffusionKernel(ring, shift=0.0))
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 3, 3], [0, 1, 0, 1, 3, 4], shape=(6, 6))
        >>> prior = mvgp.MatrixGP(DiffusionKernel(ring, shift=0.0), scaled)
        >>> learn_grid(prior, gpytorch.likelihoods.GaussianLikelihood(), links, tolerance=1e-2).converged
        True

    """
    check_gaussian(likelihood, "learn_grid")
    if not isinstance(data, PositiveUnlabelled | ObservedMatrix):
        raise InputError(f"data: expected links or an ObservedMatrix, got {type(data).__name__}")
    check_instance(prior, "prior", MatrixGP, "mvgp.MatrixGP")
    tolerance, max_steps = check_tolerance(tolerance), check_iterations(max_steps, "max_steps")
    progress = check_flag(progress, "progress")
    prior.refuse_gradients()
    grid = RotatedGrid(prior, data)
    likelihood.to(torch.float64)  # sums over millions of cells are in double precision
    parts = {"row_kernel": prior.row_axis.kernel, "col_kernel": prior.col_axis.kernel, "likelihood": likelihood}
    vector, history, evaluations = ParameterVector(parts), list[float](), 0

    def both(raw: Tensor) -> tuple[float, Tensor]:
        nonlocal evaluations
        evaluations += 1
        vector.set(raw)
        for parameter in vector.raw:
            parameter.grad = None
        value = grid.log_marginal(likelihood.noise.reshape(()))
        value.backward()
        return float(value.detach()), vector.gradient()

    def minus(raw: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = both(torch.from_numpy(np.array(raw)))
        return -value / len(grid), -gradient.numpy() / len(grid)  # so that the first step is not a leap

    with tqdm(total=max_steps, disable=not progress, desc="log marginal likelihood", leave=False) as bar:

        def note(intermediate_result: Any) -> None:
            history.append(-float(intermediate_result.fun) * len(grid))
            bar.update()

        goal = tolerance / len(grid) ** 0.5
        end = minimize(
            minus,
            vector.get().numpy(),
            jac=True,
            method="L-BFGS-B",
            callback=note,
            options={"maxiter": max_steps, "gtol": goal, "ftol": 1e-15, "maxls": 40},
        )
    value, gradient = both(torch.from_numpy(np.array(end.x)))
    steepest = float(gradient.abs().max()) / len(grid) ** 0.5
    found = LearnedGrid(
        vector.constrained(), value, tuple(history), steepest <= tolerance, steepest, tolerance, evaluations
    )
    if not found.converged:
        warnings.warn(
            f"learning ended with gradient {steepest:.2e} after {len(history)} steps, the tolerance is {tolerance:.2e}",
            RuntimeWarning,
            stacklevel=2,
        )
    return found
