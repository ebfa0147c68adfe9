"""One path: a trace share and a fold, over decreasing strengths."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence

from ..models import TraceGP
from ..posteriors import TracePosterior
from ..posteriors.loss import Data
from .averaged_ranker import AveragedRanker
from .metric import Metric
from .negative_sets import NegativeSets
from .records import PathRecord
from .settings import Settings
from .splits import Split


def with_share(model: TraceGP, trace_share: float) -> TraceGP:
    """The same recipe with another trace share."""
    other = copy.copy(model)
    other.trace_share = trace_share
    return other


def fitted_sets(data: Data, negatives: NegativeSets | None, seed: int, stream: int) -> list[Data]:
    """What is fitted: the data, or labelled data for each set of negatives."""
    if negatives is None:
        return [data]
    return list(negatives.draw(data, seed, stream))


def joined(posteriors: Sequence[TracePosterior], negatives: NegativeSets | None) -> TracePosterior | AveragedRanker:
    """The posterior, or the average over the sets of negatives."""
    return posteriors[0] if negatives is None else AveragedRanker(posteriors)


def walk(
    model: TraceGP, split: Split, fold: int, trace_share: float, metric: Metric, settings: Settings
) -> Iterator[PathRecord]:
    """The records of one path, as they come; it ends early by rank or for lack of improvement.

    Without a trace norm no rank is low, and all strong penalties rank alike, which is no reason to stop: such a path is
    walked to its end.
    """
    recipe = with_share(model, trace_share)
    sets = fitted_sets(split.train, settings.negatives, settings.seed, fold + 1)
    paths = [recipe.path(data, settings.strengths) for data in sets]  # the sets go down together
    best, since = -float("inf"), 0
    for strength in settings.strengths:
        began = time.perf_counter()
        posteriors = [next(path).posterior for path in paths]
        seconds = time.perf_counter() - began
        score = metric(joined(posteriors, settings.negatives), split.train, split.held_out)
        proofs = [posterior.certificate for posterior in posteriors]
        rank = max(proof.rank for proof in proofs)
        yield PathRecord(
            trace_share=trace_share,
            strength=strength,
            fold=fold,
            score=score,
            rank=rank,
            relative_gap=max(proof.relative_gap for proof in proofs),
            iterations=sum(proof.iterations for proof in proofs),
            seconds=seconds,
        )
        if trace_share == 0:
            continue
        best, since = (score.value, 0) if score.value > best else (best, since + 1)
        if settings.patience is not None and since >= settings.patience:
            return
        if settings.max_rank is not None and rank > settings.max_rank:
            return
