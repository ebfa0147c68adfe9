"""The Matern kernel of a graph."""

from __future__ import annotations

from typing import Any

from gpytorch.constraints import Interval
from torch import Tensor

from .graph import Graph
from .graph_kernel import GraphKernel
from .nodes import check_eigenvalues


class GraphMaternKernel(GraphKernel):
    r""":math:`K = \left(I + \frac{\kappa^2}{2 \nu} L\right)^{-\nu} + \text{shift}\, I` (Borovitskiy et al. 2021).

    Normalised to 1 at Laplacian eigenvalue 0; for large smoothness it tends to the diffusion kernel
    with time :math:`\kappa^2 / 2`.

    :param graph: the nodes and links.
    :param nu: smoothness, positive; ``raw_nu``.
    :param reach: :math:`\kappa`, the lengthscale in steps along links, positive; ``raw_reach``.
    :param shift: weight of the identity, at least 0; ``raw_shift``.
    """

    def __init__(
        self,
        graph: Graph,
        nu: float = 1.5,
        reach: float = 1.0,
        shift: float = 0.0,
        nu_constraint: Interval | None = None,
        reach_constraint: Interval | None = None,
        **options: Any,
    ) -> None:
        super().__init__(graph, shift=shift, **options)
        self._add_parameter("nu", nu, nu_constraint)
        self._add_parameter("reach", reach, reach_constraint)

    @property
    def nu(self) -> Tensor:
        """(...,) smoothness."""
        return self._get_parameter("nu")

    @nu.setter
    def nu(self, value: Any) -> None:
        self._set_parameter("nu", value)

    @property
    def reach(self) -> Tensor:
        """(...,) lengthscale along links."""
        return self._get_parameter("reach")

    @reach.setter
    def reach(self, value: Any) -> None:
        self._set_parameter("reach", value)

    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """(1 + reach^2 x / (2 nu))^-nu"""
        nu, reach = self.nu.unsqueeze(-1), self.reach.unsqueeze(-1)
        return (1 + reach.square() * check_eigenvalues(eigenvalues) / (2 * nu)).pow(-nu)
