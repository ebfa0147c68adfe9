"""run_study: from data and settings to tables, in a directory that can be returned to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...checks import check_flag, check_instance, check_path
from ...errors import InputError
from ..ranking.rows import aligned
from ..tables.link_set import LinkSet
from .directory import StudyDirectory, read_description
from .execution import check_execution, connected
from .run import StudyError, StudyRun
from .settings import Study
from .tables import Table, from_file
from .work import Workload


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult:
    """What a study has found: lists of entries, each with the columns of its table by name.

    :param directory: where it is.
    :param study: the settings.
    :param description: what ``study.json`` says.
    :param tables: by name; those that were not asked for are missing.
    """

    directory: Path
    study: Study
    description: dict[str, Any]
    tables: dict[str, Table]

    @property
    def finished(self) -> bool:
        """Whether all of it was run."""
        return bool(self.description["finished"])

    @property
    def notes(self) -> list[str]:
        """What one should know: fits that missed their tolerance."""
        return list(self.description.get("notes", []))

    @property
    def metrics(self) -> Table:
        """Mean and standard deviation over folds of each model and metric."""
        return self._table("metrics")

    @property
    def comparisons(self) -> Table:
        """Paired tests over tasks of each pair of models."""
        return self._table("comparisons")

    @property
    def curves(self) -> Table:
        """Precision, recall and MAP at 1..k of each model."""
        return self._table("curves")

    @property
    def path(self) -> Table:
        """Every fit of every regularisation path."""
        return self._table("path")

    @property
    def choices(self) -> Table:
        """What was chosen for each model and fold."""
        return self._table("choices")

    @property
    def times(self) -> Table:
        """Seconds of every fit of every path and grid; measured, so that no two runs have the same."""
        file = self.directory / "times.tsv"
        if not file.exists():
            raise InputError(f"{self.directory}: the study has no times yet; run it to its end")
        return from_file(file)

    def mean(self, model: str, metric: str) -> float:
        """The mean over folds of one metric of one model."""
        for entry in self.metrics:
            if (entry["model"], entry["metric"]) == (model, metric):
                return float(entry["mean"])
        models = sorted({entry["model"] for entry in self.metrics})
        metrics = sorted({entry["metric"] for entry in self.metrics})
        raise InputError(f"expected a model of {models} and a metric of {metrics}, got {model!r} and {metric!r}")

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise InputError(f"{self.directory}: the study has no table {name} yet; run it to its end")
        return self.tables[name]

    def cells(self, plus_minus: str = "±") -> list[list[str]]:
        """Mean and standard deviation over folds: a line of headings, and one for each model."""
        lines: dict[str, list[str]] = {}
        for entry in self.metrics:
            spread = "" if entry["folds"] == 1 else f" {plus_minus} {entry['std']:.3f}"
            lines.setdefault(entry["model"], []).append(f"{entry['mean']:.3f}{spread}")
        metrics = dict.fromkeys(entry["metric"] for entry in self.metrics)
        return [["model", *metrics], *([model, *line] for model, line in lines.items())]

    def __str__(self) -> str:
        (_, *metrics), *lines = self.cells()
        return "\n".join(aligned([["", *metrics], *lines], left=[0]))

    def __repr__(self) -> str:
        units = self.description["units"]
        state = "finished" if self.finished else f"{units['done']} of {units['total']} units"
        return f"StudyResult({str(self.directory)!r}, {', '.join(self.study.models)}; {state})"


def load_study(directory: str | os.PathLike[str]) -> StudyResult:
    """The tables of a study that was run before, as far as it got.

    :param directory: of the study.

    Example:
        >>> import tempfile
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.studies import Study, load_study, run_study
        >>> pairs = [(i, (i + step) % 6) for i in range(6) for step in range(3)]
        >>> links = LinkSet("abcdef", "uvwxyz", *zip(*pairs), Graph([], 6), Graph([], 6))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = run_study(links, Study(models=("popularity",), folds=2, k=3), folder, progress=False)
        ...     again = load_study(folder)
        >>> again.finished, again.mean("popularity", "AUC") == done.mean("popularity", "AUC")
        (True, True)

    """
    path = check_path(directory, "directory")
    description = read_description(path)
    if description is None:
        raise InputError(f"{path}: expected the directory of a study, got one without study.json")
    tables = {file.stem: from_file(file) for file in sorted((path / "tables").glob("*.tsv"))}
    return StudyResult(path, Study.from_dict(description["settings"]), description, tables)


def run_study(
    link_set: LinkSet,
    study: Study,
    directory: str | os.PathLike[str],
    *,
    jobs: int = 1,
    dask: str | None = None,
    progress: bool = True,
    keep_scores: bool = False,
) -> StudyResult:
    """Run a study, or resume one, and write its tables.

    Every unit of work is saved as it ends. Called again with the same directory it repeats nothing that is
    finished. The numbers do not depend on ``jobs`` or ``dask``. ``models``, ``run_folds``, ``calibration_rows``,
    ``candidate_rows`` and ``title`` may change from call to call; a directory whose other settings, or whose data,
    are not these is refused.

    :param link_set: the data.
    :param study: the settings.
    :param directory: for units, tables and ``study.json``; made if it is not there.
    :param jobs: processes on this machine: at most four for each core, and one for each half GiB of free memory. They
        end with this process, however it ends.
    :param dask: address of a Dask scheduler, whose workers are used instead; they need mvgp, and no common disk.
    :param progress: whether to show a bar with the time left.
    :param keep_scores: whether the scores of test rows stay on disk after they were judged.

    Example:
        >>> import tempfile, numpy as np
        >>> from mvgp.prioritise.tables import LinkSet
        >>> from mvgp.kernels import Graph
        >>> from mvgp.prioritise.studies import Study, run_study
        >>> cells = np.random.default_rng(0).choice(12 * 20, 60, replace=False)
        >>> rings = [Graph([(i, (i + 1) % n) for i in range(n)], n) for n in (12, 20)]
        >>> link_set = LinkSet(range(12), range(20), cells // 20, cells % 20, *rings)
        >>> study = Study(models=("popularity", "neighbours"), folds=3, k=10, metric="MAP@10")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = run_study(link_set, study, folder, progress=False)
        >>> sorted({entry["model"] for entry in result.metrics}), result.finished
        (['neighbours', 'popularity'], True)

    """
    check_instance(link_set, "link_set", LinkSet, "mvgp.prioritise.tables.LinkSet")
    check_instance(study, "study", Study, "mvgp.prioritise.studies.Study")
    jobs = check_execution(jobs, dask)
    path = check_path(directory, "directory")
    progress, keep_scores = check_flag(progress, "progress"), check_flag(keep_scores, "keep_scores")
    load = Workload(link_set, study)
    store = StudyDirectory(path, study, link_set.digest())
    with connected(dask) as client, store.opened():
        seconds = float((read_description(path) or {"seconds": 0.0})["seconds"])
        with tqdm(total=load.max_units, unit="unit", disable=not progress, dynamic_ncols=True) as bar:
            run = StudyRun(store, load, jobs, client, keep_scores, seconds, bar)
            run.run()
    if run.failures:
        pairs = tuple((str(failure.unit), failure.error) for failure in run.failures)
        raise StudyError(pairs, tuple(failure.details for failure in run.failures))
    return load_study(path)


def check_study(link_set: LinkSet, study: Study, directory: Path, dask: str | None) -> None:
    """What would stop a study at once, before anything is done."""
    Workload(link_set, study)
    with connected(dask), StudyDirectory(directory, study, link_set.digest()).opened():
        pass
