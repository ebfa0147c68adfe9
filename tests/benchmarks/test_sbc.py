"""Simulation-based calibration: exact posteriors pass, planted faults do not, and the published page is that of the numbers."""

import json

import numpy as np
import pytest
import torch
from scipy import special

import mvgp
from benchmarks.sbc import INPUTS, NOISE, M, N, Simulator, make_cases, simulate, summarise
from benchmarks.sbc_page import MARKS, NUMBERS, PAGE, QUANTITIES, SAMPLES, draw_figure, save_numbers, table, write_page
from mvgp.metrics import uniformity
from tests import chance, randomness

CASES = make_cases()
DRAWS, KINDS = 20_000, ("observed", "unobserved", "new row", "row mean")
EXACT = [name for name, case in CASES.items() if case.exact]


@pytest.fixture(scope="module")
def standard():
    """(20,000,) each: how far truths are from their posterior means, in posterior standard deviations.

    One covariance serves all draws on the same pairs: ``fantasise`` from a fit to nothing.
    """
    rng, simulator = randomness.numpy_generator(0), Simulator("cholesky", CASES["cholesky"], 0)
    rows, cols = np.divmod(rng.permutation(M * N)[:29], N)
    deviations = simulator.root @ rng.standard_normal((len(simulator.root), DRAWS))
    truth = simulator.mean + deviations.T.reshape(DRAWS, M + 1, N)
    values = truth[:, rows, cols] + NOISE**0.5 * rng.standard_normal((DRAWS, len(rows)))
    nothing = CASES["cholesky"].fit(mvgp.ObservedMatrix([], [], [], (M, N)))
    posteriors = nothing.fantasise(rows, cols, values)
    free = next(cell for cell in range(M * N) if cell not in rows * N + cols)
    found = {}
    for name, (row, col) in {"observed": (rows[0], cols[0]), "unobserved": divmod(free, N)}.items():
        spread = posteriors.variance([row], [col]).sqrt()
        found[name] = (truth[:, row, col] - posteriors.mean([row], [col])[:, 0].numpy()) / float(spread)
    new = {"row_inputs": INPUTS[M:]}
    error = truth[:, M, 2] - posteriors.mean([0], [2], **new)[:, 0].numpy()
    found["new row"] = error / float(posteriors.variance([0], [2], **new).sqrt())
    line = [1] * N, list(range(N))
    error = truth[:, 1].mean(1) - posteriors.mean(*line).mean(1).numpy()
    found["row mean"] = error / float(posteriors.posterior.joint(*line).matrix.mean().sqrt())
    return found


@pytest.mark.parametrize("name", KINDS)
def test_the_posterior_is_calibrated(standard, name):
    assert uniformity(special.ndtr(standard[name])).p_value > chance.CHANCE


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "fault",
    [lambda z: z / 1.5**0.5, lambda z: z * 1.5**0.5, lambda z: z + 0.2],
    ids=["covariance times 1.5", "covariance over 1.5", "mean shifted by 0.2"],
)
def test_a_planted_fault_is_found(standard, name, fault):
    """The curve is then 0.049 or more from the diagonal, some 19 standard deviations of it."""
    found = uniformity(special.ndtr(fault(standard[name])))
    assert found.p_value < chance.CHANCE
    assert not found.inside


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_every_exact_case_has_standard_errors(name):
    """All cells of a draw at once: errors over a root of the joint covariance are independent and standard normal."""
    simulator, rng, draws, squares, entries = Simulator(name, CASES[name], 0), randomness.numpy_generator(1), 15, [], []
    cells = np.divmod(np.arange(M * N), N)
    for _ in range(draws):
        truth = simulator.mean + (simulator.root @ rng.standard_normal(len(simulator.root))).reshape(M + 1, N)
        rows, cols = np.divmod(rng.permutation(M * N)[: CASES[name].observed], N)
        values = CASES[name].simulate(rng, truth[rows, cols], rows, cols)
        joint = CASES[name].fit(mvgp.ObservedMatrix(rows, cols, values, (M, N))).joint(*cells)
        error = torch.from_numpy(truth[:M].reshape(-1)) - joint.mean
        white = torch.linalg.solve_triangular(torch.linalg.cholesky(joint.matrix), error.unsqueeze(1), upper=False)
        squares.append(float(white.square().sum()))
        entries.append(float(white.sum()))
    count = draws * M * N
    assert abs(sum(squares) / count - 1) < chance.variance_limit(count, len(EXACT))
    assert abs(sum(entries) / count) < chance.mean_limit(count, len(EXACT))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_every_exact_case_has_uniform_ranks(name):
    ranks = simulate(name, CASES[name], 12, randomness.seed(2), None)
    for at in range(ranks.shape[1]):
        p_value = uniformity((ranks[:, at] + 0.5) / (SAMPLES + 1), SAMPLES + 1).p_value
        assert p_value > chance.CHANCE / (len(EXACT) * len(QUANTITIES))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(CASES))
def test_every_case_runs_and_goes_on_where_it_was(name, tmp_path):
    """A run that is stopped and resumed has the ranks of one that is not."""
    seed = randomness.seed(3)
    once = simulate(name, CASES[name], 2, seed, None)
    first = simulate(name, CASES[name], 1, seed, tmp_path)
    again = simulate(name, CASES[name], 2, seed, tmp_path)
    assert once.shape == (2, len(Simulator(name, CASES[name], seed).quantities))
    np.testing.assert_array_equal(first, once[:1])
    np.testing.assert_array_equal(again, once)
    np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), once)
    assert once.max() <= SAMPLES


@pytest.fixture(scope="module")
def numbers():
    return json.loads(NUMBERS.read_text())


class TestPage:
    """What is published follows from the committed numbers."""

    def test_the_numbers_belong_together(self, numbers):
        assert list(numbers["cases"]) == list(CASES)
        assert numbers["draws"] >= 1000
        for case in numbers["cases"].values():
            for one in case["quantities"].values():
                assert sum(one["counts"]) == numbers["draws"]
                found = summarise(np.repeat(np.arange(SAMPLES + 1, dtype=np.uint8), one["counts"]))
                for key in ("counts", "inside", "deviation", "covered_50", "covered_90", "band"):
                    assert found[key] == one[key]
                assert found["p_value"] == pytest.approx(one["p_value"], rel=1e-3, abs=1e-12)

    def test_the_table_is_that_of_the_numbers(self, numbers):
        text = PAGE.read_text()
        assert text.split(MARKS[0])[1].split(MARKS[1])[0].strip() == table(numbers).strip()

    def test_page_and_figures_are_written(self, numbers, tmp_path):
        page, path = tmp_path / "page.md", tmp_path / "numbers.json"
        page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
        write_page(numbers, page)
        assert "old" not in page.read_text()
        assert page.read_text().startswith("before")
        assert page.read_text().endswith("after\n")
        save_numbers(numbers, path)
        assert json.loads(path.read_text()) == numbers
        for drawn in draw_figure(path):
            assert drawn.read_text().count('<g id="axes_') == len(CASES)
