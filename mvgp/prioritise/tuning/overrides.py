"""Settings that a user fixes for one model: those that it does not use are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...checks import check_not_negative, check_positive
from ...errors import InputError
from ..tables.link_set import LinkSet
from .tune import MODELS, REGISTRY, WITH_PATH, takes_negatives

KERNEL_OPTIONS = ("row_time", "row_shift", "col_time", "col_shift")
OPTIONS = (*KERNEL_OPTIONS, "noise", "ratio")
# the setting that an option fixes, where it is not called as the option: of models that choose among several noises
NOISES = {"full": "noises", "factor": "factor_noises"}


def models_with(option: str) -> tuple[str, ...]:
    """The models that use an option.

    Example:
        >>> from mvgp.prioritise.tuning.overrides import models_with
        >>> models_with("noise")
        ('hilbert', 'trace', 'best', 'whole', 'whole-popular', 'full', 'factor')

    """
    if option in KERNEL_OPTIONS:
        return tuple(name for name in MODELS if REGISTRY[name].data != "links")  # baselines have no kernels
    if option == "noise":
        return tuple(name for name in MODELS if name in WITH_PATH or name in NOISES)
    return tuple(name for name in MODELS if takes_negatives(name))


def overrides(model: str, options: Mapping[str, float | None]) -> dict[str, Any]:
    """Settings of a fit (:class:`~mvgp.prioritise.tuning.settings.FitSettings`) that fix some options of a model.

    :param model: its name.
    :param options: by their names in ``OPTIONS``; None leaves an option as it is.

    Example:
        >>> from mvgp.prioritise.tuning.overrides import overrides
        >>> overrides("trace", {"row_time": 2.0, "noise": None}), overrides("full", {"noise": 0.5})
        ({'row_time': 2.0}, {'noises': (0.5,)})

    """
    settings: dict[str, Any] = {}
    for option, value in options.items():
        if value is None:
            continue
        if model not in models_with(option):
            raise InputError(f"{option}: it is for {', '.join(models_with(option))}, got model {model!r}")
        checked = (check_not_negative if option.endswith("shift") else check_positive)(value, option)
        if option == "noise" and model in NOISES:
            settings[NOISES[model]] = (checked,)
        else:
            settings[option] = checked
    return settings


def check_graphs(options: Mapping[str, float | None], link_set: LinkSet) -> None:
    """Refuse the time of an axis whose graph has no links: heat does not spread there, and it would change nothing."""
    for option, graph, side in (
        ("row_time", link_set.row_graph, "rows"),
        ("col_time", link_set.col_graph, "columns"),
    ):
        if options.get(option) is not None and graph.num_links == 0:
            raise InputError(f"{option}: expected a graph of the {side} with links, got none")
