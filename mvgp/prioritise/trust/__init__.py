"""Trust: how probable a candidate is, how long a list must be, and when there is too little to go by."""

from .cross_fit import CrossFit, cross_fit

__all__ = ["CrossFit", "cross_fit"]
