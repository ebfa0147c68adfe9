"""Gaussian noise whose variance is learned for each row, for each column, or for both."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.priors import Prior
from linear_operator import LinearOperator
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from ..checks import check_instance, check_positive, check_whole_number, overridden
from ..data.observed import ObservedMatrix
from ..errors import InputError
from ..tensor_checks import check_cells

GAUSSIAN_METHODS = ("forward", "marginal", "expected_log_prob", "log_marginal", "_shaped_noise_covar", "__call__")


class AxisNoiseGaussianLikelihood(GaussianLikelihood):
    r"""Gaussian noise of variance :math:`\sigma^2 e^{a_m + c_n}` at the pair (m, n), all of it learned.

    a and c are centred, so that :math:`\sigma^2` (``likelihood.noise``) is the geometric mean over rows and columns,
    and no two settings mean the same. :class:`mvgp.FullGP`, :class:`mvgp.TraceGP` and :class:`mvgp.FactorGP`, the
    marginal likelihood, the trace bound and leave-one-out honour it on an ``ObservedMatrix``; what cannot refuses it.

    :param num_rows: M, for a noise of each row; None for the same noise in all rows.
    :param num_cols: N, the same for columns.
    :param noise: where :math:`\sigma^2` starts.
    :param row_prior: a gpytorch prior on a (M,), such as ``NormalPrior(0.0, 1.0)``: rows with few entries need one.
    :param col_prior: the same for c (N,).
    :param noise_prior: on :math:`\sigma^2`, as in gpytorch.
    :param noise_constraint: on :math:`\sigma^2`, as in gpytorch.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.likelihoods import AxisNoiseGaussianLikelihood
        >>> kernels = [mvgp.kernels.PrecomputedKernel(torch.eye(size).double()) for size in (2, 3)]
        >>> likelihood = AxisNoiseGaussianLikelihood(num_rows=2, noise=1.0)
        >>> likelihood.row_deviation = [1.0, -1.0]
        >>> data = mvgp.ObservedMatrix([0, 1], [0, 0], [1.0, 1.0], (2, 3))
        >>> posterior = mvgp.FullGP(mvgp.MatrixGP(*kernels), likelihood).fit(data)
        >>> [round(number, 4) for number in posterior.mean([0, 1], [0, 0]).tolist()]  # 1 / (1 + e), 1 / (1 + 1 / e)
        [0.2689, 0.7311]

    """

    def __init__(
        self,
        num_rows: int | None = None,
        num_cols: int | None = None,
        *,
        noise: float = 1.0,
        row_prior: Prior | None = None,
        col_prior: Prior | None = None,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
    ) -> None:
        super().__init__(noise_prior=noise_prior, noise_constraint=noise_constraint)
        self.double()
        if num_rows is None and num_cols is None:
            raise InputError("num_rows, num_cols: expected a number of rows, of columns, or both, got none")
        for name, count, prior in (("row", num_rows, row_prior), ("col", num_cols, col_prior)):
            if count is None:
                if prior is not None:
                    raise InputError(f"{name}_prior: a prior on what is not learned; give num_{name}s")
                continue
            size = check_whole_number(count, f"num_{name}s", maximum=2**31 - 1)
            self.register_parameter(f"raw_{name}_deviation", torch.nn.Parameter(torch.zeros(size, dtype=torch.float64)))
            if prior is not None:
                check_instance(prior, f"{name}_prior", Prior, "a gpytorch prior")
                getter, setter = _deviation_of(name), _set_deviation_of(name)
                self.register_prior(f"{name}_deviation_prior", prior, getter, setter)
        self.noise = torch.tensor(check_positive(noise, "noise"), dtype=torch.float64)

    @property
    def row_deviation(self) -> Tensor | None:
        """(M,) a: log noise of each row less their mean; None where rows have the same noise."""
        return self._deviation("row")

    @row_deviation.setter
    def row_deviation(self, values: Any) -> None:
        self._set_deviation("row", values)

    @property
    def col_deviation(self) -> Tensor | None:
        """(N,) c: log noise of each column less their mean; None where columns have the same noise."""
        return self._deviation("col")

    @col_deviation.setter
    def col_deviation(self, values: Any) -> None:
        self._set_deviation("col", values)

    def _deviation(self, name: str) -> Tensor | None:
        raw = self._parameters.get(f"raw_{name}_deviation")
        return None if raw is None else raw - raw.mean()

    def _set_deviation(self, name: str, values: Any) -> None:
        raw = self._parameters.get(f"raw_{name}_deviation")
        if raw is None:
            raise InputError(f"{name}_deviation: this likelihood has none; give num_{name}s")
        with torch.no_grad():
            raw.copy_(torch.as_tensor(values, dtype=raw.dtype, device=raw.device).expand_as(raw))

    def check_shape(self, shape: tuple[int, int]) -> None:
        """Refuse data of another number of rows or columns."""
        for size, deviation, what in (
            (shape[0], self.row_deviation, "rows"),
            (shape[1], self.col_deviation, "columns"),
        ):
            if deviation is not None and len(deviation) != size:
                raise InputError(f"likelihood: expected noise of each of {size} {what}, got that of {len(deviation)}")

    def factors(self, rows: Tensor, cols: Tensor) -> Tensor:
        """(T,): noise variances at pairs, relative to ``likelihood.noise``; differentiable."""
        parts = ((self.row_deviation, rows), (self.col_deviation, cols))
        logs = [deviation[at.to(deviation.device)] for deviation, at in parts if deviation is not None]
        return torch.stack(logs).sum(0).exp()

    def noise_at(self, rows: Any, cols: Any) -> Tensor:
        """(T,): noise variances at pairs (``rows``, ``cols``); differentiable."""
        largest = 2**31 - 1
        sizes = [largest if part is None else len(part) for part in (self.row_deviation, self.col_deviation)]
        return self.noise * self.factors(*check_cells(rows, cols, (sizes[0], sizes[1])))

    @torch.no_grad()
    def weighted(self, data: Any) -> ObservedMatrix:
        """The data with weights that stand for the noise of each row and column, as it is now."""
        if not isinstance(data, ObservedMatrix):
            raise InputError(
                f"data: noise of each row or column needs an ObservedMatrix, got {type(data).__name__}: on whole lists "
                "there are two noise variances, of links and of unlabelled cells"
            )
        self.check_shape(data.shape)
        weights = (1 / self.factors(data.rows, data.cols)).to(data.values)
        if data.weights is not None:
            weights = weights * data.weights
        names: dict[str, Any] = {"row_names": data.row_names, "col_names": data.col_names}
        return ObservedMatrix(data.rows, data.cols, data.values, data.shape, weights=weights, **names)

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, rows: Any = None, cols: Any = None, **kwargs: Any
    ) -> LinearOperator:
        """For ``likelihood(posterior(rows, cols), rows, cols)``: the noise of those pairs."""
        if len(params) == 2 and rows is None and cols is None:
            rows, cols = params
        elif params or rows is None or cols is None:
            raise InputError(
                "likelihood: noise of each row and column needs them: likelihood(posterior(rows, cols), rows, cols)"
            )
        return DiagLinearOperator(self.noise_at(rows, cols).expand(base_shape))


def _deviation_of(name: str) -> Any:
    return lambda module: module._deviation(name)


def _set_deviation_of(name: str) -> Any:
    return lambda module, values: module._set_deviation(name, values)


def entry_noise(likelihood: Any, like: Tensor, rows: Any, cols: Any, weights: Tensor | None) -> Tensor:
    """() noise variance, or (T,) those of pairs, over their weights; differentiable.

    :param likelihood: with a property ``noise``, one number; or with a noise of each row and column.
    """
    noise = likelihood.noise.to(like).reshape(-1)
    if noise.numel() != 1:
        raise InputError(f"likelihood: expected one noise variance, got {noise.numel()}")
    each = noise[0]
    if isinstance(likelihood, AxisNoiseGaussianLikelihood):
        each = each * likelihood.factors(rows, cols).to(like)
    return each if weights is None else each / weights.to(like)


def check_gaussian(likelihood: Any, user: str, *, axis_noise: bool = False) -> None:
    """Refuse all but Gaussian noise of one variance, or of each row and column where the ``user`` honours that."""
    if not isinstance(likelihood, GaussianLikelihood):
        raise InputError(
            f"likelihood: expected gpytorch's GaussianLikelihood, got {type(likelihood).__name__} "
            "(for known noise of each entry, give the data weights; for Bernoulli, Poisson and the like there is "
            "mvgp.hyperparameters.learn_evidence)"
        )
    by_axis = axis_noise and isinstance(likelihood, AxisNoiseGaussianLikelihood)
    base, more = (AxisNoiseGaussianLikelihood, ("factors", "noise_at")) if by_axis else (GaussianLikelihood, ())
    changed = overridden(likelihood, base, *GAUSSIAN_METHODS, *more)
    noise_model = type(likelihood.noise_covar)
    if changed or noise_model is not HomoskedasticNoise:
        reason = f"overrides {', '.join(changed)}" if changed else f"has the noise model {noise_model.__name__}"
        raise InputError(
            f"likelihood: {user} uses one noise variance, likelihood.noise, and nothing else of a GaussianLikelihood; "
            f"{type(likelihood).__name__} {reason}, which would be ignored. Override the property noise, or give the "
            "data weights for noise that differs between entries"
        )
