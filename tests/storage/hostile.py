"""Hostile files: saved posteriors, damaged or forged by a seed, and what becomes of those that are loaded.

Shared by the tests, which run a few hundred, and by ``benchmarks/hostile_files.py``, which runs as many as it is told.
"""

import contextlib
import copy
import hashlib
import math
import re
import signal
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field

import gpytorch.kernels as theirs
import numpy as np
import torch

import mvgp
from mvgp.errors import InputError, MvgpError, SizeError, StorageError
from mvgp.posteriors.covariance import NoCovariance
from tests import randomness
from tests.storage import examples, forgery
from tests.storage.forgery import built, header, manifest, numbers, packed, signed
from tests.storage.test_parts import MEANS, ON_INPUTS, ON_NODES, WIDE, fit

SECONDS = 5.0  # of the processor; a file that takes more is a hang
EXTRA = 500 * 2**20  # bytes of memory beyond what there was before the file
CELLS = torch.tensor([0, 6, 3, 3, 2]), torch.tensor([10, 0, 4, 5, 5])

# ---------------------------------------------------------------------------------------------------- saved posteriors


def makers():
    """Functions of nothing, by name: a posterior of every kind, kernel, mean and covariance."""
    found = {}
    for dtype, label in ((torch.float64, ""), (torch.float32, ", single")):
        for name, make in examples.POSTERIORS.items():
            found[name + label] = lambda make=make, dtype=dtype: make(dtype)
        found["whole lists beyond the limit" + label] = lambda dtype=dtype: examples.listed(dtype)
        found["no covariance" + label] = lambda dtype=dtype: examples.silent(dtype)
        found["scaled" + label] = lambda dtype=dtype: examples.POSTERIORS["trace"](dtype).rescaled(3.0)
    for name, make in ON_NODES.items():
        found[f"kernel: {name}"] = lambda make=make: fit(make())
    for name, make in ON_INPUTS.items():
        found[f"kernel: {name}"] = lambda make=make: fit(make(), WIDE)
    for name, make in MEANS.items():
        if "of inputs" in name:
            found[f"mean: {name}"] = lambda make=make: fit(theirs.RBFKernel(), WIDE, mean=make())
        else:
            found[f"mean: {name}"] = lambda make=make: fit(examples.DiffusionKernel(examples.COLS), None, mean=make())
    return found


@dataclass(frozen=True)
class Saved:
    """One posterior in a file.

    :param data: the bytes.
    :param answers: what it answers.
    :param manifest: of the file.
    :param arrays: numpy arrays by name.
    """

    name: str
    data: bytes
    answers: dict
    manifest: dict
    arrays: dict


def save_all(folder, names=None):
    """Every posterior of :func:`makers`, or some."""
    path, found = folder / "saved", []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in makers().items():
            if names is None or name in names:
                posterior = make()
                posterior.save(path)
                data = path.read_bytes()
                found.append(Saved(name, data, ask(posterior), manifest(data), forgery.arrays(data)))
    return found


# --------------------------------------------------------------------------------------------------------- the queries


def _questions(posterior):
    rows, cols = CELLS
    seeded = lambda: randomness.generator(5)  # noqa: E731
    yield "scores", lambda: posterior.scores()
    yield "mean", lambda: posterior.mean(rows, cols)
    yield "variance", lambda: posterior.variance(rows, cols)
    yield "variances", lambda: posterior.variances([1, 3]).values
    yield (
        "covariance",
        lambda: posterior.covariance() @ torch.ones(math.prod(posterior.shape), 1, dtype=posterior.prior.dtype),
    )
    yield "call", lambda: posterior(rows, cols).covariance_matrix
    yield "sample", lambda: posterior.sample(rows, cols, 2, generator=seeded())
    yield "joint", lambda: posterior.joint(rows, cols).matrix
    yield "joint sample", lambda: posterior.joint(rows, cols).sample(2, seeded())
    yield "interval", lambda: torch.stack(posterior.interval(rows, cols))
    yield (
        "top",
        lambda: torch.stack([getattr(posterior.top(2, 3, num_samples=40), n).double() for n in ("mean", "std")]),
    )
    yield "top probability", lambda: posterior.top_probability(4, 3, num_samples=40)
    yield "rank interval", lambda: torch.stack(posterior.rank_interval(0, num_samples=40))
    yield "beats", lambda: torch.tensor(posterior.beats(1, 2, 3))
    yield "next tests", lambda: posterior.next_tests(3, 2, 3, num_samples=40).gain
    yield "prior mean", lambda: posterior.prior.mean_matrix().detach()
    yield "prior sample", lambda: posterior.prior.sample(seeded())
    if hasattr(posterior, "certificate") and posterior.certificate is not None:
        yield "certificate", lambda: torch.tensor([posterior.certificate.relative_gap, posterior.certificate.rank])
    if getattr(posterior, "solve_report", None) is not None:
        yield "solve report", lambda: torch.tensor([posterior.solve_report.residual, posterior.solve_report.tolerance])
    if hasattr(posterior, "factors"):
        yield "factors", lambda: torch.cat([part.flatten() for part in _flat(posterior.factors)])
    if hasattr(posterior, "rescaled"):
        yield "rescaled", lambda: posterior.rescaled(2.0).variance(rows, cols)
        yield "calibrated", lambda: posterior.calibrated().variance(rows, cols)
    each = [term.col_axis.inputs[:2] for term in posterior.prior.terms]
    new = each[0] if len(each) == 1 else each
    yield "new mean", lambda: posterior.mean([1, 2], [0, 1], col_inputs=new)
    yield "new variance", lambda: posterior.variance([1, 2], [0, 1], col_inputs=new)
    yield "text", lambda: torch.tensor(float(len(repr(posterior))))


def _flat(factors):
    """Those of one term, or of each term that has some."""
    return [part for own in factors if own is not None for part in (own if isinstance(own, tuple) else (own,))]


def ask(posterior):
    """Every answer by name: a tensor, or the class of the error that mvgp gives."""
    found = {}
    try:
        questions = list(_questions(posterior))
    except InputError:  # factors of a mean that has none
        questions = list(_questions(_WithoutFactors(posterior)))
    for name, question in questions:
        try:
            found[name] = question()
        except MvgpError as error:
            found[name] = type(error)
    return found


class _WithoutFactors:
    """A posterior without the property that raises."""

    def __init__(self, posterior):
        self._posterior = posterior

    def __getattr__(self, name):
        if name == "factors":
            raise AttributeError(name)
        return getattr(self._posterior, name)

    def __call__(self, *args):
        return self._posterior(*args)

    def __repr__(self):
        return repr(self._posterior)


DESIGNED = {  # refusals that are answers
    "covariance": (SizeError,),
    "calibrated": (InputError,),
    "new mean": (InputError,),
    "new variance": (InputError,),
}


def failing(posterior, answers, expected):
    """What is wrong with the answers of a loaded posterior, or None."""
    silent = isinstance(posterior.conditional, NoCovariance)
    for name, answer in answers.items():
        if isinstance(answer, type):
            allowed = expected.get(name) is answer or answer in DESIGNED.get(name, ())
            if not allowed and not (silent and answer in (InputError, SizeError)):
                return f"{name}: {answer.__name__} after it was loaded"
        elif not bool(torch.isfinite(answer).all()):
            return f"{name}: not finite"
    return _inconsistent(posterior, answers)


def _inconsistent(posterior, answers):
    """Answers that contradict one another."""
    rows, cols = CELLS
    scores, mean = answers["scores"], answers["mean"]
    size = float(scores.double().abs().max()) + float(answers["prior mean"].double().abs().max()) + 1e-300
    if hasattr(posterior.coefficients, "values"):  # what cancels leaves rounding errors of the size of its parts
        kernels = [[float(op.to_dense().abs().max()) for op in ops] for ops in posterior._terms]
        largest = float(posterior.coefficients.values.double().abs().max())
        size += largest * sum(row * col for row, col in kernels)
    if float((scores[rows, cols] - mean).abs().max()) > 1e-3 * size:
        return "mean and scores differ"
    variance, joint = answers["variance"], answers["joint"]
    if isinstance(variance, type) or isinstance(joint, type):
        return None
    diagonals = [[op.to_dense().diagonal().detach() for op in ops] for ops in posterior._terms]
    prior = sum(row[rows] * col[cols] for row, col in diagonals) * getattr(posterior, "scale", 1.0)
    laplace = type(posterior.conditional).__name__ == "LaplaceCovariance"
    slack = 0.02 * prior.abs().max() + 1e-300
    if bool((variance < 0).any()) or (not laplace and bool((variance > prior + slack).any())):
        return "variance outside [0, prior]"
    if not laplace and float((joint.diagonal() - variance).abs().max()) > float(slack):
        return "variance and joint covariance differ"
    return None


def same(one, two):
    """Whether all answers are equal bit for bit."""
    return one.keys() == two.keys() and all(
        (answer is two[name])
        if isinstance(answer, type) or isinstance(two[name], type)
        else torch.equal(answer, two[name])
        for name, answer in one.items()
    )


# -------------------------------------------------------------------------------------------------------------- damage


def damaged(saved, rng, signed_share=0.7):
    """Bytes that were changed without a thought; a share of them signed again."""
    data = bytearray(saved.data)
    kind = rng.choice(
        ("flip", "flip", "cut", "insert", "delete", "swap", "zero", "length", "entries", "entries", "manifest")
    )
    size = len(data)
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 2, 8, 50))):
            data[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        data = data[: rng.randrange(size)]
    elif kind == "insert":
        at = rng.randrange(size)
        data[at:at] = rng.randbytes(rng.randrange(1, 40))
    elif kind == "delete":
        at = rng.randrange(size)
        del data[at : at + rng.randrange(1, 200)]
    elif kind == "swap":
        length = rng.randrange(1, 200)
        one, two = sorted(rng.randrange(max(1, size - length)) for _ in range(2))
        data[one : one + length], data[two : two + length] = data[two : two + length], data[one : one + length]
    elif kind == "zero":
        at = rng.randrange(size)
        length = min(rng.randrange(1, 300), size - at)
        data[at : at + length] = bytes([rng.choice((0, 255))]) * length
    elif kind == "length":
        length = rng.choice(
            (0, 1, 8, size, size - 8, 2**20, 2**31, 2**32, 2**62, 2**63, 2**64 - 1, rng.randrange(size))
        )
        data[:8] = length.to_bytes(8, "little")
    elif kind == "entries":
        _edit_entries(data, rng)
    else:
        place = data.index(b"format") + 6
        data[place + rng.randrange(3000) % max(1, size - place)] = rng.choice(b'0123456789{}[]",:.-eEnul\\\x00\x1b')
    again = len(data) > 200 and rng.random() < signed_share
    return f"bytes, {kind}{', signed' if again else ''}", signed(bytes(data)) if again else bytes(data)


def _edit_entries(data, rng):
    """A letter or a number of the entries of the arrays becomes something else."""
    start, end = data.index(b'}"},"') + 4, 8 + int.from_bytes(data[:8], "little")
    runs = list(re.finditer(rb"\d+|F64|F32|I64|BOOL|shape|dtype|data_offsets", data[start:end]))
    run = rng.choice(runs)
    words = (
        b"0",
        b"1",
        b"7",
        b"8",
        b"-1",
        b"1.5",
        b"999",
        b"1099511627776",
        b"9" * 19,
        b"9" * 30,
        b"F32",
        b"I64",
        b"U8",
        b"",
    )
    word = rng.choice(words)
    length = len(run.group())
    if rng.random() < 0.5:  # in its place, or with a header of the right length
        data[start + run.start() : start + run.end()] = word[:length].ljust(length)
    else:
        data[start + run.start() : start + run.end()] = word
        data[:8] = (end - 8 + len(word) - length).to_bytes(8, "little", signed=False)


# ------------------------------------------------------------------------------------------------------------- forgery

VALUES = [
    None, True, False, 0, 1, -1, 2, 3, 7, 11, 12, 10**6, 2**31, 2**62, 2**63, 2**70, -(2**70), 10**400,
    0.0, -0.0, 0.5, -1.5, 1e-300, 5e-324, 1e-12, 1e12, 1e300, 1.7976931348623157e308,
    "", "x", "nan", "\x1b[31m", "a" * 5000, "sparse", "low rank", "conditional", "laplace", "whole lists", "scaled", "none",
    "auto", "eigen", "chebyshev", "cg", "cholesky", "spectral", "float32", "float64", "Positive", "GreaterThan", "LessThan",
    "Interval", "InputError", "SizeError", "Exception", "TraceBall", "SpectralElasticNet", "FullPosterior", "TracePosterior",
    "FactorPosterior", "RBFKernel", "CosineKernel", "LinearKernel", "DiffusionKernel", "ZeroMean", "ConstantMean",
    [], {}, [[]], [1, 2], [0], [0] * 100, {"$number": "inf"}, {"$number": "-inf"}, {"$number": "nan"}, {"$number": "x"},
    {"$array": "nothing"}, {"$array": 3}, {"$array": None}, {"kind": "scaled"},
]  # fmt: skip
NUMBERS = [math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1.0, 1e-300, 5e-324, 1e300, -1e300, 1e30, 1e-30, 1e8, -1e8]
WHOLES = [-1, 0, 1, 2, 6, 7, 10, 11, 12, 77, 2**31, 2**40, 2**62, -(2**63)]


def places(tree, path=()):
    """Where something is in a tree of JSON."""
    if path:
        yield path
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(value, (*path, key))


def at(tree, path):
    for key in path:
        tree = tree[key]
    return tree


def forged(saved, rng, others):
    """A file with a right checksum, one or a few parts of which are something else."""
    text, arrays = copy.deepcopy(saved.manifest), dict(saved.arrays)
    kind = rng.choice(KINDS)
    for _ in range(1 if kind == "nest" else rng.choice((1, 1, 1, 2, 4))):
        with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            FORGERIES[kind](text, arrays, rng, others)  # the change before may have left nothing to change
    data = built(text, {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()})
    if arrays and rng.random() < 0.05:
        kind, data = "entry", _lie(data, rng, text)
    return f"forged, {kind}", data


def _lie(data, rng, text):
    """Entries that are wrong about their arrays: type, shape, offsets; or arrays on top of one another."""
    entries = header(data)
    del entries["__metadata__"]
    name = rng.choice(sorted(entries))
    key = rng.choice(("dtype", "shape", "data_offsets", "more", None))
    if key is None:
        entries[name] = dict(entries[rng.choice(sorted(entries))])
    elif key == "data_offsets":
        begin, end = entries[name][key]
        entries[name][key] = rng.choice(
            (
                [begin + 8, end + 8],
                [begin, end + 8],
                [0, 2**62],
                [2**63, 2**64],
                [end, begin],
                [0, 0],
                [-8, end],
                [begin],
            )
        )
    else:
        entries[name][key] = copy.deepcopy(
            rng.choice([*VALUES, "F32", "I64", "U8", [2**40], [-1], [1] * 9, [0, 2**62]])
        )
    return packed(text, entries, numbers(data))


def _value(text, arrays, rng, others):
    spots = list(places(text["content"]))
    path = rng.choice(spots)
    at(text["content"], path[:-1])[path[-1]] = copy.deepcopy(rng.choice(VALUES))


def _number(text, arrays, rng, others):
    """A number becomes another number."""
    spots = [p for p in places(text["content"]) if type(at(text["content"], p)) in (int, float)]
    if not spots:
        return
    path = rng.choice(spots)
    was = at(text["content"], path)
    new = rng.choice([was * 2, was / 3, -was, was + 1, was - 1, was * 1e6, 1e-9, 10**9, 0, 1, 3, {"$number": "inf"}])
    at(text["content"], path[:-1])[path[-1]] = int(new) if type(was) is int and type(new) is float else new


def _key(text, arrays, rng, others):
    """A part is gone, there is one more, or two have changed places."""
    spots = [(), *(p for p in places(text["content"]))]
    named = [p for p in spots if isinstance(at(text["content"], p), dict) and at(text["content"], p)]
    inside = at(text["content"], rng.choice(named))
    action = rng.randrange(4)
    if action == 0:
        del inside[rng.choice(sorted(inside))]
    elif action == 1:
        inside[rng.choice(("more", "kind", "values", "", "__class__", "$array", "\x00"))] = rng.choice(VALUES)
    elif action == 2:
        one, two = rng.choice(sorted(inside)), rng.choice(sorted(inside))
        inside[one], inside[two] = inside[two], inside[one]
    else:
        one, two = rng.choice(spots[1:]), rng.choice(spots[1:])
        at(text["content"], one[:-1])[one[-1]] = copy.deepcopy(at(text["content"], two))


def _top(text, arrays, rng, others):
    """Something in the manifest outside the content."""
    if rng.random() < 0.5:
        text[rng.choice(("format", "version", "written_by", "fortran_order", "content", "more"))] = rng.choice(VALUES)
    elif rng.random() < 0.5:
        text["fortran_order"] = rng.sample(sorted(arrays), rng.randrange(len(arrays) + 1))
    else:
        arrays[rng.choice(("../x", "a.b", "x" * 300, "", "a b"))] = np.zeros(3)


def _reference(text, arrays, rng, others):
    """An array stands where another should."""
    spots = [p for p in places(text["content"]) if p[-1] == "$array"]
    if not spots or not arrays:
        return
    path = rng.choice(spots)
    at(text["content"], path[:-1])["$array"] = rng.choice(sorted(arrays))


def _entry(text, arrays, rng, others):
    """One number of an array, or all of them, or how they stand."""
    if not arrays:
        return
    name = rng.choice(sorted(arrays))
    array = arrays[name].copy(order="K")
    action = rng.randrange(10)
    with np.errstate(all="ignore"):
        if action < 4 and array.size:
            where = tuple(rng.randrange(size) for size in array.shape)
            array[where] = rng.choice(NUMBERS if array.dtype.kind == "f" else WHOLES)
        elif action == 4:
            array[...] = rng.choice(NUMBERS if array.dtype.kind == "f" else WHOLES)
        elif action == 5 and array.dtype.kind == "f":
            array = array * array.dtype.type(rng.choice((-1, 0, 1e-6, 1e6, 1e-200, 1e200, 2)))
        elif action == 6 and array.ndim:
            array = array[rng.sample(range(len(array)), len(array))]
        elif action == 7:
            array = array.T.copy() if array.ndim == 2 else array[..., None] if rng.random() < 0.5 else array[None]
        elif action == 8 and array.ndim and len(array):
            array = rng.choice(
                (
                    array[1:],
                    array[:-1],
                    array[:0],
                    np.concatenate([array, array[:1]]),
                    np.tile(array, (2,) + (1,) * (array.ndim - 1)),
                )
            )
        else:
            array = array.astype(rng.choice(("float32", "float64", "int64", "int32", "bool")))
    arrays[name] = np.asarray(array)


def _kernel_paths(text):
    return [
        p
        for p in places(text["content"])
        if isinstance(at(text["content"], p), dict) and "ard_num_dims" in at(text["content"], p)
    ]


def _nest(text, arrays, rng, others):
    """Kernels in kernels, deep or wide; or lists and parts that are."""
    spots = _kernel_paths(text)
    if not spots:
        return
    path = rng.choice(spots)
    kernel = at(text["content"], path)

    def joined(parts):
        kind = rng.choice(("AdditiveKernel", "ProductKernel"))
        return {"kind": kind, "active_dims": None, "ard_num_dims": None, "parameters": {}, "own": {"kernels": parts}}

    action = rng.randrange(5)
    if action == 0:
        for _ in range(rng.choice((1, 3, 7, 9, 40))):
            kernel = joined([kernel])
    elif action == 1:
        kernel = joined([kernel] * rng.choice((1, 2, 5, 10, 300)))
    elif action == 2:
        for _ in range(rng.choice((2, 4, 6))):
            kernel = joined([kernel] * 2)
    elif action == 3:
        deep = []
        for _ in range(rng.choice((10, 90, 200, 400))):
            deep = [deep] if rng.random() < 0.5 else {"a": deep}
        kernel = deep
    else:
        mean = text["content"].get("prior", {}).get("mean") if isinstance(text["content"], dict) else None
        if isinstance(mean, dict) and arrays:
            for _ in range(rng.choice((1, 5, 30, 60))):
                name = rng.choice(sorted(arrays))
                own = {"base": mean, "row_bias": {"$array": name}, "col_bias": {"$array": name}}
                mean = {"kind": "BiasedMean", "parameters": {}, "own": own}
            text["content"]["prior"]["mean"] = mean
        return
    at(text["content"], path[:-1])[path[-1]] = kernel


def _costly(text, arrays, rng, others):
    """Little text that asks for much: widths, dimensions, shapes, iterations, polynomials."""
    content, action = text["content"], rng.randrange(7)
    kernels = [at(content, p) for p in _kernel_paths(text)]
    kernel = rng.choice(kernels) if kernels else {}
    own = kernel.get("own") if isinstance(kernel, dict) else None
    if action == 0 and kernel:
        kernel["ard_num_dims"] = rng.choice((2, 4, 5, 10**5, 10**6, 10**9))
    elif action == 1 and kernel:
        kernel["active_dims"] = rng.choice(([0], [1, 0], [0] * 5, [10**6], list(range(1000)), [3, 3]))
    elif action == 2 and isinstance(own, dict) and "width" in own:
        own["width"] = rng.choice((10**6, 10**8, 10**9, 2**40, 2**62))
    elif action == 3 and isinstance(own, dict) and "graph" in own:
        own["method"] = rng.choice(("chebyshev", "eigen"))
        own["tolerance"] = rng.choice((1e-300, 1e-16, 1e-6, 0.5, 1, 10, None))
        for one in list(kernel.get("parameters", {}).values()) if isinstance(kernel.get("parameters"), dict) else []:
            name = (
                one.get("values", {}).get("$array")
                if isinstance(one, dict) and isinstance(one.get("values"), dict)
                else None
            )
            if name in arrays and arrays[name].dtype.kind == "f":
                arrays[name] = np.full_like(arrays[name], rng.choice((1e4, 1e8, -50.0, 30.0)))
    elif action == 4 and isinstance(content, dict) and isinstance(content.get("covariance"), dict):
        content["covariance"].update(
            method=rng.choice(("cg", "auto", "cholesky", "spectral")),
            max_iterations=rng.choice((1, 2, 10**4, 10**9)),
            tolerance=rng.choice((1e-300, 1e-16, 3e-16, 1e-12, 0.9)),
        )
    elif action == 5 and isinstance(own, dict) and isinstance(own.get("graph"), dict):
        count = rng.choice((8, 50, 500))
        arrays["starts"] = np.zeros(count + 1, dtype=np.int64)
        arrays["empty"], arrays["nothing"] = np.zeros(0, dtype=np.int64), np.zeros(0)
        own["graph"] = {"starts": {"$array": "starts"}, "ends": {"$array": "empty"}, "weights": {"$array": "nothing"}}
    elif isinstance(content, dict) and isinstance(content.get("prior"), dict):
        side = rng.choice(("row", "col"))
        arrays["inputs"] = np.asarray(
            rng.choice(
                (np.zeros((500, 1)), np.ones((7, 3)), np.arange(7)[:, None], np.arange(11)[:, None], np.zeros((7, 0)))
            )
        )
        if isinstance(content["prior"].get(side), dict):
            content["prior"][side]["inputs"] = {"$array": "inputs"}


def _mixed(text, arrays, rng, others):
    """A part of another file, with its arrays."""
    other = rng.choice(others)
    key = rng.choice(("prior", "coefficients", "covariance", "own", "kind"))
    if not isinstance(text["content"], dict):
        return
    part = copy.deepcopy(other.manifest["content"][key])
    for path in [p for p in places(part) if p[-1] == "$array"]:
        name = at(part, path)
        arrays[f"other.{name}"] = other.arrays[name]
        at(part, path[:-1])["$array"] = f"other.{name}"
    text["content"][key] = part


FORGERIES = {
    "value": _value,
    "number": _number,
    "key": _key,
    "top": _top,
    "reference": _reference,
    "array": _entry,
    "nest": _nest,
    "costly": _costly,
    "mixed": _mixed,
}
KINDS = ["value", "value", "number", "number", "key", "key", "top", "reference", *["array"] * 5, "nest", "costly", "costly", "mixed"]  # fmt: skip

# ---------------------------------------------------------------------------------------------------------- the rounds


class Hang(BaseException):
    """More processor time than a file may take; no ``except Exception`` catches it."""


@contextlib.contextmanager
def bounded(seconds):
    """Processor time for what is inside; unbounded where there are no such signals."""
    if not hasattr(signal, "SIGPROF"):
        yield
        return

    def stop(*_):
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def reset_peak():
    """Begin to measure the most memory anew, where the system can."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def peak():
    """The most memory since then, in bytes; 0 where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0


@dataclass
class Round:
    """Counts of a round.

    :param outcomes: by outcome.
    :param kinds: by kind of change and outcome.
    :param failures: (name of the posterior, change, number, what went wrong).
    """

    outcomes: Counter = field(default_factory=Counter)
    kinds: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)
    slowest: float = 0.0
    most: int = 0

    def add(self, other):
        """Another round's counts."""
        self.outcomes.update(other.outcomes)
        self.kinds.update(other.kinds)
        self.failures += other.failures
        self.slowest, self.most = max(self.slowest, other.slowest), max(self.most, other.most)


def make(number, seed, saved):
    """The file with that number: the posterior it was, the change, its bytes."""
    digest = hashlib.sha256(f"{seed} {number}".encode()).digest()
    rng = randomness.python_generator(int.from_bytes(digest[:6], "big"))
    base = saved[number % len(saved)]
    kind, data = damaged(base, rng) if rng.random() < 0.3 else forged(base, rng, saved)
    return base, kind, data


def try_file(path, base, data):
    """The outcome of loading, and of asking what was loaded: a word and a reason."""
    path.write_bytes(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = mvgp.load(path)
            except StorageError as error:
                return ("refused", "") if len(str(error)) < 3000 else ("FAILED", "a message that is too long")
            answers = ask(found)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return (
            "FAILED",
            f"{type(error).__name__}: {str(error)[:200]} ({last.filename.rsplit('/', 1)[-1]}:{last.lineno})",
        )
    wrong = failing(found, answers, base.answers)
    if wrong:
        return "FAILED", wrong
    return ("equal" if same(answers, base.answers) else "other"), ""


def run(folder, saved, numbers, seed, *, limits=True, keep=None):
    """Files by their numbers.

    :param limits: whether time and memory count, too.
    :param keep: a folder for the files that fail.
    """
    found, path = Round(), folder / "given"
    for number in numbers:
        base, kind, data = make(number, seed, saved)
        before = 0
        if limits:
            reset_peak()
            before = peak()
        start = time.process_time()
        try:
            with bounded(4 * SECONDS) if limits else contextlib.nullcontext():
                outcome, reason = try_file(path, base, data)
        except Hang:
            outcome, reason = "FAILED", "no end"
        used, memory = time.process_time() - start, (peak() - before if limits else 0)
        if limits and outcome != "FAILED" and (used > SECONDS or memory > EXTRA):
            outcome, reason = "FAILED", f"{outcome} after {used:.1f} s and {memory / 2**20:.0f} MB"
        found.outcomes[outcome] += 1
        found.kinds[kind, outcome] += 1
        found.slowest, found.most = max(found.slowest, used), max(found.most, memory)
        if outcome == "FAILED":
            found.failures.append((base.name, kind, number, reason))
            if keep is not None:
                (keep / f"{number}.mvgp").write_bytes(data)
    return found
