"""choose_kernels: parameters of the kernels by validation, together with strength and trace share."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from gpytorch.kernels import ScaleKernel
from tqdm import tqdm

from ..checks import check_flag, check_instance, check_not_negative, check_seed, check_whole_number
from ..errors import InputError
from ..likelihoods.losses import Data
from ..models.trace_gp import TraceGP
from ..posteriors.fitted import TracePosterior
from ..priors.matrix_gp import MatrixGP
from .records import AveragedRanker, PathRecord
from .splits import Split, make_splits
from .validation import Choice, ChoiceInterrupted, check_model, choose

if TYPE_CHECKING:
    import pandas as pd

Parameters = dict[str, float]
Key = tuple[tuple[str, float], ...]


def choose_kernels(
    model: TraceGP,
    data: Data,
    values: Mapping[str, Sequence[float]],
    *,
    jumps: Sequence[Mapping[str, float]] = (),
    sweeps: int = 2,
    errors: float = 1.0,
    keep_variance: bool = True,
    folds: int | Sequence[Split] = 1,
    share: float = 0.2,
    by: str = "pairs",
    seed: int = 0,
    progress: bool = True,
    resume: KernelChoice | None = None,
    **options: Any,
) -> KernelChoice:
    """Search over parameters of the kernels, one after the other; each candidate is a path of :func:`choose`.

    The search starts at the parameters as they are. It goes to a candidate whose gain on the held-out data is more
    than ``errors`` standard errors (paired, over folds or tasks), so that luck alone seldom moves it, and stops when a
    sweep over all parameters has not moved it.

    :param model: the recipe; its own strength and trace share are not used.
    :param data: observations, labels, or links. Test data are no part of it.
    :param values: to try for each parameter, by its name in the prior, such as ``row_axis.kernel.time``; names and
        setters are those of ``prior.initialize``. ``row_kernel.time`` is short for it.
    :param jumps: further candidates, tried first, with several parameters at once, for instance the kernel parameters
        that :func:`mvgp.hyperparameters.complete_grid` has found, under its names.
    :param sweeps: over all parameters, at most; 0 tries the jumps only.
    :param errors: standard errors that a gain has to exceed.
    :param keep_variance: whether kernels are scaled to the average prior variance of the given ones. The scale shifts
        the weight between trace norm and Hilbert norm, so a time would otherwise be chosen for its scale.
    :param folds: K for cross-validation, 1 for one split, or the splits themselves.
    :param share: that is held out when ``folds`` is 1.
    :param by: "pairs" holds out random pairs, "rows" whole rows (new tasks).
    :param seed: of splits and negatives.
    :param progress: whether to show a progress bar.
    :param resume: what an interrupted search has found.
    :param options: the other arguments of :func:`choose`, ``trace_shares``, ``strengths``, ``metric`` and so on.

    Example:
        >>> import mvgp
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.likelihoods import BipartiteRankingLikelihood
        >>> from mvgp.hyperparameters import choose_kernels
        >>> kernels = [DiffusionKernel(Graph([(0, 1), (1, 2), (2, 3), (3, 0)], 4)) for _ in range(2)]
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 3], shape=(4, 4))
        >>> model = mvgp.TraceGP(mvgp.MatrixGP(*kernels), BipartiteRankingLikelihood())
        >>> path = {"trace_shares": [0.8], "strengths": [0.5, 0.1], "metric": "AUC", "progress": False}
        >>> found = choose_kernels(model, links, {"row_axis.kernel.time": [0.5, 2.0]}, sweeps=1, **path)
        >>> len(found.candidates), found.refit(links).shape
        (3, (4, 4))

    """
    check_model(model)
    grid, further = _read(values, jumps)
    start = _check(model.prior, grid, further)
    errors, sweeps = check_not_negative(errors, "errors"), check_whole_number(sweeps, "sweeps", 0)
    keep_variance, progress = check_flag(keep_variance, "keep_variance"), check_flag(progress, "progress")
    seed = check_seed(seed)
    splits = make_splits(data, by, folds, share, seed)
    known = _known(resume)
    candidates: list[KernelCandidate] = []
    tried: set[Key] = set()

    def judge(parameters: Parameters, bar: tqdm) -> bool:
        """Try one; whether the search goes there."""
        tried.add(_key(parameters))
        recipe = with_parameters(model, parameters, keep_variance=keep_variance)
        before = known.get(_key(parameters))
        try:
            choice = choose(recipe, data, folds=splits, seed=seed, progress=False, resume=before, **options)
        except ChoiceInterrupted as stopped:
            cut = KernelCandidate(parameters, stopped.partial, math.nan, math.nan, taken=False)
            raise KernelChoiceInterrupted(KernelChoice(tuple(candidates), cut)) from None
        old = KernelChoice(tuple(candidates)).best.choice if candidates else None
        more, error = (math.nan, math.nan) if old is None else gain(choice, old)
        limit = 0.0 if math.isnan(error) else errors * error
        candidates.append(KernelCandidate(parameters, choice, more, error, old is None or more > limit))
        bar.set_postfix_str(repr(KernelChoice(tuple(candidates)))[:80], refresh=False)
        bar.update()
        return candidates[-1].taken

    total = 1 + len(further) + sweeps * len(grid)
    with tqdm(total=total, desc="kernels", disable=not progress) as bar:
        judge(start, bar)
        for jump in further:
            judge({**start, **jump}, bar)
        for _ in range(sweeps):
            moved = False
            for name, value in grid:
                trial = {**KernelChoice(tuple(candidates)).best.parameters, name: value}
                if _key(trial) not in tried:
                    moved = judge(trial, bar) or moved
            if not moved:
                break
    return KernelChoice(tuple(candidates))


@dataclass(frozen=True, eq=False, repr=False)
class KernelChoice:
    """Parameters of the kernels, chosen by validation. From :func:`choose_kernels`.

    :param candidates: all that was tried, in this order; the first has the parameters as they were given.
    :param unfinished: the candidate that an interrupt has cut off.
    """

    candidates: tuple[KernelCandidate, ...]
    unfinished: KernelCandidate | None = None

    @property
    def best(self) -> KernelCandidate:
        """Where the search ended: the last one that was taken."""
        return [candidate for candidate in self.candidates if candidate.taken][-1]

    @property
    def model(self) -> TraceGP:
        """The recipe with the chosen kernels; its strength and trace share are those of ``best.choice.chosen``."""
        return self.best.choice.recipe

    def refit(self, data: Data) -> TracePosterior | AveragedRanker:
        """The posterior given ``data`` with the chosen kernels, strength and trace share."""
        return self.best.choice.refit(data)

    def to_frame(self) -> pd.DataFrame:
        """The table as a pandas frame: one line for each candidate, at its best strength and trace share."""
        import pandas as pd

        lines = []
        for candidate in self.candidates:
            point = candidate.choice.chosen
            chosen = {"trace_share": point.trace_share, "strength": point.strength, "rank": point.rank}
            scores = {
                candidate.choice.settings.metric: point.mean,
                "gain": candidate.gain,
                "gain_error": candidate.gain_error,
            }
            lines.append({**candidate.parameters, **chosen, **scores, "taken": candidate.taken})
        return pd.DataFrame(lines)

    def __repr__(self) -> str:
        if not any(candidate.taken for candidate in self.candidates):
            return "KernelChoice(nothing finished)"
        values = ", ".join(f"{name} {value:.3g}" for name, value in self.best.parameters.items())
        point, metric = self.best.choice.chosen, self.best.choice.settings.metric
        return f"KernelChoice(best: {values}; {metric} {point.mean:.4g}; {len(self.candidates)} candidates)"


@dataclass(frozen=True, eq=False)
class KernelCandidate:
    """Parameters of the kernels, and how well they do on held-out data.

    :param parameters: value of each parameter that is searched, by name.
    :param choice: strength and trace share with these kernels.
    :param gain: in the metric, against what the search stood at; NaN for the first.
    :param gain_error: standard error of the gain, over folds, or over tasks if there is one fold; NaN if neither.
    :param taken: whether the search went there.
    """

    parameters: Mapping[str, float]
    choice: Choice
    gain: float
    gain_error: float
    taken: bool


class KernelChoiceInterrupted(KeyboardInterrupt):
    """A search was interrupted.

    :param partial: what it has found; give it to :func:`choose_kernels` as ``resume``.
    """

    def __init__(self, partial: KernelChoice) -> None:
        super().__init__(f"{partial!r} in .partial, to be given to choose_kernels as resume=")
        self.partial = partial


def gain(new: Choice, old: Choice) -> tuple[float, float]:
    """How much better the chosen point of one choice is than that of another on the same splits, and its error."""
    mine, theirs = _records(new), _records(old)
    differences = [a.score.value - b.score.value for a, b in zip(mine, theirs, strict=True)]
    values = torch.tensor(differences, dtype=torch.float64)
    if len(values) == 1:
        a, b = mine[0].score, theirs[0].score
        if a.per_task is None or b.per_task is None or not torch.equal(_given(a.tasks), _given(b.tasks)):
            return differences[0], math.nan
        values = a.per_task - b.per_task  # tasks count alike here
    error = float(values.std() / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return sum(differences) / len(differences), error


def _records(choice: Choice) -> list[PathRecord]:
    """Of the chosen point, one for each fold."""
    point = choice.chosen
    records = [
        record
        for record in choice.records
        if (record.trace_share, record.strength) == (point.trace_share, point.strength)
    ]
    return sorted(records, key=lambda record: record.fold)


def _given(tasks: torch.Tensor | None) -> torch.Tensor:
    return torch.zeros(0) if tasks is None else tasks


def with_parameters(model: TraceGP, parameters: Mapping[str, float], *, keep_variance: bool) -> TraceGP:
    """A recipe of its own with these parameters of the prior.

    :param keep_variance: whether the column kernel is scaled so that the average prior variance stays as it is.
    """
    other = copy.deepcopy(model)
    with torch.no_grad():
        dtype = other.prior.dtype  # given as tensors: GPyTorch's setters round plain numbers to single precision
        other.prior.initialize(**{name: torch.tensor(value, dtype=dtype) for name, value in parameters.items()})
        if keep_variance:
            factor = _variance(model.prior) / _variance(other.prior)
            if abs(factor - 1) > 1e-6:
                axis = other.prior.col_axis
                scaled = ScaleKernel(axis.kernel).to(dtype)
                scaled.outputscale = torch.tensor(factor, dtype=dtype)
                axis.kernel = scaled
    return other


@torch.no_grad()
def _variance(prior: MatrixGP) -> float:
    """The average prior variance of a cell."""
    rows, cols = prior.row_axis.covariance(), prior.col_axis.covariance()
    return float(rows.diagonal().double().mean() * cols.diagonal().double().mean())


def _key(parameters: Mapping[str, float]) -> Key:
    return tuple(parameters.items())


def _read(values: Any, jumps: Any) -> tuple[list[tuple[str, float]], list[Parameters]]:
    """What is tried one by one, and what is tried at once, with full names and plain numbers."""
    listed = isinstance(jumps, Sequence) and all(isinstance(jump, Mapping) for jump in jumps)
    if not isinstance(values, Mapping) or not listed:
        raise InputError(
            "values and jumps: expected names with values, such as {'row_axis.kernel.time': [0.5, 2.0]} and "
            "[{'row_axis.kernel.time': 2.0}]"
        )
    grid = [_pair(name, value) for name, entries in values.items() for value in _several(entries, name)]
    if not grid and not jumps:
        raise InputError("values: expected at least one parameter to search over, got none")
    return grid, [dict(_pair(name, value) for name, value in jump.items()) for jump in jumps]


def _several(entries: Any, name: str) -> list[Any]:
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise InputError(f"{name}: expected a list of values to try, got {entries!r}")
    return list(entries)


def _pair(name: Any, value: Any) -> tuple[str, float]:
    """A full name, and a number."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: expected a value that is one number, got {value!r}") from None
    for axis in ("row", "col"):
        if str(name).startswith(f"{axis}_kernel."):  # as learn_grid has it
            return f"{axis}_axis.kernel." + str(name).removeprefix(f"{axis}_kernel."), number
    return str(name), number


def _check(prior: MatrixGP, grid: Sequence[tuple[str, float]], jumps: Sequence[Parameters]) -> Parameters:
    """The parameters as they are, in the order of the grid and then of the jumps; refuse what cannot be set."""
    trial, start = copy.deepcopy(prior), Parameters()
    fine = torch.finfo(prior.dtype).eps ** 0.5  # what constraints leave of a number
    for name, value in [*grid, *(pair for jump in jumps for pair in jump.items())]:
        start.setdefault(name, _get(prior, name))
        try:
            trial.initialize(**{name: torch.tensor(value, dtype=prior.dtype)})
            now = _get(trial, name)
        except (AttributeError, RuntimeError, ValueError, TypeError) as error:
            raise InputError(f"{name}: expected a value that can be set, got {value!r}: {error}") from None
        if not abs(now - value) <= fine * max(1.0, abs(now)):
            raise InputError(f"{name}: expected a value within its constraint, got {value!r}")
    return start


def _get(prior: MatrixGP, name: str) -> float:
    value: Any = prior
    for part in str(name).split("."):
        value = getattr(value, part, None)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        names = [full.replace("raw_", "") for full, _ in prior.named_parameters()]
        raise InputError(f"{name!r}: expected the name of a parameter that is one number, among {', '.join(names)}")
    return float(value.detach())


def _known(resume: Any) -> dict[Key, Choice]:
    if resume is None:
        return {}
    check_instance(resume, "resume", KernelChoice, "a KernelChoice")
    candidates = [*resume.candidates, *([resume.unfinished] if resume.unfinished else [])]
    return {_key(candidate.parameters): candidate.choice for candidate in candidates}
