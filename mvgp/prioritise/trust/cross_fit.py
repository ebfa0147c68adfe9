"""cross_fit: hide a part of the links, fit again, and see where the hidden ones land; many times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...checks import check_instance, check_seed, check_whole_number
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import InputError
from ...metrics.conformal import draw_one, listed
from ...metrics.ranking import CHUNK_CELLS, Ranker, TaskItems
from ...progress import Progress, progress_bar
from ..auto.blend import GROUPS, group_of

PARTS, TURNS = 5, 8  # a fifth of the links of a row is hidden at a time, of an eighth of the rows
NEW_PARTS = 8  # no more than an eighth of the rows loses all links at a time
KEPT = 100  # candidates of a row that are looked at one by one
MANY_LINKS = 50_000  # from which the second number of folds is enough
FOLDS, WIDE_FOLDS = (PARTS * TURNS, 3), (4, 2)  # of as little as can be, and of a fifth of the links or rows in turn
LISTS, COMPARED = 1000, 600  # rows of each group in all those folds that are ranked, roughly
MIN_LINKS = 20  # below which nothing can be said
TAILS = torch.logspace(0, -4, 64, dtype=torch.float64)  # shares of scores above a quantile
NORMAL = torch.special.ndtri((1 - TAILS).clamp(0.01, 1 - 1e-4))  # what becomes of them
Fit = Callable[[PositiveUnlabelled], Ranker]


@dataclass(frozen=True, eq=False, repr=False)
class CrossFit:
    """Where hidden links landed: R lists, each of a row in a fold, and their H hidden links.

    :param fold: (R,) which fold.
    :param row: (R,) which row.
    :param known: (R,) links of the row that were not hidden.
    :param candidates: (R,) columns that were not known.
    :param hidden: (R,) hidden links.
    :param weight: (R,) how many rows of its fold, group and kind each one stands for, as some are left out at random.
    :param scores: (R, K) of the first K places; 0 beyond the last candidate.
    :param labels: (R, K) bool: whether a hidden link is at the place.
    :param link_list: (H,) list of each hidden link, ascending.
    :param link_rank: (H,) its rank, from 1.
    :param later: (R, K) rank, from 1, of the candidate at each of the first K places in the list of the ranker that
        knows the hidden links, too, over the same candidates; 0 where none was compared.
    :param seconds: what it took.
    """

    fold: Tensor
    row: Tensor
    known: Tensor
    candidates: Tensor
    hidden: Tensor
    weight: Tensor
    scores: Tensor
    labels: Tensor
    link_list: Tensor
    link_rank: Tensor
    later: Tensor
    seconds: float = 0.0

    @property
    def group(self) -> Tensor:
        """(R,) by known links, see ``GROUPS``."""
        return group_of(self.known)

    @property
    def inside(self) -> Tensor:
        """(R, K) bool: places that hold a candidate."""
        return torch.arange(self.scores.shape[1]) < self.candidates[:, None]

    def drawn_ranks(self, seed: int = 0) -> tuple[Tensor, ...]:
        """For each group, ascending ranks of hidden links: of each row one, drawn at random over all folds."""
        group = self.group[self.link_list]
        chosen = draw_one(self.row[self.link_list] * len(GROUPS) + group, seed)
        return tuple(self.link_rank[chosen[group[chosen] == at]].sort().values for at in range(len(GROUPS)))

    def chance(self) -> Tensor:
        """(4,) share of hidden links among all candidates of a group; NaN for a group without a row."""
        shares = []
        for at in range(len(GROUPS)):
            weight = self.weight * (self.group == at)
            shares.append((weight * self.hidden).sum() / (weight * self.candidates).sum())
        return torch.stack(shares)

    def quantiles(self) -> Tensor:
        """(4, Q) of the scores at the first K places, by group; of all groups where one is empty."""
        inside, lines = self.inside, []
        for group in range(len(GROUPS)):
            own = inside & (self.group == group)[:, None]
            some = self.scores[own if bool(own.any()) else inside].sort().values
            lines.append(some[((1 - TAILS) * (len(some) - 1)).round().long()])
        return torch.stack(lines)

    def highest(self) -> Tensor:
        """(4,) the largest score of each group; of all groups where one is empty."""
        best = self.scores[:, 0]
        own = [best[self.group == group] for group in range(len(GROUPS))]
        return torch.stack([(some if len(some) else best).max() for some in own])

    def nothing(self) -> str:
        """A sentence for lists without a hidden link in sight."""
        return f"none of {len(self.link_rank):,} hidden links is among the first {self.labels.shape[1]} of its row"

    def __repr__(self) -> str:
        return f"CrossFit({len(self.row):,} lists, {len(self.link_rank):,} hidden links, {self.seconds:.1f} s)"


@dataclass(frozen=True, eq=False)
class Hidden:
    """What is hidden in a fold.

    :param links: (P,) bool: of all links.
    :param thinned: rows that may have lost some of their links, ascending.
    :param new: rows that have lost all of them, ascending.
    """

    links: Tensor
    thinned: Tensor
    new: Tensor


def hidden_folds(
    links: PositiveUnlabelled, folds: int, seed: int = 0, *, wide: bool = False, row_limit: int | None = None
) -> Iterator[Hidden]:
    """What is hidden in each fold.

    As little as possible: an eighth of the rows lose a fifth of their links, and other rows, few, all of theirs. In 40
    folds each row loses each of its links once, and all of them once. Or, ``wide``, as much as may be missing: a fifth
    of all links in the first fold, all links of a fifth of the rows in the second, and so on in turn, ten at most.

    :param row_limit: rows that lose all links in a fold; no limit when left out.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.trust.cross_fit import hidden_folds
        >>> links = mvgp.PositiveUnlabelled(range(40), [0, 1] * 20, (40, 3))
        >>> [int(fold.links.sum()) for fold in hidden_folds(links, 4, wide=True)]
        [8, 8, 8, 8]

    """
    check_instance(links, "links", PositiveUnlabelled, "mvgp.PositiveUnlabelled")
    generator = torch.Generator().manual_seed(check_seed(seed))
    if len(links) < MIN_LINKS:
        raise InputError(f"links: expected at least {MIN_LINKS} to hide some of them, got {len(links)}")
    folds = check_whole_number(folds, "folds", 2, 2 * PARTS if wide else PARTS * TURNS)
    part = torch.empty(len(links), dtype=torch.long)  # the fifth that each link is in
    part[torch.randperm(len(links), generator=generator)] = torch.arange(len(links)) % PARTS
    rows = links.rows.unique()
    order, none = rows[torch.randperm(len(rows), generator=generator)], rows[:0]
    for at in range(folds):
        if not wide:
            thinned, new = order.flip(0).tensor_split(TURNS)[at % TURNS], order.tensor_split(max(folds, NEW_PARTS))[at]
            thinned, own, new = thinned[~torch.isin(thinned, new)], part == at // TURNS, new[:row_limit]
        elif at % 2 == 0:
            thinned, own, new = rows, part == at // 2, none
        else:
            thinned, own, new = none, part < 0, order.tensor_split(PARTS)[at // 2]
        lost = own & torch.isin(links.rows, thinned) | torch.isin(links.rows, new)
        yield Hidden(lost, thinned.sort().values, new.sort().values)


def cross_fit(
    fit: Fit,
    links: PositiveUnlabelled,
    *,
    complete: Ranker | None = None,
    folds: int | None = None,
    seed: int = 0,
    kept: int = KEPT,
    row_limit: int | None = None,
    progress: Progress = "auto",
) -> CrossFit:
    """Hide links, fit to the others, and rank the candidates of rows with links, as :func:`hidden_folds` has it.

    As little is hidden as can be, so that a fit knows what the ranker knows that is used: hidden links of rows that are
    not ranked stay visible. With ``complete`` a fifth is hidden: what its lists are compared with.

    Rows whose links all stayed visible are ranked, too: without them hidden links would seem more common than they are.
    Rows that have no link in ``links`` are not: nothing says whether they have one. Of rows without a visible link only
    those are ranked that were chosen to lose all links: others lost the only one they had, and would stand for rows
    with one link alone. Of each group of rows (by known links) at most ``row_limit`` with a hidden link are ranked in a
    fold, and a quarter as many without one. Weights make up for that.

    :param fit: from links to a ranker, with all choices that it makes.
    :param links: all known links.
    :param complete: the ranker that was fitted to all of them; its lists are compared with those of each fold.
    :param folds: how many fits; 40, and with ``complete`` 4, or of 50,000 links 3 and 2, when left out.
    :param seed: of the folds and of the rows.
    :param kept: places of each list that are kept.
    :param row_limit: rows of a group with a hidden link in a fold; 1,000 over all folds, and with ``complete`` 600,
        when left out.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.

    Example:
        >>> import mvgp, torch
        >>> from mvgp.prioritise.baselines import Popularity
        >>> from mvgp.prioritise.trust import cross_fit
        >>> links = mvgp.PositiveUnlabelled(torch.arange(40), torch.arange(40) % 7 % 3, (40, 9))
        >>> found = cross_fit(Popularity().fit, links)
        >>> found.labels.shape[1], bool((found.link_rank <= 9).all())
        (9, True)

    """
    check_instance(links, "links", PositiveUnlabelled, "mvgp.PositiveUnlabelled")
    generator = torch.Generator().manual_seed(check_seed(seed) + 1)
    kept, wide = min(check_whole_number(kept, "kept"), links.shape[1]), complete is not None
    folds = (WIDE_FOLDS if wide else FOLDS)[len(links) >= MANY_LINKS] if folds is None else folds
    folds = check_whole_number(folds, "folds", 2)
    row_limit = -(-(COMPARED if wide else LISTS) // folds) if row_limit is None else row_limit
    row_limit = check_whole_number(row_limit, "row_limit")
    began = time.perf_counter()
    parts: list[CrossFit] = []
    with progress_bar("hide and fit again", folds, unit="folds", progress=progress) as bar:
        for at, fold in enumerate(hidden_folds(links, folds, seed, wide=wide, row_limit=row_limit)):
            counts, lost = (
                torch.bincount(links.rows[some], minlength=links.shape[0]) for some in (~fold.links, fold.links)
            )
            chosen, weights = [], []
            for group in range(len(GROUPS)):
                rows = fold.thinned[group_of(counts[fold.thinned]) == group] if group else fold.new
                strata = rows[lost[rows] > 0], rows[lost[rows] == 0]
                for stratum, size in zip(strata, (row_limit, -(-row_limit // 4)), strict=True):
                    some = stratum[torch.randperm(len(stratum), generator=generator)[:size]].sort().values
                    chosen.append(some)
                    weights.append(torch.full((len(some),), len(stratum) / max(1, len(some)), dtype=torch.float64))
            rows = torch.cat(chosen)
            away = fold.links if wide else fold.links & torch.isin(links.rows, rows)
            if len(rows) and not bool(away.all()):  # something to look at, and something left to fit
                options: dict[str, Any] = {"weight": torch.cat(weights), "fold": at, "kept": kept, "complete": complete}
                left = links.rows[~away], links.cols[~away]
                visible = PositiveUnlabelled(*left, links.shape, links.weight, lists=links.lists)
                hidden = links.rows[away], links.cols[away]
                parts.append(observed(fit(visible), visible, hidden, rows, **options))
            bar.update()
    return joined(parts, time.perf_counter() - began)


def joined(parts: Sequence[CrossFit], seconds: float = 0.0) -> CrossFit:
    """The lists of several folds together."""
    names = ("fold", "row", "known", "candidates", "hidden", "weight", "scores", "labels", "later")
    starts = torch.tensor([0, *(len(part.row) for part in parts[:-1])]).cumsum(0)  # lists before each part
    shifted = [part.link_list + start for part, start in zip(parts, starts, strict=True)]
    stacked: dict[str, Tensor] = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    return CrossFit(
        **stacked,
        link_list=torch.cat(shifted),
        link_rank=torch.cat([part.link_rank for part in parts]),
        seconds=seconds,
    )


def standardised(scores: Tensor, groups: Tensor, quantiles: Tensor) -> Tensor:
    """Scores as normal quantiles of their group: straight lines between (4, Q) quantiles, constant beyond them."""
    result, groups = torch.zeros(scores.shape, dtype=torch.float64), groups.expand(scores.shape)
    for group, grid in enumerate(quantiles):
        own = groups == group
        result[own] = torch.from_numpy(np.interp(scores[own].double().numpy(), grid.numpy(), NORMAL.numpy()))
    return result


def observed(
    ranker: Ranker,
    visible: PositiveUnlabelled,
    hidden: Any,
    rows: Tensor,
    *,
    complete: Ranker | None = None,
    weight: Tensor | None = None,
    fold: int = 0,
    kept: int = KEPT,
) -> CrossFit:
    """The lists of ``rows`` (R,) by a ranker that was fitted to the visible links, and where hidden ones are.

    :param hidden: links as ``ranking_scores`` takes them; there may be none.
    :param complete: a ranker that was fitted to visible and hidden links, to compare with.
    :param weight: (R,) how many rows each stands for; 1 when left out.
    :param fold: a number for it.
    :param kept: places of each list that are kept.
    """
    num_cols = int(ranker.shape[1])
    kept = min(kept, num_cols)
    known, left_out = (TaskItems(part, ranker.shape, "links") for part in (visible, hidden))
    scores, labels, ranks, listed_cols = [], [], [], []
    for part in rows.split(max(1, CHUNK_CELLS // num_cols)):
        block = _scores(ranker, part, fold)
        order, rank = listed(block, known.of(part), left_out.of(part), kept)
        ranks.append(rank)
        place, listed_row = rank[rank <= kept] - 1, left_out.of(part)[0][rank <= kept]
        found = torch.zeros(len(part), kept, dtype=torch.bool)
        found[listed_row, place] = True
        labels.append(found)
        open_ = torch.arange(kept) < num_cols - known.counts[part][:, None]
        scores.append(torch.where(open_, block.gather(1, order).double(), 0.0))
        listed_cols.append(order)
    later = torch.zeros(len(rows), kept, dtype=torch.long)
    if complete is not None:
        cols = torch.cat(listed_cols)
        for some in torch.arange(len(rows)).split(max(1, CHUNK_CELLS // num_cols)):
            asked = torch.arange(len(some)).repeat_interleave(kept), cols[some].flatten()
            block = _scores(complete, rows[some], fold)
            later[some] = listed(block, known.of(rows[some]), asked)[1].view(-1, kept)
    counts = left_out.counts[rows]
    return CrossFit(
        fold=torch.full_like(rows, fold),
        row=rows,
        known=known.counts[rows],
        candidates=num_cols - known.counts[rows],
        hidden=counts,
        weight=torch.ones(len(rows), dtype=torch.float64) if weight is None else weight,
        scores=torch.cat(scores),
        labels=torch.cat(labels),
        link_list=torch.repeat_interleave(torch.arange(len(rows)), counts),
        link_rank=torch.cat(ranks),
        later=later,
    )


def _scores(ranker: Ranker, rows: Tensor, fold: int) -> Tensor:
    """(R, N) finite."""
    block = ranker.scores(rows).detach().cpu()
    if not bool(torch.isfinite(block).all()):
        raise InputError(f"scores(rows): expected finite numbers, got others in fold {fold}")
    return block
