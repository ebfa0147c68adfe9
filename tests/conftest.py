"""Settings of the test suite."""

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("mvgp", deadline=None, derandomize=True)
hypothesis.settings.load_profile("mvgp")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
