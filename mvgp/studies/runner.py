"""run_study: from data and settings to tables, in a directory that can be returned to."""

from __future__ import annotations

import os
from typing import Any

from ..checks import check_flag, check_path
from ..datasets import LinkSet
from ..errors import InputError
from .description import description
from .directory import StudyDirectory, read_description
from .execution import check_address, connected, need_joblib
from .finish import finish
from .machine import check_jobs
from .progress import Progress
from .result import StudyResult, load_study
from .run import StudyRun
from .study import Study
from .study_error import StudyError
from .workload import Workload


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
    """Run a study, or go on with one, and write its tables.

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
        >>> from mvgp.datasets import LinkSet
        >>> from mvgp.kernels import Graph
        >>> from mvgp.studies import Study, run_study
        >>> cells = np.random.default_rng(0).choice(12 * 20, 60, replace=False)
        >>> rings = [Graph([(i, (i + 1) % n) for i in range(n)], n) for n in (12, 20)]
        >>> link_set = LinkSet(range(12), range(20), cells // 20, cells % 20, *rings)
        >>> study = Study(models=("popularity", "neighbours"), folds=3, k=10, metric="MAP@10")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = run_study(link_set, study, folder, progress=False)
        >>> sorted({entry["model"] for entry in found.metrics}), found.finished
        (['neighbours', 'popularity'], True)

    """
    _check(link_set, study, jobs, dask)
    directory = check_path(directory, "directory")
    progress, keep_scores = check_flag(progress, "progress"), check_flag(keep_scores, "keep_scores")
    load = Workload(link_set, study)
    place = StudyDirectory(directory, study, link_set.digest())
    with connected(dask) as client, place.opened(), Progress(load.most, progress) as shown:
        run = StudyRun(place, load, shown, jobs, client, keep_scores)
        spent = float((read_description(place.path) or {"seconds": 0.0})["seconds"])
        run.tell = lambda: place.describe(description(run, spent, ended=False))
        run.tell()
        run.choose()
        run.fit_and_score()
        finish(run)
        place.describe(description(run, spent, ended=True))
    if run.failures:
        pairs = tuple((str(one.unit), one.error) for one in run.failures)
        raise StudyError(pairs, tuple(one.details for one in run.failures))
    return load_study(directory)


def _check(link_set: Any, study: Any, jobs: Any, dask: Any) -> None:
    if not isinstance(link_set, LinkSet):
        raise InputError(f"link_set: expected mvgp.datasets.LinkSet, got {type(link_set).__name__}")
    if not isinstance(study, Study):
        raise InputError(f"study: expected mvgp.studies.Study, got {type(study).__name__}")
    check_jobs(jobs)
    check_address(dask)
    if dask is not None and jobs != 1:
        raise InputError(f"jobs, dask: expected one of them, got {jobs} jobs and the cluster {dask!r}")
    if jobs > 1:
        need_joblib()
