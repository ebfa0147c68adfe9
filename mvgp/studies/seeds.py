"""The seed of everything random in a study, each independent of the order in which units run."""

from __future__ import annotations

import zlib

import numpy as np

STAGES = ("choice", "fit", "score", "calibration", "candidates")


def unit_seed(seed: int, stage: str, fold: int = 0, negatives: int = 0, model: str = "") -> int:
    """A seed that follows from the study's own and the place of the unit.

    Without ``model`` it is the same for all of them: they are compared on the same negatives and the same validation
    part.
    """
    entropy = [seed, STAGES.index(stage), fold, negatives, zlib.crc32(model.encode())]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])
