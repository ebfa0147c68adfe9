"""All random numbers of the suite begin in one place, so that one number moves all of them."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests import fresh_process, randomness

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent
SEEDING = {"manual_seed", "default_rng", "Generator", "SeedSequence", "RandomState", "Random", "SystemRandom"}
GLOBAL_SEEDING = {"random", "hypothesis"}  # modules with a function called seed
IMPORTS = defaultdict(set, random=SEEDING | {"seed"}, hypothesis={"seed"}) | {"numpy.random": SEEDING | {"seed"}}
SETTINGS = {"derandomize", "database", "register_profile", "load_profile"}
EXEMPT = {"randomness.py"}


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def own_seeds(source):
    """Lines that seed, or make, a generator without tests/randomness.py."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called, keywords = node.func, {word.arg for word in node.keywords}
            named_seed = name_of(called) == "seed" and name_of(getattr(called, "value", None)) in GLOBAL_SEEDING
            if name_of(called) in SEEDING | SETTINGS or named_seed or keywords & SETTINGS:
                yield node.lineno
        elif isinstance(node, ast.ClassDef):  # the seed of the test cases of linear_operator and gpytorch
            for line in node.body:
                names = [name_of(target) for target in getattr(line, "targets", [])]
                if "seed" in names and isinstance(line.value, ast.Constant):
                    yield line.lineno
        elif isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} & IMPORTS[node.module]:
            yield node.lineno


@pytest.mark.parametrize(
    "source",
    [
        "torch.manual_seed(0)",
        "g = torch.Generator().manual_seed(3)",
        "r = np.random.default_rng(0)",
        "np.random.seed(1)",
        "random.seed(1)",
        "r = random.Random(2)",
        "from random import Random",
        "from numpy.random import default_rng",
        "from hypothesis import given, seed",
        "hypothesis.seed(1)(f)",
        "@settings(derandomize=True)\ndef test(): pass",
        "class TestIt:\n    seed = 0",
    ],
)
def test_the_guard_sees(source):
    assert list(own_seeds(source))


def test_nothing_seeds_by_itself():
    files = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    assert files.keys() >= EXEMPT
    found = [
        f"{name}:{line}" for name, path in files.items() if name not in EXEMPT for line in own_seeds(path.read_text())
    ]
    assert not found, f"take generators and seeds from tests/randomness.py: {found}"


CONFTEST = "from tests.conftest import _seed, pytest_collection_modifyitems\n"
DRAWS = """
from hypothesis import given, strategies as st
from tests import fresh_process, randomness
import torch

seen = []

class TestIt:
    @given(st.integers(0, 10**9))
    def test_examples(self, number):
        seen.append(number)

def test_draws():
    draws = [torch.rand(()), torch.rand((), generator=randomness.generator(1)), randomness.numpy_generator(1).random(),
             randomness.python_generator(1).random(), randomness.seed(1), hash(tuple(seen))]
    print("DRAWS", [float(x) for x in draws])
"""


def draws(folder, shift):
    """What the kinds of randomness give in a run of its own."""
    file = folder / "test_draws.py"
    file.write_text(DRAWS)
    (folder / "conftest.py").write_text(CONFTEST)
    arguments = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(folder), str(file)]
    code = f"import os, sys\nsys.path.insert(0, {str(TESTS.parent)!r})\nos.environ['MVGP_TEST_SEED'] = '{shift}'\n"
    run = fresh_process.run(f"{code}import pytest\nsys.exit(pytest.main({arguments!r}))\n", folder)
    (line,) = (line for line in run.stdout.splitlines() if "DRAWS" in line)
    return [float(number) for number in line.partition("[")[2].rstrip("].").split(",")]


def test_one_number_moves_all_and_the_same_number_gives_the_same_draws(tmp_path):
    plain, first, again = (draws(tmp_path, shift) for shift in (0, 1, 1))
    assert first == again
    assert all(one != other for one, other in zip(plain, first, strict=True))


def test_shifts_share_no_seed():
    assert randomness.STRIDE > 10**6  # the largest seed that the suite asks for
    assert randomness.seed(3) - randomness.seed(0) == 3
