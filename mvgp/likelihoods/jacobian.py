"""Derivatives of projections. Each is piecewise linear, so its Jacobian is constant almost everywhere."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad


class Jacobian(Protocol):
    """A linear map of (T,) to (T,), with its transpose."""

    def apply(self, tangent: Tensor) -> Tensor:
        """J times (T,)."""
        ...

    def apply_transposed(self, cotangent: Tensor) -> Tensor:
        """J transposed times (T,)."""
        ...


class PoolJacobian:
    """Entries that were pulled together move as their weighted mean; the others move as themselves.

    :param pool: (T,) the pool of each entry; ``num_pools`` where it stays.
    :param num_pools: P.
    :param weight: (T,) or None for 1.
    :param dtype: of what it is applied to.
    """

    def __init__(self, pool: Tensor, num_pools: int, weight: Tensor | None, dtype: torch.dtype) -> None:
        self.pool, self.num_pools = pool, num_pools
        self.stays = pool == num_pools
        self.weight = torch.ones_like(pool, dtype=dtype) if weight is None else weight.to(dtype)
        self._mass = self._sum(self.weight)

    def _sum(self, values: Tensor) -> Tensor:
        return values.new_zeros(self.num_pools + 1).index_add_(0, self.pool, values)

    def apply(self, tangent: Tensor) -> Tensor:
        """J times (T,): the weighted mean over each pool."""
        mean = self._sum(self.weight * tangent) / self._mass
        return torch.where(self.stays, tangent, mean[self.pool])

    def apply_transposed(self, cotangent: Tensor) -> Tensor:
        """J transposed times (T,): each pool's sum, shared out by weight."""
        share = self._sum(cotangent) / self._mass
        return torch.where(self.stays, cotangent, self.weight * share[self.pool])


class SupportJacobian:
    """Entries of the support move less the mean of their list's support; the others stay at zero.

    :param support: (T,) bool.
    :param list_of: (T,) the list of each entry.
    :param num_lists: L.
    """

    def __init__(self, support: Tensor, list_of: Tensor, num_lists: int) -> None:
        self.support, self.list_of, self.num_lists = support, list_of, num_lists

    def apply(self, tangent: Tensor) -> Tensor:
        """J times (T,)."""
        zeros = tangent.new_zeros(self.num_lists)
        inside = torch.where(self.support, tangent, 0.0)
        count = zeros.index_add(0, self.list_of, self.support.to(tangent.dtype)).clamp_(min=1.0)
        mean = zeros.index_add(0, self.list_of, inside) / count
        return torch.where(self.support, tangent - mean[self.list_of], 0.0)

    def apply_transposed(self, cotangent: Tensor) -> Tensor:
        """J transposed times (T,); J is symmetric."""
        return self.apply(cotangent)


class _WithJacobian(torch.autograd.Function):
    """A value that was computed elsewhere, with a derivative with respect to ``scores``; its own is 0."""

    @staticmethod
    def forward(scores: Tensor, value: Tensor, jacobian: Jacobian) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.jacobian = inputs[2]

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None, None]:
        return ctx.jacobian.apply_transposed(cotangents[0]), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        found: Tensor = ctx.jacobian.apply(tangents[0])
        return found


def is_differentiated(scores: Tensor) -> bool:
    """Whether someone wants a derivative with respect to ``scores``, backward or forward."""
    backward = torch.is_grad_enabled() and scores.requires_grad
    return backward or forward_ad.unpack_dual(scores).tangent is not None


def with_jacobian(scores: Tensor, value: Tensor, jacobian: Jacobian) -> Tensor:
    """``value`` (T,) as a differentiable function of ``scores`` (T,): backward and forward mode."""
    found: Tensor = _WithJacobian.apply(scores, value, jacobian)
    return found
