"""Setting: what a choice has settled, enough to fit a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """One point of what is chosen among.

    :param family: "sampled", "whole" or "whole-popular" of ``TraceGP``, or the name of the model whose grid it is from.
    :param text: for people.
    :param score: of the validation.
    :param trace_share: of ``TraceGP``.
    :param strength: of ``TraceGP``.
    :param place: in the grid of any other model.
    """

    family: str
    text: str
    score: float
    trace_share: float = 1.0
    strength: float = 1.0
    place: int = 0

    @property
    def key(self) -> str:
        """The same for equal fits."""
        if self.family in ("sampled", "whole", "whole-popular"):
            return f"{self.family}_{self.trace_share:g}_{self.strength:.8g}"
        return f"{self.family}_{self.place}"
