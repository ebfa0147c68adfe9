"""StudyRun: the stages of a study, one after the other, saving every unit as it ends."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from tqdm import tqdm

from ...errors import MvgpError
from .directory import StudyDirectory
from .execution import results
from .models import Setting
from .units import Failure, Outcome, Task, Unit, Workload, score_outcome
from .work import settled


class StudyError(MvgpError, RuntimeError):
    """Some units of a study failed; all the others are saved, and running the study again tries only these.

    :param failures: (unit, error) of each, as text.
    :param details: the traceback of each.
    """

    def __init__(self, failures: tuple[tuple[str, str], ...], details: tuple[str, ...] = ()) -> None:
        self.failures, self.details = failures, details
        shown = "; ".join(f"{unit}: {error}" for unit, error in failures[:3])
        more = f"; and {len(failures) - 3} more" if len(failures) > 3 else ""
        count = f"{len(failures)} unit{'s' if len(failures) > 1 else ''}"
        super().__init__(f"{count} of the study failed, the others are saved: {shown}{more}")


class Progress:
    """Units done and units in all.

    :param total: as far as is known; see :meth:`expect`.
    :param shown: whether there is a bar.
    """

    def __init__(self, total: int, shown: bool) -> None:
        self.done, self.total = 0, total
        self._bar = tqdm(total=total, unit="unit", disable=not shown, dynamic_ncols=True)

    def stage(self, name: str) -> None:
        """What comes now."""
        self._bar.set_description(name)

    def expect(self, total: int) -> None:
        """The number of units, now that more is known."""
        self.total = self._bar.total = total
        self._bar.refresh()

    def step(self, count: int = 1, text: str = "") -> None:
        """So many units were done, the last that was tried is this one."""
        self.done += count
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(count)

    def skip(self, count: int = 1) -> None:
        """So many were there already; they say nothing about the time that others take."""
        self.done += count
        if count and not self._bar.disable:
            self._bar.initial += count
            self._bar.n += count
            self._bar.last_print_n += count
            self._bar.refresh()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()


Key = tuple[str, int]  # model and fold
LOST = "what was saved is damaged or gone; run the study again"


class StudyRun:
    """What is finished, what failed, and what is left.

    :param place: the directory, held.
    :param load: the tasks.
    :param progress: of units.
    :param jobs: processes.
    :param client: of a Dask cluster, or None.
    :param keep_scores: whether the scores of test rows stay on disk.
    """

    def __init__(
        self, place: StudyDirectory, load: Workload, progress: Progress, jobs: int, client: Any, keep_scores: bool
    ) -> None:
        self.place, self.load, self.progress = place, load, progress
        self.jobs, self.client, self.keep_scores = jobs, client, keep_scores
        self.choices: dict[Key, list[Outcome]] = {}
        self.settings: dict[Key, Setting] = {}
        self.scores: dict[Key, Outcome] = {}
        self.failures: list[Failure] = []
        self.seconds = 0.0  # of units done in this run
        self.tell: Callable[[], None] = lambda: None  # called after every unit

    def choose(self) -> None:
        """The first stage: a setting for each model and fold, from its training part alone."""
        self.progress.stage("choices")
        self._do(self.load.choices())
        for fold in self.load.folds:
            for model in self.load.study.models:
                parts = self._outcomes(self.load.choice_units(model, fold))
                if parts is not None:
                    self.choices[model, fold] = parts
                    self.settings[model, fold] = settled(parts)

    def fit_and_score(self) -> None:
        """The second and third stage: scores of test rows, and as soon as all sets are there, their metrics."""
        self.progress.stage("fits")
        tasks = {key: self.load.fits(setting, key[1]) for key, setting in self.settings.items()}
        every = {task.unit for some in tasks.values() for task in some}
        self.progress.expect(len(self.load.choices()) + len(every) + len(tasks) + self.load.num_later)
        for key in list(tasks):
            found = self.place.load(self._score_unit(key))
            if found is not None:
                self.scores[key] = found
                del tasks[key]
                self.progress.skip()
        needed = {task.unit: task for some in tasks.values() for task in some}
        self.progress.skip(len(every) - len(needed))
        done = {unit for unit in needed if self.place.has(unit)}
        self._score_ready(tasks, done)

        def then(outcome: Outcome) -> None:
            done.add(outcome.unit)
            self._score_ready(tasks, done)

        self.progress.skip(len(done))
        self._do([task for unit, task in needed.items() if unit not in done], then)

    def later(self, tasks: Sequence[Task], name: str) -> list[Outcome] | None:
        """Another stage: its outcomes in the order of the tasks, None if some failed."""
        self.progress.stage(name)
        self._do(tasks)
        return self._outcomes([task.unit for task in tasks])

    def _do(self, tasks: Sequence[Task], then: Callable[[Outcome], None] = lambda outcome: None) -> None:
        """Do what is not done yet, and save it."""
        left = [task for task in tasks if not self.place.has(task.unit)]
        self.progress.skip(len(tasks) - len(left))
        with contextlib.closing(results(left, self.jobs, self.client)) as every:
            for found in every:
                self.progress.step(0 if isinstance(found, Failure) else 1, str(found.unit))
                if isinstance(found, Failure):
                    self.failures.append(found)
                    continue
                self.place.save(found)
                self.seconds += found.info["seconds"]
                then(found)
                self.tell()

    def _outcomes(self, units: Sequence[Unit]) -> list[Outcome] | None:
        """What was saved, None unless all of it is there; what is not there and has not failed was lost."""
        every = {unit: self.place.load(unit) for unit in units}
        known = {one.unit for one in self.failures}
        lost = [unit for unit, outcome in every.items() if outcome is None and unit not in known]
        self.failures += [Failure(unit, LOST) for unit in lost]
        found = [outcome for outcome in every.values() if outcome is not None]
        return found if len(found) == len(units) else None

    def _score_unit(self, key: Key) -> Unit:
        return self.load.score_unit(key[0], self.settings[key], key[1])

    def _score_ready(self, waiting: dict[Key, list[Task]], done: set[Unit]) -> None:
        """Score what has all its fits, then drop the fits that nobody waits for."""
        ready = [key for key, tasks in waiting.items() if all(task.unit in done for task in tasks)]
        for key in ready:
            units, split = [task.unit for task in waiting.pop(key)], self.load.splits[key[1]]
            began = time.perf_counter()
            try:
                found = score_outcome(self._score_unit(key), self._fits(units), split, self.load.study.k)
            except LookupError as error:
                self.failures.append(Failure(self._score_unit(key), str(error)))
                continue
            self.place.save(found)
            self.scores[key] = found
            self.seconds += time.perf_counter() - began
            self.progress.step(text=str(found.unit))
            wanted = {task.unit for tasks in waiting.values() for task in tasks}
            for unit in units:
                if unit not in wanted and not self.keep_scores:
                    self.place.drop(unit)

    def _fits(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        for unit in units:
            found = self.place.load(unit)
            if found is None:
                raise LookupError(f"{unit}: {LOST}")
            yield found
