"""What takes part in a study: from the name of a model to recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...data.observed import ObservedMatrix
from ...data.positive_unlabelled import PositiveUnlabelled
from ...likelihoods.ranking import BipartiteRankingLikelihood
from ...metrics.ranking import Ranker
from ...models.factor_gp import FactorGP
from ...models.full_gp import FullGP
from ...models.pairwise_svm import PairwiseSVM
from ...models.trace_gp import TraceGP
from ...priors.matrix_gp import MatrixGP
from ...priors.means import PopularityMean
from ..baselines.candidates import candidates
from ..tables.link_set import LinkSet
from .settings import OWN, WHOLE, Study


@dataclass(frozen=True)
class Setting:
    """One point of what is chosen among.

    :param family: "sampled", "whole" or "whole-popular" of ``TraceGP``, or the name of the model whose grid it is from.
    :param text: for people.
    :param score: of the validation.
    :param trace_share: of ``TraceGP``.
    :param strength: of ``TraceGP``.
    :param place: in the grid of any other model.
    """

    family: str
    text: str
    score: float
    trace_share: float = 1.0
    strength: float = 1.0
    place: int = 0

    @property
    def key(self) -> str:
        """The same for equal fits."""
        if self.family in ("sampled", "whole", "whole-popular"):
            return f"{self.family}_{self.trace_share:g}_{self.strength:.8g}"
        return f"{self.family}_{self.place}"


SAMPLED = {"hilbert": (0.0,), "trace": (1.0,)}  # trace shares of TraceGP on sampled negatives; best has the study's


def choice_parts(model: str, study: Study) -> list[str]:
    """The units that the choice of a model is made of. Models share those that they have in common."""
    if model in WHOLE:
        return [f"{model}_{share:g}" for share in study.whole_shares]
    if model in SAMPLED or model == "best":
        return [f"sampled_{share:g}" for share in SAMPLED.get(model, study.trace_shares)]
    return [model]


def family_of(part: str) -> tuple[str, float | None]:
    """The family of a part of a choice, and its trace share if it is a path."""
    family, _, share = part.partition("_")
    return family, float(share) if share else None


def needs_negatives(family: str) -> bool:
    """Whether it is fitted to sampled negatives; baselines and whole lists take links alone."""
    return family == "sampled" or (family in OWN and family not in WHOLE)


def ranking(study: Study, noise: float | None = None) -> BipartiteRankingLikelihood:
    """The likelihood of all ranking models."""
    return BipartiteRankingLikelihood(margin=study.margin, noise=study.noise if noise is None else noise)


def prior_of(study: Study, link_set: LinkSet) -> MatrixGP:
    """The prior on the two graphs."""
    dtype = torch.float32 if study.dtype == "single" else torch.float64
    return link_set.prior(study.time, study.shift, dtype)


def trace_recipe(
    study: Study, link_set: LinkSet, trace_share: float, family: str = "sampled", known: Any = None
) -> TraceGP:
    """The model of one path.

    :param family: "sampled" or one of the whole lists.
    :param known: the links that are fitted, for the prior mean of ``whole-popular``; held-out ones are no part of it.
    """
    prior = prior_of(study, link_set)
    if family == "whole-popular":
        prior.mean_module = PopularityMean(known, study.popularity, prior.dtype)
    return TraceGP(
        prior,
        ranking(study),
        trace_share=trace_share,
        tolerance=study.tolerance,
        max_iterations=study.max_iterations,
    )


def grid(model: str, study: Study, link_set: LinkSet, seed: int) -> list[tuple[str, Any]]:
    """All that is chosen among, each with its text. The number and order depend on the settings alone."""
    if model not in OWN:
        return [(repr(recipe), recipe) for recipe in candidates(model, link_set, seed=seed)]
    prior = prior_of(study, link_set)
    if model == "full":
        options: dict[str, Any] = {"tolerance": study.tolerance, "max_iterations": study.max_iterations}
        return [(f"noise {noise:g}", FullGP(prior, ranking(study, noise), **options)) for noise in study.noises]
    if model == "prodige":
        return [(f"cost {cost:g}", PairwiseSVM(prior, cost=cost, solver="newton")) for cost in study.costs]
    return [
        (
            f"rank {rank}, noise {noise:g}",
            FactorGP(prior, ranking(study, noise), rank, restarts=1, max_iterations=100, seed=seed),
        )
        for rank in study.factor_ranks
        for noise in study.factor_noises
    ]


def fit(
    study: Study, link_set: LinkSet, setting: Setting, data: ObservedMatrix | PositiveUnlabelled, seed: int
) -> Ranker:
    """The model at a setting; a path is walked from its strongest penalty, as when it was chosen."""
    if setting.family in ("sampled", *WHOLE):
        strengths = [strength for strength in study.path if strength >= setting.strength]
        recipe = trace_recipe(study, link_set, setting.trace_share, setting.family, data)
        *_, last = recipe.path(data, strengths)
        return last.posterior
    ranker: Ranker = grid(setting.family, study, link_set, seed)[setting.place][1].fit(data)
    return ranker
