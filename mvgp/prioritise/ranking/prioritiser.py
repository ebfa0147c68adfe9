"""prioritise: from a table of links to fitted rankers (:class:`Prioritiser`), and to ranked lists."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...checks import check_between, check_flag, check_path, check_seed, check_whole_number
from ...data.positive_unlabelled import PositiveUnlabelled
from ...descriptions import describe
from ...errors import InputError, StorageError
from ...hooks import Described
from ...hyperparameters.validation import Choice
from ...metrics.ranking import Ranker, TaskItems
from ...posteriors.gaussian import GaussianPosterior, ScalablePosterior
from ...progress import Progress, check_progress, progress_bar
from ...storage.archive import read, wrap_storage_errors, write
from ...storage.fields import Budget, Fields, Spending
from ...storage.posteriors import describe_posterior, restore_posterior
from ...tensor_checks import check_index, check_list
from ..auto.fit import Assessment, Auto, AutoRanker
from ..auto.storage import AUTO, describe_auto, restore_auto
from ..tables.link_set import LinkSet, check_link_set
from ..trust.calibration import calibrate as calibrated_on
from ..trust.cross_fit import FOLDS, MIN_LINKS, WIDE_FOLDS, cross_fit
from ..trust.record import Trust, describe_trust, make_trust, restore_trust
from ..tuning.settings import DEFAULT_MODEL, OF_ONE_LIST, TOP, FitSettings
from ..tuning.tune import WITH_POSTERIOR, check_fit, family_of, fit, prepare, takes_negatives, tune
from .mixture import Mixture, describe_prioritiser
from .rows import Prioritisation, RankedRow, check_top, doubt, find_rows

CHUNK_CELLS = 2**22  # scores held at a time
RAW = (
    "P(top {0}) comes from the Bayesian bootstrap alone and is far too sure; hiding links measures it "
    f"(calibrate=True, --probabilities), if there are {MIN_LINKS} or more"
)
KIND = "Prioritiser"  # of a saved file
TEXTS = ("model", "setting", "source")
NAMES = ("row_ids", "col_ids", "row_names", "col_names")


@dataclass(frozen=True, eq=False, repr=False)
class Prioritiser(Described):
    """Ranks the columns of any row: rankers that were fitted to sets of negatives, and the ids of rows and columns.

    :param rankers: one for each set of negatives.
    :param row_ids: M ids.
    :param col_ids: N ids.
    :param row_names: M names.
    :param col_names: N names.
    :param known: the links that were fitted.
    :param model: the name of the model.
    :param setting: its settings, in words.
    :param source: where the links come from.
    :param choice: the validation that chose strength and trace share, where there was one; not saved.
    :param assessment: how ``auto`` ranks held-out links, beside baselines; not saved.
    :param trust: what is known about probabilities and lengths of lists, by hiding links; None if nothing was measured.
    """

    rankers: tuple[Ranker, ...]
    row_ids: tuple[str, ...]
    col_ids: tuple[str, ...]
    row_names: tuple[str, ...]
    col_names: tuple[str, ...]
    known: PositiveUnlabelled
    model: str
    setting: str
    source: str = ""
    choice: Choice | None = None
    assessment: Assessment | None = None
    trust: Trust | None = None

    @cached_property
    def mixture(self) -> Mixture:
        """Average scores and uncertainties."""
        return Mixture(self.rankers)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.mixture.shape

    def scores(self, rows: Any = None) -> Tensor:
        """(R, N): scores of whole rows, all of them when left out, so that :mod:`mvgp.metrics` can judge it."""
        return self.mixture.scores(rows)

    def find(self, wanted: Sequence[str]) -> list[int]:
        """Rows by id or name."""
        return find_rows(wanted, self.row_ids, self.row_names)

    def ranked(
        self,
        rows: Iterable[int] | None = None,
        top: int = TOP,
        *,
        include_known: bool = False,
        uncertainty: bool = True,
        num_samples: int = 1000,
        seed: int = 0,
        progress: Progress = "auto",
        coverage: Any = (),
        words: tuple[str, str] | None = None,
    ) -> Iterator[RankedRow]:
        """The best columns of each row, one row at a time, in bounded memory; arguments as for :func:`prioritise`.

        :param rows: their numbers, see :meth:`find`; all of them when left out.
        :param uncertainty: standard deviations, which take seconds to minutes for each row, where scores take
            milliseconds. P(in the top k) comes from the same samples where :attr:`trust` does not have it.
        :param num_samples: joint samples behind them.
        :param coverage: levels between 0 and 1: how long a list must be to hold a hidden link with that probability.
            For a prioritiser with :attr:`trust`.
        :param words: what a row and a column are called: lists of ``auto`` then say why, see :class:`Reasons`.
        """
        m, n = self.shape
        top = check_top(top, n)
        include_known, uncertainty = check_flag(include_known, "include_known"), check_flag(uncertainty, "uncertainty")
        if uncertainty and not self.mixture.has_uncertainty:
            raise InputError(f"model {self.model!r} has scores and no uncertainty; ask with uncertainty=False")
        samples = {"seed": check_seed(seed), "num_samples": check_whole_number(num_samples, "num_samples")}
        progress = check_progress(progress)
        chosen = check_index(range(m) if rows is None else check_list(rows, "rows", "numbers of rows"), m, "rows")
        levels = tuple(check_between(level, "coverage") for level in check_list(coverage, "coverage", "levels"))
        if levels and self.trust is None:
            raise InputError("coverage: expected a prioritiser that was fitted with calibrate=True, got one without")
        return self._ranked(chosen, top, include_known, samples if uncertainty else None, progress, levels, words)

    def _ranked(
        self,
        rows: Tensor,
        top: int,
        include_known: bool,
        samples: dict[str, int] | None,
        progress: Progress,
        levels: tuple[float, ...],
        words: tuple[str, str] | None,
    ) -> Iterator[RankedRow]:
        """The lists of checked arguments; without ``samples`` there are no uncertainties."""
        links, num_cols = TaskItems(self.known, self.shape, "known"), self.shape[1]
        names: dict[str, Any] = {"row_names": self.row_names, "col_names": self.col_names}
        chunk = 1 if samples else max(1, CHUNK_CELLS // num_cols)
        steps = len(self.rankers) if samples else 1  # of each row
        with progress_bar("rank", steps * len(rows), unit="lists", progress=progress) as bar:
            for part in rows.split(chunk):
                scores = self.mixture.scores(part).cpu()  # (R, N)
                for row, line in zip(part.tolist(), scores, strict=True):
                    known = torch.zeros(num_cols, dtype=torch.bool)
                    known[links.of(torch.tensor([row]))[1]] = True
                    open_ = torch.ones_like(known) if include_known else ~known
                    order = torch.where(open_, line, -torch.inf).argsort(descending=True, stable=True)
                    order = order[: min(top, int(open_.sum()))]
                    std = chance = None
                    if samples and len(order):
                        exclude = None if include_known else self.known
                        chance, std = self.mixture.uncertainty(
                            row, top, order, exclude=exclude, step=bar.update, **samples
                        )
                    found = RankedRow(
                        row=row,
                        row_id=self.row_ids[row],
                        row_name=self.row_names[row],
                        cols=order,
                        col_ids=tuple(self.col_ids[col] for col in order.tolist()),
                        col_names=tuple(self.col_names[col] for col in order.tolist()),
                        score=line[order],
                        std=std,
                        known=known[order],
                        k=top,
                        model=self.model,
                        num_known=int(known.sum()),
                        reasons=self.mixture.why(row, order, words=words, **names) if words else None,
                        **self._trusted(row, line[~known], known[order], top, levels, chance),
                    )
                    bar.update(steps if chance is None else 0)
                    with bar.aside():
                        yield found

    def _trusted(
        self, row: int, scores: Tensor, known: Tensor, k: int, levels: tuple[float, ...], sampled: Tensor | None
    ) -> dict[str, Any]:
        """The fields of a list that come of cross-fitting, and P(top k) by samples where that has none.

        :param scores: of all candidates.
        :param known: (I,) which of the columns that are listed are known links.
        """
        said = {} if self.trust is None else self.trust.of_list(row, scores, known, k, self.shape[1], levels)
        if self.trust is None or self.trust.top is None:
            raw = sampled is not None and isinstance(self.rankers[0], AutoRanker)
            notes = (*said.get("notes", ()), *([RAW.format(k)] if raw else []))
            said |= {"top_probability": sampled, "notes": notes}
        return said

    def prioritise(self, rows: Iterable[int] | None = None, top: int = TOP, **options: Any) -> Prioritisation:
        """The lists of :meth:`ranked`, all at once; the same arguments."""
        return Prioritisation(tuple(self.ranked(rows, top, **options)), self.model, self.setting)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file, whole or not at all: the posteriors, the ids and the known links.

        :param path: of the file; one that is there is replaced.
        """
        path = check_path(path)
        tree = {
            "kind": KIND,
            "posteriors": [self._describe(ranker) for ranker in self.rankers],
            "known": {"rows": self.known.rows, "cols": self.known.cols, "weight": self.known.weight},
            **({} if self.trust is None else {"trust": describe_trust(self.trust)}),
            **{name: getattr(self, name) for name in TEXTS},
            **{name: list(getattr(self, name)) for name in NAMES},
        }
        write(path, tree)

    def _describe(self, ranker: Ranker) -> dict[str, Any]:
        """A ranker as a part of a file."""
        if isinstance(ranker, AutoRanker):
            return describe_auto(ranker)
        if isinstance(ranker, GaussianPosterior):
            return describe_posterior(ranker)
        names = ", ".join(WITH_POSTERIOR)
        raise InputError(f"model {self.model!r} cannot be saved; those with a posterior can: {names}")

    def __repr__(self) -> str:
        return f"Prioritiser({self.shape[0]} x {self.shape[1]}, {self.model}: {self.setting}, {len(self.rankers)} fits)"


describe.register(Prioritiser, describe_prioritiser)


def load_prioritiser(path: str | os.PathLike[str], *, budget: Budget | None = None) -> Prioritiser:
    """What :meth:`Prioritiser.save` has written. Nothing in a file can make it run code.

    :param path: of the file.
    :param budget: limits for size, memory and work; the usual ones of :class:`~mvgp.storage.Budget` when left out.

    Example:
        >>> import tempfile
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise import fit_prioritiser, load_prioritiser
        >>> links = LinkSet("abc", "wxyz", [0, 0, 1, 2], [0, 1, 1, 2], Graph([(0, 1)], 3), Graph([(2, 3)], 4))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit_prioritiser(links, model="trace", strength=0.1, negatives=2).save(f"{folder}/fitted.mvgp")
        ...     load_prioritiser(f"{folder}/fitted.mvgp")
        Prioritiser(3 x 4, trace: trace_share 1, strength 0.1, 2 fits)

    """
    path, spending = check_path(path), Spending(budget)
    with wrap_storage_errors(path):
        content = Fields(read(path, spending.budget), "content")
        kind = content.text("kind")
        if kind != KIND:
            raise StorageError(f"expected a saved prioritiser (mvgp rank --save), got one {kind}; mvgp.load reads that")
        parts = content.each("posteriors", Fields.fields)
        if any(part.text("kind") == AUTO for part in parts):
            content.require(len(parts) == 1, "posteriors", "one ranker of auto, and nothing beside it", len(parts))
            shape = len(content.each("row_ids", Fields.text)), len(content.each("col_ids", Fields.text))
            content.require(min(shape) > 0, "row_ids", "ids of rows and columns", shape)
            rankers: tuple[Ranker, ...] = (restore_auto(parts[0], spending, shape),)
        else:
            rankers = tuple(restore_posterior(part, spending, trial=True) for part in parts)
            shapes = {ranker.shape for ranker in rankers}
            if len(shapes) != 1:
                raise StorageError(f"content.posteriors: expected at least one, all of one shape, got {sorted(shapes)}")
            shape = rankers[0].shape
        described: dict[str, Any] = {name: content.text(name) for name in TEXTS}
        for name, size in zip(NAMES, (*shape, *shape), strict=True):
            texts = content.each(name, Fields.text)
            if len(texts) != size:
                raise StorageError(f"content.{name}: expected {size} texts, got {len(texts)} items")
            if name.endswith("ids") and len(set(texts)) < size:
                raise StorageError(f"content.{name}: expected distinct ids, got some twice")
            described[name] = tuple(texts)
        links = content.fields("known")
        rows = links.positions("rows", shape[0])
        known = PositiveUnlabelled(rows, links.positions("cols", shape[1], len(rows)), shape, links.number("weight"))
        trust = restore_trust(content.fields("trust"), shape) if content.holds("trust") else None  # newer files
    return Prioritiser(rankers=rankers, known=known, trust=trust, **described)


def fit_prioritiser(
    link_set: LinkSet,
    *,
    model: str = DEFAULT_MODEL,
    negatives: int | None = None,
    strength: float | None = None,
    trace_share: float | None = None,
    calibrate: bool | None = False,
    trials: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: Progress = "auto",
    log: Callable[[str], object] | None = None,
    **settings: Any,
) -> Prioritiser:
    """Fit a model to all links, once for each set of sampled negatives; settings not given are chosen by validation.

    :param link_set: links, graphs, ids and names.
    :param model: ``auto`` (a sum of terms, weighed by held-out links: the default), ``trace`` (TraceGP, trace norm
        alone), ``best`` (trace share chosen), ``whole`` (whole lists, no negatives sampled), ``hilbert`` (no trace
        norm), ``full`` (FullGP), ``factor`` (FactorGP), ``prodige`` (PairwiseSVM), or a baseline of ``MODELS``.
    :param negatives: how many sets, 5 when left out and 10,000 at most; scores are averaged over them. For models that
        sample some.
    :param strength: of the penalty relative to lam_max; for ``trace``, ``best``, ``whole`` and ``hilbert``. Chosen
        among 12 from 1 to 0.02 when left out.
    :param trace_share: of the trace norm in the penalty; for the same.
    :param calibrate: whether to fit five times more (``auto`` with few links 44 times, which is quick), with some links
        hidden: lists then have probabilities, classes and warnings (:mod:`mvgp.prioritise.trust`). None: for ``auto``,
        where links suffice.
    :param trials: a file that keeps what ``auto`` has tried; a search that was stopped goes on from there.
    :param seed: of negatives and of the validation.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
    :param log: takes a line about the time and the memory that one fit is expected to need; ``auto`` has none.
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
    check_link_set(link_set)
    seed, progress = check_seed(seed), check_progress(progress)
    check_fit(model, negatives, strength, trace_share)
    if trials is not None and model != "auto":
        raise InputError(f"trials: they are of auto, got model {model!r}")
    enough = len(link_set) >= MIN_LINKS
    if calibrate is not None and check_flag(calibrate, "calibrate") and not enough:
        raise InputError(
            f"calibrate: expected at least {MIN_LINKS} links, of which some are hidden, got {len(link_set)}"
        )
    measured = model == "auto" and enough if calibrate is None else calibrate
    known = {field.name for field in fields(FitSettings)} - {"negative_sets"}  # which is ``negatives`` here
    unknown = [name for name in settings if name not in known]
    if unknown:
        raise InputError(
            f"{', '.join(unknown)}: expected settings of one fit to all links ({', '.join(sorted(known))}), "
            "got unknown ones or some of a study"
        )
    settings = {**OF_ONE_LIST, **settings, "seed": seed}
    if negatives is not None:
        settings["negative_sets"] = negatives
    if strength is not None:
        settings["strengths"] = (strength,)
    fit_settings = FitSettings.from_dict(settings)
    links, sampled = link_set.links(fit_settings.whole_weight), takes_negatives(model)
    shares = prepare(model, fit_settings, link_set, links, trace_share, seed, log)
    tuned = tune(family_of(model), link_set, fit_settings, seed=seed, trace_shares=shares, progress=progress)

    def draw(some: PositiveUnlabelled) -> Any:  # what is fitted, given links
        return fit_settings.negatives(fit_settings.negative_sets).draw(some, seed, 0) if sampled else [some]

    recipe = Auto(link_set, fit_settings.metric, seed=seed, trials=trials, progress=progress)
    rankers: list[Ranker] = [recipe.fit(links)] if model == "auto" else []
    rankers = rankers or fit(fit_settings, link_set, tuned.setting, draw(links), seed, progress)
    trust = None
    if measured:

        def again(some: PositiveUnlabelled) -> Ranker:
            if isinstance(rankers[0], AutoRanker):
                return recipe.refit(rankers[0], some)
            return Mixture(fit(fit_settings, link_set, tuned.setting, draw(some), seed))

        # of other models than ``auto`` as few fits as of many links
        few, few_wide = (None, None) if isinstance(rankers[0], AutoRanker) else (FOLDS[1], WIDE_FOLDS[1])
        folds = cross_fit(again, links, folds=few, seed=seed, progress=progress)
        if calibrate is None and not bool(folds.labels.any()):
            warnings.warn(f"probabilities are not known: {folds.nothing()}", RuntimeWarning, stacklevel=2)
        else:
            alone = torch.from_numpy(np.flatnonzero(np.diff(link_set.row_graph.adjacency().indptr) == 0))
            judged = rankers[0].assessment if isinstance(rankers[0], AutoRanker) else None
            warning = None if judged is None else doubt(judged)
            remarks = () if warning is None else (warning,)
            wide = cross_fit(again, links, complete=Mixture(rankers), folds=few_wide, seed=seed, progress=progress)
            calibration = calibrated_on(folds, seed=seed)
            trust = make_trust(folds, calibration, wide, isolated=alone, remarks=remarks, seed=seed)
    return Prioritiser(
        # with the covariance rescaled to the maximum marginal likelihood, where there is one
        rankers=tuple(part.calibrated() if isinstance(part, ScalablePosterior) else part for part in rankers),
        **{name: getattr(link_set, name) for name in NAMES},
        known=links,
        model=model,
        setting=rankers[0].summary() if isinstance(rankers[0], AutoRanker) else tuned.setting.text,
        source=link_set.source,
        choice=tuned.choice,
        assessment=rankers[0].assessment if isinstance(rankers[0], AutoRanker) else None,
        trust=trust,
    )


def prioritise(
    link_set: LinkSet,
    *,
    rows: Sequence[str] | None = None,
    top: int = TOP,
    include_known: bool = False,
    uncertainty: bool | None = None,
    calibrate: bool | None = None,
    coverage: Any = (),
    seed: int = 0,
    progress: Progress = "auto",
    **options: Any,
) -> Prioritisation:
    """Rank the columns of rows: :func:`fit_prioritiser`, then :meth:`Prioritiser.prioritise`.

    :param link_set: links, graphs, ids and names.
    :param rows: ids or names; all rows when left out.
    :param top: how many columns of each.
    :param include_known: whether known links are candidates, too.
    :param uncertainty: whether standard deviations and P(in the top k) are computed; by default where the model has
        them.
    :param calibrate: whether probabilities are measured, which takes more fits; by default with ``auto``, unless
        ``uncertainty`` is False.
    :param coverage: levels of conformal lengths, see :meth:`Prioritiser.ranked`.
    :param seed: of negatives, validation and samples.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
    :param options: the other arguments of :func:`fit_prioritiser`.

    Example:
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise import prioritise
        >>> links = LinkSet("abc", "wxyz", [0, 0, 1, 2], [0, 1, 1, 2], Graph([(0, 1)], 3), Graph([(2, 3)], 4))
        >>> lists = prioritise(links, rows=["b"], top=2)
        >>> lists[0].col_ids[0], len(lists[0].std)
        ('w', 2)

    """
    check_link_set(link_set)
    check_flag(include_known, "include_known")
    uncertainty = None if uncertainty is None else check_flag(uncertainty, "uncertainty")
    chosen = None if rows is None else find_rows(rows, link_set.row_ids, link_set.row_names)  # before any fit
    check_top(top, link_set.shape[1])
    if calibrate is None and uncertainty is False and not coverage:
        calibrate = False
    fitted = fit_prioritiser(link_set, seed=seed, progress=progress, calibrate=calibrate, **options)
    uncertain = fitted.mixture.has_uncertainty if uncertainty is None else uncertainty
    shown: dict[str, Any] = {"include_known": include_known, "uncertainty": uncertain, "coverage": coverage}
    return fitted.prioritise(chosen, top, seed=seed, progress=progress, **shown)
