"""Whatever the bytes are: a posterior with the right numbers, or a StorageError."""

import copy
import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import mvgp
from mvgp.errors import StorageError
from mvgp.posteriors.covariance import NoCovariance
from mvgp.storage.archive import LENGTH, START
from tests.storage import examples
from tests.storage.forgery import arrays, built, forged, header, manifest, signed

quick = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
SAVED = ("full", "trace, biases", "factor")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def saved(folder):
    """Bytes and scores of some posteriors."""
    found = []
    for name in SAVED:
        posterior = examples.POSTERIORS[name](torch.float64)
        posterior.save(folder / "file")
        found.append(((folder / "file").read_bytes(), posterior.scores()))
    return found


def attempt(folder, content):
    """The posterior, or None for a StorageError; nothing else is let through."""
    path = folder / "given"
    path.write_bytes(content)
    try:
        return mvgp.load(path)
    except StorageError:
        return None


@pytest.mark.slow
@quick
@given(which=st.integers(0, 2), share=st.floats(0, 1, exclude_max=True))
def test_truncated(folder, saved, which, share):
    data = saved[which][0]
    assert attempt(folder, data[: int(share * len(data))]) is None


@pytest.mark.slow
@quick
@given(which=st.integers(0, 2), share=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_a_changed_byte_is_always_noticed(folder, saved, which, share, mask):
    data = bytearray(saved[which][0])
    data[int(share * len(data))] ^= mask
    assert attempt(folder, bytes(data)) is None


@pytest.mark.slow
@quick
@given(which=st.integers(0, 2), share=st.floats(0, 1), more=st.binary(min_size=1, max_size=20))
def test_inserted_bytes_are_always_noticed(folder, saved, which, share, more):
    data = saved[which][0]
    place = int(share * len(data))
    assert attempt(folder, data[:place] + more + data[place:]) is None


@pytest.mark.slow
@quick
@given(which=st.integers(0, 2), share=st.floats(0, 1, exclude_max=True), count=st.integers(1, 100))
def test_removed_bytes_are_always_noticed(folder, saved, which, share, count):
    data = saved[which][0]
    place = int(share * len(data))
    assert attempt(folder, data[:place] + data[place + count :]) is None


@pytest.mark.slow
@quick
@given(content=st.binary(max_size=300))
@example(content=b"PK\x03\x04" + bytes(18))
@example(content=b'\\"}"}}')
def test_random_bytes(folder, content):
    assert attempt(folder, content) is None
    for rest in (content, b"0" * 64 + content, b"0" * 64 + b'\\"}"}}' + content):
        length = len(START + rest).to_bytes(LENGTH, "little")
        assert attempt(folder, signed(length + START + rest)) is None


@pytest.mark.slow
@settings(quick, max_examples=400)
@given(
    which=st.integers(0, 2),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3),
    where=st.sampled_from(["anywhere", "header", "entries"]),
)
def test_changed_bytes_under_a_right_checksum(folder, saved, which, changes, where):
    """The checksum is no signature. What is not noticed by the rest does not matter, such as which torch wrote it."""
    data, scores = bytearray(saved[which][0]), saved[which][1]
    end = LENGTH + int.from_bytes(data[:LENGTH], "little") if where != "anywhere" else len(data)
    start = data.index(b'}"},"') if where == "entries" else 0 if where == "anywhere" else 8
    for share, mask in changes:
        data[start + int(share * (end - start))] ^= mask
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = attempt(folder, signed(bytes(data)))
        if found is not None:
            assert_answers(found)
            if where == "entries":
                assert torch.equal(found.scores(), scores)


def assert_answers(found):
    assert bool(torch.isfinite(found.scores()).all())
    if not isinstance(found.conditional, NoCovariance):
        assert bool(torch.isfinite(found.variance([0], [0])).all())


def leaves(tree, path=()):
    """Where something is in a tree of JSON."""
    if path:
        yield path
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(value, (*path, key))


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**6, 2**62, 2**70, 1e-300, -1.5, 1e308, "sparse", "low rank", "conditional", "laplace", "none"]),
    st.sampled_from(["auto", "eigen", "chebyshev", "cg", "spectral", "RBFKernel", "ScaleKernel", "AdditiveKernel"]),
    st.sampled_from([{}, [], [1, 2], {"$number": "inf"}, {"$number": "nan"}, {"$array": "nothing"}, {"$array": 3}]),
)


@pytest.mark.slow
@settings(quick, max_examples=400)
@given(
    which=st.integers(0, 2),
    choice=st.floats(0, 1, exclude_max=True),
    value=VALUES,
    name=st.floats(0, 1, exclude_max=True),
)
def test_contents_that_make_no_sense(folder, saved, which, choice, value, name):
    """One part of the description is something else; all hashes are right."""
    data = saved[which][0]
    text = manifest(data)
    places = list(leaves(text["content"]))
    path = places[int(choice * len(places))]
    names = [name for name in header(data) if name != "__metadata__"]

    def change(found):
        inside = found["content"]
        for key in path[:-1]:
            inside = inside[key]
        was = inside[path[-1]]
        is_array = isinstance(was, dict) and set(was) == {"$array"}
        inside[path[-1]] = {"$array": names[int(name * len(names))]} if is_array and value is None else copy.copy(value)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = attempt(folder, forged(data, change))
        if found is not None:  # then it is a posterior, if a strange one
            assert isinstance(found, mvgp.GaussianPosterior)
            assert_answers(found)


@pytest.mark.slow
@settings(quick, max_examples=200)
@given(which=st.integers(0, 2), choice=st.floats(0, 1, exclude_max=True), numbers=st.data())
def test_arrays_that_make_no_sense(folder, saved, which, choice, numbers):
    """Positions out of range would be read from where there is no memory."""
    data = saved[which][0]
    text = manifest(data)
    stored = arrays(data)
    names = sorted(name for name, array in stored.items() if array.ndim and array.nbytes >= 8)
    name = names[int(choice * len(names))]
    content = bytearray(stored[name].tobytes())
    place = numbers.draw(st.integers(0, len(content) // 8 - 1))
    content[8 * place : 8 * place + 8] = numbers.draw(
        st.one_of(
            st.integers(-(2**63), 2**63 - 1).map(lambda v: v.to_bytes(8, "little", signed=True)),
            st.sampled_from([-1, 7, 11, 12, 77, 2**31, 2**40]).map(lambda v: v.to_bytes(8, "little", signed=True)),
        )
    )
    stored[name] = np.frombuffer(content, stored[name].dtype).reshape(stored[name].shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = attempt(folder, built(text, stored))
        if found is not None:
            assert_answers(found)
