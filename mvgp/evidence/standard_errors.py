"""Standard errors of learned parameters from the observed information."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

STEP = 1e-3  # of the central differences, in raw parameters
FLAT = 1e-2  # information below which a raw parameter is taken not to be determined by the data


def observed_information(gradient: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """(n, n): minus the Hessian at ``at`` (n,), by central differences of the gradient.

    :param gradient: maps raw parameters (n,) to the gradient (n,) of the log marginal likelihood.
    """
    columns = []
    for place in range(len(at)):
        step = torch.zeros_like(at)
        step[place] = STEP
        columns.append((gradient(at - step) - gradient(at + step)) / (2 * STEP))
    found = torch.stack(columns, dim=1)
    return (found + found.mT) / 2


def standard_errors(information: Tensor, slopes: Tensor) -> Tensor:
    r"""(n,) standard errors of constrained parameters: the roots of the diagonal of :math:`J I^{-1} J`.

    A parameter whose raw form the data do not determine (a weight that went to 0, say) has none, NaN; the others are
    then those with that one fixed. All are NaN where the information is not positive definite: not a maximum.

    :param information: (n, n) I, in raw parameters.
    :param slopes: (n,) the diagonal J, derivative of constrained by raw parameters.
    """
    found = torch.full_like(slopes, torch.nan)
    free = (information.diagonal() > FLAT).nonzero().squeeze(1)
    chol, info = torch.linalg.cholesky_ex(information[free][:, free])
    if int(info) == 0 and len(free):
        found[free] = torch.cholesky_inverse(chol).diagonal().sqrt() * slopes[free].abs()
    return found
