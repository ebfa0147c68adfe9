"""Bounds on b^T A^-1 b: below and above the truth at every step, and as close as asked."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mvgp.linalg.conjugate_gradients import quadratic_form
from tests import randomness


def problem(size, spread, seed, columns=4):
    generator = randomness.generator(seed)
    turn = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    values = torch.exp(torch.linspace(0, spread, size, dtype=torch.float64))
    rhs = torch.randn(size, columns, generator=generator, dtype=torch.float64)
    a = (turn * values) @ turn.T
    return a, rhs, (rhs * torch.linalg.solve(a, rhs)).sum(0)


@settings(max_examples=40)
@given(
    size=st.integers(1, 40), spread=st.sampled_from([0.0, 1.0, 6.0]), seed=st.integers(0, 99), steps=st.integers(0, 12)
)
def test_the_truth_lies_between_the_bounds_after_any_number_of_steps(size, spread, seed, steps):
    a, rhs, truth = problem(size, spread, seed)
    found = quadratic_form(
        lambda x: a @ x, rhs, lowest_eigenvalue=0.999, allowed=lambda _, low: 0 * low, max_iterations=steps
    )
    assert found.products <= steps
    assert (found.lower <= truth * (1 + 1e-9)).all()
    assert (found.upper >= truth * (1 - 1e-9)).all()


@pytest.mark.parametrize("preconditioned", [False, True])
def test_ends_when_the_bracket_is_narrow_enough(preconditioned):
    a, rhs, truth = problem(60, 5.0, seed=1)
    scale = a.diagonal().unsqueeze(1)
    shrink = 1 / scale.sqrt()
    least = float(torch.linalg.eigvalsh(shrink * a * shrink.T)[0]) if preconditioned else 1.0
    options = {"preconditioner": lambda x: x / scale} if preconditioned else {}
    seen = []
    for share in (0.3, 0.01, 1e-6):
        found = quadratic_form(
            lambda x: a @ x, rhs, lowest_eigenvalue=0.99 * least, allowed=lambda _, low, s=share: s * low, **options
        )
        assert (found.upper - found.lower <= share * found.lower).all()
        assert ((truth - found.lower).abs() <= share * truth).all()
        seen.append(found.products)
    assert seen == sorted(seen)
    assert seen[0] < seen[-1]


def test_columns_have_their_own_allowance_and_a_zero_costs_nothing():
    a, rhs, truth = problem(30, 4.0, seed=2)
    rhs[:, 2], truth[2] = 0.0, 0.0
    allowed = torch.tensor([1e-9, 10.0, 1e-9, 1e-9], dtype=torch.float64) * truth.clamp_min(1e-3)
    found = quadratic_form(lambda x: a @ x, rhs, lowest_eigenvalue=1.0, allowed=lambda which, low: allowed[which])
    width = found.upper - found.lower
    assert (width <= allowed).all()
    assert width[1] > 1e-6  # this one was let go early
    assert found.lower[2] == found.upper[2] == 0
    nothing = quadratic_form(lambda x: a @ x, rhs[:, :0], lowest_eigenvalue=1.0, allowed=lambda which, low: low)
    assert nothing.products == 0
    assert nothing.lower.shape == (0,)
