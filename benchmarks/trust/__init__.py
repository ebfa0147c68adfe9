"""Figures of trust: what was tried, what failed, and how long it took. ``python -m benchmarks.trust --help``."""
