"""Main effects on whole rows, deflated: a kernel of rank one has eigenvalues as large as its axis is long."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .complete_rows import CompleteRowsSystem
from .conjugate_gradients import conjugate_gradients
from .pair_operator import Terms


class MainEffects:
    r"""The subspace of all :math:`\xi y^T` (effects of the columns) and :math:`y \eta^T` (of the rows), y free.

    Products of the system with a member cost a few vectors, so that the system on the subspace,
    :math:`Z^T A Z`, is solved by conjugate gradients at the cost of a few rows.

    :param system: A.
    :param terms: its kernels on both axes, for each term.
    :param effects: axis (0: rows) of a kernel of rank one, and its unit vector (n, 1).
    """

    def __init__(self, system: CompleteRowsSystem, terms: Terms, effects: Sequence[tuple[int, Tensor]]) -> None:
        self.system, self.terms = system, terms
        self.effects = [(axis, vectors.squeeze(1)) for axis, vectors in effects]
        height, width = system.shape
        self._sizes = [width if axis == 0 else height for axis, _ in self.effects]
        # (K_R xi) and (K_N eta) of every term
        self._images = [[term[axis]._matmul(vector) for term in terms] for axis, vector in self.effects]

    def _down(self, x: Tensor) -> Tensor:
        """(n,): Z^T of a block (R, N)."""
        return torch.cat([vector @ x if axis == 0 else x @ vector for axis, vector in self.effects])

    def _outer(self, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Z y as a sum of outer products of (R,) and (N,)."""
        parts = zip(self.effects, y.split(self._sizes), strict=True)
        return [(vector, part) if axis == 0 else (part, vector) for (axis, vector), part in parts]

    def _kernel_outer(self, y: Tensor) -> list[tuple[Tensor, Tensor]]:
        """K Z y as a sum of outer products."""
        out = []
        for (axis, _), part, images in zip(self.effects, y.split(self._sizes), self._images, strict=True):
            for term, image in zip(self.terms, images, strict=True):
                own = term[1 - axis]._matmul(part)
                out.append((image, own) if axis == 0 else (own, image))
        return out

    def _at_special(self, outer: list[tuple[Tensor, Tensor]]) -> Tensor:
        """(P,): a sum of outer products at the special cells."""
        rows, cols = self.system._special_cells
        return torch.stack([a[rows] * b[cols] for a, b in outer]).sum(0)

    def _coarse_times(self, y: Tensor) -> Tensor:
        """(n,): Z^T A Z y."""
        plain, system = self._outer(y), self.system
        outer = [*self._kernel_outer(y), *((system.noise * a, b) for a, b in plain)]
        total = []
        for axis, vector in self.effects:
            total.append(
                sum((b * (a @ vector) if axis == 0 else a * (b @ vector) for a, b in outer), vector.new_zeros(()))
            )
        if system._special is not None:
            (rows, cols), lack = system._special_cells, system.noise - system.special_noise
            values = lack * self._at_special(plain)
            for at, (axis, vector) in enumerate(self.effects):
                index, own = (cols, vector[rows]) if axis == 0 else (rows, vector[cols])
                total[at] = total[at].index_add(0, index, -own * values)
        return torch.cat(total)

    def _coarse_solve(self, rhs: Tensor) -> Tensor:
        """(n,): (Z^T A Z)^-1 times (n,), to the precision."""
        tolerance = 1e-11 if rhs.dtype == torch.float64 else 1e-6
        solution = conjugate_gradients(
            lambda y: self._coarse_times(y.squeeze(1)).unsqueeze(1), rhs.unsqueeze(1), tolerance=tolerance
        )
        return solution.value.squeeze(1)

    def correct(self, r: Tensor) -> tuple[Tensor, Tensor]:
        """(R, N): Z (Z^T A Z)^-1 Z^T r, and A times it."""
        y = self._coarse_solve(self._down(r))
        plain = self._outer(y)
        value = _block(plain)
        image = _block(self._kernel_outer(y)) + self.system.noise_times(value)
        return value, image

    def complete(self, r: Tensor, z: Tensor) -> Tensor:
        """(R, N): what to add to an approximation z of A^-1 r, so that its residual has no share in the subspace."""
        y = self._coarse_solve(self._down(r) - self._down_image(z))
        return _block(self._outer(y))

    def _down_image(self, z: Tensor) -> Tensor:
        """(n,): Z^T A z, as (A Z)^T z."""
        system = self.system
        total = []
        noisy = system.noise_times(z)
        for (axis, vector), images in zip(self.effects, self._images, strict=True):
            own = vector @ noisy if axis == 0 else noisy @ vector
            for term, image in zip(self.terms, images, strict=True):
                own = own + term[1 - axis]._matmul(image @ z if axis == 0 else z @ image)
            total.append(own)
        return torch.cat(total)


def _block(outer: list[tuple[Tensor, Tensor]]) -> Tensor:
    """(R, N): a sum of outer products."""
    return torch.stack([a for a, _ in outer], dim=1) @ torch.stack([b for _, b in outer])
