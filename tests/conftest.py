"""Settings of the test suite."""

import gpytorch.settings
import linear_operator.settings
import pytest

from tests import randomness

randomness.set_up_hypothesis()

# `import botorch` changes these for the whole process; every test begins with what the libraries have by themselves
LIBRARY_SETTINGS = [
    (setting, name, getattr(setting, name))
    for setting, name in (
        (linear_operator.settings._fast_covar_root_decomposition, "_default"),
        (linear_operator.settings._fast_log_prob, "_default"),
        (linear_operator.settings._fast_solves, "_default"),
        (linear_operator.settings.cholesky_max_tries, "_global_value"),
        (linear_operator.settings.max_cholesky_size, "_global_value"),
        (gpytorch.settings.max_eager_kernel_size, "_global_value"),
    )
]


def pytest_collection_modifyitems(items):
    for item in items:
        test = getattr(item, "obj", None)
        randomness.seed_examples(getattr(test, "__func__", test))


@pytest.fixture(autouse=True)
def _seed():
    randomness.seed_torch(0)


@pytest.fixture(autouse=True)
def _library_settings():
    for setting, name, value in LIBRARY_SETTINGS:
        setattr(setting, name, value)
