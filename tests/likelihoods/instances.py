"""Random lists, and slow obvious versions of the projections."""

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from tests import randomness


def random_lists(seed, num_tasks, largest=12, contiguous=False, ties=False):
    """Scores, labels, weights and tasks of random lists; some lack positives, some negatives."""
    rng = randomness.numpy_generator(seed)
    sizes = rng.integers(1, largest + 1, num_tasks)
    task = np.repeat(rng.permutation(3 * num_tasks)[:num_tasks] - num_tasks, sizes)  # any whole numbers
    share = np.repeat(rng.choice([0.0, 0.2, 0.5, 0.8, 1.0], num_tasks), sizes)
    scores = rng.normal(size=len(task)) * np.repeat(rng.choice([0.1, 1.0, 30.0], num_tasks), sizes)
    scores += np.repeat(rng.normal(size=num_tasks) * 5, sizes)
    if ties:
        scores = np.round(scores)
    positive = rng.random(len(task)) < share
    weight = rng.uniform(0.05, 2.0, len(task))
    order = np.argsort(task, kind="stable") if contiguous else rng.permutation(len(task))
    return tuple(torch.from_numpy(part[order]) for part in (scores, positive, weight, task))


def isotonic_projection(scores, positive, task, margin=0.0, weight=None):
    """The order cone by pooling adjacent violators on [sorted negatives, sorted positives - margin], task by task."""
    scores, positive, task = scores.numpy(), positive.numpy(), task.numpy()
    weight = np.ones_like(scores) if weight is None else weight.numpy()
    found = np.empty_like(scores)
    for number in np.unique(task):
        negatives, positives = ((task == number) & (positive == kind) for kind in (False, True))
        low = np.flatnonzero(negatives)[np.argsort(scores[negatives], kind="stable")]
        high = np.flatnonzero(positives)[np.argsort(scores[positives], kind="stable")]
        both = np.concatenate([low, high])
        shift = np.concatenate([np.zeros(len(low)), np.full(len(high), margin)])
        found[both] = isotonic_regression(scores[both] - shift, weights=weight[both]).x + shift
    return torch.from_numpy(found)


def conic_projection(scores, weight=None, above=(), margin=0.0, total=None):
    """The nearest point with r[i] >= r[j] + steps * margin for (i, j, steps) in ``above``, by an interior-point solver."""
    import cvxpy as cp

    scores = np.asarray(scores)
    r = cp.Variable(len(scores))
    limits = [r[i] >= r[j] + steps * margin for i, j, steps in above]
    if total is not None:
        limits += [r >= 0, cp.sum(r) == total]
    weight = np.ones_like(scores) if weight is None else np.asarray(weight)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(weight, cp.square(r - scores)))), limits)
    try:
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    except cp.error.SolverError:  # rounding may keep it from the last digits: its own tolerance is 1e-8
        problem.solve(solver="CLARABEL")
    return r.value


def pairs_in_order(level):
    """(i, j, steps) for every entry i of a higher level than entry j."""
    level = np.asarray(level).astype(int)
    size = range(len(level))
    return [(i, j, int(level[i] - level[j])) for i in size for j in size if level[i] > level[j]]
