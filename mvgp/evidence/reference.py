"""Reference: a matrix near A whose determinant is known, and probes drawn from it; both stay while A changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..checks import (
    check_flag,
    check_float_tensor,
    check_instance,
    check_memory,
    check_seed,
    check_whole_number,
    refuse_where,
)
from ..linalg import PairIndex, PairLinearOperator
from ..linalg.solvers import ConjugateGradientSolver, make_solver
from ..linalg.woodbury import WoodburyPreconditioner

PROBES = 16


@dataclass(frozen=True)
class Reference:
    r"""M = F F^T + D of some parameters, or M = D where the spectrum is narrow.

    log det A = log det M + tr log(M^-1/2 A M^-1/2) holds for any M, so M may stay the same while the parameters of A
    move: then the estimate is a smooth function of them, as an optimiser needs it.

    :param pairs: the T observed cells.
    :param noise: (T,) diagonal of D.
    :param preconditioner: applies M^-1; None stands for D^-1.
    :param probes: (T, P) with expectation of z z^T equal to M.
    :param log_det: () log det M.
    """

    pairs: PairIndex
    noise: Tensor
    preconditioner: WoodburyPreconditioner | None
    probes: Tensor
    log_det: Tensor

    @classmethod
    @torch.no_grad()
    def build(
        cls,
        covariance: PairLinearOperator,
        noise: Tensor,
        *,
        probes: int = PROBES,
        seed: int = 0,
        precondition: bool = True,
    ) -> Reference:
        """The reference of a covariance K_TT (T, T) and ``noise`` (T,).

        :param probes: how many, at least 2.
        :param seed: of the probes; the same seed gives the same ones.
        :param precondition: False takes M = D in any case.
        """
        probes, seed, precondition = check_probes(probes), check_seed(seed), check_flag(precondition, "precondition")
        check_noise(covariance, noise)
        check_memory(float(probes) * len(noise), "probes", f"{probes} vectors of {len(noise)} numbers each")
        fixed, noise = covariance.detach(), noise.detach()
        solver: Any = None
        if precondition:
            solver = make_solver(fixed.row_op, fixed.col_op, fixed.left, noise, method="cg")
        found = solver.preconditioner if isinstance(solver, ConjugateGradientSolver) else None
        found = None if found is None or found.rank == 0 else found
        generator = torch.Generator().manual_seed(seed)
        below = noise.sqrt().unsqueeze(1) * _signs(len(noise), probes, generator, noise)
        log_det = noise.log().sum()
        if found is None:
            return cls(fixed.left, noise, None, below, log_det)
        log_det = log_det + 2 * found.chol.diagonal().log().sum()
        above = found.up(_signs(found.rank, probes, generator, noise))
        return cls(fixed.left, noise, found, above + below, log_det)

    def apply(self, dense: Tensor) -> Tensor:
        """(T, C): M^-1 times (T, C)."""
        check_float_tensor(dense, "dense", (len(self.pairs), None), like=self.noise)
        return dense / self.noise.unsqueeze(1) if self.preconditioner is None else self.preconditioner(dense)

    def fits(self, pairs: PairIndex) -> bool:
        """Whether it was made for these pairs."""
        check_instance(pairs, "pairs", PairIndex, "a PairIndex")
        return torch.equal(self.pairs.rows, pairs.rows) and torch.equal(self.pairs.cols, pairs.cols)


def check_probes(probes: Any) -> int:
    """A whole number of at least 2, which an error bar needs."""
    return check_whole_number(probes, "probes", 2)


def check_noise(covariance: Any, noise: Any) -> None:
    """K_TT of observed pairs, and (T,) positive noise."""
    check_instance(covariance, "covariance", PairLinearOperator, "a PairLinearOperator")
    check_float_tensor(noise, "noise", (covariance.shape[-1],), like=covariance, finite=True)
    refuse_where(noise.detach() <= 0, noise.detach(), "noise", "a positive number")


def _signs(count: int, probes: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """(count, probes) of -1 and 1."""
    found = torch.randint(0, 2, (count, probes), generator=generator)
    return (2 * found - 1).to(dtype=like.dtype, device=like.device)
