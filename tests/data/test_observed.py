import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import mvgp
from mvgp.errors import InputError, MvgpError
from tests import randomness


@given(st.data())
def test_entries_are_sorted_and_kept(data):
    m, n = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    cells = data.draw(st.lists(st.integers(0, m * n - 1), min_size=1, unique=True))
    cells = np.array(cells)
    values = randomness.numpy_generator(0).normal(size=len(cells))
    weights = values**2 + 0.1
    found = mvgp.ObservedMatrix(cells // n, cells % n, values, (m, n), weights=weights)
    order = np.argsort(cells)
    assert (found.rows * n + found.cols).tolist() == cells[order].tolist()
    assert found.values.tolist() == values[order].tolist()
    assert found.weights.tolist() == weights[order].tolist()
    assert found.is_complete == (len(cells) == m * n)

    dense = torch.zeros(m, n, dtype=torch.float64)
    dense[found.rows, found.cols] = found.values
    torch.testing.assert_close(found.pattern.matrix(found.values).to_dense(), dense)
    torch.testing.assert_close(found.pattern.matrix_t(found.values).to_dense(), dense.T)
    left, right = torch.randn(m, 130).double(), torch.randn(n, 130).double()
    torch.testing.assert_close(found.pattern.sample(left, right), (left @ right.T)[found.rows, found.cols])


def test_sources_agree():
    dense = np.array([[1.0, np.nan, 0.0], [np.nan, -2.0, 4.0]])
    mask = ~np.isnan(dense)
    frame = pd.DataFrame(dense, index=["a", "b"], columns=["x", "y", "z"])
    long = frame.stack().dropna().rename_axis(["r", "c"]).rename("v").reset_index()
    rows, cols = mask.nonzero()
    stored = sparse.coo_array((dense[mask], (rows, cols)), shape=(2, 3))
    wide = mvgp.ObservedMatrix.from_frame(frame)
    found = [
        mvgp.ObservedMatrix.from_dense(dense),
        mvgp.ObservedMatrix.from_dense(torch.from_numpy(dense)),
        mvgp.ObservedMatrix.from_mask(dense, mask),
        mvgp.ObservedMatrix.from_scipy(stored),
        mvgp.ObservedMatrix.from_scipy(stored.tocsc()),
        wide,
    ]
    for data in found:
        assert data.shape == (2, 3)
        torch.testing.assert_close(data.to_dense(), torch.from_numpy(dense), equal_nan=True)
    assert wide.row_names == ("a", "b")
    assert wide.col_names == ("x", "y", "z")
    by_name = mvgp.ObservedMatrix.from_frame(long, row="r", col="c", value="v")
    assert by_name.row_names == ("a", "b")
    order = [by_name.col_names.index(name) for name in "xyz"]
    torch.testing.assert_close(by_name.to_dense()[:, order], torch.from_numpy(dense), equal_nan=True)


def test_a_stored_zero_is_an_observation_and_names_may_be_numbers():
    data = mvgp.ObservedMatrix.from_scipy(sparse.coo_array(([0.0], ([1], [0])), shape=(2, 2)))
    assert len(data) == 1
    frame = pd.DataFrame({"disease": [101, 102, 101], "gene": [7, 7, 9], "score": [1, 2, 3]})
    data = mvgp.ObservedMatrix.from_frame(frame, row="disease", col="gene", value="score")
    assert data.row_names == ("101", "102")
    assert data.values.dtype == torch.float64


def test_it_cannot_be_changed():
    data = mvgp.ObservedMatrix([0], [0], [1.0], (1, 1))
    for name in ("rows", "values", "weights", "shape"):
        with pytest.raises(AttributeError):
            setattr(data, name, None)


def test_precision_of_the_values_is_kept():
    assert mvgp.ObservedMatrix([0], [0], torch.ones(1), (1, 1)).values.dtype == torch.float32
    assert mvgp.ObservedMatrix([0], [0], [1], (1, 1)).values.dtype == torch.float64
    data = mvgp.ObservedMatrix([1, 0], [0, 0], [1.0, 2.0], (2, 1), weights=[3.0, 4.0])
    assert data.with_values([5.0, 6.0]).weights.tolist() == [4.0, 3.0]
    assert "2 x 1" in repr(data)
    assert "weighted" in repr(data)


NAN, INF = float("nan"), float("inf")
BAD = {
    "row too large": (dict(rows=[0, 3, 9], cols=[0, 0, 0], values=[1, 1, 1]), r"rows\[1\].*\[0, 3\), got 3"),
    "negative column": (dict(rows=[0], cols=[-1], values=[1]), r"cols\[0\].*got -1"),
    "fractional row": (dict(rows=[0.0, 1.5], cols=[0, 1], values=[1, 1]), r"rows\[1\].*1\.5"),
    "row that is no number": (dict(rows=[NAN], cols=[0], values=[1]), r"rows\[0\].*nan"),
    "boolean rows": (dict(rows=[True], cols=[0], values=[1]), "booleans"),
    "rows in a table": (dict(rows=[[0]], cols=[0], values=[1]), r"rows.*\(1, 1\)"),
    "duplicate": (
        dict(rows=[2, 0, 1, 0], cols=[1, 1, 1, 1], values=[1, 2, 3, 4]),
        r"\(0, 1\): entry 3 repeats entry 1",
    ),
    "nan value": (dict(rows=[0, 1], cols=[0, 0], values=[1.0, NAN]), r"values\[1\].*nan"),
    "infinite value": (dict(rows=[0], cols=[0], values=[INF]), r"values\[0\].*inf"),
    "complex value": (dict(rows=[0], cols=[0], values=[1j]), "real"),
    "length of cols": (dict(rows=[0, 1], cols=[0], values=[1, 2]), "2 and 1"),
    "length of values": (dict(rows=[0, 1], cols=[0, 1], values=[1]), "expected 2 numbers.*got 1"),
    "length of weights": (dict(rows=[0], cols=[0], values=[1], weights=[1, 2]), "weights.*got 2"),
    "weight of zero": (dict(rows=[0], cols=[0], values=[1], weights=[0]), r"weights\[0\].*positive"),
    "flat shape": (dict(rows=[0], cols=[0], values=[1], shape=(3,)), "shape"),
    "empty shape": (dict(rows=[0], cols=[0], values=[1], shape=(0, 2)), "shape"),
    "fractional shape": (dict(rows=[0], cols=[0], values=[1], shape=(2.5, 2)), "shape"),
    "too few names": (dict(rows=[0], cols=[0], values=[1], row_names=["a"]), "row_names: expected 3 names, got 1"),
    "same name twice": (dict(rows=[0], cols=[0], values=[1], col_names=["a", "a"]), r"col_names\[1\].*'a'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_entries_are_named(case):
    arguments, message = BAD[case]
    with pytest.raises(InputError, match=message):
        mvgp.ObservedMatrix(**{"shape": (3, 2), **arguments})


def test_bad_sources_are_named():
    with pytest.raises(InputError, match=r"matrix\[1, 0\].*inf"):
        mvgp.ObservedMatrix.from_dense([[1.0, 2.0], [INF, NAN]])
    with pytest.raises(InputError, match=r"two dimensions.*\(2,\)"):
        mvgp.ObservedMatrix.from_dense([1.0, 2.0])
    with pytest.raises(InputError, match=r"matrix\[0, 1\].*nan"):
        mvgp.ObservedMatrix.from_mask([[1.0, NAN]], [[True, True]])
    with pytest.raises(InputError, match=r"\(1, 2\), got \(2, 1\)"):
        mvgp.ObservedMatrix.from_mask([[1.0, 2.0]], [[True], [True]])
    with pytest.raises(InputError, match="booleans"):
        mvgp.ObservedMatrix.from_mask([[1.0]], [[1]])
    with pytest.raises(InputError, match="scipy sparse"):
        mvgp.ObservedMatrix.from_scipy(np.eye(2))
    frame = pd.DataFrame({"a": ["x"], "b": ["y"], "c": ["?"]})
    with pytest.raises(InputError, match="numbers in every cell"):
        mvgp.ObservedMatrix.from_frame(frame)
    with pytest.raises(InputError, match="missing: value"):
        mvgp.ObservedMatrix.from_frame(frame, row="a", col="b")
    with pytest.raises(InputError, match=r"col='z'.*\['a', 'b', 'c'\]"):
        mvgp.ObservedMatrix.from_frame(frame, row="a", col="z", value="c")
    with pytest.raises(InputError, match="value='c'"):
        mvgp.ObservedMatrix.from_frame(frame, row="a", col="b", value="c")
    with pytest.raises(InputError, match="row: entry 0"):
        mvgp.ObservedMatrix.from_frame(pd.DataFrame({"a": [None], "b": ["y"], "c": [1]}), row="a", col="b", value="c")


def test_errors_are_value_errors_of_one_tree():
    assert issubclass(InputError, ValueError)
    assert issubclass(InputError, MvgpError)


def test_there_may_be_no_entries():
    for data in (mvgp.ObservedMatrix([], [], [], (1, 2)), mvgp.ObservedMatrix.from_dense([[NAN, NAN]])):
        assert (len(data), data.shape, data.num_measurements, data.is_complete) == (0, (1, 2), 0, False)
        assert "0 observed" in repr(data)
        assert bool(torch.isnan(data.to_dense()).all())


# Replicates -----------------------------------------------------------------------------------------

REPLICATES = dict(rows=[2, 0, 1, 0, 0], cols=[1, 1, 0, 1, 1], values=[1.0, 2.0, 3.0, 4.0, 9.0], shape=(3, 2))


def test_replicates_are_merged_on_request_and_it_says_so():
    with pytest.raises(InputError, match=r"duplicate pair \(0, 1\)"):
        mvgp.ObservedMatrix(**REPLICATES)
    with pytest.raises(InputError, match="replicates"):
        mvgp.ObservedMatrix(**REPLICATES, replicates="mean")
    data = mvgp.ObservedMatrix(**REPLICATES, replicates="merge")
    assert (data.rows.tolist(), data.cols.tolist()) == ([0, 1, 2], [1, 0, 1])
    assert data.values.tolist() == [5.0, 3.0, 1.0]
    assert data.weights.tolist() == [3.0, 1.0, 1.0]
    assert data.num_replicates.tolist() == [3, 1, 1]
    assert data.num_measurements == 5
    assert data.replicate_spread == 9 + 1 + 16
    assert "merged from 5 measurements" in repr(data)
    plain = mvgp.ObservedMatrix([0, 1], [0, 0], [1.0, 2.0], (3, 2), replicates="merge")
    assert plain.weights is None
    assert plain.num_replicates.tolist() == [1, 1]
    assert "merged" not in repr(plain)
    weighted = mvgp.ObservedMatrix(**REPLICATES, weights=[1.0, 1.0, 1.0, 2.0, 0.5], replicates="merge")
    assert weighted.values[0] == pytest.approx((2 + 8 + 4.5) / 3.5)
    assert weighted.weights.tolist() == [3.5, 1.0, 1.0]
    assert mvgp.ObservedMatrix.from_dense([[1.0, NAN]], replicates="merge").num_replicates.tolist() == [1]


@pytest.mark.parametrize("weighted", [False, True])
def test_merged_replicates_lose_nothing_under_gaussian_noise(weighted):
    """The joint density of all measurements is that of the means times what the noise alone decides."""
    kernel, noise = torch.tensor([[2.0, 0.5, 0.3], [0.5, 1.0, 0.2], [0.3, 0.2, 1.5]]).double(), 0.37
    cell, order = torch.tensor([2, 0, 1, 0, 0]), [0, 1, 2]  # of the cells (0, 1), (1, 0), (2, 1)
    values = torch.tensor(REPLICATES["values"]).double()
    weights = torch.tensor([1.0, 1.3, 0.4, 2.0, 0.5]).double() if weighted else torch.ones(5).double()
    data = mvgp.ObservedMatrix(**REPLICATES, weights=weights if weighted else None, replicates="merge")
    zero = torch.zeros(5).double()
    each = kernel[cell][:, cell] + torch.diag(noise / weights)
    whole = torch.distributions.MultivariateNormal(zero, each).log_prob(values)
    merged = torch.distributions.MultivariateNormal(
        zero[:3], kernel[order][:, order] + torch.diag(noise / data.weights)
    )
    part = data.replicate_log_prob(torch.tensor(noise, dtype=torch.float64))
    torch.testing.assert_close(merged.log_prob(data.values) + part, whole, atol=1e-12, rtol=1e-12)
    # and the posterior of the three cells
    gain, merged_gain = kernel[:, cell] @ each.inverse(), kernel @ merged.covariance_matrix.inverse()
    torch.testing.assert_close(merged_gain @ data.values, gain @ values, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(merged_gain @ kernel, gain @ kernel[cell], atol=1e-12, rtol=1e-12)


def test_data_are_joined_and_taken_apart():
    first = mvgp.ObservedMatrix([0, 1], [0, 1], [1.0, 2.0], (3, 2), row_names=["a", "b", "c"])
    second = mvgp.ObservedMatrix([2, 0], [0, 1], [3.0, 4.0], (3, 2), weights=[2.0, 3.0])
    both = first.joined(second)
    assert both.values.tolist() == [1.0, 4.0, 2.0, 3.0]
    assert both.weights.tolist() == [1.0, 3.0, 1.0, 2.0]
    assert both.row_names == ("a", "b", "c")
    assert both.replicates == "error"
    assert both.without([0, 2], [1, 0]).values.tolist() == first.values.tolist()
    with pytest.raises(InputError, match=r"pair \(0, 0\) is observed already"):
        first.joined(first)
    with pytest.raises(InputError, match=r"expected observed pairs, got \(2, 1\)"):
        first.without([2], [1])
    with pytest.raises(InputError, match="ObservedMatrix"):
        first.joined(None)


def test_joining_merged_data_is_merging_all_at_once():
    rng = randomness.numpy_generator(3)
    rows, cols, values, weights = (
        rng.integers(0, 3, 40),
        rng.integers(0, 2, 40),
        rng.normal(size=40),
        rng.random(40) + 0.1,
    )
    parts = [
        mvgp.ObservedMatrix(rows[s], cols[s], values[s], (3, 2), weights=weights[s], replicates="merge")
        for s in (slice(0, 25), slice(25, 40), slice(0, 40))
    ]
    found, expected, noise = parts[0].joined(parts[1]), parts[2], torch.tensor(0.4).double()
    for name in ("values", "weights", "num_replicates"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))
    torch.testing.assert_close(found.replicate_log_prob(noise), expected.replicate_log_prob(noise))
    row, col = int(expected.rows[0]), int(expected.cols[0])
    kept = (rows != row) | (cols != col)
    others = (rows[kept], cols[kept], values[kept])
    rest = mvgp.ObservedMatrix(*others, (3, 2), weights=weights[kept], replicates="merge")
    torch.testing.assert_close(found.without([row], [col]).replicate_log_prob(noise), rest.replicate_log_prob(noise))


def test_replicates_carry_gradients():
    values = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64, requires_grad=True)
    data = mvgp.ObservedMatrix([0, 0, 1], [0, 0, 0], values, (2, 1), replicates="merge")
    assert data.requires_grad
    data.replicate_log_prob(torch.tensor(0.5).double()).backward()
    torch.testing.assert_close(values.grad, torch.tensor([1.0, -1.0, 0.0]).double())
    assert not data.detach().replicate_log_prob(torch.tensor(0.5).double()).requires_grad
