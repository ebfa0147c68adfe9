"""Covariances of a posterior as plain descriptions: what they are computed from, not what they have computed."""

from __future__ import annotations

from typing import cast, get_args

from linear_operator import LinearOperator
from torch import Tensor

from ..data import PositiveUnlabelled
from ..errors import InputError, SizeError, StorageError
from ..linalg import PairIndex, root
from ..linalg.solvers import Method
from ..posteriors.conditional import ConditionalCovariance
from ..posteriors.gaussian import PosteriorCovariance
from ..posteriors.laplace import LaplaceCovariance
from ..posteriors.no_covariance import NoCovariance
from ..posteriors.scaled import ScaledCovariance
from ..posteriors.whole_list_covariance import WholeListCovariance
from ..priors import MatrixGP
from .coefficients import describe_pairs, restore_pairs
from .fields import Fields
from .tree import Tree

Operators = tuple[LinearOperator, LinearOperator]
Covariance = ConditionalCovariance | LaplaceCovariance | WholeListCovariance | ScaledCovariance | NoCovariance

REASONS: dict[str, type[Exception]] = {"InputError": InputError, "SizeError": SizeError}


def describe_covariance(found: PosteriorCovariance | NoCovariance) -> Tree:
    """A covariance by its observed pairs and their noise."""
    if type(found) is ConditionalCovariance:
        return {
            "kind": "conditional",
            "pairs": describe_pairs(found.pairs),
            "noise": found.noise,
            "tolerance": float(found.tolerance),
            "method": found._method,
            "max_iterations": int(found.max_iterations),
        }
    if type(found) is LaplaceCovariance:
        return {
            "kind": "laplace",
            "pairs": describe_pairs(found.pairs),
            "noise": found.noise,
            "x": found.x,
            "z": found.z,
        }
    if type(found) is WholeListCovariance:
        return {
            "kind": "whole lists",
            "pairs": describe_pairs(found.pairs),
            "noise": found.noise,
            "weight": float(found.weight),
            "tolerance": float(found.tolerance),
        }
    if type(found) is ScaledCovariance:
        return {"kind": "scaled", "scale": found.scale, "of": describe_covariance(found.inner)}
    if type(found) is NoCovariance and REASONS.get(found.error.__name__) is found.error:
        return {
            "kind": "none",
            "pairs": describe_pairs(found.pairs),
            "reason": found.reason,
            "error": found.error.__name__,
        }
    raise InputError(f"conditional: the covariances of FullGP, TraceGP and FactorGP can be saved, got {found!r}")


def restore_covariance(given: Fields, prior: MatrixGP, ops: Operators) -> Covariance:
    """The inverse of :func:`describe_covariance`; solvers and roots are made again from the prior's kernels."""
    kind = given.text("kind", ("conditional", "laplace", "whole lists", "scaled", "none"))
    if kind == "scaled":
        return _scaled(given, prior, ops)
    pairs = restore_pairs(given.fields("pairs"), prior.shape)
    if kind == "none":
        return NoCovariance(pairs, given.text("reason"), REASONS[given.text("error", REASONS)])
    noise = _noise(given, prior, pairs)
    if kind == "whole lists":
        links = PositiveUnlabelled(pairs.rows, pairs.cols, prior.shape, given.number("weight"))
        return WholeListCovariance(ops, links, noise, tolerance=_tolerance(given))
    if kind == "conditional":
        return ConditionalCovariance(
            ops,
            pairs,
            noise,
            tolerance=_tolerance(given),
            method=cast(Method, given.text("method", get_args(Method))),
            max_iterations=given.whole("max_iterations", 1),
        )
    row_root, col_root = root(ops[0]), root(ops[1])
    x = given.array("x", prior.dtype, (row_root.shape[-1], None))
    z = given.array("z", prior.dtype, (col_root.shape[-1], x.shape[1]))
    return LaplaceCovariance(row_root, col_root, x, z, pairs, noise)


def _scaled(given: Fields, prior: MatrixGP, ops: Operators) -> ScaledCovariance:
    scale, inner = given.number("scale"), given.fields("of")
    if not scale > 0:
        raise StorageError(f"{given.where}.scale: expected a positive number, got {scale}")
    inner.text("kind", ("conditional", "whole lists"))
    found = restore_covariance(inner, prior, ops)
    assert not isinstance(found, NoCovariance)
    return ScaledCovariance(found, scale)


def _tolerance(given: Fields) -> float:
    tolerance = given.number("tolerance")
    if not tolerance > 0:
        raise StorageError(f"{given.where}.tolerance: expected a positive number, got {tolerance}")
    return tolerance


def _noise(given: Fields, prior: MatrixGP, pairs: PairIndex) -> Tensor:
    """() or (T,), not negative."""
    shape = () if given.array("noise").dim() == 0 else (len(pairs),)
    noise = given.finite("noise", prior.dtype, shape)
    if noise.numel() and float(noise.min()) < 0:
        raise StorageError(f"{given.where}.noise: expected variances that are not negative, got {float(noise.min())}")
    return noise
