"""A file whose hashes are all right, but whose contents are not: each part is checked before it is used."""

import io
import zipfile

import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import StorageError
from mvgp.storage import archive

from . import examples


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
        "own": {"parts": []},
    }
    tree["prior"]["row"]["kernel"] = kernel
    archive.write(tmp_path / "file", tree)
    with pytest.raises(StorageError):
        mvgp.load(tmp_path / "file")
    for deep, message in ((12, "expected kernels in at most 8 others, got more"), (100, "up to 100 deep, got deeper")):
        inner = kernel
        for _ in range(deep):
            inner = {**kernel, "own": {"parts": [inner]}}
        tree["prior"]["row"]["kernel"] = inner
        archive.write(tmp_path / "file", tree)
        with pytest.raises(StorageError, match=message):
            mvgp.load(tmp_path / "file")


def test_files_beyond_four_gigabytes_have_another_header(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 300)
    posterior = examples.POSTERIORS["full"](torch.float64)
    posterior.save(tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    assert b"PK\x06\x06" in data  # the directory of a large zip
    assert torch.equal(mvgp.load(tmp_path / "file").scores(), posterior.scores())
    with zipfile.ZipFile(io.BytesIO(data)) as plain:
        found = np.load(io.BytesIO(plain.read("arrays/coefficients.values.npy")))
    assert np.array_equal(found, posterior.coefficients.values.numpy())
