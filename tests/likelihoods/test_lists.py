"""Grouping of entries by task."""

import torch

from mvgp.likelihoods import RankingLists
from mvgp.likelihoods.lists import is_ascending, split_indices
from tests.likelihoods.instances import random_lists


def test_sides_hold_every_entry_of_a_list_with_its_threshold():
    _, positive, _, task = random_lists(0, 50)
    lists = RankingLists.bipartite(positive, task)
    assert torch.equal(lists.task_ids, task.unique())
    assert torch.equal(lists.task_ids[lists.list_of], task)
    for side, kind in ((lists.upper, True), (lists.lower, False)):
        assert torch.equal(side.entry.sort().values, (positive == kind).nonzero().squeeze(1))
        assert torch.equal(side.threshold, lists.list_of[side.entry])
        assert (side.threshold.diff() >= 0).all()
        assert torch.equal(side.start.diff(), torch.bincount(side.threshold, minlength=lists.num_lists))
    assert torch.equal(lists.num_positive, torch.bincount(lists.list_of[positive], minlength=lists.num_lists))
    assert int(lists.sizes.sum()) == len(lists) == len(task)


def test_two_levels_are_grouped_alike():
    _, positive, _, task = random_lists(1, 50)
    one, other = RankingLists.bipartite(positive, task), RankingLists.graded(positive.long(), task)
    assert torch.equal(one.task_ids, other.task_ids)
    assert torch.equal(one.list_of, other.list_of)
    mixed = (one.num_positive > 0) & (one.num_positive < one.sizes)
    assert other.num_thresholds == int(mixed.sum())  # lists with a single level need none


def test_levels_that_a_list_lacks_take_no_room():
    lists = RankingLists.graded([1, 7, 7, 1, 3, 7, 5], [0, 0, 0, 2, 2, 2, 3])
    assert lists.cell_level.tolist() == [1, 7, 1, 3, 7, 5]
    assert lists.below_cell.tolist() == [3, 0, 3, 1, 2, 3]
    assert lists.above_cell.tolist() == [0, 3, 1, 2, 3, 3]
    assert lists.threshold_list.tolist() == [0, 1, 1]


def test_splitting_a_long_mask_and_seeing_order():
    mask = torch.rand(100_000) < 0.3
    ones, zeros = split_indices(mask)
    assert torch.equal(ones, mask.nonzero().squeeze(1))
    assert torch.equal(zeros, (~mask).nonzero().squeeze(1))
    assert [part.numel() for part in split_indices(mask[:0])] == [0, 0]
    rising = torch.arange(100_000) // 3
    assert is_ascending(rising)
    for place in (1, 32_767, 32_768, 99_999):
        broken = rising.clone()
        broken[place] = -1
        assert not is_ascending(broken)
    assert is_ascending(rising[:0])
    assert is_ascending(rising[:1])
