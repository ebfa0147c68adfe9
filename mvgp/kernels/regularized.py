"""The regularised Laplacian kernel of a graph."""

from __future__ import annotations

from typing import Any

from gpytorch.constraints import Interval
from torch import Tensor

from .graph import Graph
from .graph_kernel import GraphKernel
from .nodes import check_eigenvalues


class RegularizedLaplacianKernel(GraphKernel):
    r""":math:`K = (I + \text{scale}\, L)^{-1} + \text{shift}\, I` (Smola and Kondor 2003).

    :param graph: the nodes and links.
    :param scale: strength of the smoothing, positive; ``raw_scale``.
    :param shift: weight of the identity, at least 0; ``raw_shift``.
    """

    def __init__(
        self,
        graph: Graph,
        scale: float = 1.0,
        shift: float = 0.0,
        scale_constraint: Interval | None = None,
        **options: Any,
    ) -> None:
        super().__init__(graph, shift=shift, **options)
        self._add_parameter("scale", scale, scale_constraint)

    @property
    def scale(self) -> Tensor:
        """(...,) strength of the smoothing."""
        return self._get_parameter("scale")

    @scale.setter
    def scale(self, value: Any) -> None:
        self._set_parameter("scale", value)

    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """1 / (1 + scale x)"""
        return 1 / (1 + self.scale.unsqueeze(-1) * check_eigenvalues(eigenvalues))
