"""Studies: models compared by cross-validation, their settings chosen inside the training part, resumable."""

from .run import StudyError
from .settings import Study
from .study import StudyResult, load_study, run_study

__all__ = ["Study", "StudyError", "StudyResult", "load_study", "run_study"]
