"""RankerContract: what metrics, studies and reports rely on in anything that scores items."""

from __future__ import annotations

import torch
from torch import Tensor

from ..metrics import Ranker, ranking_scores
from .contract import Contract, rounding


class RankerContract(Contract):
    """Rules of a :class:`~mvgp.metrics.Ranker`: a shape, and scores of whole rows.

    Override :meth:`make_ranker` with a small one, of at least 2 rows and 2 columns.

    Example:
        >>> import mvgp
        >>> from mvgp.baselines import Popularity
        >>> from mvgp.testing import RankerContract, run_contract
        >>> class PopularityContract(RankerContract):
        ...     def make_ranker(self):
        ...         return Popularity().fit(mvgp.PositiveUnlabelled([0, 1, 1], [2, 2, 0], shape=(3, 4)))
        >>> run_contract(PopularityContract).holds
        True

    """

    def make_ranker(self) -> Ranker:
        """The ranker, of at least 2 rows and 2 columns."""
        raise NotImplementedError("override make_ranker")

    def _scores(self) -> tuple[Ranker, Tensor]:
        ranker = self.make_ranker()
        return ranker, ranker.scores()

    def test_it_is_a_ranker(self) -> None:
        """It has a shape and a method scores."""
        ranker = self.make_ranker()
        self.require(isinstance(ranker, Ranker), "has a property shape and a method scores(rows=None)")
        shape = tuple(ranker.shape)
        whole = len(shape) == 2 and all(isinstance(size, int) and size > 0 for size in shape)
        self.require(whole, f"shape is (M, N), two positive whole numbers, got {shape!r}")

    def test_scores_have_the_shape(self) -> None:
        """scores() is (M, N) and scores(rows) is (R, N)."""
        ranker, scores = self._scores()
        self.require(isinstance(scores, Tensor), f"scores() is a tensor, got {type(scores).__name__}")
        self.require(scores.shape == tuple(ranker.shape), f"scores() is (M, N) = {ranker.shape}, got {scores.shape}")
        some = ranker.scores(torch.tensor([1]))
        self.require(some.shape == (1, ranker.shape[1]), f"scores(rows) is (R, N), got {tuple(some.shape)} for one row")

    def test_scores_are_finite_numbers(self) -> None:
        """No NaN, no infinity, floating point."""
        scores = self._scores()[1]
        self.require(scores.is_floating_point(), f"scores are floating-point numbers, got {scores.dtype}")
        self.require(torch.isfinite(scores).all(), "scores are finite")

    def test_some_rows_are_rows_of_all(self) -> None:
        """In any order, repeated or not, as a tensor or a list."""
        ranker, scores = self._scores()
        last = int(ranker.shape[0]) - 1
        for rows in ([0], [last, 0], [1, 1, 0]):
            for given in (torch.tensor(rows), rows):
                kind = type(given).__name__
                found, wanted = ranker.scores(given), scores[torch.tensor(rows)]
                rule = f"scores({rows}), given as a {kind}, are these rows of scores()"
                self.require_close(found, wanted, rule, relative=rounding(scores.dtype))

    def test_the_same_question_has_the_same_answer(self) -> None:
        """Twice the same scores, and no random numbers of others are used up."""
        ranker, scores = self._scores()
        before = torch.get_rng_state()
        again = ranker.scores()
        self.require(torch.equal(before, torch.get_rng_state()), "scores() leaves the global random numbers alone")
        self.require(torch.equal(again, scores), "scores() gives the same numbers twice")

    def test_a_row_that_is_not_there_is_refused(self) -> None:
        """No wrapping around from -1, no padding beyond M."""
        ranker = self.make_ranker()
        for row in (int(ranker.shape[0]), -1):
            rule = "scores([M]) and scores([-1]) are errors"
            self.require_refusal(lambda row=row: ranker.scores(torch.tensor([row])), rule)

    def test_metrics_take_it(self) -> None:
        """They say the same of the ranker as of its matrix."""
        ranker = self.make_ranker()
        rows, held_out = torch.tensor([0, 1]), ([0, 1], [1, 0])
        found = ranking_scores(ranker, held_out, k=2, rows=rows)
        wanted = ranking_scores(ranker.scores(rows), held_out, k=2)
        self.require_close(found.auc, wanted.auc, "mvgp.metrics gives the AUC of its matrix", absolute=1e-12)
