"""Rankers of links: a fifth is held out for the end, settings are chosen on a fifth of the rest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import mvgp
from mvgp.errors import ConvergenceError
from mvgp.hyperparameters import Split, choose, split_pairs
from mvgp.hyperparameters.records import AveragedRanker
from mvgp.hyperparameters.splits import NegativeSets
from mvgp.kernels import Graph
from mvgp.likelihoods import BipartiteRankingLikelihood, OrderedSimplex
from mvgp.metrics import ranking_scores
from mvgp.prioritise.baselines import candidates
from mvgp.prioritise.tables import LinkSet, hpo_links

from .shared_data import mesh_links

METRIC, WEIGHT, TOLERANCE = "MAP@100", 0.05, 1e-2
KERNELS = {"hpo": (3.0, 0.3), "synthetic": (3.0, 0.3), "mesh": (1.0, 1.0)}  # time and shift of the diffusion kernels


def synthetic() -> LinkSet:
    """Links and edges within four groups, for trying things out."""
    rng = np.random.default_rng(0)
    group = rng.integers(4, size=100)
    together = (group[:, None] == group[None, :]) & (rng.random((100, 100)) < 0.5)
    graphs = [Graph(np.argwhere(together[part, part]), n) for part, n in ((slice(40), 40), (slice(40, 100), 60))]
    rows, cols = together[:40, 40:].nonzero()
    return LinkSet(map(str, range(40)), map(str, range(60)), rows, cols, *graphs, source="drawn at random")


class Task:
    """The links, split twice.

    :param source: "hpo", "synthetic" or "mesh".
    """

    def __init__(self, source: str) -> None:
        if source == "mesh":
            self.link_set, pairs = mesh_links()
            self.test, self.inner = _mesh_splits(pairs, self.link_set.shape)
        else:
            self.link_set = hpo_links() if source == "hpo" else synthetic()
            self.test = split_pairs(self.link_set.links(WEIGHT), folds=5, seed=0)[0]
            self.inner = split_pairs(self.test.train, share=0.2, seed=0)[0]
        self.prior = self.link_set.prior(*KERNELS[source], torch.float32)

    def __str__(self) -> str:
        ranked, known = (set(part.rows.tolist()) for part in (self.test.held_out, self.test.train))
        return (
            f"{self.link_set.source or 'links'}: {self.link_set.shape[0]:,} x {self.link_set.shape[1]:,}, {len(self.test.train):,} links to fit and "
            f"{len(self.test.held_out):,} held out, of {len(ranked):,} rows, {len(ranked - known):,} of which have no link to fit"
        )

    def answer(self, ranker: Any, setting: str, began: float, chosen: float, fitted: float, **more: Any) -> dict:
        """Scores on the links that were held out for the end."""
        scores = ranking_scores(ranker, self.test.held_out, exclude=self.test.train)
        found, asked = scores.summary(at=(100,)), scores.num_positives > 0
        return {
            "AUC": found["AUC"],
            "MAP@100": found["MAP@100"],
            "R@100": found["R@100"],
            "per_task": {name: scores.per_task(name)[asked].tolist() for name in ("AUC", "AP@100")},
            "known": torch.isin(scores.tasks[asked], self.test.train.rows).tolist(),
            "setting": setting,
            "choice_seconds": chosen - began,
            "fit_seconds": fitted - chosen,
            "data": str(self),
            **more,
        }


def _mesh_splits(pairs: np.ndarray, shape: tuple[int, int]) -> tuple[Split, Split]:
    """A fifth of the links for the end; a tenth of the rest chooses. The same as in earlier versions: figures can be compared."""
    order = np.random.default_rng(0).permutation(len(pairs))
    fifth = len(order) // 5
    test, train = pairs[order[:fifth]], pairs[order[fifth:]]
    tenth = len(train) // 10

    def links(part: np.ndarray) -> mvgp.PositiveUnlabelled:
        return mvgp.PositiveUnlabelled(part[:, 0], part[:, 1], shape=shape, weight=WEIGHT)

    return Split(links(train), links(test)), Split(links(train[tenth:]), links(train[:tenth]))


def baseline(source: str, name: str, most: int | None = None) -> Callable[[], dict]:
    """A baseline of mvgp's, with the settings that mvgp has for it; the first ``most`` of them."""
    task = Task(source)
    recipes: list[Any] = candidates(name, task.link_set)[:most]
    if name == "als":
        recipes = [replace(one, threads=int(os.environ["OMP_NUM_THREADS"])) for one in recipes]
    return _by_grid(task, recipes, lambda recipe, links: recipe.fit(links), repr)


def full_gp(source: str, noises: list[float], sets: int) -> Callable[[], dict]:
    task = Task(source)

    def fit(noise: float, data: mvgp.ObservedMatrix) -> Any:
        return mvgp.FullGP(
            task.prior, BipartiteRankingLikelihood(noise=noise), tolerance=TOLERANCE, max_iterations=200
        ).fit(data)

    return _by_grid(task, noises, fit, lambda noise: f"noise {noise:g}", sets)


def factor_gp(source: str, rank: int, noise: float, sets: int) -> Callable[[], dict]:
    task = Task(source)

    def fit(rank: int, data: mvgp.ObservedMatrix) -> Any:
        likelihood = BipartiteRankingLikelihood(noise=noise)
        return mvgp.FactorGP(task.prior, likelihood, rank=rank, restarts=1, max_iterations=100).fit(data)

    return _by_grid(task, [rank], fit, lambda rank: f"rank {rank}, noise {noise:g}", sets)


def pairwise_svm(source: str, costs: list[float], sets: int) -> Callable[[], dict]:
    task = Task(source)

    def fit(cost: float, data: mvgp.ObservedMatrix) -> Any:
        return mvgp.PairwiseSVM(task.prior, cost=cost, solver="newton").fit(data)

    return _by_grid(task, costs, fit, lambda cost: f"cost {cost:g}", sets)


def _by_grid(task: Task, settings: Sequence[Any], fit: Callable, text: Callable, sets: int = 0) -> Callable[[], dict]:
    """:param sets: of sampled negatives, over which scores are averaged; 0 fits the links themselves."""

    def fitted(setting: Any, links: mvgp.PositiveUnlabelled, count: int) -> Any:
        if not sets:
            return fit(setting, links)
        return AveragedRanker([fit(setting, data) for data in NegativeSets(count).draw(links, 0, 0)])

    def judged(setting: Any) -> float:
        try:
            ranker = fitted(setting, task.inner.train, 1)
        except ConvergenceError:  # implicit's BPR may blow up: that is a setting not to take
            return -1.0
        return ranking_scores(ranker, task.inner.held_out, exclude=task.inner.train).summary(at=(100,))[METRIC]

    def run() -> dict:
        began = time.perf_counter()
        scores = [judged(one) for one in settings] if len(settings) > 1 else [0.0]
        best = settings[scores.index(max(scores))]
        chosen = time.perf_counter()
        ranker = fitted(best, task.test.train, sets)
        return task.answer(ranker, text(best), began, chosen, time.perf_counter(), settings=len(settings))

    return run


def trace_gp(
    source: str, shares: list[float], strengths: list[float], sets: int, metric: str = METRIC, simplex: bool = False
) -> Callable[[], dict]:
    """:param sets: of sampled negatives; 0 fits whole lists."""
    task = Task(source)
    target: dict[str, Any] = {"target": OrderedSimplex()} if simplex else {"margin": 1.0}
    model = mvgp.TraceGP(
        task.prior, BipartiteRankingLikelihood(**target, noise=0.1), tolerance=TOLERANCE, max_iterations=200
    )

    def run() -> dict:
        began = time.perf_counter()
        choice = choose(
            model,
            task.test.train,
            trace_shares=shares,
            strengths=strengths,
            folds=[task.inner],
            metric=metric,
            negatives=1 if sets else None,
            patience=2,
            progress=False,
        )
        share, strength = choice.best.trace_share, choice.best.strength
        chosen = time.perf_counter()
        final = mvgp.TraceGP(
            task.prior, model.likelihood, trace_share=share, tolerance=TOLERANCE, max_iterations=model.max_iterations
        )
        path = [one for one in strengths if one >= strength]
        every = NegativeSets(sets).draw(task.test.train, 0, 0) if sets else [task.test.train]
        posteriors = []
        for data in every:
            *_, last = final.path(data, path)
            posteriors.append(last.posterior)
        fitted = time.perf_counter()
        ranker = AveragedRanker(posteriors) if sets else posteriors[0]
        setting = f"trace share {share:g}, strength {strength:g}"
        return task.answer(
            ranker,
            setting,
            began,
            chosen,
            fitted,
            settings=len(choice.records),
            weakest=len(strengths) > 1 and strength == min(strengths),
            rank=max(one.rank for one in posteriors),
            relative_gap=max(one.certificate.relative_gap for one in posteriors),
        )

    return run
