"""prioritise: from a table of links to ranked lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from ...checks import check_flag, check_instance, check_seed
from ...errors import InputError, SizeError
from ...metrics.ranking import Ranker
from ...posteriors.fitted import ScalablePosterior
from ..studies.execution import free_memory
from ..studies.models import SAMPLED
from ..studies.settings import WHOLE, Study, whole
from ..tables.link_set import LinkSet
from .models import MODELS, choose_recipe, takes_negatives, takes_strength
from .prioritiser import Prioritiser
from .rows import Prioritisation, check_top, find_rows

NEGATIVES = 5  # sets, unless another number is asked for
STRENGTHS = 12  # of a path, from 1 down to LOWEST
LOWEST = 0.02
# settings of a study that one fit to all links has no use for
OF_STUDIES = (
    *("models", "folds", "run_folds", "negative_sets", "subsample", "k", "top", "title"),
    *("calibration_rows", "candidate_rows"),
)


def fit_prioritiser(
    link_set: LinkSet,
    *,
    model: str = "trace",
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
        among 12 from 1 to 0.02 when left out.
    :param trace_share: of the trace norm in the penalty; for the same.
    :param seed: of negatives and of the validation.
    :param progress: whether to show bars.
    :param settings: other settings of :class:`mvgp.prioritise.studies.Study`, such as ``strengths``, ``noise``,
        ``time``, ``dtype``, ``validation_share`` or ``split``, whether validation holds out pairs or rows.

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
    sets = check_fit(model, negatives, strength, trace_share)
    strange = [name for name in OF_STUDIES if name in settings]
    if strange:
        raise InputError(f"{', '.join(strange)}: expected settings of one fit to all links, got some of a study")
    given = {"strengths": STRENGTHS, "lowest": LOWEST, **settings, "models": [model], "seed": seed}
    study = Study.from_dict(given)
    _check_memory(sets, link_set, study.ratio)
    chosen = choose_recipe(model, link_set, study, strength=strength, trace_share=trace_share, progress=progress)
    links = link_set.links(study.whole_weight)
    data = [links] if sets is None else study.negatives(sets).draw(links, seed, 0)
    rankers = [_calibrated(chosen.fit(one)) for one in tqdm(data, desc="fit", unit="fit", disable=not progress)]
    return Prioritiser(
        rankers=tuple(rankers),
        row_ids=link_set.row_ids,
        col_ids=link_set.col_ids,
        row_names=link_set.row_names,
        col_names=link_set.col_names,
        known=links,
        model=model,
        setting=chosen.setting,
        source=link_set.source,
        choice=chosen.choice,
    )


def _calibrated(ranker: Ranker) -> Ranker:
    """With the covariance that the links speak for, where there is one."""
    return ranker.calibrated() if isinstance(ranker, ScalablePosterior) else ranker


def prioritise(
    link_set: LinkSet,
    *,
    rows: Sequence[str] | None = None,
    top: int = 20,
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
        >>> found = prioritise(links, rows=["d1"], top=2, strength=0.1, negatives=2)
        >>> found[0].col_ids[0], len(found[0].std)
        ('v', 2)

    """
    check_instance(link_set, "link_set", LinkSet, "mvgp.prioritise.tables.LinkSet")
    check_flag(include_known, "include_known")
    uncertainty = None if uncertainty is None else check_flag(uncertainty, "uncertainty")
    found = None if rows is None else find_rows(rows, link_set.row_ids, link_set.row_names)  # before any fit
    check_top(top, link_set.shape[1])
    fitted = fit_prioritiser(link_set, seed=seed, progress=progress, **options)
    wanted = fitted.mixture.has_uncertainty if uncertainty is None else uncertainty
    return fitted.prioritise(found, top, include_known=include_known, uncertainty=wanted, seed=seed, progress=progress)


def check_fit(model: Any, negatives: Any, strength: Any, trace_share: Any) -> int | None:
    """Whether they go together; the number of sets of negatives, None for a model that needs none."""
    if model not in MODELS:
        raise InputError(f"model: expected one of {', '.join(MODELS)}, got {model!r}")
    if not takes_strength(model) and not strength is trace_share is None:
        raise InputError(
            f"strength, trace_share: they are for {', '.join((*SAMPLED, 'best', *WHOLE))}, got model {model!r}"
        )
    _check_penalty(strength, trace_share)
    if model in WHOLE and trace_share == 0:
        raise InputError("trace_share: the mean over whole lists needs a trace norm, got 0")
    return _check_negatives(model, negatives)


def _check_negatives(model: str, negatives: Any) -> int | None:
    """The number of sets; None for a model that needs none."""
    if not takes_negatives(model):
        if negatives is not None:
            raise InputError(f"negatives: model {model!r} is fitted without sampled negatives, got {negatives!r}")
        return None
    if negatives is not None and (not isinstance(negatives, int) or isinstance(negatives, bool) or negatives < 1):
        raise InputError(
            f"negatives: expected a positive whole number of sets, got {negatives!r} (for none, take model 'whole')"
        )
    return NEGATIVES if negatives is None else whole(negatives, "negative_sets", 1)


def _check_memory(sets: int | None, links: LinkSet, ratio: float) -> None:
    """All sets are drawn before the first fit: row, column and value of every link and negative."""
    free, needed = free_memory(), (sets or 0) * 24 * len(links) * (1 + ratio)
    if free is not None and needed > free:
        raise SizeError(
            f"negatives: {sets} sets need {needed / 2**30:.1f} GiB, got {free / 2**30:.1f} GiB of free memory"
        )


def _check_penalty(strength: Any, trace_share: Any) -> None:
    for name, value, most, text in (
        ("strength", strength, float("inf"), "a positive number"),
        ("trace_share", trace_share, 1.0, "a number from 0 to 1"),
    ):
        if value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= most or (name == "strength" and not 0 < value < most):
            raise InputError(f"{name}: expected {text}, got {value!r}")
