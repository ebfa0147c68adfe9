"""Contract: rules as test methods, how to run them, and slopes that gradients are compared with."""

from __future__ import annotations

import sys
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError


class Contract:
    """Rules that mvgp relies on, as test methods. A subclass makes the object the rules are about.

    Works with pytest as it is (a subclass named ``Test...``) and with unittest (``unittest.TestCase`` as a further
    base). A rule that does not hold is an ``AssertionError`` that names the contract and the rule.

    Example:
        >>> from mvgp.testing import Contract, run_contract
        >>> class Rules(Contract):
        ...     def test_numbers_add_up(self):
        ...         self.require(1 + 1 == 2, "1 + 1 = 2")
        >>> run_contract(Rules).kept
        ('test_numbers_add_up',)

    """

    @classmethod
    def contract_name(cls) -> str:
        """The contract that a subclass tests: the nearest base of this package."""
        ours = vars(sys.modules[__package__ or "mvgp.testing"])
        return next(base.__name__ for base in cls.__mro__ if ours.get(base.__name__) is base)

    def require(self, holds: Any, rule: str) -> None:
        """``holds``, a bool or a tensor () of one, is true; ``rule`` is what is expected, for the message."""
        if not bool(holds):
            raise AssertionError(f"{self.contract_name()}: {rule}")

    def require_close(
        self, actual: Tensor, expected: Tensor, rule: str, *, relative: float = 1e-8, absolute: float | None = None
    ) -> None:
        """Two tensors (...) agree in shape, dtype and value, up to ``relative`` abs(expected) + ``absolute``."""
        if absolute is None:  # relative to the largest number
            absolute = relative * float(expected.detach().abs().max()) if expected.numel() else 0.0
        failed = f"{self.contract_name()}: {rule}\n"
        torch.testing.assert_close(actual, expected, rtol=relative, atol=absolute, msg=lambda why: failed + why)

    def require_refusal(self, call: Any, rule: str) -> None:
        """``call()`` raises a ``ValueError`` (as ``InputError`` is) or an ``IndexError``."""
        try:
            call()
        except (ValueError, IndexError):
            return
        raise AssertionError(f"{self.contract_name()}: {rule}")


def rounding(dtype: torch.dtype) -> float:
    """A relative error that well-behaved algebra in ``dtype`` stays below on small problems."""
    return 1e-8 if dtype == torch.float64 else 1e-4


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


@torch.no_grad()
def slopes(function: Callable[..., Tensor], at: Tensor, *given: Tensor, step: float = 1e-6) -> Tensor:
    """The gradient of ``function(at, *given)`` () by central differences, in the shape of ``at``."""
    actual = torch.empty_like(at, dtype=torch.float64)
    for index in np.ndindex(*at.shape):
        away = torch.zeros_like(at)
        away[index] = step
        actual[index] = (function(at + away, *given) - function(at - away, *given)) / (2 * step)
    return actual
