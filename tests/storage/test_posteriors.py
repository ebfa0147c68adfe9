"""A posterior from a file gives the same numbers, to the last bit, here and in another process."""

import copy
import json
import os
import pathlib
import subprocess
import sys

import gpytorch
import pytest
import torch

import mvgp
from mvgp.errors import InputError, SizeError, StorageError
from mvgp.kernels import Graph
from mvgp.posteriors import FullPosterior
from mvgp.priors import MatrixMean
from mvgp.storage import Budget, archive, save
from mvgp.storage.posterior_parts import LIKELIHOODS
from tests.storage import examples

pytestmark = pytest.mark.usefixtures("one_thread")

SCRIPT = """
import json, sys
import mvgp
from tests.storage.examples import bits
print(json.dumps({name: bits(mvgp.load(path)) for name, path in json.loads(sys.argv[1]).items()}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("name", examples.POSTERIORS)
def test_a_round_trip_changes_no_bit(name, dtype, tmp_path):
    posterior = examples.POSTERIORS[name](dtype)
    posterior.save(tmp_path / "one.mvgp")
    loaded = mvgp.load(tmp_path / "one.mvgp")
    assert type(loaded) is type(posterior)
    assert examples.bits(loaded) == examples.bits(posterior)
    loaded.save(str(tmp_path / "two.mvgp"))
    assert (tmp_path / "one.mvgp").read_bytes() == (tmp_path / "two.mvgp").read_bytes()


@pytest.mark.parametrize("trace_share", [0.8, None], ids=["trace", "sum"])
@pytest.mark.parametrize("own", [False, True], ids=["likelihood in the file", "own likelihood"])
def test_no_scale_is_learned_under_a_pointwise_likelihood_from_a_file_either(trace_share, own, tmp_path):
    """A fit refused ``calibrated``, and the same posterior from its file answered with a covariance of another scale."""

    class Own(gpytorch.likelihoods.BernoulliLikelihood):
        """Files cannot hold it."""

    prior, likelihood = examples.graphs(torch.float64), (Own if own else gpytorch.likelihoods.BernoulliLikelihood)()
    data = examples.observed().with_values((examples.observed().values > 0).double())
    options = {"strength": 0.3, "trace_share": 0.8}
    posterior = mvgp.TraceGP(
        prior if trace_share else prior + examples.graphs(torch.float64), likelihood, **options
    ).fit(data)
    posterior.save(tmp_path / "file")
    for one in (posterior, mvgp.load(tmp_path / "file")):
        with pytest.raises(InputError, match="evidence_scale: "):
            one.calibrated()


LISTED = {"listed": examples.listed, "all listed": examples.all_listed, "silent": examples.silent}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("name", [*examples.POSTERIORS, *LISTED])
def test_a_loaded_posterior_explains_the_same(name, dtype, tmp_path):
    posterior = {**examples.POSTERIORS, **LISTED}[name](dtype)
    posterior.save(tmp_path / "one.mvgp")
    loaded = mvgp.load(tmp_path / "one.mvgp")
    limits = {"atol": 1e-12, "rtol": 1e-10} if dtype == torch.float64 else {"atol": 1e-5, "rtol": 1e-4}
    for row, col in ((0, 0), (3, 4), (6, 10)):
        found, expected = loaded.explain(row, col), posterior.explain(row, col)
        order, wanted = (torch.argsort(why.rows * posterior.shape[1] + why.cols) for why in (found, expected))
        assert torch.equal(found.rows[order], expected.rows[wanted])
        assert torch.equal(found.cols[order], expected.cols[wanted])
        torch.testing.assert_close(found.shares[order], expected.shares[wanted], **limits)
        torch.testing.assert_close(found.term_shares[:, order], expected.term_shares[:, wanted], **limits)
        rest = [torch.tensor([w.score, w.prior_mean, w.unlabelled, w.residual]).double() for w in (found, expected)]
        torch.testing.assert_close(*rest, **{**limits, "atol": 10 * limits["atol"]})


def test_a_file_without_explanations_still_loads(tmp_path):
    """Files of older versions have none, and a posterior from one says so when it is asked, and saves as it is."""
    examples.POSTERIORS["trace"](torch.float64).save(tmp_path / "new")
    tree = archive.read(tmp_path / "new", Budget())
    del tree["explain"]
    archive.write(tmp_path / "old", tree)
    loaded = mvgp.load(tmp_path / "old")
    with pytest.raises(InputError, match="fit it again"):
        loaded.explain(0, 0)
    loaded.save(tmp_path / "again")
    with pytest.raises(InputError, match="fit it again"):
        mvgp.load(tmp_path / "again").explain(0, 0)


@pytest.mark.slow
def test_another_process_has_the_same_bits(tmp_path):
    made = {name: make(torch.float64) for name, make in examples.POSTERIORS.items()}
    paths = {name: str(tmp_path / f"{place}.mvgp") for place, name in enumerate(made)}
    for name, posterior in made.items():
        posterior.save(paths[name])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(paths)], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for name, posterior in made.items():
        assert found[name] == examples.bits(posterior), name


def test_whole_lists_beyond_the_limit(tmp_path):
    posterior = examples.listed()
    posterior.save(tmp_path / "file")
    assert type(mvgp.load(tmp_path / "file").conditional).__name__ == "WholeListCovariance"
    assert examples.bits(mvgp.load(tmp_path / "file")) == examples.bits(posterior)


def test_whole_lists_of_every_row(tmp_path):
    """A sum of terms, with one coefficient for each cell of whole rows, and the rows that have a list."""
    posterior = examples.all_listed()
    posterior.save(tmp_path / "file")
    loaded = mvgp.load(tmp_path / "file")
    assert loaded.conditional._listed.tolist() == list(range(examples.M))
    assert type(loaded.coefficients.pattern).__name__ == "CompleteRows"
    assert examples.bits(loaded) == examples.bits(posterior)
    for mine, theirs in zip(loaded.terms, posterior.terms, strict=True):
        assert torch.equal(mine.scores(), theirs.scores())


def test_the_terms_of_a_sum_come_back(tmp_path):
    posterior = examples.POSTERIORS["sum, trace"](torch.float64)
    posterior.save(tmp_path / "file")
    loaded = mvgp.load(tmp_path / "file")
    assert [term.rank for term in loaded.terms] == [term.rank for term in posterior.terms]
    assert loaded.penalties == posterior.penalties
    for mine, theirs in zip(loaded.terms, posterior.terms, strict=True):
        assert torch.equal(mine.scores(), theirs.scores())
    assert loaded.prior.terms[1].row_kernel.graph is not None
    assert loaded.prior.terms[1].col_kernel.graph is loaded.prior.terms[2].col_kernel.graph  # shared again


def test_a_posterior_without_covariance(tmp_path):
    posterior = examples.silent()
    posterior.save(tmp_path / "file")
    loaded = mvgp.load(tmp_path / "file")
    assert torch.equal(loaded.scores(), posterior.scores())
    with pytest.raises(SizeError, match="too large for it"):
        loaded.variance([0], [0])


def test_it_is_the_fitted_prior_that_comes_back(tmp_path):
    posterior = examples.POSTERIORS["trace, biases"](torch.float64)
    posterior.save(tmp_path / "file")
    loaded = mvgp.load(tmp_path / "file")
    assert torch.equal(loaded.prior.mean_matrix(), posterior.prior.mean_matrix())
    assert torch.equal(loaded.prior.covariance().to_dense(), posterior.prior.covariance().to_dense())
    assert str(loaded.device) == "cpu"
    assert not any(values.requires_grad for values in (loaded.coefficients.left, loaded.conditional.noise))
    assert not any(p.requires_grad for p in loaded.prior.parameters())  # a posterior is constant
    again = examples.trace(loaded.prior, examples.gaussian(), examples.observed())  # can be fitted again
    assert again.certificate.converged


def test_a_loaded_posterior_is_no_warm_start(tmp_path):
    prior, data = examples.graphs(), examples.observed()
    model = mvgp.TraceGP(prior, examples.gaussian(), strength=0.2)
    model.fit(data).save(tmp_path / "file")
    loaded = mvgp.load(tmp_path / "file")
    with pytest.raises(
        InputError, match="start: expected a posterior that was fitted in this process, got one from a file"
    ):
        model.fit(data, start=loaded)
    with pytest.raises(InputError, match="after: expected a posterior that was fitted in this process"):
        next(model.path(data, after=mvgp.models.PathPoint(0.5, loaded)))


def test_a_file_is_replaced_and_a_link_stays_a_link(tmp_path):
    first, second = (examples.POSTERIORS[name](torch.float64) for name in ("full", "trace"))
    first.save(tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    second.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert type(mvgp.load(tmp_path / "file")) is type(second)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "link"]


def assert_refused(posterior, tmp_path, match):
    with pytest.raises(InputError, match=match):
        posterior.save(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_other_posteriors_are_refused(tmp_path):
    svm = mvgp.PairwiseSVM(examples.graphs()).fit(examples.labelled())
    assert_refused(svm, tmp_path, "PairRanker cannot be saved; the posteriors of FullGP, TraceGP and FactorGP can")

    class Mine(FullPosterior):
        pass

    mine = copy.copy(examples.POSTERIORS["full"](torch.float64))
    mine.__class__ = Mine
    assert_refused(mine, tmp_path, "Mine cannot be saved")
    mine.__class__ = FullPosterior
    mine.coefficients = object()
    assert_refused(mine, tmp_path, "coefficients: SparseCoefficients and LowRankCoefficients can be saved, got object")


def test_other_parts_are_refused(tmp_path):
    posterior = examples.POSTERIORS["trace"](torch.float64)

    class MyMean(MatrixMean):
        pass

    class MyPrior(mvgp.MatrixGP):
        pass

    changed = copy.copy(posterior)
    changed.prior = copy.deepcopy(posterior.prior)
    changed.prior.mean_module = MyMean()
    assert_refused(changed, tmp_path, "MyMean cannot be saved; these means can")
    changed.prior = copy.deepcopy(posterior.prior)
    changed.prior.__class__ = MyPrior
    assert_refused(changed, tmp_path, "expected mvgp.MatrixGP and not a subclass, got MyPrior")
    changed.prior = copy.deepcopy(posterior.prior).to(torch.float16)
    assert_refused(changed, tmp_path, "a posterior can be saved in float32 or float64, got float16")
    changed.prior = copy.deepcopy(posterior.prior)
    changed.prior.row_kernel.float()
    assert_refused(
        changed, tmp_path, "row_axis.kernel.*expected torch.float64 as in the rest of the prior, got torch.float32"
    )
    changed = copy.copy(posterior)
    changed.penalty = object()
    assert_refused(changed, tmp_path, "penalty: SpectralElasticNet and TraceBall can be saved, got object")
    changed = copy.copy(posterior)
    changed.conditional = object()
    assert_refused(changed, tmp_path, "conditional: the covariances of FullGP, TraceGP and FactorGP can be saved")


def test_save_is_a_function_too(tmp_path):
    posterior = examples.POSTERIORS["full"](torch.float64)
    save(posterior, tmp_path / "file")
    assert torch.equal(mvgp.load(os.fspath(tmp_path / "file")).scores(), posterior.scores())


@pytest.mark.parametrize("name", ["full", "trace", "factor"])
def test_files_of_version_1_are_refused_in_one_line(name):
    """They were zips, written by commit d4c42ec."""
    path = pathlib.Path(__file__).parent / "old_files" / f"{name}.mvgp"
    message = (
        "expected a file of version 2, got version 1, written by mvgp 0.1.0 as a zip: fit the model again and save it, "
        "or load the file with the mvgp that wrote it"
    )
    with pytest.raises(StorageError) as caught:
        mvgp.load(path)
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize("turn", ["signs", "rotation"])
def test_factors_follow_the_eigenvectors_of_another_machine(turn, tmp_path, monkeypatch):
    posterior = examples.POSTERIORS["factor"](torch.float64)
    posterior.save(tmp_path / "file")
    eigenpairs = Graph.eigenpairs

    def turned(self, dtype, device):
        values, vectors = eigenpairs(self, dtype, device)
        if turn == "signs":
            return values, vectors * torch.tensor([-1.0, 1.0] * len(values), dtype=dtype)[: len(values)]
        return values.flip(0), vectors.flip(1)

    monkeypatch.setattr(Graph, "eigenpairs", turned)
    loaded = mvgp.load(tmp_path / "file")
    assert not torch.equal(loaded.conditional.x, posterior.conditional.x)
    for name, values in examples.numbers(posterior).items():
        if name in ("mean", "variance", "scores", "covariance", "left", "right"):
            assert torch.allclose(examples.numbers(loaded)[name], values, rtol=0, atol=1e-8), name


@pytest.mark.parametrize("kind", LIKELIHOODS)
@pytest.mark.parametrize("trace", [False, True])
def test_a_likelihood_comes_back(kind, trace, tmp_path):
    likelihood = LIKELIHOODS[kind][0]().double()
    for part in LIKELIHOODS[kind][1]:
        setattr(likelihood, part, torch.tensor(3.1 if part == "deg_free" else 0.3, dtype=torch.float64))
    matrices = [torch.eye(size, dtype=torch.float64) + 0.5 for size in (3, 4)]
    prior = mvgp.MatrixGP(*(mvgp.kernels.PrecomputedKernel(matrix) for matrix in matrices))
    data = mvgp.ObservedMatrix([0, 1, 2, 2], [1, 3, 0, 2], [1.0, 0.0, 1.0, 1.0], (3, 4))
    model = mvgp.TraceGP(prior, likelihood, strength=0.2) if trace else mvgp.FullGP(prior, likelihood)
    posterior = model.fit(data)
    posterior.save(tmp_path / "posterior.mvgp")
    loaded = mvgp.load(tmp_path / "posterior.mvgp")
    for cells in (([0, 2], [3, 1]), ([1], [1])):
        found, expected = loaded.predictive(*cells), posterior.predictive(*cells)
        torch.testing.assert_close(found.mean, expected.mean)
        torch.testing.assert_close(found.variance, expected.variance)
    if kind != "gaussian":
        assert posterior.evidence_bound < 0
        with pytest.raises(InputError, match="as it was fitted"):
            _ = loaded.evidence_bound
