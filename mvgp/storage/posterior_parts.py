"""Parts of a posterior in files: its likelihood, and what it needs to explain its scores.

Of likelihoods, those of gpytorch and of mvgp whose parameters are a few numbers are kept; others are not.

A score is explained by what the known pairs carry of the mean of each term. A mean with one coefficient for each pair
has all of it in these coefficients; there only the known links of whole lists are named. A mean of low rank needs a
number for each known pair and two for each direction, however long the lists are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    GaussianLikelihood,
    LaplaceLikelihood,
    PoissonLikelihood,
    StudentTLikelihood,
)
from torch import Tensor

from ..likelihoods.pointwise import LogisticLikelihood, LogPoissonLikelihood
from ..linalg.pairs import CompleteRows, PairIndex, Pattern, cell_slots
from ..linalg.spectra import Terms
from ..mean.low_rank import LowRank
from ..posteriors.covariance import unscaled
from ..posteriors.explain import Duals
from ..posteriors.gaussian import GaussianPosterior
from ..posteriors.query import LowRankCoefficients, SparseCoefficients
from .archive import Tree
from .fields import Fields

LIKELIHOODS: dict[str, tuple[type, dict[str, float]]] = {  # parameters, and what each is above; others are not kept
    "gaussian": (GaussianLikelihood, {"noise": 0.0}),
    "bernoulli": (BernoulliLikelihood, {}),
    "logistic": (LogisticLikelihood, {}),
    "log poisson": (LogPoissonLikelihood, {}),
    "poisson": (PoissonLikelihood, {}),
    "laplace": (LaplaceLikelihood, {"noise": 0.0}),
    "student": (StudentTLikelihood, {"noise": 0.0, "deg_free": 2.0}),
}


def describe_likelihood(likelihood: Any) -> Tree | None:
    """Its kind and parameters; None for one of another kind, without which a posterior makes no predictions."""
    for name, (kind, parameters) in LIKELIHOODS.items():
        if type(likelihood) is kind:
            return {"kind": name, **{part: float(getattr(likelihood, part)) for part in parameters}}
    return None


def restore_likelihood(own: Fields, name: str, dtype: torch.dtype) -> Any:
    """The inverse of :func:`describe_likelihood`, constant."""
    parts = own.fields(name)
    kind, parameters = LIKELIHOODS[parts.text("kind", LIKELIHOODS)]
    parts.only("kind", *parameters)
    # without a transform the value is its own raw number, to the last bit
    options = {f"{part}_constraint": GreaterThan(above, transform=None) for part, above in parameters.items()}
    likelihood = kind(**options).to(dtype)
    for part, above in parameters.items():
        value = parts.positive(part)
        parts.require(value > above, part, f"a number above {above:g}", value)
        setattr(likelihood, part, torch.tensor(value, dtype=dtype))
    return likelihood.requires_grad_(False).eval()


def describe_explanations(posterior: GaussianPosterior) -> Tree | None:
    """The known pairs, unless they are those of the covariance, and what they carry of each term of low rank."""
    held = posterior._duals
    if held is None:
        return None
    duals = [held] if isinstance(held, Duals) else list(held)
    duals = [each.of_known_pairs() for each in duals]
    (rows, cols), pairs = duals[0].known_cells(), unscaled(posterior.conditional)[0].pairs
    same = torch.equal(rows, pairs.rows) and torch.equal(cols, pairs.cols)
    return {
        "lists": duals[0].known is not None,
        "pairs": None if same else {"rows": rows, "cols": cols},
        "terms": [
            None if each.factors is None else {"values": each.values, "gains": each.gains, "totals": each.totals}
            for each in duals
        ],
    }


def restore_explanations(
    parts: Fields, coefficients: Any, terms: Terms, means: Sequence[LowRank | None], pairs: PairIndex
) -> list[Duals]:
    """The inverse of :func:`describe_explanations`: one for each term, or one for all that share their coefficients.

    :param coefficients: of all terms or of each.
    :param terms: (K_M, K_N) of each term.
    :param means: of each term whose images are in the file; None or nothing where they are not.
    :param pairs: those of the covariance.
    """
    parts.only("lists", "pairs", "terms")
    are_lists, rows, cols = parts.flag("lists"), pairs.rows, pairs.cols
    if parts.has("pairs"):
        cells = parts.fields("pairs")
        cells.only("rows", "cols")
        rows, cols = cells.positions("rows", pairs.shape[0]), cells.positions("cols", pairs.shape[1])
        cells.require(len(rows) == len(cols), "", "as many rows as columns", (len(rows), len(cols)))
        ascending = ((rows * pairs.shape[1] + cols).diff() > 0).all()
        cells.require(ascending, "", "distinct pairs, row by row")
    inside = parts.each("terms", Fields.optional_fields)
    each = coefficients if isinstance(coefficients, list) else [coefficients]
    parts.require(len(inside) == len(each), "terms", f"{len(each)} as there are coefficients", len(inside))
    known, restored = Pattern(rows, cols, pairs.shape), []
    for at, (held, inner) in enumerate(zip(each, inside, strict=True)):
        is_low_rank = isinstance(held, LowRankCoefficients)
        parts.require(is_low_rank == (inner is not None), f"terms[{at}]", "parts just for a mean of low rank")
        if inner is None:
            restored.append(_restore_sparse(parts, held, known, are_lists=are_lists))
        else:
            restored.append(_restore_low_rank(inner, held, terms[at], means[at], known, are_lists=are_lists))
    return restored


def _restore_sparse(parts: Fields, held: SparseCoefficients, known: Pattern, *, are_lists: bool) -> Duals:
    """The coefficients themselves; of whole lists the known links are some of them."""
    if not are_lists:
        same = len(held.values) == len(known)
        parts.require(same, "pairs", "those of the coefficients", len(known))
        return Duals(held.pattern, held.values)
    if isinstance(held.pattern, CompleteRows):
        chosen, width = held.pattern.chosen, held.pattern.shape[1]
        zero = torch.zeros_like
        line = cell_slots(known.rows, zero(known.rows), chosen, zero(chosen), 1)  # (P,)
        at = torch.where(line >= 0, line * width + known.cols, -1)
    else:
        at = cell_slots(known.rows, known.cols, held.pattern.rows, held.pattern.cols, known.shape[1])
    parts.require((at >= 0).all(), "pairs", "links inside the lists")
    return Duals(held.pattern, held.values, at)


def _restore_low_rank(
    inner: Fields,
    held: LowRankCoefficients,
    ops: tuple[Any, Any],
    mean: LowRank | None,
    known: Pattern,
    *,
    are_lists: bool,
) -> Duals:
    """A number for each known pair, and two for each direction; images are in the file or computed again."""
    inner.only("values", "gains", "totals")
    rank, dtype = held.left.shape[1], held.left.dtype
    values = inner.finite("values", dtype, (len(known),))
    gains, totals = (inner.finite(name, dtype, (rank,)) for name in ("gains", "totals"))
    inner.require((gains >= 0).all(), "gains", "numbers that are not negative")
    images: tuple[Tensor, Tensor]
    if mean is not None:
        images = mean.left_image * mean.values, mean.right_image
    else:
        images = ops[0]._matmul(held.left), ops[1]._matmul(held.right)
    links = torch.arange(len(known)) if are_lists else None
    return Duals(known, values, links, (held.left, held.right, *images), gains, totals)
