"""Trust: how probable a candidate is, how long a list must be, and when there is too little to go by."""

from .calibration import Calibration, calibrate
from .cross_fit import CrossFit, cross_fit
from .record import Trust, false_discovery, longest_list, make_trust
from .top_places import TopPlaces, top_places

__all__ = [
    "Calibration",
    "CrossFit",
    "TopPlaces",
    "Trust",
    "calibrate",
    "cross_fit",
    "false_discovery",
    "longest_list",
    "make_trust",
    "top_places",
]
