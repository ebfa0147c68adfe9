"""Whatever the bytes are: a posterior with the right numbers, or a StorageError."""

import copy
import warnings

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import mvgp
from mvgp.errors import StorageError
from mvgp.posteriors.covariance import NoCovariance
from mvgp.storage.archive import OPEN
from tests.storage import examples
from tests.storage.forgery import forged, manifest, members, sealed

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
@example(content=b"PK\x05\x06" + bytes(18))
def test_random_bytes(folder, content):
    assert attempt(folder, content) is None
    assert attempt(folder, sealed(b"PK\x03\x04" + content + OPEN)) is None


@pytest.mark.slow
@settings(quick, max_examples=400)
@given(
    which=st.integers(0, 2),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3),
    near_the_end=st.booleans(),
)
def test_changed_bytes_under_a_right_seal(folder, saved, which, changes, near_the_end):
    """The seal is no signature. What is not noticed by the rest does not matter, such as the date of a member."""
    data, scores = bytearray(saved[which][0]), saved[which][1]
    start = data.index(b"PK\x01\x02") if near_the_end else 0  # the zip's directory
    for share, mask in changes:
        data[start + int(share * (len(data) - start))] ^= mask
    found = attempt(folder, sealed(bytes(data)))
    assert found is None or torch.equal(found.scores(), scores)


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
    arrays = list(text["arrays"])

    def change(found):
        inside = found["content"]
        for key in path[:-1]:
            inside = inside[key]
        was = inside[path[-1]]
        is_array = isinstance(was, dict) and set(was) == {"$array"}
        inside[path[-1]] = (
            {"$array": arrays[int(name * len(arrays))]} if is_array and value is None else copy.copy(value)
        )

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
    names = [name for name, entry in text["arrays"].items() if entry["shape"] != [] and 0 not in entry["shape"]]
    name = names[int(choice * len(names))]
    content = bytearray(members(data)[f"arrays/{name}.npy"])
    header = 10 + int.from_bytes(content[8:10], "little")
    place = numbers.draw(st.integers(0, (len(content) - header) // 8 - 1))
    content[header + 8 * place : header + 8 * place + 8] = numbers.draw(
        st.one_of(
            st.integers(-(2**63), 2**63 - 1).map(lambda v: v.to_bytes(8, "little", signed=True)),
            st.sampled_from([-1, 7, 11, 12, 77, 2**31, 2**40]).map(lambda v: v.to_bytes(8, "little", signed=True)),
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = attempt(folder, forged(data, arrays={name: bytes(content)}))
        if found is not None:
            assert_answers(found)
