"""Slow and obvious: every order of the candidates that the scores allow, one after the other."""

import itertools
import math


def orders(scores, items):
    """Every ranking of ``items`` that never puts a lower score ahead of a higher one."""
    levels = sorted({scores[i] for i in items}, reverse=True)
    groups = [[i for i in items if scores[i] == level] for level in levels]
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield [i for part in parts for i in part]


def metrics_of_order(order, positives, k):
    """P, R, AP and nDCG for 1..k."""
    hit = [item in positives for item in order] + [False] * k
    count, rows = len(positives), []
    for place in range(1, k + 1):
        best = min(count, place)
        hits = sum(hit[:place])
        precisions = [sum(hit[: at + 1]) / (at + 1) for at in range(place) if hit[at]]
        gain = sum(1 / math.log2(at + 2) for at in range(place) if hit[at])
        ideal = sum(1 / math.log2(at + 2) for at in range(best))
        rows.append((hits / place, hits / best, sum(precisions) / best, gain / ideal))
    return rows


def auc(scores, positives, others):
    if not positives or not others:
        return math.nan
    won = sum((scores[p] > scores[o]) + 0.5 * (scores[p] == scores[o]) for p in positives for o in others)
    return won / (len(positives) * len(others))


def task_metrics(scores, positives, excluded, k):
    """AUC and the (k, 4) averages over all orders; None in place of the latter without positives."""
    items = [i for i in range(len(scores)) if i not in excluded]
    area = auc(scores, positives, [i for i in items if i not in positives])
    if not positives:
        return area, None
    found = [metrics_of_order(order, positives, k) for order in orders(scores, items)]
    average = [[sum(one[at][which] for one in found) / len(found) for which in range(4)] for at in range(k)]
    return area, average
