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


def level_projection(scores, level, weight, margin):
    """Several levels in one task, by pooling adjacent violators on the entries sorted by level, then by score.

    Within a level the nearest point is the scores clipped from both sides, so that this order costs nothing.
    """
    order, shift = np.lexsort((scores, level)), margin * level
    found = np.empty_like(scores)
    found[order] = isotonic_regression((scores - shift)[order], weights=weight[order]).x
    return found + shift


def level_slopes(scores, found, level, weight, margin):
    """What is at most 0, all of it, if and only if no point of the set of levels is nearer than ``found``.

    The set is ``margin * level`` plus a cone. Its rays are the constants, of either sign, and the indicators of upper
    sets: all levels above one, and some of that one. No ray may lead nearer, nor the way to the tip of the cone.
    """
    slope, way = weight * (scores - found), found - margin * level
    best = [slope[level > k].sum() + slope[level == k].clip(0).sum() for k in np.unique(level)]
    outside = [way[level < k].max() - way[level >= k].min() for k in np.unique(level)[1:]]
    return np.array([*best, -slope.sum(), slope @ way, -slope @ way, *outside])


def simplex_projection(scores, positive, total, margin):
    """The ordered simplex for one task: the order cone, then a level of water that leaves the total.

    The order cone follows shifts, and its part that is not negative has the clipped projection.
    """
    both = positive.any() and not positive.all()
    shift = margin * positive * both
    order = level_projection(scores - shift, positive.astype(int), np.ones_like(scores), 0.0)
    left, high = max(total - shift.sum(), 0.0), np.sort(order)[::-1]
    water = (np.cumsum(high) - left) / np.arange(1, len(high) + 1)  # if so many entries are above it
    return (order - water[np.flatnonzero(high - water >= 0)[-1]]).clip(0) + shift


def simplex_slopes(scores, found, positive, total, margin):
    """What is at most 0 (and the last is 0) if and only if no point of the ordered simplex is nearer than ``found``.

    Beyond the margin a corner of the set is one positive, or all positives and some negatives in equal parts.
    """
    slope, up = scores - found, np.sort(scores[~positive] - found[~positive])[::-1]
    if not positive.any() or positive.all():
        corners, fixed = slope, 0.0
    else:
        alike = (slope[positive].sum() + np.cumsum(up)) / (positive.sum() + np.arange(1, len(up) + 1))
        corners, fixed = np.concatenate([slope[positive], alike]), margin * positive.sum()
    best = (total - fixed) * corners.max() + (margin * slope[positive].sum() if fixed else 0.0)
    outside = found[~positive].max() + margin - found[positive].min() if fixed else 0.0
    return np.array([best - slope @ found, -found.min(), outside, abs(found.sum() - total)])


def pairs_in_order(level):
    """(i, j, steps) for every entry i of a higher level than entry j."""
    level = np.asarray(level).astype(int)
    size = range(len(level))
    return [(i, j, int(level[i] - level[j])) for i in size for j in size if level[i] > level[j]]
