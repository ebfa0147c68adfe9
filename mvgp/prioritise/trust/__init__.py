"""Trust: how probable a candidate is, how long a list must be, and when there is too little to go by."""

from .calibration import Calibration, calibrate, expected_calibration_error
from .cross_fit import CrossFit, cross_fit
from .record import Trust, false_discovery, longest_list, make_trust

__all__ = [
    "Calibration",
    "CrossFit",
    "Trust",
    "calibrate",
    "cross_fit",
    "expected_calibration_error",
    "false_discovery",
    "longest_list",
    "make_trust",
]
