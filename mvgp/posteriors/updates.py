"""New observations: a posterior is given more data, or fewer, by the recipe that made it, and nothing starts over.

:class:`Fantasies` are what a posterior would be if some cells came out this way, or that way; many ways at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from ..checks import check_generator, without_gradient
from ..data.observed import ObservedMatrix
from ..data.positive_unlabelled import PositiveUnlabelled
from ..errors import InputError
from ..hooks import Described
from ..linalg.complete_rows import CompleteRowsSystem
from ..linalg.pairs import CompleteRows, Pattern, cell_slots
from ..tensor_checks import check_samples
from .covariance import ConditionalCovariance, PosteriorCovariance, unscaled
from .query import Query


class Fantasies:
    r"""S posteriors on the same pairs, with S means and one covariance, which does not depend on the values.

    .. math:: \psi_s = b + K_{*T} (K_{TT} + D)^{-1} (r_s - b_T), \qquad
        S = K_{**} - K_{*T} (K_{TT} + D)^{-1} K_{T*}

    Made by ``posterior.fantasise``.

    :param posterior: the first of them.
    :param conditional: the covariance of all.
    :param coefficients: (T, S) representer coefficients of the means.
    :param make: the posterior of a number below S.
    """

    def __init__(
        self, posterior: Any, conditional: ConditionalCovariance, coefficients: Tensor, make: Callable[[int], Any]
    ) -> None:
        self.posterior, self.conditional, self.coefficients, self._make = posterior, conditional, coefficients, make

    def __len__(self) -> int:
        return int(self.coefficients.shape[1])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {self.posterior!r})"

    def __getitem__(self, number: int) -> Any:
        """One of the posteriors, a ``FullPosterior``; it shares its covariance with the others."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"expected a number below {len(self)}, got {number}")
        return self._make(number % len(self))

    def _means(self, query: Query) -> Tensor:
        return query.prior_mean() + self.conditional.cross(query)._matmul(self.coefficients).mT

    @without_gradient
    def mean(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> Tensor:
        """(S, Q): posterior means at pairs."""
        return self._means(self.posterior._query(rows, cols, row_inputs, col_inputs))

    def variance(self, rows: Any, cols: Any, **options: Any) -> Tensor:
        """(Q,): posterior variances at pairs, the same for all; ``options`` of a posterior's ``variance``."""
        variance: Tensor = self.posterior.variance(rows, cols, **options)
        return variance

    @without_gradient
    def __call__(self, rows: Any, cols: Any, *, row_inputs: Any = None, col_inputs: Any = None) -> MultivariateNormal:
        """The joint posteriors at pairs: means (S, Q), one lazy covariance, (S, Q, Q) by expansion."""
        query = self.posterior._query(rows, cols, row_inputs, col_inputs)
        covariance = self.posterior.conditional.operator(query)
        return MultivariateNormal(self._means(query), covariance.expand(len(self), *covariance.shape))

    @without_gradient
    def sample(
        self,
        rows: Any,
        cols: Any,
        num_samples: int = 1,
        *,
        row_inputs: Any = None,
        col_inputs: Any = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """(num_samples, S, Q): joint samples at pairs; the posteriors share their deviations from the means."""
        query = self.posterior._query(rows, cols, row_inputs, col_inputs)
        num_samples, generator = check_samples(num_samples, max(len(query), 1)), check_generator(generator)
        drawn = self.posterior.conditional.sample(query, num_samples, generator)
        return self._means(query) + drawn.unsqueeze(1)

    def scores(self, rows: Any = None) -> Tensor:
        """(S, R, N): posterior means of whole rows, all of them when ``rows`` (R,) is left out."""
        return torch.stack([self[number].scores(rows) for number in range(len(self))])


class Updatable(Protocol):
    """A recipe that can go on from a posterior it has made."""

    def _update(self, posterior: Any, data: Any) -> Any:
        """The posterior given ``data``, begun from ``posterior``, with its hyperparameters."""
        ...

    def _fantasies(self, posterior: Any, rows: Any, cols: Any, values: Any, weights: Any) -> Fantasies:
        """Of values (S, k) at new pairs."""
        ...


@dataclass(frozen=True, eq=False)
class Fit:
    """What a posterior was made from; a posterior from a file has none.

    :param data: that it is given.
    :param model: the recipe with its settings and hyperparameters as they were.
    :param residual: (T,) what the coefficients of the mean leave of their linear system, where that is known.
    :param system: the linear system of whole lists, for its eigenpairs; None elsewhere, and in copies.
    """

    data: ObservedMatrix | PositiveUnlabelled
    model: Updatable
    system: CompleteRowsSystem | None = None
    residual: Tensor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Fit, (self.data, self.model, None, self.residual)  # the system can be made again


class NewObservations(Described):
    """Posteriors that can be given more data, or fewer."""

    _fit: Fit | None = None  # set by a fit

    def condition(self, more: ObservedMatrix | PositiveUnlabelled) -> Self:
        """The posterior given the old data and ``more``, with the same hyperparameters.

        It equals a fit to all the data. The posterior of :class:`mvgp.FullGP` is exact: a factor that is there is
        extended by the new pairs, and conjugate gradients begin with the old coefficients and preconditioner. The means
        of the others begin with the old mean, and are certified as in a fit. A penalty stays what it was, also where a
        fit would set it relative to its data (``strength``).

        :param more: of the kind that was fitted; links of whole lists with the same weight. A pair that is known
            already is an error, unless ``more`` has ``replicates="merge"``.

        Example:
            >>> import gpytorch, mvgp, torch
            >>> from mvgp.kernels import PrecomputedKernel
            >>> two, four = (PrecomputedKernel(0.5 + 0.5 * torch.eye(size).double()) for size in (2, 4))
            >>> model = mvgp.FullGP(mvgp.MatrixGP(two, four), gpytorch.likelihoods.GaussianLikelihood().double())
            >>> posterior = model.fit(mvgp.ObservedMatrix([0], [0], [3.0], (2, 4)))
            >>> more = posterior.condition(mvgp.ObservedMatrix([1], [1], [-1.0], (2, 4)))
            >>> more, bool(more.variance([1], [1]) < posterior.variance([1], [1]))
            (FullPosterior(2 x 4, 2 observed), True)

        """
        fit = self._known_fit("condition")
        if type(more) is not type(fit.data):
            kind, came = type(fit.data).__name__, type(more).__name__
            raise InputError(f"more: expected a {kind} as this posterior was fitted to, got {came}")
        return self._given(fit.data.joined(more))  # type: ignore[arg-type]

    def retract(self, pairs: Any) -> Self:
        """The posterior without some of its pairs, with the same hyperparameters; it equals a fit to the others.

        :param pairs: (rows, cols), (k,) each, or data with ``rows`` and ``cols``; all of them known.
        """
        fit = self._known_fit("retract")
        if not (hasattr(pairs, "rows") and hasattr(pairs, "cols")):
            if not (isinstance(pairs, tuple | list) and len(pairs) == 2):
                raise InputError(f"pairs: expected a pair (rows, cols), or data, got {type(pairs).__name__}")
            return self._given(fit.data.without(*pairs))
        return self._given(fit.data.without(pairs.rows, pairs.cols))

    def fantasise(self, rows: Any, cols: Any, values: Any, *, weights: Any = None) -> Fantasies:
        """The posteriors given each of S vectors of values at k new pairs: S means that share one covariance.

        Of :class:`mvgp.FullGP` under Gaussian noise, whose means are linear in the values: k systems are solved, or S.

        :param rows: (k,) rows of the new pairs, none of them observed.
        :param cols: (k,) their columns.
        :param values: (S, k).
        :param weights: (k,) of the new pairs; 1 when left out.

        Example:
            >>> import gpytorch, mvgp, torch
            >>> from mvgp.kernels import PrecomputedKernel
            >>> two, four = (PrecomputedKernel(0.5 + 0.5 * torch.eye(size).double()) for size in (2, 4))
            >>> model = mvgp.FullGP(mvgp.MatrixGP(two, four), gpytorch.likelihoods.GaussianLikelihood().double())
            >>> posterior = model.fit(mvgp.ObservedMatrix([0], [0], [3.0], (2, 4)))
            >>> fantasies = posterior.fantasise([1], [1], [[-1.0], [0.0], [1.0]])
            >>> fantasies.mean([1, 1], [1, 2]).shape, fantasies.variance([1, 1], [1, 2]).shape
            (torch.Size([3, 2]), torch.Size([2]))

        """
        fit = self._known_fit("fantasise")
        fantasies: Fantasies = fit.model._fantasies(self, rows, cols, values, weights)
        return fantasies

    def _known_fit(self, name: str) -> Fit:
        if self._fit is None:
            raise InputError(
                f"{name}: this posterior does not hold the data it was fitted to, as one from a file does not; fit it "
                "again to the data"
            )
        return self._fit

    def _given(self, data: ObservedMatrix | PositiveUnlabelled) -> Self:
        """The posterior given other data, by the same recipe, at the same scale."""
        fit = self._known_fit("condition")
        posterior = fit.model._update(self, data)
        scale = getattr(self, "scale", 1.0)
        updated: Self = posterior if scale == 1 else posterior.rescaled(scale)
        return updated


def updated_covariance(before: PosteriorCovariance, fresh: PosteriorCovariance) -> PosteriorCovariance:
    """The covariance ``fresh`` of other data under the same prior, with what ``before`` has computed."""
    before = unscaled(before)[0]
    if not isinstance(before, ConditionalCovariance) or not isinstance(fresh, ConditionalCovariance):
        return fresh
    old, new = before.pairs, fresh.pairs
    if len(old) == 0 or len(new) == 0:
        return fresh
    slots = cell_slots(new.rows, new.cols, old.rows, old.cols, old.shape[1])
    known = slots >= 0
    same = before.noise.expand(len(old))[slots.clamp_min(0)] == fresh.noise.expand(len(new))
    kept = known & same  # a pair with another noise goes, and comes back
    position = len(old) + torch.cumsum(~kept, 0) - 1
    return before.updated(new, fresh.noise, torch.where(kept, slots, position))


def moved_coefficients(pattern: Pattern | CompleteRows, values: Tensor, to: Pattern | CompleteRows) -> Tensor:
    """(T',): the coefficients ``values`` (T,) at the cells of another pattern, 0 at the new ones."""
    if isinstance(pattern, CompleteRows) and isinstance(to, CompleteRows):
        whole = values.new_zeros(to.shape)
        whole[pattern.chosen] = values.view(-1, to.shape[1])
        return whole[to.chosen].reshape(-1)
    slots = cell_slots(to.rows, to.cols, pattern.rows, pattern.cols, to.shape[1])
    if len(values) == 0:
        return values.new_zeros(len(to))
    return torch.where(slots >= 0, values[slots.clamp_min(0)], 0.0)
