"""The diffusion kernel of a graph."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import Interval
from torch import Tensor

from .graph import Graph
from .graph_kernel import GraphKernel
from .nodes import check_eigenvalues


class DiffusionKernel(GraphKernel):
    r"""Heat flow along the links: :math:`K = e^{-\text{time}\, L} + \text{shift}\, I`.

    With time and shift 1 it is the kernel of the paper; its spectrum then lies in [1 + e^-2, 2].

    :param graph: the nodes and links.
    :param time: how far the heat spreads, positive; ``raw_time``.
    :param shift: weight of the identity, at least 0; ``raw_shift``.

    Example:
        >>> import torch
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> kernel = DiffusionKernel(Graph([(0, 1)], 3), time=1.0, shift=1.0)
        >>> kernel(torch.arange(3)).to_dense().diagonal().detach()
        tensor([1.5677, 1.5677, 2.0000], dtype=torch.float64)

    """

    def __init__(
        self,
        graph: Graph,
        time: float = 1.0,
        shift: float = 1.0,
        time_constraint: Interval | None = None,
        **options: Any,
    ) -> None:
        super().__init__(graph, shift=shift, **options)
        self._add_parameter("time", time, time_constraint)

    @property
    def time(self) -> Tensor:
        """(...,) diffusion time."""
        return self._get_parameter("time")

    @time.setter
    def time(self, value: Any) -> None:
        self._set_parameter("time", value)

    def spectrum(self, eigenvalues: Tensor) -> Tensor:
        """exp(-time x)"""
        return torch.exp(-self.time.unsqueeze(-1) * check_eigenvalues(eigenvalues))
