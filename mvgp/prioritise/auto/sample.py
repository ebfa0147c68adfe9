"""What ``auto`` holds out, what terms say of it in the validation rows, the mixture that explains it, and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ...checks import check_seed
from ...data.positive_unlabelled import PositiveUnlabelled
from ...metrics.ranking import TaskItems
from .terms import BOTH, COLS, POPULAR, PROPAGATION, ROWS, SHARP, Term

GROUPS = ("no known link", "1 known link", "2 to 5", "6 and more")
EDGES = (1, 2, 6)  # known links from which a row is in the next group
MIXTURE, POPULARITY = "mixture", "popularity"  # features beside those of the terms
FLOOR = 0.3  # of the uniform distribution, below which the logarithm of a term does not go
FEW_LINKS = 6  # held-out links of a row on average, up to which they are compared one by one
GROUP_ROWS = 30  # a group of so many rows has half the weight of a large one
# the simple term that the mixture starts from, of the first line that is there, and the held-out links it counts for
STARTS = (
    (Term(BOTH, PROPAGATION).name, Term(BOTH, SHARP + PROPAGATION).name),
    (Term(ROWS, "restart 0.3").name, Term(ROWS, f"{SHARP}restart 0.3").name),
    (Term(COLS, "links", 1).name,),
)
START_LINKS = 100.0
HELD_PAIRS, HELD_ROWS = 0.1, 0.15  # shares of the links, and of the rows with all their links, that are held out
GROUP_LIMIT = 1500  # validation rows of each group that are looked at
PRIOR_LINKS = 30.0  # held-out links that the weights of all rows count for in the weights of a group


def group_of(counts: Tensor) -> Tensor:
    """(R,): the group of each row, given its number of known links."""
    return torch.bucketize(counts, torch.tensor(EDGES), right=True)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Links in two parts."""

    train: PositiveUnlabelled
    held_out: PositiveUnlabelled


def hold_out(links: PositiveUnlabelled, seed: int) -> HeldOut | None:
    """Random pairs and whole rows, held out together; None where that would leave nothing."""
    generator = torch.Generator().manual_seed(check_seed(seed))
    rows = links.rows.unique()
    chosen = rows[torch.randperm(len(rows), generator=generator)[: round(HELD_ROWS * len(rows))]]
    held = torch.isin(links.rows, chosen) | (torch.rand(len(links), generator=generator) < HELD_PAIRS)
    if not bool(held.any()) or bool(held.all()):
        return None

    return HeldOut(some_links(links, ~held), some_links(links, held))


def some_links(links: PositiveUnlabelled, where: Tensor) -> PositiveUnlabelled:
    """The links where ``where`` (P,) is true."""
    return PositiveUnlabelled(links.rows[where], links.cols[where], links.shape, links.weight)


def cells(links: PositiveUnlabelled) -> Tensor:
    """(P,) a number for each pair."""
    return links.rows * links.shape[1] + links.cols


def judging_rows(num_rows: int, seed: int) -> Tensor:
    """(M,) bool: a third of the rows, which have no part in any choice."""
    order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(seed))
    judges = torch.zeros(num_rows, dtype=torch.bool)
    judges[order[: num_rows // 3]] = True
    return judges


def validation_rows(known: TaskItems, held_out: TaskItems, chosen: Tensor, seed: int) -> Tensor:
    """Rows among ``chosen`` (M,) with held-out links, of each group a limited number."""
    rows = (chosen & (held_out.counts > 0)).nonzero().squeeze(1)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))]
    groups = group_of(known.counts[rows])
    return torch.cat([rows[groups == group][:GROUP_LIMIT] for group in range(len(GROUPS))]).sort().values


def distributions(terms: dict[str, Tensor], open_: Tensor) -> Tensor:
    """(Q + 1, R, N): each term as a distribution over the candidates ``open_`` (R, N), and the uniform one, last.

    A term that is 0 at every candidate of a row is 0 there: it has nothing to say.
    """
    parts = [term.clamp(min=0) for term in terms.values()]
    parts.append(torch.ones_like(parts[0]))
    return torch.stack([part / (part * open_).sum(1, keepdim=True).clamp(min=1e-30) for part in parts])


def moments(terms: dict[str, Tensor], open_: Tensor) -> tuple[Tensor, Tensor]:
    """(Q, R) each: mean and standard deviation of a term over the candidates of a row; 1 where it is constant."""
    means, deviations = [], []
    count = open_.sum(1).clamp(min=1)
    for term in terms.values():
        mean = (term * open_).sum(1) / count
        variance = ((term - mean[:, None]).square() * open_).sum(1) / count
        means.append(mean)
        deviations.append(torch.where(variance > 1e-12 * (mean.square() + 1e-30), variance.sqrt(), 1.0))
    return torch.stack(means), torch.stack(deviations)


def log_ratio(chances: Tensor, candidates: Tensor) -> Tensor:
    """(R, N) the logarithm of a distribution relative to the uniform one over (R, 1) candidates, with a floor."""
    return torch.log(chances * candidates + FLOOR)


def mixture_weights(
    chances: Tensor,
    weights: Tensor,
    prior: Tensor | None = None,
    *,
    tolerance: float = 1e-3,
    max_iterations: int = 5000,
) -> tuple[Tensor, int]:
    r"""(Q,) the weights of the best mixture, and the iterations of EM.

    The objective is concave, so the largest derivative :math:`\max_q \sum_h v_h p_{hq} / (P w)_h`, less the total
    weight, bounds what is missing to the optimum. EM stops when that is below ``tolerance`` for each unit of weight.

    :param chances: (H, Q) the distribution of each term at each held-out link.
    :param weights: (H,) of the links.
    :param prior: (Q,) pseudo-counts, or None.
    """
    chances, weights = chances.double(), weights.double()
    start = torch.zeros(chances.shape[1], dtype=torch.float64) if prior is None else prior.double()
    total = float(weights.sum() + start.sum())
    mixed = (start + total / chances.shape[1]) / (start + total / chances.shape[1]).sum()  # none of them 0
    iterations = 0
    for iterations in range(1, max_iterations + 1):  # noqa: B007
        gradient = chances.mT @ (weights / (chances @ mixed).clamp(min=1e-300)) + torch.where(
            start > 0, start / mixed.clamp(min=1e-300), 0.0
        )
        if float(gradient.max()) <= total * (1 + tolerance):
            break
        mixed = mixed * gradient / total
        mixed = mixed / mixed.sum()
    return mixed, iterations


@dataclass
class Sample:
    """What is kept of the validation rows: of each row the columns that any term ranks high, some at random, and the
    held-out links. Metrics at the top and the AUC are read off them.

    Lists have one entry for each block of rows; :meth:`close` makes one tensor of each.
    """

    names: tuple[str, ...]
    num_cols: int
    chances: list[Tensor] = field(default_factory=list)  # (Q + 1, R, C)
    standard: list[Tensor] = field(default_factory=list)  # (Q, R, C)
    popularity: list[Tensor] = field(default_factory=list)  # (R, C)
    labels: list[Tensor] = field(default_factory=list)  # (R, C) bool: held out
    drawn: list[Tensor] = field(default_factory=list)  # (R, C) bool: drawn at random
    inside: list[Tensor] = field(default_factory=list)  # (R, C) bool: not padding
    groups: list[Tensor] = field(default_factory=list)  # (R,)

    def add(
        self,
        terms: dict[str, Tensor],
        open_: Tensor,
        held_out: Tensor,
        counts: Tensor,
        groups: Tensor,
        generator: torch.Generator,
        top: int = 150,
        random: int = 100,
    ) -> None:
        """Keep what matters of a block of rows.

        :param top: places of each term whose columns are kept: more than the k of most metrics, as a sum brings up
            columns that no term has at its very top.
        :param random: columns of each row, for its AUC.
        """
        chances = distributions(terms, open_)
        means, deviations = moments(terms, open_)
        random = min(random, self.num_cols)
        order = torch.rand(open_.shape, generator=generator).masked_fill_(~open_, 2).topk(random, 1, largest=False)
        drawn = torch.zeros_like(open_).scatter_(1, order.indices, True) & open_
        kept = drawn | held_out
        for term in chances[:-1]:
            best = (term * open_).topk(min(top, self.num_cols), 1)
            kept.scatter_(1, torch.where(best.values > 0, best.indices, order.indices[:, :1]), True)
        kept &= open_
        columns = int(kept.sum(1).max())
        index = kept.to(torch.int8).topk(columns, 1).indices  # (R, C)
        inside = kept.gather(1, index)
        self.chances.append(chances.gather(2, index.expand(len(chances), -1, -1)))
        gathered = torch.stack([term.gather(1, index) for term in terms.values()])  # (Q, R, C)
        self.standard.append((gathered - means[:, :, None]) / deviations[:, :, None])
        self.popularity.append(torch.log1p(counts)[index])
        self.labels.append(held_out.gather(1, index) & inside)
        self.drawn.append(drawn.gather(1, index) & inside & ~self.labels[-1])
        self.inside.append(inside)
        self.groups.append(groups)

    def close(self) -> ClosedSample:
        """One tensor of each list."""
        width = max(part.shape[1] for part in self.inside)

        def joined(parts: list[Tensor]) -> Tensor:
            padded = [torch.nn.functional.pad(part, (0, width - part.shape[-1])) for part in parts]
            return torch.cat(padded, dim=-2)

        return ClosedSample(
            self.names,
            joined(self.chances),
            joined(self.standard),
            joined(self.popularity),
            joined(self.labels),
            joined(self.drawn),
            joined(self.inside),
            torch.cat(self.groups),
        )


@dataclass(frozen=True, eq=False)
class ClosedSample:
    """The validation rows, ready to be scored; shapes as in :class:`Sample`."""

    names: tuple[str, ...]
    chances: Tensor
    standard: Tensor
    popularity: Tensor
    labels: Tensor
    drawn: Tensor
    inside: Tensor
    groups: Tensor

    def rows(self, chosen: Tensor, *, terms: bool = True) -> ClosedSample:
        """Some of the rows; without ``terms`` what single terms say of them, which is much, stays behind."""
        chances, standard = ((part[:, chosen] if terms else part[:, :0]) for part in (self.chances, self.standard))
        return ClosedSample(
            self.names,
            chances,
            standard,
            *(part[chosen] for part in (self.popularity, self.labels, self.drawn, self.inside, self.groups)),
        )

    @property
    def row_weights(self) -> Tensor:
        """(R,) adding up to 1: each group counts the same, but less where it has few rows."""
        count = torch.bincount(self.groups, minlength=len(GROUPS)).double()
        share = count / (count + GROUP_ROWS)
        return (share / share.sum() / count.clamp(min=1))[self.groups]

    @cached_property
    def _links(self) -> tuple[Tensor, Tensor, Tensor]:
        """(H,) row and place of each held-out link, (R,) how many a row has."""
        row, place = self.labels.nonzero(as_tuple=True)
        return row, place, self.labels.sum(1)

    def start(self, chosen: Tensor | None = None) -> str | None:
        """The simple term, of two versions the one under which held-out links are likelier (a fifth spread evenly).

        :param chosen: (R,) bool: the rows whose links these are; all when left out.
        """
        row, place, count = self._links
        if chosen is not None:
            row, place = row[chosen[row]], place[chosen[row]]
        likelihood: dict[str, float] = {}
        for name in next((line for line in STARTS if line[0] in self.names), ()):
            if name in self.names:
                mixed = self.chances[self.names.index(name)] + self.chances[-1] / 4
                likelihood[name] = float((mixed[row, place].clamp(min=1e-30).log() / count[row]).sum())
        return max(likelihood, key=lambda name: likelihood[name], default=None)

    def mixture(self) -> tuple[Tensor, int]:
        """(4, Q + 1) weights of the mixture in each group, and the iterations."""
        row, place, links = self._links
        chances = self.chances[:, row, place].mT  # (H, Q + 1)
        weights = 1 / links.double()[row]
        start = torch.zeros(len(self.names) + 1)  # a simple mixture, which the links have to outvote
        start[-1] = START_LINKS / 4
        simple = self.start()
        start[-1 if simple is None else self.names.index(simple)] += START_LINKS
        pooled, iterations = mixture_weights(chances, weights, start)
        parts = []
        for group in range(len(GROUPS)):
            chosen = self.groups[row] == group
            if not bool(chosen.any()):
                parts.append(pooled)
                continue
            own, count = mixture_weights(chances[chosen], weights[chosen], PRIOR_LINKS * pooled)
            parts.append(own)
            iterations = max(iterations, count)
        return torch.stack(parts), iterations

    def features(self, mixture: Tensor) -> dict[str, Tensor]:
        """(R, C) of each: the logarithm of the mixture, popularity, and each term, standardised and as a logarithm."""
        mixed = torch.einsum("rq,qrc->rc", mixture[self.groups].to(self.chances), self.chances)
        candidates = 1 / self.chances[-1].amax(1, keepdim=True)  # the uniform distribution is 1 over their number
        features = {MIXTURE: log_ratio(mixed, candidates), POPULARITY: self.popularity}
        for at, name in enumerate(self.names):
            if name == POPULAR:
                continue  # that is ``popularity`` itself
            features[name] = self.standard[at]
            features[f"log {name}"] = log_ratio(self.chances[at], candidates)
        return features

    def measure(self, scores: Tensor, metric: str) -> tuple[Tensor, Tensor]:
        """(R,) the metric and (R,) the AUC of each row; see :func:`mvgp.metrics.ranking_scores`."""
        auc = self._auc(scores)
        return (auc if metric == "AUC" else self._at_top(scores, metric)), auc

    @cached_property
    def _drawn(self) -> tuple[Tensor, Tensor]:
        """(R, D) places of columns drawn, and which are."""
        drawn = self.drawn.to(torch.int8).topk(max(1, int(self.drawn.sum(1).max())), 1)
        return drawn.indices, drawn.values > 0

    def _ahead(self, scores: Tensor, own: Tensor) -> Tensor:
        """(H,) how many of the scores (R, C) of its row are above that of each held-out link (H,); a tie is half."""
        row, _, count = self._links
        if len(row) <= FEW_LINKS * len(count):
            others = scores[row]
            return (others > own[:, None]).sum(1) + (others == own[:, None]).sum(1) / 2
        ordered = torch.from_numpy(np.sort(scores.numpy(), axis=1))  # several times as fast as torch's
        below, up_to = (_places(ordered, row, own, equal=equal) for equal in (False, True))
        return scores.shape[1] - (below + up_to) / 2

    def _auc(self, scores: Tensor) -> Tensor:
        row, place, count = self._links
        others, drawn = self._drawn
        ahead = self._ahead(torch.where(drawn, scores.gather(1, others), -torch.inf), scores[row, place])
        share = 1 - ahead.double() / drawn.sum(1).clamp(min=1)[row]
        return torch.zeros(len(count), dtype=torch.float64).index_add_(0, row, share) / count.clamp(min=1)

    def _at_top(self, scores: Tensor, metric: str) -> Tensor:
        word, k = metric.split("@")[0], int(metric.split("@")[1])
        row, place, count = self._links
        rank = self._ahead(torch.where(self.inside, scores, -torch.inf), scores[row, place]).double() + 0.5
        order = (row * (scores.shape[1] + 1) + rank).argsort()  # links of a row, best first
        row, rank = row[order], rank[order]
        most = count.double().clamp(min=1, max=k)
        gain = torch.ones_like(rank)
        if word == "MAP":
            gain = (torch.arange(1, len(row) + 1) - (count.cumsum(0) - count)[row]) / rank
        elif word == "nDCG":
            gain = 1 / torch.log2(rank + 1)
            ideal = torch.cat([torch.zeros(1), 1 / torch.log2(torch.arange(1, k + 1) + 1.0)]).double().cumsum(0)
            most = ideal[most.long()]
        elif word == "P":
            most = torch.full_like(most, k)
        total = torch.zeros(len(count), dtype=torch.float64).index_add_(0, row, torch.where(rank <= k, gain, 0.0))
        return total / most


def _places(ordered: Tensor, row: Tensor, values: Tensor, *, equal: bool) -> Tensor:
    """(H,) how many entries of a row (R, C), ascending, are below each value (H,); ``equal`` ones as well if asked for.

    All values are searched for together, by bisection. ``torch.searchsorted`` takes as many values of each row.
    """
    width, found = ordered.shape[1], torch.zeros_like(row)
    start, flat = row * width - 1, ordered.flatten()
    for bit in reversed(range(width.bit_length())):
        further = found + 2**bit
        entry = flat[start + further.clamp(max=width)]
        inside = (entry <= values if equal else entry < values) & (further <= width)
        found = torch.where(inside, further, found)
    return found
