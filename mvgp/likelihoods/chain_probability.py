r"""The probability that noisy scores of several levels come out in the right order.

Going up from the lowest level, let :math:`f_k(t)` be the density of "levels 0 to k are in order, and the highest
score of level k is at t":

.. math:: f_k(t) = \int_{-\infty}^{t} f_{k-1}(u)\, \frac{d}{dt} \prod_{j \in k} \big[\Phi_j(t) - \Phi_j(u)\big]\, du

The top level closes the chain as in :mod:`~mvgp.likelihoods.order_probability`. On a grid of Q places a list with
n entries takes :math:`Q^2 n` operations for each step between levels: this is for lists of tens of entries. The
inner integral ends where its integrand need not vanish; four corrected weights at that end (Gregory's rule) bring
the error down to the order of (step / s)^5, about six digits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import SizeError
from .order_probability import log_normal_density

FINENESS = 5  # places on the grid for each standard deviation
REACH = 7.0  # standard deviations beyond the outermost scores
LARGEST_GRID = 4_000
GREGORY = (251 / 720, 897 / 720, 633 / 720, 739 / 720)  # weights of the last places of the trapezoidal rule
AT_ONCE = 2**22  # numbers in one temporary array


def log_chain_probability(scores: Tensor, scale: Tensor, level: Tensor) -> Tensor:
    """(B,) log P that every level of one list is above the lower ones; 0 when there is one level.

    :param scores: (B, n) psi.
    :param scale: (n,) standard deviations.
    :param level: (n,) whole numbers.
    """
    groups = [(level == value).nonzero().squeeze(1) for value in torch.unique(level)]
    if len(groups) < 2:
        return scores.new_zeros(scores.shape[0])
    with torch.no_grad():
        widest, narrowest = float(scale.max()), float(scale.min())
        left, right = float(scores.min()) - REACH * widest, float(scores.max()) + REACH * widest
    places = int((right - left) / narrowest * FINENESS) + 2
    if places > LARGEST_GRID:
        raise SizeError(
            f"a list with scores over {right - left:.3g} and noise {narrowest:.3g} needs a grid of {places} "
            f"places, more than {LARGEST_GRID}; with two levels there is no such limit"
        )
    grid = torch.linspace(left, right, places, dtype=scores.dtype, device=scores.device)
    block = max(1, AT_ONCE // (places * places * max(group.numel() for group in groups)))
    return torch.cat([_chain(some, scale, groups, grid) for some in scores.split(block)])


def _chain(scores: Tensor, scale: Tensor, groups: list[Tensor], grid: Tensor) -> Tensor:
    """(B,) the recursion of the module's docstring on ``grid`` (Q,), in logarithms."""
    step = (grid[1] - grid[0]).log()
    rule = _end_rule(grid).log()  # (Q, Q): weights of u for each t

    def at_grid(group: Tensor) -> tuple[Tensor, Tensor]:
        """(B, Q, n) log Phi and log of the density of each score of a level."""
        standard = (grid[:, None] - scores[:, None, group]) / scale[group]
        return torch.special.log_ndtr(standard), log_normal_density(standard) - scale[group].log()

    below, density = at_grid(groups[0])
    highest = below.sum(-1) + (density - below).logsumexp(-1)  # (B, Q) log f_0
    for group in groups[1:-1]:
        below, density = at_grid(group)
        if group.numel() == 1:
            inner = density.expand(-1, -1, grid.numel())  # (B, t, u): a single score only has to lie above u
        else:
            gap = _log_difference(below[:, :, None, :], below[:, None, :, :])  # (B, t, u, n)
            inner = gap.sum(-1) + (density[:, :, None, :] - gap).logsumexp(-1)
        highest = (highest[:, None, :] + inner + rule).logsumexp(-1) + step
    standard = (scores[:, None, groups[-1]] - grid[:, None]) / scale[groups[-1]]
    return (highest + torch.special.log_ndtr(standard).sum(-1)).logsumexp(-1) + step


def _end_rule(grid: Tensor) -> Tensor:
    """(Q, Q) weights of the integral over u up to t; a tiny number stands for 0 so that logarithms stay finite."""
    size = grid.numel()
    weights = torch.ones(size, size, dtype=grid.dtype, device=grid.device).tril()
    for back, weight in enumerate(GREGORY):
        weights.diagonal(-back).fill_(weight)
    return weights.clamp(min=torch.finfo(grid.dtype).tiny)


def _log_difference(larger: Tensor, smaller: Tensor) -> Tensor:
    """log(exp(larger) - exp(smaller)) where that is positive, and a very low number elsewhere."""
    ratio = (smaller - larger).clamp(max=-1e-30)
    positive = smaller < larger
    found = larger + torch.log(-torch.expm1(torch.where(positive, ratio, -1.0)))
    return torch.where(positive, found, -1e5)
