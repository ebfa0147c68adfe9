"""What a fit is expected to take: the method that is used, memory, and growth; seconds are for a benchmark to judge."""

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError, SizeError
from mvgp.kernels import ConstantKernel, DiffusionKernel, Graph, PrecomputedKernel
from mvgp.likelihoods import BipartiteRankingLikelihood
from mvgp.linalg import cost
from tests.randomness import generator


def ring(size):
    return DiffusionKernel(Graph([(i, (i + 1) % size) for i in range(size)], size))


def gaussian():
    return gpytorch.likelihoods.GaussianLikelihood().double()


def problem(m, n, count, seed=0, labels=False):
    cells = torch.randperm(m * n, generator=generator(seed))[:count]
    values = torch.randn(count, generator=generator(seed + 1)).double()
    if labels:
        values = torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0).double()
    return mvgp.MatrixGP(ring(m), ring(n)), mvgp.ObservedMatrix(cells // n, cells % n, values, (m, n))


PRIOR, FEW = problem(12, 15, 60)
GRID = mvgp.ObservedMatrix.from_dense(torch.randn(12, 15, generator=generator(5)))
LINKS = mvgp.PositiveUnlabelled([0, 1, 2, 5], [3, 4, 5, 7], shape=(12, 15))
LABELS = problem(12, 15, 60, labels=True)[1]
MANY = problem(80, 90, 4000)


def method_of(posterior):
    report = getattr(posterior, "solve_report", None)
    if report is not None:
        return report.method
    sites = getattr(posterior, "sites", None)
    if sites is not None:
        return sites.report.approximation
    certificate = getattr(posterior, "certificate", None)
    return "l-bfgs" if certificate is None else certificate.solver


@pytest.mark.parametrize(
    ("make", "data"),
    [
        (lambda: mvgp.FullGP(PRIOR, gaussian()), FEW),
        (lambda: mvgp.FullGP(PRIOR, gaussian(), method="cg"), FEW),
        (lambda: mvgp.FullGP(PRIOR, gaussian()), GRID),
        (lambda: mvgp.FullGP(PRIOR + PRIOR, gaussian()), GRID),
        (lambda: mvgp.FullGP(MANY[0], gaussian()), MANY[1]),
        (lambda: mvgp.FullGP(PRIOR, gaussian()), LINKS),
        (lambda: mvgp.FullGP(PRIOR, BipartiteRankingLikelihood()), LABELS),
        (lambda: mvgp.FullGP(PRIOR, gpytorch.likelihoods.BernoulliLikelihood()), LABELS),
        (lambda: mvgp.TraceGP(PRIOR, gaussian(), strength=0.3), FEW),
        (lambda: mvgp.TraceGP(PRIOR, gaussian(), strength=0.3, solver="dense"), FEW),
        (lambda: mvgp.TraceGP(PRIOR, gaussian(), strength=0.3, trace_share=0.0), FEW),
        (lambda: mvgp.TraceGP(PRIOR + PRIOR, gaussian(), strength=0.3, trace_share=[1, 0]), FEW),
        (lambda: mvgp.TraceGP(PRIOR, BipartiteRankingLikelihood(), strength=0.3), LINKS),
        (lambda: mvgp.FactorGP(PRIOR, gaussian(), rank=2), FEW),
        pytest.param(lambda: mvgp.PairwiseSVM(PRIOR), LABELS, marks=pytest.mark.slow),  # imports scikit-learn
        (lambda: mvgp.PairwiseSVM(PRIOR, dense_limit=10), LABELS),
        (lambda: mvgp.PairwiseSVM(PRIOR), LINKS),
    ],
)
def test_the_method_is_the_one_that_is_used(make, data):
    model = make()
    expected = model.estimate(data)
    assert expected.method == method_of(model.fit(data))
    assert expected.seconds > 0
    assert expected.bytes > 0
    assert str(expected).startswith(type(model).__name__)
    assert str(expected).endswith(f"by {expected.method}")


def work(model, data):
    """Seconds at fixed rates, and bytes."""
    size = mvgp.models.estimates.FitSize(model.prior, data, cost.NOMINAL)
    expected = model._expected(size, data) if hasattr(model, "_expected") else None
    return expected.seconds, expected.bytes


@pytest.mark.parametrize(
    "make",
    [
        lambda prior: mvgp.FullGP(prior, gaussian()),
        lambda prior: mvgp.TraceGP(prior, gaussian()),
        lambda prior: mvgp.FactorGP(prior, gaussian(), rank=5),
    ],
)
def test_more_data_take_longer(make):
    sizes = [(40, 50, 500), (60, 70, 1000), (200, 300, 10_000), (700, 900, 60_000)]
    found = [work(make(prior), data) for prior, data in (problem(*size) for size in sizes)]
    seconds, memory = zip(*found, strict=True)
    assert list(seconds) == sorted(seconds)
    assert memory[0] < memory[1]
    assert memory[2] < memory[3]


def test_a_weaker_penalty_takes_longer():
    prior, data = problem(200, 300, 10_000)
    found = [work(mvgp.TraceGP(prior, gaussian(), strength=strength), data)[0] for strength in (0.5, 0.1, 0.02)]
    assert found == sorted(found)


def test_memory_of_a_dense_factor_is_near_what_is_allocated():
    prior, data = problem(60, 70, 1500)
    expected = mvgp.FullGP(prior, gaussian()).estimate(data).bytes
    held = mvgp.FullGP(prior, gaussian()).fit(data).conditional.solver
    kept = held.matrix.nbytes + held.chol.nbytes
    assert kept <= expected <= 4 * kept


def test_nothing_large_is_made_for_an_estimate():
    size = 200_000
    prior = mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), ring(size), row_inputs=torch.arange(size).double())
    data = mvgp.ObservedMatrix(torch.arange(1000), torch.arange(1000), torch.zeros(1000), (size, size))
    expected = mvgp.TraceGP(prior, gaussian()).estimate(data)
    assert expected.bytes > 8 * size**2  # the dense kernel of the rows
    with pytest.raises(SizeError, match=r"memory: FullGP on 1,000 observed cells .*: about .* and .* GB, by cholesky"):
        mvgp.FullGP(prior, gaussian(), memory=10**10).fit(data)


def test_a_limit_of_memory_is_kept():
    model = mvgp.FullGP(PRIOR, gaussian(), memory=1000)
    with pytest.raises(SizeError, match=r"memory: FullGP .*there are 1 MB; use TraceGP"):
        model.fit(FEW)
    with pytest.raises(InputError, match="memory"):
        mvgp.FullGP(PRIOR, gaussian(), memory=0)


def test_kernels_of_several_parts():
    inner = PrecomputedKernel(torch.eye(12).double())
    scaled = gpytorch.kernels.ScaleKernel(ring(12)).double()
    prior = mvgp.MatrixGP(scaled + inner, ConstantKernel(15))
    assert mvgp.FullGP(prior, gaussian()).estimate(FEW).method == "cholesky"


@pytest.mark.parametrize("make", [lambda p: mvgp.TraceGP(p, gaussian()), lambda p: mvgp.PairwiseSVM(p)])
def test_bad_data_are_refused(make):
    with pytest.raises(InputError, match="data: expected"):
        make(PRIOR).estimate([1, 2])
    with pytest.raises(InputError, match=r"data: expected shape \(12, 15\)"):
        make(PRIOR).estimate(MANY[1])


def test_rates_are_measured_once_and_plausible():
    first = cost.measured_rates()
    assert cost.measured_rates() is first
    assert min(first.gemm, first.factor, first.sparse, first.move, first.call) > 1e3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.01, "0.1 s"), (0.34, "0.3 s"), (12.0, "12 s"), (100.0, "1.7 min"), (7200.0, "2.0 h"), (1e6, "12 days")],
)
def test_times_in_words(seconds, text):
    assert cost.spoken_time(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(10, "1 MB"), (4e7, "40 MB"), (3.1e9, "3.1 GB"), (3.2e11, "320 GB")])
def test_sizes_in_words(size, text):
    assert cost.spoken_bytes(size) == text
