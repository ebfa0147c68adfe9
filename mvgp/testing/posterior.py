"""PosteriorContract: what mvgp relies on in a posterior with a mean and a covariance."""

from __future__ import annotations

import math
import tempfile
import unittest
from pathlib import Path

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from ..metrics import Ranker
from ..posteriors import GaussianPosterior
from ..storage import load
from .contract import rounding
from .posterior_ranks import PosteriorRanksContract


class PosteriorContract(PosteriorRanksContract):
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

    def make_dense(self) -> tuple[Tensor, Tensor]:
        """What it should be: mean (M N,) and covariance (M N, M N), row-major, computed in another way."""
        raise unittest.SkipTest("no dense mean and covariance to compare with (override make_dense)")

    def make_ranker(self) -> Ranker:
        """The posterior is a ranker."""
        return self.make_posterior()

    def _cells(self, posterior: GaussianPosterior) -> tuple[Tensor, Tensor]:
        """(Q,) and (Q,): some cells, in no order, one of them twice."""
        number_rows, number_cols = posterior.shape
        generator = torch.Generator().manual_seed(0)
        cells = torch.randperm(number_rows * number_cols, generator=generator)[:12]
        cells = torch.cat([cells, cells[:1]])
        return cells // number_cols, cells % number_cols

    def test_the_joint_distribution_has_the_mean(self) -> None:
        """posterior(rows, cols).mean, posterior.mean and posterior.scores are the same numbers."""
        posterior = self.make_posterior()
        rows, cols = self._cells(posterior)
        joint, mean = posterior(rows, cols), posterior.mean(rows, cols)
        self.require(isinstance(joint, MultivariateNormal), "posterior(rows, cols) is a gpytorch MultivariateNormal")
        close = rounding(mean.dtype)
        self.require_close(joint.mean, mean, "posterior(rows, cols).mean is posterior.mean(rows, cols)", relative=close)
        scores = posterior.scores()[rows, cols]
        self.require_close(mean, scores, "posterior.mean(rows, cols) are entries of posterior.scores()", relative=close)

    def test_every_variance_is_the_same(self) -> None:
        """Of the joint distribution, of variance, of variances, of joint, and the diagonal of covariance."""
        posterior = self.make_posterior()
        rows, cols = self._cells(posterior)
        variance, number_cols = posterior.variance(rows, cols), posterior.shape[1]
        diagonal = posterior.covariance().to_dense().diagonal()[rows * number_cols + cols]
        others = {
            "posterior(rows, cols).variance": posterior(rows, cols).variance,
            "posterior.joint(rows, cols)": posterior.joint(rows, cols).matrix.diagonal(),
            "posterior.variances()": posterior.variances(method="exact").values[rows, cols],
            "posterior.covariance()": diagonal,
        }
        scale = float(self._prior_variance(posterior, rows, cols).max())
        for name, found in others.items():
            rule = f"posterior.variance(rows, cols) agrees with {name}"
            self.require_close(found, variance, rule, absolute=100 * rounding(variance.dtype) * scale)

    def test_every_covariance_is_the_same(self) -> None:
        """Of the joint distribution, of joint, and a block of covariance; symmetric and positive semi-definite."""
        posterior = self.make_posterior()
        rows, cols = self._cells(posterior)
        whole, cells = posterior.covariance().to_dense(), rows * posterior.shape[1] + cols
        size = posterior.shape[0] * posterior.shape[1]
        self.require(whole.shape == (size, size), f"covariance() is (M N, M N), got {tuple(whole.shape)}")
        within = 100 * rounding(whole.dtype) * float(whole.diagonal().max())
        self.require_close(whole, whole.mT, "covariance() is symmetric", absolute=within)
        lowest = float(torch.linalg.eigvalsh((whole + whole.mT) / 2).min())
        self.require(lowest >= -within, f"covariance() is positive semi-definite, got an eigenvalue {lowest:.3g}")
        wanted = whole[cells][:, cells]
        lazy, dense = posterior(rows, cols).covariance_matrix, posterior.joint(rows, cols).matrix
        self.require_close(lazy, wanted, "posterior(rows, cols) has a block of covariance()", absolute=within)
        self.require_close(dense, wanted, "posterior.joint(rows, cols) is a block of covariance()", absolute=within)

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
        posterior = self.make_posterior()
        rows, cols = self._cells(posterior)
        variance = posterior.variance(rows, cols)
        self.require(torch.isfinite(variance).all() and (variance >= 0).all(), "variances are finite and not negative")
        if self.below_prior:
            most = self._prior_variance(posterior, rows, cols) * (1 + rounding(variance.dtype))
            self.require((variance <= most).all(), "no variance is larger than the prior's")

    @staticmethod
    def _prior_variance(posterior: GaussianPosterior, rows: Tensor, cols: Tensor) -> Tensor:
        with torch.no_grad():
            found: Tensor = posterior.prior(rows, cols).variance
            return found

    def test_intervals_are_central(self) -> None:
        """Mean in the middle; 90 % is 1.645 standard deviations either way."""
        posterior = self.make_posterior()
        rows, cols = self._cells(posterior)
        low, high = posterior.interval(rows, cols, level=0.9)
        close = 100 * rounding(low.dtype)
        middle = "the middle of an interval is the mean"
        self.require_close((low + high) / 2, posterior.mean(rows, cols), middle, relative=close, absolute=close)
        half = 1.6448536269514722 * posterior.variance(rows, cols).sqrt()
        rule = "a 90 % interval reaches 1.645 standard deviations"
        self.require_close((high - low) / 2, half, rule, relative=close, absolute=close)

    def test_samples_have_the_mean_and_the_covariance(self) -> None:
        """2,000 joint samples, to five standard errors; the same generator gives the same samples."""
        posterior, count = self.make_posterior(), 2000
        rows, cols = self._cells(posterior)
        one, two = (posterior.sample(rows, cols, count, generator=torch.Generator().manual_seed(1)) for _ in range(2))
        self.require(one.shape == (count, len(rows)), f"sample is (num_samples, Q), got {tuple(one.shape)}")
        self.require(torch.equal(one, two), "samples follow from the generator")
        covariance = posterior.joint(rows, cols).matrix
        variance = covariance.diagonal().clamp_min(0)
        slack = 1e-6 * float(variance.max()) ** 0.5
        off = (one.mean(0) - posterior.mean(rows, cols)).abs()
        self.require((off <= 5 * (variance / count).sqrt() + slack).all(), "samples have the posterior mean")
        centred = one - posterior.mean(rows, cols)
        spread = (variance[:, None] * variance + covariance.square()).sqrt() / math.sqrt(count)
        wrong = (centred.mT @ centred / count - covariance).abs() > 5 * spread + 1e-6 * float(variance.max())
        self.require(not wrong.any(), "samples have the posterior covariance")

    def test_it_is_the_dense_posterior(self) -> None:
        """Mean and covariance of all cells against :meth:`make_dense`."""
        mean, covariance = self.make_dense()
        posterior = self.make_posterior()
        close = 1e-6 if mean.dtype == torch.float64 else 1e-3
        self.require_close(posterior.scores().flatten(), mean, "its mean is the dense one", relative=close)
        found = posterior.covariance().to_dense()
        self.require_close(found, covariance, "its covariance is the dense one", relative=close)

    def test_a_file_gives_it_back(self) -> None:
        """The same numbers to the last bit after save and load."""
        if not self.can_be_saved:
            raise unittest.SkipTest("can_be_saved is False")
        posterior = self.make_posterior()
        rows, cols = self._cells(posterior)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "posterior.mvgp"
            posterior.save(path)
            loaded = load(path)
        for name in ("mean", "variance"):
            same = torch.equal(getattr(loaded, name)(rows, cols), getattr(posterior, name)(rows, cols))
            self.require(same, f"a loaded posterior has the same {name}")
        self.require(torch.equal(loaded.scores(), posterior.scores()), "a loaded posterior has the same scores")
