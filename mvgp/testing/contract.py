"""Contract: what every contract is made of, and a way to run one without a test runner."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor


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
        """``holds`` is true.

        :param holds: a bool or a tensor () of one.
        :param rule: what is expected, for the message.
        """
        if not bool(holds):
            raise AssertionError(f"{self.contract_name()}: {rule}")

    def require_close(
        self, found: Tensor, wanted: Tensor, rule: str, *, relative: float = 1e-8, absolute: float | None = None
    ) -> None:
        """Two tensors agree in shape, dtype and value.

        :param found: (...) what the object gave.
        :param wanted: (...) what it should have given.
        :param rule: what is expected, for the message.
        :param relative: largest error, relative to each number.
        :param absolute: largest error otherwise; ``relative`` times the largest number when left out.
        """
        largest = float(wanted.detach().abs().max()) if wanted.numel() else 0.0
        torch.testing.assert_close(
            found,
            wanted,
            rtol=relative,
            atol=relative * largest if absolute is None else absolute,
            msg=lambda reason: f"{self.contract_name()}: {rule}\n{reason}",
        )

    def require_refusal(self, call: Any, rule: str) -> None:
        """``call()`` raises a ``ValueError`` (as ``InputError`` is) or an ``IndexError``.

        :param call: without arguments.
        :param rule: what is expected, for the message.
        """
        try:
            call()
        except (ValueError, IndexError):
            return
        raise AssertionError(f"{self.contract_name()}: {rule}")


def rounding(dtype: torch.dtype) -> float:
    """A relative error that well-behaved algebra in ``dtype`` stays below on small problems."""
    return 1e-8 if dtype == torch.float64 else 1e-4
