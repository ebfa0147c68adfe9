"""A search of ``auto`` that was stopped goes on where it was; its file belongs to one search, and is read with care."""

import json

import pytest
import torch

from mvgp.errors import InputError
from mvgp.metrics import ranking_scores
from mvgp.metrics.ranking import TaskItems
from mvgp.prioritise import fit_prioritiser
from mvgp.prioritise.auto import Auto
from mvgp.prioritise.auto import fit as module
from mvgp.prioritise.auto.blend import MIXTURE, Blend, average, lead
from mvgp.prioritise.auto.fit import AutoRanker
from mvgp.prioritise.auto.sample import judging_rows, validation_rows
from mvgp.prioritise.auto.trials import Chosen, settled
from tests.prioritise.auto import planted


@pytest.fixture(scope="module")
def links():
    return planted.by_rows()[0]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trials.json"


def counted(monkeypatch, stop_at=None):
    """Splits that choose from now on; the one of number ``stop_at`` is interrupted."""
    chosen, before = [], Auto._chosen_by

    def watched(self, *args):
        if len(chosen) == stop_at:
            raise KeyboardInterrupt
        chosen.append(args[3])
        return before(self, *args)

    monkeypatch.setattr(Auto, "_chosen_by", watched)
    return chosen


class TestResume:
    def test_a_search_that_was_stopped_goes_on(self, links, path, monkeypatch):
        plain = Auto(links).fit(links.links())
        with monkeypatch.context() as patch:
            counted(patch, stop_at=1)
            with pytest.raises(KeyboardInterrupt):
                Auto(links, trials=path).fit(links.links())
        assert [*json.loads(path.read_text())["splits"]] == ["0"]
        chosen = counted(monkeypatch)
        again = Auto(links, trials=path).fit(links.links())
        assert chosen == [1, 2]
        assert torch.equal(again.scores(), plain.scores())
        assert again.assessment.trials == plain.assessment.trials
        for mine, other in zip(again.assessment.table()[1], plain.assessment.table()[1], strict=True):
            assert mine == other

    def test_what_is_known_is_not_tried_again(self, links, path, monkeypatch):
        first = Auto(links, trials=path).fit(links.links())
        content = path.read_bytes()
        chosen = counted(monkeypatch)
        second = Auto(links, trials=path).fit(links.links())
        assert chosen == []
        assert path.read_bytes() == content
        assert torch.equal(first.scores(), second.scores())
        assert first.assessment.seconds == second.assessment.seconds  # of the search, not of reading it

    def test_every_trial_is_in_the_file(self, links, path):
        found = Auto(links, trials=path).fit(links.links()).assessment.trials
        splits = json.loads(path.read_text())["splits"]
        assert [{"split": int(at)} | trial for at in splits for trial in splits[at]["trials"]] == found

    def test_through_the_front_door(self, links, path):
        kept = fit_prioritiser(links, trials=path, progress=False)
        plain = fit_prioritiser(links, progress=False)
        assert torch.equal(kept.rankers[0].scores(), plain.rankers[0].scores())
        assert path.exists()


class TestWhoseFile:
    @pytest.mark.parametrize("change", ["seed", "metric", "steps", "links", "graph"])
    def test_another_search_is_refused_and_the_file_stays(self, links, path, change):
        Auto(links, trials=path).fit(links.links())
        content, others, options = path.read_bytes(), links, {}
        if change == "links":
            others = links.subsample(0.9)
        elif change == "graph":
            others = planted.by_cols()[0]
        else:
            options = {"seed": {"seed": 1}, "metric": {"metric": "AUC"}, "steps": {"max_steps": 3}}[change]
        with pytest.raises(InputError, match=r"trials.json: expected the trials of a search by auto in these links"):
            Auto(others, trials=path, **options).fit(others.links())
        assert path.read_bytes() == content

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda tree: [], "got another file"),
            (lambda tree: tree | {"more": 1}, "got another file"),
            (lambda tree: tree | {"splits": []}, "damaged file"),
            (lambda tree: tree | {"splits": {"first": tree["splits"]["0"]}}, "damaged file"),
            (lambda tree: tree["splits"]["0"]["blend"].pop("names") and tree, "damaged file .KeyError"),
            (lambda tree: tree["splits"]["0"]["blend"]["names"].pop() and tree, "other terms"),
            (lambda tree: tree["splits"]["0"]["blend"]["mixture"].pop() and tree, "another shape"),
            (lambda tree: tree["splits"]["0"]["blend"]["mixture"][0].__setitem__(0, -1.0) or tree, "below 0"),
            (lambda tree: tree["splits"]["0"]["blend"]["mixture"][0].__setitem__(0, 7.0) or tree, "do not add up"),
            (lambda tree: tree["splits"]["0"]["blend"]["weights"][0].update(magic=1.0) or tree, "unknown terms"),
            (lambda tree: tree["splits"]["0"]["blend"]["weights"][0].pop(MIXTURE) and tree, "unknown terms"),
            (lambda tree: tree["splits"]["0"].update(judged=["xy"]) or tree, "damaged file .ValueError"),
            (lambda tree: tree["splits"]["0"].update(judged=[[-9.0, 0.1]] * 5) or tree, "more than those before it"),
        ],
    )
    def test_damage_is_told(self, links, path, damage, message):
        Auto(links, trials=path).fit(links.links())
        path.write_text(json.dumps(damage(json.loads(path.read_text()))))
        with pytest.raises(InputError, match=message):
            Auto(links, trials=path).fit(links.links())

    def test_a_torn_file_is_told(self, links, path):
        path.write_text('{"belongs": "0.1')
        with pytest.raises(InputError, match=r"trials.json, line 1"):
            Auto(links, trials=path).fit(links.links())

    def test_paths_that_cannot_be_written_are_refused_before_the_search(self, links, tmp_path):
        with pytest.raises(InputError, match="trials: .*expected an existing directory"):
            Auto(links, trials=tmp_path / "none" / "trials.json")
        with pytest.raises(InputError, match="trials: expected the path of a file, got int"):
            Auto(links, trials=3)
        with pytest.raises(InputError, match="trials: they are of auto, got model 'whole'"):
            fit_prioritiser(links, model="whole", trials=tmp_path / "trials.json")


def choice(mixture_weight, judged=()):
    mixture = torch.full((4, 2), 0.5, dtype=torch.float64)
    return Chosen(Blend(("popularity",), mixture, ({MIXTURE: mixture_weight},) * 4), [], [*judged], 10, 1, 0.0)


class TestAverage:
    def test_of_three_the_last_decides(self):
        def weight(*judged):
            return settled([choice(1.0), choice(3.0), choice(8.0, judged)]).weights[0][MIXTURE]

        assert weight([0.1, 0.01], [0.2, 0.01]) == 4.0  # ahead of both: the mean of all three
        assert weight([0.1, 0.01], [-0.029, 0.01]) == 4.0  # behind, but not for sure
        assert weight([0.1, 0.01], [-0.031, 0.01]) == 3.0
        assert weight([-0.3, 0.01], [-0.2, 0.01]) == 1.0

    def test_one_or_two_are_averaged(self):
        assert settled([choice(2.0)]).weights[0][MIXTURE] == 2.0
        assert settled([choice(2.0), choice(4.0)]).weights[0][MIXTURE] == 3.0

    def test_what_is_judged_is_the_objective_of_rankers(self, links, monkeypatch):
        """The third split compares the average with both choices before it, by scores of rankers with these weights."""
        samples, splits, before = [], [], Auto._sample

        def kept(self, bank, split, *args):
            splits.append((bank, split))
            samples.append(before(self, bank, split, *args))
            return samples[-1]

        monkeypatch.setattr(Auto, "_sample", kept)
        made = []
        monkeypatch.setattr(module, "settled", lambda chosen: made.append(chosen) or settled(chosen))
        Auto(links, metric="AUC").fit(links.links())
        (chosen,), (bank, split), sample = made, splits[2], samples[2]
        assert [len(part.judged) for part in chosen] == [0, 0, 2]
        single = [part.blend for part in chosen[:2]]
        known, held_out = (TaskItems(part, links.shape, "links") for part in (split.train, split.held_out))
        rows = validation_rows(known, held_out, ~judging_rows(links.shape[0], 0), 2)
        own, *others = (
            ranking_scores(AutoRanker(bank, blend), split.held_out, exclude=split.train, rows=rows).per_task("AUC")
            for blend in (average(single), *single)
        )
        first = chosen[2].trials[0]["AUC"]
        # The sample has all candidates of this small set, so its AUC is that of the lists. It is rounded otherwise, which
        # may exchange two columns with nearly equal scores: some few of all pairs.
        factor, least = 1 / first + 0.5, links.shape[1] - int(known.counts.max()) - int(held_out.counts.max())
        exchanged = 5 * factor * float(sample.row_weights.max()) / least
        for (ahead, error), other in zip(chosen[2].judged, others, strict=True):
            weighted = (own - other) * sample.row_weights * factor
            assert ahead == pytest.approx(float(weighted.sum()), abs=exchanged)
            assert error == pytest.approx(float(weighted.std(unbiased=False)) * len(rows) ** 0.5, abs=exchanged)
        assert lead(sample, single[0], single[:1], "AUC", first) == [[0.0, 0.0]]
