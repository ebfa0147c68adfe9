"""What each split of the links has chosen, in memory or in a file: a search that was stopped goes on from there."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...data.positive_unlabelled import PositiveUnlabelled
from ...errors import InputError
from ...storage.files import check_can_write, check_output_file, read_json, replacing
from ...version import __version__
from ..tables.link_set import LinkSet
from .blend import GROUPS, MIXTURE, POPULARITY, Blend, average

SURE = 3.0  # standard errors by which a single choice has to be better than the average
WHAT = "the trials of a search by auto"


@dataclass(frozen=True, eq=False)
class Chosen:
    """What one split has chosen.

    :param blend: the weights.
    :param trials: every weight that was changed, with the metric and the AUC on the rows that chose.
    :param judged: how far the average of earlier choices is ahead of each of them on these rows, with the standard
        error; nothing up to the second split.
    :param num_rows: rows that chose.
    :param iterations: of EM.
    :param seconds: of the choice.
    """

    blend: Blend
    trials: list[dict[str, Any]]
    judged: list[list[float]]
    num_rows: int
    iterations: int
    seconds: float


class Trials:
    """Choices by number of their split; with a path they are read from there, and written after each split.

    :param path: of a JSON file; one that is there has to belong to the same search. None keeps nothing.
    :param belongs: a fingerprint of links, graphs and settings, see :func:`fingerprint`.
    :param names: of the terms.

    Example:
        >>> from mvgp.prioritise.auto.trials import Trials
        >>> Trials(None, "", ()).chosen(0) is None
        True

    """

    def __init__(self, path: str | os.PathLike[str] | None, belongs: str, names: tuple[str, ...]) -> None:
        self.path, self.belongs = path, belongs
        self.splits: dict[int, Chosen] = {}
        if path is None or not os.path.exists(path):
            return
        tree = read_json(path, WHAT)
        if not isinstance(tree, dict) or tree.keys() != {"belongs", "splits"}:
            raise InputError(f"{path}: expected {WHAT}, got another file")
        if tree["belongs"] != belongs:
            raise InputError(
                f"{path}: expected {WHAT} in these links, graphs and settings by version {__version__}, got those of "
                "another one; name a new file"
            )
        try:
            self.splits = {int(at): _restored(part, names) for at, part in tree["splits"].items()}
            if any(len(part.judged) > at for at, part in self.splits.items()):
                raise ValueError("a split that judges more than those before it")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}: expected {WHAT}, got a damaged file ({type(error).__name__}: {error})"
            ) from error

    def chosen(self, split: int) -> Chosen | None:
        """What a split has chosen, if that is known."""
        return self.splits.get(split)

    def keep(self, split: int, chosen: Chosen) -> None:
        """Add a choice, to the file as well."""
        self.splits[split] = chosen
        if self.path is not None:
            parts = {str(at): _described(each) for at, each in self.splits.items()}
            text = json.dumps({"belongs": self.belongs, "splits": parts}, indent=1, allow_nan=False)
            with replacing(os.fspath(self.path)) as file:
                file.write(text.encode())


def settled(chosen: Sequence[Chosen]) -> Blend:
    """The average of what splits have chosen, unless the last split says that a single one is better.

    A choice is better than the average if it is ahead by three standard errors: averages are rarely worse, and more
    than one choice is compared with them. Of several the one that is ahead most is taken.
    """
    blends, ahead = [part.blend for part in chosen], chosen[-1].judged
    better = [(gain, at) for at, (gain, error) in enumerate(ahead) if gain + SURE * error < 0]
    return blends[min(better)[1]] if better else average(blends)


def check_trials(path: Any) -> None:
    """A path where a file can be written, or None."""
    if path is None:
        return
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"trials: expected the path of a file, got {type(path).__name__}")
    try:
        check_output_file(path)
        check_can_write(path)
    except InputError as error:
        raise InputError(f"trials: {error}") from None


def fingerprint(link_set: LinkSet, links: PositiveUnlabelled, *settings: Any) -> str:
    """Tells searches apart: the data, the settings, and the version of mvgp."""
    data = replace(link_set, rows=links.rows.cpu(), cols=links.cols.cpu()).digest()
    return " ".join(str(part) for part in (__version__, data, *settings))


def _described(chosen: Chosen) -> dict[str, Any]:
    blend = chosen.blend
    parts = {"names": blend.names, "mixture": blend.mixture.tolist(), "weights": blend.weights}
    rest = {name: getattr(chosen, name) for name in ("trials", "judged", "num_rows", "iterations", "seconds")}
    return {"blend": parts, **rest}


def _restored(part: dict[str, Any], names: tuple[str, ...]) -> Chosen:
    """What :func:`_described` has written; what is none raises an error of Python's."""
    if tuple(part["blend"]["names"]) != names:
        raise ValueError("other terms")
    mixture = torch.tensor(part["blend"]["mixture"], dtype=torch.float64)
    features = {MIXTURE, POPULARITY, *names, *(f"log {name}" for name in names)}
    weights = tuple({name: float(value) for name, value in group.items()} for group in part["blend"]["weights"])
    if mixture.shape != (len(GROUPS), len(names) + 1) or len(weights) != len(GROUPS) or bool((mixture < 0).any()):
        raise ValueError("weights of another shape, or below 0")
    if not all(math.isclose(total, 1, rel_tol=1e-6) for total in mixture.sum(1).tolist()):
        raise ValueError("a mixture whose weights do not add up to 1")
    if any(not group.keys() <= features or MIXTURE not in group for group in weights):
        raise ValueError("weights of unknown terms")
    trials = [dict(trial) for trial in part["trials"]]
    judged = [[float(value), float(error)] for value, error in part["judged"]]
    counts = int(part["num_rows"]), int(part["iterations"]), float(part["seconds"])
    return Chosen(Blend(names, mixture, weights), trials, judged, *counts)
