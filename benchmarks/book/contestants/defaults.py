"""Importing BoTorch changes GPyTorch's settings for the whole process. Here they are put back, and BoTorch gets its own for its turn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import botorch  # noqa: F401, it has to have changed them before they are put back
import gpytorch
from linear_operator import settings

for flag in (settings._fast_covar_root_decomposition, settings._fast_log_prob, settings._fast_solves):
    flag._default = True
settings.cholesky_max_tries._global_value = 3
settings.max_cholesky_size._global_value = 800
gpytorch.settings.max_eager_kernel_size._global_value = 512


@contextlib.contextmanager
def botorch_settings() -> Iterator[None]:
    """What importing it sets, except that no system is too small for its iterative methods: up to 4,096 observations it would
    build the covariance from its parts, which takes a minute.
    """
    with (
        settings.cholesky_max_tries(6),
        settings.max_cholesky_size(1),
        gpytorch.settings.max_eager_kernel_size(4096),
    ):
        yield
