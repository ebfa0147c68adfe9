r"""Kernels on the product of two graphs: functions of the Kronecker sum :math:`L_M \oplus L_N`, as sums of diffusions.

The Kronecker sum :math:`L_M \otimes I + I \otimes L_N` has the eigenvalues :math:`\mu_i + \nu_j`, in [0, 4]. A function
of it is no Kronecker product, but a diffusion is: :math:`e^{-t (L_M \oplus L_N)} = e^{-t L_M} \otimes e^{-t L_N}`, and

.. math:: \left(1 + \frac{x}{a}\right)^{-p} = \frac{a^p}{\Gamma(p)} \int_0^\infty t^{p-1} e^{-a t} e^{-t x}\, dt

is a positive mixture of diffusions. Few times with positive weights, found by non-negative least squares,
come as close to it as one likes; how close is computed, and bounds the error of the covariance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpytorch.kernels import ScaleKernel
from scipy.optimize import nnls
from torch import Tensor

from ..checks import check_dtype, check_instance, check_positive, check_tolerance, check_whole_number
from ..errors import InputError
from ..kernels.graph import DiffusionKernel, Graph, check_eigenvalues
from .matrix_gp import MatrixGP
from .means import MatrixMean
from .sums import SumGP

LARGEST = 4.0  # eigenvalue of the Kronecker sum of two normalised Laplacians
FIT_POINTS = 400  # of [0, 4], at which the weights are fitted


class ProductGraphGP(SumGP):
    r"""The prior with covariance :math:`v\,(1 + (L_M \oplus L_N) / a)^{-p}`, as a sum of diffusions.

    With p = 1 it is the regularised Laplacian of the product graph, with scale 1 / a; with :math:`p = \nu` and
    :math:`a = 2 \nu / \kappa^2` the Matern kernel of smoothness :math:`\nu` and reach :math:`\kappa`. Unlike a product
    of such kernels on the two graphs it is a function of how far apart two cells are on the grid of both graphs.

    The times and weights of the terms are constants: the covariance as a whole is what was asked for. They can be
    unfrozen with ``requires_grad_()``, then it is a sum of diffusions like any other.

    :param row_graph: of the rows.
    :param col_graph: of the columns.
    :param offset: a.
    :param power: p.
    :param variance: v, the largest eigenvalue.
    :param tolerance: on :attr:`error`; the number of terms follows from it.
    :param max_terms: more than this is an error.
    :param mean: prior mean, 0 when left out.

    Example:
        >>> from mvgp.kernels import Graph
        >>> from mvgp.priors import ProductGraphGP
        >>> prior = ProductGraphGP(Graph([(0, 1), (1, 2)], 3), Graph([(0, 1)], 2), offset=1.0, power=1.0)
        >>> len(prior.terms), prior.error < 1e-3
        (4, True)

    """

    def __init__(
        self,
        row_graph: Graph,
        col_graph: Graph,
        *,
        offset: float = 1.0,
        power: float = 1.0,
        variance: float = 1.0,
        tolerance: float = 1e-3,
        max_terms: int = 32,
        mean: MatrixMean | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        check_instance(row_graph, "row_graph", Graph, "mvgp.kernels.Graph")
        check_instance(col_graph, "col_graph", Graph, "mvgp.kernels.Graph")
        scale, dtype = check_positive(variance, "variance"), check_dtype(dtype)
        times, weights, error = diffusion_mixture(offset, power, tolerance=tolerance, max_terms=max_terms)
        terms = []
        for at, (time, weight) in enumerate(zip(times, weights, strict=True)):
            scaled = ScaleKernel(DiffusionKernel(row_graph, float(time), 0.0, dtype=dtype)).to(dtype)
            scaled.outputscale = torch.tensor(scale * float(weight), dtype=dtype)  # a plain number would be rounded
            other = DiffusionKernel(col_graph, float(time), 0.0, dtype=dtype)
            term = MatrixGP(scaled, other, mean=mean if at == 0 else None, dtype=dtype)
            for kernel in (term.row_kernel, term.col_kernel):
                kernel.requires_grad_(False)
            terms.append(term)
        super().__init__(*terms)
        self.offset, self.power, self.variance = float(offset), float(power), scale
        self.relative_error = error

    @classmethod
    def regularised(cls, row_graph: Graph, col_graph: Graph, scale: float = 1.0, **options: Any) -> ProductGraphGP:
        r""":math:`v\,(1 + \text{scale}\, L_M \oplus L_N)^{-1}`: the regularised Laplacian of the product graph."""
        return cls(row_graph, col_graph, offset=1 / check_positive(scale, "scale"), power=1.0, **options)

    @classmethod
    def matern(
        cls, row_graph: Graph, col_graph: Graph, nu: float = 1.5, reach: float = 1.0, **options: Any
    ) -> ProductGraphGP:
        r""":math:`v\,(1 + \kappa^2 / (2 \nu)\, L_M \oplus L_N)^{-\nu}`, :math:`\kappa` the reach along links."""
        nu, reach = check_positive(nu, "nu"), check_positive(reach, "reach")
        return cls(row_graph, col_graph, offset=2 * nu / reach**2, power=nu, **options)

    @property
    def error(self) -> float:
        """Bound on the spectral norm of the difference between the covariance and the exact one."""
        return self.variance * self.relative_error

    def spectrum(self, row_eigenvalues: Tensor, col_eigenvalues: Tensor) -> Tensor:
        """(R, S): the exact eigenvalues of the covariance at Laplacian eigenvalues (R,) and (S,)."""
        both = check_eigenvalues(row_eigenvalues).unsqueeze(-1) + check_eigenvalues(col_eigenvalues)
        return self.variance * (1 + both / self.offset).pow(-self.power)


def diffusion_mixture(
    offset: float, power: float, *, tolerance: float = 1e-3, max_terms: int = 32
) -> tuple[np.ndarray, np.ndarray, float]:
    r"""Times t and positive weights w with :math:`|\sum_i w_i e^{-t_i x} - (1 + x/a)^{-p}| \le` error on [0, 4].

    As few as it takes to bring the error below the tolerance, with times in geometric progression.

    :param offset: a.
    :param power: p.
    :param tolerance: on the error; the function is 1 at its largest.
    :param max_terms: more than this is an error.
    :return: (k,) times, (k,) weights, and a bound on the error.

    Example:
        >>> from mvgp.priors.product_graph import diffusion_mixture
        >>> times, weights, error = diffusion_mixture(1.0, 1.0, tolerance=1e-6)
        >>> len(times), bool((weights > 0).all()), error < 1e-6
        (8, True, True)

    """
    a, p = check_positive(offset, "offset"), check_positive(power, "power")
    tolerance, max_terms = check_tolerance(tolerance), check_whole_number(max_terms, "max_terms")
    points = LARGEST / 2 * (1 - np.cos(np.linspace(0, np.pi, FIT_POINTS + 1)))
    smallest = points[1] / 10  # the function changes fastest near 0 where a is small
    points = np.unique(np.concatenate([points, np.geomspace(min(smallest, a / 100), LARGEST, FIT_POINTS)]))
    target = (1 + points / a) ** -p
    centre = np.log(max(p, 0.5) / a)  # times near p / a weigh most at x = 0
    best = np.inf
    for count in range(1, max_terms + 1):
        reach = 1.0 if count == 1 else 12.0
        for low in np.arange(-reach, 0.51, 0.5):
            for high in np.arange(0.0, 4.51, 0.5) if count > 1 else [low]:
                times = np.exp(centre + np.linspace(low, high, count))
                diffusions = np.exp(-np.outer(points, times))
                try:
                    weights, _ = nnls(diffusions, target)
                except RuntimeError:  # it cycles among times that are nearly the same
                    continue
                off = float(np.abs(diffusions @ weights - target).max())
                if off < best:
                    best, quadrature = off, (times[weights > 0], weights[weights > 0])
        if best <= tolerance:
            error = mixture_error(*quadrature, a, p)
            if error <= tolerance:
                return *quadrature, error
    raise InputError(
        f"tolerance: {max_terms} terms come within {best:.1e} of the kernel, {tolerance:.1e} was asked for; "
        "allow more terms or a larger tolerance"
    )


def mixture_error(times: np.ndarray, weights: np.ndarray, offset: float, power: float) -> float:
    """A bound on the largest distance of the mixture from the function on [0, 4].

    Their second derivatives are positive and decrease. So between two points their difference is off its chord by no
    more than an eighth of the squared distance times the larger of the second derivatives at the first one.
    """
    grid = np.concatenate([[0.0], np.geomspace(min(offset, 1.0) * 1e-6, LARGEST, 200_000)])
    mixture, bend = np.zeros_like(grid), np.zeros_like(grid)
    for time, weight in zip(times, weights, strict=True):
        part = weight * np.exp(-time * grid)
        mixture += part
        bend += time**2 * part
    away = np.abs(mixture - (1 + grid / offset) ** -power)
    own_bend = power * (power + 1) / offset**2 * (1 + grid / offset) ** (-power - 2)
    between = np.diff(grid) ** 2 / 8 * np.maximum(bend, own_bend)[:-1]
    return float((np.maximum(away[:-1], away[1:]) + between).max())
