"""The plan: every line, in the order of the page."""

from __future__ import annotations

import torch

from benchmarks.trust.plan import Line
from benchmarks.trust.sections import calibration, calls, certificates, faults, files, load, names, numerics, platforms

torch.set_num_threads(1)

LINES: list[Line] = [
    line
    for section in (files, numerics, certificates, calls, names, faults, load, calibration, platforms)
    for line in section.LINES
]
