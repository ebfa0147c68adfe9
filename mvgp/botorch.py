r"""BoTorch on a matrix-variate posterior: acquisition functions over continuous inputs of rows or columns.

``import mvgp.botorch`` needs the extra ``mvgp[botorch]``; nothing else in mvgp imports it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

from .checks import check_choice, check_instance, check_whole_number
from .errors import InputError, missing_package
from .posteriors.gaussian import GaussianPosterior
from .priors.matrix_gp import Axis, MatrixGP
from .tensor_checks import check_index, check_whole

try:
    from botorch.models.model import FantasizeMixin, Model
    from botorch.posteriors.gpytorch import GPyTorchPosterior
except ModuleNotFoundError as error:
    raise missing_package("mvgp.botorch", "botorch", "botorch") from error

__all__ = ["MatrixModel"]

Inputs = Literal["col", "row", "both"]


@dataclass(frozen=True)
class _Cells:
    """Cells of a posterior: k of them, on q points, in batches (*B)."""

    index: Tensor | None  # (..., k) or (k,): positions on the other axis; None where both have inputs
    points: Tensor  # (k,): which of the q points
    inputs: tuple[Tensor, ...]  # (..., q, d): of the axis; of rows and columns where both have inputs

    def joined(self, other: _Cells) -> _Cells:
        """These cells followed by others, batches broadcast."""
        batch = torch.broadcast_shapes(self.inputs[0].shape[:-2], other.inputs[0].shape[:-2])
        pairs = zip(self.inputs, other.inputs, strict=True)
        inputs = tuple(torch.cat([x.expand(*batch, *x.shape[-2:]) for x in pair], dim=-2) for pair in pairs)
        points = torch.cat([self.points, other.points + self.inputs[0].shape[-2]])
        index = None
        if self.index is not None and other.index is not None:
            index = torch.cat([part.expand(*batch, part.shape[-1]) for part in (self.index, other.index)], dim=-1)
        return _Cells(index, points, inputs)


@dataclass(frozen=True)
class _Observed:
    """Further measurements: values (..., k) at cells, with noise variances (..., k)."""

    cells: _Cells
    values: Tensor
    noise: Tensor


class MatrixModel(Model, FantasizeMixin):
    r"""A posterior of mvgp as a BoTorch model, with gradients to the inputs of an axis.

    Three views of one process over (row, column):

    - by default X (..., q, 1 + d) holds the number of a row in column ``task_feature`` and the input of a column in the
      others, as for BoTorch's ``MultiTaskGP``; there is one output. Fix the row with
      ``optimize_acqf(..., fixed_features={0: row})``;
    - with ``outputs=[...]`` X (..., q, d) holds column inputs, and the entries of these rows are the outputs, jointly
      distributed;
    - with ``inputs="both"`` X holds the input of a row followed by that of a column.

    ``inputs="row"`` exchanges rows and columns. The posterior is constant; only X has a gradient. Training is done
    before the fit: ``fit_gpytorch_mll(MatrixMarginalLogLikelihood(likelihood, prior, data=data))``.

    :meth:`condition_on_observations` and :meth:`fantasize` condition the Gaussian that the posterior is: for
    :class:`mvgp.FullGP` that is what a fit to all data gives; a trace-constrained mean would be constrained again by a
    fit, and is not here.

    :param posterior: of :class:`mvgp.FullGP` or :class:`mvgp.TraceGP`, of a prior whose axis has inputs. The terms of
        a sum need the same inputs there; on the other axis each has what it likes.
    :param inputs: which axis X runs over, ``col``, ``row`` or ``both``.
    :param outputs: numbers of rows (columns for ``inputs="row"``) that are the outputs; None for the task view.
    :param task_feature: the column of X with the row's number, in the task view.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from botorch.acquisition import LogExpectedImprovement
        >>> from mvgp.botorch import MatrixModel
        >>> inputs = {"row_inputs": torch.arange(2.0), "col_inputs": torch.linspace(0, 1, 4)}
        >>> prior = mvgp.MatrixGP(gpytorch.kernels.RBFKernel(), gpytorch.kernels.RBFKernel(), **inputs)
        >>> data = mvgp.ObservedMatrix([0, 1], [0, 3], [1.0, -1.0], (2, 4))
        >>> posterior = mvgp.FullGP(prior, gpytorch.likelihoods.GaussianLikelihood().double()).fit(data)
        >>> acquisition = LogExpectedImprovement(MatrixModel(posterior), best_f=1.0)
        >>> x = torch.tensor([[[1.0, 0.3]], [[0.0, 0.7]]], dtype=torch.float64, requires_grad=True)
        >>> acquisition(x).sum().backward()
        >>> x.grad.shape
        torch.Size([2, 1, 2])

    """

    def __init__(
        self,
        posterior: GaussianPosterior,
        *,
        inputs: Inputs = "col",
        outputs: Any = None,
        task_feature: int = 0,
    ) -> None:
        super().__init__()
        check_instance(posterior, "posterior", GaussianPosterior, "a posterior of mvgp")
        self.source = posterior
        self.inputs: Inputs = check_choice(inputs, "inputs", ("col", "row", "both"))
        self._axes = self._chosen_axes(posterior.prior.terms)
        self.widths = [int(axis.inputs.shape[1]) for axis in self._axes]
        if self.inputs == "both" and outputs is not None:
            raise InputError("outputs: expected None where rows and columns both have inputs")
        self.size = posterior.shape[1 if self.inputs == "row" else 0]  # of the other axis
        self.outputs = None if outputs is None else check_index(outputs, self.size, "outputs")
        if self.outputs is not None and len(self.outputs) == 0:
            raise InputError("outputs: expected at least one, got none")
        self.is_task_view = self.outputs is None and self.inputs != "both"
        self.task_feature = check_whole_number(task_feature, "task_feature", 0, sum(self.widths))
        self._observed: _Observed | None = None

    def _chosen_axes(self, terms: Sequence[MatrixGP]) -> tuple[Axis, ...]:
        """The axes that X runs over; all terms of a sum have the same inputs there, which X stands for."""
        axes = [
            {"row": (a,), "col": (b,), "both": (a, b)}[self.inputs]
            for a, b in ((t.row_axis, t.col_axis) for t in terms)
        ]
        for at, own in enumerate(axes):
            of_term = f" in terms[{at}]" if len(terms) > 1 else ""
            for axis, first in zip(own, axes[0], strict=True):
                if not axis.inputs.is_floating_point():
                    raise InputError(
                        f"inputs: the {axis.name}s of the prior are nodes or categories{of_term}, which are no inputs "
                        "of X (an effect of the other axis alone is a ConstantKernel() with the inputs of this one)"
                    )
                if not torch.equal(axis.inputs, first.inputs):
                    raise InputError(
                        f"inputs: expected the same {axis.name}_inputs in all terms of a sum, which X stands for, got "
                        f"others{of_term}"
                    )
        return axes[0]

    @property
    def num_outputs(self) -> int:
        """How many entries there are at a point: one, or one for each of ``outputs``."""
        return 1 if self.outputs is None else len(self.outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """Empty, or that of the observations it was conditioned on."""
        return torch.Size() if self._observed is None else self._observed.values.shape[:-1]

    @property
    def likelihood(self) -> Any:
        """That of the posterior, where it is known."""
        return self.source.likelihood

    def _cells(self, points: Tensor) -> _Cells:
        """The cells at X (..., q, D), point by point."""
        width = sum(self.widths) + self.is_task_view
        if not isinstance(points, Tensor) or points.dim() < 2 or points.shape[-1] != width:
            came = tuple(points.shape) if isinstance(points, Tensor) else type(points).__name__
            raise InputError(f"X: expected a tensor of shape (..., q, {width}), got {came}")
        count = torch.arange(points.shape[-2], device=points.device)
        if self.inputs == "both":
            return _Cells(None, count, tuple(points.split(self.widths, dim=-1)))
        if self.outputs is not None:
            outputs = self.outputs.to(points.device)
            return _Cells(outputs.repeat(len(count)), count.repeat_interleave(len(outputs)), (points,))
        index = check_whole(points.detach()[..., self.task_feature], "X[..., task_feature]")
        check_index(index.reshape(-1), self.size, "X[..., task_feature]")
        others = [column for column in range(width) if column != self.task_feature]
        return _Cells(index, count, (points[..., others],))

    def _prior_to_new(self, cells: _Cells) -> MultivariateNormal:
        """(..., k): the posterior as it was fitted, at the cells."""
        if cells.index is None:
            at, (row_inputs, col_inputs) = (cells.points, cells.points), cells.inputs
            return self.source(*at, row_inputs=row_inputs, col_inputs=col_inputs)
        if self.inputs == "col":
            return self.source(cells.index, cells.points, col_inputs=cells.inputs[0])
        return self.source(cells.points, cells.index, row_inputs=cells.inputs[0])

    def _distribution(self, cells: _Cells) -> MultivariateNormal:
        r"""(..., k): conditioned on further measurements y at cells o, whose noise is D.

        .. math:: \psi_* + S_{*o} (S_{oo} + D)^{-1} (y - \psi_o), \quad S_{**} - S_{*o} (S_{oo} + D)^{-1} S_{o*}
        """
        observed = self._observed
        if observed is None:
            return self._prior_to_new(cells)
        joint = self._prior_to_new(observed.cells.joined(cells))
        mean, s, count = joint.mean, joint.covariance_matrix, len(observed.cells.points)
        known, cross, rest = s[..., :count, :count], s[..., count:, :count], s[..., count:, count:]
        chol = psd_safe_cholesky(known + torch.diag_embed(observed.noise.to(s)))
        half = torch.linalg.solve_triangular(chol, cross.mT, upper=False)  # (..., o, k)
        gap = (observed.values.to(s) - mean[..., :count]).unsqueeze(-1)
        shift = half.mT @ torch.linalg.solve_triangular(chol, gap, upper=False)
        return MultivariateNormal(mean[..., count:] + shift.squeeze(-1), DenseLinearOperator(rest - half.mT @ half))

    def _noise(self, cells: _Cells) -> Tensor:
        """(..., k): the noise variance of measurements at the cells."""
        batch = torch.broadcast_shapes(*[x.shape[:-2] for x in cells.inputs])
        shape, like = (*batch, len(cells.points)), cells.inputs[0]
        by_axis = getattr(self.source.likelihood, "noise_at", None)
        if by_axis is None:
            if self.source.noise is None:
                raise InputError("observation_noise: the posterior does not know one; give it as a tensor")
            return torch.full(shape, self.source.noise, dtype=like.dtype, device=like.device)
        deviations = {"row": self.source.likelihood.row_deviation, "col": self.source.likelihood.col_deviation}
        for axis in self._axes:
            if deviations[axis.name] is not None:
                raise InputError(f"observation_noise: the noise of a new {axis.name} is not known; give it as a tensor")
        index = cells.index.expand(shape).reshape(-1) if cells.index is not None else cells.points
        nothing = torch.zeros_like(index)
        at = (index, nothing) if self.inputs == "col" else (nothing, index)
        return getattr(self.source, "scale", 1.0) * by_axis(*at).reshape(shape).to(like)

    def _given_noise(self, noise: Any, cells: _Cells, shape: torch.Size) -> Tensor:
        """(..., k) from a tensor that broadcasts to (..., q, m) as BoTorch has it; the model's own noise for None."""
        if noise is None:
            return self._noise(cells)
        check_instance(noise, "noise", Tensor, "a tensor of variances")
        try:
            return noise.expand(shape).flatten(-2)
        except RuntimeError:
            raise InputError(
                f"noise: expected a shape that broadcasts to {tuple(shape)}, got {tuple(noise.shape)}"
            ) from None

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """The joint posterior of q points and m outputs, for each batch of X (..., q, D); see BoTorch's ``Model``.

        :param observation_noise: whether to add the noise of a measurement; or its variances, (..., q, m).
        """
        if output_indices is not None:
            return self.subset_output(output_indices).posterior(X, None, observation_noise, posterior_transform)
        self.eval()
        points = self.transform_inputs(X)
        cells = self._cells(points)
        normal = self._distribution(cells)
        shape = torch.Size([*normal.batch_shape, points.shape[-2], self.num_outputs])
        mean, covariance = normal.mean, normal.lazy_covariance_matrix
        if observation_noise is not False:
            given = observation_noise if isinstance(observation_noise, Tensor) else None
            noise = self._given_noise(given, cells, shape).to(mean).expand(mean.shape)
            covariance = covariance + DiagLinearOperator(noise)
        if self.outputs is None:
            normal = MultivariateNormal(mean, covariance)
        else:
            normal = MultitaskMultivariateNormal(mean.reshape(shape), covariance)
        result = GPyTorchPosterior(normal)
        return result if posterior_transform is None else posterior_transform(posterior=result, X=X)

    def subset_output(self, idcs: list[int]) -> MatrixModel:
        """The same model with some of the outputs."""
        chosen = check_index(idcs, self.num_outputs, "idcs")
        fresh = copy.copy(self)
        if self.outputs is not None:
            fresh.outputs = self.outputs[chosen]
        return fresh

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **_: Any) -> Self:
        """The model given Y (..., n, m) at X (..., n, D), too; batches of values are fantasies. It keeps gradients.

        :param noise: variances of the measurements, which broadcast to Y; the posterior's own when left out.
        """
        cells = self._cells(self.transform_inputs(X))
        check_instance(Y, "Y", Tensor, "a tensor of shape (..., n, m)")
        if Y.dim() < 2 or tuple(Y.shape[-2:]) != (X.shape[-2], self.num_outputs):
            raise InputError(f"Y: expected shape (..., {X.shape[-2]}, {self.num_outputs}), got {tuple(Y.shape)}")
        batch = torch.broadcast_shapes(Y.shape[:-2], X.shape[:-2], self.batch_shape)
        values = Y.expand(*batch, *Y.shape[-2:]).flatten(-2)
        variances = self._given_noise(noise, cells, torch.Size([*batch, *Y.shape[-2:]])).to(values)
        variances = variances.expand(values.shape)
        fresh = copy.copy(self)
        before = self._observed
        if before is not None:
            cells = before.cells.joined(cells)
            values = torch.cat([before.values.expand(*batch, before.values.shape[-1]), values], dim=-1)
            variances = torch.cat([before.noise.expand(*batch, before.noise.shape[-1]), variances], dim=-1)
        fresh._observed = _Observed(cells, values, variances)
        return fresh

    def __repr__(self) -> str:
        more = "" if self._observed is None else f", {math.prod(self._observed.values.shape[-1:])} more"
        return f"{type(self).__name__}({self.source!r}, inputs={self.inputs!r}, {self.num_outputs} outputs{more})"
