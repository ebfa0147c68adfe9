"""Pictures on matplotlib: a matrix, a path, calibration, coverage, ranks, an explanation.

Every function takes the axes it draws on, or makes new ones, and returns them. Colours follow the style that is active,
light or dark, and no setting of matplotlib is changed. They need matplotlib: ``pip install 'mvgp[cli]'``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .checks import check_callable, check_choice, check_instance, check_whole_number
from .data.observed import ObservedMatrix
from .data.positive_unlabelled import PositiveUnlabelled
from .errors import InputError, SizeError
from .hyperparameters.validation import Choice
from .metrics.calibration import AdversarialCalibration, CoverageCurve, GroupCalibration
from .metrics.ecdf_band import Uniformity
from .models.trace_gp import PathPoint
from .posteriors.explain import Explanation
from .posteriors.gaussian import GaussianPosterior
from .posteriors.tables import TopTable
from .tensor_checks import check_index

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_CELLS = 250_000  # of a picture of a matrix
MOST_NAMES = 40  # that an axis is labelled with
PATHS: dict[str, tuple[str, Callable[[Any], float]]] = {
    "rank": ("rank of the mean", lambda posterior: posterior.rank),
    "gap": ("relative duality gap", lambda posterior: posterior.certificate.relative_gap),
    "objective": ("objective", lambda posterior: posterior.certificate.primal),
}


def _axes(ax: Axes | None, size: tuple[float, float] | None = None) -> Axes:
    """The given axes, or new ones."""
    if ax is not None:
        return check_instance(ax, "ax", _matplotlib().axes.Axes, "axes of matplotlib, or None")
    made: Axes = _matplotlib().pyplot.subplots(figsize=size, layout="constrained")[1]
    return made


def _matplotlib() -> Any:
    try:
        import matplotlib.axes
        import matplotlib.pyplot
        import matplotlib.ticker
    except ImportError as error:
        raise InputError("plot: expected matplotlib, got none; pip install 'mvgp[cli]'") from error
    return matplotlib


def _ink() -> Any:
    """The colour of text in the active style, for lines that are no data."""
    return _matplotlib().rcParams["text.color"]


def _label(value: Any) -> str:
    """A name as text that is no formula for matplotlib."""
    return str(value).replace("$", r"\$")


# Matrices ----------------------------------------------------------------------------------------


def matrix(
    posterior: GaussianPosterior,
    data: ObservedMatrix | PositiveUnlabelled | None = None,
    *,
    rows: Any = None,
    cols: Any = None,
    row_names: Sequence[str] | None = None,
    col_names: Sequence[str] | None = None,
    ax: Sequence[Axes] | None = None,
) -> tuple[Axes, Axes]:
    """The posterior mean and the standard deviation of every cell, side by side; observed cells have a dot.

    :param posterior: with a variance.
    :param data: whose cells get dots: entries, or known links. Its names are used, too.
    :param rows: (R,) which rows, all of them when left out; likewise ``cols`` (C,). At most 250,000 cells.
    :param row_names: M names; likewise ``col_names``, N names. Up to 40 on an axis are shown.
    :param ax: two axes.
    :return: the axes of the mean and those of the standard deviation.

    Example:
        >>> import gpytorch, matplotlib, mvgp, torch
        >>> matplotlib.use("agg")
        >>> kernel = mvgp.kernels.PrecomputedKernel(torch.eye(3).double() + 1)
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 0], [1.0, -1.0], shape=(3, 3))
        >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        >>> mean, std = mvgp.plot.matrix(mvgp.FullGP(mvgp.MatrixGP(kernel, kernel), likelihood).fit(data), data)
        >>> mean.images[0].get_array().shape
        (3, 3)

    """
    check_instance(posterior, "posterior", GaussianPosterior, "a posterior of mvgp")
    m, n = posterior.shape
    chosen = [
        torch.arange(size) if at is None else check_index(at, size, name).cpu()
        for at, size, name in ((rows, m, "rows"), (cols, n, "cols"))
    ]
    count = len(chosen[0]) * len(chosen[1])
    if count == 0:
        raise InputError("rows, cols: expected at least one cell, got none")
    if count > MOST_CELLS:
        raise SizeError(f"rows, cols: a picture has up to {MOST_CELLS:,} cells, got {count:,}; choose some of them")
    if data is not None:
        check_instance(data, "data", (ObservedMatrix, PositiveUnlabelled), "mvgp.ObservedMatrix or PositiveUnlabelled")
        if data.shape != (m, n):
            raise InputError(f"data: expected shape {(m, n)} as of the posterior, got {data.shape}")
    pair = _matplotlib().pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")[1] if ax is None else ax
    if len(pair) != 2:
        raise InputError(f"ax: expected two axes, got {len(pair)}")
    left, right = _axes(pair[0]), _axes(pair[1])
    grid = chosen[0].unsqueeze(1), chosen[1]
    values = posterior.mean(*grid).detach().cpu()
    spread = posterior.variance(*grid).detach().cpu().sqrt()
    reach = max(float(values.abs().max()), 1e-300)
    pictures: tuple[tuple[Axes, Tensor, str, dict[str, Any]], ...] = (
        (left, values, "posterior mean", {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}),
        (right, spread, "standard deviation", {"cmap": "viridis", "vmin": 0.0}),
    )
    for axes, picture, title, options in pictures:
        shown = axes.imshow(picture.numpy(), aspect="auto", interpolation="nearest", **options)
        axes.figure.colorbar(shown, ax=axes, fraction=0.05, pad=0.02)
        axes.set(title=title, xlabel="column", ylabel="row")
        if data is not None:
            _dots(axes, data, chosen)
        given = (row_names or getattr(data, "row_names", None), col_names or getattr(data, "col_names", None))
        for axis, names, which, angle in ((axes.yaxis, given[0], chosen[0], 0), (axes.xaxis, given[1], chosen[1], 90)):
            extent = axes.get_window_extent()
            room = (extent.height if axis is axes.yaxis else extent.width) * 72 / axes.figure.dpi / max(len(which), 1)
            if names is not None and len(which) <= MOST_NAMES:
                labels = [_label(names[at]) for at in which.tolist()]
                axis.set_ticks(range(len(which)), labels, rotation=angle, fontsize=min(10.0, max(4.0, 0.85 * room)))
    return left, right


def _dots(axes: Axes, data: ObservedMatrix | PositiveUnlabelled, chosen: Sequence[Tensor]) -> None:
    """A dot for each observed cell among those that are shown."""
    places = []
    for at, which, size in zip((data.rows, data.cols), chosen, data.shape, strict=True):
        place = torch.full((size,), -1)
        place[which] = torch.arange(len(which))
        places.append(place[at.cpu()])
    seen = (places[0] >= 0) & (places[1] >= 0)
    box = axes.get_window_extent()  # in pixels of the figure
    cell = min(box.width / len(chosen[1]), box.height / len(chosen[0])) * 72 / axes.figure.dpi  # points
    dot = min(6.0, max(0.6, 0.35 * cell))
    style: dict[str, Any] = {"color": "white", "markeredgecolor": "black", "markeredgewidth": min(0.6, dot / 5)}
    axes.plot(places[1][seen].numpy(), places[0][seen].numpy(), "o", markersize=dot, label="observed", **style)


# Paths -------------------------------------------------------------------------------------------


def path(points: Any, what: str | Callable[[Any], float] | None = None, *, ax: Axes | None = None) -> Axes:
    """A regularisation path: the rank, the gap, the objective or a held-out metric by strength.

    :param points: :class:`~mvgp.models.PathPoint` of ``model.path(...)``; or a :class:`~mvgp.hyperparameters.Choice`,
        whose held-out metric is shown for each trace share, with its standard error and a ring around what was chosen.
    :param what: ``rank``, ``gap``, ``objective``, or a function of the posterior; ``rank`` when left out.
    :param ax: axes; new ones when left out.

    Example:
        >>> import gpytorch, matplotlib, mvgp, torch
        >>> matplotlib.use("agg")
        >>> kernel = mvgp.kernels.PrecomputedKernel(torch.eye(3).double() + 1)
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 0], [1.0, -1.0], shape=(3, 3))
        >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        >>> points = mvgp.TraceGP(mvgp.MatrixGP(kernel, kernel), likelihood).path(data, [1.0, 0.1])
        >>> mvgp.plot.path(points).lines[0].get_xdata().tolist()
        [1.0, 0.1]

    """
    if isinstance(points, Choice):
        if what is not None:
            raise InputError("what: a choice shows its metric; for others give the points of a path")
        return _choice(points, _axes(ax))
    found = list(points) if isinstance(points, Iterable) else [points]
    if not found:
        raise InputError("points: expected at least one point of a path, got none")
    for at, point in enumerate(found):
        check_instance(point, f"points[{at}]", PathPoint, "mvgp.models.PathPoint")
    what = "rank" if what is None else what
    if isinstance(what, str):
        label, value = PATHS[check_choice(what, "what", PATHS)]
    else:
        value = check_callable(what, "what", "rank, gap, objective, or a function of a posterior")
        label = getattr(what, "__name__", "value").strip("<>")
    axes = _axes(ax)
    strengths, values = [point.strength for point in found], [float(value(point.posterior)) for point in found]
    axes.plot(strengths, values, marker="o", markersize=4)
    _strength_axis(axes, strengths)
    axes.set_ylabel(label)
    if what == "gap":
        if min(values) > 0:
            axes.set_yscale("log")
        else:
            axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
        tolerance = found[0].posterior.certificate.tolerance
        axes.axhline(tolerance, color=_ink(), linestyle=":", linewidth=1, label="tolerance")
        axes.legend(frameon=False)
    if what == "rank":
        axes.yaxis.set_major_locator(_matplotlib().ticker.MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
    return axes


def _strength_axis(axes: Axes, strengths: Sequence[float]) -> None:
    """Logarithmic, from strong to weak, as a path is walked."""
    axes.set_xscale("log")
    if len(set(strengths)) > 1:
        axes.set_xlim(max(strengths) * 1.1, min(strengths) / 1.1)
    axes.set_xlabel("strength (lam / lam_max)")


def _choice(choice: Choice, axes: Axes) -> Axes:
    for number, share in enumerate(choice.trace_shares):
        points = [point for point in choice.points if point.trace_share == share]
        if not points:
            continue
        strengths, means = [point.strength for point in points], [point.mean for point in points]
        colour = f"C{number % 10}"
        errors = [0.0 if math.isnan(point.standard_error) else point.standard_error for point in points]
        low, high = ([mean + sign * error for mean, error in zip(means, errors, strict=True)] for sign in (-1, 1))
        axes.fill_between(strengths, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(strengths, means, color=colour, marker="o", markersize=4, label=f"trace share {share:g}")
    _strength_axis(axes, [point.strength for point in choice.points])
    axes.set_ylabel(f"held-out {_label(choice.settings.metric)}")
    if choice.complete:
        chosen = choice.chosen
        ring = {"markersize": 12, "markerfacecolor": "none", "markeredgecolor": _ink(), "markeredgewidth": 1.5}
        axes.plot([chosen.strength], [chosen.mean], "o", label="chosen", **ring)
    axes.legend(frameon=False)
    return axes


# Calibration -------------------------------------------------------------------------------------


def calibration(found: Any, *, ax: Axes | None = None) -> Axes:
    """How right probabilities were.

    :param found: from :mod:`mvgp.metrics`: ``group_calibration`` (predicted against observed, a point for each group),
        ``adversarial_calibration`` (the worst error by size of a group, beside that of a right predictor) or
        ``uniformity`` (ranks of true values, less what is expected, in their simultaneous band).
    :param ax: axes; new ones when left out.

    Example:
        >>> import matplotlib, mvgp
        >>> matplotlib.use("agg")
        >>> found = mvgp.metrics.group_calibration([0.5] * 4, [0, 1, 0, 1], ["new"] * 4)
        >>> mvgp.plot.calibration(found).get_xlabel()
        'mean predicted probability'

    """
    if isinstance(found, GroupCalibration):
        axes = _axes(ax, (4.5, 4.5))
        predicted, observed = found.predicted.tolist(), found.observed.tolist()
        highest = max(*predicted, *observed, 1e-12) * 1.15
        axes.plot([0, highest], [0, highest], color=_ink(), linestyle=":", linewidth=1, label="right")
        axes.plot(predicted, observed, "o", label="groups")
        for name, x, y in zip(found.groups, predicted, observed, strict=True):
            side = -1 if x > 0.6 * highest else 1  # so that names stay inside
            place: dict[str, Any] = {"ha": "left", "va": "top"} if side > 0 else {"ha": "right", "va": "bottom"}
            axes.annotate(_label(name), (x, y), textcoords="offset points", xytext=(6 * side, -4 * side), **place)
        axes.set(xlim=(0, highest), ylim=(0, highest), xlabel="mean predicted probability", ylabel="share of events")
        axes.set_aspect("equal")
    elif isinstance(found, AdversarialCalibration):
        axes, shares, worst = _axes(ax), found.shares.tolist(), found.worst.tolist()
        axes.errorbar(shares, worst, yerr=found.standard_error.tolist(), marker="o", markersize=4, label="measured")
        axes.plot(shares, found.chance.tolist(), color=_ink(), linestyle=":", linewidth=1, label="of a right predictor")
        axes.set(xscale="log", xlabel="size of a group (share of the data)", ylabel="worst calibration error")
        axes.set_ylim(bottom=0)
    elif isinstance(found, Uniformity):
        axes, edges = _axes(ax), found.edges
        low, high, off = ((part - edges).tolist() for part in (found.low, found.high, found.ecdf))
        axes.fill_between(edges.tolist(), low, high, color=_ink(), alpha=0.15, linewidth=0, label="band of a right one")
        axes.plot(edges.tolist(), off, label=f"{found.num_values:,} values")
        axes.axhline(0, color=_ink(), linestyle=":", linewidth=1)
        reach = 1.5 * max(map(abs, (*low, *high, *off)))
        axes.set(
            xlim=(0, 1),
            ylim=(-reach, reach),
            xlabel="rank of the true value",
            ylabel="share of smaller ranks, less that rank",
        )
    else:
        raise InputError(
            "found: expected the result of group_calibration, adversarial_calibration or uniformity, got "
            f"{type(found).__name__}; for that of coverage use mvgp.plot.coverage"
        )
    axes.legend(frameon=False)
    return axes


def coverage(curves: CoverageCurve | Mapping[str, CoverageCurve], *, ax: Axes | None = None) -> Axes:
    """The share of held-out values inside credible intervals, by level; on the diagonal a posterior is right.

    :param curves: from :func:`mvgp.metrics.coverage`; or several of them by name.
    :param ax: axes; new ones when left out.

    Example:
        >>> import matplotlib, mvgp
        >>> matplotlib.use("agg")
        >>> curve = mvgp.metrics.coverage(([0.0, 0.0], [1.0, 1.0]), [0.1, -1.0], levels=[0.5, 0.9])
        >>> mvgp.plot.coverage(curve).lines[-1].get_ydata().tolist()
        [0.5, 1.0]

    """
    named = curves if isinstance(curves, Mapping) else {"": curves}
    if not named:
        raise InputError("curves: expected at least one, got none")
    axes = _axes(ax, (4.5, 4.5))
    for name, curve in named.items():
        check_instance(
            curve, f"curves[{name!r}]" if name else "curves", CoverageCurve, "a result of mvgp.metrics.coverage"
        )
        axes = curve.plot(axes)
        axes.lines[-1].set_label(_label(name) or f"{curve.num_values:,} held-out values")
    for line in [line for line in axes.lines if line.get_label() == "perfect"][1:]:
        line.remove()  # each curve brings a diagonal
    axes.legend(loc="upper left", frameon=False)
    return axes


# Lists and explanations --------------------------------------------------------------------------


def ranks(table: TopTable, *, ax: Axes | None = None) -> Axes:
    """The interval of ranks of each item of a list, its place in the list, and its probability of the top k.

    :param table: ``posterior.top(row)``.
    :param ax: axes; new ones when left out.

    Example:
        >>> import gpytorch, matplotlib, mvgp, torch
        >>> matplotlib.use("agg")
        >>> kernel = mvgp.kernels.PrecomputedKernel(torch.eye(3).double() + 1)
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 0], [1.0, -1.0], shape=(3, 3))
        >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        >>> table = mvgp.FullGP(mvgp.MatrixGP(kernel, kernel), likelihood).fit(data).top(0, k=2)
        >>> mvgp.plot.ranks(table).get_xlabel()
        'rank'

    """
    check_instance(table, "table", TopTable, "the table of posterior.top")
    count = len(table)
    axes = _axes(ax, (6.5, 1.6 + 0.3 * count))
    places = list(range(1, count + 1))
    low, high, chance = (part.tolist() for part in (table.rank_low, table.rank_high, table.top_probability))
    axes.hlines(
        places, low, high, color="C0", linewidth=3, alpha=0.5, label=f"{100 * table.level:g} % interval of ranks"
    )
    axes.plot(places, places, "o", color="C0", markersize=5, label="place in the list")
    axes.axvline(table.k + 0.5, color=_ink(), linestyle=":", linewidth=1, label=f"end of the top {table.k}")
    names = (
        [str(item) for item in table.items.tolist()] if table.names is None else [_label(name) for name in table.names]
    )
    axes.set_yticks(places, names)
    axes.set(xlabel="rank", ylim=(count + 0.7, 0.3))
    axes.set_xscale("log" if max(high) > 50 else "linear")
    if max(high) <= 50:
        axes.xaxis.set_major_locator(_matplotlib().ticker.MaxNLocator(integer=True))
    else:
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for place, share in zip(places, chance, strict=True):
        axes.annotate(
            f"{share:.2f}", (1.01, place), xycoords=axes.get_yaxis_transform(), va="center", annotation_clip=False
        )
    axes.annotate(f"P(top {table.k})", (1.01, 1.0), xycoords="axes fraction", xytext=(0, 4), textcoords="offset points")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.45, -0.6 / (0.6 + 0.3 * count)), ncols=3)
    return axes


def explanation(
    why: Explanation,
    *,
    most: int = 12,
    row_names: Sequence[str] | None = None,
    col_names: Sequence[str] | None = None,
    term_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """What every known pair adds to a score, as bars; with several terms, each has its part of a bar.

    The bars sum to the score: behind the largest pairs come all others together, unlabelled cells, the prior mean, and
    what the solver's accuracy leaves open, where they are not 0.

    :param why: ``posterior.explain(row, col)``.
    :param most: pairs with a bar of their own.
    :param row_names: M names; likewise ``col_names``, N names.
    :param term_names: of the terms of the prior.
    :param ax: axes; new ones when left out.

    Example:
        >>> import gpytorch, matplotlib, mvgp, torch
        >>> matplotlib.use("agg")
        >>> kernel = mvgp.kernels.PrecomputedKernel(torch.eye(3).double() + 1)
        >>> data = mvgp.ObservedMatrix([0, 2], [1, 0], [1.0, -1.0], shape=(3, 3))
        >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        >>> why = mvgp.FullGP(mvgp.MatrixGP(kernel, kernel), likelihood).fit(data).explain(0, 1)
        >>> len(mvgp.plot.explanation(why).patches)
        2

    """
    check_instance(why, "why", Explanation, "the result of posterior.explain")
    shown = min(check_whole_number(most, "most"), len(why.shares))
    parts = why.term_shares.detach().cpu().double()  # (Q, P)
    if term_names is not None and len(term_names) != len(parts):
        raise InputError(f"term_names: expected {len(parts)}, one for each term, got {len(term_names)}")
    labels = [
        f"{_label(row if row_names is None else row_names[row])} \N{EN DASH} "
        f"{_label(col if col_names is None else col_names[col])}"
        for row, col in zip(why.rows[:shown].tolist(), why.cols[:shown].tolist(), strict=True)
    ]
    bars = parts[:, :shown]
    if shown < len(why.shares):
        labels.append(f"{len(why.shares) - shown:,} other pairs")
        bars = torch.cat([bars, parts[:, shown:].sum(1, keepdim=True)], 1)
    scale = 1e-3 * max(abs(why.score), float(bars.abs().max()) if bars.numel() else 0.0, 1e-300)
    rest = {"unlabelled cells": why.unlabelled, "prior mean": why.prior_mean, "not explained": why.residual}
    others = [(name, value) for name, value in rest.items() if abs(value) > scale]
    axes = _axes(ax, (6.5, 1.2 + 0.3 * (len(labels) + len(others))))
    places = list(range(len(labels)))
    for number, values in enumerate(bars):
        starts = _starts(bars[:number], values)
        name = f"term {number + 1}" if term_names is None else _label(term_names[number])
        axes.barh(places, values.tolist(), left=starts.tolist(), color=f"C{number % 10}", height=0.7, label=name)
    for place, (_, value) in enumerate(others, start=len(labels)):
        axes.barh([place], [value], color=_ink(), alpha=0.4, height=0.7)
    axes.axvline(0, color=_ink(), linewidth=1)
    axes.set_yticks(range(len(labels) + len(others)), labels + [name for name, _ in others])
    axes.set(xlabel=f"share of the score {why.score:.4g}", ylim=(len(labels) + len(others) - 0.4, -0.6))
    if len(parts) > 1:
        axes.legend(frameon=False)
    return axes


def _starts(before: Tensor, values: Tensor) -> Tensor:
    """(B,) where the bars of a term begin: after those of the terms ``before`` (Q', B) on the same side of 0."""
    same = torch.where(before * values > 0, before, torch.zeros_like(before))
    return same.sum(0)
