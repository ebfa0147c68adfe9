"""The prior as a plain description: two kernels, their inputs, and a mean."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError, StorageError
from ..priors import MatrixGP
from ..priors.axis import Axis
from .budget import Spending
from .fields import Fields
from .graphs import Graphs
from .kernels import Restoring, describe_kernel, restore_kernel
from .means import describe_mean, restore_mean
from .tree import Tree

TYPES = {"float32": torch.float32, "float64": torch.float64}


def describe_prior(prior: MatrixGP) -> Tree:
    """Everything a prior is made of."""
    if type(prior) is not MatrixGP:
        raise InputError(f"prior: expected mvgp.MatrixGP and not a subclass, got {type(prior).__name__}")
    dtype = str(prior.dtype).removeprefix("torch.")
    if dtype not in TYPES:
        raise InputError(f"prior: a posterior can be saved in {' or '.join(TYPES)}, got {dtype}")
    for name, values in [*prior.named_parameters(), *prior.named_buffers()]:
        if values.is_floating_point() and values.dtype != prior.dtype:
            raise InputError(f"prior.{name}: expected {prior.dtype} as in the rest of the prior, got {values.dtype}")
    return {
        "dtype": dtype,
        "row": _describe_axis(prior.row_axis),
        "col": _describe_axis(prior.col_axis),
        "mean": describe_mean(prior.mean_module),
    }


def restore_prior(given: Fields, spending: Spending) -> MatrixGP:
    """The inverse of :func:`describe_prior`."""
    given.only("dtype", "row", "col", "mean")
    dtype = TYPES[given.text("dtype", TYPES)]
    graphs = Graphs()
    checked: dict[int, Tensor] = {}
    kernels, inputs = [], []
    for side in (given.fields("row"), given.fields("col")):
        side.only("kernel", "inputs")
        found = _restore_inputs(side, dtype) if side.has("inputs") else None
        shape = None if found is None else (int(found.shape[0]), int(found.shape[1]))
        common = Restoring(dtype, graphs, spending, shape, checked)
        kernels.append(restore_kernel(side.fields("kernel"), common))
        inputs.append(found)
    prior = MatrixGP(*kernels, *inputs, dtype=dtype)
    prior.mean_module = restore_mean(given.fields("mean"), dtype, prior.shape)
    return prior


def _restore_inputs(side: Fields, dtype: torch.dtype) -> Tensor:
    """(n, d), in the prior's type or whole."""
    found = side.array("inputs", shape=(None, None))
    if found.dtype not in (dtype, torch.int64, torch.int32):
        raise StorageError(f"{side.where}.inputs: expected {dtype} or whole numbers, got {found.dtype}")
    return found


def _describe_axis(axis: Axis) -> Tree:
    return {"kernel": describe_kernel(axis.kernel, f"prior.{axis.name}_kernel"), "inputs": _inputs(axis)}


def _inputs(axis: Axis) -> Tensor | None:
    """(n, d), or None where they are all nodes of the kernel in order."""
    nodes = [int(k.num_nodes) for k in (axis.kernel, *axis.kernel.sub_kernels()) if hasattr(k, "num_nodes")]
    inputs = axis.inputs.cpu()
    if nodes and inputs.dtype == torch.int64 and torch.equal(inputs, torch.arange(nodes[0]).unsqueeze(1)):
        return None
    return axis.inputs
