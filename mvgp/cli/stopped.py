"""Stopped: an interrupt, and what is left of the work."""

from __future__ import annotations


class Stopped(Exception):
    """A command was interrupted; the message says what was kept."""
