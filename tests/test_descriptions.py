"""describe: equations with their numbers, the method and why, and what is refused."""

import html
import io
import re

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError
from mvgp.kernels import ConstantKernel, DiffusionKernel, FeatureKernel, Graph, GraphMaternKernel, PrecomputedKernel
from mvgp.likelihoods import (
    AxisNoiseGaussianLikelihood,
    BipartiteRankingLikelihood,
    LogPoissonLikelihood,
    OrderedSimplex,
)
from mvgp.linalg.cost import Limits
from mvgp.posteriors.covariance import ConditionalCovariance
from mvgp.prioritise import fit_prioritiser
from mvgp.prioritise.tables import LinkSet
from mvgp.priors import ProductGraphGP
from mvgp.text import Description
from tests.randomness import generator

ROWS, COLS = (Graph([(i, i + 1) for i in range(size - 1)], size) for size in (4, 6))
PRIOR = mvgp.MatrixGP(DiffusionKernel(ROWS, time=0.5, shift=0.25), DiffusionKernel(COLS))
NOISE = gpytorch.likelihoods.GaussianLikelihood().double()
NOISE.noise = 0.5
CELLS = torch.randperm(24, generator=generator(0))[:10]
DATA = mvgp.ObservedMatrix(CELLS // 6, CELLS % 6, torch.randn(10, generator=generator(1)).double(), (4, 6))
LINKS = mvgp.PositiveUnlabelled([0, 1, 2], [3, 4, 5], shape=(4, 6), row_names=list("abcd"))
RANKING = BipartiteRankingLikelihood(margin=2.0)


def said(x):
    return {name: text for name, text in mvgp.describe(x).lines}


# What is said ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "formula"),
    [
        (DiffusionKernel(ROWS, time=0.5, shift=0.25), "K = exp(-0.5 L) + 0.25 I"),
        (DiffusionKernel(ROWS, time=2.0, shift=0.0), "K = exp(-2 L)"),
        (GraphMaternKernel(ROWS, nu=1.5, reach=3.0), "K = (I + 3^2 / (2 * 1.5) L)^-1.5"),
        (mvgp.kernels.RegularizedLaplacianKernel(ROWS, scale=2.0), "K = (I + 2 L)^-1"),
        (ConstantKernel(4, variance=0.5), "K = 0.5 for any two"),
        (FeatureKernel(torch.ones(4, 2), variance=2.0), "K = 2 F F^T with features F, 4 x 2"),
        (PrecomputedKernel(torch.eye(4)), "K = a given matrix, 4 x 4"),
        (DiffusionKernel(ROWS) + ConstantKernel(4), "K = (exp(-1 L) + 1 I) + (1 for any two)"),
    ],
)
def test_a_kernel_is_a_formula(kernel, formula):
    assert said(kernel)["equation"] == formula


def test_kernels_of_gpytorch():
    kernel = gpytorch.kernels.RBFKernel()
    kernel.lengthscale = 0.5
    scaled = gpytorch.kernels.ScaleKernel(kernel)
    scaled.outputscale = 2.0
    assert said(scaled)["equation"] == "K = 2 (exp(-||x - x'||^2 / (2 l^2)) with l = 0.5)"
    assert said(gpytorch.kernels.MaternKernel(nu=2.5))["equation"].startswith(
        "K = MaternKernel with nu 2.5, lengthscale"
    )


def test_how_a_graph_kernel_is_computed():
    assert said(DiffusionKernel(ROWS))["method"] == "eigenpairs of L, computed once: at most 1,500 nodes"
    large = Graph([(0, 1)], 1501)
    assert said(DiffusionKernel(large))["method"] == "a Chebyshev polynomial of the sparse L: more than 1,500 nodes"
    assert said(DiffusionKernel(ROWS, method="chebyshev"))["method"].endswith("as asked for")
    assert said(ROWS)["size"].startswith("4 nodes, 3 links, 0 nodes without one")


def test_parameters_that_are_not_learned_are_marked():
    kernel = DiffusionKernel(ROWS, time=0.5, shift=0.0)
    kernel.raw_time.requires_grad_(False)
    assert said(kernel)["parameters"] == "shift 0 (constant), time 0.5 (constant)"


def test_priors():
    own = said(PRIOR)
    assert own["equation"] == "Z ~ GP(0, kron(K_M, K_N)), equation (1)"
    assert own["shape"] == "4 x 6, 24 cells, double precision"
    assert own["rows"].startswith("K_M = exp(-0.5 L) + 0.25 I; 4 nodes, 3 links")
    assert own["parameters"] == "rows.shift 0.25, rows.time 0.5, columns.shift 1, columns.time 1"
    axis = said(mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), PRIOR.col_kernel, torch.rand(4, 3)).row_axis)
    assert axis["shape"] == "4 x 4, inputs 4 x 3"
    total = said(sum([PRIOR] * 10))
    assert total["equation"].startswith("Z = Z_1 + ... + Z_10,")
    assert total["term 8"] == "rows exp(-0.5 L) + 0.25 I; columns exp(-1 L) + 1 I"
    assert total[""] == "and 2 more terms"
    product = said(ProductGraphGP(ROWS, COLS, offset=2.0, power=1.5))
    assert "1 (I + L / 2)^-1.5" in product["equation"]
    assert product["columns"].startswith("6 nodes")


def test_likelihoods():
    assert said(NOISE)["equation"] == "r_mn = Z_mn + e_mn, e_mn ~ N(0, 0.5 / w_mn), equation (1)"
    assert said(AxisNoiseGaussianLikelihood(4, noise=0.5))["rows a"] == "all 0"
    assert said(gpytorch.likelihoods.FixedNoiseGaussianLikelihood(torch.tensor([1.0, 2.0])))["noise s"] == (
        "2 numbers from 1 to 2"
    )
    assert "next lower one + 2" in said(RANKING)["targets"]
    assert "equation (9)" in said(RANKING)["equation"]
    assert "sum 1" in said(BipartiteRankingLikelihood(target=OrderedSimplex()))["targets"]
    assert said(LogPoissonLikelihood())["equation"].startswith("y ~ Poisson(exp(z))")
    assert said(gpytorch.likelihoods.StudentTLikelihood())["parameters"].startswith("deg_free")


def test_penalties():
    assert said(mvgp.SpectralElasticNet(2.0, 0.75))["equation"] == "h(B) = 0.25 ||B||_F^2 + 1.5 ||B||_*"
    assert said(mvgp.SpectralElasticNet(0.0, 1.0))["equation"] == "h(B) = 0"
    assert said(mvgp.TraceBall(3.0, ridge=0.5))["equation"] == "h(B) = 0.25 ||B||_F^2 subject to ||B||_* <= 3"


def test_data():
    assert said(DATA)["shape"].startswith("4 x 6, 10 observed (41.67%) in")
    assert said(DATA)["weights"] == "all 1"
    merged = mvgp.ObservedMatrix([0, 0], [1, 1], [0.5, 1.5], (4, 6), replicates="merge")
    assert said(merged)["shape"].endswith("merged from 2 measurements")
    assert said(mvgp.ObservedMatrix([], [], [], (4, 6)))["values"] == "none"
    assert said(LINKS)["lists"] == "3 of 6 items, 18 cells in all; rows with a link have one"
    assert said(LINKS)["names"] == "rows"


def test_models():
    trace = said(mvgp.TraceGP(PRIOR, NOISE, strength=0.2, trace_share=0.5))
    assert "equation (5)" in trace["mean"]
    assert trace["penalty"].startswith("h(B) = lam_max (0.05 ||B||_F^2 + 0.1 ||B||_*)")
    assert trace["method"].endswith("equation (11), is 1e-04")
    assert "equation (6)" in said(mvgp.TraceGP(PRIOR, NOISE, penalty=mvgp.TraceBall(1.0)))["mean"]
    terms = said(mvgp.TraceGP(PRIOR + PRIOR, NOISE, strength=[0.1, 0.2], trace_share=[1, 0]))
    assert terms["penalty"] == "lam 0.1 lam_max, alpha 1; lam 0.2 lam_max, alpha 0"
    assert "equation (13)" in terms["method"]
    assert "Cholesky up to 3,000 observed cells" in said(mvgp.FullGP(PRIOR, NOISE))["method"]
    assert said(mvgp.FullGP(PRIOR, NOISE, method="cg"))["method"].startswith("cg, as asked for")
    pointwise = said(mvgp.FullGP(PRIOR, gpytorch.likelihoods.BernoulliLikelihood(), approximation="laplace"))
    assert pointwise["approximation"].startswith("laplace")
    assert "with 3 factors, equation (7)" in said(mvgp.FactorGP(PRIOR, NOISE, 3))["mean"]
    assert "(newton)" in said(mvgp.PairwiseSVM(PRIOR))["equation"]
    assert "(newton)" not in said(mvgp.PairwiseSVM(PRIOR, solver="svc"))["equation"]


def test_a_plain_posterior():
    posterior = mvgp.FullGP(PRIOR, NOISE).fit(DATA)
    own = said(posterior)
    assert own["shape"] == "4 x 6, 10 observed cells, double precision"
    assert own["covariance"] == "equation (3), by Cholesky: 10 observed cells, at most 3,000"
    assert own["solved"].startswith("by cholesky: relative residual")
    assert "MISSES" not in own["solved"]
    assert said(posterior.rescaled(2.0))["covariance"].startswith("2 times equation (3)")
    assert said(posterior.rescaled(2.0))["noise"] == "1 for weight 1"


def test_why_a_covariance_is_computed_as_it_is():
    posterior = mvgp.FullGP(PRIOR, NOISE).fit(DATA)
    inner = posterior.conditional
    options = {"tolerance": 1e-8, "limits": Limits(cholesky=5)}
    posterior.conditional = ConditionalCovariance(inner.terms, inner.pairs, inner.noise, **options)
    assert said(posterior)["covariance"] == (
        "equation (3), by conjugate gradients: 10 observed cells, more than 5; Cholesky up to 12,000 where many "
        "variances are asked for"
    )
    grid = mvgp.ObservedMatrix.from_dense(torch.randn(4, 6, generator=generator(3)))
    assert "eigenpairs" in said(mvgp.FullGP(PRIOR, NOISE).fit(grid))["covariance"]
    assert said(mvgp.FullGP(PRIOR, NOISE, method="cg").fit(DATA))["covariance"].endswith("by cg, as asked for")


def test_a_trace_posterior():
    posterior = mvgp.TraceGP(PRIOR, NOISE, strength=0.2).fit(DATA)
    own = said(posterior)
    assert own["mean"].endswith(f"equation (5), rank {posterior.rank}, ||B||_* = {posterior.trace_norm:.4g}")
    assert f"relative gap {posterior.certificate.relative_gap:.1e}, within 1e-04" in own["certificate"]
    missed = mvgp.mean.Certificate(2.0, 1.0, 1e-4, 5, 1, "proximal", 1e-8)
    assert missed.in_words().startswith("relative gap 5.0e-01, MISSES 1e-04: objective 2, lower bound 1")
    assert missed.in_words().endswith("a chance of 1e-08")


def test_other_posteriors():
    terms = said(mvgp.TraceGP(PRIOR + PRIOR, RANKING, trace_share=[1, 0]).fit(LINKS))
    assert terms["mean 2"].endswith("full rank")
    assert terms["shape"].startswith("4 x 6, 3 links, 18 cells of whole lists")
    assert "coefficient for each observed cell" in said(mvgp.FullGP(PRIOR, RANKING).fit(LINKS))["mean"]
    fitted = mvgp.FactorGP(PRIOR, NOISE, 2, restarts=2).fit(DATA)  # of rank 2, or less: a factor may vanish
    unknowns = fitted.rank * sum(PRIOR.shape)
    assert said(fitted)["covariance"] == f"Laplace's approximation, by a Hessian of {unknowns} unknowns"
    labels = DATA.with_values(torch.where(torch.arange(10) % 2 == 0, 1.0, -1.0).double())
    machine = said(mvgp.PairwiseSVM(PRIOR, solver="newton").fit(labels))
    assert machine["covariance"].startswith("none: a support vector machine")
    assert "noise" not in machine
    sites = said(mvgp.FullGP(PRIOR, gpytorch.likelihoods.BernoulliLikelihood()).fit(labels))
    assert sites["approximation"].startswith("variational, equations to")


def test_a_fitted_prioritiser():
    links = LinkSet("abcd", "uvwxyz", [0, 0, 1, 2], [0, 1, 1, 2], ROWS, COLS)
    trace = fit_prioritiser(links, model="trace", strength=0.1, negatives=2)
    assert said(trace)["fits"].startswith("2, one for each set")
    assert "equation (5)" in said(trace)["mean"]
    auto = fit_prioritiser(links)
    assert said(auto)["data"] == "4 x 6, 4 known links"
    assert said(auto.rankers[0])["1 known link"] == "1 mixture"
    assert "<table" in auto._repr_html_()


# How it is shown -------------------------------------------------------------------------------------


class TestDescription:
    text = Description("a <b> title", (("name", "x < y & z " + "word " * 40), ("empty", "")))

    def test_as_plain_text(self):
        title, *lines = str(self.text).splitlines()
        assert title == "a <b> title"
        assert lines[0].startswith("  name   x < y & z word")
        assert max(map(len, lines)) <= 100
        assert str(self.text).isascii()
        assert repr(self.text) == str(self.text)

    def test_as_html(self):
        page = self.text._repr_html_()
        assert "<b>" not in page
        assert html.escape("x < y & z ") in page
        assert re.findall(r"<(\w+)", page)[:3] == ["table", "caption", "tbody"]

    def test_in_a_terminal(self):
        console = pytest.importorskip("rich.console").Console(width=60, record=True, file=io.StringIO())
        console.print(Description("[red]title", (("[bold]name", "[link]text"),)))
        shown = console.export_text()
        assert "[red]title" in shown
        assert "[bold]name  [link]text" in shown


@pytest.mark.parametrize(
    "thing",
    [PRIOR, PRIOR + PRIOR, mvgp.TraceGP(PRIOR, NOISE), mvgp.PairwiseSVM(PRIOR), mvgp.FullGP(PRIOR, NOISE).fit(DATA)],
)
def test_notebooks_show_it_and_names_stay_short(thing):
    assert thing._repr_html_() == mvgp.describe(thing)._repr_html_()
    assert len(repr(thing)) < 80
    assert repr(thing).startswith(f"{type(thing).__name__}(4 x 6")


@pytest.mark.parametrize(("thing", "came"), [(3, "int"), (None, "NoneType"), (mvgp.TraceGP, "the class TraceGP")])
def test_others_are_refused_by_name(thing, came):
    with pytest.raises(InputError, match=f"describe: expected a kernel .* prioritiser, got {came}$"):
        mvgp.describe(thing)


def test_users_can_add_their_own():
    class Own:
        pass

    @mvgp.describe.register
    def _(x: Own) -> Description:
        return Description("own", (("equation", "1 = 1"),))

    assert said(Own()) == {"equation": "1 = 1"}
