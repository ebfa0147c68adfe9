"""The rules of a posterior about the ranks of a row. A part of PosteriorContract."""

from __future__ import annotations

import torch

from ..posteriors import GaussianPosterior
from .ranker import RankerContract


class PosteriorRanksContract(RankerContract):
    """Rules about ``top``, ``top_probability``, ``rank_interval`` and ``beats``."""

    def make_posterior(self) -> GaussianPosterior:
        """The posterior, of at least 2 rows and 3 columns."""
        raise NotImplementedError("override make_posterior")

    def test_the_top_is_sorted_and_leaves_out_what_it_should(self) -> None:
        """The k best candidates by mean, best first, with their standard deviations."""
        posterior = self.make_posterior()
        scores = posterior.scores([1])[0]
        table = posterior.top(1, k=2, exclude=([1], [int(scores.argmax())]), num_samples=50)
        self.require(len(table.items) == 2, f"top(row, k=2) has 2 items, got {len(table.items)}")
        order = scores.argsort(descending=True, stable=True)[1:3]
        close = {"relative": 1e-6, "absolute": 1e-6 * float(scores.abs().max())}
        self.require_close(table.mean, scores[order], "top(row, k) has the best candidates, best first", **close)
        std = posterior.variance([1, 1], table.items).sqrt()
        self.require_close(table.std, std, "top(row, k) has their standard deviations", relative=0.011)
        number_cols = posterior.shape[1]
        everything = posterior.top(1, k=number_cols + 5, num_samples=50)
        self.require(len(everything.items) == number_cols, "a top longer than the row is the row")

    def test_probabilities_of_the_top_sum_to_k(self) -> None:
        """Exactly k places are taken in every sample; an excluded item takes none."""
        posterior = self.make_posterior()
        found = posterior.top_probability(0, k=2, exclude=([0], [1]), num_samples=200)
        self.require(found.shape == (posterior.shape[1],), "top_probability(row, k) is (N,)")
        self.require(((found >= 0) & (found <= 1)).all(), "P(in the top k) is between 0 and 1")
        self.require(abs(float(found.sum()) - min(2, len(found) - 1)) < 1e-6, "P(in the top k) sums to k over a row")
        self.require(float(found[1]) == 0, "P(in the top k) is 0 for an excluded item")

    def test_probabilities_follow_from_the_seed(self) -> None:
        """The same seed gives the same answer, and the random numbers of others are left alone."""
        posterior = self.make_posterior()
        before = torch.get_rng_state()
        one, two = (posterior.top_probability(0, k=2, num_samples=100, seed=3) for _ in range(2))
        self.require(torch.equal(one, two), "top_probability with the same seed gives the same numbers")
        self.require(torch.equal(before, torch.get_rng_state()), "queries leave the global random numbers alone")

    def test_rank_intervals_are_ranks(self) -> None:
        """Between 1 and N, the best rank first."""
        posterior = self.make_posterior()
        low, high = posterior.rank_interval(0, level=0.9, num_samples=200)
        right = (low >= 1) & (low <= high) & (high <= posterior.shape[1])
        self.require(right.all(), "1 <= best rank <= worst rank <= N")

    def test_one_item_beats_the_other_or_not(self) -> None:
        """P(a beats b) + P(b beats a) = 1, and the one with the higher mean is ahead."""
        posterior = self.make_posterior()
        there, back = posterior.beats(0, 0, 1), posterior.beats(0, 1, 0)
        self.require(abs(there + back - 1) < 1e-6, f"P(a beats b) + P(b beats a) = 1, got {there} and {back}")
        mean = posterior.mean([0, 0], [0, 1])
        ahead = (there - 0.5) * float(mean[0] - mean[1]) >= 0
        self.require(ahead, "the item with the higher mean beats the other with at least 1/2")
