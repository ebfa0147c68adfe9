"""Everything readable is executed: README, docs, and the examples in docstrings."""

import doctest
import importlib
import importlib.util
import itertools
import pathlib
import pkgutil
import re

import pytest

import mvgp
from tests import fresh_process

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
NOT_OURS = (DOCS / "_build", DOCS / "tutorials")  # made from the others; notebooks have tests of their own
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *(page for page in sorted(DOCS.rglob("*.md")) if not any(page.is_relative_to(folder) for folder in NOT_OURS)),
]
OTHER_FENCES = {
    "bibtex",
    "console",
    "output",
    "text",
    "{eval-rst}",
    "{image}",
    "{include}",
    "{math}",
    "{toctree}",
}  # no Python
FENCE = re.compile(r"[ \t]*(?P<mark>`{3,}|~{3,}|:{3,})[ \t]*(?P<info>.*)")


def fences(text):
    """(first word of its opening line, or "output" for ``text output``, text) of every fenced block."""
    found, mark = [], None
    for line in text.splitlines():
        match = FENCE.fullmatch(line)
        if mark is None and match:
            mark, lines, words = match["mark"], [], match["info"].split() or [""]
            found.append(("output" if words == ["text", "output"] else words[0], lines))
        elif match and match["mark"].startswith(mark) and not match["info"]:
            mark = None
        elif mark is not None:
            lines.append(line)
    assert mark is None, "a fence that does not end"
    return [(kind, "\n".join(lines) + "\n") for kind, lines in found]


FENCES = [(page, kind, code) for page in PAGES for kind, code in fences(page.read_text())]


def blocks(page):
    """(code, what the page says that it prints or None) of every Python block of a page."""
    here = [(kind, code) for where, kind, code in FENCES if where == page]
    return [
        (code, after if next_kind == "output" else None)
        for (kind, code), (next_kind, after) in itertools.pairwise([*here, ("", "")])
        if kind == "python"
    ]


BLOCKS = [(page, number, *block) for page in PAGES for number, block in enumerate(blocks(page))]
MODULES = sorted(info.name for info in pkgutil.walk_packages(mvgp.__path__, "mvgp."))
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?(?!\w)")


def same_output(printed, stored):
    """Equal texts but for white space; a number with decimals may differ by one unit of its last stored digit."""

    def parts(text):
        return ["".join(part.split()) for part in NUMBER.split(text)], NUMBER.findall(text)

    def near(found, expected):
        mantissa, _, exponent = expected.partition("e")
        decimals = mantissa.partition(".")[2]
        tolerance = 1.001 * 10.0 ** (int(exponent or 0) - len(decimals)) if decimals else 0.0
        return abs(float(found) - float(expected)) <= tolerance

    (words, numbers), (stored_words, stored_numbers) = parts(printed), parts(stored)
    return words == stored_words and all(map(near, numbers, stored_numbers))


def test_nothing_is_left_out():
    """A block is executed, or is of a kind that cannot be; code that came in another way would be seen by nobody."""
    strange = {(page.name, kind) for page, kind, _ in FENCES if kind != "python" and kind not in OTHER_FENCES}
    assert not strange, f"neither executed nor known to be no code: {strange}"
    other_ways = re.compile(
        r"code-block|code-cell|literalinclude|sourcecode|testcode|^\.\. code::|<pre|^ *>>> ", re.MULTILINE
    )
    assert not [page.name for page in PAGES if other_ways.search(page.read_text())]
    assert len(BLOCKS) >= 29
    assert len(MODULES) >= 100


@pytest.mark.parametrize(
    "text",
    [
        "```py\n1\n```",
        "```\n1\n```",
        "~~~ python3\n1\n~~~",
        "- a list\n\n    ```{code-cell}\n    1\n    ```",
        ":::{code-block} python\n1\n:::",
    ],
)
def test_the_guard_sees_code_however_it_is_written(text):
    [(kind, code)] = fences(text)
    assert kind not in {"python", *OTHER_FENCES}
    assert "1" in code


def test_the_guard_reads_fences_as_they_are_nested():
    assert fences("````text\n```python\n1\n```\n````\n```python\n2\n```") == [
        ("text", "```python\n1\n```\n"),
        ("python", "2\n"),
    ]


def test_every_output_follows_its_code():
    assert sum(kind == "output" for _, kind, _ in FENCES) == sum(stored is not None for *_, stored in BLOCKS) >= 3


@pytest.mark.parametrize(
    ("printed", "stored", "same"),
    [
        ("tensor([ 0.9731, -2.0000])\n", "tensor([0.9730, -2.0000])", True),
        ("tensor([0.9732])", "tensor([0.9730])", False),
        ("rank 7", "rank 8", False),
        ("1.2e-09 of IL13", "1.3e-09 of IL13", True),
        ("mean 0.5 of IL13", "mean 0.5 of IL4", False),
        ("0.5 0.6", "0.5", False),
    ],
)
def test_outputs_are_compared_by_their_printed_digits(printed, stored, same):
    assert same_output(printed, stored) == same


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "number", "code", "stored"), BLOCKS, ids=[f"{page.name}-{number}" for page, number, *_ in BLOCKS]
)
def test_code_blocks_run(page, number, code, stored, tmp_path):
    """In a process of their own, as a reader would; they print what the page says, where it does."""
    if "botorch" in code and importlib.util.find_spec("botorch") is None:  # our extra "bench", not "test"
        pytest.skip("needs BoTorch")
    done = fresh_process.run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert stored is None or same_output(done.stdout, stored), done.stdout


@pytest.mark.slow
def test_a_process_of_its_own_tells_what_went_wrong(tmp_path):
    done = fresh_process.run("import sys; print(sys.argv[0], 'mvgp' in sys.modules)\nraise OSError('here')", tmp_path)
    assert done.returncode == 1
    assert "False" in done.stdout
    assert "OSError: here" in done.stderr
    assert fresh_process.run("import os, sys; print(os.getcwd()); sys.exit(3)", tmp_path).returncode == 3
    assert not list(tmp_path.iterdir())


def test_the_readme_example_is_short_and_the_commands_are_shown():
    text = (ROOT / "README.md").read_text()
    first = next(code for page, _, code, _ in BLOCKS if page.name == "README.md")
    lines = [line for line in first.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert len(lines) <= 15
    assert "make demo" in text
    assert "make test" in text


def load_readability():
    spec = importlib.util.spec_from_file_location("readability", DOCS / "readability.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sentences_are_short():
    """Below 25 words on average on every page; code, equations, tables and headings do not count."""
    readability = load_readability()
    text = "# Title\n\nOne two `a, b` four. Then five words are here:\n\n- an item, and more\n\n| a | table. |\n"
    assert [len(part.split()) for part in readability.sentences(text)] == [4, 5, 4]
    averages = {page.name: readability.words_per_sentence(page.read_text()) for page in PAGES}
    assert not {name: round(average, 1) for name, average in averages.items() if average >= 25}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.failed == 0


def test_links_between_pages_resolve():
    for page in PAGES:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text) + re.findall(r'src(?:set)?="([^"]+)"', text):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
