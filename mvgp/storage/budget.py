"""Budgets: what loading a file may cost, compared with limits before it is spent."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ..checks import check_instance
from ..errors import InputError, StorageError


@dataclass(frozen=True)
class Budget:
    """The most that loading one file may take. A file that asks for more is refused before it gets it.

    The limits leave room for all but very large posteriors; raise one for a file you trust.

    :param file_bytes: size of the file. Arrays are stored as they are, and copied once, so it bounds their memory too.
    :param manifest_bytes: size of the description at its start.
    :param values: texts, numbers, lists and named parts in the description.
    :param arrays: arrays of the file.
    :param kernels: kernels of the file, those inside others included.
    :param memory_bytes: memory for evaluating the kernels, as estimated from their sizes.
    :param operations: floating-point operations for that, estimated likewise; a core does some 1e10 in a second.
    :param iterations: limit of conjugate gradients that a posterior may bring along.

    Example:
        >>> from mvgp.storage import Budget
        >>> Budget(memory_bytes=32 * 2**30).kernels
        256

    """

    file_bytes: int = 16 * 2**30
    manifest_bytes: int = 2**25
    values: int = 2**20
    arrays: int = 10_000
    kernels: int = 256
    memory_bytes: int = 4 * 2**30
    operations: int = 10**12
    iterations: int = 20_000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            limit = getattr(self, field.name)
            if type(limit) is not int or limit < 1:
                raise InputError(f"{field.name}: expected a positive whole number, got {limit!r:.100}")

    def allows(self, name: str, needed: int, where: str) -> None:
        """Refuse a file that needs more of something than there is."""
        limit = getattr(self, name)
        if needed > limit:
            raise StorageError(
                f"{where}: expected at most {limit:,} {name.replace('_', ' ')}, got {needed:,}; if you trust the file, "
                f"give budget=mvgp.storage.Budget({name}=...)"
            )


class Spending:
    """What has been granted of a budget so far, over all parts of a file.

    :param budget: the limits.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._granted = dict.fromkeys(("kernels", "memory_bytes", "operations"), 0)

    def need(self, where: str, *, kernels: int = 0, memory_bytes: int = 0, operations: int = 0) -> None:
        """Grant more, or refuse the file; ``where`` is for messages."""
        for name, more in (("kernels", kernels), ("memory_bytes", memory_bytes), ("operations", operations)):
            self._granted[name] += more
            self.budget.allows(name, self._granted[name], where)


def check_budget(budget: Budget | None) -> Budget:
    """The budget, or the usual one for None."""
    granted: Budget = check_instance(Budget() if budget is None else budget, "budget", Budget, "mvgp.storage.Budget")
    return granted
