r"""Why a column is in the list: the known links that carry it, as shares and in words.

Of ``auto``, the share of a term q at a column is how much of a small change of the term the score feels,
:math:`\partial s / \partial \log T_q`, relative to all terms together. Without added features that is its share
:math:`w_q p_q / \sum_r w_r p_r` of the mixture. The share of a term is divided among the links that make it up
(:mod:`mvgp.prioritise.auto.contributions`). Of a posterior, shares are the positive parts of
:meth:`~mvgp.posteriors.gaussian.GaussianPosterior.explain`, divided by their sum.

Links are then put together by what they have to do with the row and the column: links of the row itself, links of other
rows to this very column, and links of other rows to other columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...checks import check_whole_number, shown
from ...errors import InputError
from ...posteriors.gaussian import GaussianPosterior
from ...tensor_checks import check_index
from ...text import visible
from ..auto.blend import FLOOR, MIXTURE, POPULARITY, group_of, moments
from ..auto.contributions import Contributions, learned_links
from ..auto.fit import AutoRanker, candidates
from ..auto.terms import BOTH, COLS, LOW_RANK, POPULAR, ROW_GP, ROWS, TOGETHER, Term

ANY, PRIOR, UNLABELLED, KNOWN, REST = "any column", "prior mean", "unlabelled cells", "known link", "rest"
ROWS_ALIKE = Term(LOW_RANK, ROW_GP).name  # the term whose links are those of other rows to the same column
OTHERS = "links in common with similar rows"
LISTED = 200  # links of a source at a column that are told apart
LEAST = 0.05  # share below which a reason is one of the rest, and a link is not counted
NAMED = 2  # links of a reason that are named
Link = tuple[int, int, float]  # row, column, share
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
Links = dict[str, dict[tuple[int, int], float]]  # shares of links (row, column), by source


@dataclass(frozen=True)
class Reason:
    """A part of what speaks for a column.

    :param share: of all that speaks for it, from 0 to 1.
    :param source: "row graph", "column graph", ...
    :param text: in words.
    :param links: the known links behind it that matter most, each (row, column, share), the largest share first.
    """

    share: float
    source: str
    text: str
    links: tuple[tuple[int, int, float], ...] = ()


@dataclass(frozen=True)
class Reasons:
    """All that speaks for a column; shares add up to 1.

    :param parts: the largest share first, but for the rest, which is last.

    Example:
        >>> from mvgp.prioritise.ranking.reasons import Reason, Reasons
        >>> print(Reasons((Reason(0.75, "column graph", "near the known gene FBN1"), Reason(0.25, "rest", "other"))))
        75 %: near the known gene FBN1; 25 %: other

    """

    parts: tuple[Reason, ...]

    def percentages(self) -> tuple[int, ...]:
        """Whole numbers that add up to 100, each next to its share (largest remainders)."""
        exact = [100 * part.share for part in self.parts]
        whole = [int(value) for value in exact]
        order = sorted(range(len(exact)), key=lambda at: whole[at] - exact[at])
        for at in order[: max(0, 100 - sum(whole))]:
            whole[at] += 1
        return tuple(whole)

    def __str__(self) -> str:
        parts = zip(self.percentages(), self.parts, strict=True)
        return "; ".join(f"{percent} %: {part.text}" for percent, part in parts if percent)


def reasons(
    ranker: Any,
    row: int,
    cols: Any,
    *,
    row_names: Sequence[str] | None = None,
    col_names: Sequence[str] | None = None,
    words: tuple[str, str] = ("row", "column"),
    links: int = 10,
) -> tuple[Reasons, ...]:
    """Why each of some columns is in the list of a row.

    :param ranker: ``auto``, a posterior that explains its mean, or an average of such.
    :param row: its number.
    :param cols: (C,) columns.
    :param row_names: of all M rows; numbers when left out.
    :param col_names: of all N columns.
    :param words: what a row and a column is, such as ("disease", "gene"); an "s" makes the plural.
    :param links: how many links of each reason are kept.

    Example:
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.auto import Auto
        >>> from mvgp.prioritise.ranking.reasons import reasons
        >>> from mvgp.prioritise.tables import LinkSet
        >>> links = LinkSet("abc", "wxyz", [0, 1], [1, 1], Graph([(0, 2)], 3), Graph([], 4))
        >>> ranker = Auto(links).fit(links.links())
        >>> why = reasons(ranker, 2, [1], row_names="abc", col_names="wxyz", words=("disease", "gene"))[0]
        >>> why.parts[0].text
        'linked to one disease like this one, a'
        >>> sum(why.percentages())
        100

    """
    parts = getattr(ranker, "posteriors", (ranker,))
    number = int(check_index([row], parts[0].shape[0], "row")[0])
    chosen = check_index(cols, parts[0].shape[1], "cols").cpu()
    check_whole_number(links, "links", 0)
    if not isinstance(words, tuple) or len(words) != 2 or not all(isinstance(word, str) and word for word in words):
        raise InputError(f"words: expected two words, for a row and for a column, got {shown(words)}")
    for part in parts:
        if not isinstance(part, AutoRanker | GaussianPosterior):
            raise InputError(f"ranker: expected auto or a posterior that explains its mean, got {type(part).__name__}")
    by_cell = [
        _of_auto(part, number, chosen) if isinstance(part, AutoRanker) else _of_posterior(part, number, chosen)
        for part in parts
    ]
    names = _Names(row_names, col_names, words)
    averaged = [_average([each[at] for each in by_cell]) for at in range(len(chosen))]
    return tuple(_in_words(shares, col, names, links) for shares, col in zip(averaged, chosen.tolist(), strict=True))


def _average(parts: Sequence[Links]) -> Links:
    """The mean of shares."""
    total: Links = defaultdict(lambda: defaultdict(float))
    for part in parts:
        for source, shares in part.items():
            for link, share in shares.items():
                total[source][link] += share / len(parts)
    return total


NOBODY = (-1, -1)  # in place of a link: the share of a source itself


def _of_auto(ranker: AutoRanker, row: int, cols: Tensor) -> list[Links]:
    """For each column: shares by source and link, adding up to 1."""
    bank, number = ranker.bank, torch.tensor([row])
    open_ = candidates(ranker._known, number, ranker.shape[1])
    group = int(group_of(ranker._known.counts[number]))
    names = ranker.blend.used
    values = bank.scores(number, names)
    weights = elasticities(ranker, values, open_, group, cols)  # (C,) for each name, for popularity and for any column
    total = torch.stack(list(weights.values())).sum(0).clamp(min=1e-300)
    contributions = Contributions(bank, row, cols, [name for name in names if bool(weights[name].any())])
    supporting = contributions.supporting()
    rows, targets = bank.links.rows.cpu()[supporting], bank.links.cols.cpu()[supporting]
    scales: tuple[dict[str, Tensor], dict[str, Tensor]] = ({}, {})  # of terms of graphs, and of links in common
    by_cell: list[Links] = [defaultdict(lambda: defaultdict(float)) for _ in range(len(cols))]
    for name, weight in weights.items():
        share = weight / total  # (C,)
        if name in contributions.pairs:
            whole = contributions.totals(name).double()
            scales[bank.terms[name].source == TOGETHER][name] = (share / whole.clamp(min=1e-300)).float()
            continue
        source = {POPULARITY: POPULAR, ANY: ANY}.get(name) or bank.terms[name].source
        learned = learned_links(bank, name, row, cols) if name in contributions.others else None
        source = ROWS if name == ROWS_ALIKE else source
        for at, part in enumerate(share.tolist()):
            if learned is None:
                by_cell[at][source][NOBODY] += part
            elif part > 0:
                links, added = learned
                ends = bank.links.rows.cpu()[links], bank.links.cols.cpu()[links]
                _spread(by_cell[at][source], ends, added[:, at].double(), part)
    graph, together = (contributions.of_sum(part, supporting) for part in scales)
    for at, col in enumerate(cols.tolist()):
        _add(by_cell[at], rows, targets, graph[:, at], (row, col), (COLS, ROWS, BOTH))
        _add(by_cell[at], rows, targets, together[:, at], (row, col), (TOGETHER, OTHERS, OTHERS))
    return by_cell


def _add(
    shares: Links, rows: Tensor, cols: Tensor, values: Tensor, cell: tuple[int, int], kinds: tuple[str, str, str]
) -> None:
    """Add the shares (L,) of links (L,) by what they have to do with a cell: of its row, of its column, of neither."""
    own, same = rows == cell[0], cols == cell[1]
    for source, where in zip((KNOWN, *kinds), (own & same, own & ~same, ~own & same, ~own & ~same), strict=True):
        places = (where & (values > 0)).nonzero().squeeze(1)
        best = values[places].topk(min(LISTED, len(places)))
        for place, value in zip(places[best.indices].tolist(), best.values.tolist(), strict=True):
            shares[source][int(rows[place]), int(cols[place])] += value
        left = float(values[places].sum() - best.values.sum())
        if len(places) > LISTED:
            shares[source][NOBODY] += left


def _spread(shares: dict[tuple[int, int], float], ends: tuple[Tensor, Tensor], added: Tensor, share: float) -> None:
    """Divide the share of a term among the links, by rows (K,) and columns (K,), that add to it."""
    total = float(added.clamp(min=0).sum())
    if total <= 0:
        shares[NOBODY] += share
        return
    best = added.topk(min(LISTED, int((added > 0).sum())))
    rows, cols = (part[best.indices].tolist() for part in ends)
    for row, col, value in zip(rows, cols, best.values.tolist(), strict=True):
        shares[row, col] += share * value / total
    left = 1 - float(best.values.sum()) / total
    if len(best.values) == LISTED and left > 0:
        shares[NOBODY] += share * left


def elasticities(
    ranker: AutoRanker, values: dict[str, Tensor], open_: Tensor, group: int, cols: Tensor
) -> dict[str, Tensor]:
    """(C,) for each term, for popularity and for any column: the derivative of the score by its logarithm.

    Features that speak against a column count as 0.
    """
    blend, weights = ranker.blend, ranker.blend.weights[group]
    size = int(open_.sum())
    chances = {
        name: (term[0].clamp(min=0)[cols] / (term[0].clamp(min=0) * open_[0]).sum().clamp(min=1e-30)).double()
        for name, term in values.items()
    }
    shares = {name: float(blend.mixture[group, blend.names.index(name)]) * chance for name, chance in chances.items()}
    even = torch.full((len(cols),), float(blend.mixture[group, -1]) / max(size, 1), dtype=torch.float64)
    mixed = torch.stack([*shares.values(), even]).sum(0)
    slope = weights.get(MIXTURE, 0.0) * size / (mixed * size + FLOOR)
    slopes = {name: slope * share for name, share in shares.items()}
    deviations = moments(values, open_)[1][:, 0].double()
    for at, name in enumerate(values):
        if name == POPULARITY:
            continue
        log = max(0.0, weights.get(f"log {name}", 0.0))
        plain = max(0.0, weights.get(name, 0.0))
        slopes[name] = slopes[name] + log * chances[name] * size / (chances[name] * size + FLOOR)
        slopes[name] = slopes[name] + plain * values[name][0, cols].clamp(min=0).double() / deviations[at]
    counts = ranker.bank.counts[cols].double()
    extra = max(0.0, weights.get(POPULARITY, 0.0)) * counts / (1 + counts)
    slopes[POPULARITY] = slopes.get(POPULARITY, torch.zeros_like(extra)) + extra
    return slopes | {ANY: slope * even}


def _of_posterior(posterior: GaussianPosterior, row: int, cols: Tensor) -> list[Links]:
    """For each column: the positive shares by source and link, adding up to 1."""
    shares_of_cells = []
    for col in cols.tolist():
        why = posterior.explain(row, col)
        shares: Links = defaultdict(lambda: defaultdict(float))
        rows, targets, values = why.rows.cpu(), why.cols.cpu(), why.shares.double().cpu()
        _add(shares, rows, targets, values, (row, col), (COLS, ROWS, BOTH))
        for source, value in ((PRIOR, why.prior_mean), (UNLABELLED, why.unlabelled)):
            if value > 0:
                shares[source][NOBODY] += value
        total = sum(sum(part.values()) for part in shares.values())
        for part in shares.values():
            for link in part:
                part[link] /= total
        shares_of_cells.append(shares)
    return shares_of_cells


class _Names:
    """Names of rows and columns, and words for them."""

    def __init__(
        self, row_names: Sequence[str] | None, col_names: Sequence[str] | None, words: tuple[str, str]
    ) -> None:
        self.names, self.words = (row_names, col_names), words

    def listed(self, links: Sequence[Link], total: float, end: int) -> tuple[int, list[str]]:
        """How many rows (end 0) or columns (end 1) have a fair part in a reason, and the first names."""
        sums: dict[int, float] = defaultdict(float)
        for row, col, share in links:
            sums[(row, col)[end]] += share
        order = sorted(sums, key=lambda number: (-sums[number], number))
        count = max(1, sum(value >= LEAST * total for value in sums.values()))
        names = self.names[end]
        texts = [
            f"{self.words[end]} {number}" if names is None else _quoted(visible(names[number]))
            for number in order[: min(count, NAMED)]
        ]
        return count, texts

    def of_rows(self, links: Sequence[Link], total: float) -> str:
        """Such as "two diseases like this one, X and Y"."""
        count, texts = self.listed(links, total, 0)
        number = NUMBERS[count] if count < len(NUMBERS) else str(count)
        such = ", " if count == len(texts) else ", such as "
        return f"{number} {self.words[0]}{'s' * (count > 1)} like this one{such}{' and '.join(texts)}"

    def of_cols(self, links: Sequence[Link], total: float) -> str:
        """Such as "the known genes X and Y"."""
        count, texts = self.listed(links, total, 1)
        if count > len(texts):
            texts = [", ".join(texts), f"{count - len(texts)} more"]
        return f"the known {self.words[1]}{'s' * (count > 1)} {' and '.join(texts)}"


def _quoted(name: str) -> str:
    """In quotes where it could be taken for several names."""
    return f'"{name}"' if ", " in name or " and " in name else name


def _in_words(shares: Links, col: int, names: _Names, most: int) -> Reasons:
    """The reasons for one column."""
    sums = {source: sum(part.values()) for source, part in shares.items()}
    total = sum(sums.values())
    if total <= 0:
        return Reasons((Reason(1.0, REST, "nothing speaks for it"),))
    parts = []
    for source in sorted(sums, key=lambda source: -sums[source]):
        share = sums[source] / total
        if share < LEAST:
            break
        links = [(*link, value / total) for link, value in shares[source].items() if link != NOBODY and value > 0]
        links.sort(key=lambda link: (-link[2], link[:2]))
        parts.append(Reason(share, source, _text(source, links, share, names), tuple(links[:most])))
    left = 1 - sum(part.share for part in parts)
    if len(parts) < sum(value > 0 for value in sums.values()):
        parts.append(Reason(max(0.0, left), REST, "other"))
    return Reasons(tuple(parts))


def _text(source: str, links: Sequence[Link], total: float, names: _Names) -> str:
    """A source in words."""
    col = names.words[1]
    if links and source in (ROWS, BOTH, OTHERS):
        start = {ROWS: "linked to", BOTH: f"near {col}s of", OTHERS: f"goes with {col}s of"}[source]
        return f"{start} {names.of_rows(links, total)}"
    if links and source in (COLS, TOGETHER, LOW_RANK):
        start = {COLS: "near", TOGETHER: "shares links with", LOW_RANK: "learned to go with"}[source]
        return f"{start} {names.of_cols(links, total)}"
    return {
        LOW_RANK: "learned from all links",
        POPULAR: "often linked",
        ANY: f"as any {col}",
        PRIOR: "prior mean",
        UNLABELLED: f"{col}s that are not linked",
        KNOWN: "a known link itself",
    }.get(source, source)
