"""Problems that several contestants share, the same in each of their processes."""

from __future__ import annotations

import resource
from dataclasses import dataclass

import gpytorch
import numpy as np
import torch
from torch import Tensor

import mvgp
from mvgp.kernels import DiffusionKernel, Graph

NOISE = 0.1  # variance


def power_law_graph(num_nodes: int, num_links: int, seed: int) -> Graph:
    """A random graph with a heavy-tailed degree distribution, as biological networks have."""
    rng = np.random.default_rng(seed)
    weight = 1.0 / (np.arange(num_nodes) + 10.0) ** 0.6
    weight /= weight.sum()
    found: set[tuple[int, int]] = set()
    while len(found) < num_links:
        ends = rng.choice(num_nodes, size=(2 * num_links, 2), p=weight)
        found.update((int(min(a, b)), int(max(a, b))) for a, b in ends if a != b)
    return Graph(np.array(sorted(found))[rng.permutation(len(found))[:num_links]], num_nodes)


def random_pairs(shape: tuple[int, int], count: int, seed: int) -> tuple[Tensor, Tensor]:
    """``count`` distinct cells of a grid, row-major sorted."""
    rng = np.random.default_rng(seed)
    cells = torch.from_numpy(np.sort(rng.choice(shape[0] * shape[1], size=count, replace=False)))
    return cells // shape[1], cells % shape[1]


def peak_gib() -> float:
    """Largest memory of this process so far: for contestants that check their answer afterwards, which may need more."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def gaussian(noise: float = NOISE) -> gpytorch.likelihoods.GaussianLikelihood:
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)  # a plain number would be rounded to single precision
    return likelihood


@dataclass(frozen=True)
class Grid:
    """Points x on the rows, t on the columns, some of the cells observed with noise.

    :param x: (M, 1).
    :param t: (N, 1).
    :param prior: with RBF kernels of one lengthscale.
    :param data: what was observed.
    :param lengthscale: of both kernels.
    """

    x: Tensor
    t: Tensor
    prior: mvgp.MatrixGP
    data: mvgp.ObservedMatrix
    lengthscale: float

    def block(self, rows: int, cols: int) -> tuple[Tensor, Tensor]:
        """(rows,) and (cols,): evenly spread; variances are asked for where they cross."""
        return tuple(
            torch.arange(count) * (size // count) + size // (2 * count)
            for count, size in zip((rows, cols), self.data.shape, strict=True)
        )

    def cells(self, rows: int, cols: int) -> tuple[Tensor, Tensor]:
        """The cells of :meth:`block`, row by row."""
        found = torch.cartesian_prod(*self.block(rows, cols))
        return found[:, 0], found[:, 1]


def grid(shape: list[int], share: float = 0.3, lengthscale: float = 0.2) -> Grid:
    """A sample of the prior, of which ``share`` is observed."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(shape[0], 1, dtype=torch.float64, generator=generator).sort(0).values
    t = torch.linspace(0, 1, shape[1], dtype=torch.float64).unsqueeze(1)
    kernels = [gpytorch.kernels.RBFKernel().double() for _ in range(2)]
    kernels[0].lengthscale = kernels[1].lengthscale = lengthscale
    prior = mvgp.MatrixGP(*kernels, row_inputs=x, col_inputs=t)
    size = (shape[0], shape[1])
    rows, cols = random_pairs(size, round(share * shape[0] * shape[1]), seed=0)
    truth = prior.sample(generator)
    values = truth[rows, cols] + NOISE**0.5 * torch.randn(len(rows), dtype=torch.float64, generator=generator)
    return Grid(x, t, prior, mvgp.ObservedMatrix(rows, cols, values, size), lengthscale)


def graph_prior(shape: list[int], degree: int = 6, time: float = 3.0) -> mvgp.MatrixGP:
    """Diffusion kernels on random graphs with a heavy-tailed degree distribution."""
    kernels = [DiffusionKernel(power_law_graph(n, degree * n // 2, seed), time=time) for seed, n in enumerate(shape)]
    return mvgp.MatrixGP(*kernels)


def curve_prior(shape: list[int], lengthscale: float = 0.1) -> mvgp.MatrixGP:
    """RBF kernels on evenly spread points of an interval."""
    kernels = [gpytorch.kernels.RBFKernel().double() for _ in range(2)]
    kernels[0].lengthscale = kernels[1].lengthscale = lengthscale
    points = [torch.linspace(0, 1, size, dtype=torch.float64).unsqueeze(1) for size in shape]
    return mvgp.MatrixGP(*kernels, row_inputs=points[0], col_inputs=points[1])


@dataclass(frozen=True)
class Planted:
    """A smooth matrix of low rank.

    :param prior: on the graphs or intervals that it is smooth on.
    :param data: cells observed with noise.
    :param held_out: other cells, with noise of the same size.
    :param noise_std: of both; the matrix has standard deviation 1.
    """

    prior: mvgp.MatrixGP
    data: mvgp.ObservedMatrix
    held_out: mvgp.ObservedMatrix
    noise_std: float


def planted(
    shape: list[int], observed: int, rank: int, held_out: int = 2000, noise_std: float = 0.5, on: str = "graphs"
) -> Planted:
    """Random factors smoothed by the kernels, all of the same weight; ``on`` "graphs" or "curves"."""
    prior = graph_prior(shape) if on == "graphs" else curve_prior(shape)
    generator = torch.Generator().manual_seed(0)
    size, count = (shape[0], shape[1]), observed + held_out
    rows, cols = random_pairs(size, count, seed=0)
    with torch.no_grad():
        ops = prior.row_axis.covariance(), prior.col_axis.covariance()
        factors = [
            op.matmul(torch.randn(n, rank, dtype=torch.float64, generator=generator))
            for op, n in zip(ops, shape, strict=True)
        ]
    truth = torch.cat(
        [(factors[0][r] * factors[1][c]).sum(1) for r, c in zip(rows.split(2**18), cols.split(2**18), strict=True)]
    )
    values = truth / truth.std() + noise_std * torch.randn(count, dtype=torch.float64, generator=generator)
    order = torch.randperm(count, generator=generator)
    parts = [mvgp.ObservedMatrix(rows[at], cols[at], values[at], size) for at in (order[held_out:], order[:held_out])]
    return Planted(prior, parts[0], parts[1], noise_std)
