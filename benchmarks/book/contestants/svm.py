"""Support vector machines on pairs.

mvgp's has the squared hinge loss. The same machine in scikit-learn: a hard margin (an unlimited cost) on the kernel plus 1 / c on its diagonal, c the
cost of each pair. And SVC as one would use it, with the hinge loss.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from sklearn.svm import SVC
from torch import Tensor

import mvgp

from .problems import graph_prior, random_pairs

RANK, COST, KEPT, UNLIMITED = 5, 1.0, 200, 1e10
TOLERANCE = 1e-5  # relative duality gap of ours
SVC_TOLERANCE = 1e-4  # on the optimality conditions
BATCH = 2048


class Labelled:
    """Labels of pairs: the sign of a smooth matrix plus noise; half of the pairs are of either sign."""

    def __init__(self, shape: list[int], observed: int) -> None:
        self.prior = graph_prior(shape)
        generator = torch.Generator().manual_seed(0)
        size = (shape[0], shape[1])
        rows, cols = random_pairs(size, observed + KEPT, seed=0)
        with torch.no_grad():
            self.kernels = [axis.covariance().to_dense() for axis in (self.prior.row_axis, self.prior.col_axis)]
        factors = [
            k @ torch.randn(n, RANK, dtype=torch.float64, generator=generator)
            for k, n in zip(self.kernels, shape, strict=True)
        ]
        truth = (factors[0][rows] * factors[1][cols]).sum(1)
        noisy = truth / truth.std() + 0.5 * torch.randn(len(rows), dtype=torch.float64, generator=generator)
        labels = torch.where(noisy > noisy.median(), 1.0, -1.0).double()
        order = torch.randperm(len(rows), generator=generator)
        self.asked = rows[order[:KEPT]], cols[order[:KEPT]]
        at = order[KEPT:]
        self.data = mvgp.ObservedMatrix(rows[at], cols[at], labels[at], size)
        positive = self.data.values > 0
        ratio = float((~positive).sum() / positive.sum())  # both classes have the same total, as mvgp's default
        self.costs = COST * torch.where(positive, ratio, 1.0).double()  # (T,)

    def kernel(self, rows: Tensor, cols: Tensor) -> np.ndarray:
        """(Q, T): kernel of pairs and the observed ones."""
        out = np.empty((len(rows), len(self.data)))
        for start in range(0, len(rows), BATCH):
            part = slice(start, start + BATCH)
            found = self.kernels[0][rows[part]][:, self.data.rows].mul_(self.kernels[1][cols[part]][:, self.data.cols])
            out[part] = found.numpy()
        return out

    def objective(self, scores: Tensor, norm: float) -> float:
        """Of the squared hinge loss, given scores (T,) and the squared norm of the function."""
        slack = (1 - self.data.values * scores).clamp(min=0)
        return norm / 2 + float((self.costs * slack.square()).sum()) / 2


def pairwise_svm(shape: list[int], observed: int) -> Callable[[], dict]:
    problem = Labelled(shape, observed)
    model = mvgp.PairwiseSVM(problem.prior, cost=COST, solver="newton", tolerance=TOLERANCE)

    def run() -> dict:
        ranker = model.fit(problem.data)
        scores = ranker.mean(*problem.asked)
        proof = ranker.certificate
        return {"scores": scores.tolist(), "objective": proof.primal, "relative_gap": proof.relative_gap}

    return run


def svc_squared(shape: list[int], observed: int) -> Callable[[], dict]:
    problem = Labelled(shape, observed)

    def run() -> dict:
        kernel = problem.kernel(problem.data.rows, problem.data.cols)
        kernel[np.diag_indices_from(kernel)] += 1 / problem.costs.numpy()
        machine = SVC(kernel="precomputed", C=UNLIMITED, tol=SVC_TOLERANCE).fit(kernel, problem.data.values.numpy())
        kernel[np.diag_indices_from(kernel)] -= 1 / problem.costs.numpy()
        weights = np.zeros(len(problem.data))
        weights[machine.support_] = machine.dual_coef_[0]
        image = kernel @ weights
        scores = problem.kernel(*problem.asked) @ weights + machine.intercept_[0]
        objective = problem.objective(torch.from_numpy(image + machine.intercept_[0]), float(weights @ image))
        return {"scores": scores.tolist(), "objective": objective}

    return run


def svc_hinge(shape: list[int], observed: int) -> Callable[[], dict]:
    problem = Labelled(shape, observed)

    def run() -> dict:
        kernel = problem.kernel(problem.data.rows, problem.data.cols)
        machine = SVC(kernel="precomputed", C=COST, class_weight="balanced").fit(kernel, problem.data.values.numpy())
        return {"scores": machine.decision_function(problem.kernel(*problem.asked)).tolist()}

    return run
