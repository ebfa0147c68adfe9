"""Settings of the test suite."""

import pytest

from tests import randomness

randomness.set_up_hypothesis()


def pytest_collection_modifyitems(items):
    for item in items:
        test = getattr(item, "obj", None)
        randomness.seed_examples(getattr(test, "__func__", test))


@pytest.fixture(autouse=True)
def _seed():
    randomness.seed_torch(0)
