"""What a file may cost is checked before it is spent: counts and bytes, not seconds. And what is no file is refused."""

import os
import pathlib
import stat

import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import InputError, SizeError, StorageError
from mvgp.kernels import DiffusionKernel, Graph, graph
from mvgp.linalg import chebyshev
from mvgp.storage import Budget, archive, fields, priors, registry
from tests import randomness
from tests.storage import examples
from tests.storage.forgery import arrays, built, forged, manifest


@pytest.fixture(scope="module")
def posteriors():
    return {
        name: examples.POSTERIORS[name](torch.float64) for name in ("full", "full, cg", "trace, features", "factor")
    }


@pytest.fixture
def tree(posteriors, tmp_path):
    def found(name):
        posteriors[name].save(tmp_path / "file")
        return archive.read(tmp_path / "file")

    return found


def written(tree, tmp_path):
    archive.write(tmp_path / "changed", tree)
    return tmp_path / "changed"


def test_the_usual_budget_is_enough(posteriors, tmp_path):
    for posterior in posteriors.values():
        posterior.save(tmp_path / "file")
        assert torch.equal(mvgp.load(tmp_path / "file", budget=Budget()).scores(), posterior.scores())


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"file_bytes": 1000}, "at most 1,000 file bytes, got"),
        ({"manifest_bytes": 100}, "manifest: expected at most 100 manifest bytes, got"),
        ({"values": 10}, "manifest: expected at most 10 values, got"),
        ({"arrays": 3}, "expected at most 3 arrays, got"),
        ({"kernels": 3}, "expected at most 3 kernels, got 4"),
        ({"memory_bytes": 1000}, "expected at most 1,000 memory bytes, got"),
        ({"operations": 1000}, "expected at most 1,000 operations, got"),
        ({"iterations": 10}, "max_iterations: expected at most 10 iterations, got"),
    ],
)
def test_each_limit_refuses_and_says_how_to_raise_it(posteriors, tmp_path, budget, message):
    posteriors["trace, features"].save(tmp_path / "file")
    with pytest.raises(StorageError, match=message) as caught:
        mvgp.load(tmp_path / "file", budget=Budget(**budget))
    assert f"budget=mvgp.storage.Budget({next(iter(budget))}=...)" in str(caught.value)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "9", None])
def test_a_limit_is_a_positive_whole_number(wrong):
    with pytest.raises(InputError, match="kernels: expected a positive whole number, got"):
        Budget(kernels=wrong)


def test_wrong_arguments(posteriors, tmp_path):
    posteriors["full"].save(tmp_path / "file")
    with pytest.raises(InputError, match=r"budget: expected mvgp.storage.Budget, got int"):
        mvgp.load(tmp_path / "file", budget=3)
    with pytest.raises(InputError, match="trial: expected True or False, got 1"):
        mvgp.load(tmp_path / "file", trial=1)


@pytest.mark.slow
def test_many_kernels_are_counted_before_they_are_built(tree, tmp_path, monkeypatch):
    content = tree("full, cg")
    one = content["prior"]["row"]["kernel"]
    wide = {"kind": "AdditiveKernel", "active_dims": None, "ard_num_dims": None, "parameters": {}}
    content["prior"]["row"]["kernel"] = {**wide, "own": {"kernels": [one] * 3000}}
    made, restore = [], registry.restore_parameters
    monkeypatch.setattr(registry, "restore_parameters", lambda *args, **options: made.append(restore(*args, **options)))
    with pytest.raises(StorageError, match="expected at most 256 kernels, got 257"):
        mvgp.load(written(content, tmp_path))
    assert len(made) < 256


@pytest.mark.slow
def test_kernels_are_counted_over_both_sides(tree, tmp_path):
    content = tree("full, cg")
    wide = {"kind": "AdditiveKernel", "active_dims": None, "ard_num_dims": None, "parameters": {}}
    for side in ("row", "col"):
        one = content["prior"][side]["kernel"]
        content["prior"][side]["kernel"] = {**wide, "own": {"kernels": [one] * 200}}
    with pytest.raises(StorageError, match="expected at most 256 kernels, got 257"):
        mvgp.load(written(content, tmp_path))


def test_features_of_a_width_that_is_only_said(tree, tmp_path, monkeypatch):
    content = tree("trace, features")
    content["prior"]["col"]["kernel"]["own"]["kernels"][1]["own"]["width"] = 10**9
    path = written(content, tmp_path)
    monkeypatch.setattr(priors.sparse, "csr_array", lambda *_args, **_options: pytest.fail("was built"))
    with pytest.raises(StorageError, match="memory bytes, got 32,"):
        mvgp.load(path)


def test_dimensions_that_are_only_said(tree, tmp_path, monkeypatch):
    content = tree("full")
    content["prior"]["col"]["kernel"]["ard_num_dims"] = 10**6
    monkeypatch.setattr(priors.theirs.RBFKernel, "__init__", lambda *_args, **_options: pytest.fail("was built"))
    with pytest.raises(StorageError, match="ard_num_dims: expected at most 2, the columns of the inputs, got 1000000"):
        mvgp.load(written(content, tmp_path))


def test_eigenpairs_of_a_graph_of_empty_rows(tree, tmp_path, monkeypatch):
    """120 kilobytes that ask for gigabytes."""
    content = tree("full, cg")
    own = content["prior"]["row"]["kernel"]["own"]
    own["method"] = "eigen"
    own["graph"] = {
        "starts": torch.zeros(15_001, dtype=torch.int64),
        "ends": torch.zeros(0, dtype=torch.int64),
        "weights": torch.zeros(0, dtype=torch.float64),
    }
    monkeypatch.setattr(graph.Graph, "eigenpairs", lambda *_: pytest.fail("was computed"))
    with pytest.raises(StorageError, match="memory bytes, got|operations, got"):
        mvgp.load(written(content, tmp_path))
    own["graph"]["starts"] = torch.zeros(20_001, dtype=torch.int64)
    with pytest.raises(StorageError, match="expected at most 16384 nodes for eigenpairs, got 20000"):
        mvgp.load(written(content, tmp_path))


def test_kernel_matrices_of_many_inputs(tree, tmp_path):
    content = tree("full")
    content["prior"]["col"]["inputs"] = torch.zeros(40_000, 1, dtype=torch.float64)
    with pytest.raises(StorageError, match="memory bytes, got 25,600,"):
        mvgp.load(written(content, tmp_path))


def test_a_series_that_is_refused_costs_no_large_matrix(monkeypatch):
    """It was tried with 4096 nodes by matrices of 4096 x 8193."""
    monkeypatch.setattr(chebyshev, "evaluate", lambda *_: pytest.fail("forms a matrix"))
    monkeypatch.setattr(chebyshev, "_values_to_coefficients", lambda *_: pytest.fail("forms a matrix"))
    with pytest.raises(SizeError, match="does not reach tolerance"):
        chebyshev.count_for(lambda x: (x > 0.123).double(), 1e-10)
    assert chebyshev.count_for(lambda x: torch.exp(-x), 1e-10) < 20


def test_quick_series_are_the_series():
    values = torch.exp(-3 * chebyshev.nodes(24))
    between = torch.cos(torch.linspace(0, torch.pi, 49, dtype=torch.float64))
    series = chebyshev.coefficients(values)
    assert torch.allclose(chebyshev._quick_coefficients(values), series, rtol=0, atol=1e-12)
    assert torch.allclose(chebyshev._quick_between(series), chebyshev.evaluate(series, between), rtol=0, atol=1e-12)


def test_many_arrays_are_counted_before_they_are_read(posteriors, tmp_path, monkeypatch):
    posteriors["full"].save(tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    many = built(manifest(data), {**arrays(data), **{str(index): np.zeros(0) for index in range(3000)}})
    (tmp_path / "many").write_bytes(many)
    monkeypatch.setattr(archive, "load_arrays", lambda _: pytest.fail("was read"))
    with pytest.raises(StorageError, match="expected at most 100 arrays, got"):
        mvgp.load(tmp_path / "many", budget=Budget(arrays=100))


def test_a_header_is_refused_before_the_file_is_read(posteriors, tmp_path, monkeypatch):
    posteriors["full"].save(tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    with open(tmp_path / "file", "wb") as file:
        file.write((2**26).to_bytes(8, "little") + data[8:])
        file.truncate(2**30)  # a hole
    monkeypatch.setattr(archive, "checksum", lambda _: pytest.fail("was read"))
    with pytest.raises(StorageError, match="manifest: expected at most 33,554,432 manifest bytes, got 67,108,864"):
        mvgp.load(tmp_path / "file")


def test_a_hole_behind_the_arrays_is_refused_before_it_is_read(posteriors, tmp_path, monkeypatch):
    """They take no room on the disk, but as much memory as is read, which was all of them."""
    posteriors["full"].save(tmp_path / "file")
    size = (tmp_path / "file").stat().st_size
    with open(tmp_path / "file", "r+b") as file:
        file.truncate(2**30)
    monkeypatch.setattr(archive, "checksum", lambda _: pytest.fail("was read"))
    with pytest.raises(StorageError, match=f"expected {size} bytes by the header, got .* it is cut short"):
        mvgp.load(tmp_path / "file")


def test_values_are_counted_before_they_are_parsed(posteriors, tmp_path, monkeypatch):
    posteriors["full"].save(tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    (tmp_path / "file").write_bytes(forged(data, lambda text: text["content"].update(more=[[]] * (2**20 + 1))))
    monkeypatch.setattr("json.loads", lambda *_args, **_options: pytest.fail("was parsed"))
    with pytest.raises(StorageError, match="manifest: expected at most 1,048,576 values, got"):
        mvgp.load(tmp_path / "file")


def test_large_files_are_refused_before_they_are_hashed(tmp_path, monkeypatch):
    with open(tmp_path / "file", "wb") as file:
        file.write((100).to_bytes(8, "little") + archive.START)
        file.truncate(17 * 2**30)  # a hole, not 17 GB
    monkeypatch.setattr(archive, "checksum", lambda _: pytest.fail("was read"))
    with pytest.raises(StorageError, match="file bytes, got 18,253,611,008"):
        mvgp.load(tmp_path / "file")


def test_a_large_posterior_needs_no_trial_beyond_its_size(tmp_path):
    """What a fit can do, a file can hold: 2,000 nodes, many pairs."""
    size = 2000
    links = [(at, at + 1) for at in range(size - 1)]
    prior = mvgp.MatrixGP(DiffusionKernel(Graph(links, size)), examples.precomputed(5))
    cells = torch.from_numpy(randomness.numpy_generator(0).permutation(size * 5)[:3500])
    data = mvgp.ObservedMatrix(cells // 5, cells % 5, torch.sin(cells.double()), (size, 5))
    posterior = mvgp.FullGP(prior, examples.gaussian()).fit(data)
    posterior.save(tmp_path / "file")
    assert torch.equal(mvgp.load(tmp_path / "file").scores([3]), posterior.scores([3]))


@pytest.mark.parametrize("path", [True, False, 0, 1, 3.5, None, b"file", [], object, torch.ones(1)], ids=str)
def test_what_is_no_path(path):
    with pytest.raises(InputError, match="path: expected the path of a file, a text or a pathlib.Path, got"):
        mvgp.load(path)


def test_a_path_of_bytes_inside_another():
    class Odd(os.PathLike):
        def __fspath__(self):
            return b"file"

    with pytest.raises(InputError, match="path: expected the path of a file"):
        mvgp.load(Odd())


def test_a_path_that_cannot_be_one(tmp_path):
    with pytest.raises(StorageError, match="null"):
        mvgp.load(str(tmp_path / "a\0b"))
    with pytest.raises(FileNotFoundError):
        mvgp.load("")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="pipe: expected a file, got a FIFO"):
        mvgp.load(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    with pytest.raises(StorageError, match="expected a file, got a FIFO"):
        mvgp.load(tmp_path / "link")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_file_that_becomes_a_pipe_is_refused_too(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    real, pipe = os.stat, str(tmp_path / "pipe")
    monkeypatch.setattr(os, "stat", lambda path, **options: real(__file__ if path == pipe else path, **options))
    with pytest.raises(StorageError, match="expected a file, got a FIFO"):
        mvgp.load(pipe)


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_devices_are_refused(path):
    if not (pathlib.Path(path).exists() and stat.S_ISCHR(os.stat(path).st_mode)):
        pytest.skip("there is no such device")
    with pytest.raises(StorageError, match="expected a file, got a character device"):
        mvgp.load(path)


def test_links_that_go_round(tmp_path):
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    with pytest.raises(StorageError, match="expected a saved posterior, got OSError"):
        mvgp.load(tmp_path / "one")


def test_a_long_list_is_read_item_by_item(monkeypatch):
    """Names are sorted for a message alone: for each item of a list it would take time with the square of its length."""
    monkeypatch.setattr(fields, "sorted", lambda _: pytest.fail("sorted"), raising=False)
    assert fields.Fields({"ids": ["a", "b", "c"]}, "content").each("ids", fields.Fields.text) == ["a", "b", "c"]
    monkeypatch.undo()
    with pytest.raises(StorageError, match=r"content: expected a part 'x', got \['ids'\]"):
        fields.Fields({"ids": []}, "content").text("x")
