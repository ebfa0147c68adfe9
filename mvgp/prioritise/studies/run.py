"""run_study: the stages of a study, one after the other, saving every unit as it ends, and its tables at the end."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ...checks import check_flag, check_instance, check_path
from ...errors import MvgpError
from ...metrics.ranking import RankingScores
from ...progress import Progress, ProgressBar, check_progress, progress_bar
from ...version import __version__
from ..tables.link_set import LinkSet, check_link_set
from ..tuning.tune import Setting
from . import tables
from .directory import FORMAT, Failure, Outcome, Study, StudyDirectory, Unit, read_description
from .execution import check_execution, connected, results
from .work import Task, Workload, chosen_setting, score_outcome

PACKAGES = ("torch", "gpytorch", "linear_operator", "numpy", "scipy")  # that the numbers may depend on
TABLES = ("metrics", "comparisons", "curves", "path", "grids", "choices", "calibration", "candidates")
LOST = "what was saved is damaged or gone; run the study again"
Key = tuple[str, int]  # model and fold


class StudyError(MvgpError, RuntimeError):
    """Some units of a study failed; all the others are saved, and running the study again tries only these.

    :param failures: (unit, error) of each, as text.
    :param details: the traceback of each.
    """

    def __init__(self, failures: tuple[tuple[str, str], ...], details: tuple[str, ...] = ()) -> None:
        self.failures, self.details = failures, details
        first = "; ".join(f"{unit}: {error}" for unit, error in failures[:3])
        more = f"; and {len(failures) - 3} more" if len(failures) > 3 else ""
        count = f"{len(failures)} unit{'s' if len(failures) > 1 else ''}"
        super().__init__(f"{count} of the study failed, the others are saved: {first}{more}")


@dataclass(eq=False)
class StudyRun:
    """What is finished, what failed, and what is left."""

    directory: StudyDirectory  # locked
    load: Workload
    jobs: int
    client: Any  # of a Dask cluster, or None
    keep_scores: bool  # whether the scores of test rows stay on disk
    seconds: float  # that earlier runs took
    bar: ProgressBar  # its total is the number of units as far as it is known
    done: int = 0
    choices: dict[Key, list[Outcome]] = field(default_factory=dict)
    settings: dict[Key, Setting] = field(default_factory=dict)
    scores: dict[Key, Outcome] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def run(self) -> None:
        """All stages; ``study.json`` says after every unit how far it is."""
        self._describe()
        self._choose()
        self._fit_and_score()
        self._write_tables()
        self._describe(ended=True)

    # The stages ---------------------------------------------------------------------------------------

    def _choose(self) -> None:
        """The first stage: a setting for each model and fold, from its training part alone."""
        self._do(self.load.choices(), "choices")
        for fold in self.load.folds:
            for model in self.load.study.models:
                parts = self._outcomes(self.load.choice_units(model, fold))
                if parts:
                    self.choices[model, fold] = parts
                    self.settings[model, fold] = chosen_setting(parts)

    def _fit_and_score(self) -> None:
        """The second and third stage: scores of test rows, and as soon as all sets are there, their metrics."""
        tasks = {key: self.load.fits(setting, key[1]) for key, setting in self.settings.items()}
        num_fits = len({task.unit for group in tasks.values() for task in group})
        self.bar.total = len(self.load.choices()) + num_fits + len(tasks) + self.load.num_later
        for key in list(tasks):
            outcome = self.directory.load(self._score_unit(key))
            if outcome is not None:
                self.scores[key] = outcome
                del tasks[key]
                self._skip(1)
        needed = {task.unit: task for group in tasks.values() for task in group}
        done = {unit for unit in needed if self.directory.load(unit) is not None}
        self._skip(num_fits - len(needed) + len(done))
        self._score_ready(tasks, done)

        def then(outcome: Outcome) -> None:
            done.add(outcome.unit)
            self._score_ready(tasks, done)

        self._do([task for unit, task in needed.items() if unit not in done], "fits", then)

    def _score_ready(self, waiting: dict[Key, list[Task]], done: set[Unit]) -> None:
        """Score what has all its fits, then drop the fits that nobody waits for."""
        ready = [key for key, tasks in waiting.items() if all(task.unit in done for task in tasks)]
        for key in ready:
            units, split = [task.unit for task in waiting.pop(key)], self.load.splits[key[1]]
            began = time.perf_counter()
            try:
                outcome = score_outcome(self._score_unit(key), self._fits(units), split, self.load.study.k)
            except LookupError as error:
                self.failures.append(Failure(self._score_unit(key), str(error)))
                continue
            self.directory.save(outcome)
            self.scores[key] = outcome
            self.seconds += time.perf_counter() - began
            self._step(outcome.unit)
            still_needed = {task.unit for tasks in waiting.values() for task in tasks}
            for unit in units:
                if unit not in still_needed and not self.keep_scores:
                    self.directory.remove(unit.path)

    def _write_tables(self) -> None:
        """Do the later stages, and write the tables of all models that have every fold.

        What is measured by the clock is in a file beside them, so that all of ``tables`` is the same in every run.
        """
        made = self._tables()
        for name in TABLES:
            if name in made:
                self.directory.write(f"tables/{name}.tsv", tables.to_text(*made[name]).encode())
            else:
                self.directory.remove(f"tables/{name}.tsv")  # of an earlier run with other models
        self.directory.write("times.tsv", tables.to_text(*tables.times_table(self.choices)).encode())

    def _tables(self) -> dict[str, tuple[list[str], tables.Table]]:
        load, study = self.load, self.load.study
        models = [model for model in study.models if all((model, fold) in self.scores for fold in load.folds)]
        if not models:
            return {}
        scores = {model: [self._ranking(model, fold) for fold in load.folds] for model in models}
        compared = tables.compared_metrics(study.k, study.metric)
        settings = {(model, fold): self.settings[model, fold] for model in models for fold in load.folds}
        choices = {key: self.choices[key] for key in settings}
        made = {
            "metrics": tables.metrics_table(scores),
            "comparisons": tables.comparisons_table(scores, compared),
            "curves": tables.curves_table(scores),
            **tables.tried_tables(choices, settings, study.metric),
            "choices": tables.choices_table(settings),
        }
        calibrated = [model for model in load.calibrated if model in scores]
        if study.calibration_rows and calibrated:
            units = {model: load.calibration(settings[model, 0]) for model in calibrated}
            self._do(list({task.unit: task for task in units.values()}.values()), "calibration")
            outcomes = {model: self._outcomes([task.unit]) for model, task in units.items()}
            made["calibration"] = tables.calibration_table({model: part[0] for model, part in outcomes.items() if part})
        if study.candidate_rows and calibrated:
            metric = study.metric if study.metric in compared else f"MAP@{study.k}"
            totals = [sum(float(fold.per_task(metric).nanmean()) for fold in scores[name]) for name in calibrated]
            model = calibrated[totals.index(max(totals))]
            chosen = [settings[model, fold] for fold in load.folds]
            count = Counter(setting.key for setting in chosen)  # the most frequent one, then the best score
            tasks = load.candidates(max(chosen, key=lambda setting: (count[setting.key], setting.score)))
            self._do(tasks, "candidates")
            parts = self._outcomes([task.unit for task in tasks])
            if parts:
                made["candidates"] = tables.candidates_table(load, model, parts)
        return made

    # Units --------------------------------------------------------------------------------------------

    def _do(self, tasks: Sequence[Task], stage: str, then: Callable[[Outcome], None] = lambda outcome: None) -> None:
        """Do what is not done yet, and save it."""
        self.bar.rename(stage)
        left = [task for task in tasks if self.directory.load(task.unit) is None]
        self._skip(len(tasks) - len(left))
        with contextlib.closing(results(left, self.jobs, self.client)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, Failure):
                    self._step(outcome.unit, 0)
                    self.failures.append(outcome)
                    continue
                self._step(outcome.unit)
                self.directory.save(outcome)
                self.seconds += outcome.info["seconds"]
                then(outcome)
                self._describe()

    def _outcomes(self, units: Sequence[Unit]) -> list[Outcome]:
        """What was saved, nothing unless all of it is there; what is not there and has not failed was lost."""
        saved = {unit: self.directory.load(unit) for unit in units}
        missing = [unit for unit, outcome in saved.items() if outcome is None]
        failed = {failure.unit for failure in self.failures}
        self.failures += [Failure(unit, LOST) for unit in missing if unit not in failed]
        return [] if missing else [outcome for outcome in saved.values() if outcome is not None]

    def _ranking(self, model: str, fold: int) -> RankingScores:
        arrays = self.scores[model, fold].arrays
        return RankingScores(**{name: torch.from_numpy(array) for name, array in arrays.items()})

    def _step(self, unit: Unit, count: int = 1) -> None:
        """A unit was done, or with a count of 0 tried."""
        self.done += count
        self.bar.update(count, str(unit))

    def _skip(self, count: int) -> None:
        """So many were there already; they say nothing about the time that others take."""
        self.done += count
        self.bar.skip(count)

    def _score_unit(self, key: Key) -> Unit:
        return Unit("score", f"{key[0]}_{self.settings[key].key}", key[1])

    def _fits(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        for unit in units:
            outcome = self.directory.load(unit)
            if outcome is None:
                raise LookupError(f"{unit}: {LOST}")
            yield outcome

    # The description ----------------------------------------------------------------------------------

    def _describe(self, ended: bool = False) -> None:
        """Write ``study.json``: settings, data, versions, and how far it is."""
        links, study = self.load.all_links, self.load.study
        finished = ended and not self.failures
        description = {
            "format": FORMAT,
            "title": study.title or f"{links.shape[0]} rows, {links.shape[1]} columns, {len(links)} links",
            "finished": finished,
            "settings": json.loads(study.to_json()),
            "data": {
                "source": links.source,
                "rows": links.shape[0],
                "cols": links.shape[1],
                "links": len(links),
                "used_links": len(self.load.data),
                "row_edges": links.row_graph.num_links,
                "col_edges": links.col_graph.num_links,
                "digest": self.directory.digest,
            },
            "versions": {
                "mvgp": __version__,
                "python": platform.python_version(),
                **{name: version(name) for name in PACKAGES},
            },
            "units": {"done": self.done, "total": self.done if finished else self.bar.total},
            "seconds": self.seconds,
            "notes": self._notes(),
        }
        self.directory.write("study.json", json.dumps(description, indent=1).encode())

    def _notes(self) -> list[str]:
        """Fits that missed their tolerance, and units that failed, one line for each model and fold."""
        notes = []
        for (model, fold), outcome in self.scores.items():
            fits = outcome.info["fits"]
            gaps = [fit["relative_gap"] for fit in fits if fit.get("converged") is False]
            if gaps:
                missed = f"{len(gaps)} of {len(fits)} fits missed the tolerance"
                notes.append(f"{model}, fold {fold}: {missed}, the largest relative gap is {max(gaps):.1e}")
        return notes + [f"{failure.unit} failed: {failure.error}" for failure in self.failures]


def run_study(
    link_set: LinkSet,
    study: Study,
    directory: str | os.PathLike[str],
    *,
    jobs: int = 1,
    dask: str | None = None,
    progress: Progress = "auto",
    keep_scores: bool = False,
) -> tables.StudyResult:
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
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
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
    check_link_set(link_set)
    check_instance(study, "study", Study, "mvgp.prioritise.studies.Study")
    jobs = check_execution(jobs, dask)
    path = check_path(directory, "directory")
    progress, keep_scores = check_progress(progress), check_flag(keep_scores, "keep_scores")
    load = Workload(link_set, study)
    store = StudyDirectory(path, study, link_set.digest())
    with connected(dask) as client, store.opened():
        seconds = float((read_description(path) or {"seconds": 0.0})["seconds"])
        with progress_bar("study", load.max_units, unit="units", progress=progress) as bar:
            run = StudyRun(store, load, jobs, client, keep_scores, seconds, bar)
            run.run()
    if run.failures:
        pairs = tuple((str(failure.unit), failure.error) for failure in run.failures)
        raise StudyError(pairs, tuple(failure.details for failure in run.failures))
    return tables.load_study(path)


def check_study(link_set: LinkSet, study: Study, directory: Path, dask: str | None) -> None:
    """What would stop a study at once, before anything is done."""
    Workload(link_set, study)
    with connected(dask), StudyDirectory(directory, study, link_set.digest()).opened():
        pass
