"""Settings of the test suite."""

import gpytorch.settings
import linear_operator.settings
import pytest
import torch

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


@pytest.fixture
def one_thread():
    """For tests of bits: with several threads, libraries share sums among fewer of them when the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
