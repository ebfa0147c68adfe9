"""Prioritise: a ranked list of columns for each row of a table of links, with its uncertainty."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ranking.prioritiser import Prioritiser, fit_prioritiser, load_prioritiser, prioritise
    from .ranking.rows import Prioritisation, RankedRow, find_rows
    from .tuning.trials import trial_objective
    from .tuning.tune import MODELS

_HOME_OF = {
    "MODELS": "tuning.tune",
    "Prioritisation": "ranking.rows",
    "Prioritiser": "ranking.prioritiser",
    "RankedRow": "ranking.rows",
    "find_rows": "ranking.rows",
    "fit_prioritiser": "ranking.prioritiser",
    "load_prioritiser": "ranking.prioritiser",
    "prioritise": "ranking.prioritiser",
    "trial_objective": "tuning.trials",
}
__all__ = [
    "MODELS",
    "Prioritisation",
    "Prioritiser",
    "RankedRow",
    "find_rows",
    "fit_prioritiser",
    "load_prioritiser",
    "prioritise",
    "trial_objective",
]


def __getattr__(name: str) -> Any:  # imported when it is first used, so that commands answer at once
    if name in ("baselines", "ranking", "report", "studies", "tables", "trust", "tuning"):
        return import_module(f"{__name__}.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
