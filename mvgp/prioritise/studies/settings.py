"""Study: the settings of a study, all that its numbers depend on besides the data."""

from __future__ import annotations

from dataclasses import dataclass

from ...checks import check_choice, check_instance, check_part, shown
from ...errors import InputError
from ..tuning.settings import TOP, FitSettings
from ..tuning.tune import CALIBRATED, MODELS

MAX_FOLDS = 1_000_000
GROWING = ("models", "run_folds", "calibration_rows", "candidate_rows", "title")  # may change from run to run


@dataclass(frozen=True, kw_only=True)
class Study(FitSettings):
    """What is compared, on which splits, and how settings are chosen. The defaults are the paper's protocol.

    All settings of :class:`~mvgp.prioritise.tuning.settings.FitSettings` are settings of a study, too: ``split`` is
    then also the outer split of the folds. They are given by name.

    :param models: ``hilbert`` (no trace norm), ``trace`` (trace norm alone), ``best`` (trace share chosen), ``whole``
        (whole lists, no sampled negatives), ``whole-popular`` (the same with a
        :class:`~mvgp.priors.PopularityMean`), ``full``, ``factor``, ``prodige``, or a name of
        ``mvgp.prioritise.baselines.BASELINE_NAMES``.
    :param folds: K of cross-validation.
    :param run_folds: only the first few of them; all when left out.
    :param subsample: share of the links that is used at all; the paper has 0.05 and 1.
    :param k: length of the curves.
    :param calibration_rows: rows of the first fold on which P(top ``top``) is examined; 0 for none.
    :param candidate_rows: rows whose candidates are listed after a fit to all links; 0 for none.
    :param top: items of such a list, and the k of P(top k).
    :param title: for the report.

    Example:
        >>> from mvgp.prioritise.studies import Study
        >>> study = Study(models=("popularity", "trace"), split="known", run_folds=1)
        >>> study.split, Study.from_json(study.to_json()) == study
        ('pairs', True)

    """

    models: tuple[str, ...] = ("popularity", "hilbert", "trace", "best")
    folds: int = 5
    run_folds: int | None = None
    subsample: float = 1.0
    k: int = 100
    calibration_rows: int = 0
    candidate_rows: int = 0
    top: int = TOP
    title: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = (self.models,) if isinstance(self.models, str) else self.models
        for name in check_instance(names, "models", (tuple, list), "a list of names"):
            check_choice(name, "models", MODELS)
        if not names or len(set(names)) < len(names):
            raise InputError(f"models: expected different names, at least one, got {shown(names)}")
        self._set("models", tuple(names))
        self._check_whole("folds", minimum=2, maximum=MAX_FOLDS)
        self._check_whole("k", "top")
        self._check_whole("calibration_rows", "candidate_rows", minimum=0)
        if self.run_folds is not None:
            self._check_whole("run_folds")
            if self.run_folds > self.folds:
                raise InputError(f"run_folds: expected at most {self.folds}, the number of folds, got {self.run_folds}")
        self._check(check_part, "subsample")
        if not isinstance(self.title, str):
            raise InputError(f"title: expected a text, got {shown(self.title)}")
        if (self.calibration_rows or self.candidate_rows) and not set(self.models) & set(CALIBRATED):
            raise InputError(
                f"calibration_rows, candidate_rows: expected a model with variances ({', '.join(CALIBRATED)}), "
                f"got {', '.join(self.models)}"
            )

    @property
    def num_folds(self) -> int:
        """Folds that are run."""
        return self.folds if self.run_folds is None else self.run_folds
