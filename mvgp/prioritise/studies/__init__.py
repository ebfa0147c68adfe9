"""Studies: models compared by cross-validation, their settings chosen inside the training part, resumable."""

from .directory import Study
from .run import StudyError, run_study
from .tables import StudyResult, load_study

__all__ = ["Study", "StudyError", "StudyResult", "load_study", "run_study"]
