"""What is said about a list: probabilities, order only, warnings, lengths; and the same from a file."""

import copy
import math

import numpy as np
import pytest
import torch

import mvgp
from mvgp.errors import InputError, StorageError
from mvgp.kernels import Graph
from mvgp.metrics.conformal import conformal
from mvgp.prioritise import fit_prioritiser, load_prioritiser, prioritise
from mvgp.prioritise.auto import Auto
from mvgp.prioritise.baselines import Popularity
from mvgp.prioritise.ranking.prioritiser import RAW
from mvgp.prioritise.ranking.rows import percent
from mvgp.prioritise.tables import LinkSet
from mvgp.prioritise.trust import calibrate, cross_fit, longest_list, make_trust
from mvgp.prioritise.trust.record import EXTRAPOLATED, ORDER_ONLY, describe_trust, restore_trust
from mvgp.storage.fields import Fields
from tests.randomness import numpy_generator, seed


def kinds(number, rows, cols, inside, outside=0.01, num_kinds=6):
    """Links mostly between rows and columns of the same kind, and a graph of the rows; the last row is alone."""
    rng = numpy_generator(number)
    kind = np.arange(rows + cols) % num_kinds
    own = kind[:rows, None] == kind[rows:]
    linked = rng.random((rows, cols)) < np.where(own, inside, outside)
    linked[-1] = False
    edges = np.argwhere(np.triu((kind[:rows, None] == kind[:rows]) & (rng.random((rows, rows)) < 6 / rows), 1))
    edges = edges[(edges < rows - 1).all(1)]
    return linked, Graph(edges, rows), Graph([], cols)


def link_set(linked, row_graph, col_graph):
    ids = [f"r{row}" for row in range(linked.shape[0])], [f"c{col}" for col in range(linked.shape[1])]
    return LinkSet(*ids, *np.nonzero(linked), row_graph, col_graph)


@pytest.fixture(scope="module")
def trust():
    rows = torch.arange(400)
    links = mvgp.PositiveUnlabelled(rows % 200, rows % 7 % 3 + rows // 200 * 3, (203, 30))
    found = cross_fit(Popularity().fit, links, seed=seed(0))
    wide = cross_fit(Popularity().fit, links, complete=Popularity().fit(links), seed=seed(0))
    return make_trust(found, calibrate(found), wide, isolated=torch.tensor([202]), remarks=("a remark",))


@pytest.fixture(scope="module")
def fitted():
    return fit_prioritiser(link_set(*kinds(1, 90, 40, 0.5)), calibrate=True, seed=seed(1))


def test_a_row_with_nothing_to_go_by(trust):
    said = trust.judge(202, torch.tensor([3.0, 2.0]), torch.tensor([1, 2]), 0, 30)
    assert said.probability is said.classes is None
    assert said.notes[0].startswith(ORDER_ONLY)
    assert "no neighbour" in said.notes[0]
    assert trust.judge(201, torch.tensor([90.0, 2.0]), torch.tensor([1, 2]), 0, 30).probability is not None


def test_a_best_column_that_is_not_above_chance(trust):
    said = trust.judge(0, torch.tensor([0.0, 0.0]), torch.tensor([40, 41]), 1, 30)
    assert said.probability is None
    assert said.notes[0].startswith(ORDER_ONLY)
    assert "not clearly above chance" in said.notes[0]


def test_a_score_beyond_what_was_seen(trust):
    high = float(trust.calibration.highest[1])
    for score, told in ((high, False), (high + 1, True)):
        said = trust.judge(0, torch.tensor([score, 0.0]), torch.tensor([1, 2]), 1, 30)
        assert (EXTRAPOLATED in said.notes) == told
        assert "a remark" in said.notes


def test_lengths_are_within_the_row_and_few_rows_are_told(trust):
    said = trust.judge(0, torch.tensor([9.0]), torch.tensor([1]), 7, 23, (0.8, 0.9))
    assert said.lengths == {0.8: 23, 0.9: 23}
    assert any("0 rows with hidden links and 6 and more known links are too few" in note for note in said.notes)
    table = trust.coverage((0.9,))
    assert [entry["group"] for entry in table] == ["no known link", "1 known link", "2 to 5", "6 and more"]
    for entry, ranks in zip(table, trust.ranks, strict=True):
        assert entry["links"] == len(ranks)
        assert entry["length"] is None or entry["covered"] >= 0.9


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.123, 0.08, 0.17), "12 % (8 to 17)"),
        ((0.0123, 0.001, 0.0998), "1.2 % (0.1 to 10.0)"),
        ((0.00002, 0.0, 0.0005), "0.002 % (0 to 0.05)"),
        ((math.nan, 0.0, 1.0), ""),
    ],
)
def test_percent(numbers, text):
    assert percent(*numbers) == text


def test_lists_have_probabilities(fitted):
    lists = fitted.prioritise(range(90), 12, uncertainty=False, coverage=[0.5])
    told = [row for row in lists if row.probability is not None]
    assert len(told) > 45
    for row in told:
        assert bool((row.probability.diff() <= 1e-12).all())
        assert bool((row.probability_low <= row.probability).all() & (row.probability <= row.probability_high).all())
        assert row.lengths[0.5] <= 40
        assert row.num_known == int((fitted.known.rows == row.row).sum())
        entry = row.entries()[0]
        assert entry["probability"] == float(row.probability[0])
        assert entry["class"] == row.classes[0]
        assert entry["why"] is None
        parts = (row.probability, row.probability_low, row.probability_high)
        assert percent(*(float(part[0]) for part in parts)) in str(row)
    assert ORDER_ONLY in str(lists[89])  # no link, no neighbour
    assert lists[89].probability is None
    assert "with probability 0.5" in str(told[0])


def test_places_have_probabilities_without_samples(fitted):
    """Of P(top k), where enough rows are like it: the best k candidates come first, and none is above its forerunner."""
    lists = fitted.prioritise(range(90), 7, uncertainty=False)
    told = [row for row in lists if row.top_probability is not None]
    assert len(told) > 45
    for row in told:
        scores = fitted.mixture.scores([row.row])[0]
        scores[fitted.known.cols[fitted.known.rows == row.row]] = -torch.inf
        best = scores.topk(8).values
        expected = fitted.trust.top.chances(best, row.num_known, 7)[:7]
        torch.testing.assert_close(row.top_probability, expected, rtol=0, atol=1e-4)  # scores in single precision
        assert bool((expected.diff() <= 1e-12).all())
        assert "P(top 7)" in str(row)
    (sampled,) = fitted.prioritise([told[0].row], 7, num_samples=5, seed=seed(2))
    torch.testing.assert_close(sampled.top_probability, told[0].top_probability, rtol=0, atol=1e-4)  # not by samples
    assert sampled.std is not None
    for row in set(lists) - set(told):
        assert "P(top 7) is not known" in str(row)
    assert "P(top 7) is not known, order only" in str(lists[89])
    assert any("calibration error of P(top 20)" in line for line in fitted.trust.in_words())


def test_the_bootstrap_alone_is_told():
    fitted = fit_prioritiser(link_set(*kinds(1, 30, 20, 0.5)), calibrate=False, seed=seed(1))
    (row,) = fitted.prioritise([0], 3, num_samples=5)
    assert row.notes == (RAW.format(3),)
    assert torch.equal(
        row.top_probability, fitted.rankers[0].bootstrap(0, 3, exclude=fitted.known, num_samples=5)[0][row.cols]
    )
    assert fitted.prioritise([0], 3, uncertainty=False)[0].notes == ()


def test_known_links_have_none(fitted):
    (row,) = fitted.prioritise([0], 40, uncertainty=False, include_known=True)
    assert torch.equal(row.probability.isnan(), row.known)
    assert torch.equal(row.top_probability.isnan(), row.known)
    assert [name == "" for name in row.classes] == row.known.tolist()
    (alone,) = fitted.prioritise([0], 5, uncertainty=False)
    open_ = row.probability[~row.known][:5]
    assert open_.tolist() == pytest.approx(alone.probability.tolist())
    lines = list(row.lines())
    assert [line[11] == "" for line in lines] == row.known.tolist()


def test_a_saved_one_says_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "a.mvgp")
    again = load_prioritiser(tmp_path / "a.mvgp")
    for first, second in zip(
        *(one.prioritise([3, 89], 9, uncertainty=False, coverage=[0.8]) for one in (fitted, again)), strict=True
    ):
        assert str(first) == str(second)
    assert again.trust.in_words() == fitted.trust.in_words()
    assert again.trust.coverage() == fitted.trust.coverage()


def test_an_older_record_has_none_of_the_top(trust):
    tree = describe_trust(trust)
    assert restore_trust(Fields(tree, "trust"), (203, 30)).top.in_words() == trust.top.in_words()
    del tree["top"]
    again = restore_trust(Fields(tree, "trust"), (203, 30))
    assert again.top is None
    assert again.top_chances(0, torch.tensor([2.0, 1.0]), 1, 1) == (
        None,
        "P(top 1) is not known: no lists were compared",
    )


def test_an_older_file_has_no_probabilities(tmp_path):
    plain = fit_prioritiser(link_set(*kinds(2, 20, 12, 0.5, num_kinds=2)))
    assert plain.trust is None
    plain.save(tmp_path / "b.mvgp")
    again = load_prioritiser(tmp_path / "b.mvgp")
    assert again.trust is None
    assert again.prioritise([0], 3, uncertainty=False)[0].probability is None
    with pytest.raises(InputError, match="calibrate=True"):
        again.ranked([0], 3, uncertainty=False, coverage=[0.9])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree.pop("chance"), "chance"),
        (lambda tree: tree.update(more=1), "more"),
        (lambda tree: tree["ranks"].pop(), "groups of rows"),
        (lambda tree: tree["ranks"].__setitem__(0, torch.tensor([3, 1])), "ascending numbers"),
        (lambda tree: tree["ranks"].__setitem__(0, torch.tensor([0, 1])), "from 1 to 30"),
        (lambda tree: tree.update(isolated=torch.tensor([999])), "isolated"),
        (lambda tree: tree["chance"].__setitem__(0, 7.0), "chance"),
        (lambda tree: tree["calibration"].update(quantiles=-tree["calibration"]["quantiles"]), "quantiles"),
        (lambda tree: tree["calibration"].update(grid=tree["calibration"]["grid"].flip(0)), "ascending|values"),
        (lambda tree: tree["calibration"].update(values=tree["calibration"]["values"] + 2), "probabilities"),
        (lambda tree: tree["calibration"].update(high=tree["calibration"]["low"] * 0), "inside their intervals"),
        (lambda tree: tree["calibration"].update(weights=torch.zeros(3, dtype=torch.float64)), "weights"),
        (lambda tree: tree["calibration"]["classes"].pop(), "classes"),
        (lambda tree: tree["calibration"]["curve"][0].append(1.0), "7 numbers"),
        (lambda tree: tree["remarks"].append("\x1b[2J"), "remarks"),
        (lambda tree: tree["top"].update(unit=0.0), "unit"),
        (lambda tree: tree["top"].update(rows=tree["top"]["rows"][:3]), "rows"),
        (lambda tree: tree["top"].update(error=2.0), "error"),
        (lambda tree: tree["top"]["knots"].clear(), "ascending k, from 1"),
        (lambda tree: tree["top"]["knots"].reverse(), "ascending k, from 1"),
        (lambda tree: tree["top"]["knots"][0].update(weights=-torch.ones(25, dtype=torch.float64)), "slopes"),
        (lambda tree: tree["top"]["knots"][0].update(weights=torch.full((25,), 1e7).double()), "million"),
        (lambda tree: tree["top"]["knots"][0].update(grid=torch.zeros(2).double()), "ascending numbers"),
        (lambda tree: tree["top"]["knots"][0]["values"].add_(1), "probabilities that do"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(trust, change, words):
    tree = copy.deepcopy(describe_trust(trust))
    restore_trust(Fields(tree, "trust"), (203, 30))
    change(tree)
    with pytest.raises(StorageError, match=words):
        restore_trust(Fields(tree, "trust"), (203, 30))


def test_too_few_links():
    few = LinkSet("abc", "wxyz", [0, 0, 1, 2], [0, 1, 1, 2], Graph([(0, 1)], 3), Graph([(2, 3)], 4))
    assert prioritise(few, rows=["b"], top=2)[0].probability is None
    with pytest.raises(InputError, match="calibrate: expected at least 20 links"):
        fit_prioritiser(few, calibrate=True)
    with pytest.raises(InputError, match="calibrate"):
        fit_prioritiser(few, calibrate="yes")


def test_links_that_nothing_tells_of():
    """Each row and each column has one link; those that are hidden are among columns that nobody has seen."""
    one = LinkSet(
        [f"r{i}" for i in range(25)],
        [f"c{i}" for i in range(4000)],
        range(25),
        range(3975, 4000),
        Graph([], 25),
        Graph([], 4000),
    )
    with pytest.warns(RuntimeWarning, match="probabilities are not known: none of"):
        lists = prioritise(one, rows=["r3"], top=2, uncertainty=None)
    assert lists[0].probability is None
    with pytest.raises(InputError, match="none of .* hidden links is among the first 100"):
        fit_prioritiser(one, calibrate=True)


def test_auto_has_lengths_from_one_split():
    links = link_set(*kinds(6, 60, 30, 0.5))
    rows = links.links().rows.unique()[:3].tolist()  # a row may have no link
    held_out = (rows, [int(links.cols[links.rows == row][0]) for row in rows])
    train = links.links().without(*held_out)
    ranker = Auto(links, seed=seed(6)).fit(train)
    found = ranker.conformal(held_out, level=0.5, edges=())
    assert found.lengths == conformal(ranker.scores(), held_out, known=train, level=0.5, edges=()).lengths


def test_models_without_a_covariance_have_probabilities_too():
    fitted = fit_prioritiser(link_set(*kinds(3, 80, 30, 0.5)), model="popularity", calibrate=True, seed=seed(3))
    (row,) = fitted.prioritise([0], 3, uncertainty=False, coverage=[0.9])
    assert row.lengths[0.9] <= 30
    assert fitted.trust.links > 0


@pytest.mark.slow
def test_false_discoveries_are_as_many_as_estimated():
    """Links are planted, a fifth is hidden at random; what the rest says about the lists is compared with the truth.

    Rows have from one to some 20 links. With 600 rows and 5 columns of each, the share of hidden links, about 0.13, has a
    standard error of 0.006, and so has its estimate. A tenth of the false-discovery proportion is 0.087.
    """
    activity = np.minimum(0.9, 0.25 * np.exp(0.8 * numpy_generator(7).standard_normal((600, 1))))
    linked, row_graph, col_graph = kinds(4, 600, 120, activity)
    hidden = linked & (numpy_generator(5).random(linked.shape) < 0.2)
    fitted = fit_prioritiser(link_set(linked & ~hidden, row_graph, col_graph), calibrate=True, seed=seed(4))
    lists = [row for row in fitted.ranked(range(599), 20, uncertainty=False) if row.probability is not None]
    assert len(lists) > 500
    for length in (5, 10, 20):
        estimated = 1 - np.mean([float(row.probability[:length].mean()) for row in lists])
        measured = 1 - np.mean([hidden[row.row, row.cols[:length].numpy()].mean() for row in lists])
        assert abs(estimated - measured) <= 0.1 * measured
    lengths = [longest_list(row.probability, 0.9) for row in lists]
    assert sum(lengths) > 1000
    parts = [
        (row.probability[:length], hidden[row.row, row.cols[:length].numpy()])
        for row, length in zip(lists, lengths, strict=True)
    ]
    estimated, measured = (1 - float(np.concatenate(part).mean()) for part in zip(*parts, strict=True))
    assert estimated <= 0.9 + 1e-9
    assert abs(estimated - measured) <= 0.1 * measured
