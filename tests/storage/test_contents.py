"""A file whose hashes are all right, but whose contents are not: each part is checked before it is used."""

import itertools
import math

import gpytorch.kernels as theirs
import pytest
import torch

import mvgp
from mvgp.errors import ConvergenceError, StorageError
from mvgp.storage import archive
from mvgp.storage.registry import describe_part
from tests.storage import examples


def content_of(name, tmp_path):
    examples.POSTERIORS[name](torch.float64).save(tmp_path / "file")
    return archive.read(tmp_path / "file")


def at(*path):
    """Change what is at a place, by a function of it."""

    def change(tree, function):
        for key in path[:-1]:
            tree = tree[key]
        tree[path[-1]] = function(tree[path[-1]])

    return change


ROWS, COLS = at("coefficients", "rows"), at("coefficients", "cols")
GRAPH = ("prior", "row", "kernel", "own", "graph")
SHIFT = ("prior", "row", "kernel", "parameters", "raw_shift")


def other_pairs(pairs):
    """As many distinct pairs, row by row: the first is left out, and the first free cell is in."""
    taken = set(zip(pairs["rows"].tolist(), pairs["cols"].tolist(), strict=True))
    free = next(cell for cell in itertools.product(range(examples.M), range(examples.N)) if cell not in taken)
    rows, cols = zip(*sorted((taken - {min(taken)}) | {free}), strict=True)
    return {"rows": torch.tensor(rows), "cols": torch.tensor(cols)}


WRONG = {
    "row too large": ("full, cg", ROWS, lambda x: x + 1, r"coefficients.rows: expected positions in \[0, 7\)"),
    "row negative": ("full, cg", ROWS, lambda x: x - 1, "coefficients.rows: expected positions"),
    "rows as floats": ("full, cg", ROWS, lambda x: x.double(), "expected an array of torch.int64, got torch.float64"),
    "fewer columns": ("full, cg", COLS, lambda x: x[1:], r"cols: expected an array of shape \(40\), got \(39,\)"),
    "not sorted": ("full, cg", at("coefficients"), lambda c: {k: v.flip(0) if k != "kind" else v for k, v in c.items()}, "row by row"),
    "values": ("full, cg", at("coefficients", "values"), lambda x: x.float(), "expected an array of torch.float64"),
    "no pairs": ("full, cg", at("covariance", "pairs"), lambda _: None, "pairs: expected named parts, got NoneType"),
    "pairs": ("full, cg", at("covariance", "pairs", "cols"), lambda x: x + 5, "pairs.cols: expected positions"),
    "noise": ("full, cg", at("covariance", "noise"), lambda x: -x, "noise: expected variances that are not negative"),
    "noise, infinite": ("full, cg", at("covariance", "noise"), lambda x: x / 0, "noise: expected finite numbers"),
    "noise, shape": ("full, cg", at("covariance", "noise"), lambda x: x.expand(3), r"noise: expected an array of shape \(40\)"),
    "tolerance": ("full, cg", at("covariance", "tolerance"), lambda _: 0, "tolerance: expected a positive number"),
    "tolerance, nan": ("full, cg", at("covariance", "tolerance"), lambda _: float("nan"), "expected a positive number"),
    "method": ("full, cg", at("covariance", "method"), lambda _: "guess", "expected one of auto, cholesky, spectral, cg"),
    "iterations": ("full, cg", at("covariance", "max_iterations"), lambda _: 0, "expected a whole number from 1"),
    "covariance": ("full, cg", at("covariance", "kind"), lambda _: "laplace", "covariance: expected a part 'x'"),
    "kind": ("full, cg", at("kind"), lambda _: "PairRanker", "kind: expected one of FullPosterior"),
    "other kind": ("full, cg", at("kind"), lambda _: "FactorPosterior", "expected that of a FactorPosterior, got Cond"),
    "dtype": ("full, cg", at("prior", "dtype"), lambda _: "float32", "expected an array of torch.float32"),
    "kernel": ("full, cg", at("prior", "row", "kernel", "kind"), lambda _: "Kernel", "expected one of DiffusionKernel"),
    "graph, ends": ("full, cg", at(*GRAPH, "ends"), lambda x: x + 6, "ends: expected positions"),
    "graph, starts": ("full, cg", at(*GRAPH, "starts"), lambda x: x.flip(0), "starts: expected ascending numbers"),
    "graph, first": ("full, cg", at(*GRAPH, "starts"), lambda x: x + 1, "starts: expected ascending numbers"),
    "graph, empty": ("full, cg", at(*GRAPH, "starts"), lambda x: x[:0], "expected"),
    "graph, weights": ("full, cg", at(*GRAPH, "weights"), lambda x: -x, "weights.0.: expected a finite number that is not"),
    "parameters": ("full, cg", at("prior", "row", "kernel", "parameters"), lambda _: {}, "expected .'raw_shift', 'raw_time'"),
    "shape": ("full, cg", at(*SHIFT, "values"), lambda x: x.expand(2), r"expected an array of shape \(\), got \(2,\)"),
    "no constraint": ("full, cg", at(*SHIFT, "constraint"), lambda _: None, "raw_shift: expected a constraint, got none"),
    "bounds": ("full, cg", at(*SHIFT, "constraint", "upper"), lambda x: x * 0, "expected lower < upper"),
    "bound": ("full, cg", at(*SHIFT, "constraint", "lower"), lambda x: x.expand(2), "expected a bound of"),
    "constraint": ("full, cg", at(*SHIFT, "constraint", "kind"), lambda _: "Odd", "expected one of Positive"),
    "flag": ("full, cg", at(*SHIFT, "requires_grad"), lambda _: 1, "requires_grad: expected true or false, got 1"),
    "ard": ("full", at("prior", "col", "kernel", "ard_num_dims"), lambda _: 10**12, "expected a whole number from 1 to"),
    "ard on nodes": ("full, cg", at("prior", "row", "kernel", "ard_num_dims"), lambda _: 2, "without ard_num_dims"),
    "active": ("full", at("prior", "col", "kernel", "active_dims"), lambda _: [-1], "active_dims.0.: expected a whole number"),
    "active, beyond": ("full", at("prior", "col", "kernel", "active_dims"), lambda _: [2], "active_dims: expected columns of the 2"),
    "inputs": ("full", at("prior", "col", "inputs"), lambda x: x[0], "inputs: expected an array of shape .any, any."),
    "inputs, infinite": ("full", at("prior", "col", "inputs"), lambda x: x / 0, "expected a saved posterior, got InputError"),
    "inputs, gone": ("full", at("prior", "col", "inputs"), lambda _: None, "InputError: col_inputs: RBFKernel needs inputs"),
    "factors": ("trace", at("own", "mean", "left"), lambda x: x[:, :1], "own.mean.left: expected an array of shape"),
    "images": ("trace", at("own", "mean", "right_image"), lambda x: x[1:], "right_image: expected an array of shape"),
    "left": ("trace", at("coefficients", "left"), lambda x: x[1:], r"left: expected an array of shape \(7, any\)"),
    "penalty": ("trace", at("own", "penalty", "alpha"), lambda _: 2, "InputError: alpha: expected a number from 0 to 1"),
    "certificate": ("trace", at("own", "certificate", "primal"), lambda _: "1", "primal: expected a number, got '1'"),
    "solver": ("trace", at("own", "certificate", "solver"), lambda _: 1, "solver: expected a text, got 1"),
    "row bias": ("trace", at("prior", "mean", "parameters", "raw_bias", "values"), lambda x: x / 0, "expected finite"),
    "given mean": ("trace, biases", at("prior", "mean", "own", "base", "own", "matrix"), lambda x: x.T, "matrix: expected an"),
    "bias": ("trace, biases", at("prior", "mean", "own", "col_bias"), lambda x: x[1:], "col_bias: expected an array of"),
    "x": ("factor", at("covariance", "x"), lambda x: x[1:], "covariance.x: expected an array of shape"),
    "values, nan": ("full, cg", at("coefficients", "values"), lambda x: x * math.nan, "coefficients.values: expected finite"),
    "values, huge": ("full, cg", at("coefficients", "values"), lambda x: x * 1e300, "expected means that fit in torch.float64"),
    "left, nan": ("trace", at("coefficients", "left"), lambda x: x * math.nan, "coefficients.left: expected finite numbers"),
    "right, infinite": ("trace", at("coefficients", "right"), lambda x: x / 0, "coefficients.right: expected finite numbers"),
    "other left": ("trace", at("coefficients", "left"), lambda x: 2 * x, "own.mean: expected the factors of the coefficients"),
    "values of the mean": ("trace", at("own", "mean", "values"), lambda x: -x, "mean.values: expected singular values, descending"),
    "image, nan": ("trace", at("own", "mean", "left_image"), lambda x: x * math.nan, "left_image: expected finite numbers"),
    "other image": ("trace", at("own", "mean", "right_image"), lambda x: -x, "right_image: expected the kernel times right"),
    "no factors": ("trace", at("own", "mean"), lambda _: None, "mean: expected the factors of a mean of low rank, got none"),
    "rank": ("trace", at("own", "certificate", "rank"), lambda rank: rank + 1, r"certificate.rank: expected \d+, got \d+"),
    "primal": ("trace", at("own", "certificate", "primal"), lambda _: math.nan, "primal: expected a finite number"),
    "primal, whole": ("trace", at("own", "certificate", "primal"), lambda _: 10**400, "primal: expected a finite number"),
    "solver, escape": ("trace", at("own", "certificate", "solver"), lambda _: "\x1b[2J", "solver: expected a text of up to 100"),
    "scale": ("trace", at("own", "evidence_scale"), lambda _: math.inf, "evidence_scale: expected a finite number"),
    "something more": ("trace", at("own"), lambda own: {**own, "more": 1}, "own: expected the parts .* got .'more'."),
    "residual": ("full, cg", at("own", "solve_report", "residual"), lambda _: -1.0, "residual: expected a number of at least 0"),
    "raw, nan": ("full, cg", at(*SHIFT, "values"), lambda x: x * math.nan, "raw_shift.values: expected finite numbers, got nan"),
    "raw, infinite": ("full, cg", at(*SHIFT, "values"), lambda x: x * 0 + math.inf, "raw_shift.values: expected finite numbers"),
    "raw, minus infinity": ("full, cg", at("prior", "row", "kernel", "parameters", "raw_time", "values"), lambda x: x * 0 - math.inf, "raw_time.values: expected finite"),
    "lengthscale": ("full", at("prior", "col", "kernel", "parameters", "raw_lengthscale", "values"), lambda x: x * 0 - 1e4, "raw_lengthscale.values: expected numbers within their constraint, got 0.0"),
    "bound, infinite": ("full, cg", at(*SHIFT, "constraint", "lower"), lambda x: x - math.inf, "lower: expected a finite bound of Positive"),
    "negative": ("full, cg", at(*SHIFT, "constraint"), lambda c: {"kind": "LessThan", "lower": c["lower"] - math.inf, "upper": c["lower"] - 1}, "raw_shift: expected a number that is not negative"),
    "graph, below": ("full, cg", at(*GRAPH), lambda g: {**g, "ends": g["ends"] * 0}, "expected links above the diagonal"),
    "graph, far": ("full, cg", at(*GRAPH, "starts"), lambda x: torch.cat([x[:1], x[1:-1] + 2**40, x[-1:]]), "starts: expected ascending"),
    "graph, tolerance": ("full, cg", at("prior", "row", "kernel", "own", "tolerance"), lambda _: 0.0, "tolerance: expected a positive number"),
    "pairs, twice": ("full", at("covariance", "pairs"), lambda p: {k: torch.cat([v[:1], v[:-1]]) for k, v in p.items()}, "pairs: expected distinct pairs, row by row"),
    "other pairs": ("full", at("covariance", "pairs"), other_pairs, "expected the pairs that the covariance is given"),
    "noise, zero": ("full", at("covariance", "noise"), lambda x: x * 0, "noise: expected positive variances, got 0"),
    "noise, tiny": ("full", at("covariance", "noise"), lambda x: x * 0 + 1e-300, "expected variances that fit"),
    "spectral": ("full", at("covariance", "method"), lambda _: "spectral", "method: expected another than spectral"),
    "one iteration": ("full, cg", at("covariance", "max_iterations"), lambda _: 1, "expected a posterior that answers, got ConvergenceError"),
    "out of reach": ("full, cg", at("covariance", "tolerance"), lambda _: 1e-300, "tolerance: expected a number from 2.2e-16 to 1"),
    "inputs, other type": ("full", at("prior", "col", "inputs"), lambda x: x.float(), "inputs: expected torch.float64 or whole numbers"),
    "x, nan": ("factor", at("covariance", "x"), lambda x: x * math.nan, "covariance.x: expected finite numbers"),
    "other x": ("factor", at("covariance", "x"), lambda x: 2 * x, "expected factors whose product is the mean"),
    "other rank": ("factor", at("own", "rank"), lambda _: 1, "rank: expected 2 as in its factors, got 1"),
    "explained values": ("trace", at("explain", "terms"), lambda t: [{**t[0], "values": t[0]["values"][1:]}], "values: expected an array of shape"),
    "explained values, nan": ("trace", at("explain", "terms"), lambda t: [{**t[0], "values": t[0]["values"] * math.nan}], "values: expected finite"),
    "explained values, huge": ("trace", at("explain", "terms"), lambda t: [{**t[0], "values": t[0]["values"] * 1e307, "gains": t[0]["gains"] * 1e307}], "another explanation"),
    "gains": ("trace", at("explain", "terms"), lambda t: [{**t[0], "gains": -t[0]["gains"]}], "gains: expected numbers that are not negative"),
    "gains of another rank": ("factor", at("explain", "terms"), lambda t: [{**t[0], "gains": t[0]["gains"][1:]}], "gains: expected an array of shape"),
    "totals": ("factor", at("explain", "terms"), lambda t: [{**t[0], "totals": t[0]["totals"] / 0}], "totals: expected finite"),
    "totals of another type": ("factor", at("explain", "terms"), lambda t: [{**t[0], "totals": t[0]["totals"].float()}], "totals: expected an array of torch.float64"),
    "explained terms": ("trace", at("explain", "terms"), lambda t: [*t, *t], "explain.terms: expected 1 as there are coefficients, got 2"),
    "explained without numbers": ("trace", at("explain", "terms"), lambda _: [None], r"explain.terms\[0\]: expected parts just for"),
    "explained with numbers": ("full", at("explain", "terms"), lambda _: [{}], r"explain.terms\[0\]: expected parts just for"),
    "known links": ("trace, whole lists", at("explain", "pairs"), lambda p: {k: x.flip(0) for k, x in p.items()}, "pairs: expected distinct pairs, row by row"),
    "known links, fewer": ("trace, whole lists", at("explain", "pairs", "rows"), lambda x: x[1:], "expected as many rows as columns"),
    "known links, outside": ("trace, whole lists", at("explain", "pairs", "cols"), lambda x: x + 10**6, r"cols: expected positions in \[0, 11\)"),
    "known links without a list": ("sum, trace, whole lists", at("explain", "pairs"), lambda p: {"rows": p["rows"] * 0 + 6, "cols": p["cols"] * 0 + torch.arange(len(p["cols"]))}, "pairs: expected links inside the lists"),
    "lists": ("trace", at("explain", "lists"), lambda _: 1, "lists: expected true or false, got 1"),
    "other known pairs": ("full", at("explain", "pairs"), lambda _: {"rows": torch.tensor([0]), "cols": torch.tensor([0])}, "pairs: expected those of the coefficients, got 1"),
    "explained, more": ("trace", at("explain"), lambda own: {**own, "more": 1}, "explain: expected the parts .* got .'more'."),
    "objective": ("factor", at("own", "objective"), lambda _: math.nan, "objective: expected a finite number"),
    "restarts": ("factor", at("own", "restarts"), lambda _: {}, "restarts: expected a list, got {}"),
    "restart": ("factor", at("own", "restarts"), lambda _: [None], r"restarts\[0\]: expected a number, got None"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_each_part_is_checked(name, tmp_path):
    which, change, function, message = WRONG[name]
    tree = content_of(which, tmp_path)
    change(tree, function)
    archive.write(tmp_path / "changed", tree)
    with pytest.raises(StorageError, match=message) as caught:
        mvgp.load(tmp_path / "changed")
    assert str(caught.value).startswith(f"{tmp_path / 'changed'}: ")


def test_a_positive_parameter_is_not_zero(tmp_path):
    """A raw number far below 0 stands for 0, with which an RBF kernel has no answer at new inputs."""
    tree = content_of("full", tmp_path)
    kernel = theirs.RBFKernel().double()
    kernel.raw_lengthscale.data.fill_(-1e8)
    tree["prior"]["col"]["kernel"] = describe_part(kernel, "kernel")
    archive.write(tmp_path / "file", tree)
    with pytest.raises(StorageError, match="expected numbers within their constraint, got 0.0"):
        mvgp.load(tmp_path / "file")


def test_a_kernel_that_is_no_covariance_on_its_inputs(tmp_path):
    """Distances along a line and a cosine are one, those in the plane are not."""
    tree = content_of("full", tmp_path)
    cosine = theirs.CosineKernel().double()
    tree["prior"]["col"]["kernel"] = describe_part(cosine, "kernel")
    archive.write(tmp_path / "file", tree)
    with pytest.raises(StorageError, match="prior.col: expected a positive semi-definite matrix"):
        mvgp.load(tmp_path / "file")
    assert isinstance(mvgp.load(tmp_path / "file", trial=False), mvgp.GaussianPosterior)


def test_a_posterior_that_does_not_answer_can_still_be_had(tmp_path):
    tree = content_of("full, cg", tmp_path)
    tree["covariance"]["max_iterations"] = 1
    archive.write(tmp_path / "file", tree)
    loaded = mvgp.load(tmp_path / "file", trial=False)
    assert bool(torch.isfinite(loaded.scores()).all())
    with pytest.raises(ConvergenceError):
        loaded.sample([0], [0])


def test_a_precomputed_matrix_has_to_be_symmetric(tmp_path):
    prior = mvgp.MatrixGP(examples.precomputed(examples.M), examples.precomputed(examples.N))
    mvgp.FullGP(prior, examples.gaussian()).fit(examples.observed()).save(tmp_path / "file")
    tree = archive.read(tmp_path / "file")
    tree["prior"]["row"]["kernel"]["own"]["matrix"][0, 1] += 1
    archive.write(tmp_path / "file", tree)
    with pytest.raises(StorageError, match="matrix: expected a symmetric matrix"):
        mvgp.load(tmp_path / "file")


def test_sums_that_are_empty_or_endless(tmp_path):
    tree = content_of("full, cg", tmp_path)
    kernel = {
        "kind": "AdditiveKernel",
        "active_dims": None,
        "ard_num_dims": None,
        "parameters": {},
        "own": {"kernels": []},
    }
    tree["prior"]["row"]["kernel"] = kernel
    archive.write(tmp_path / "file", tree)
    with pytest.raises(StorageError):
        mvgp.load(tmp_path / "file")
    for deep, message in (
        (12, "expected kernels in at most 8 others, got more"),
        (100, "more than 100 parts inside one another"),
    ):
        inner = kernel
        for _ in range(deep):
            inner = {**kernel, "own": {"kernels": [inner]}}
        tree["prior"]["row"]["kernel"] = inner
        archive.write(tmp_path / "file", tree)
        with pytest.raises(StorageError, match=message):
            mvgp.load(tmp_path / "file")
