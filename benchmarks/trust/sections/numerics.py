r"""Nasty problems beside 60 digits: posteriors, marginal likelihoods and their gradients.

An answer may be off by what rounding explains. With :math:`A = K_{TT} + \sigma^2 W^{-1}`, :math:`D = \mathrm{diag}(A)^{-1/2}`
and :math:`\kappa` the condition number of :math:`D A D`, a backward stable solution of :math:`A x = b` has
:math:`\|D^{-1}(\hat x - x)\| \le \eta \kappa \|D^{-1} x\|` (Demmel, 1989, for Cholesky factors), where :math:`\eta` is a few
hundred roundings: those of the algebra, and those of kernel values. An iterative solution may have its tolerance as well.
Where :math:`\eta \kappa` is above 0.1 no digit is known. There, only a clean error or finite numbers are asked for, with
variances between 0 and those of the prior. A problem may be refused only where rounding alone may leave a relative residual
above the tolerance, that is, where the condition number of A times some roundings is above it.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import gpytorch
import mpmath
import numpy as np
import torch
from mpmath import mp

import mvgp
from benchmarks.trust.plan import Found, Line, generator
from mvgp.errors import MvgpError
from mvgp.hyperparameters import log_marginal
from mvgp.kernels import PrecomputedKernel

DIGITS = 60
ROUNDINGS = 20.0
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-5}  # of conjugate gradients, by the documents


@dataclass
class Axis:
    """A side of a problem.

    :param kernel: for mvgp.
    :param inputs: for mvgp; None for numbered nodes.
    :param exact: its matrix, of mp numbers.
    :param slopes: derivatives of the matrix by name of the raw parameter.
    :param spread: how many roundings a kernel value has.
    :param size: of the inputs.
    """

    kernel: Any
    inputs: torch.Tensor | None
    exact: np.ndarray
    slopes: dict[str, np.ndarray]
    spread: float
    size: float = 0.0


def exactly(values: Any) -> np.ndarray:
    """Floats as mp numbers, without rounding."""
    flat = np.asarray(values.detach() if isinstance(values, torch.Tensor) else values, dtype=np.float64)
    return np.vectorize(mp.mpf, otypes=[object])(flat) if flat.size else flat.astype(object)


def slope_of(raw: torch.Tensor) -> Any:
    """The derivative of softplus at a raw parameter; torch takes it for the identity above 20."""
    value = float(raw.detach())
    return mp.mpf(1) if value > 20 else 1 / (1 + mp.exp(-mp.mpf(value)))


def smooth_axis(rng: np.random.Generator, size: int, dtype: torch.dtype) -> Axis:
    """A Gaussian kernel with a scale, smooth or rough."""
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).to(dtype)
    kernel.base_kernel.lengthscale = 10 ** rng.uniform(-1.0, 1.5)
    kernel.outputscale = 10 ** rng.uniform(-6, 6)
    inputs = torch.from_numpy(rng.random((size, int(rng.integers(1, 3))))).to(dtype)
    if size > 2 and rng.random() < 0.2:
        inputs[1] = inputs[0]  # twins
    length, scale = mp.mpf(kernel.base_kernel.lengthscale.item()), mp.mpf(kernel.outputscale.item())
    points = exactly(inputs)
    apart = ((points[:, None] - points[None]) ** 2).sum(-1)
    matrix = np.vectorize(lambda d: scale * mp.exp(-d / (2 * length**2)), otypes=[object])(apart)
    slopes = {
        "raw_lengthscale": matrix * apart / length**3 * slope_of(kernel.base_kernel.raw_lengthscale),
        "raw_outputscale": matrix / scale * slope_of(kernel.raw_outputscale),
    }
    size = float(inputs.square().sum(1).max()) ** 0.5
    return Axis(kernel, inputs, matrix, slopes, 1 + 8 * size**2 / float(length) ** 2, size)


def given_axis(rng: np.random.Generator, size: int, dtype: torch.dtype) -> Axis:
    """A matrix: of full rank, nearly singular, or of rank one."""
    kind = rng.choice(["decay", "one", "identity", "random"])
    root, _ = np.linalg.qr(rng.normal(size=(size, size)))
    spectrum = {
        "decay": 10.0 ** -np.linspace(0, rng.uniform(2, 18), size),
        "one": np.eye(1, size)[0],
        "identity": np.ones(size),
        "random": rng.random(size) + 0.01,
    }[kind]
    matrix = (root * spectrum) @ root.T * 10 ** rng.uniform(-6, 6)
    kernel = PrecomputedKernel(torch.from_numpy((matrix + matrix.T) / 2).to(dtype))
    return Axis(kernel, None, exactly(kernel.matrix), {}, 1.0)


@dataclass
class Problem:
    """One nasty problem, with the exact answers it is judged by."""

    dtype: torch.dtype
    method: str
    axes: tuple[Axis, Axis]
    prior: Any
    likelihood: Any
    data: Any
    queries: tuple[np.ndarray, np.ndarray]

    @property
    def kind(self) -> str:
        """For the name of a failure."""
        return f"{'single' if self.dtype == torch.float32 else 'double'}, {self.method}, {self.prior.shape}, {len(self.data)} cells"


def drawn(rng: np.random.Generator) -> Problem:
    """Sizes from one row and one observation on, scales from 1e-12 to 1e12, weights from 1e-8 to 1e8."""
    dtype = torch.float32 if rng.random() < 0.25 else torch.float64
    shape = [int(rng.choice([1, 2, 3, 4])) for _ in range(2)]
    sides = [(smooth_axis if rng.random() < 0.5 else given_axis)(rng, size, dtype) for size in shape]
    prior = mvgp.MatrixGP(sides[0].kernel, sides[1].kernel, sides[0].inputs, sides[1].inputs, dtype=dtype)
    count = 1 if rng.random() < 0.1 else int(rng.integers(1, min(10, shape[0] * shape[1]) + 1))
    cells = rng.permutation(shape[0] * shape[1])[:count]
    largest = math.prod(
        max(float(side.exact[at, at]) for at in range(size)) for side, size in zip(sides, shape, strict=True)
    )
    lowest = -12 if dtype == torch.float64 or rng.random() < 0.3 else -4
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive()).to(dtype)
    likelihood.noise = min(max(largest * 10 ** rng.uniform(lowest, 3), 1e-30), 1e30)
    values = rng.normal(size=count) * math.sqrt(largest) * 10 ** (rng.uniform(-6, 6) if rng.random() < 0.3 else 0.0)
    weights = torch.from_numpy(10 ** rng.uniform(-8, 8, count)).to(dtype) if rng.random() < 0.4 else None
    rows, cols = np.divmod(cells, shape[1])
    data = mvgp.ObservedMatrix(rows, cols, torch.from_numpy(values).to(dtype), tuple(shape), weights=weights)
    method = str(rng.choice(["auto", "auto", "cholesky", "cg"]))
    asked = rng.permutation(shape[0] * shape[1])[: min(4, shape[0] * shape[1])]
    return Problem(dtype, method, (sides[0], sides[1]), prior, likelihood, data, np.divmod(asked, shape[1]))


class Reference:
    """The answers in 60 digits, and how far an answer may be off."""

    def __init__(self, problem: Problem) -> None:
        data, axes = problem.data, problem.axes
        rows, cols = data.rows.numpy(), data.cols.numpy()
        self.noise = mp.mpf(problem.likelihood.noise.item())
        weights = exactly(torch.ones(len(data)) if data.weights is None else data.weights)
        self.between = lambda r1, c1, r2, c2: axes[0].exact[np.ix_(r1, r2)] * axes[1].exact[np.ix_(c1, c2)]
        self.kernel = kernel = self.between(rows, cols, rows, cols)
        self.matrix = kernel + np.diag(self.noise / weights)
        self.values = exactly(data.values)
        self.inverse = np.array((mp.matrix(self.matrix.tolist()) ** -1).tolist(), dtype=object)
        self.solution = self.inverse @ self.values
        at = problem.queries
        self.cross = self.between(*at, rows, cols)
        self.own = self.between(*at, *at)
        self.mean = self.cross @ self.solution
        self.covariance = self.own - self.cross @ self.inverse @ self.cross.T
        whole = mp.matrix(self.matrix.tolist())
        count = len(data)
        self.log_det = mp.log(mp.det(whole))
        self.value = -(self.values @ self.solution + self.log_det + count * mp.log(2 * mp.pi)) / 2
        slopes = {"noise": np.diag(1 / weights) * slope_of(problem.likelihood.noise_covar.raw_noise)}
        for side, (axis, other) in enumerate((axes, axes[::-1])):
            for name, slope in axis.slopes.items():
                mine, theirs = (rows, cols) if side == 0 else (cols, rows)
                slopes[f"{('row', 'col')[side]} {name}"] = (
                    slope[np.ix_(mine, mine)] * other.exact[np.ix_(theirs, theirs)]
                )
        self.slopes = slopes
        self.gradients = {
            name: (self.solution @ d @ self.solution - (self.inverse * d).sum()) / 2 for name, d in slopes.items()
        }
        self._limits(problem)

    def _limits(self, problem: Problem) -> None:
        eps = torch.finfo(problem.dtype).eps
        d = np.array([float(1 / mp.sqrt(self.matrix[at, at])) for at in range(len(self.matrix))])
        scaled = np.array(
            [
                [float(one * d[i] * d[j]) if abs(one) else 0.0 for j, one in enumerate(row)]
                for i, row in enumerate(self.matrix)
            ]
        )
        self.scaled = scaled
        spectrum = np.linalg.eigvalsh(scaled)
        self.condition = float(spectrum[-1] / max(spectrum[0], 1e-300)) if spectrum[0] > 0 else math.inf
        plain = np.linalg.eigvalsh(np.array(self.matrix, dtype=float) / float(max(abs(self.matrix).flat)))
        self.plain_condition = float(plain[-1] / plain[0]) if plain[0] > 0 else math.inf
        self.eta = ROUNDINGS * eps * (len(d) + sum(axis.spread for axis in problem.axes))
        self.is_vague = not self.eta * self.condition < 0.1
        self.tolerance = TOLERANCE[problem.dtype] if problem.method == "cg" else 0.0
        # squared distances of inputs are off by roundings of the inputs' own squares, however close these are
        self.far = {}
        for side, axis in zip(("row", "col"), problem.axes, strict=True):
            if axis.slopes:
                length = float(axis.kernel.base_kernel.lengthscale.detach())
                self.far[f"{side} raw_lengthscale"] = ROUNDINGS * eps * 4 * axis.size**2 / length**3
        norm = lambda part: float(mp.sqrt(sum(one * one for one in part)))  # noqa: E731
        self.norm, self.d = norm, exactly(d)
        self.x = norm(self.solution / self.d)

    def mean_limits(self) -> np.ndarray:
        """(Q,)"""
        amplified = self.eta * (1 + self.condition) * self.x
        back = self.cross @ self.inverse
        of_residual = [self.tolerance * self.norm(one) * self.norm(self.values) for one in back]
        return np.array([self.norm(one * self.d) * amplified for one in self.cross]) + of_residual

    def covariance_limits(self) -> np.ndarray:
        """(Q, Q)"""
        back = self.cross @ self.inverse
        left = np.array([self.norm(one * self.d) for one in self.cross])
        right = np.array([self.norm(one / self.d) for one in back])
        prior = np.sqrt(np.array([float(one) for one in self.own.diagonal()]))
        of_residual = self.tolerance * np.outer(
            [self.norm(one) for one in self.cross], [self.norm(one) for one in back]
        )
        return (
            self.eta * (1 + self.condition) * (np.outer(left, right) + np.outer(right, left))
            + self.eta * np.outer(prior, prior)
            + of_residual
            + of_residual.T
        )

    def value_limit(self) -> float:
        """Of the log marginal likelihood."""
        quadratic = self.norm(self.values * self.d) * self.x
        count = len(self.values)
        sizes = float(sum(abs(mp.log(self.matrix[at, at])) for at in range(count)))
        return self.eta * (1 + self.condition) * (quadratic + count) + self.eta * (sizes + count)

    def gradient_limit(self, name: str) -> float:
        """Of one derivative."""
        slope = np.array([[float(one) for one in row] for row in self.slopes[name] * np.outer(self.d, self.d)])
        size = float(np.linalg.norm(slope))
        trace = float(np.linalg.norm(np.linalg.pinv(self.scaled))) * size
        outer = np.abs(np.outer(self.solution, self.solution)) + np.abs(self.inverse)
        far = self.far.get(name, 0.0) * float((outer * np.abs(self.kernel)).sum())
        return far + 2 * self.eta * (1 + self.condition) * (size * self.x**2 + trace)


def off(answer: torch.Tensor, exact: np.ndarray, limits: np.ndarray) -> float:
    """The largest error in units of its limit."""
    found = exactly(answer)
    errors = [
        abs(one - two) / max(mp.mpf(float(limit)), mp.mpf("1e-290"))
        for one, two, limit in zip(found.flat, np.asarray(exact).flat, np.asarray(limits).flat, strict=True)
    ]
    return float(max(errors))


def answers(problem: Problem) -> dict[str, torch.Tensor]:
    """Everything that is asked of mvgp."""
    at = problem.queries
    posterior = mvgp.FullGP(problem.prior, problem.likelihood, method=problem.method).fit(problem.data)
    found = {
        "mean": posterior.mean(*at),
        "variance": posterior.variance(*at),
        "covariance": posterior.joint(*at).matrix,
    }
    parameters = {"noise": problem.likelihood.noise_covar.raw_noise}
    for side, axis in zip(("row", "col"), problem.axes, strict=True):
        if axis.slopes:
            parameters[f"{side} raw_lengthscale"] = axis.kernel.base_kernel.raw_lengthscale
            parameters[f"{side} raw_outputscale"] = axis.kernel.raw_outputscale
    value = log_marginal(problem.prior, problem.likelihood, problem.data).value
    gradients = torch.autograd.grad(value, list(parameters.values()))
    found["log marginal"] = value.detach()
    found |= {f"gradient, {name}": one.detach().sum() for name, one in zip(parameters, gradients, strict=True)}
    return {name: one.detach() for name, one in found.items()}


def judged(problem: Problem, found: dict[str, torch.Tensor], exact: Reference) -> tuple[str, dict[str, float]]:
    """What is wrong, and the errors in units of their limits."""
    for name, answer in found.items():
        if not bool(torch.isfinite(answer).all()):
            return f"{name} is not finite", {}
    prior = np.array([float(one) for one in exact.own.diagonal()])
    slack = 1e-3 if problem.dtype == torch.float32 else 1e-6
    variance = found["variance"].double().numpy()
    if (variance < 0).any() or (variance > prior * (1 + slack)).any():
        return f"variance {variance} outside [0, {prior}]", {}
    if exact.is_vague:
        return "", {}
    limits = exact.covariance_limits()
    errors = {
        "mean": off(found["mean"], exact.mean, exact.mean_limits()),
        "variance": off(found["variance"], exact.covariance.diagonal(), limits.diagonal()),
        "covariance": off(found["covariance"], exact.covariance, limits),
        "log marginal": off(found["log marginal"].reshape(1), np.array([exact.value]), np.array([exact.value_limit()])),
    }
    for name, gradient in exact.gradients.items():
        errors[f"gradient, {name}"] = off(
            found[f"gradient, {name}"].reshape(1), np.array([gradient]), np.array([exact.gradient_limit(name)])
        )
    worst = max(errors, key=errors.__getitem__)
    return (f"{worst} is off by {errors[worst]:.3g} times its limit" if errors[worst] > 1 else ""), errors


def problems(first: int, count: int, seed: int) -> Found:
    """One problem for each number."""
    found = Found()
    with mpmath.workdps(DIGITS):
        for number in range(first, first + count):
            problem = drawn(generator("numerics/posteriors", number, seed))
            exact, wrong, outcome = Reference(problem), "", "right"
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    told = answers(problem)
                wrong, errors = judged(problem, told, exact)
                outcome = "no digit known" if exact.is_vague else "right"
                for name, error in errors.items():
                    found.reached(f"error of {name.split(',')[0]} over its limit", error)
            except MvgpError as error:
                outcome = "refused"
                if exact.plain_condition * 50 * torch.finfo(problem.dtype).eps < TOLERANCE[problem.dtype]:
                    wrong = f"refused, with condition {exact.plain_condition:.1g}: {str(error)[:200]}"
            except Exception as error:
                wrong = f"{type(error).__name__}: {str(error)[:200]}"
            told = f"{number} ({problem.kind}, condition {exact.condition:.1g}): {wrong}"
            found.add("failed" if wrong else outcome, wrong and told)
    return found


LINES = [Line("numerics/posteriors", "nasty problems beside 60 digits", 5_000, 250, problems)]
