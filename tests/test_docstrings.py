"""Every public name says what it is: a docstring with its parameters, shapes, and an equation or an example."""

import dataclasses
import importlib
import inspect
import pathlib
import pkgutil
import re
from enum import Enum

import pytest

import mvgp

DOCS = pathlib.Path(__file__).parent.parent / "docs"
REFERENCE = [*sorted(DOCS.glob("*.md")), *sorted((DOCS / "api").glob("*.md"))]
INTERNAL = {
    "mvgp.prioritise.tuning",
    "mvgp.checks",
    "mvgp.hooks",
    "mvgp.tensor_checks",
    "mvgp.prioritise.cli",
    "mvgp.prioritise.ranking",
}  # no names for users
FOUND = {info.name for info in pkgutil.walk_packages(mvgp.__path__, "mvgp.") if info.ispkg}
PACKAGES = sorted({"mvgp"} | FOUND - INTERNAL)
SHAPE = re.compile(
    r"\(\)|\((?:[A-Za-z0-9_+*. ]+,(?: ?[A-Za-z0-9_+*. ]+,?)*|\.\.\.[^)]*)\)|\b[A-Z] x [A-Z]\b|[A-Z] \+ 1,"
)
ERRORS = (BaseException,)


def described():
    """The names under which each object is described by an autodoc directive on some page, by identity."""
    times = {}
    for page in REFERENCE:
        text = page.read_text()
        for kind, path, options in re.findall(r"^\.\. auto(\w+):: ([\w.]+)\n((?:   .*\n)*)", text, re.MULTILINE):
            if kind != "module":
                things = [path]
            elif ":members:" in options:
                module = importlib.import_module(path)
                things = [f"{path}.{n}" for n, v in vars(module).items() if getattr(v, "__module__", None) == path]
            else:
                continue
            for thing in things:
                package, _, attribute = thing.rpartition(".")
                found = getattr(importlib.import_module(package), attribute)
                times.setdefault(id(found), []).append((thing, found, kind))
    return times


def public_names():
    """(name, object) of everything in some ``__all__`` or in the reference, once."""
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isroutine(thing):
                found.setdefault(id(thing), (f"{package}.{name}", thing))
    for (name, thing, kind), *_ in described().values():
        if kind != "module":
            found.setdefault(id(thing), (name, thing))
    return sorted(found.values(), key=lambda pair: pair[0])


NAMES = public_names()
CONSTANTS = [
    f"{package}.{name}"
    for package in PACKAGES
    for name in importlib.import_module(package).__all__
    if not (callable(getattr(importlib.import_module(package), name)) or name == "__version__")
]


def parameters(thing):
    """Names of what a caller passes, without what goes on to a base class as a whole."""
    if isinstance(thing, type) and issubclass(thing, ERRORS):
        return []
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in signature.parameters.values() if p.kind not in kinds and p.name not in ("self", "cls")]


def documented(thing):
    """Names with ``:param``, in the docstring or in that of a base class whose parameter it is."""
    texts = [thing.__doc__ or ""]
    if isinstance(thing, type):
        texts += [base.__doc__ or "" for base in thing.__mro__[1:] if base.__module__.startswith("mvgp")]
    return set(re.findall(r":param (\w+):", "\n".join(texts)))


def tensors(thing):
    """Names of the parameters that are tensors."""
    if isinstance(thing, type) and issubclass(thing, ERRORS):
        return []
    return [
        p.name for p in inspect.signature(thing).parameters.values() if re.match(r"Tensor( \| |$)", str(p.annotation))
    ]


def described_as(thing, name):
    """What is said of a parameter."""
    found = re.search(rf":param {name}:(.*?)(?=\n *:|\n\n|\Z)", thing.__doc__ or "", re.DOTALL)
    return found[1] if found else "(,)"  # inherited: looked at where it is written


OPTIONS = {"batch_shape", "active_dims", "dtype"}  # gpytorch's own, and the precision, wherever they are the usual ones


def test_there_are_names():
    assert len(NAMES) > 120
    assert {"mvgp.testing", "mvgp.posteriors", "mvgp.prioritise.studies"} <= set(PACKAGES)


@pytest.mark.parametrize(("name", "thing"), NAMES, ids=[name for name, _ in NAMES])
def test_a_public_name_is_explained(name, thing):
    text = inspect.cleandoc(thing.__dict__.get("__doc__") or "" if isinstance(thing, type) else thing.__doc__ or "")
    assert len(text.split()) >= 4, f"{name}: no docstring of its own"
    if isinstance(thing, type) and issubclass(thing, (Enum, *ERRORS)):
        return
    missing = [p for p in parameters(thing) if p not in documented(thing) | OPTIONS and not p.endswith("_constraint")]
    protocol = getattr(thing, "_is_protocol", False)
    assert protocol or not missing, f"{name}: no :param for {missing}"
    shown = ">>>" in text or ":math:" in text or ".. math::" in text
    record = dataclasses.is_dataclass(thing) and not hasattr(thing, "fit")  # its parts are all there is to say
    assert protocol or shown or record, f"{name}: neither an example nor an equation"
    unshaped = [p for p in tensors(thing) if p in documented(thing) and not SHAPE.search(described_as(thing, p))]
    assert not unshaped, f"{name}: no shape of {unshaped}"


def makes(thing):
    """Whether users construct it: not an error, an enumeration, a protocol, or a record that a function returns."""
    kinds = (Enum, *ERRORS)
    return isinstance(thing, type) and not (
        issubclass(thing, kinds) or getattr(thing, "_is_protocol", False) or dataclasses.is_dataclass(thing)
    )


# Classes that something else makes, and the class or function whose example shows it.
MADE_BY = {
    "GaussianPosterior": "FullGP",
    "ScalablePosterior": "FullGP",
    "FullPosterior": "FullGP",
    "Fantasies": "FullGP",
    "PosteriorCovarianceLinearOperator": "FullGP",
    "TracePosterior": "TraceGP",
    "TraceSumPosterior": "TraceGP",
    "BiasedSquaredLoss": "TraceGP",
    "FactorPosterior": "FactorGP",
    "PairRanker": "PairwiseSVM",
    "PointwiseLoss": "LogisticLikelihood",
    "RankingLikelihood": "BipartiteRankingLikelihood",
    "ChebyshevLinearOperator": "DiffusionKernel",
    "GramLinearOperator": "FeatureKernel",
    "SpectralKroneckerLinearOperator": "MatrixGP",
}


def test_every_class_that_users_construct_has_an_example():
    """``test_documents.py`` runs them. What only a fit returns is shown where the fit is."""
    shown = {thing.__name__ for _, thing in NAMES if ">>>" in (thing.__doc__ or "")}
    contracts = {name for name, _ in NAMES if name.startswith("mvgp.testing.")}  # docs/extending.md runs these
    missing = {
        name: thing.__name__
        for name, thing in NAMES
        if makes(thing) and thing.__name__ not in shown and name not in contracts
    }
    assert not [name for name, own in missing.items() if MADE_BY.get(own) not in shown]
    assert set(MADE_BY) <= set(missing.values()), "has an example by now"


@pytest.mark.parametrize(("name", "thing"), NAMES, ids=[name for name, _ in NAMES])
def test_public_methods_are_explained(name, thing):
    if not isinstance(thing, type):
        return
    for member, value in vars(thing).items():
        own = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not member.startswith("_") and inspect.isfunction(own):
            assert (own.__doc__ or "").strip(), f"{name}.{member}"


# The reference on the site -----------------------------------------------------------------------


def test_every_public_name_is_in_the_reference_once():
    times = described()
    assert not [name for name, thing in NAMES if id(thing) not in times]
    assert not [places for places in times.values() if len(places) > 1]


def test_every_public_constant_is_in_the_reference_once():
    """They have no docstring, so the page says what they are."""
    text = "\n".join(page.read_text() for page in REFERENCE)
    assert len(CONSTANTS) >= 3
    for name in CONSTANTS:
        assert len(re.findall(rf"^\.\. py:data:: {re.escape(name)}\n\n   \w+", text, re.MULTILINE)) == 1, name
