"""prioritise: from a table of links to ranked lists."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ...checks import check_flag, check_instance, check_positive, check_seed, check_share, check_whole_number
from ...errors import InputError, SizeError
from ...posteriors.fitted import ScalablePosterior
from ..tables.link_set import LinkSet
from ..tuning.settings import DEFAULT_MODEL, MAX_SETS, OF_ONE_LIST, TOP, FitSettings
from ..tuning.tune import MODELS, REGISTRY, WITH_PATH, family_of, fit, takes_negatives, tune
from .prioritiser import Prioritiser
from .rows import Prioritisation, check_top, find_rows


def fit_prioritiser(
    link_set: LinkSet,
    *,
    model: str = DEFAULT_MODEL,
    negatives: int | None = None,
    strength: float | None = None,
    trace_share: float | None = None,
    seed: int = 0,
    progress: bool = False,
    **settings: Any,
) -> Prioritiser:
    """Fit a model to all links, once for each set of sampled negatives; settings not given are chosen by validation.

    :param link_set: links, graphs, ids and names.
    :param model: ``trace`` (TraceGP, trace norm alone), ``best`` (trace share chosen), ``whole`` (whole lists, no
        negatives sampled), ``hilbert`` (no trace norm), ``full`` (FullGP), ``factor`` (FactorGP), ``prodige``
        (PairwiseSVM), or a baseline of ``MODELS``.
    :param negatives: how many sets, 5 when left out and 10,000 at most; scores are averaged over them. For models that
        sample some.
    :param strength: of the penalty relative to lam_max; for ``trace``, ``best``, ``whole`` and ``hilbert``. Chosen
        among 30 from 1 to 0.001 when left out.
    :param trace_share: of the trace norm in the penalty; for the same.
    :param seed: of negatives and of the validation.
    :param progress: whether to show bars.
    :param settings: other settings of :class:`~mvgp.prioritise.tuning.settings.FitSettings`, such as ``strengths``,
        ``noise``, ``time``, ``dtype``, ``validation_share`` or ``split``, whether validation holds out pairs or rows.

    Example:
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise import fit_prioritiser
        >>> links = LinkSet("abc", "wxyz", [0, 0, 1, 2], [0, 1, 1, 2], Graph([(0, 1)], 3), Graph([(2, 3)], 4))
        >>> fitted = fit_prioritiser(links, model="whole", strength=0.2, trace_share=0.9)
        >>> fitted.shape, [row.col_ids[0] for row in fitted.ranked([2], top=1, uncertainty=False)]
        ((3, 4), ['z'])

    """
    check_instance(link_set, "link_set", LinkSet, "mvgp.prioritise.tables.LinkSet")
    seed, progress = check_seed(seed), check_flag(progress, "progress")
    check_fit(model, negatives, strength, trace_share)
    fit_settings = _fit_settings(settings, negatives, strength, seed)
    links = link_set.links(fit_settings.whole_weight)
    sampled = takes_negatives(model)
    if sampled:
        _check_memory(fit_settings.negative_sets, len(links), fit_settings.ratio)
    shares: tuple[float, ...] = () if trace_share is None else (float(trace_share),)
    path = REGISTRY[model].trace_shares
    if path and not shares:
        shares = path(fit_settings)
    tuned = tune(family_of(model), link_set, fit_settings, seed=seed, trace_shares=shares, progress=progress)
    data = fit_settings.negatives(fit_settings.negative_sets).draw(links, seed, 0) if sampled else [links]
    rankers = fit(fit_settings, link_set, tuned.setting, data, seed, progress)
    return Prioritiser(
        # with the covariance rescaled to the maximum marginal likelihood, where there is one
        rankers=tuple(part.calibrated() if isinstance(part, ScalablePosterior) else part for part in rankers),
        row_ids=link_set.row_ids,
        col_ids=link_set.col_ids,
        row_names=link_set.row_names,
        col_names=link_set.col_names,
        known=links,
        model=model,
        setting=tuned.setting.text,
        source=link_set.source,
        choice=tuned.choice,
    )


def prioritise(
    link_set: LinkSet,
    *,
    rows: Sequence[str] | None = None,
    top: int = TOP,
    include_known: bool = False,
    uncertainty: bool | None = None,
    seed: int = 0,
    progress: bool = False,
    **options: Any,
) -> Prioritisation:
    """Rank the columns of rows: :func:`fit_prioritiser`, then :meth:`Prioritiser.prioritise`.

    :param link_set: links, graphs, ids and names.
    :param rows: ids or names; all rows when left out.
    :param top: how many columns of each.
    :param include_known: whether known links are candidates, too.
    :param uncertainty: whether standard deviations and P(in the top k) are computed; by default where the model has
        them.
    :param seed: of negatives, validation and samples.
    :param progress: whether to show bars.
    :param options: the other arguments of :func:`fit_prioritiser`.

    Example:
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise import prioritise
        >>> graphs = Graph([(0, 1), (1, 2)], 3), Graph([(0, 1), (1, 2), (3, 4)], 5)
        >>> links = LinkSet(["d0", "d1", "d2"], list("vwxyz"), [0, 0, 1, 2], [0, 1, 1, 3], *graphs)
        >>> lists = prioritise(links, rows=["d1"], top=2, strength=0.1, negatives=2)
        >>> lists[0].col_ids[0], len(lists[0].std)
        ('v', 2)

    """
    check_instance(link_set, "link_set", LinkSet, "mvgp.prioritise.tables.LinkSet")
    check_flag(include_known, "include_known")
    uncertainty = None if uncertainty is None else check_flag(uncertainty, "uncertainty")
    chosen = None if rows is None else find_rows(rows, link_set.row_ids, link_set.row_names)  # before any fit
    check_top(top, link_set.shape[1])
    fitted = fit_prioritiser(link_set, seed=seed, progress=progress, **options)
    if uncertainty is None:
        uncertainty = fitted.mixture.has_uncertainty
    return fitted.prioritise(
        chosen, top, include_known=include_known, uncertainty=uncertainty, seed=seed, progress=progress
    )


def check_fit(model: Any, negatives: Any, strength: Any, trace_share: Any) -> None:
    """Whether they go together."""
    if model not in MODELS:
        raise InputError(f"model: expected one of {', '.join(MODELS)}, got {model!r}")
    if model not in WITH_PATH and not strength is trace_share is None:
        raise InputError(f"strength, trace_share: they are for {', '.join(WITH_PATH)}, got model {model!r}")
    if strength is not None:
        check_positive(strength, "strength")
    if trace_share is not None:
        check_share(trace_share, "trace_share")
    if REGISTRY[model].data == "whole lists" and trace_share == 0:
        raise InputError("trace_share: the mean over whole lists needs a trace norm, got 0")
    if negatives is None:
        return
    if not takes_negatives(model):
        raise InputError(f"negatives: model {model!r} is fitted without sampled negatives, got {negatives!r}")
    try:
        check_whole_number(negatives, "negatives", 1, MAX_SETS)
    except InputError as error:
        raise InputError(f"{error} (for none, take model 'whole')") from None


def _fit_settings(settings: dict[str, Any], negatives: int | None, strength: float | None, seed: int) -> FitSettings:
    """The settings of one fit to all links; a given strength is a path of one."""
    known = {field.name for field in fields(FitSettings)} - {"negative_sets"}  # which is ``negatives`` here
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise InputError(
            f"{', '.join(unknown)}: expected settings of one fit to all links ({', '.join(sorted(known))}), "
            "got unknown ones or some of a study"
        )
    fit_settings = FitSettings.from_dict({**OF_ONE_LIST, **settings, "seed": seed})
    if negatives is not None:
        fit_settings = replace(fit_settings, negative_sets=negatives)
    return fit_settings if strength is None else replace(fit_settings, strengths=(strength,))


def _check_memory(sets: int, links: int, ratio: float) -> None:
    """All sets are drawn before the first fit: row, column and value of every link and negative."""
    free, needed = free_memory(), sets * 24 * links * (1 + ratio)
    if free is not None and needed > free:
        raise SizeError(
            f"negatives: {sets} sets need {needed / 2**30:.1f} GiB, got {free / 2**30:.1f} GiB of free memory"
        )


def free_memory() -> int | None:
    """Bytes that can be had without swapping, within the limits of the container; None where nobody knows."""
    sizes = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                sizes.append(1024 * int(line.split()[1]))
    with contextlib.suppress(OSError, ValueError):
        folder = Path("/sys/fs/cgroup")
        sizes.append(int((folder / "memory.max").read_text()) - int((folder / "memory.current").read_text()))
    if not sizes and hasattr(os, "sysconf"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(sizes) if sizes else None
