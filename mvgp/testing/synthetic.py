"""A partly observed matrix drawn from a known prior: rows on a graph, columns along a line."""

from __future__ import annotations

from dataclasses import dataclass

import gpytorch
import numpy as np
import torch
from torch import Tensor

from ..checks import check_not_negative, check_part, check_seed, check_whole_number
from ..data.observed import ObservedMatrix
from ..kernels.graph import DiffusionKernel, Graph
from ..priors.matrix_gp import MatrixGP


@dataclass(frozen=True)
class SyntheticMatrix:
    """What was drawn.

    :param prior: the prior it was drawn from.
    :param truth: (M, N) the noise-free matrix.
    :param data: its observed entries, with noise.
    :param noise: variance of the noise.
    """

    prior: MatrixGP
    truth: Tensor
    data: ObservedMatrix
    noise: float


def synthetic_matrix(
    num_rows: int = 40,
    num_cols: int = 120,
    share: float = 0.25,
    noise: float = 0.05,
    seed: int = 0,
) -> SyntheticMatrix:
    """A matrix whose rows are the nodes of a small-world graph and whose columns are points in time.

    :param num_rows: M.
    :param num_cols: N.
    :param share: fraction of the entries that is observed; one whole row and a stretch of columns are not.
    :param noise: variance of the noise.
    :param seed: of the graph, the matrix and what is observed.

    Example:
        >>> from mvgp.testing import synthetic_matrix
        >>> synthetic_matrix(10, 20).truth.shape
        torch.Size([10, 20])

    """
    num_rows = check_whole_number(num_rows, "num_rows", 2, 10**5)
    num_cols = check_whole_number(num_cols, "num_cols", 1, 8192)
    share, noise, seed = check_part(share, "share"), check_not_negative(noise, "noise"), check_seed(seed)
    rng = np.random.default_rng(seed)
    ring = [(i, (i + step) % num_rows) for i in range(num_rows) for step in (1, 2)]
    shortcuts = [tuple(rng.integers(0, num_rows, 2)) for _ in range(num_rows // 4)]
    col_kernel = gpytorch.kernels.RBFKernel()
    times = torch.linspace(0, 1, num_cols, dtype=torch.float64)
    prior = MatrixGP(
        DiffusionKernel(Graph(ring + shortcuts, num_rows), time=4.0, shift=0.05), col_kernel, col_inputs=times
    )
    col_kernel.lengthscale = torch.tensor(0.08, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    truth = prior.sample(generator)
    mask = torch.from_numpy(rng.random((num_rows, num_cols)) < share)
    mask[num_rows // 2] = False
    mask[:, int(0.6 * num_cols) : int(0.68 * num_cols)] = False
    error = noise**0.5 * torch.randn(truth.shape, generator=generator, dtype=truth.dtype)
    return SyntheticMatrix(prior, truth, ObservedMatrix.from_mask(truth + error, mask), noise)
