"""Prioritiser: fitted rankers with the ids of what they rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from typing_extensions import override

from ...checks import check_flag, check_path, check_seed, check_whole_number
from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import InputError, StorageError
from ...hyperparameters.records import AveragedRanker
from ...hyperparameters.validation import Choice
from ...metrics.ranking import Ranker, TaskItems
from ...posteriors.covariance import NoCovariance
from ...posteriors.gaussian import GaussianPosterior
from ...posteriors.ranks import STD_ACCURACY
from ...storage.archive import read, wrap_storage_errors, write
from ...storage.fields import Budget, Fields, Spending
from ...storage.posteriors import describe_posterior, restore_posterior
from ...tensor_checks import check_index, check_list
from ..tuning.settings import TOP
from .rows import Prioritisation, RankedRow, check_top, find_rows


class Mixture(AveragedRanker):
    """The equal mixture of rankers, one for each set of negatives: its uncertainty includes that about the set.

    :param rankers: of the same shape, at least one; posteriors, if uncertainties are to be asked for.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import PrecomputedKernel
        >>> from mvgp.prioritise.ranking.prioritiser import Mixture
        >>> one, two = (PrecomputedKernel(torch.eye(size, dtype=torch.float64)) for size in (1, 2))
        >>> model = mvgp.FullGP(mvgp.MatrixGP(one, two), gpytorch.likelihoods.GaussianLikelihood(noise=1.0).double())
        >>> sets = [mvgp.ObservedMatrix([0], [0], [value], (1, 2)) for value in (1.0, 3.0)]
        >>> mixture = Mixture([model.fit(data) for data in sets])
        >>> mixture.scores().shape, mixture.std(0, [0, 1]).shape
        (torch.Size([1, 2]), torch.Size([2]))

    """

    def __init__(self, rankers: Sequence[Ranker]) -> None:
        super().__init__(rankers)

    @property
    def has_uncertainty(self) -> bool:
        """Whether every ranker is a posterior with a covariance."""
        return all(
            isinstance(part, GaussianPosterior) and not isinstance(part.conditional, NoCovariance)
            for part in self.posteriors
        )

    @override
    def scores(self, rows: Any = None) -> Tensor:
        # one part at a time and in double precision: a ranked list of all rows must fit in memory
        total = self.posteriors[0].scores(rows).double()
        for part in self.posteriors[1:]:
            total = total + part.scores(rows)
        return total / len(self.posteriors)

    def std(self, row: int, cols: Any) -> Tensor:
        """(Q,): standard deviations of a row's scores."""
        cols = torch.as_tensor(cols)
        rows = torch.full_like(cols, row)
        means = torch.stack([part.mean(rows, cols).double() for part in self._gaussian()])  # (S, Q)
        variances = torch.stack(
            [part.variance(rows, cols, accuracy=STD_ACCURACY).double() for part in self._gaussian()]
        )
        return mixture_std(means, variances)

    def top_probability(
        self,
        row: int,
        k: int,
        *,
        exclude: Any = None,
        num_samples: int = 1000,
        seed: int = 0,
        step: Callable[[], object] | None = None,
    ) -> Tensor:
        """(N,): P(in the top k) of every item of a row, averaged over the posteriors.

        :param step: called after each posterior, to show progress.
        """
        total = torch.zeros(self.shape[1], dtype=torch.float64)
        for part in self._gaussian():
            total += part.top_probability(row, k, exclude=exclude, num_samples=num_samples, seed=seed).cpu()
            if step is not None:
                step()
        return total / len(self.posteriors)

    def _gaussian(self) -> tuple[GaussianPosterior, ...]:
        if not self.has_uncertainty:
            kinds = sorted({type(part).__name__ for part in self.posteriors})
            raise InputError(f"{', '.join(kinds)} has scores and no uncertainty; ask with uncertainty=False")
        return tuple(part for part in self.posteriors if isinstance(part, GaussianPosterior))

    def __repr__(self) -> str:
        return f"Mixture({self.shape[0]} x {self.shape[1]}, {len(self.posteriors)} rankers)"


def mixture_std(means: Tensor, variances: Tensor) -> Tensor:
    """(...) of the equal mixture of S parts (S, ...): the mean of the variances plus the variance of the means."""
    return (variances.mean(0) + means.var(0, unbiased=False)).sqrt()


KIND = "Prioritiser"
TEXTS = ("model", "setting", "source")


def store(
    path: str | os.PathLike[str], rankers: Sequence[Ranker], known: PositiveUnlabelled, described: dict[str, Any]
) -> None:
    """Write it; what cannot be saved is an error before anything is written."""
    path = check_path(path)
    for ranker in rankers:
        if not isinstance(ranker, GaussianPosterior):
            raise InputError(
                f"model {described['model']!r} cannot be saved; those with a posterior can: trace, whole, ..."
            )
    tree = {
        "kind": KIND,
        "posteriors": [describe_posterior(ranker) for ranker in rankers if isinstance(ranker, GaussianPosterior)],
        "known": {"rows": known.rows, "cols": known.cols, "weight": known.weight},
        **described,
    }
    write(path, tree)


def restore(
    path: str | os.PathLike[str], budget: Budget | None = None
) -> tuple[tuple[GaussianPosterior, ...], PositiveUnlabelled, dict[str, Any]]:
    """The posteriors, the known links, and texts and ids by name."""
    path, spending = check_path(path), Spending(budget)
    with wrap_storage_errors(path):
        content = Fields(read(path, spending.budget), "content")
        if content.text("kind") != KIND:
            kind = content.text("kind")
            raise StorageError(f"expected a saved prioritiser (mvgp rank --save), got one {kind}; mvgp.load reads that")
        posteriors = tuple(
            restore_posterior(parts, spending, trial=True) for parts in content.each("posteriors", Fields.fields)
        )
        shapes = {posterior.shape for posterior in posteriors}
        if len(shapes) != 1:
            raise StorageError(f"content.posteriors: expected at least one, all of one shape, got {sorted(shapes)}")
        m, n = posteriors[0].shape
        described: dict[str, Any] = {name: content.text(name) for name in TEXTS}
        for name, size in (("row_ids", m), ("col_ids", n), ("row_names", m), ("col_names", n)):
            described[name] = _texts(content, name, size, distinct=name.endswith("ids"))
        links = content.fields("known")
        rows = links.positions("rows", m)
        cols = links.positions("cols", n, len(rows))
        return posteriors, PositiveUnlabelled(rows, cols, (m, n), links.number("weight")), described


def _texts(content: Fields, name: str, size: int, distinct: bool) -> tuple[str, ...]:
    texts = content.each(name, Fields.text)
    if len(texts) != size:
        raise StorageError(f"content.{name}: expected {size} texts, got {len(texts)} items")
    if distinct and len(set(texts)) < size:
        raise StorageError(f"content.{name}: expected distinct ids, got some twice")
    return tuple(texts)


CHUNK_CELLS = 2**22  # scores held at a time


@dataclass(frozen=True, eq=False, repr=False)
class Prioritiser:
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
    choice: Choice | None = field(default=None)

    @cached_property
    def mixture(self) -> Mixture:
        """Average scores and uncertainties."""
        return Mixture(self.rankers)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)"""
        return self.mixture.shape

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
        progress: bool = False,
    ) -> Iterator[RankedRow]:
        """The best columns of each row, one row after the other, in bounded memory.

        :param rows: their numbers, see :meth:`find`; all of them when left out.
        :param top: how many columns; also the k of P(in the top k).
        :param include_known: whether known links are candidates, too.
        :param uncertainty: whether standard deviations and P(in the top k) are computed: seconds to minutes for each
            row, where scores take milliseconds.
        :param num_samples: joint samples behind P(in the top k).
        :param seed: of the samples.
        :param progress: whether to show a bar.
        """
        m, n = self.shape
        top = check_top(top, n)
        include_known, uncertainty = check_flag(include_known, "include_known"), check_flag(uncertainty, "uncertainty")
        if uncertainty and not self.mixture.has_uncertainty:
            raise InputError(f"model {self.model!r} has scores and no uncertainty; ask with uncertainty=False")
        samples = {"seed": check_seed(seed), "num_samples": check_whole_number(num_samples, "num_samples")}
        progress = check_flag(progress, "progress")
        chosen = check_index(range(m) if rows is None else check_list(rows, "rows", "numbers of rows"), m, "rows")
        return self._ranked(chosen, top, include_known, samples if uncertainty else None, progress)

    def _ranked(
        self, rows: Tensor, top: int, include_known: bool, samples: dict[str, int] | None, progress: bool
    ) -> Iterator[RankedRow]:
        """The lists of checked arguments; without ``samples`` there are no uncertainties."""
        links, num_cols = TaskItems(self.known, self.shape, "known"), self.shape[1]
        chunk = 1 if samples else max(1, CHUNK_CELLS // num_cols)
        steps = len(self.rankers) if samples else 1  # of each row
        with tqdm(total=steps * len(rows), desc="rank", unit="list", disable=not progress) as bar:
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
                        chance = self.mixture.top_probability(row, top, exclude=exclude, step=bar.update, **samples)
                        chance, std = chance[order], self.mixture.std(row, order).cpu()
                    yield RankedRow(
                        row=row,
                        row_id=self.row_ids[row],
                        row_name=self.row_names[row],
                        cols=order,
                        col_ids=tuple(self.col_ids[col] for col in order.tolist()),
                        col_names=tuple(self.col_names[col] for col in order.tolist()),
                        score=line[order],
                        std=std,
                        top_probability=chance,
                        known=known[order],
                        k=top,
                        model=self.model,
                    )
                    bar.update(steps if chance is None else 0)

    def prioritise(self, rows: Iterable[int] | None = None, top: int = TOP, **options: Any) -> Prioritisation:
        """The lists of :meth:`ranked`, all at once; the same arguments."""
        return Prioritisation(tuple(self.ranked(rows, top, **options)), self.model, self.setting)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file, whole or not at all: the posteriors, the ids and the known links.

        :param path: of the file; one that is there is replaced.
        """
        described = {name: getattr(self, name) for name in ("model", "setting", "source")}
        for name in ("row_ids", "col_ids", "row_names", "col_names"):
            described[name] = list(getattr(self, name))
        store(path, self.rankers, self.known, described)

    def __repr__(self) -> str:
        return f"Prioritiser({self.shape[0]} x {self.shape[1]}, {self.model}: {self.setting}, {len(self.rankers)} fits)"


def load_prioritiser(path: str | os.PathLike[str], *, budget: Budget | None = None) -> Prioritiser:
    """What :meth:`Prioritiser.save` has written. Nothing in a file can make it run code.

    :param path: of the file.
    :param budget: limits for size, memory and work; the usual ones of :class:`~mvgp.storage.Budget` when left out.

    Example:
        >>> import tempfile
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise import fit_prioritiser, load_prioritiser
        >>> graphs = Graph([(0, 1), (1, 2)], 3), Graph([(0, 1), (1, 2), (3, 4)], 5)
        >>> links = LinkSet(["d0", "d1", "d2"], list("vwxyz"), [0, 0, 1, 2], [0, 1, 1, 3], *graphs)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     fit_prioritiser(links, strength=0.1, negatives=2).save(f"{folder}/fitted.mvgp")
        ...     load_prioritiser(f"{folder}/fitted.mvgp")
        Prioritiser(3 x 5, trace: trace_share 1, strength 0.1, 2 fits)

    """
    posteriors, known, described = restore(path, budget)
    return Prioritiser(rankers=posteriors, known=known, **described)
