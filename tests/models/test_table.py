"""The table model x likelihood x data: one structure, which the documents show and every test here walks.

A filled cell is held against dense algebra or a conic solver on a small problem, and has to find planted structure. An
empty one has a reason, and the model says so.
"""

import pathlib
from dataclasses import dataclass
from itertools import product
from typing import Any

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import PrecomputedKernel
from mvgp.likelihoods import BipartiteRankingLikelihood, LogisticLikelihood
from tests import randomness
from tests.oracles import dense_posterior

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "models.md"
NOISE, WEIGHT, COST, LAM, SHARE = 0.3, 0.4, 2.0, 0.5, 0.6
NET = mvgp.SpectralElasticNet(LAM, SHARE)


@dataclass(frozen=True)
class Cell:
    """What the documents say in a cell."""

    says: str


@dataclass(frozen=True)
class Empty:
    """Why a cell is empty: what the documents say, and the error a user gets."""

    says: str
    match: str


DATA = ("`ObservedMatrix`", '`PositiveUnlabelled(lists="linked")`', '`PositiveUnlabelled(lists="all")`')
NO_LIKELIHOOD = Empty("empty: it has a loss of its own", "unexpected keyword argument 'likelihood'")
TABLE: dict[tuple[str, str], tuple[Cell | Empty, Cell | Empty, Cell | Empty]] = {
    ("`FullGP`", "Gaussian"): (Cell("exact"), Cell("exact"), Cell("exact")),
    ("`FullGP`", "ranking"): (Cell("certified"), Cell("certified"), Cell("certified")),
    ("`TraceGP`", "Gaussian"): (Cell("certified"), Cell("certified"), Cell("certified")),
    ("`TraceGP`", "ranking"): (Cell("certified"), Cell("certified"), Cell("certified")),
    ("`TraceGP`, `trace_share=0`", "Gaussian"): (Cell("certified"), Cell("certified"), Cell("certified")),
    ("`TraceGP`, `trace_share=0`", "ranking"): (Cell("certified"), Cell("certified"), Cell("certified")),
    ("`FullGP`", "pointwise"): (Cell("approximate"), Cell("approximate"), Cell("approximate")),
    ("`TraceGP`", "pointwise"): (Cell("certified, approximate"),) * 3,
    ("`FactorGP`", "pointwise"): (Cell("local maximum"), Cell("local maximum"), Cell("local maximum")),
    ("`FactorGP`", "Gaussian"): (Cell("local maximum"), Cell("local maximum"), Cell("local maximum")),
    ("`FactorGP`", "ranking"): (Cell("local maximum"), Cell("local maximum"), Cell("local maximum")),
    ("`PairwiseSVM`", "hinge, its own"): (Cell("certified"), Cell("certified"), Cell("certified")),
    ("`PairwiseSVM`", "squared hinge, its own"): (Cell("certified"), Cell("certified"), Cell("certified")),
    ("`PairwiseSVM`", "Gaussian"): (NO_LIKELIHOOD, NO_LIKELIHOOD, NO_LIKELIHOOD),
    ("`PairwiseSVM`", "ranking"): (NO_LIKELIHOOD, NO_LIKELIHOOD, NO_LIKELIHOOD),
    ("`PairwiseSVM`", "pointwise"): (NO_LIKELIHOOD, NO_LIKELIHOOD, NO_LIKELIHOOD),
}
WALK = [(model, likelihood, at) for (model, likelihood), at in product(TABLE, range(len(DATA)))]
FILLED = [key for key in WALK if isinstance(TABLE[key[:2]][key[2]], Cell)]
EMPTY = [key for key in WALK if isinstance(TABLE[key[:2]][key[2]], Empty)]


def likelihood_of(name):
    if name == "ranking":
        return BipartiteRankingLikelihood(margin=1.0, noise=NOISE)
    if name == "pointwise":
        return LogisticLikelihood()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    return likelihood


def model_of(model, likelihood, prior, rank=6, noise=None):
    """The model of a line of the table; its penalty is absolute, so that an oracle can be given it."""
    if model == "`PairwiseSVM`":
        solver = {"hinge, its own": "svc", "squared hinge, its own": "newton"}[likelihood]
        return mvgp.PairwiseSVM(prior, cost=COST, positive_weight=1.5, solver=solver, tolerance=1e-6)
    made: Any = likelihood_of(likelihood)
    if likelihood == "pointwise" and model != "`FactorGP`":
        kind, penalty = (mvgp.FullGP, {}) if model == "`FullGP`" else (mvgp.TraceGP, {"penalty": NET})
        options = {"tolerance": 1e-8, "max_iterations": 20_000}
        return kind(prior, made, approximation="laplace", **penalty, **options)  # whose optimum a conic solver has, too
    if noise is not None and likelihood != "pointwise":
        made.noise = noise
    if model == "`FullGP`":
        options = {} if likelihood == "Gaussian" else {"tolerance": 1e-8, "max_iterations": 20_000}
        return mvgp.FullGP(prior, made, **options)
    if model == "`FactorGP`":
        return mvgp.FactorGP(prior, made, rank=rank, max_iterations=5000)
    share = 0.0 if "trace_share=0" in model else SHARE
    penalty = mvgp.SpectralElasticNet(LAM, share)
    return mvgp.TraceGP(prior, made, penalty=penalty, tolerance=1e-8, max_iterations=20_000)


def penalty_of(model, likelihood):
    """(l1, l2) of the spectral elastic net that the mean solves."""
    noise = 1.0 if likelihood == "pointwise" else likelihood_of(likelihood).noise.item()
    return {
        "`FullGP`": (0.0, noise),
        "`TraceGP`": (LAM * SHARE, LAM * (1 - SHARE)),
        "`TraceGP`, `trace_share=0`": (0.0, LAM),
        "`FactorGP`": (noise, 0.0),
    }[model]


def spelled_out(data):
    """Rows, columns, labels in {-1, 1} and weights of every cell that the data are about."""
    if isinstance(data, mvgp.ObservedMatrix):
        weights = torch.ones_like(data.values) if data.weights is None else data.weights
        return data.rows, data.cols, data.values, weights
    labels = -torch.ones(data.num_cells, dtype=torch.float64)
    weights = torch.full_like(labels, data.weight)
    labels[data.positions] = weights[data.positions] = 1.0
    return data.pattern.rows, data.pattern.cols, labels, weights


def small_problem(at):
    """Kernels and data that are the same in every run: an interior-point solver may fail on an unlucky draw."""
    rng, shape = randomness.fixed_numpy_generator(4), (4, 6)
    kernels = [torch.from_numpy(root @ root.T / n + 0.3) for n in shape for root in [rng.normal(size=(n, n))]]
    kernels = [kernel + 0.3 * torch.eye(len(kernel), dtype=torch.float64) for kernel in kernels]
    links = ([0, 0, 2, 3], [1, 4, 4, 2])  # row 1 has none
    if at > 0:
        return kernels, mvgp.PositiveUnlabelled(*links, shape, WEIGHT, lists=("linked", "all")[at - 1])
    rows, cols = [0, 0, 2, 3, 0, 0, 1, 1, 2, 3], [1, 4, 4, 2, 0, 5, 2, 3, 0, 3]
    labels, weights = [1.0] * 4 + [-1.0] * 6, [1.0, 2.0, 0.5, 1.0, 0.7, 1.0, 1.0, 0.3, 1.0, 0.8]
    return kernels, mvgp.ObservedMatrix(rows, cols, labels, shape, weights=weights)


def targets_of(data, likelihood, labels):
    """What the Gaussian likelihood takes the labels for: itself, or 1 and 0 on whole lists."""
    is_list = isinstance(data, mvgp.PositiveUnlabelled)
    return (labels + 1) / 2 if is_list and likelihood == "Gaussian" else labels


def conic_mean(kernels, data, model, likelihood):
    """The optimum and the scores (M, N) by an interior-point solver, from equations (5), (10) or the machine's."""
    import cvxpy as cp

    roots = [torch.linalg.cholesky(kernel).numpy() for kernel in kernels]
    b = cp.Variable(data.shape)
    psi, bias = roots[0] @ b @ roots[1].T, cp.Variable()
    rows, cols, labels, weights = spelled_out(data)
    cells = list(zip(rows.tolist(), cols.tolist(), labels.tolist(), weights.tolist(), strict=True))
    if model == "`PairwiseSVM`":
        terms = []
        for m, n, y, w in cells:
            slack, c = cp.pos(1 - y * (psi[m, n] + bias)), COST * w * (1.5 if y > 0 else 1.0)
            terms.append(c * slack if likelihood.startswith("hinge") else c / 2 * cp.square(slack))
        objective, scores = cp.sum_squares(b) / 2 + sum(terms), psi + bias
    else:
        l1, l2 = penalty_of(model, likelihood)
        scores = psi
        if likelihood == "Gaussian":
            targets = targets_of(data, likelihood, labels).tolist()
            terms = [w / 2 * cp.square(psi[m, n] - r) for (m, n, _, w), r in zip(cells, targets, strict=True)]
        elif likelihood == "pointwise":
            terms = [w * cp.logistic(-y * psi[m, n]) for m, n, y, w in cells]
        else:  # equation (10), with a threshold for each row
            b_m = cp.Variable(data.shape[0])
            sides = {1.0: lambda m, n: cp.pos(b_m[m] + 1 - psi[m, n]), -1.0: lambda m, n: cp.pos(psi[m, n] - b_m[m])}
            terms = [w / 2 * cp.square(sides[y](m, n)) for m, n, y, w in cells]
        objective = sum(terms) + l2 / 2 * cp.sum_squares(b) + (l1 * cp.normNuc(b) if l1 else 0)
    problem = cp.Problem(cp.Minimize(objective))
    problem.solve(solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)
    return float(problem.value), torch.from_numpy(scores.value)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "likelihood", "at"), FILLED)
def test_a_filled_cell_equals_a_dense_oracle(model, likelihood, at):
    pytest.importorskip("cvxpy")
    kernels, data = small_problem(at)
    fitted = model_of(model, likelihood, mvgp.MatrixGP(*map(PrecomputedKernel, kernels))).fit(data)
    optimum, scores = conic_mean(kernels, data, model, likelihood)
    if model == "`FactorGP`":  # of full rank; the factors' optimum is the trace norm's, and need not be unique
        assert fitted.objective == pytest.approx(optimum, rel=1e-5)
        return
    if (model, likelihood) not in (("`FullGP`", "Gaussian"), ("`FullGP`", "pointwise")):
        assert fitted.certificate.primal == pytest.approx(optimum, rel=1e-5)
    torch.testing.assert_close(fitted.scores(), scores, atol=2e-3, rtol=0)
    if model == "`PairwiseSVM`":
        return
    rows, cols, labels, weights = spelled_out(data)
    if likelihood == "pointwise":  # the second derivative of the loss, as Laplace's approximation has it
        chance = torch.sigmoid(fitted.scores()[rows, cols])
        noise = 1 / (chance * (1 - chance))
    else:
        noise = likelihood_of(likelihood).noise.item()
    targets = targets_of(data, likelihood, labels)
    mean, covariance = dense_posterior(*kernels, rows, cols, targets, noise / weights)
    every = torch.arange(len(mean))
    at_cells = every // data.shape[1], every % data.shape[1]
    torch.testing.assert_close(fitted.variance(*at_cells), covariance.diagonal(), atol=1e-8, rtol=0)
    if (model, likelihood) == ("`FullGP`", "Gaussian"):
        torch.testing.assert_close(fitted.scores().reshape(-1), mean, atol=1e-8, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "likelihood", "at"), FILLED)
def test_a_filled_cell_finds_planted_structure(model, likelihood, at):
    """Two groups of rows like two groups of columns; a hidden link inside a block outranks every cell outside."""
    inside = torch.block_diag(torch.ones(4, 4), torch.ones(4, 4)).bool()
    kernel = inside.double() + 0.5 * torch.eye(8, dtype=torch.float64)
    hidden = torch.zeros(8, 8, dtype=torch.bool)
    hidden[[0, 5], [2, 6]] = True
    if at == 0:
        labels = torch.where(inside, 1.0, -1.0).double()
        labels[hidden] = torch.nan
        labels[[0, 0, 5, 5], [5, 7, 1, 3]] = torch.nan
        data = mvgp.ObservedMatrix.from_dense(labels)
    else:
        lists = ("linked", "all")[at - 1]
        data = mvgp.PositiveUnlabelled(*(inside & ~hidden).nonzero(as_tuple=True), (8, 8), 0.2, lists=lists)
    prior = mvgp.MatrixGP(PrecomputedKernel(kernel), PrecomputedKernel(kernel))
    scores = model_of(model, likelihood, prior, rank=3, noise=0.1).fit(data).scores()
    for row, col in ((0, 2), (5, 6)):
        assert scores[row, col] > scores[row][~inside[row]].max()


@pytest.mark.parametrize(("model", "likelihood", "at"), EMPTY)
def test_an_empty_cell_is_refused(model, likelihood, at):
    kernels, _ = small_problem(at)
    prior = mvgp.MatrixGP(*map(PrecomputedKernel, kernels))
    options = {"rank": 2} if model == "`FactorGP`" else {}
    with pytest.raises((InputError, TypeError), match=TABLE[model, likelihood][at].match):
        getattr(mvgp, model.strip("`"))(prior, likelihood=likelihood_of(likelihood), **options)


def test_the_documents_show_this_table():
    lines = PAGE.read_text().splitlines()
    start = lines.index(f"| model | likelihood | {' | '.join(DATA)} |")
    shown = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        model, likelihood, *found = (part.strip() for part in line.strip("|").split("|"))
        shown[model, likelihood] = tuple(found)
    assert shown == {key: tuple(cell.says for cell in line) for key, line in TABLE.items()}
