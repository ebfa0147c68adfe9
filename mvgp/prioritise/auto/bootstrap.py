r"""P(top k) of ``auto`` by contenders: the Bayesian bootstrap of one row, at the columns that can reach its top alone.

A few samples of all columns (the pilot) tell who the contenders are: whoever lacks at most four standard deviations to
the k-th place, and whoever is among the first 3 k in any of these samples. What a column lacks is compared sample by
sample, so that what all columns have in common does not count. All other samples are products of matrices, by
:mod:`~mvgp.prioritise.auto.contributions`. Sums over all candidates, which make a term a distribution, are linear in
the weights of the links, too. The deviation of a standardised term has the squares of the contenders in each sample,
and those of other columns on average.

Links that hardly matter for a contender keep the weight 1: to first order, what they add to the variance of a score by
one term is at most ``LEFT_OUT`` of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from .blend import FLOOR, MIXTURE, POPULARITY, Blend, log_ratio, moments
from .contributions import Contributions
from .terms import TermBank, to_torch

PILOT = 32  # samples of all columns
ERRORS = 4.0  # a contender lacks at most so many standard deviations, of what it lacks, to the k-th place on average
NEAR = 3  # times k: places in any sample of the pilot that make a contender
MOST = 4096  # contenders, above which all columns are sampled
BLOCK = 250  # samples at a time
FEW_LINKS = 4000  # none is left out
LEFT_OUT = 0.003
SPARSE = 0.05  # share of entries below which a product is one of sparse matrices


@dataclass(frozen=True, eq=False)
class ContenderSamples:
    """Samples of the scores of a row.

    :param cols: (C,) the contenders, ascending.
    :param values: (S, C) in single precision.
    :param deviations: (N,) of all columns: of the samples for contenders, of the pilot for others.
    :param num_links: how many links have random weights.
    """

    cols: Tensor
    values: Tensor
    deviations: Tensor
    num_links: int


def top_shares(values: Tensor, k: int) -> Tensor:
    """(C,) the share of samples (S, C) in which each column is among the first k."""
    best = values.topk(min(k, values.shape[1]), 1).indices.flatten()
    return torch.bincount(best, minlength=values.shape[1]).double() / len(values)


class RowBootstrap:
    """The samples of one row.

    :param bank: the terms.
    :param blend: their weights.
    :param row: its number.
    :param group: of the row.
    :param open_: (N,) bool: the columns that are not known links of the row, over which terms are distributions.
    """

    def __init__(self, bank: TermBank, blend: Blend, row: int, group: int, open_: Tensor) -> None:
        self.bank, self.blend, self.row, self.group, self.open_ = bank, blend, row, group, open_
        heavy = blend.mixture[group, :-1] > 1e-6
        added = {name.removeprefix("log ") for name, weight in blend.weights[group].items() if weight}
        needed = [name for at, name in enumerate(blend.names) if bool(heavy[at]) or name in added]
        self.names = [name for name in needed if name in blend.used] or blend.used[:1]

    def everybody(self, link_weights: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """(B, N) scores of all columns for weights (P, B) of all links, and (B, N) for each term."""
        size = link_weights.shape[1]
        terms = self.bank.scores(torch.tensor([self.row]), self.names, link_weights)
        open_, groups = self.open_.expand(size, -1), torch.tensor([self.group]).expand(size)
        return self.blend.scores(terms, open_, self.bank.counts, groups), terms

    def draw(self, k: int, num_samples: int, seed: int, *, allowed: Tensor) -> ContenderSamples:
        """Samples of the contenders.

        :param k: places of the top.
        :param allowed: (N,) bool: who may be a contender.
        """
        generator = torch.Generator().manual_seed(seed)
        count = len(self.bank.links)
        weights = torch.empty(count, min(PILOT, num_samples)).exponential_(generator=generator)
        pilot, terms = self.everybody(weights)
        deviations = pilot.double().std(0, unbiased=False)
        cols = contenders(pilot, allowed, k)
        if num_samples <= PILOT or len(cols) > MOST:
            parts = [pilot]
            for size in _sizes(num_samples - len(pilot), PILOT):
                weights = torch.empty(count, size).exponential_(generator=generator)
                parts.append(self.everybody(weights)[0])
            cols = allowed.nonzero().squeeze(1)
            values = torch.cat(parts)
            deviations = values.double().std(0, unbiased=False)
            return ContenderSamples(cols, values[:, cols], deviations, count)
        sampler = _Sampler(self, cols, terms, pilot, self.bank.scores(torch.tensor([self.row]), self.names))
        values = torch.cat([pilot[:, cols], *sampler.blocks(num_samples - len(pilot), generator)])
        deviations[cols] = values.double().std(0, unbiased=False)
        return ContenderSamples(cols, values, deviations, len(sampler.links))


def contenders(pilot: Tensor, allowed: Tensor, k: int) -> Tensor:
    """(C,) the columns that can reach the top k, by samples (B, N) of all columns.

    :param allowed: (N,) bool: others are none.
    """
    candidates = allowed.nonzero().squeeze(1)
    if len(candidates) <= k:
        return candidates
    values = pilot[:, candidates].double()
    best = values.topk(min(NEAR * k, len(candidates)), 1)
    lead = best.values[:, k - 1 : k] - values  # (B, C) what is missing to the top, in each sample
    chosen = lead.mean(0) <= ERRORS * lead.std(0, unbiased=False)
    chosen[best.indices.flatten()] = True
    return candidates[chosen]


class _Sampler:
    """Samples of the scores of some columns.

    :param terms: (B, N) each, of the pilot.
    :param pilot: (B, N) scores.
    :param base: (1, N) each term with all weights 1.
    """

    def __init__(
        self, row: RowBootstrap, cols: Tensor, terms: dict[str, Tensor], pilot: Tensor, base: dict[str, Tensor]
    ) -> None:
        self.row, self.cols, bank = row, cols, row.bank
        self.parts = Contributions(bank, row.row, cols, row.names, row.open_[:, None])
        self.candidates = int(row.open_.sum())
        self.base, self.fixed = base, {name: base[name] for name in self.parts.others}
        weights = row.blend.weights[row.group]
        inside = row.open_.clone()  # the candidates that are no contenders
        inside[cols] = False
        self.rest = {
            name: float((terms[name].double().square() * inside).sum(1).mean())
            for name in row.names
            if weights.get(name)
        }
        self.links = self._matter(pilot)
        self._prepare()

    def _matter(self, pilot: Tensor) -> Tensor:
        """(L,) the links whose weights are drawn."""
        links = self.parts.supporting()
        if len(links) <= FEW_LINKS:
            return links
        spread = pilot[:, self.cols].std(0, unbiased=False)
        middle = float(spread.median())
        spread = spread.clamp(min=max(0.1 * middle, 1e-6))
        rows, cols = (part.cpu()[links] for part in (self.row.bank.links.rows, self.row.bank.links.cols))
        importance = torch.zeros(len(links))
        for name, slope in self._slopes().items():
            scale = torch.cat([slope / spread, torch.tensor([1 / max(self._sum(name), 1e-30) / max(middle, 1e-6)])])
            for of_rows, of_cols in self.parts.pairs[name]:
                reach = (self.parts.col_filter(of_cols) * scale).abs().amax(1)  # (N,)
                importance += (self.parts.row_filter(of_rows)[rows] * reach[cols]).square()
        ordered = importance.sort()
        return links[ordered.indices[ordered.values.cumsum(0) > LEFT_OUT]].sort().values

    def _sum(self, name: str) -> float:
        return float((self.base[name][0] * self.row.open_).sum())

    def _slopes(self) -> dict[str, Tensor]:
        """(C,) for each linear term: the derivative of the scores by it."""
        weights, blend, group = self.row.blend.weights[self.row.group], self.row.blend, self.row.group
        sums = {name: max(self._sum(name), 1e-30) for name in self.parts.pairs}
        shares = {name: float(blend.mixture[group, blend.names.index(name)]) for name in self.row.names}
        mixed = torch.full((len(self.cols),), float(blend.mixture[group, -1]) / self.candidates)
        for name, share in shares.items():
            values = self.base[name][0].clamp(min=0)
            mixed += share * values[self.cols] / float((values * self.row.open_).sum().clamp(min=1e-30))
        deviations = moments(self.base, self.row.open_[None])[1][:, 0]
        found = {}
        for at, name in enumerate(self.base):
            if name not in sums:
                continue
            size = self.candidates / sums[name]
            slope = weights.get(MIXTURE, 0.0) * shares[name] * size / (mixed * self.candidates + FLOOR)
            own = self.base[name][0, self.cols] * size
            found[name] = slope + weights.get(f"log {name}", 0.0) * size / (own + FLOOR)
            found[name] = found[name] + abs(weights.get(name, 0.0)) / float(deviations[at])
        return found

    def _prepare(self) -> None:
        """Filters at the links whose weights are drawn."""
        rows, cols = (part.cpu()[self.links] for part in (self.row.bank.links.rows, self.row.bank.links.cols))
        ends, place = cols.unique(return_inverse=True)  # (R,) columns with such a link
        shape, every = (len(ends), len(self.links)), np.arange(len(self.links))
        self.spread: dict[tuple[str, int], Tensor] = {}  # (R, L)
        self.right: dict[tuple[str, int, int], Tensor] = {}  # (C + 1, R)
        self.offset: dict[str, Tensor | None] = {}  # (C + 1, 1)
        keys = dict.fromkeys(key for pairs in self.parts.pairs.values() for key, _ in pairs)
        for key in keys:
            values = self.parts.row_filter(key)[rows].numpy()
            some = values != 0
            self.spread[key] = to_torch(
                sparse.csr_array((values[some], (place.numpy()[some], every[some])), shape=shape)
            )
        totals = {name: self.parts.totals(name).double() for name in self.parts.pairs}
        for of_cols, dense in self.parts.forget(rows=ends).items():  # (R, C + 1)
            few = int((dense != 0).sum()) < SPARSE * dense.numel()
            self.right[of_cols] = to_torch(sparse.csr_array(dense.mT.numpy())) if few else dense.mT.contiguous()
        ones = torch.ones(len(self.links), 1)
        drawn = self._terms(ones)
        some_left = len(self.links) < len(self.parts.supporting())  # what is left of no link is rounding
        for name, total in totals.items():
            offset = total[:, None] - drawn[name].double()
            self.offset[name] = offset.clamp(min=0).float() if some_left else None

    def _terms(self, weights: Tensor) -> dict[str, Tensor]:
        """(C + 1, B) for each linear term: what the links add whose weights (L, B) are drawn."""
        states = {key: matrix @ weights for key, matrix in self.spread.items()}
        found = {}
        for name, pairs in self.parts.pairs.items():
            total = self.right[pairs[0][1]] @ states[pairs[0][0]]
            for of_rows, of_cols in pairs[1:]:
                total = total + self.right[of_cols] @ states[of_rows]
            found[name] = total
        return found

    def blocks(self, num_samples: int, generator: torch.Generator) -> Iterator[Tensor]:
        """(B, C) scores, a number of samples at a time."""
        for size in _sizes(num_samples, BLOCK):
            yield self.scores(torch.empty(len(self.links), size).exponential_(generator=generator))

    def scores(self, weights: Tensor) -> Tensor:
        """(B, C) scores for weights (L, B) of :attr:`links`."""
        row, blend, group, size = self.row, self.row.blend, self.row.group, weights.shape[1]
        features, cols = blend.weights[group], self.cols
        mixed = torch.full((size, len(cols)), float(blend.mixture[group, -1]) / self.candidates)
        total = torch.zeros(size, len(cols))
        for name, (values, sums) in self._values(weights).items():
            chances = values.clamp(min=0) / sums
            share = float(blend.mixture[group, blend.names.index(name)])
            mixed += share * chances
            if name == POPULARITY:
                continue
            if weight := features.get(f"log {name}", 0.0):
                total += weight * log_ratio(chances, torch.tensor(self.candidates))
            if weight := features.get(name, 0.0):
                mean, deviation = self._moments(name, values, sums)
                total += weight * (values - mean) / deviation
        total += features.get(MIXTURE, 0.0) * log_ratio(mixed, torch.tensor(self.candidates))
        return total + features.get(POPULARITY, 0.0) * torch.log1p(row.bank.counts[cols])

    def _values(self, weights: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """(B, C) values of each term, and (B, 1) their sums over the candidates, cut off at 0."""
        found = {}
        for name, term in self._terms(weights).items():
            offset = self.offset[name]
            both = (term if offset is None else term + offset).mT  # (B, C + 1)
            found[name] = (both[:, :-1], both[:, -1:].clamp(min=1e-30))
        for name, term in self.fixed.items():
            sums = (term.clamp(min=0) * self.row.open_).sum(1, keepdim=True).clamp(min=1e-30)
            found[name] = (term[:, self.cols], sums)
        return found

    def _moments(self, name: str, values: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 1) mean and standard deviation of a term over the candidates."""
        if name in self.fixed:
            mean, deviation = moments({name: self.fixed[name]}, self.row.open_[None])
            return mean[0][:, None], deviation[0][:, None]
        inside, values = self.row.open_[self.cols], values.double()
        count = int(inside.sum())
        others = self.candidates - count
        mean = (values * inside).sum(1, keepdim=True) / max(count, 1)
        squares = ((values - mean).square() * inside).sum(1, keepdim=True)  # centred: a spread may be small
        if others:
            left = sums.double() - count * mean - others * mean  # the sum of what the others deviate from this mean
            squares += (self.rest[name] - 2 * mean * left - others * mean.square()).clamp(min=0)
            mean, squares = mean + left / self.candidates, squares - left.square() / self.candidates
        variance = squares / self.candidates
        deviation = torch.where(variance > 1e-12 * (mean.square() + 1e-30), variance.clamp(min=0).sqrt(), 1.0)
        return mean.float(), deviation.float()


def _sizes(count: int, block: int) -> list[int]:
    """A number in parts of at most ``block``."""
    return [min(block, count - start) for start in range(0, count, block)]
