"""Simulation-based calibration of every posterior (Talts et al., 2018): is the truth as often below a quantile as it says?

Usage: python -m benchmarks.sbc [--draws 1000] [--seed 0] [--cases NAME ...] [--fresh] [--page]

For each case 1,000 matrices are drawn from the prior by a dense Cholesky factor, and data from the likelihood at 60 % of the
cells, chosen anew each time; then mvgp computes the posterior. A truth at which the posterior's distribution function is F has
a uniform F if the posterior is right. Gaussian marginals give F exactly; samples of mvgp give the rank of the truth among 99.
Everything is binned to 100 ranks. One truth of each kind is looked at in each draw, so that draws are independent.

A run of all cases takes about 10 minutes in one thread. One that was stopped goes on where it was as long as the code is
the same (``benchmarks/results/sbc``). With all cases and at least 1,000 draws, the numbers go to ``docs/figures/sbc.json`` and the table into
``docs/calibration.md``; figures are drawn from the numbers (``--page``: just that). Every draw has a seed of its own, made from ``--seed``, the case and its number.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from scipy import special
from tqdm import tqdm

import mvgp
from benchmarks.book.machine import ROOT, commit, machine, versions
from benchmarks.sbc_page import NUMBERS, QUANTITIES, SAMPLES, draw_figure, save_numbers, write_page
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.likelihoods import AxisNoiseGaussianLikelihood, LogisticLikelihood, LogPoissonLikelihood
from mvgp.metrics import uniformity
from mvgp.priors import ConstantMean

M, N, OBSERVED, NOISE = 6, 8, 29, 0.2  # 60 % of 48 cells
INPUTS = torch.from_numpy(np.random.default_rng(0).random((M + 1, 2)))  # of the rows; the last one is never fitted
EDGES = [*((col, (col + 1) % N) for col in range(N)), (0, 4), (2, 5)]
RESULTS = ROOT / "benchmarks/results/sbc"
CHECKPOINT = 50  # draws


@dataclass(frozen=True)
class Case:
    """A model that data are drawn from and fitted with.

    :param title: for tables.
    :param exact: whether theory says that ranks are uniform; otherwise the deviation is what is measured.
    :param prior: over the M rows.
    :param simulate: (generator, latent values (T,), rows, cols) to observed values (T,).
    :param fit: data to a posterior.
    :param variance: method of variances.
    :param observed: how many cells.
    """

    title: str
    exact: bool
    prior: Any
    simulate: Callable[..., np.ndarray]
    fit: Callable[[mvgp.ObservedMatrix], Any]
    variance: str = "auto"
    observed: int = OBSERVED


def make_term(lengthscale: float = 0.5, heat: float = 2.0, shift: float = 0.3, mean: float = 0.0) -> mvgp.MatrixGP:
    kernel = gpytorch.kernels.RBFKernel()
    kernel.lengthscale = lengthscale
    mean_module = ConstantMean(mean) if mean else None
    return mvgp.MatrixGP(kernel, DiffusionKernel(Graph(EDGES, N), heat, shift), INPUTS[:M], mean=mean_module)


def make_cases() -> dict[str, Case]:
    one, two = make_term(mean=0.5), make_term() + make_term(2.0, 0.5, 0.1, mean=0.5)
    three = two + make_term(0.1, 5.0, 0.2)
    gaussian = gpytorch.likelihoods.GaussianLikelihood().double()
    gaussian.noise = NOISE
    axis = AxisNoiseGaussianLikelihood(M, N, noise=NOISE)
    axis.row_deviation, axis.col_deviation = torch.linspace(-1.5, 1.5, M), torch.linspace(1.0, -1.0, N)

    def measured(rng: np.random.Generator, latent: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        return latent + NOISE**0.5 * rng.standard_normal(len(latent))

    def by_axis(rng: np.random.Generator, latent: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        rowwise, colwise = np.linspace(-1.5, 1.5, M)[rows], np.linspace(1.0, -1.0, N)[cols]
        return latent + (NOISE * np.exp(rowwise + colwise)) ** 0.5 * rng.standard_normal(len(latent))

    def probit(rng: np.random.Generator, latent: np.ndarray, *_: Any) -> np.ndarray:
        return (rng.random(len(latent)) < special.ndtr(latent)).astype(float)

    def logistic(rng: np.random.Generator, latent: np.ndarray, *_: Any) -> np.ndarray:
        return (rng.random(len(latent)) < special.expit(latent)).astype(float)

    def counts(rng: np.random.Generator, latent: np.ndarray, *_: Any) -> np.ndarray:
        return rng.poisson(np.exp(latent)).astype(float)

    def full(prior: Any, likelihood: Any = gaussian, **options: Any) -> Callable[[mvgp.ObservedMatrix], Any]:
        return mvgp.FullGP(prior, likelihood, **options).fit

    def trace(mu: float, solver: str = "proximal") -> Callable[[mvgp.ObservedMatrix], Any]:
        penalty = mvgp.SpectralElasticNet.from_noise(NOISE, mu)
        return mvgp.TraceGP(one, gaussian, penalty=penalty, solver=solver, strict=True).fit

    def conditioned(data: mvgp.ObservedMatrix) -> Any:
        """Fitted to some of the pairs and one that is taken back, given the others in two steps."""
        parts = [np.arange(len(data)) % 3 == at for at in range(3)]
        first, second, third = (
            mvgp.ObservedMatrix(data.rows[part], data.cols[part], data.values[part], data.shape) for part in parts
        )
        return model_for_updates.fit(first).condition(second).condition(third).retract(second).condition(second)

    model_for_updates = mvgp.FullGP(one, gaussian)
    probit_likelihood, logit, poisson = (
        gpytorch.likelihoods.BernoulliLikelihood(),
        LogisticLikelihood(),
        LogPoissonLikelihood(),
    )
    return {
        "cholesky": Case("FullGP, Cholesky", True, one, measured, full(one, method="cholesky"), "cholesky"),
        "cg": Case("FullGP, conjugate gradients", True, one, measured, full(one, method="cg"), "cg"),
        "spectral": Case("FullGP, complete grid", True, one, measured, full(one), "spectral", M * N),
        "axis_noise": Case("FullGP, noise by row and column", True, one, by_axis, full(one, axis)),
        "sum2": Case("FullGP, sum of two terms", True, two, measured, full(two)),
        "sum3": Case("FullGP, sum of three terms", True, three, measured, full(three)),
        "condition": Case("FullGP, condition and retract", True, one, measured, conditioned),
        "trace0": Case("TraceGP, no trace norm", True, one, measured, trace(0.0)),
        "trace_two": Case("TraceGP, trace norm, mu = 2", False, one, measured, trace(2.0, "dense")),
        "bernoulli": Case("Bernoulli (probit), variational", False, one, probit, full(one, probit_likelihood)),
        "bernoulli_laplace": Case(
            "Bernoulli (probit), Laplace", False, one, probit, full(one, probit_likelihood, approximation="laplace")
        ),
        "logistic": Case("Bernoulli (logistic), variational", False, one, logistic, full(one, logit)),
        "poisson": Case("Poisson (log link), variational", False, one, counts, full(one, poisson)),
        "poisson_laplace": Case(
            "Poisson (log link), Laplace", False, one, counts, full(one, poisson, approximation="laplace")
        ),
    }


class Simulator:
    """Draws of a case, and the ranks of their truths."""

    def __init__(self, name: str, case: Case, seed: int) -> None:
        self.case, self.stream = case, (seed, zlib.crc32(name.encode()))
        with torch.no_grad():
            dense: Any = 0.0
            for term in case.prior.terms:
                sides = term.row_kernel(INPUTS).to_dense(), term.col_kernel(torch.arange(N)).to_dense()
                dense = dense + np.kron(*(side.double().numpy() for side in sides))
            self.mean = float(case.prior.mean_matrix()[0, 0])
        self.root = np.linalg.cholesky(dense + 1e-12 * np.eye(len(dense)))
        complete = case.observed == M * N
        self.quantities = tuple(name for name in QUANTITIES if not (complete and name == "unobserved cell"))

    def ranks(self, number: int) -> list[int]:
        """0 to 99, of each quantity, of draw ``number``; 0 if the posterior has all of its mass above the truth."""
        rng = np.random.default_rng((*self.stream, number))
        truth = self.mean + (self.root @ rng.standard_normal(len(self.root))).reshape(M + 1, N)
        order = rng.permutation(M * N)
        rows, cols = np.divmod(order[: self.case.observed], N)
        values = self.case.simulate(rng, truth[rows, cols], rows, cols)
        posterior = self.case.fit(mvgp.ObservedMatrix(rows, cols, values, (M, N)))
        new, line, item = int(rng.integers(N)), int(rng.integers(M)), int(rng.integers(N))
        last = np.divmod(order[-1], N)  # not observed, unless all are
        cells = {"observed cell": (rows[0], cols[0])}
        if "unobserved cell" in self.quantities:
            cells["unobserved cell"] = last
        at = np.array(list(cells.values())).T
        mean, variance = posterior.mean(*at), posterior.variance(*at, method=self.case.variance)
        found = dict(zip(cells, self.gaussian(truth[tuple(at)], mean, variance), strict=True))
        inputs = {"row_inputs": INPUTS[M:]}
        there = posterior.mean([0], [new], **inputs), posterior.variance([0], [new], **inputs)
        (found["new row"],) = self.gaussian(truth[M, [new]], *there)
        joint = posterior.joint([line] * N, range(N))
        of_mean = joint.mean.mean().reshape(1), joint.matrix.mean().reshape(1)
        (found["row mean"],) = self.gaussian(truth[line].mean(keepdims=True), *of_mean)
        generator = torch.Generator().manual_seed(int(rng.integers(2**40)))
        drawn = posterior.sample([last[0]], [last[1]], SAMPLES, generator=generator)[:, 0]
        found["sampled cell"] = int((drawn.numpy() < truth[last]).sum())
        samples = posterior.row_samples(line, SAMPLES, seed=int(rng.integers(2**40))).values.numpy()  # (99, N)
        places = (samples > samples[:, [item]]).sum(1)  # 0 is the best
        place = (truth[line] > truth[line, item]).sum()
        ties = int((places == place).sum())  # broken at random, so that ranks are uniform
        found["rank in row"] = int((places < place).sum()) + int(rng.integers(ties + 1))
        return [found[name] for name in self.quantities]

    @staticmethod
    def gaussian(truth: np.ndarray, mean: torch.Tensor, variance: torch.Tensor) -> list[int]:
        """Ranks of exact probabilities."""
        share = special.ndtr((truth - mean.numpy()) / variance.sqrt().numpy())
        return np.minimum((share * (SAMPLES + 1)).astype(int), SAMPLES).tolist()


def simulate(name: str, case: Case, draws: int, seed: int, folder: Path | None, bar: Any = None) -> np.ndarray:
    """(draws, Q) ranks of a case; what ``folder`` has of them is not drawn again."""
    simulator = Simulator(name, case, seed)
    path = None if folder is None else folder / f"{name}.npy"
    known = np.load(path)[:draws] if path is not None and path.exists() else np.zeros((0, len(simulator.quantities)))
    ranks = known.astype(np.uint8).tolist()
    if bar is not None:
        bar.update(len(ranks))

    def save() -> None:
        if path is not None and len(ranks) > len(known):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial.npy")
            np.save(partial, np.array(ranks, dtype=np.uint8))
            partial.replace(path)

    try:
        for number in range(len(ranks), draws):
            ranks.append(simulator.ranks(number))
            if bar is not None:
                bar.update(1)
            if len(ranks) % CHECKPOINT == 0:
                save()
    finally:
        save()
    return np.array(ranks, dtype=np.uint8)


def summarise(ranks: np.ndarray) -> dict[str, Any]:
    """The numbers of one quantity: everything but the hash follows from the counts of the 100 ranks."""
    test = uniformity((ranks + 0.5) / (SAMPLES + 1), SAMPLES + 1)
    edges = test.edges.tolist()
    off = (test.ecdf - test.edges)[(test.ecdf - test.edges).abs().argmax()]
    return {
        "counts": np.bincount(ranks, minlength=SAMPLES + 1).tolist(),
        "sha256": hashlib.sha256(np.ascontiguousarray(ranks).tobytes()).hexdigest(),
        "inside": test.inside,
        "p_value": float(f"{test.p_value:.4g}"),
        "deviation": round(float(off), 4),
        "covered_50": float(((ranks >= 25) & (ranks < 75)).mean()),
        "covered_90": float(((ranks >= 5) & (ranks < 95)).mean()),
        "band": round(float((test.high - torch.tensor(edges)).max()), 4),
    }


def code_digest() -> str:
    """Equal as long as neither mvgp nor this file has changed."""
    found = hashlib.sha256()
    for path in [*sorted((ROOT / "mvgp").rglob("*.py")), Path(__file__)]:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def main() -> None:
    cases = make_cases()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", nargs="+", choices=list(cases), default=list(cases))
    parser.add_argument("--fresh", action="store_true", help="forget draws of earlier runs")
    parser.add_argument("--page", action="store_true", help="write page and figures from the numbers there are")
    options = parser.parse_args()
    if not options.page:
        torch.set_num_threads(1)
        folder = RESULTS / f"{code_digest()}-{options.seed}"
        if options.fresh and folder.exists():
            for path in [*folder.glob("*.npy"), *folder.glob("*.seconds")]:
                path.unlink()
        numbers: dict[str, Any] = {
            "date": datetime.date.today().isoformat(),
            "commit": commit(),
            "code": code_digest(),
            "seed": options.seed,
            "draws": options.draws,
            "shape": [M, N],
            "observed": OBSERVED,
            "noise": NOISE,
            "samples": SAMPLES,
            "machine": machine(),
            "versions": {name: versions()[name] for name in ("python", "torch", "gpytorch", "linear_operator")},
            "seconds": 0.0,
            "cases": {},
        }
        print(
            f"{len(options.cases)} cases of {options.draws:,} draws, about {0.045 * options.draws * len(options.cases):.0f} s"
        )
        whole = hashlib.sha256()
        for name in options.cases:
            bar = tqdm(total=options.draws, desc=f"{name:18}", file=sys.stderr, mininterval=1.0)
            start, clock = time.process_time(), folder / f"{name}.seconds"
            before = float(clock.read_text()) if clock.exists() else 0.0
            try:
                ranks = simulate(name, cases[name], options.draws, options.seed, folder, bar)
            finally:  # a run that is stopped has taken its time, too
                bar.close()
                seconds = before + time.process_time() - start
                clock.parent.mkdir(parents=True, exist_ok=True)
                clock.write_text(f"{seconds}")
            whole.update(ranks.tobytes())
            quantities = Simulator(name, cases[name], options.seed).quantities
            found = {quantity: summarise(ranks[:, at]) for at, quantity in enumerate(quantities)}
            numbers["cases"][name] = {
                "title": cases[name].title,
                "exact": cases[name].exact,
                "seconds": round(seconds, 1),
                "quantities": found,
            }
            numbers["seconds"] += seconds
            print(f"{cases[name].title}, {1e3 * seconds / options.draws:.0f} ms for each draw")
            for quantity, one in found.items():
                inside = "inside " if one["inside"] else "OUTSIDE"
                print(
                    f"  {quantity:16} {inside} p {one['p_value']:8.2g}  deviation {one['deviation']:+.3f}, 90 %: {one['covered_90']:.1%}"
                )
        numbers["sha256"] = whole.hexdigest()
        numbers["seconds"] = round(numbers["seconds"])
        complete = options.cases == list(cases) and options.draws >= 1000
        target = NUMBERS if complete else RESULTS / "sbc.json"
        save_numbers(numbers, target)
        print(f"{numbers['seconds']} s, numbers in {target}")
        if not complete:
            return
    numbers = json.loads(NUMBERS.read_text())
    write_page(numbers)
    print(*draw_figure(), sep="\n")


if __name__ == "__main__":
    main()
