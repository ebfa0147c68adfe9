r"""Support vector machine with hinge loss on few pairs: scikit-learn's SVC on the dense :math:`K_{TT}`.

.. math:: \min_{a, b}\; \tfrac12 a^T K a + \sum_t c_t (1 - y_t f_t)_+, \qquad f = K a + b, \quad y_t = \pm 1
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from ..linalg import PairLinearOperator
from .certificate import Certificate
from .squared_hinge import HingeSolution


@torch.no_grad()
def solve_hinge(op: PairLinearOperator, labels: Tensor, costs: Tensor, *, tolerance: float) -> HingeSolution:
    """The minimum, up to a relative duality gap of ``tolerance``; the caller decides whether a miss is an error.

    :param op: K (T, T); its dense form is built.
    :param labels: (T,) y, +1 or -1, both present.
    :param costs: (T,) c, positive.
    """
    try:
        svm = importlib.import_module("sklearn.svm")
    except ImportError:
        raise ImportError(
            "the hinge loss needs scikit-learn (pip install scikit-learn); solver='newton' does without, with the "
            "squared hinge loss"
        ) from None
    kernel = op.to_dense()  # (T, T)
    # SVC's own tolerance is on the optimality conditions, and the gap that follows from it grows with the costs; it
    # keeps the kernel in single precision, so beyond costs of about 1000 a gap of 1e-5 is out of its reach
    for share in (0.1, 1e-3):
        machine = svm.SVC(kernel="precomputed", C=1.0, tol=share * tolerance)
        machine.fit(kernel.double().cpu().numpy(), labels.cpu().numpy(), sample_weight=costs.double().cpu().numpy())
        found = _measured(machine, op, kernel, labels, costs, tolerance)
        if found.certificate.converged:
            break
    return found


def _measured(
    machine: Any, op: PairLinearOperator, kernel: Tensor, labels: Tensor, costs: Tensor, tolerance: float
) -> HingeSolution:
    """What a fitted SVC has found, with the gap between its primal and its dual objective."""
    a = torch.zeros_like(labels)
    a[torch.from_numpy(machine.support_).to(labels.device).long()] = torch.from_numpy(machine.dual_coef_[0]).to(labels)
    bias = float(machine.intercept_[0])
    image = kernel @ a
    square = float((a.double() * image.double()).sum())
    slack = (1 - labels * (image + bias)).clamp(min=0)
    primal = square / 2 + float((costs.double() * slack.double()).sum())
    dual = float(a.double().abs().sum()) - square / 2
    iterations = int(machine.n_iter_.sum())
    certificate = Certificate(primal, dual, tolerance, iterations, min(op.left.shape), "svc")
    return HingeSolution(a, bias, image + bias, certificate, 0)
