"""RankerContract, PosteriorContract: what mvgp relies on in whatever scores rows, and in a posterior."""

from __future__ import annotations

import math
import tempfile
import unittest
from pathlib import Path

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from ..metrics.ranking import Ranker, ranking_scores
from ..posteriors.gaussian import GaussianPosterior
from ..storage.posteriors import load
from .contract import Contract, rounding


class RankerContract(Contract):
    """Rules of a :class:`~mvgp.metrics.Ranker`: a shape, and scores of whole rows.

    Override :meth:`make_ranker` with a small one, of at least 2 rows and 2 columns.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.baselines import Popularity
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

    def test_it_is_a_ranker(self) -> None:
        """It has a shape and a method scores."""
        ranker = self.make_ranker()
        self.require(isinstance(ranker, Ranker), "has a property shape and a method scores(rows=None)")
        shape = tuple(ranker.shape)
        whole = len(shape) == 2 and all(isinstance(size, int) and size > 0 for size in shape)
        self.require(whole, f"shape is (M, N), two positive whole numbers, got {shape!r}")

    def test_scores_have_the_shape(self) -> None:
        """scores() is (M, N) and scores(rows) is (R, N)."""
        ranker = self.make_ranker()
        scores = ranker.scores()
        self.require(isinstance(scores, Tensor), f"scores() is a tensor, got {type(scores).__name__}")
        self.require(scores.shape == tuple(ranker.shape), f"scores() is (M, N) = {ranker.shape}, got {scores.shape}")
        some = ranker.scores(torch.tensor([1]))
        self.require(some.shape == (1, ranker.shape[1]), f"scores(rows) is (R, N), got {tuple(some.shape)} for one row")

    def test_scores_are_finite_numbers(self) -> None:
        """No NaN, no infinity, floating point."""
        scores = self.make_ranker().scores()
        self.require(scores.is_floating_point(), f"scores are floating-point numbers, got {scores.dtype}")
        self.require(torch.isfinite(scores).all(), "scores are finite")

    def test_some_rows_are_rows_of_all(self) -> None:
        """In any order, repeated or not, as a tensor or a list."""
        ranker = self.make_ranker()
        scores = ranker.scores()
        last = int(ranker.shape[0]) - 1
        for rows in ([0], [last, 0], [1, 1, 0]):
            for chosen in (torch.tensor(rows), rows):
                rule = f"scores({rows}), given as a {type(chosen).__name__}, are these rows of scores()"
                self.require_close(ranker.scores(chosen), scores[rows], rule, relative=rounding(scores.dtype))

    def test_the_same_question_has_the_same_answer(self) -> None:
        """Twice the same scores, and no random numbers of others are used up."""
        ranker = self.make_ranker()
        scores = ranker.scores()
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
        actual = ranking_scores(ranker, held_out, k=2, rows=rows)
        expected = ranking_scores(ranker.scores(rows), held_out, k=2)
        self.require_close(actual.auc, expected.auc, "mvgp.metrics gives the AUC of its matrix", absolute=1e-12)


class PosteriorContract(RankerContract):
    """Rules of a posterior: every query agrees with one mean and one covariance over all cells.

    They include those of a ranker. Override :meth:`make_posterior` with a small one, of up to some 100 cells, and
    where a dense computation is at hand :meth:`make_dense`.

    Example:
        >>> import gpytorch, mvgp
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.testing import PosteriorContract, run_contract
        >>> class PlainContract(PosteriorContract):
        ...     def make_posterior(self):
        ...         kernels = [DiffusionKernel(Graph([(i, i + 1) for i in range(n - 1)], n)) for n in (3, 4)]
        ...         data = mvgp.ObservedMatrix([0, 1, 2], [0, 1, 3], [1.0, -1.0, 2.0], shape=(3, 4))
        ...         return mvgp.FullGP(mvgp.MatrixGP(*kernels), gpytorch.likelihoods.GaussianLikelihood()).fit(data)
        >>> run_contract(PlainContract).broken
        {}

    """

    below_prior = True  # whether conditioning only lowers variances; not so for approximations of another model
    can_be_saved = True  # whether posterior.save works

    def make_posterior(self) -> GaussianPosterior:
        """The posterior, of at least 2 rows and 3 columns."""
        raise NotImplementedError("override make_posterior")

    def make_dense(self) -> tuple[Tensor, Tensor]:
        """What it should be: mean (M N,) and covariance (M N, M N), row-major, computed in another way."""
        raise unittest.SkipTest("no dense mean and covariance to compare with (override make_dense)")

    def make_ranker(self) -> Ranker:
        """The posterior is a ranker."""
        return self.make_posterior()

    def _cells(self) -> tuple[GaussianPosterior, Tensor, Tensor]:
        """The posterior, and (Q,) rows and (Q,) columns of some cells, in no order, one of them twice."""
        posterior = self.make_posterior()
        m, n = posterior.shape
        cells = torch.randperm(m * n, generator=torch.Generator().manual_seed(0))[:12]
        cells = torch.cat([cells, cells[:1]])
        return posterior, cells // n, cells % n

    def test_the_joint_distribution_has_the_mean(self) -> None:
        """posterior(rows, cols).mean, posterior.mean and posterior.scores are the same numbers."""
        posterior, rows, cols = self._cells()
        joint, mean = posterior(rows, cols), posterior.mean(rows, cols)
        self.require(isinstance(joint, MultivariateNormal), "posterior(rows, cols) is a gpytorch MultivariateNormal")
        close = rounding(mean.dtype)
        self.require_close(joint.mean, mean, "posterior(rows, cols).mean is posterior.mean(rows, cols)", relative=close)
        scores = posterior.scores()[rows, cols]
        self.require_close(mean, scores, "posterior.mean(rows, cols) are entries of posterior.scores()", relative=close)

    def test_every_variance_is_the_same(self) -> None:
        """Of the joint distribution, of variance, of variances, of joint, and the diagonal of covariance."""
        posterior, rows, cols = self._cells()
        variance, cells = posterior.variance(rows, cols), rows * posterior.shape[1] + cols
        others = {
            "posterior(rows, cols).variance": posterior(rows, cols).variance,
            "posterior.joint(rows, cols)": posterior.joint(rows, cols).matrix.diagonal(),
            "posterior.variances()": posterior.variances(method="exact").values[rows, cols],
            "posterior.covariance()": posterior.covariance().to_dense().diagonal()[cells],
        }
        scale = float(posterior.prior(rows, cols).variance.detach().max())
        for name, actual in others.items():
            rule = f"posterior.variance(rows, cols) agrees with {name}"
            self.require_close(actual, variance, rule, absolute=100 * rounding(variance.dtype) * scale)

    def test_every_covariance_is_the_same(self) -> None:
        """Of the joint distribution, of joint, and a block of covariance; symmetric and positive semi-definite."""
        posterior, rows, cols = self._cells()
        whole, cells = posterior.covariance().to_dense(), rows * posterior.shape[1] + cols
        size = posterior.shape[0] * posterior.shape[1]
        self.require(whole.shape == (size, size), f"covariance() is (M N, M N), got {tuple(whole.shape)}")
        within = 100 * rounding(whole.dtype) * float(whole.diagonal().max())
        self.require_close(whole, whole.mT, "covariance() is symmetric", absolute=within)
        lowest = float(torch.linalg.eigvalsh((whole + whole.mT) / 2).min())
        self.require(lowest >= -within, f"covariance() is positive semi-definite, got an eigenvalue {lowest:.3g}")
        expected = whole[cells][:, cells]
        lazy, dense = posterior(rows, cols).covariance_matrix, posterior.joint(rows, cols).matrix
        self.require_close(lazy, expected, "posterior(rows, cols) has a block of covariance()", absolute=within)
        self.require_close(dense, expected, "posterior.joint(rows, cols) is a block of covariance()", absolute=within)

    def test_the_lazy_covariance_multiplies_like_the_dense_one(self) -> None:
        """covariance() @ x without forming it."""
        posterior = self.make_posterior()
        operator = posterior.covariance()
        dense = operator.to_dense()
        right = torch.randn(len(dense), 3, generator=torch.Generator().manual_seed(0), dtype=dense.dtype)
        close = 100 * rounding(dense.dtype)
        self.require_close(operator @ right, dense @ right, "covariance() @ x is its dense product", relative=close)

    def test_variances_lie_between_zero_and_the_prior(self) -> None:
        """Never negative; data never make a cell less certain."""
        posterior, rows, cols = self._cells()
        variance = posterior.variance(rows, cols)
        self.require(torch.isfinite(variance).all() and (variance >= 0).all(), "variances are finite and not negative")
        if self.below_prior:
            limit = posterior.prior(rows, cols).variance.detach() * (1 + rounding(variance.dtype))
            self.require((variance <= limit).all(), "no variance is larger than the prior's")

    def test_intervals_are_central(self) -> None:
        """Mean in the middle; 90 % is 1.645 standard deviations either way."""
        posterior, rows, cols = self._cells()
        low, high = posterior.interval(rows, cols, level=0.9)
        close = 100 * rounding(low.dtype)
        middle = "the middle of an interval is the mean"
        self.require_close((low + high) / 2, posterior.mean(rows, cols), middle, relative=close, absolute=close)
        half = 1.6448536269514722 * posterior.variance(rows, cols).sqrt()
        rule = "a 90 % interval reaches 1.645 standard deviations"
        self.require_close((high - low) / 2, half, rule, relative=close, absolute=close)

    def test_samples_have_the_mean_and_the_covariance(self) -> None:
        """2,000 joint samples, to five standard errors; the same generator gives the same samples."""
        (posterior, rows, cols), count = self._cells(), 2000
        generators = [torch.Generator().manual_seed(1) for _ in range(2)]
        first, second = (posterior.sample(rows, cols, count, generator=generator) for generator in generators)
        self.require(first.shape == (count, len(rows)), f"sample is (num_samples, Q), got {tuple(first.shape)}")
        self.require(torch.equal(first, second), "samples follow from the generator")
        covariance = posterior.joint(rows, cols).matrix
        variance = covariance.diagonal().clamp_min(0)
        slack = 1e-6 * float(variance.max()) ** 0.5
        off = (first.mean(0) - posterior.mean(rows, cols)).abs()
        self.require((off <= 5 * (variance / count).sqrt() + slack).all(), "samples have the posterior mean")
        centred = first - posterior.mean(rows, cols)
        spread = (variance[:, None] * variance + covariance.square()).sqrt() / math.sqrt(count)
        wrong = (centred.mT @ centred / count - covariance).abs() > 5 * spread + 1e-6 * float(variance.max())
        self.require(not wrong.any(), "samples have the posterior covariance")

    def test_it_is_the_dense_posterior(self) -> None:
        """Mean and covariance of all cells against :meth:`make_dense`."""
        mean, covariance = self.make_dense()
        posterior = self.make_posterior()
        close = 1e-6 if mean.dtype == torch.float64 else 1e-3
        self.require_close(posterior.scores().flatten(), mean, "its mean is the dense one", relative=close)
        actual = posterior.covariance().to_dense()
        self.require_close(actual, covariance, "its covariance is the dense one", relative=close)

    def test_a_file_gives_it_back(self) -> None:
        """The same numbers to the last bit after save and load."""
        if not self.can_be_saved:
            raise unittest.SkipTest("can_be_saved is False")
        posterior, rows, cols = self._cells()
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "posterior.mvgp"
            posterior.save(path)
            loaded = load(path)
        for name in ("mean", "variance"):
            same = torch.equal(getattr(loaded, name)(rows, cols), getattr(posterior, name)(rows, cols))
            self.require(same, f"a loaded posterior has the same {name}")
        self.require(torch.equal(loaded.scores(), posterior.scores()), "a loaded posterior has the same scores")

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
        everything = posterior.top(1, k=len(scores) + 5, num_samples=50)
        self.require(len(everything.items) == len(scores), "a top longer than the row is the row")

    def test_probabilities_of_the_top_sum_to_k(self) -> None:
        """Exactly k places are taken in every sample; an excluded item takes none."""
        posterior = self.make_posterior()
        actual = posterior.top_probability(0, k=2, exclude=([0], [1]), num_samples=200)
        self.require(actual.shape == (posterior.shape[1],), "top_probability(row, k) is (N,)")
        self.require(((actual >= 0) & (actual <= 1)).all(), "P(in the top k) is between 0 and 1")
        self.require(abs(float(actual.sum()) - min(2, len(actual) - 1)) < 1e-6, "P(in the top k) sums to k over a row")
        self.require(float(actual[1]) == 0, "P(in the top k) is 0 for an excluded item")

    def test_probabilities_follow_from_the_seed(self) -> None:
        """The same seed gives the same answer, and the random numbers of others are left alone."""
        posterior = self.make_posterior()
        before = torch.get_rng_state()
        first, second = (posterior.top_probability(0, k=2, num_samples=100, seed=3) for _ in range(2))
        self.require(torch.equal(first, second), "top_probability with the same seed gives the same numbers")
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
