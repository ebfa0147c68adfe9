r"""The blend: how the terms of ``auto`` are put together, learned on held-out links.

First a mixture. Each term, cut off at 0 and divided by its sum over the candidates of the row, is a distribution
:math:`p_q(n \mid m)` of the next link of row m. The weights maximise the likelihood of the held-out links,

.. math:: \max_{w \ge 0,\, \sum w = 1} \; \sum_{(m, n)} \tfrac{1}{H_m} \log \sum_q w_q\, p_q(n \mid m),

with :math:`H_m` held-out links of row m, and a few more for a simple term. That is concave, and EM climbs to its top.
Each group of rows (no known link, 1, 2 to 5, 6 and more) has weights of its own, drawn to those of all rows.

Then a sum. The likelihood is not the metric, so terms are added one at a time to the logarithm of the mixture,

.. math:: s_{mn} = \log \sum_q w_q p_q(n \mid m) + \beta \log(1 + c_n) + \sum_q a_q z_q(m, n),

with the number of links :math:`c_n` of a column and :math:`z_q` a term standardised in its row or the logarithm of its
distribution, as long as the metric rises by more than two standard errors over the validation rows. Logarithms of a
distribution p are those of :math:`N_m p + 0.3`, with :math:`N_m` candidates of the row: relative to the uniform
distribution, with a floor. The first term can have a weight, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .sample import (
    FLOOR,
    GROUP_ROWS,
    GROUPS,
    MIXTURE,
    POPULARITY,
    STARTS,
    ClosedSample,
    distributions,
    group_of,
    log_ratio,
    moments,
)
from .terms import ALS, LOW_RANK, ROW_GP, ROWS, VOTES, Term

__all__ = [
    "FLOOR",
    "GROUPS",
    "MIXTURE",
    "POPULARITY",
    "Blend",
    "average",
    "distributions",
    "group_of",
    "log_ratio",
    "moments",
    "select",
]

STEPS = (0.03, 0.1, 0.3, 1.0, 3.0)  # of a weight, in standard deviations of the score so far
SIGNED = (-1.0, -0.5, -0.2, -0.1, -0.05, 0.05, 0.1, 0.2, 0.5)  # for popularity, which can speak against a column
# features that one step can add together: two low ranks are better than each, by less than a step of one can show
JOINT = {
    f"low rank EDLAE and {ALS}": {Term(LOW_RANK, ALS).name: 1.0, Term(LOW_RANK, "EDLAE").name: 0.5},
    f"low rank {ROW_GP} and {ALS}": {Term(LOW_RANK, ROW_GP).name: 1.0, Term(LOW_RANK, ALS).name: 0.5},
}
# of these, the first that is there is part of some starts of a group: it is strong where rows have many links
STRONG, STRONG_WEIGHTS = (f"low rank {ROW_GP} and {ALS}", Term(LOW_RANK, ROW_GP).name), (0.1, 0.3, 1.0)
LEAN = 0.1  # weight of the simple term that a group starts with unless it does worse
PROMISING = 8  # features for which all sizes of a step are tried
ERRORS = 2.0  # standard errors, over rows, by which a step must raise the objective
AUC_SHARE = 0.5  # weight of the AUC beside the metric relative to its start


@dataclass(frozen=True, eq=False)
class Blend:
    """Weights of the terms.

    :param names: of the Q terms.
    :param mixture: (4, Q + 1) for each group of rows; the uniform distribution is last.
    :param weights: for each group, those of the features that are added: ``mixture``, ``popularity``, the name of a
        term (standardised in its row), or ``log`` and the name of a term.
    """

    names: tuple[str, ...]
    mixture: Tensor
    weights: tuple[dict[str, float], ...]

    @property
    def used(self) -> list[str]:
        """Names of the terms with some weight, at least one: others need not be computed."""
        added = {name.removeprefix("log ") for weights in self.weights for name, weight in weights.items() if weight}
        heavy = (self.mixture[:, :-1] > 1e-6).any(0)
        return [name for at, name in enumerate(self.names) if bool(heavy[at]) or name in added] or [self.names[0]]

    def scores(self, terms: dict[str, Tensor], open_: Tensor, counts: Tensor, groups: Tensor) -> Tensor:
        """(R, N) scores of rows.

        :param terms: (R, N) of each name in :attr:`used`.
        :param open_: (R, N) bool: the candidates.
        :param counts: (N,) known links of the columns.
        :param groups: (R,) of the rows.
        """
        chances = distributions(terms, open_)  # (Q' + 1, R, N)
        used = [*(self.names.index(name) for name in terms), len(self.names)]
        mixed = torch.einsum("rq,qrn->rn", self.mixture[groups][:, used].to(chances), chances)
        candidates = open_.sum(1, keepdim=True)
        total = self._of(MIXTURE, groups) * log_ratio(mixed, candidates)
        total = total + self._of(POPULARITY, groups) * torch.log1p(counts)
        means, deviations = moments(terms, open_)
        for at, (name, term) in enumerate(terms.items()):
            if name == POPULARITY:  # the term and the feature share a name; the feature is added above
                continue
            weight = self._of(name, groups)
            if bool(weight.any()):
                total = total + weight * (term - means[at][:, None]) / deviations[at][:, None]
            weight = self._of(f"log {name}", groups)
            if bool(weight.any()):
                total = total + weight * log_ratio(chances[at], candidates)
        return total

    def _of(self, feature: str, groups: Tensor) -> Tensor:
        """(R, 1) weight of a feature in the groups of rows."""
        return torch.tensor([weights.get(feature, 0.0) for weights in self.weights])[groups][:, None]


def average(blends: Sequence[Blend]) -> Blend:
    """The mean of all weights: what one choice adds by chance, and others do not, becomes small."""
    parts = []
    for weights in zip(*(blend.weights for blend in blends), strict=True):  # of a group of rows
        names = dict.fromkeys(name for one in weights for name in one)
        parts.append({name: sum(one.get(name, 0.0) for one in weights) / len(blends) for name in names})
    return Blend(blends[0].names, torch.stack([blend.mixture for blend in blends]).mean(0), tuple(parts))


def lead(sample: ClosedSample, blend: Blend, others: Sequence[Blend], metric: str, first: float) -> list[list[float]]:
    """How far a blend is ahead of each of the others in the objective of :func:`select`, with the standard error.

    What the objective charges for a low AUC is left out.

    :param first: the metric of the mixture on these rows.
    """

    def objective(blend: Blend) -> Tensor:
        """(R,) of each row, times the number of rows."""
        features, scores = sample.features(blend.mixture), torch.zeros(1)
        for name in dict.fromkeys(name for weights in blend.weights for name in weights):
            scores = scores + blend._of(name, sample.groups) * features[name]
        values, auc = sample.measure(scores, metric)
        return (values / max(first, 1e-6) + AUC_SHARE * auc) * len(auc) * sample.row_weights

    own = objective(blend)
    ahead = [own - objective(other) for other in others]
    return [[float(part.mean()), float(part.std(unbiased=False)) / len(part) ** 0.5] for part in ahead]


def select(
    sample: ClosedSample, mixture: Tensor, metric: str, *, max_steps: int = 12
) -> tuple[tuple[dict[str, float], ...], list[dict[str, Any]]]:
    """Weights of the features for each group, and the trials.

    All rows choose first. Each group with enough rows then goes on by itself, from there or from the mixture, with some
    weight on strong features: the best of these starts in the objective, on average over rows. A step must raise the
    objective by two standard errors. The objective is the metric relative to that of the mixture, plus half the AUC; an
    AUC below that of the best baseline (popularity, votes, propagation), less its error, costs ten times what it lacks.
    No step may cost more of the metric than a standard error.

    :param max_steps: weights that are changed at most, by all rows and by each group.
    """
    features = sample.features(mixture)
    for joint, shares in JOINT.items():
        if shares.keys() <= features.keys():
            features[joint] = torch.stack([share * features[part] for part, share in shares.items()]).sum(0)
    pooled, trials = _climb(sample, features, [{MIXTURE: 1.0}], metric, max_steps, "all rows")
    strong = next((name for name in STRONG if name in features), MIXTURE)
    parts = []
    for group, name in enumerate(GROUPS):
        members = sample.groups == group
        if int(members.sum()) < 2 * GROUP_ROWS:
            parts.append(pooled)
            continue
        own, part = {key: feature[members] for key, feature in features.items()}, sample.rows(members, terms=False)
        plain = {MIXTURE: 1.0}
        simple = sample.start(members)
        different = [plain] if pooled == plain else [pooled, plain]
        bases = [_leaning(part, own, base, simple, metric) for base in different]
        extra = (0.0, *STRONG_WEIGHTS) if strong != MIXTURE else (0.0,)
        starts = [_added(base, strong, weight) for base in bases for weight in extra]
        chosen, more = _climb(part, own, starts, metric, max_steps, name)
        parts.append(chosen)
        trials += more if len(starts) > 1 else more[1:]
    return tuple(parts), trials


def _leaning(
    sample: ClosedSample, features: dict[str, Tensor], start: dict[str, float], simple: str | None, metric: str
) -> dict[str, float]:
    """``start`` with some weight on the ``simple`` term, unless the metric or the AUC falls by more than its error.

    The mixture explains all held-out links, those far down as well; the simple term alone is often as good at the top
    of the list, and depends on nothing that was learned.
    """
    if simple is None:
        return start
    leaning = start | {simple: start.get(simple, 0.0) + LEAN}
    before, after = (
        torch.stack(sample.measure(torch.stack([w * features[name] for name, w in given.items()]).sum(0), metric))
        for given in (start, leaning)
    )
    change = after - before  # (2, R)
    falls = change.mean(1) + change.std(1) / change.shape[1] ** 0.5 < 0
    return start if bool(falls.any()) else leaning


def _climb(
    sample: ClosedSample,
    features: dict[str, Tensor],
    starts: Sequence[dict[str, float]],
    metric: str,
    max_steps: int,
    who: str,
) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """From the best start, change one weight at a time as long as the gain is well above its error."""
    weights, floor = sample.row_weights, _auc_floor(sample, features)
    trials: list[dict[str, Any]] = []

    def record(step: int, feature: str, weight: float, scores: Tensor) -> None:
        value, auc = (float((weights * part).sum()) for part in sample.measure(scores, metric))
        trials.append({"rows": who, "step": step, "feature": feature, "weight": weight, metric: value, "AUC": auc})

    every = [torch.stack([weight * features[name] for name, weight in start.items()]).sum(0) for start in starts]
    for start, scores in zip(starts, every, strict=True):
        record(0, " + ".join(f"{weight:.3g} {name}" for name, weight in start.items()), 1.0, scores)
    first = trials[0][metric]

    def objective(scores: Tensor) -> Tensor:
        """(2, R) of each row, times the number of rows: the part of the metric and that of the AUC."""
        values, auc = sample.measure(scores, metric)
        short = max(0.0, floor - float((weights * auc).sum()))
        parts = torch.stack([values / max(first, 1e-6), AUC_SHARE * auc]) * len(weights) * weights
        parts[1] -= 10 * short
        return parts

    best_start = max(range(len(starts)), key=lambda at: float(objective(every[at]).sum(0).mean()))
    chosen, scores = dict(starts[best_start]), every[best_start]
    current = objective(scores)
    # a feature that hardly varies has nothing to add
    spreads = {name: float(feature[sample.inside].std()) for name, feature in features.items()}
    spreads = {name: spread for name, spread in spreads.items() if spread > 1e-3}
    for step in range(1, max_steps + 1 if len(weights) > 1 else 1):  # a single row has no standard error
        size = float(scores[sample.inside].std())
        gains: list[tuple[float, str, float]] = []
        for name in _promising(features, spreads, scores, size, objective):
            for share in SIGNED if name == POPULARITY else STEPS:
                weight = share * size / spreads[name]
                gains.append((_sure_gain(objective(scores + weight * features[name]) - current), name, weight))
        best = max(gains, default=(0.0, "", 0.0))
        if best[0] <= 0:
            break
        chosen = _added(chosen, best[1], best[2])
        scores = scores + best[2] * features[best[1]]
        current = objective(scores)
        record(step, best[1], best[2], scores)
    return {name: weight for name, weight in chosen.items() if not math.isclose(weight, 0.0)}, trials


def _added(chosen: dict[str, float], feature: str, weight: float) -> dict[str, float]:
    """Weights with some more on a feature, or on the parts of one that stands for two."""
    parts = JOINT.get(feature, {feature: 1.0}) if weight else {}
    return chosen | {name: chosen.get(name, 0.0) + share * weight for name, share in parts.items()}


def _sure_gain(gain: Tensor) -> float:
    """What is gained for sure: the mean over rows less two standard errors, of both parts (2, R) or of the AUC alone.

    Not above 0 where the metric falls by more than a standard error. Where the AUC alone decides, what the metric
    seems to lose counts in full, and what it seems to gain does not.
    """
    mean, error = gain.mean(1), gain.std(1) / gain.shape[1] ** 0.5  # (2,) each
    if float(mean[0] + error[0]) < 0:
        return 0.0
    both = gain.sum(0)
    together = both.mean() - ERRORS * both.std() / len(both) ** 0.5
    alone = mean[1] - ERRORS * error[1] + mean[0].clamp(max=0)
    return float(torch.maximum(together, alone))


def _auc_floor(sample: ClosedSample, features: dict[str, Tensor]) -> float:
    """The AUC of the best baseline among the features, less its standard error over rows."""
    weights, floors = sample.row_weights, [0.0]
    for name in (POPULARITY, *(name for line in STARTS for name in line), *(Term(ROWS, votes).name for votes in VOTES)):
        if name in features and len(weights) > 1:
            each = len(weights) * weights * sample.measure(features[name], "AUC")[1]
            floors.append(float(each.mean() - each.std() / len(each) ** 0.5))
    return max(floors)


def _promising(
    features: dict[str, Tensor],
    spreads: dict[str, float],
    scores: Tensor,
    size: float,
    objective: Callable[[Tensor], Tensor],
) -> list[str]:
    """The features that gain most by a weight of middle size, and popularity, which may want one below 0."""
    gains = {
        name: float(objective(scores + 0.2 * size / spread * features[name]).sum(0).mean())
        for name, spread in spreads.items()
        if name != POPULARITY
    }
    return [*sorted(gains, key=lambda name: -gains[name])[:PROMISING], *([POPULARITY] if POPULARITY in spreads else [])]
