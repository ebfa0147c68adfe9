"""The version of the package: one place, which everything that states it reads."""

from __future__ import annotations

__version__ = "0.1.0"
