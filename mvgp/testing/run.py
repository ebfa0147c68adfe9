"""Run a contract by hand: in a notebook, or to see which rules an object breaks."""

from __future__ import annotations

import unittest
from dataclasses import dataclass

from ..errors import InputError
from .contract import Contract


@dataclass(frozen=True)
class ContractResult:
    """How the rules of a contract came out.

    :param kept: names of the rules that hold.
    :param broken: what went wrong, by the name of the rule.
    :param skipped: why a rule was not tried, by its name.
    """

    kept: tuple[str, ...]
    broken: dict[str, str]
    skipped: dict[str, str]

    @property
    def holds(self) -> bool:
        """Whether no rule is broken, and at least one was tried."""
        return not self.broken and bool(self.kept)

    def __str__(self) -> str:
        lines = [f"{len(self.kept)} rules kept, {len(self.broken)} broken, {len(self.skipped)} skipped"]
        lines += [f"  broken: {name}: {reason.splitlines()[0]}" for name, reason in self.broken.items()]
        lines += [f"  skipped: {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)


def run_contract(contract: type[Contract]) -> ContractResult:
    """Try every rule of a contract, each on an object of its own.

    :param contract: a subclass that makes the object.

    Example:
        >>> import torch
        >>> from mvgp.testing import RankerContract, run_contract
        >>> class Constant:
        ...     shape = (3, 5)
        ...     def scores(self, rows=None):
        ...         return torch.zeros(3 if rows is None else len(rows), 5)
        >>> class ConstantContract(RankerContract):
        ...     def make_ranker(self):
        ...         return Constant()
        >>> print(run_contract(ConstantContract))
        6 rules kept, 1 broken, 0 skipped
          broken: test_a_row_that_is_not_there_is_refused: RankerContract: scores([M]) and scores([-1]) are errors

    """
    if not (isinstance(contract, type) and issubclass(contract, Contract)):
        raise InputError(f"contract: expected a subclass of a contract of mvgp.testing, got {contract!r}")
    kept, broken, skipped = [], {}, {}
    for name in sorted(name for name in dir(contract) if name.startswith("test_")):
        try:
            getattr(contract(), name)()
        except unittest.SkipTest as reason:
            skipped[name] = str(reason)
        except Exception as error:
            broken[name] = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        else:
            kept.append(name)
    return ContractResult(tuple(kept), broken, skipped)
