"""Studies: models compared by cross-validation, their settings chosen inside the training part, resumable."""

from .result import StudyResult, load_study
from .runner import run_study
from .study import Study
from .study_error import StudyError

__all__ = ["Study", "StudyError", "StudyResult", "load_study", "run_study"]
