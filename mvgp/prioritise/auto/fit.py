"""``auto``: a sum of terms, weighed by held-out links of the user's own data, and how good it is there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...checks import check_flag, check_instance, check_seed, check_whole_number
from ...data.positive_unlabelled import PositiveUnlabelled
from ...descriptions import describe
from ...errors import InputError
from ...metrics.comparison import PairedComparison, compare
from ...metrics.conformal import ConformalLengths, conformal
from ...metrics.ranking import Ranker, RankingScores, TaskItems, check_metric, ranking_scores
from ...progress import Progress, check_progress, progress_bar
from ...tensor_checks import check_index
from ...text import Description
from ..baselines.graphs import NeighbourVoting, Popularity, Propagation
from ..tables.link_set import LinkSet, check_link_set
from .blend import GROUPS, MIXTURE, POPULARITY, Blend, average, group_of, lead, select
from .bootstrap import ContenderSamples, RowBootstrap, top_shares
from .sample import ClosedSample, HeldOut, Sample, cells, hold_out, judging_rows, some_links, validation_rows
from .terms import LOW_RANK, POPULAR, SOURCES, TermBank, blocks
from .trials import Chosen, Trials, check_trials, fingerprint, settled

SAMPLE_BLOCK = 64  # samples of a row computed at a time
REPEATS = 3  # splits that are held out in turn, until so many rows have chosen:
ENOUGH_ROWS = 1500, 4000  # without and with terms of low rank
DRAWN = 100, 300  # columns of a row for its AUC, without and with terms of low rank, which differ by less
MIN_LINKS = 20  # held-out links below which nothing is chosen
LITTLE = 0.05  # share of the evidence below which a source "matters little"


class AutoRanker:
    """A blend of terms, fitted: a :class:`~mvgp.metrics.Ranker` that computes rows when they are asked for.

    :param bank: the terms of all links.
    :param blend: their weights.
    :param assessment: how good it is on held-out links, and what was tried; None where links are too few.

    Its ``dtype`` is single precision: a row may differ from that of a larger block in the last digits.

    Example:
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.auto import Auto
        >>> from mvgp.prioritise.tables import LinkSet
        >>> links = LinkSet("abc", "wxyz", [0, 1], [1, 1], Graph([(0, 2)], 3), Graph([], 4))
        >>> ranker = Auto(links).fit(links.links())
        >>> ranker.scores([2]).argmax().item()  # as its neighbour
        1
        >>> top, deviation = ranker.bootstrap(2, k=1, num_samples=100)
        >>> top.tolist()
        [0.0, 1.0, 0.0, 0.0]

    """

    def __init__(self, bank: TermBank, blend: Blend, assessment: Assessment | None = None) -> None:
        self.bank, self.blend, self.assessment = bank, blend, assessment
        self.shape, self.dtype = bank.shape, torch.float32

    @cached_property
    def _known(self) -> TaskItems:
        return TaskItems(self.bank.links, self.shape, "links")

    def scores(self, rows: Any = None) -> Tensor:
        """(R, N) in single precision: the scores of whole rows; all rows when left out."""
        chosen = torch.arange(self.shape[0]) if rows is None else check_index(rows, self.shape[0], "rows").cpu()
        parts = [self._block(part) for part in blocks(chosen)]
        return torch.cat(parts) if parts else torch.zeros(0, self.shape[1])

    def _block(self, rows: Tensor) -> Tensor:
        open_ = candidates(self._known, rows, self.shape[1])
        groups = group_of(self._known.counts[rows])
        return self.blend.scores(self.bank.scores(rows, self.blend.used), open_, self.bank.counts, groups)

    def samples(self, row: int, num_samples: int = 1000, seed: int = 0) -> Tensor:
        r"""(S, N) in single precision: scores of a row under the Bayesian bootstrap of the links.

        Each known link counts with a weight drawn from the exponential distribution of mean 1 (Rubin, *The Bayesian
        bootstrap*, 1981): how the list would look if the links had been collected again. The weights of the terms, and
        what EDLAE and a low rank have learned, stay.
        """
        number = check_index([row], self.shape[0], "row").cpu()
        check_whole_number(num_samples, "num_samples")
        generator = torch.Generator().manual_seed(check_seed(seed))
        open_ = candidates(self._known, number, self.shape[1])
        group = group_of(self._known.counts[number])
        parts = []
        for size in [SAMPLE_BLOCK] * (num_samples // SAMPLE_BLOCK) + [num_samples % SAMPLE_BLOCK]:
            weights = torch.empty(len(self.bank.links), size).exponential_(generator=generator)
            terms = self.bank.scores(number, self.blend.used, weights)
            parts.append(self.blend.scores(terms, open_.expand(size, -1), self.bank.counts, group.expand(size)))
        return torch.cat(parts)

    def bootstrap(
        self, row: int, k: int, *, exclude: Any = None, num_samples: int = 1000, seed: int = 0
    ) -> tuple[Tensor, Tensor]:
        """(N,) P(in the top k) and (N,) standard deviation of each score, by the bootstrap of :meth:`samples`.

        It knows the links alone and no others, so it is far too sure of the place of a column. ``mvgp rank`` shows what
        :class:`~mvgp.prioritise.trust.TopPlaces` has measured.

        :param exclude: links that are no candidates, as ``ranking_scores`` takes them.
        """
        k = check_whole_number(k, "k", 1, self.shape[1])
        found = self.contender_samples(row, k, exclude=exclude, num_samples=num_samples, seed=seed)
        top = torch.zeros(self.shape[1], dtype=torch.float64)
        top[found.cols] = top_shares(found.values, k)
        return top, found.deviations

    def contender_samples(
        self, row: int, k: int, *, exclude: Any = None, num_samples: int = 1000, seed: int = 0
    ) -> ContenderSamples:
        """Samples as those of :meth:`samples`, of the columns that can reach the top k alone.

        :param exclude: links that are no candidates, as ``ranking_scores`` takes them.
        """
        number = check_index([row], self.shape[0], "row").cpu()
        check_whole_number(num_samples, "num_samples")
        allowed = candidates(TaskItems(exclude, self.shape, "exclude"), number, self.shape[1])[0]
        open_ = candidates(self._known, number, self.shape[1])[0]
        rows = RowBootstrap(self.bank, self.blend, int(number), int(group_of(self._known.counts[number])), open_)
        return rows.draw(k, num_samples, check_seed(seed), allowed=allowed)

    def conformal(self, held_out: Any, *, known: Any = None, level: float = 0.9, **options: Any) -> ConformalLengths:
        """The shortest lists that hold a held-out link with probability ``level``: :mod:`mvgp.metrics.conformal`.

        :param held_out: links that were not fitted, as ``ranking_scores`` takes them.
        :param known: links that were; they are no candidates. Those that were fitted when left out.
        """
        return conformal(self, held_out, known=self.bank.links if known is None else known, level=level, **options)

    def evidence(self) -> dict[str, float]:
        """The share of each source in the mixture, over the rows as they are; what is left over is spread evenly."""
        weights = self._group_shares() @ self.blend.mixture  # (Q + 1,)
        sources = dict.fromkeys(SOURCES, 0.0)
        for name, weight in zip(self.blend.names, weights.tolist(), strict=False):
            sources[self.bank.terms[name].source] += weight
        return {source: weight for source, weight in sources.items() if weight > 0} | {"any column": float(weights[-1])}

    def _group_shares(self) -> Tensor:
        """(4,) the share of each group among the rows."""
        return torch.bincount(group_of(self._known.counts), minlength=len(GROUPS)).double() / self.shape[0]

    def summary(self) -> str:
        """The sources of evidence with their shares, in one line."""
        shares = sorted(self.evidence().items(), key=lambda item: -item[1])
        return ", ".join(f"{source} {share:.0%}" for source, share in shares if share >= LITTLE)

    def in_words(self) -> list[str]:
        """What was chosen, in sentences."""
        shares, share = self.evidence(), self._group_shares()
        lines = [f"where links are expected: {self.summary()}"]
        little = [source for source in SOURCES if shares.get(source, 0.0) < LITTLE and source != POPULAR]
        lines += [f"the {source} matters little here" for source in little if source.endswith("graph")]
        exponents = [weights.get(POPULARITY, 0.0) / weights[MIXTURE] for weights in self.blend.weights]
        exponent = float(share @ torch.tensor(exponents, dtype=torch.float64))
        if exponent < 0:
            lines.append(
                f"held-out links favour columns with few known links (exponent {exponent:.2f}); where every column has "
                "a link, holding one out makes its column look rare, and new links need not follow"
            )
        elif exponent > 0:
            lines.append(f"popular columns are favoured (exponent {exponent:.2f})")
        return lines

    def __repr__(self) -> str:
        return f"AutoRanker({self.shape[0]} x {self.shape[1]}, {len(self.blend.used)} terms)"


@describe.register
def _(x: AutoRanker) -> Description:
    parts = "the log of the mixture over even odds, log(1 + known links of n), standardised terms"
    lines = [("equation", f"score(m, n) = sum of weights of the group of m times: {parts}")]
    for name, weights in zip(GROUPS, x.blend.weights, strict=True):
        terms = ", ".join(f"{weight:.3g} {term}" for term, weight in weights.items() if weight)
        lines.append((name if "link" in name else f"{name} known links", terms))
    lines += [("shape", f"{x.shape[0]:,} x {x.shape[1]:,}, {len(x.bank.links):,} known links")]
    lines += [("chosen", sentence) for sentence in x.in_words()]
    lines += [] if x.assessment is None else [("held-out links", x.assessment.in_words())]
    return Description("AutoRanker: a sum of terms with weights learned on held-out links", tuple(lines))


@dataclass(frozen=True, eq=False)
class Assessment:
    """How ``auto`` and simple baselines rank held-out links that had no part in the choice.

    :param metric: what was optimised.
    :param scores: the ranking of each model, ``auto`` first.
    :param groups: (R,) group of each row, see ``GROUPS``.
    :param trials: every weight that was changed, with the metric and the AUC on the validation rows of its split.
    :param iterations: of EM.
    :param seconds: of the search.
    """

    metric: str
    scores: dict[str, RankingScores]
    groups: Tensor
    trials: list[dict[str, Any]]
    iterations: int
    seconds: float

    def comparisons(self, metric: str | None = None) -> dict[str, PairedComparison]:
        """``auto`` against each baseline, paired over rows."""
        own = self.scores["auto"]
        return {
            name: compare(own, other, metric or self.metric) for name, other in self.scores.items() if name != "auto"
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Headings, and a line for each model: AUC, the metric, and how far ``auto`` is ahead, with a 95 % interval."""
        ahead = self.comparisons()
        lines = []
        for name, scores in self.scores.items():
            text = ""
            if name in ahead:
                low, high = ahead[name].interval
                text = f"{ahead[name].difference:+.3f} ({low:+.3f} to {high:+.3f})"
            lines.append([name, f"{_mean(scores, 'AUC'):.3f}", f"{_mean(scores, self.metric):.3f}", text])
        return ["model", "AUC", self.metric, f"auto ahead in {self.metric}"], lines

    def in_words(self) -> str:
        """One sentence about the best baseline."""
        ahead = self.comparisons()
        best = max(ahead, key=lambda name: ahead[name].mean_b)
        low, high = ahead[best].interval
        verdict = "better than" if low > 0 else "worse than" if high < 0 else "not distinguishable from"
        rows = ahead[best].num_tasks
        return (
            f"on {rows:,} rows with held-out links auto is {verdict} {best}, the best of the simple baselines, "
            f"in {self.metric}: {ahead[best].mean_a:.3f} against {ahead[best].mean_b:.3f}"
        )


@dataclass(frozen=True)
class Auto:
    """The recipe of the default model: learn the weights of all terms on held-out links, then use all links.

    A tenth of the pairs and 15 % of the rows with all their links are held out, up to three times where rows are few.
    Two thirds of the rows choose the weights by their held-out links, each time anew, and the weights are averaged. The
    rest of the rows says how good the choice is.

    :param link_set: its graphs are used, its links are not.
    :param metric: what is optimised: "MAP@100", "AUC", or P, R, MAP, nDCG with another k.
    :param seed: of what is held out.
    :param max_steps: weights that are changed after the mixture.
    :param assess: whether to rank the other held-out links, with baselines beside; about as long as the choice.
    :param trials: a file in which each split's choice is kept; the same search goes on from there.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.

    Example:
        >>> import torch
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.auto import Auto
        >>> from mvgp.prioritise.tables import LinkSet
        >>> path = Graph([(row, row + 1) for row in range(29)], 30)
        >>> links = LinkSet([f"r{i}" for i in range(30)], [f"c{i}" for i in range(40)], range(30), range(30), path,
        ...     Graph([(col, col + 1) for col in range(39)], 40))
        >>> Auto(links).fit(links.links()).shape
        (30, 40)

    """

    link_set: LinkSet = field(repr=False)
    metric: str = "MAP@100"
    seed: int = field(default=0, repr=False)
    max_steps: int = field(default=12, repr=False)
    assess: bool = field(default=True, repr=False)
    trials: str | os.PathLike[str] | None = field(default=None, repr=False)
    progress: Progress = field(default="auto", repr=False)

    def __post_init__(self) -> None:
        check_link_set(self.link_set)
        object.__setattr__(self, "metric", check_metric(self.metric))  # as tables have it
        check_seed(self.seed), check_whole_number(self.max_steps, "max_steps", 0)
        check_flag(self.assess, "assess"), check_progress(self.progress)
        check_trials(self.trials)

    def fit(self, links: PositiveUnlabelled) -> AutoRanker:
        """The ranker given ``links``."""
        check_instance(links, "links", PositiveUnlabelled, "mvgp.PositiveUnlabelled")
        if links.shape != self.link_set.shape:
            raise InputError(f"links: expected shape {self.link_set.shape}, as of the graphs, got {links.shape}")
        with progress_bar("auto", 3, unit="stages", progress=self.progress) as bar:
            blend, assessment = self._choose(links, bar.update)
            bank = TermBank(self.link_set, links, self.seed)
            bank.scores(torch.tensor([0]), blend.used)  # factorisations are made now, not at the first question
            bar.update()
        return AutoRanker(bank, blend, assessment)

    def refit(self, ranker: AutoRanker, links: PositiveUnlabelled) -> AutoRanker:
        """The terms of other links with the weights that a ranker has: what it would say if it knew these."""
        return AutoRanker(TermBank(self.link_set, links, self.seed, [*ranker.bank.terms.values()]), ranker.blend)

    def _choose(self, links: PositiveUnlabelled, step: Callable[[], object]) -> tuple[Blend, Assessment | None]:
        first, judges = hold_out(links, self.seed), judging_rows(links.shape[0], self.seed)
        if first is None or len(first.held_out) < MIN_LINKS:
            return default_blend(TermBank(self.link_set, links, self.seed)), None
        # what is judged by later has no part in any split that chooses
        rest = some_links(links, ~(judges[links.rows] & torch.isin(cells(links), cells(first.held_out))))
        more = (hold_out(rest, self.seed + at) for at in range(1, REPEATS))
        splits = [first, *(split for split in more if split is not None)]
        bank = TermBank(self.link_set, first.train, self.seed)
        settings = self.metric, self.seed, self.max_steps
        belongs = "" if self.trials is None else fingerprint(self.link_set, links, *settings)
        kept = Trials(self.trials, belongs, tuple(bank.terms))
        chosen: list[Chosen] = []  # of each split
        for at, split in enumerate(splits):  # more splits where one has too few rows to choose by
            found = kept.chosen(at)
            if found is None:
                found = self._chosen_by(bank, split, ~judges, at, [part.blend for part in chosen])
                if found is None:
                    continue
                kept.keep(at, found)
            chosen.append(found)
            if sum(part.num_rows for part in chosen) >= ENOUGH_ROWS[_has_low_rank(bank)]:
                break
        step()
        if not chosen:
            return default_blend(TermBank(self.link_set, links, self.seed)), None
        blend = settled(chosen)
        known, held_out = (TaskItems(part, links.shape, "links") for part in (first.train, first.held_out))
        rows = validation_rows(known, held_out, judges, self.seed)
        if not self.assess or len(rows) == 0:
            return blend, None
        scores = self._assess(AutoRanker(bank, blend), first, rows)
        if int((~scores["auto"].per_task(self.metric).isnan()).sum()) < 2:  # rows, to compare models by
            return blend, None
        step()
        trials = [{"split": at} | trial for at, part in enumerate(chosen) for trial in part.trials]
        iterations, seconds = max(part.iterations for part in chosen), sum(part.seconds for part in chosen)
        return blend, Assessment(self.metric, scores, group_of(known.counts[rows]), trials, iterations, seconds)

    def _chosen_by(self, bank: TermBank, split: HeldOut, rows: Tensor, at: int, earlier: list[Blend]) -> Chosen | None:
        """What a split chooses, and what it says of earlier choices; None if it has no rows.

        :param bank: the terms of the first split.
        :param rows: (M,) bool: those that may choose.
        :param at: its number.
        """
        began = time.perf_counter()
        own = bank if at == 0 else TermBank(self.link_set, split.train, self.seed, [*bank.terms.values()])
        sample = self._sample(own, split, rows, self.seed + at)
        if sample is None:
            return None
        mixture, iterations = sample.mixture()
        weights, trials = select(sample, mixture, self.metric, max_steps=self.max_steps)
        first = trials[0][self.metric]
        judged = lead(sample, average(earlier), earlier, self.metric, first) if len(earlier) > 1 else []
        seconds = time.perf_counter() - began
        return Chosen(Blend(sample.names, mixture, weights), trials, judged, len(sample.groups), iterations, seconds)

    def _sample(self, bank: TermBank, split: HeldOut, chosen: Tensor, seed: int) -> ClosedSample | None:
        """The rows of a split that choose; None without any."""
        shape, sample = bank.shape, Sample(tuple(bank.terms), bank.shape[1])
        known, held_out = (TaskItems(part, shape, "links") for part in (split.train, split.held_out))
        rows = validation_rows(known, held_out, chosen, seed)
        generator, drawn = torch.Generator().manual_seed(seed), DRAWN[_has_low_rank(bank)]
        for part in blocks(rows):
            labels, open_ = ~candidates(held_out, part, shape[1]), candidates(known, part, shape[1])
            groups = group_of(known.counts[part])
            sample.add(bank.scores(part), open_, labels, bank.counts, groups, generator, random=drawn)
        return sample.close() if len(rows) else None

    def _baselines(self) -> dict[str, Any]:
        graphs = self.link_set.row_graph, self.link_set.col_graph
        options: dict[str, Any] = {"dtype": torch.float32}
        named: dict[str, Any] = {"popularity": Popularity(**options)}
        if graphs[0].num_links:
            named["neighbours"] = NeighbourVoting(graphs[0], 3, **options)
        if graphs[0].num_links or graphs[1].num_links:
            named["propagation"] = Propagation(*graphs, 0.3, 4, **options)
        return named

    def _assess(self, own: AutoRanker, split: HeldOut, rows: Tensor) -> dict[str, RankingScores]:
        k = 100 if "@" not in self.metric else int(self.metric.split("@")[1])
        fitted: dict[str, Ranker] = {"auto": own}
        fitted |= {name: recipe.fit(split.train) for name, recipe in self._baselines().items()}
        return {
            name: ranking_scores(ranker, split.held_out, exclude=split.train, k=k, rows=rows)
            for name, ranker in fitted.items()
        }


def _has_low_rank(bank: TermBank) -> bool:
    return any(term.source == LOW_RANK for term in bank.terms.values())


def _mean(scores: RankingScores, metric: str) -> float:
    """Over the rows where it is defined."""
    return float(scores.per_task(metric).nanmean())


def candidates(known: TaskItems, rows: Tensor, num_cols: int) -> Tensor:
    """(R, N) bool: which columns are not linked to a row."""
    open_ = torch.ones(len(rows), num_cols, dtype=torch.bool)
    place, col = known.of(rows)
    open_[place, col] = False
    return open_


def default_blend(bank: TermBank) -> Blend:
    """Equal weights of all terms, for links that are too few to choose by."""
    size = len(bank.terms) + 1
    mixture = torch.full((len(GROUPS), size), 1 / size, dtype=torch.float64)
    return Blend(tuple(bank.terms), mixture, ({MIXTURE: 1.0},) * len(GROUPS))
