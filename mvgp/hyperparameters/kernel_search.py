"""choose_kernels: parameters of the kernels by validation, together with strength and trace share."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from gpytorch.kernels import ScaleKernel

from ..checks import check_flag, check_instance, check_not_negative, check_whole_number
from ..errors import InputError
from ..likelihoods.losses import Data
from ..models.trace_gp import TraceGP
from ..posteriors.gaussian import TracePosterior
from ..priors.matrix_gp import MatrixGP
from ..progress import Progress, check_progress, progress_bar
from .records import AveragedRanker, Score
from .validation import Choice, ChoiceInterrupted, check_model, choose

if TYPE_CHECKING:
    import pandas as pd

Parameters = dict[str, float]


def choose_kernels(
    model: TraceGP,
    data: Data,
    values: Mapping[str, Sequence[float]],
    *,
    jumps: Sequence[Mapping[str, float]] = (),
    sweeps: int = 2,
    errors: float = 1.0,
    keep_variance: bool = True,
    progress: Progress = "auto",
    resume: KernelChoice | None = None,
    **options: Any,
) -> KernelChoice:
    """Search over parameters of the kernels, one after the other; each candidate is a path of :func:`choose`.

    It starts at the parameters as they are, goes to a candidate whose gain on the held-out data is more than
    ``errors`` standard errors (paired, over folds or tasks), and stops when a sweep has not moved it.

    :param model: the recipe; its own strength and trace share are not used.
    :param data: observations, labels, or links. Test data are no part of it.
    :param values: to try for each parameter, by its name in the prior, such as ``row_axis.kernel.time``; names and
        setters are those of ``prior.initialize``. ``row_kernel.time`` is short for it.
    :param jumps: further candidates, tried first, with several parameters at once, for instance the kernel parameters
        that :func:`learn_grid` has found, under its names.
    :param sweeps: over all parameters, at most; 0 tries the jumps only.
    :param errors: standard errors that a gain has to exceed.
    :param keep_variance: whether kernels are scaled to the average prior variance of the given ones. The scale shifts
        the weight between trace norm and Hilbert norm, so a time would otherwise be chosen for its scale.
    :param progress: True, False or "auto", see :mod:`mvgp.progress`.
    :param resume: what an interrupted search has found.
    :param options: the other arguments of :func:`choose`, ``trace_shares``, ``folds``, ``metric``, ``seed`` and so on.

    Example:
        >>> import mvgp
        >>> from mvgp.kernels import DiffusionKernel, Graph
        >>> from mvgp.likelihoods import BipartiteRankingLikelihood
        >>> from mvgp.hyperparameters import choose_kernels
        >>> kernels = [DiffusionKernel(Graph([(0, 1), (1, 2), (2, 3), (3, 0)], 4)) for _ in range(2)]
        >>> links = mvgp.PositiveUnlabelled([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 3], shape=(4, 4))
        >>> model = mvgp.TraceGP(mvgp.MatrixGP(*kernels), BipartiteRankingLikelihood())
        >>> path = {"trace_shares": [0.8], "strengths": [0.5, 0.1], "metric": "AUC", "progress": False}
        >>> outcome = choose_kernels(model, links, {"row_axis.kernel.time": [0.5, 2.0]}, sweeps=1, **path)
        >>> len(outcome.candidates), outcome.refit(links).shape
        (3, (4, 4))

    """
    check_model(model)
    start, grid, further = _read(model.prior, values, jumps)
    errors, sweeps = check_not_negative(errors, "errors"), check_whole_number(sweeps, "sweeps", 0)
    keep_variance, progress = check_flag(keep_variance, "keep_variance"), check_progress(progress)
    earlier: list[KernelCandidate] = []
    if resume is not None:
        check_instance(resume, "resume", KernelChoice, "a KernelChoice")
        earlier = [candidate for candidate in (*resume.candidates, resume.unfinished) if candidate is not None]
    outcome = KernelChoice(())

    def judge(parameters: Parameters) -> bool:
        """Try one; whether the search goes there."""
        nonlocal outcome
        recipe = with_parameters(model, parameters, keep_variance=keep_variance)
        before = next((one.choice for one in earlier if one.parameters == parameters), None)
        try:
            choice = choose(recipe, data, progress=False, resume=before, **options)
        except ChoiceInterrupted as stopped:
            cut = KernelCandidate(parameters, stopped.partial, math.nan, math.nan, taken=False)
            raise KernelChoiceInterrupted(KernelChoice(outcome.candidates, cut)) from None
        more, error = gain(choice, outcome.best.choice) if outcome.candidates else (math.nan, math.nan)
        taken = not outcome.candidates or more > (0.0 if math.isnan(error) else errors * error)
        outcome = KernelChoice((*outcome.candidates, KernelCandidate(parameters, choice, more, error, taken)))
        bar.update(1, repr(outcome)[:80])
        return taken

    most = 1 + len(further) + sweeps * len(grid)
    with progress_bar("kernels", most, unit="candidates", progress=progress) as bar:
        for jump in ({}, *further):
            judge({**start, **jump})
        for _ in range(sweeps):
            moved = False
            for name, value in grid:
                trial = {**outcome.best.parameters, name: value}
                if all(candidate.parameters != trial for candidate in outcome.candidates):
                    moved = judge(trial) or moved
            if not moved:
                break
    return outcome


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
        for one in self.candidates:
            point, metric = one.choice.chosen, one.choice.settings.metric
            chosen = {"trace_share": point.trace_share, "strength": point.strength, "rank": point.rank}
            scores = {metric: point.mean, "gain": one.gain, "gain_error": one.gain_error, "taken": one.taken}
            lines.append({**one.parameters, **chosen, **scores})
        return pd.DataFrame(lines)

    def __repr__(self) -> str:
        if not self.candidates:
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
    mine, theirs = _scores(new), _scores(old)
    differences = [a.value - b.value for a, b in zip(mine, theirs, strict=True)]
    values, (a, b) = torch.tensor(differences, dtype=torch.float64), (mine[0], theirs[0])
    same = a.tasks is not None and b.tasks is not None and torch.equal(a.tasks, b.tasks)
    if len(values) == 1 and same and a.per_task is not None and b.per_task is not None:
        values = a.per_task - b.per_task  # tasks count alike here
    error = float(values.std() / math.sqrt(len(values))) if len(values) > 1 else math.nan
    return sum(differences) / len(differences), error


def _scores(choice: Choice) -> list[Score]:
    """Of the chosen point, one for each fold."""
    point = choice.chosen
    records = [r for r in choice.records if (r.trace_share, r.strength) == (point.trace_share, point.strength)]
    return [record.score for record in sorted(records, key=lambda record: record.fold)]


def with_parameters(model: TraceGP, parameters: Mapping[str, float], *, keep_variance: bool) -> TraceGP:
    """A recipe of its own with these parameters of the prior; the column kernel is scaled to keep its variance."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        dtype = other.prior.dtype  # given as tensors: GPyTorch's setters round plain numbers to single precision
        other.prior.initialize(**{name: torch.tensor(value, dtype=dtype) for name, value in parameters.items()})
        if keep_variance:
            factor = _variance(model.prior) / _variance(other.prior)
            if abs(factor - 1) > 1e-6:
                scaled = ScaleKernel(other.prior.col_axis.kernel).to(dtype)
                scaled.outputscale = torch.tensor(factor, dtype=dtype)
                other.prior.col_axis.kernel = scaled
    return other


@torch.no_grad()
def _variance(prior: MatrixGP) -> float:
    """The average prior variance of a cell."""
    rows, cols = prior.row_axis.covariance(), prior.col_axis.covariance()
    return float(rows.diagonal().double().mean() * cols.diagonal().double().mean())


def _read(prior: MatrixGP, values: Any, jumps: Any) -> tuple[Parameters, list[tuple[str, float]], list[Parameters]]:
    """The parameters as they are, what is tried one by one, and what is tried at once; refuse what cannot be set."""
    listed = isinstance(jumps, Sequence) and all(isinstance(jump, Mapping) for jump in jumps)
    if not isinstance(values, Mapping) or not listed:
        raise InputError(
            "values and jumps: expected names with values, such as {'row_axis.kernel.time': [0.5, 2.0]} and "
            "[{'row_axis.kernel.time': 2.0}]"
        )
    for name, entries in values.items():
        if isinstance(entries, str) or not isinstance(entries, Iterable):
            raise InputError(f"{name}: expected a list of values to try, got {entries!r}")
    grid = [_pair(name, value) for name, entries in values.items() for value in entries]
    further = [dict(_pair(name, value) for name, value in jump.items()) for jump in jumps]
    if not grid and not further:
        raise InputError("values: expected at least one parameter to search over, got none")
    trial, start = copy.deepcopy(prior), Parameters()
    fine = torch.finfo(prior.dtype).eps ** 0.5  # what constraints leave of a number
    for name, value in [*grid, *(pair for jump in further for pair in jump.items())]:
        start.setdefault(name, _get(prior, name))
        try:
            trial.initialize(**{name: torch.tensor(value, dtype=prior.dtype)})
            now = _get(trial, name)
        except (AttributeError, RuntimeError, ValueError, TypeError) as error:
            raise InputError(f"{name}: expected a value that can be set, got {value!r}: {error}") from None
        if not abs(now - value) <= fine * max(1.0, abs(now)):
            raise InputError(f"{name}: expected a value within its constraint, got {value!r}")
    return start, grid, further


def _pair(name: Any, value: Any) -> tuple[str, float]:
    """A full name, and a number."""
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: expected a value that is one number, got {value!r}") from None
    return re.sub(r"^(row|col)_kernel\.", r"\1_axis.kernel.", str(name)), number  # short names as learn_grid has them


def _get(prior: MatrixGP, name: str) -> float:
    value: Any = prior
    for part in str(name).split("."):
        value = getattr(value, part, None)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        names = [full.replace("raw_", "") for full, _ in prior.named_parameters()]
        raise InputError(f"{name!r}: expected the name of a parameter that is one number, among {', '.join(names)}")
    return float(value.detach())
