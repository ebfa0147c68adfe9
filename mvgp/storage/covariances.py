"""Covariances of a posterior as plain descriptions: what they are computed from, not what they have computed."""

from __future__ import annotations

from typing import cast, get_args

import torch
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
from .budget import Spending
from .coefficients import describe_pairs, restore_pairs
from .fields import Fields
from .tree import Tree

Operators = tuple[LinearOperator, LinearOperator]
Covariance = ConditionalCovariance | LaplaceCovariance | WholeListCovariance | ScaledCovariance | NoCovariance

KEYS: dict[str, tuple[str, ...]] = {  # what each kind is made of
    "conditional": ("pairs", "noise", "tolerance", "method", "max_iterations"),
    "laplace": ("pairs", "noise", "x", "z"),
    "whole lists": ("pairs", "noise", "weight", "tolerance"),
    "scaled": ("scale", "of"),
    "none": ("pairs", "reason", "error"),
}
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


def restore_covariance(given: Fields, prior: MatrixGP, ops: Operators, spending: Spending) -> Covariance:
    """The inverse of :func:`describe_covariance`; solvers and roots are made again from the prior's kernels."""
    kind = given.text("kind", KEYS)
    given.only("kind", *KEYS[kind])
    if kind == "scaled":
        return _scaled(given, prior, ops, spending)
    pairs = restore_pairs(given.fields("pairs"), prior.shape)
    if kind == "none":
        return NoCovariance(pairs, given.label("reason", 1000), REASONS[given.text("error", REASONS)])
    noise = _noise(given, prior, pairs)
    if kind == "whole lists":
        if noise.dim():
            raise StorageError(f"{given.where}.noise: expected one number, got {noise.numel()}")
        links = PositiveUnlabelled(pairs.rows, pairs.cols, prior.shape, given.number("weight"))
        return WholeListCovariance(ops, links, noise, tolerance=_tolerance(given, prior))
    if kind == "conditional":
        spending.budget.allows("iterations", given.whole("max_iterations", 1), f"{given.where}.max_iterations")
        method = cast(Method, given.text("method", get_args(Method)))
        complete = noise.dim() == 0 and len(pairs) == prior.shape[0] * prior.shape[1]
        if method == "spectral" and not complete:
            raise StorageError(f"{given.where}.method: expected another than spectral, which is for whole grids")
        return ConditionalCovariance(
            ops,
            pairs,
            noise,
            tolerance=_tolerance(given, prior),
            method=method,
            max_iterations=given.whole("max_iterations", 1),
        )
    for op in ops:  # dense eigenpairs, at most
        spending.need(given.where, memory_bytes=4 * 8 * op.shape[-1] ** 2, operations=10 * op.shape[-1] ** 3)
    row_root, col_root = root(ops[0]), root(ops[1])
    x = given.finite("x", prior.dtype, (row_root.shape[-1], None))
    z = given.finite("z", prior.dtype, (col_root.shape[-1], x.shape[1]))
    return LaplaceCovariance(row_root, col_root, x, z, pairs, noise)


def _scaled(given: Fields, prior: MatrixGP, ops: Operators, spending: Spending) -> ScaledCovariance:
    scale, inner = given.positive("scale"), given.fields("of")
    inner.text("kind", ("conditional", "whole lists"))
    found = restore_covariance(inner, prior, ops, spending)
    assert not isinstance(found, NoCovariance)
    return ScaledCovariance(found, scale)


def _tolerance(given: Fields, prior: MatrixGP) -> float:
    """A relative residual that the precision can reach."""
    tolerance = given.positive("tolerance")
    least = torch.finfo(prior.dtype).eps
    if not least <= tolerance < 1:
        raise StorageError(f"{given.where}.tolerance: expected a number from {least:.2g} to 1, got {tolerance}")
    return tolerance


def _noise(given: Fields, prior: MatrixGP, pairs: PairIndex) -> Tensor:
    """() or (T,), positive."""
    shape = () if given.array("noise").dim() == 0 else (len(pairs),)
    noise = given.finite("noise", prior.dtype, shape)
    if noise.numel() and float(noise.min()) < 0:
        raise StorageError(f"{given.where}.noise: expected variances that are not negative, got {float(noise.min())}")
    if noise.numel() and float(noise.min()) == 0:
        raise StorageError(f"{given.where}.noise: expected positive variances, got 0")
    return noise
