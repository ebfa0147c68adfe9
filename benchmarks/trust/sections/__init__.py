"""The plan: every line, in the order of the page."""

from __future__ import annotations

import torch

from benchmarks.trust.plan import Line
from benchmarks.trust.sections import files

torch.set_num_threads(1)

LINES: list[Line] = [*files.LINES]
