"""cross_fit: hide a part of the links, fit again, and see where the hidden ones land; five times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
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

FOLDS = 5  # a link is hidden with its fold: a fifth of the links at a time
HIDDEN_SHARE = 1 / FOLDS  # of all links, at most, where some can be given back
NEW_ROWS = 0.05  # share of the rows with links that lose all of them in a fold
KEPT = 100  # candidates of a row that are looked at one by one
ROW_LIMIT = 200  # rows of each group and fold that are ranked
COMPARED = 800  # lists of all folds that are compared with those of the complete ranker, roughly
MANY_LINKS, FEW_FOLDS = 50_000, 2  # links from which so many folds are enough
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
        knows the hidden links, too, over the same candidates; 0 in lists that were not compared.
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

    def quantiles(self, which: Tensor | None = None) -> Tensor:
        """(4, Q) of the scores at the first K places, by group; of all groups where one is empty."""
        inside = self.inside if which is None else self.inside & which[:, None]
        lines = []
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


def hidden_folds(
    links: PositiveUnlabelled, seed: int = 0, folds: int = FOLDS
) -> Iterator[tuple[PositiveUnlabelled, PositiveUnlabelled, Tensor]]:
    """Visible and hidden links of each fold, and the rows that were chosen to lose all of theirs.

    Links are in ``folds`` parts at random, each of them hidden once. With a part, all links of one row in 20 are
    hidden, of other rows in each fold, so that rows without a known link are seen, too.

    Example:
        >>> import mvgp
        >>> from mvgp.prioritise.trust.cross_fit import hidden_folds
        >>> links = mvgp.PositiveUnlabelled(range(40), [0, 1] * 20, (40, 3))
        >>> all(len(hidden) >= 8 for visible, hidden, new in hidden_folds(links))
        True

    """
    check_instance(links, "links", PositiveUnlabelled, "mvgp.PositiveUnlabelled")
    generator = torch.Generator().manual_seed(check_seed(seed))
    folds = check_whole_number(folds, "folds", 2)
    if len(links) < MIN_LINKS:
        raise InputError(f"links: expected at least {MIN_LINKS} to hide some of them, got {len(links)}")
    fold = torch.empty(len(links), dtype=torch.long)
    fold[torch.randperm(len(links), generator=generator)] = torch.arange(len(links)) % folds
    rows = links.rows.unique()
    order = rows[torch.randperm(len(rows), generator=generator)]
    size = round(NEW_ROWS * len(rows)) or int(len(rows) > folds)
    for at in range(folds):
        new = order[at * size : (at + 1) * size].sort().values
        hidden = (fold == at) | torch.isin(links.rows, new)
        parts = (
            PositiveUnlabelled(links.rows[some], links.cols[some], links.shape, links.weight, lists=links.lists)
            for some in (~hidden, hidden)
        )
        yield next(parts), next(parts), new


def cross_fit(
    fit: Fit,
    links: PositiveUnlabelled,
    *,
    complete: Ranker | None = None,
    seed: int = 0,
    kept: int = KEPT,
    row_limit: int = ROW_LIMIT,
    progress: Progress = "auto",
) -> CrossFit:
    """Fit to the visible links of each fold, five or two of many links, and rank the candidates of rows with links.

    Rows whose links all stayed visible are ranked, too: without them hidden links would seem more common than they are.
    Rows that have no link in ``links`` are not: nothing says whether they have one. Of rows without a visible link only
    those are ranked that were chosen to lose all links: others lost the only one they had, and would stand for rows
    with one link alone. Of each group of rows (by known links) at most ``row_limit`` are ranked in a
    fold: about half of them rows with a hidden link, if there are so many. Weights make up for that. Rows that lose
    all links come on top of the fifth; so hidden links of rows that are not ranked are visible again until no more than
    a fifth of all is hidden, or no such links are left.

    :param fit: from links to a ranker, with all choices that it makes.
    :param links: all known links.
    :param complete: the ranker that was fitted to all of them; its lists are compared with some of those of each fold.
    :param seed: of the folds and of the rows.
    :param kept: places of each list that are kept.
    :param row_limit: rows of a group in a fold.
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
    kept = min(check_whole_number(kept, "kept"), links.shape[1])
    row_limit = check_whole_number(row_limit, "row_limit")
    linked, began = links.rows.unique(), time.perf_counter()
    parts: list[CrossFit] = []
    number = FOLDS if len(links) < MANY_LINKS else FEW_FOLDS
    with progress_bar("hide and fit again", number, unit="folds", progress=progress) as bar:
        for at, (visible, hidden, new) in enumerate(islice(hidden_folds(links, seed), number)):
            groups = group_of(torch.bincount(visible.rows, minlength=links.shape[0])[linked])
            has_hidden = torch.bincount(hidden.rows, minlength=links.shape[0]) > 0
            chosen, weights = [], []
            for group in range(len(GROUPS)):
                rows = linked[groups == group] if group else new
                strata = rows[has_hidden[rows]], rows[~has_hidden[rows]]
                few = min(len(strata[1]), row_limit - min(len(strata[0]), row_limit // 2))
                for stratum, size in zip(strata, (row_limit - few, few), strict=True):
                    some = stratum[torch.randperm(len(stratum), generator=generator)[:size]].sort().values
                    chosen.append(some)
                    weights.append(torch.full((len(some),), len(stratum) / max(1, len(some)), dtype=torch.float64))
            rows, weight = torch.cat(chosen), torch.cat(weights)
            visible, hidden = _given_back(links, hidden, rows, generator)
            options: dict[str, Any] = {"weight": weight, "fold": at, "kept": kept}
            if complete is not None:  # every so many lists: strata keep their shares
                step = max(1, round(number * len(rows) / COMPARED))
                start = int(torch.randint(step, (1,), generator=generator))
                options |= {"complete": complete, "compared": torch.arange(min(start, len(rows) - 1), len(rows), step)}
            parts.append(observed(fit(visible), visible, hidden, rows, **options))
            bar.update()
    return joined(parts, time.perf_counter() - began)


def _given_back(
    links: PositiveUnlabelled, hidden: PositiveUnlabelled, ranked: Tensor, generator: torch.Generator
) -> tuple[PositiveUnlabelled, PositiveUnlabelled]:
    """Visible and hidden links: hidden ones of rows that are not ranked are visible again until few are hidden."""
    spare = (~torch.isin(hidden.rows, ranked)).nonzero().squeeze(1)
    excess = max(0, len(hidden) - round(HIDDEN_SHARE * len(links)))
    back = spare[torch.randperm(len(spare), generator=generator)[:excess]]
    stays = torch.ones(len(hidden), dtype=torch.bool)
    stays[back] = False
    every, gone = (part.rows * links.shape[1] + part.cols for part in (links, hidden))
    away = torch.isin(every, gone[stays])
    visible, hidden = (
        PositiveUnlabelled(links.rows[some], links.cols[some], links.shape, links.weight, lists=links.lists)
        for some in (~away, away)
    )
    return visible, hidden


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


def some_lists(ranker: Ranker, links: PositiveUnlabelled, seed: int = 0, row_limit: int = ROW_LIMIT) -> CrossFit:
    """Lists of some rows of each group by a ranker that was fitted to all links: nothing is hidden."""
    order = torch.randperm(links.shape[0], generator=torch.Generator().manual_seed(check_seed(seed)))
    groups = group_of(torch.bincount(links.rows, minlength=links.shape[0]))[order]
    rows = torch.cat([order[groups == group][:row_limit] for group in range(len(GROUPS))])
    return observed(ranker, links, None, rows)


def observed(
    ranker: Ranker,
    visible: PositiveUnlabelled,
    hidden: PositiveUnlabelled | None,
    rows: Tensor,
    *,
    complete: Ranker | None = None,
    compared: Tensor | None = None,
    weight: Tensor | None = None,
    fold: int = 0,
    kept: int = KEPT,
) -> CrossFit:
    """The lists of ``rows`` (R,) by a ranker that was fitted to the visible links, and where hidden ones are.

    :param complete: a ranker that was fitted to visible and hidden links, to compare with.
    :param compared: ascending places in ``rows`` of the lists that are compared; all of them when left out.
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
        chosen = torch.arange(len(rows)) if compared is None else compared
        for some in chosen.split(max(1, CHUNK_CELLS // num_cols)):
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
