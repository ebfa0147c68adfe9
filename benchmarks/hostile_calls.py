"""Wrong calls of everything public: what is refused, what falls through, what is accepted though it is wrong.

Every name in ``__all__`` of mvgp and its packages is called with small valid arguments of which one or two are replaced
by something wrong. Four things can happen:

- refused: an error of mvgp, or Python's own TypeError for an argument that is missing or unknown;
- accepted: an answer of finite numbers, where the replaced argument may well be right by chance;
- RAW: any other exception, or no answer in time;
- SILENT: an answer although the argument cannot be right, or an answer that is not finite.

Run it as ``python benchmarks/hostile_calls.py --seed 0 --count 6000``.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import inspect
import io
import os
import pkgutil
import random
import re
import signal
import sys
import tempfile
import traceback
import typing
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpytorch
import networkx
import numpy as np
import pandas as pd
import torch
from scipy import sparse

import mvgp
from mvgp import hyperparameters as evidence
from mvgp import hyperparameters as selection
from mvgp import interchange, kernels, likelihoods, linalg, metrics, prioritise, priors, storage, testing
from mvgp import mean as solvers
from mvgp.errors import MvgpError
from mvgp.hyperparameters.probes import Reference, log_determinant
from mvgp.hyperparameters.records import AveragedRanker
from mvgp.linalg.chebyshev import ChebyshevLinearOperator
from mvgp.linalg.conjugate_gradients import conjugate_gradients
from mvgp.linalg.pair_operator import SpectralKroneckerLinearOperator
from mvgp.linalg.spectra import SpectralLinearOperator
from mvgp.linalg.stacked import Features, GramLinearOperator
from mvgp.prioritise import baselines, studies
from mvgp.prioritise import report as reports
from mvgp.prioritise import tables as datasets

SECONDS = 20.0  # after which a call is taken to hang
MEMORY = 12 * 2**30  # bytes of address space, so that a huge answer fails instead of swapping
SIGNATURE = re.compile(r"unexpected keyword|required (positional|keyword)|multiple values|positional arguments? but")

# What the library itself makes and hands out: records of results. Their methods are called, their constructors are not
# meant for users. Protocols and errors are no callables either.
RECORDS = [
    "AdditivePart",
    "AdditiveSolution",
    "AlternatingSolution",
    "Certificate",
    "Choice",
    "ChoiceInterrupted",
    "ContractResult",
    "ConvexValue",
    "CoverageCurve",
    "EvidenceBound",
    "Fantasies",
    "SolveReport",
    "FactorPosterior",
    "Fields",
    "Dropped",
    "FileReport",
    "FullPosterior",
    "GaussianPosterior",
    "KernelCandidate",
    "KernelChoice",
    "KernelChoiceInterrupted",
    "Learned",
    "LearnedEvidence",
    "LearnedGrid",
    "LearnedTrace",
    "LeaveOneOut",
    "LogDeterminant",
    "LogMarginal",
    "LossValue",
    "MeanSolution",
    "NestedResult",
    "OuterFold",
    "PairRanker",
    "PairedComparison",
    "PathPoint",
    "PathRecord",
    "Point",
    "PointwiseLoss",
    "PosteriorCovarianceLinearOperator",
    "Prioritisation",
    "Prioritiser",
    "RankedRow",
    "RankingLists",
    "RankingScores",
    "ReadReport",
    "Reference",
    "RowSamples",
    "RestoreContext",
    "ScalablePosterior",
    "Score",
    "Solution",
    "StudyError",
    "StudyResult",
    "SyntheticMatrix",
    "TableError",
    "TestPlan",
    "TopTable",
    "TraceBound",
    "TracePosterior",
    "TraceSumPosterior",
    "TraceTerm",
    "VarianceEstimate",
    "LowRank",
    "Joint",
]
INTERFACES = [
    "Baseline",
    "Contract",
    "GraphKernel",
    "GraphKernelContract",
    "KernelContract",
    "LikelihoodContract",
    "Loss",
    "LossContract",
    "Penalty",
    "PosteriorContract",
    "Ranker",
    "RankerContract",
    "RankingLikelihood",
    "TargetSet",
    "TargetSetContract",
    "MatrixMean",
]
# arguments that may be anything, by the documents: a label of the result, what gpytorch passes through
FREE = {("compare", "metric"), ("StudyResult.mean", "model"), ("StudyResult.mean", "metric"), ("write_report", "out")}


@dataclasses.dataclass(frozen=True)
class Case:
    """A public callable with valid arguments.

    :param name: as in the documents.
    :param call: takes keywords.
    :param arguments: makes valid ones, fresh for each call.
    :param kinds: the annotation of each argument.
    :param nan: whether NaN in the answer is documented.
    """

    name: str
    call: Callable[..., Any]
    arguments: Callable[[], dict[str, Any]]
    kinds: dict[str, str]
    nan: bool = False


# Small examples -----------------------------------------------------------------------------------

M, N = 4, 5
EDGES = [(0, 1), (1, 2), (2, 3)]
CELLS = torch.tensor([0, 2, 4, 5, 8, 11, 13, 16, 19])
T = len(CELLS)


def graph(size: int = M) -> kernels.Graph:
    return kernels.Graph([(i, i + 1) for i in range(size - 1)], size)


def kernel(size: int = M) -> kernels.DiffusionKernel:
    return kernels.DiffusionKernel(graph(size), 0.7, 0.3)


def prior(**options: Any) -> mvgp.MatrixGP:
    return mvgp.MatrixGP(kernel(M), kernel(N), **options)


def inputs_prior() -> mvgp.MatrixGP:
    return mvgp.MatrixGP(kernel(M), gpytorch.kernels.RBFKernel(), col_inputs=torch.linspace(0, 1, N).double())


def gaussian() -> gpytorch.likelihoods.GaussianLikelihood:
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(0.3)
    return likelihood


def observed() -> mvgp.ObservedMatrix:
    return mvgp.ObservedMatrix(CELLS // N, CELLS % N, torch.linspace(-1, 1, T).double(), (M, N))


def annotated() -> SimpleNamespace:
    """What an AnnData has."""
    rows, cols = (pd.DataFrame(index=list(names)) for names in ("abcd", "xyz"))
    near = graph().adjacency().toarray()
    return SimpleNamespace(X=np.eye(4, 3), obs=rows, var=cols, obsp={"near": near}, varp={}, layers={})


def plain_posterior() -> Any:
    return mvgp.FullGP(prior(), gaussian()).fit(observed())


def complete() -> mvgp.ObservedMatrix:
    return mvgp.ObservedMatrix.from_dense(torch.linspace(-1, 1, M * N).double().sin().reshape(M, N))


def labelled() -> mvgp.ObservedMatrix:
    return mvgp.ObservedMatrix(CELLS // N, CELLS % N, torch.tensor([1.0, -1, -1, 1, -1, 1, -1, 1, -1]), (M, N))


def known() -> mvgp.PositiveUnlabelled:
    return mvgp.PositiveUnlabelled([0, 0, 1, 1, 2, 2, 3, 3], [0, 1, 1, 2, 2, 3, 3, 4], (M, N))


def ranking(**options: Any) -> likelihoods.BipartiteRankingLikelihood:
    return likelihoods.BipartiteRankingLikelihood(**options)


def trace_model(**options: Any) -> mvgp.TraceGP:
    return mvgp.TraceGP(prior(), gaussian(), **{"strength": 0.3, "trace_share": 0.8, **options})


@cache
def fitted(kind: str) -> Any:
    if kind == "full":
        return mvgp.FullGP(inputs_prior(), gaussian()).fit(observed())
    if kind == "trace":
        return trace_model().fit(observed())
    if kind == "factor":
        return mvgp.FactorGP(prior(), gaussian(), rank=2, restarts=1).fit(observed())
    return mvgp.PairwiseSVM(prior()).fit(labelled())


@cache
def link_set() -> datasets.LinkSet:
    ids = tuple(f"r{i}" for i in range(M)), tuple(f"c{i}" for i in range(N))
    links = known()
    return datasets.LinkSet(*ids, links.rows, links.cols, graph(M), graph(N))


@cache
def features() -> datasets.FeatureTable:
    return datasets.FeatureTable("f", ("p", "q"), torch.randn(N, 2, generator=torch.Generator().manual_seed(0)))


@cache
def lists() -> likelihoods.RankingLists:
    return likelihoods.RankingLists.bipartite(torch.tensor([True, False, False]), torch.tensor([0, 0, 0]))


def psd(size: int) -> torch.Tensor:
    return kernel(size)(torch.arange(size)).to_dense().detach()


def pairs() -> linalg.PairIndex:
    return linalg.PairIndex(CELLS // N, CELLS % N, (M, N))


def problem() -> solvers.MeanProblem:
    from linear_operator import to_linear_operator

    data = observed()
    ops = to_linear_operator(psd(M)), to_linear_operator(psd(N))
    return solvers.MeanProblem(*ops, data.pattern, likelihoods.SquaredLoss(data.values))


@cache
def choice() -> selection.Choice:
    options = {"trace_shares": [0.8], "strengths": [0.5, 0.1], "metric": "AUC", "progress": False}
    return selection.choose(mvgp.TraceGP(prior(), ranking()), known(), **options)


@cache
def prioritiser() -> prioritise.Prioritiser:
    return prioritise.fit_prioritiser(link_set(), model="popularity")


@cache
def hilbert() -> prioritise.Prioritiser:
    return prioritise.fit_prioritiser(link_set(), model="hilbert", strength=0.3, negatives=1)


@cache
def tables() -> Path:
    folder = Path(tempfile.mkdtemp())
    (folder / "pairs.tsv").write_text(
        "".join(f"r{i}\tc{j}\n" for i, j in zip([0, 0, 1, 1, 2], [0, 1, 1, 2, 2], strict=True))
    )
    (folder / "edges.tsv").write_text("r0\tr1\nr1\tr2\n")
    (folder / "features.tsv").write_text("r0\t1\t2\nr1\t2\t0\nr2\t0\t1\n")
    return folder


@cache
def saved() -> Path:
    path = tables() / "posterior.mvgp"
    storage.save(fitted("full"), path)
    return path


def study() -> studies.Study:
    return studies.Study(models=("popularity",), folds=2, negative_sets=1, k=3)


@cache
def study_folder() -> Path:
    folder = tables() / "study"
    studies.run_study(link_set(), study(), folder, progress=False)
    return folder


@cache
def comparison() -> metrics.RankingScores:
    return metrics.ranking_scores(torch.rand(M, N, generator=torch.Generator().manual_seed(0)), known(), k=3)


def _kind(call, annotation):
    """The annotation as text; an alias such as ``Count = Annotated[int, check]`` as the type it stands for."""
    alias = vars(sys.modules[call.__module__]).get(str(annotation))
    arguments = typing.get_args(alias) if typing.get_origin(alias) is typing.Annotated else ()
    return getattr(arguments[0], "__name__", str(arguments[0])) if arguments else str(annotation)


def case(call: Any, arguments: Callable[[], dict[str, Any]] = dict, name: str = "", nan: bool = False) -> Case:
    """A case; names and annotations of the arguments come from the signature."""
    kinds = {key: _kind(call, one.annotation) for key, one in inspect.signature(call).parameters.items()}
    return Case(name or call.__qualname__, call, arguments, kinds, nan)


def describe(x: Any) -> Any:
    """:func:`mvgp.describe`, which takes no keyword."""
    return mvgp.describe(x)


def method(owner: Callable[[], Any], name: str, nan: bool = False, **arguments: Any) -> Case:
    """A method of a fresh object; arguments that are functions are called, so that each call has its own."""
    example = owner()
    bound = getattr(example, name)

    def call(**given: Any) -> Any:
        return getattr(owner(), name)(**given)

    label = f"{type(example).__name__}.{name}" if not inspect.isclass(example) else f"{example.__name__}.{name}"
    kinds = {key: _kind(bound, one.annotation) for key, one in inspect.signature(bound).parameters.items()}
    return Case(label, call, lambda: dict(arguments), kinds, nan)


def setter(owner: Callable[[], Any], name: str, value: Any) -> Case:
    """A property that can be set."""

    def call(value: float) -> Any:
        example = owner()
        setattr(example, name, value)
        return getattr(example, name)

    return Case(f"{type(owner()).__name__}.{name} =", call, lambda: {"value": value}, {"value": "float | Any"})


def examples() -> Iterator[Case]:
    """Every public callable that takes an argument."""
    yield from data_cases()
    yield from kernel_cases()
    yield from prior_cases()
    yield from likelihood_cases()
    yield from compose_cases()
    yield from linalg_cases()
    yield from solver_cases()
    yield from model_cases()
    yield from posterior_cases()
    yield from evidence_cases()
    yield from metric_cases()
    yield from selection_cases()
    yield from baseline_cases()
    yield from application_cases()


def data_cases() -> Iterator[Case]:
    entries = {"rows": [0, 2, 1], "cols": [1, 0, 3], "shape": (M, N)}
    names = {"row_names": list("abcd"), "col_names": list("vwxyz")}
    dense = np.array([[1.0, np.nan, 0.5], [0.0, 2.0, np.nan]])
    frame = pd.DataFrame({"r": ["a", "b"], "c": ["x", "y"], "v": [1.0, 2.0]})
    numbers = {"values": [0.5, -1.0, 2.0], "weights": [1.0, 2.0, 1.0]}
    yield case(mvgp.ObservedMatrix, lambda: {**entries, **numbers, **names})
    yield case(mvgp.ObservedMatrix.from_dense, lambda: {"matrix": dense, "row_names": ["a", "b"]})
    yield case(mvgp.ObservedMatrix.from_mask, lambda: {"matrix": dense, "mask": ~np.isnan(dense)})
    yield case(mvgp.ObservedMatrix.from_scipy, lambda: {"matrix": sparse.coo_array(np.eye(3))})
    yield case(mvgp.ObservedMatrix.from_frame, lambda: {"frame": frame, "row": "r", "col": "c", "value": "v"})
    pairs = mvgp.PositiveUnlabelled.from_frame
    yield case(pairs, lambda: {"frame": frame, "row": "r", "col": "c", "weight": 0.1, "row_names": list("ab")})
    yield case(mvgp.PositiveUnlabelled.from_scipy, lambda: {"matrix": sparse.coo_array(np.eye(3)), "weight": 0.1})
    yield case(interchange.from_anndata, lambda: {"annotated": annotated(), "obsp": "near", "zeros": "missing"})
    yield case(interchange.scores_frame, lambda: {"posterior": plain_posterior(), "rows": [1, 0]})
    yield case(
        interchange.to_xarray, lambda: {"posterior": plain_posterior(), "num_samples": 4, "rows": [1], "chains": 2}
    )
    yield method(observed, "with_values", values=torch.linspace(0, 1, T))
    yield case(mvgp.PositiveUnlabelled, lambda: {**entries, "weight": 0.1, **names})


def kernel_cases() -> Iterator[Case]:
    options = {"method": "auto", "tolerance": 1e-8, "dtype": torch.float64}
    nodes = {"x1": torch.tensor([[0.0], [2.0]]), "x2": torch.tensor([[1.0]]), "diag": False}
    yield case(kernels.Graph, lambda: {"edges": EDGES, "num_nodes": M, "weights": [1.0, 2.0, 0.5]})
    yield case(kernels.Graph.from_networkx, lambda: {"graph": networkx.path_graph(M), "nodes": list(range(M))})
    yield case(kernels.Graph.from_adjacency, lambda: {"adjacency": graph().adjacency()})
    yield method(graph, "eigenpairs", dtype=torch.float64, device=torch.device("cpu"))
    yield method(graph, "shifted_laplacian", dtype=torch.float64, device=torch.device("cpu"))
    for one, own in (
        (kernels.DiffusionKernel, {"time": 0.5}),
        (kernels.GraphMaternKernel, {"nu": 1.5, "reach": 0.5}),
        (kernels.RegularizedLaplacianKernel, {"scale": 0.5}),
    ):
        yield case(one, lambda own=own: {"graph": graph(), "shift": 0.1, **own, **options})
        for name in (*own, "shift"):
            yield setter(lambda one=one: one(graph(), shift=0.2), name, 0.5)
        yield method(lambda one=one: one(graph()), "forward", **nodes)
        yield method(lambda one=one: one(graph()), "spectrum", eigenvalues=torch.tensor([0.0, 1.0]).double())
    features = torch.ones(M, 2).double()
    yield case(kernels.FeatureKernel, lambda: {"features": features, "variance": 0.5, "dtype": torch.float64})
    yield setter(lambda: kernels.FeatureKernel(features), "variance", 0.5)
    yield method(lambda: kernels.FeatureKernel(features), "forward", **nodes)
    yield case(kernels.ConstantKernel, lambda: {"num_items": M, "variance": 0.5, "dtype": torch.float64})
    yield setter(lambda: kernels.ConstantKernel(M), "variance", 0.5)
    yield case(kernels.PrecomputedKernel, lambda: {"matrix": psd(M)})
    yield method(lambda: kernels.PrecomputedKernel(psd(M)), "forward", **nodes)


def prior_cases() -> Iterator[Case]:
    both = {"row_kernel": gpytorch.kernels.RBFKernel, "col_kernel": gpytorch.kernels.RBFKernel}
    at = {"rows": torch.tensor([0, 1]), "cols": torch.tensor([2, 4])}
    yield case(
        mvgp.MatrixGP,
        lambda: {
            **{key: make() for key, make in both.items()},
            "row_inputs": torch.linspace(0, 1, M),
            "col_inputs": torch.rand(N, 2),
            "mean": priors.ConstantMean(0.1),
            "dtype": torch.float64,
        },
    )
    for owner in (prior, lambda: prior() + inputs_prior()):
        yield method(owner, "pairs", **at)
        yield method(owner, "forward", **at)
        yield method(owner, "sample", generator=torch.Generator())
    numbers = {"offset": 0.5, "power": 1.5, "variance": 2.0, "tolerance": 1e-2, "max_terms": 6}
    yield case(priors.ProductGraphGP, lambda: {"row_graph": graph(), "col_graph": graph(N), **numbers})
    for name, own in (("regularised", {"scale": 0.5}), ("matern", {"nu": 1.5, "reach": 0.5})):
        yield case(
            getattr(priors.ProductGraphGP, name), lambda own=own: {"row_graph": graph(), "col_graph": graph(N), **own}
        )
    eigenvalues = torch.tensor([0.0, 1.0]).double()
    yield method(
        lambda: priors.ProductGraphGP(graph(), graph(N)),
        "spectrum",
        row_eigenvalues=eigenvalues,
        col_eigenvalues=eigenvalues,
    )
    both_means = lambda: priors.SumMean(priors.ConstantMean(0.1), priors.RowBiasMean(M))  # noqa: E731
    for name in ("at", "block", "forward"):
        yield method(both_means, name, **at)
    yield method(both_means, "check_shape", shape=(M, N))
    made = {
        priors.ZeroMean: lambda: {"dtype": torch.float64},
        priors.ConstantMean: lambda: {"constant": 0.5, "dtype": torch.float64},
        priors.RowBiasMean: lambda: {"bias": torch.linspace(0, 1, M), "dtype": torch.float64},
        priors.GivenMean: lambda: {"matrix": torch.ones(M, N), "dtype": torch.float64},
        priors.PopularityMean: lambda: {"counts": torch.arange(N), "scale": 0.1, "dtype": torch.float64},
        priors.BiasedMean: lambda: {
            "base": priors.ZeroMean(),
            "row_bias": torch.ones(M).double(),
            "col_bias": torch.ones(N).double(),
        },
    }
    for one, arguments in made.items():
        yield case(one, arguments)
        owner = lambda one=one, arguments=arguments: one(**arguments())  # noqa: E731
        for name in ("at", "block", "forward"):
            yield method(owner, name, **at)
        yield method(owner, "check_shape", shape=(M, N))
        yield method(owner, "row_part", rows=at["rows"])
        yield method(owner, "col_part", cols=at["cols"])


def compose_cases() -> Iterator[Case]:
    """Pointwise likelihoods, noise of rows and columns, means of inputs, new observations, explanations."""
    latent = torch.tensor([0.5, -0.2])
    for kind in (likelihoods.LogisticLikelihood, likelihoods.LogPoissonLikelihood):
        yield method(kind, "forward", function_samples=latent)
    yield case(likelihoods.AxisNoiseGaussianLikelihood, lambda: {"num_rows": M, "num_cols": N, "noise": 0.5})
    yield method(lambda: likelihoods.AxisNoiseGaussianLikelihood(M, N), "noise_at", rows=[0, 1], cols=[2, 4])
    yield case(priors.InputMean, lambda: {"row": gpytorch.means.ConstantMean(), "col": gpytorch.means.LinearMean(2)})
    labels = lambda: mvgp.ObservedMatrix([0, 1, 2], [1, 0, 3], [1.0, 0.0, 1.0], (M, N))  # noqa: E731

    def bound(prior: Any, likelihood: Any, data: Any) -> Any:
        return evidence.evidence_bound(prior, likelihood, data, mvgp.FullGP(prior, likelihood).fit(data))

    parts = lambda: {"prior": prior(), "likelihood": likelihoods.LogisticLikelihood(), "data": labels()}  # noqa: E731
    yield case(bound, parts, "evidence_bound")
    model = lambda: mvgp.FullGP(prior(), likelihoods.LogisticLikelihood())  # noqa: E731
    yield case(evidence.learn_evidence, lambda: {"model": model(), "data": labels(), "max_steps": 1, "tolerance": 1.0})
    for kind in ("full", "trace", "factor"):
        owner = lambda kind=kind: fitted(kind)  # noqa: E731
        free = observed().to_dense().isnan().nonzero()[0].tolist()  # a cell that is not observed
        yield method(owner, "explain", row=0, col=2)
        yield method(owner, "retract", pairs=(observed().rows[:1], observed().cols[:1]))
        if kind == "full":
            yield method(owner, "fantasise", rows=[free[0]], cols=[free[1]], values=[[0.1], [0.2]])


def likelihood_cases() -> Iterator[Case]:
    task, labels, level = torch.tensor([0, 0, 1, 1]), torch.tensor([1, -1, 1, -1]), torch.tensor([1, 0, 2, 1])
    scores, weight = torch.tensor([0.5, 0.2, -0.1, 0.4]), torch.tensor([1.0, 2.0, 1.0, 1.0])
    options = {"noise": 0.2, "list_sizes": torch.tensor([2, 2])}
    yield case(likelihoods.BipartiteRankingLikelihood, lambda: {"margin": 0.5, **options})
    yield case(likelihoods.GradedRankingLikelihood, lambda: {"num_levels": 3, "margin": 0.5, **options})
    one_list = {"lists": lists(), "weight": torch.tensor([1.0, 2.0, 1.0])}
    for owner, given, counts in (
        (ranking, labels, torch.tensor([1, 1])),
        (lambda: likelihoods.GradedRankingLikelihood(3), level, torch.tensor([[1, 1, 0], [0, 1, 1]])),
    ):
        normal = gpytorch.distributions.MultivariateNormal(scores, torch.eye(4))
        more = {"task": task, "weight": weight}
        yield method(owner, "lists", labels=given, task=task)
        yield method(owner, "retargeting", labels=given, task=task, weight=weight)
        yield method(owner, "retarget", scores=scores, labels=given, **more)
        yield method(owner, "loss", scores=scores, labels=given, **more)
        yield method(owner, "log_prob", scores=scores, labels=given, counts=counts, **more)
        yield method(owner, "forward", function_samples=scores, counts=counts, **more)
        for name in ("expected_log_prob", "log_marginal"):
            yield method(owner, name, observations=given, function_dist=normal, task=task, complete_lists=True)
        yield setter(owner, "noise", 0.4)
    for one, arguments in (
        (likelihoods.OrderCone, {"margin": 0.5}),
        (likelihoods.GradedOrder, {"margin": 0.5}),
        (likelihoods.OrderedSimplex, {"total": 2.0, "margin": 0.1}),
    ):
        yield case(one, lambda arguments=arguments: dict(arguments))
        own = {"lists": lists()} if one is likelihoods.OrderedSimplex else one_list
        yield method(one, "projection", **own)
    positive = labels > 0
    yield case(likelihoods.LevelProjection, lambda: {**one_list, "margin": 0.5})
    yield case(likelihoods.SimplexProjection, lambda: {"lists": lists(), "total": 1.0, "margin": 0.1})
    yield case(
        likelihoods.OrderProjection, lambda: {"positive": positive, "task": task, "margin": 0.5, "weight": weight}
    )
    for owner in (lambda: likelihoods.LevelProjection(lists()), lambda: likelihoods.SimplexProjection(lists())):
        yield method(owner, "__call__", scores=scores[:3])
    yield method(lambda: likelihoods.LevelProjection(lists()), "jacobian", scores=scores[:3])
    yield case(likelihoods.RankingLists.bipartite, lambda: {"positive": positive, "task": task})
    yield case(likelihoods.RankingLists.from_labels, lambda: {"labels": labels, "task": task})
    yield case(likelihoods.RankingLists.graded, lambda: {"level": level, "task": task})
    many = {"scores": scores, "task": task, "margin": 0.2}
    yield case(likelihoods.project_order, lambda: {**many, "positive": positive, "weight": weight})
    yield case(likelihoods.project_levels, lambda: {**many, "level": level, "weight": weight})
    yield case(likelihoods.project_ordered_simplex, lambda: {**many, "positive": positive, "total": 2.0})
    for one, counts in ((likelihoods.RankedLevels, [[1, 1], [1, 1]]), (likelihoods.RankedLabels, [[1, 1], [1, 1]])):
        parts = {
            "scores": scores,
            "list_of": task,
            "num_lists": 2,
            "scale": weight,
            "num_levels": 2,
            "counts": torch.tensor(counts),
        }
        yield case(one, lambda parts=parts: dict(parts))
        value = torch.tensor([1, 0, 0, 1]) if one is likelihoods.RankedLevels else labels
        owner = lambda one=one, parts=parts: one(**parts)  # noqa: E731
        yield method(owner, "log_prob", value=value)
        yield method(owner, "log_prob_of_lists", value=value)
        yield method(owner, "sample", sample_shape=(2,))
        yield method(owner, "expand", batch_shape=(2,))


def linalg_cases() -> Iterator[Case]:
    left, right = psd(M), psd(N)
    rhs = torch.ones(M, 2).double()
    spectrum, vectors = torch.linalg.eigh(left)
    symmetric = graph().shifted_laplacian(torch.float64, torch.device("cpu"))
    grid = {"rows": CELLS // N, "cols": CELLS % N, "shape": (M, N)}
    yield case(
        conjugate_gradients,
        lambda: {"matmul": lambda x: left @ x, "rhs": rhs, "tolerance": 1e-6, "max_iterations": 50},
    )
    yield case(linalg.root, lambda: {"op": kernel().operator()})
    yield case(linalg.PairIndex, lambda: dict(grid))
    yield method(lambda: linalg.PairIndex, "complete", shape=(M, N))
    yield method(pairs, "gather", grid=torch.ones(2, M, N))
    yield method(pairs, "scatter", values=torch.ones(T, 2))
    for name in ("from_pattern", "to_pattern"):
        yield method(pairs, name, values=torch.ones(T))
    yield method(pairs, "to", device="cpu")
    yield case(linalg.PairLinearOperator, lambda: {"row_op": left, "col_op": right, "left": pairs()})
    operator = lambda: linalg.PairLinearOperator(left, right, pairs())  # noqa: E731
    yield method(operator, "matmul", other=torch.ones(T, 2).double())
    yield method(operator, "zero_mean_mvn_samples", num_samples=2)

    def kronecker(row: torch.Tensor, col: torch.Tensor) -> Any:
        return linalg.KroneckerLinearOperator(row, col)

    yield case(kronecker, lambda: {"row": left, "col": right}, "KroneckerLinearOperator")
    yield method(lambda: kronecker(left, right), "zero_mean_mvn_samples", num_samples=2)
    yield case(SpectralLinearOperator, lambda: {"spectrum": spectrum, "vectors": vectors})
    yield method(
        lambda: SpectralLinearOperator(spectrum, vectors),
        "block",
        rows=torch.tensor([0, 1]),
        cols=torch.tensor([1]),
    )
    yield case(
        SpectralKroneckerLinearOperator,
        lambda: {"spectrum": torch.ones(M, M).double(), "row_vectors": vectors, "col_vectors": vectors},
    )
    yield case(
        ChebyshevLinearOperator,
        lambda: {"values": torch.ones(5).double(), "matrix": symmetric, "tolerance": 1e-9},
    )
    yield case(
        GramLinearOperator,
        lambda: {"scale": torch.tensor(0.5).double(), "features": Features(torch.ones(M, 2).double())},
    )
    yield method(
        lambda: GramLinearOperator(torch.tensor(0.5).double(), Features(torch.ones(M, 2).double())),
        "root",
        most_cells=100,
    )


def solver_cases() -> Iterator[Case]:
    data = observed()
    values = torch.tensor([2.0, 1.0, 0.5]).double()
    yield case(mvgp.SpectralElasticNet, lambda: {"lam": 0.5, "alpha": 0.8})
    yield case(mvgp.SpectralElasticNet.from_noise, lambda: {"noise": 0.5, "mu": 0.8})
    yield case(mvgp.TraceBall, lambda: {"radius": 2.0, "ridge": 0.1})
    for owner in (lambda: mvgp.SpectralElasticNet(0.5, 0.8), lambda: mvgp.TraceBall(9.0, 0.1)):
        yield method(owner, "value", values=values)
        yield method(owner, "shrink", values=values, step=0.5)
        yield method(owner, "conjugate", values=values, scale=0.5)
    weights = torch.ones(T).double()
    yield case(likelihoods.SquaredLoss, lambda: {"targets": data.values, "weights": weights})
    yield case(
        likelihoods.BiasedSquaredLoss,
        lambda: {
            "targets": data.values,
            "weights": weights,
            "rows": data.rows,
            "cols": data.cols,
            "shape": (M, N),
            "row_penalty": 0.5,
            "col_penalty": 0.5,
        },
    )
    yield case(likelihoods.RetargetedLoss, lambda: {"retarget": lambda psi: psi * 0.5, "weights": weights})
    yield method(lambda: likelihoods.RetargetedLoss(lambda psi: psi * 0.5), "targets", psi=weights)
    for owner in (
        lambda: likelihoods.SquaredLoss(data.values),
        lambda: likelihoods.BiasedSquaredLoss(data.values, None, data.rows, data.cols, (M, N), 0.5, 0.5),
        lambda: likelihoods.RetargetedLoss(lambda psi: psi * 0.5),
    ):
        yield method(owner, "quadratic_bound", step=weights)
        yield method(owner, "__call__", psi=weights)
    yield case(
        solvers.MeanProblem,
        lambda: {
            "row_op": problem().row_op,
            "col_op": problem().col_op,
            "pattern": data.pattern,
            "loss": likelihoods.SquaredLoss(data.values),
        },
    )
    for name, size in (("rows_times", M), ("cols_times", N)):
        yield method(problem, name, dense=torch.ones(size, 2).double())
    common = {"problem": problem, "penalty": lambda: mvgp.SpectralElasticNet(0.3, 0.8)}
    base = lambda: {key: make() for key, make in common.items()}  # noqa: E731
    limits = {"tolerance": 1e-3, "max_iterations": 50}
    for one in (solvers.solve_dense, solvers.solve_hybrid, solvers.solve_proximal):
        yield case(one, lambda: {**base(), **limits})
    yield case(solvers.solve_ridge, lambda: {"problem": problem(), "l2": 0.5, **limits})
    nets = [mvgp.SpectralElasticNet(0.3, 0.8), mvgp.SpectralElasticNet(0.3, 0.0)]
    more = {"exact_limit": 8, "single_from": 100, "dense_cells": 8}
    yield case(solvers.solve_additive, lambda: {"problems": [problem()] * 2, "penalties": list(nets), **limits, **more})
    yield case(
        solvers.solve_alternating,
        lambda: {**base(), "retarget": lambda psi: psi * 0.5, "start": weights, "rounds": 2, **limits},
    )


def model_cases() -> Iterator[Case]:
    both = lambda: {"prior": prior(), "likelihood": gaussian()}  # noqa: E731
    cells = {"rows": torch.tensor([0]), "cols": torch.tensor([1])}
    yield case(mvgp.FullGP, lambda: {**both(), "tolerance": 1e-6, "method": "cg", "max_iterations": 100})
    yield case(mvgp.FactorGP, lambda: {**both(), "rank": 2, "restarts": 1, "max_iterations": 20, "seed": 1})
    limits = {"tolerance": 1e-3, "max_iterations": 50, "strict": False}
    yield case(
        mvgp.TraceGP,
        lambda: {
            **both(),
            "strength": 0.3,
            "trace_share": 0.5,
            "row_bias": 0.5,
            "col_bias": 0.5,
            "solver": "dense",
            **limits,
        },
    )
    yield case(
        mvgp.PairwiseSVM, lambda: {"prior": prior(), "cost": 1.0, "positive_weight": 2.0, "solver": "newton", **limits}
    )
    yield case(
        mvgp.TraceGP,
        lambda: {
            "prior": prior() + inputs_prior(),
            "likelihood": gaussian(),
            "strength": [0.3, 0.2],
            "trace_share": [0.5, 0.0],
            **limits,
        },
    )
    for owner, data in (
        (lambda: mvgp.FullGP(prior(), gaussian()), observed()),
        (lambda: mvgp.TraceGP(prior() + inputs_prior(), gaussian(), trace_share=[0.8, 0.0]), observed()),
        (lambda: mvgp.FactorGP(prior(), gaussian(), 1, restarts=1, max_iterations=5), observed()),
        (trace_model, observed()),
        (lambda: mvgp.PairwiseSVM(prior()), labelled()),
    ):
        yield method(owner, "fit", data=data)
        if not isinstance(owner(), mvgp.PairwiseSVM):
            yield method(owner, "forward", **cells)
    more = {"lowest": 0.1, "max_rank": 3, "progress": False}
    yield method(trace_model, "path", data=observed(), strengths=2, **more)
    yield method(trace_model, "fit", data=observed(), start=fitted("trace"))


def posterior_cases() -> Iterator[Case]:
    at = {"rows": [0, 1], "cols": [2, 4]}
    new = {"col_inputs": torch.tensor([[0.3], [0.6]]).double()}
    draws = {"num_samples": 20, "seed": 1, "exclude": ([0], [1])}
    for kind in ("full", "trace", "factor", "svm"):
        owner = lambda kind=kind: fitted(kind)  # noqa: E731
        yield method(owner, "mean", **at)
        yield method(owner, "scores", rows=[0, 1])
        if kind == "svm":
            continue
        yield method(owner, "variance", **at)
        yield method(owner, "interval", **at, level=0.8)
        yield method(owner, "sample", **at, num_samples=2, generator=torch.Generator())
        yield method(owner, "__call__", rows=[0, 1], cols=[2, 3])
        yield method(owner, "joint", **at)
        yield method(owner, "top", row=0, k=2, level=0.8, **draws)
        yield method(owner, "save", path="here.mvgp")
        if kind == "factor":
            continue
        yield method(owner, "variances", rows=[0], accuracy=0.1, max_probes=16, seed=0, progress=False)
        yield method(owner, "top_probability", row=0, k=2, **draws)
        yield method(owner, "rank_interval", row=0, level=0.8, **draws)
        yield method(owner, "expected_hits", row=0, chosen=[2, 3], k=2, **draws)
        yield method(owner, "next_tests", row=0, count=2, k=2, noise=0.1, **draws)
        yield method(owner, "beats", row=0, item=1, other=2)
        yield method(owner, "rescaled", scale=2.0)
    full = lambda: fitted("full")  # noqa: E731
    for name in ("mean", "variance", "interval", "sample"):
        yield method(full, name, rows=[0, 1], cols=[0, 1], **new)
    joint = lambda: fitted("full").joint([0, 1], [1, 2])  # noqa: E731
    yield method(joint, "sample", num_samples=2, generator=torch.Generator())
    covariance = lambda: fitted("full").covariance()  # noqa: E731
    yield method(covariance, "zero_mean_mvn_samples", num_samples=2)
    yield method(covariance, "matmul", other=torch.ones(M * N, 1).double())
    yield case(mvgp.load, lambda: {"path": saved(), "trial": True})
    yield case(describe, lambda: {"x": fitted("full")})
    yield case(storage.Budget, lambda: {"kernels": 3, "iterations": 20, "memory_bytes": 2**20})
    yield case(storage.save, lambda: {"posterior": fitted("full"), "path": "there.mvgp"})
    own = type("OwnKernel", (gpytorch.kernels.RBFKernel,), {})
    yield case(storage.register, lambda: {"kind": own, "describe": dict, "restore": own, "name": "own"})


def evidence_cases() -> Iterator[Case]:
    full = lambda: {"prior": prior(), "likelihood": gaussian(), "data": observed()}  # noqa: E731
    probing = {"tolerance": 1e-5, "probe_tolerance": 1e-2, "max_iterations": 100, "probes": 4, "seed": 1}
    yield case(evidence.log_marginal, lambda: {**full(), "method": "probes", **probing})
    yield case(
        evidence.MatrixMarginalLogLikelihood,
        lambda: {"likelihood": gaussian(), "prior": prior(), "method": "cholesky", **probing},
    )

    def mll(target: Any, weights: Any) -> Any:
        model = prior()
        data = observed()
        return evidence.MatrixMarginalLogLikelihood(gaussian(), model)(
            model(data.rows, data.cols), target, weights=weights
        )

    yield case(
        mll, lambda: {"target": torch.ones(T).double(), "weights": torch.ones(T)}, "MatrixMarginalLogLikelihood.forward"
    )
    few = {"max_steps": 2, "tolerance": 1e-2, "progress": False}
    yield case(
        evidence.learn,
        lambda: {
            "model": prior(),
            "likelihood": gaussian(),
            "data": observed(),
            **few,
            "errors": False,
            "probes": 4,
            "seed": 0,
        },
    )
    yield case(evidence.learn_grid, lambda: {"prior": prior(), "likelihood": gaussian(), "data": complete(), **few})
    yield case(
        evidence.learn_trace,
        lambda: {
            "model": mvgp.TraceGP(prior(), gaussian(), penalty=mvgp.SpectralElasticNet.from_noise(0.3, 0.5)),
            "data": observed(),
            "mu": 0.5,
            "fit_tolerance": 1e-5,
            "max_iterations": 500,
            **few,
        },
    )
    yield case(
        evidence.leave_one_out, lambda: {"posterior": fitted("full"), "data": observed(), "which": torch.tensor([0, 2])}
    )
    noise = torch.full((T,), 0.3).double()
    covariance = lambda: linalg.PairLinearOperator(psd(M), psd(N), pairs())  # noqa: E731
    reference = lambda: Reference.build(covariance(), noise, probes=4)  # noqa: E731
    yield case(
        Reference.build,
        lambda: {"covariance": covariance(), "noise": noise, "probes": 4, "seed": 1, "precondition": True},
    )
    yield method(reference, "apply", dense=torch.ones(T, 1).double())
    yield method(reference, "fits", pairs=pairs())
    yield case(
        log_determinant,
        lambda: {
            "covariance": covariance(),
            "noise": noise,
            "reference": reference(),
            "tolerance": 1e-4,
            "max_iterations": 50,
        },
    )
    yield case(
        evidence.trace_bound,
        lambda: {
            "prior": prior(),
            "likelihood": gaussian(),
            "data": observed(),
            "posterior": trace_model(
                strength=None,
                trace_share=None,
                penalty=mvgp.SpectralElasticNet.from_noise(gaussian().noise.item(), 0.5),
            ).fit(observed()),
        },
    )


def metric_cases() -> Iterator[Case]:
    scores = torch.rand(M, N, generator=torch.Generator().manual_seed(1))
    held = {"positives": ([0, 1], [2, 3]), "exclude": ([0, 2], [1, 1])}
    yield case(metrics.ranking_scores, lambda: {"scores": scores, **held, "k": 3, "rows": [0, 1], "chunk": 1}, nan=True)
    yield case(metrics.auc, lambda: {"scores": scores, **held}, nan=True)
    for one in (metrics.precision_at, metrics.recall_at, metrics.average_precision_at, metrics.ndcg_at):
        yield case(one, lambda: {"scores": scores, **held, "k": 2}, nan=True)
    yield case(
        metrics.compare,
        lambda: {
            "a": [0.5, 0.7, 0.9],
            "b": [0.4, 0.5, 0.95],
            "metric": "AUC",
            "confidence": 0.9,
            "resamples": 20,
            "seed": 1,
        },
    )
    yield case(
        metrics.coverage,
        lambda: {"predicted": fitted("full"), "held_out": observed(), "noise": 0.1, "levels": [0.5, 0.9]},
    )
    events = {"probabilities": [0.1, 0.4, 0.8, 0.9], "outcomes": [0, 0, 1, 1]}
    yield case(
        metrics.calibration_error, lambda: {**events, "bins": 2, "weights": [1.0, 2.0, 0.5, 1.0], "equal": "widths"}
    )
    grouped = {"groups": ["a", "a", "b", "b"], "bins": 2, "num_draws": 5, "seed": 0}
    yield case(metrics.group_calibration, lambda: {**events, **grouped})
    random_groups = {"shares": [0.5, 1.0], "bins": 2, "num_groups": 2, "trials": 2, "seed": 0}
    yield case(metrics.adversarial_calibration, lambda: {**events, **random_groups})
    yield case(metrics.uniformity, lambda: {"values": [0.1, 0.5, 0.7], "bins": 4, "level": 0.9})
    yield method(comparison, "per_task", nan=True, metric="AUC")
    yield method(comparison, "summary", at=[1, 2])
    yield method(lambda: metrics.coverage(fitted("full"), observed(), noise=0.1), "at", level=0.5)


def selection_cases() -> Iterator[Case]:
    yield case(selection.split_pairs, lambda: {"data": known(), "folds": 2, "seed": 1})
    yield case(selection.split_pairs, lambda: {"data": observed(), "share": 0.5, "seed": 1})
    yield case(selection.split_rows, lambda: {"data": known(), "share": 0.5, "seed": 1})
    yield case(selection.with_negatives, lambda: {"links": known(), "ratio": 1.0, "seed": 1, "within_rows": True})
    yield case(selection.NegativeSets, lambda: {"sets": 2, "ratio": 1.0, "within_rows": False})
    yield method(selection.NegativeSets, "draw", links=known(), seed=1, stream=0)
    yield case(AveragedRanker, lambda: {"posteriors": [fitted("full"), fitted("trace")]})
    yield method(lambda: AveragedRanker([fitted("full")]), "scores", rows=[0])
    yield case(selection.Split, lambda: {"train": known(), "held_out": known()})
    yield case(
        selection.choose,
        lambda: {
            "model": mvgp.TraceGP(prior(), ranking()),
            "data": known(),
            "trace_shares": [0.8],
            "strengths": [0.5],
            "lowest": 0.1,
            "folds": 1,
            "share": 0.4,
            "by": "pairs",
            "metric": "AUC",
            "one_standard_error": False,
            "max_rank": 3,
            "patience": 2,
            "negatives": None,
            "seed": 1,
            "progress": False,
        },
        nan=True,
    )
    yield case(
        selection.choose_kernels,
        lambda: {
            "model": mvgp.TraceGP(prior(), ranking()),
            "data": known(),
            "values": {"row_axis.kernel.time": [0.5]},
            "sweeps": 1,
            "errors": 0.5,
            "keep_variance": False,
            "share": 0.4,
            "seed": 1,
            "progress": False,
            "trace_shares": [0.8],
            "strengths": [0.5],
            "metric": "AUC",
        },
        nan=True,
    )
    yield case(
        selection.nested_cross_validation,
        lambda: {
            "model": mvgp.TraceGP(prior(), ranking()),
            "data": known(),
            "outer_folds": 1,
            "outer_share": 0.4,
            "folds": 1,
            "by": "pairs",
            "metric": "AUC",
            "seed": 1,
            "trace_shares": [0.8],
            "strengths": [0.5],
            "progress": False,
        },
        nan=True,  # one fold has no standard deviation
    )
    yield method(choice, "refit", data=known())


def baseline_cases() -> Iterator[Case]:
    graphs = {"row_graph": graph(M), "col_graph": graph(N)}
    double = {"dtype": torch.float64}
    made = {
        baselines.Popularity: double,
        baselines.EASE: {"regularisation": 1.0, **double},
        baselines.EDLAE: {"regularisation": 1.0, "dropout": 0.5, **double},
        baselines.RowGP: {"row_graph": graph(M), "regularisation": 1.0, "col_exponent": 0.5, **double},
        baselines.RP3beta: {"alpha": 1.0, "beta": 0.5, **double},
        baselines.GFCF: {"factors": 2, "alpha": 0.3, "seed": 1, **double},
        baselines.PureSVD: {"factors": 2, "seed": 1, **double},
        baselines.NeighbourVoting: {
            "row_graph": graph(M),
            "hops": 1,
            "decay": 0.5,
            "popularity_weight": 0.01,
            **double,
        },
        baselines.Propagation: {**graphs, "restart": 0.5, "iterations": 3, "normalise_links": True, **double},
        baselines.Katz: {**graphs, "beta": 0.5, "max_length": 3, "row_weight": 0.1, "col_weight": 0.1, **double},
    }
    if importlib.util.find_spec("implicit"):
        common = {"factors": 2, "regularisation": 0.1, "iterations": 2, "threads": 1, "seed": 1, **double}
        made[baselines.BPR] = {"learning_rate": 0.1, **common}
        made[baselines.ImplicitALS] = {"alpha": 1.0, **common}
    if importlib.util.find_spec("irspack"):
        common = {"factors": 2, "regularisation": 0.1, "unlabelled_weight": 0.1, "frequency_exponent": 0.5, **double}
        common |= {"iterations": 2, "threads": 1, "seed": 1}
        made[baselines.IALS] = common
        made[baselines.GraphIALS] = {**graphs, "feature_regularisation": 1.0, **common}
    for one, arguments in made.items():
        yield case(one, lambda arguments=arguments: dict(arguments))
        owner = lambda one=one, arguments=arguments: one(**arguments)  # noqa: E731
        yield method(owner, "fit", links=known())
        ranker = owner().fit(known())
        yield method(lambda ranker=ranker: ranker, "scores", rows=[0, 1])
    yield case(
        baselines.candidates, lambda: {"name": "ease", "link_set": link_set(), "seed": 1, "dtype": torch.float64}
    )


def application_cases() -> Iterator[Case]:
    one = {"model": "hilbert", "strength": 0.3, "negatives": 1, "seed": 1, "progress": False}
    yield case(testing.synthetic_matrix, lambda: {"num_rows": 6, "num_cols": 7, "share": 0.5, "noise": 0.1, "seed": 1})
    yield case(
        datasets.LinkSet,
        lambda: {
            "row_ids": tuple("abcd"),
            "col_ids": tuple("vwxyz"),
            "rows": known().rows,
            "cols": known().cols,
            "row_graph": graph(M),
            "col_graph": graph(N),
            "source": "here",
        },
    )
    yield method(link_set, "keep", rows=[0, 1, 2], cols=[0, 1, 2])
    yield method(link_set, "links", weight=0.1)
    yield method(link_set, "prior", time=0.5, shift=0.5, dtype=torch.float64, row_time=1.0, col_shift=0.0)
    yield method(link_set, "with_graphs", row_graphs=[graph(M)], col_features=[features()])
    yield case(datasets.FeatureTable, lambda: {"name": "f", "columns": ("p",), "values": torch.randn(N, 1)})
    yield method(features, "graph", neighbours=2)
    yield method(features, "keep", nodes=[0, 1])
    yield case(datasets.neighbour_graph, lambda: {"vectors": torch.randn(N, 2), "neighbours": 2, "block": 3})
    yield case(datasets.union_graph, lambda: {"graphs": [graph(M), graph(M)]})
    yield method(link_set, "subsample", share=0.9, seed=1)
    yield case(
        datasets.read_links,
        lambda: {
            "pairs": tables() / "pairs.tsv",
            "row_edges": [tables() / "edges.tsv"],
            "row_features": tables() / "features.tsv",
            "filters": "none",
            "header": False,
        },
    )
    yield case(prioritise.fit_prioritiser, lambda: {"link_set": link_set(), **one, "trace_share": 0.0})
    yield case(
        prioritise.prioritise,
        lambda: {"link_set": link_set(), "rows": ["r0"], "top": 2, "include_known": True, **one, "uncertainty": True},
    )
    yield case(prioritise.trial_objective, lambda: {"link_set": link_set(), "suggest": dict, "model": "trace"})
    yield case(prioritise.find_rows, lambda: {"wanted": ["r0"], "ids": ["r0", "r1"], "names": ["one", "two"]})
    yield method(prioritiser, "find", wanted=["r0"])
    yield method(prioritiser, "prioritise", rows=[0], top=2, uncertainty=False)
    options = {"include_known": True, "uncertainty": False, "num_samples": 20, "seed": 1, "progress": False}
    yield method(prioritiser, "ranked", rows=[0, 1], top=2, **options)
    yield method(hilbert, "save", path="prioritiser.mvgp")
    yield case(prioritise.load_prioritiser, lambda: {"path": saved_prioritiser()})
    yield case(
        studies.Study,
        lambda: {
            "models": ("popularity",),
            "folds": 2,
            "negative_sets": 1,
            "k": 3,
            "seed": 1,
            "tolerance": 0.1,
            "max_iterations": 20,
            "noise": 0.2,
            "time": 0.5,
        },
    )
    yield method(lambda: studies.Study, "from_dict", given={"folds": 2})
    yield method(lambda: studies.Study, "from_json", text='{"folds": 2}')
    yield method(study, "negatives", sets=2)
    yield case(
        studies.run_study,
        lambda: {
            "link_set": link_set(),
            "study": study(),
            "directory": "study",
            "jobs": 1,
            "progress": False,
            "keep_scores": False,
        },
        nan=True,
    )
    yield case(studies.load_study, lambda: {"directory": study_folder()}, nan=True)
    yield case(
        reports.write_report,
        lambda: {"directory": study_folder(), "out": "report", "row_word": "row", "col_word": "column"},
    )
    yield case(testing.run_contract, lambda: {"contract": TinyContract})


class TinyContract(testing.Contract):
    """A contract that is kept."""

    def test_it(self) -> None:
        self.require(True, "all is well")


@cache
def saved_prioritiser() -> Path:
    path = tables() / "prioritiser.mvgp"
    hilbert().save(path)
    return path


# Wrong arguments ----------------------------------------------------------------------------------


def _words() -> Iterator[str]:
    yield "a"


HOSTILE: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "text": lambda: "some text",
    "empty text": lambda: "",
    "bytes": lambda: b"\x00",
    "list": lambda: [1, "a"],
    "empty list": list,
    "dict": lambda: {"a": 1},
    "object": object,
    "True": lambda: True,
    "complex": lambda: 1 + 2j,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-1": lambda: -1,
    "0": lambda: 0,
    "2**70": lambda: 2**70,
    "-2**70": lambda: -(2**70),
    "1e308": lambda: 1e308,
    "0.5": lambda: 0.5,
    "empty array": lambda: np.zeros(0),
    "empty matrix": lambda: np.zeros((0, 3)),
    "array of text": lambda: np.array(["a", "b"]),
    "array of objects": lambda: np.array([object(), None]),
    "array of complex": lambda: np.array([1 + 1j, 2.0]),
    "array of NaN": lambda: np.full((M, N), np.nan),
    "array of dates": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "uint64 array": lambda: np.array([2**64 - 1], dtype=np.uint64),
    "masked array": lambda: np.ma.masked_array([1.0, 999.0, 2.0], [False, True, False]),
    "3-d array": lambda: np.ones((2, 2, 2)),
    "reversed array": lambda: np.arange(3.0)[::-1],
    "tensor of a wrong shape": lambda: torch.ones(7, 3),
    "empty tensor": lambda: torch.zeros(0),
    "tensor of NaN": lambda: torch.full((T,), torch.nan),
    "whole tensor": lambda: torch.arange(3),
    "boolean tensor": lambda: torch.tensor([True, False, True]),
    "complex tensor": lambda: torch.ones(3, dtype=torch.complex64),
    "half tensor": lambda: torch.ones(3, dtype=torch.float16),
    "sparse tensor": lambda: torch.eye(3).to_sparse(),
    "meta tensor": lambda: torch.ones(3, device="meta"),
    "scipy array": lambda: sparse.eye_array(3),
    "generator": _words,
    "function": lambda: len,
    "class": lambda: int,
    "missing value": lambda: pd.NA,
    "column with a gap": lambda: pd.Series([1, None, 2], dtype="Int64"),
}
NUMBERS = {"-1", "0", "2**70", "-2**70", "1e308", "0.5"}
WHOLE = {"-1", "0", "2**70", "-2**70"}
ARRAYS = {
    "list", "empty list", "empty array", "empty matrix", "3-d array", "reversed array", "tensor of a wrong shape",
    "empty tensor", "whole tensor", "boolean tensor", "half tensor",
}  # fmt: skip


def cannot_be_right(label: str, kind: str, name: str) -> bool:
    """Whether no reading of the annotation allows the value; where in doubt it may be right."""
    if name in ("row_names", "col_names") and label == "array of text":
        return False
    if name == "complete_lists":
        return label != "True"
    if label == "None":
        return "None" not in kind and "Any" not in kind and kind != "Data"
    texts = ("str", "Literal", "Path", "Method", "Solver", "Normalisation", "Columns", "Any")
    if label in ("text", "empty text"):
        return not any(word in kind for word in texts) or (
            name not in TEXTS and "str" not in kind and "Path" not in kind
        )
    if kind == "bool":
        return label != "True"
    if label == "True":
        return "bool" not in kind
    if label in NUMBERS:
        number = any(word in kind for word in ("float", "Any", "Tensor")) or ("int" in kind and label in WHOLE)
        return not number
    if label in ARRAYS:
        return not any(word in kind for word in ("Any", "Tensor", "Sequence", "tuple", "Iterable", "Callable"))
    if label in ("function", "class"):
        return "Callable" not in kind and "type" not in kind
    if label in ("dict", "generator", "scipy array"):
        return not any(word in kind for word in ("Any", "Mapping", "Iterable", "Sequence"))
    return True


TEXTS = {"metric", "name", "row_names", "col_names", "device", "given"}


# Calls --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Break off a call that hangs, where the system can."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeoutError(f"no answer in {SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def not_finite(found: Any, depth: int = 0) -> bool:
    """Whether there is NaN or infinity anywhere in an answer."""
    if isinstance(found, torch.Tensor):
        dense = found.detach().to_dense() if found.layout != torch.strided else found.detach()
        return bool(dense.is_floating_point() and not torch.isfinite(dense).all())
    if isinstance(found, np.ndarray):
        return bool(found.dtype.kind == "f" and not np.isfinite(found).all())
    if isinstance(found, float):
        return not np.isfinite(found)
    if depth > 3:
        return False
    if isinstance(found, list | tuple):
        return any(not_finite(one, depth + 1) for one in found)
    if isinstance(found, dict):
        return any(not_finite(one, depth + 1) for one in found.values())
    if isinstance(found, torch.nn.Module):
        # constraints have infinite bounds, and a constant zero is minus infinity before its transform
        own = [one for one in found.parameters() if one.requires_grad]
        return any(not_finite(one) for one in (*own, *(b for n, b in found.named_buffers() if "constraint" not in n)))
    if isinstance(found, mvgp.ObservedMatrix):
        return not_finite(found.values)
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        return any(not_finite(getattr(found, field.name, None), depth + 1) for field in dataclasses.fields(found))
    if type(found).__module__.startswith("linear_operator") or hasattr(found, "_matmul"):
        return not_finite(found.to_dense())
    return False


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a call came to.

    :param kind: accepted, refused, RAW or SILENT.
    :param text: for the list of failures.
    """

    case: str
    kind: str
    text: str


def run(one: Case, random_: random.Random) -> Outcome:
    """One wrong call of a case."""
    given = one.arguments()
    names = [name for name in given if (one.name, name) not in FREE]
    style = random_.random()
    wrong, told = False, []
    if style < 0.02:
        given["surprise"] = 1
        wrong, told = True, ["surprise=1"]
    elif style < 0.04 and names:
        lost = random_.choice(names)
        del given[lost]
        told = [f"without {lost}"]
    else:
        for name in random_.sample(names, min(len(names), 1 if style < 0.8 else 2)):
            label = random_.choice(list(HOSTILE))
            given[name] = HOSTILE[label]()
            told.append(f"{name}={label}")
            wrong |= cannot_be_right(label, one.kinds.get(name, "Any"), name)
    text = f"{one.name}({', '.join(told)})"
    try:
        with in_time(), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            found = one.call(**given)
            if isinstance(found, Iterator):
                found = [point for point, _ in zip(found, range(2), strict=False)]
            strange = not one.nan and not_finite(found)
    except MvgpError:
        return Outcome(one.name, "refused", text)
    except TypeError as error:
        if SIGNATURE.search(str(error)):
            return Outcome(one.name, "refused", text)
        return Outcome(one.name, "RAW", f"{text}: {_where(error)}")
    except FileNotFoundError as error:
        if "path" in str(told) or "directory" in str(told) or "pairs" in str(told) or "edges" in str(told):
            return Outcome(one.name, "refused", text)
        return Outcome(one.name, "RAW", f"{text}: {_where(error)}")
    except Exception as error:
        return Outcome(one.name, "RAW", f"{text}: {_where(error)}")
    if strange:
        return Outcome(one.name, "SILENT", f"{text}: an answer that is not finite")
    return Outcome(one.name, "SILENT" if wrong else "accepted", f"{text}: accepted")


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/mvgp/" in frame.filename]
    place = f"{own[-1].filename.split('/mvgp/')[-1]}:{own[-1].lineno}" if own else "?"
    line = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__} at {place}: {line[:90]}"


def public_names() -> dict[str, Any]:
    """Every name in an ``__all__``."""
    found: dict[str, Any] = {}
    packages = ["mvgp", *(f"mvgp.{one.name}" for one in pkgutil.iter_modules(mvgp.__path__) if one.ispkg)]
    for package in packages:
        module = importlib.import_module(package)
        found.update({name: getattr(module, name) for name in getattr(module, "__all__", [])})
    return found


def forgotten(cases: list[Case]) -> list[str]:
    """Public callables without a case."""
    covered = {re.split(r"[. ]", one.name)[0] for one in cases} | {
        *RECORDS,
        *INTERFACES,
        "BPR",
        "ImplicitALS",
        "hpo_links",
    }
    return sorted(name for name, found in public_names().items() if callable(found) and name not in covered)


def hostile_round(seed: int, count: int) -> list[Outcome]:
    """``count`` wrong calls, spread over all cases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some packages warn of their threads
        cases = list(examples())
    missing = forgotten(cases)
    if missing:
        raise SystemExit(f"public callables without a case: {', '.join(missing)}")
    random_ = random.Random(seed)
    outcomes = []
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for number in range(count):
                outcomes.append(run(cases[number % len(cases)], random_))
        finally:
            os.chdir(before)
    return outcomes


def sound(cases: list[Case]) -> list[str]:
    """The cases whose valid arguments are refused or do not give a finite answer: mistakes of this file."""
    found = []
    for one in cases:
        try:
            with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
                warnings.simplefilter("ignore")
                answer = one.call(**one.arguments())
                if not one.nan and not_finite(answer):
                    found.append(f"{one.name}: not finite")
        except Exception as error:
            found.append(f"{one.name}: {_where(error)}")
    return found


def main() -> None:
    """Run a round and print the counts, by callable."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=6000)
    parser.add_argument("--list", action="store_true", help="list every RAW and SILENT call")
    options = parser.parse_args()
    out = os.fdopen(os.dup(1), "w")  # a call with a file descriptor for a path must not take the table along
    with contextlib.suppress(ImportError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.manual_seed(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        problems = sound(list(examples()))
        os.chdir(before)
    for line in problems:
        print(f"no valid example: {line}", file=out)
    outcomes = hostile_round(options.seed, options.count)
    kinds = ("accepted", "refused", "RAW", "SILENT")
    table = Counter((one.case, one.kind) for one in outcomes)
    print(f"{'':48}{''.join(f'{kind:>10}' for kind in kinds)}", file=out)
    for name in sorted({one.case for one in outcomes}):
        print(f"{name:48}{''.join(f'{table[name, kind]:>10}' for kind in kinds)}", file=out)
    if options.list:
        for one in outcomes:
            if one.kind in ("RAW", "SILENT"):
                print(f"{one.kind:7}{one.text}", file=out)
    total = Counter(one.kind for one in outcomes)
    print(
        f"{len(outcomes)} calls, seed {options.seed}: " + ", ".join(f"{total[kind]} {kind}" for kind in kinds), file=out
    )
    print(f"RAW {total['RAW'] / len(outcomes):.2%}, SILENT {total['SILENT'] / len(outcomes):.2%}", file=out)
    out.flush()
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


if __name__ == "__main__":
    main()
