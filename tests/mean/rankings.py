"""A ranking problem without anything drawn, and how fast Algorithm 1 must be on any."""

import torch
from linear_operator import to_linear_operator

from mvgp.likelihoods import SquaredLoss
from mvgp.linalg.pairs import Pattern
from mvgp.mean import MeanProblem, factored

SHAPE = 5, 8


def fixed_ranking():
    """Smooth kernels, 24 of 40 pairs, labels of both kinds in every row; the loss holds the labels."""
    ops = [torch.exp(-(torch.arange(n).double()[:, None] - torch.arange(n)).abs() / 2) for n in SHAPE]
    cells = torch.tensor([cell for cell in range(SHAPE[0] * SHAPE[1]) if cell % 5 not in (1, 3)])
    rows, cols = cells // SHAPE[1], cells % SHAPE[1]
    labels = torch.where(torch.cos(rows + 0.9 * cols) > 0, 1.0, -1.0).double()
    return MeanProblem(*map(to_linear_operator, ops), Pattern(rows, cols, SHAPE), SquaredLoss(labels))


def watch_means(monkeypatch):
    """A list that gets the duality gap of every mean that Algorithm 1 solves for."""
    gaps, real = [], factored.solve_proximal

    def solve(*problem, max_iterations, **options):
        found = real(*problem, max_iterations=max_iterations, **options)
        if max_iterations > 0:  # otherwise nothing is solved: it is the evidence at the end
            gaps.append(found.certificate.gap)
        return found

    monkeypatch.setattr(factored, "solve_proximal", solve)
    return gaps


def rate_limit(apart, rounds, gap):
    r"""How far ``rounds`` rounds of Algorithm 1 can end above the objective at a point z, whatever the problem.

    Let x be the scores, with the row bias if there is one, norms those of the weights, H(x) the smallest penalty of all
    means and biases with these scores, and :math:`f(x) = \frac12 \|x - P_C(x)\|^2`. The objective after the
    retargeting is F = f + H, and a round leads from x to a minimum :math:`\hat x` of
    :math:`\phi = \frac12 \|\cdot - r\|^2 + H` with :math:`r = P_C(x)`, or to some :math:`x_+` with
    :math:`\phi(x_+) \le \phi(\hat x) + e`.

    1. r is in C, so that :math:`f \le \frac12 \|\cdot - r\|^2` and :math:`F(x_+) \le \phi(x_+)`.
    2. :math:`\phi` is strongly convex with constant 1: :math:`\phi(\hat x) \le \phi(z) - \frac12 \|z - \hat x\|^2`, and
       :math:`\|x_+ - \hat x\| \le \sqrt{2e} =: \delta`.
    3. f is convex with gradient x - r: :math:`\frac12 \|z - r\|^2 = f(x) + \langle x - r, z - x\rangle +
       \frac12 \|z - x\|^2 \le f(z) + \frac12 \|z - x\|^2`.

    Together :math:`F(x_+) - F(z) \le \frac12 \|z - x\|^2 - \frac12 \|z - \hat x\|^2 + e`: a proximal gradient step of
    length 1. F does not increase. If it ever falls below F(z) there is nothing to show; until then the left side is
    not negative, so that with :math:`d_i = \|z - x_i\|` first :math:`\|z - \hat x_{i+1}\| \le d_i + \delta`, then
    :math:`d_i \le d_0 + 2 i \delta`, and :math:`d_{i+1}^2 \le \|z - \hat x_{i+1}\|^2 + 2 \delta (d_i + \delta) + \delta^2`.
    The sum over k rounds is

    .. math:: k\,(F(x_k) - F(z)) \le \sum_i (F(x_i) - F(z)) \le \tfrac12 d_0^2 + \sum_{i<k} (\delta d_i + 2 \delta^2)
        \le \tfrac12 d_0^2 + k \delta d_0 + k (k + 1) \delta^2 \le \tfrac12 (d_0 + 2 k \delta)^2

    :param apart: d_0, from the point where the rounds begin to z.
    :param gap: e, the largest duality gap of their means.
    """
    return (apart + 2 * rounds * (2 * gap) ** 0.5) ** 2 / (2 * rounds)
