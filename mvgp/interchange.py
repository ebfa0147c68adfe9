r"""Data from the objects of other libraries, and answers back to them: AnnData, MuData, pandas, xarray and ArviZ.

What is a method elsewhere is there: :meth:`mvgp.ObservedMatrix.from_frame`, ``to_frame``, ``from_scipy`` and
``to_scipy``, :meth:`mvgp.kernels.Graph.from_networkx`. AnnData and MuData are told by their parts (``X``, ``obs``,
``var``, ``obsp``, ``varp``), so neither package is imported. pandas and xarray are imported when they are used;
``pip install 'mvgp[arviz]'`` brings xarray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from scipy import sparse

from .checks import check_choice, check_instance, check_seed, check_text, check_whole_number, shown
from .data.observed import ObservedMatrix
from .errors import InputError, missing_package
from .kernels.feature import PrecomputedKernel
from .kernels.graph import DiffusionKernel, Graph
from .posteriors.gaussian import GaussianPosterior
from .priors.matrix_gp import MatrixGP
from .tensor_checks import check_index, check_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["AnnotatedMatrix", "from_anndata", "scores_frame", "to_xarray"]


# In: AnnData and MuData ---------------------------------------------------------------------------


@dataclass(frozen=True)
class AnnotatedMatrix:
    """A matrix of observations x variables, with a graph of each, as :func:`from_anndata` finds them.

    :param data: the observed entries; its names are those of observations and variables.
    :param row_graph: of the M observations; None if none was asked for.
    :param col_graph: of the N variables.
    """

    data: ObservedMatrix
    row_graph: Graph | None
    col_graph: Graph | None

    def prior(self, time: float = 1.0, shift: float = 1.0) -> MatrixGP:
        r"""Diffusion kernels :math:`e^{-tL} + s I` on the graphs; the identity on an axis without one.

        :param time: t of both.
        :param shift: s of both.
        """
        kernels = [
            PrecomputedKernel(torch.eye(size, dtype=torch.float64))
            if graph is None
            else DiffusionKernel(graph, time, shift)
            for graph, size in zip((self.row_graph, self.col_graph), self.data.shape, strict=True)
        ]
        return MatrixGP(*kernels)


def from_anndata(
    annotated: Any,
    *,
    modality: str | None = None,
    layer: str | None = None,
    obsp: str | None = None,
    varp: str | None = None,
    zeros: Literal["missing", "observed"] | None = None,
) -> AnnotatedMatrix:
    """The matrix of an AnnData, or of a modality of a MuData, and two of its graphs.

    :param annotated: with ``X``, ``obs``, ``var``, and ``layers``, ``obsp`` and ``varp`` where these are asked for; or
        with such objects in ``mod``.
    :param modality: which of a MuData's; its graphs may be those of the modality or of the whole, whose nodes are
        found by name.
    :param layer: of ``layers``, in place of ``X``.
    :param obsp: which matrix of ``obsp`` is the graph of the rows, such as "connectivities": symmetric weights of at
        least 0.
    :param varp: which matrix of ``varp`` is the graph of the columns.
    :param zeros: whether zeros are ``observed`` or ``missing``. Left out, they are as they are stored: those of a dense
        matrix are observed, and what a sparse one does not store is missing. NaN is always missing.

    Example:
        >>> import numpy as np, pandas as pd
        >>> from types import SimpleNamespace
        >>> from mvgp.interchange import from_anndata
        >>> cells = pd.DataFrame(index=["c1", "c2"])
        >>> genes = pd.DataFrame(index=["FLG", "IL4", "TNF"])
        >>> near = {"connectivities": np.array([[0.0, 0.5], [0.5, 0.0]])}
        >>> values = np.array([[1.0, np.nan, 0.0], [2.0, 0.5, 0.0]])
        >>> found = from_anndata(SimpleNamespace(X=values, obs=cells, var=genes, obsp=near), obsp="connectivities")
        >>> found.data, found.row_graph, found.data.col_names
        (ObservedMatrix(2 x 3, 5 observed (83.3%)), Graph(2 nodes, 1 links, 0 isolated), ('FLG', 'IL4', 'TNF'))

    """
    whole, part = annotated, annotated
    modalities = getattr(annotated, "mod", None)
    if isinstance(modalities, Mapping):
        if modality is None:
            raise InputError(f"modality: expected one of {', '.join(map(repr, modalities))}, got None")
        part = _entry(modalities, modality, "modality")
    elif modality is not None:
        raise InputError(f"modality: expected None without several modalities, got {shown(modality)}")
    for name in ("X", "obs", "var"):
        if not hasattr(part, name) or (name != "X" and not hasattr(getattr(part, name), "index")):
            raise InputError(f"annotated: expected an AnnData with X, obs and var, got {shown(part)} without {name}")
    names = {side: list(getattr(part, side).index) for side in ("obs", "var")}
    matrix = part.X if layer is None else _entry(getattr(part, "layers", {}), layer, "layer")
    if matrix is None:
        raise InputError("annotated: expected a matrix X, or the name of a layer, got neither")
    matrix = matrix.to_memory() if hasattr(matrix, "to_memory") else matrix
    data = _entries(matrix, zeros, row_names=names["obs"], col_names=names["var"])
    graphs = [None if key is None else _graph(part, whole, side, key) for side, key in (("obs", obsp), ("var", varp))]
    return AnnotatedMatrix(data, *graphs)


def _entry(entries: Any, key: Any, name: str) -> Any:
    """An entry by its name."""
    if check_text(key, name) not in entries:
        raise InputError(f"{name}: expected one of {', '.join(map(repr, entries)) or 'none'}, got {key!r}")
    return entries[key]


def _entries(matrix: Any, zeros: Any, **names: Any) -> ObservedMatrix:
    """The observed entries of a dense or sparse matrix."""
    if zeros is not None:
        check_choice(zeros, "zeros", ("missing", "observed"))
    if sparse.issparse(matrix):
        stored: Any = matrix
        if zeros == "observed":
            return ObservedMatrix.from_dense(stored.toarray(), **names)
        stored = stored.tocoo()
        kept = ~np.isnan(stored.data) if zeros is None else (stored.data != 0) & ~np.isnan(stored.data)
        rows, cols, values = (part[kept] for part in (stored.row, stored.col, stored.data))
        return ObservedMatrix(rows, cols, values, stored.shape, **names)
    dense = np.asarray(matrix)
    if zeros == "missing":
        return ObservedMatrix.from_mask(dense, (dense != 0) & ~np.isnan(dense), **names)
    return ObservedMatrix.from_dense(dense, **names)


def _graph(part: Any, whole: Any, side: str, key: str) -> Graph:
    """A graph of a modality, or the part of that of the whole object on the nodes of the modality."""
    store = f"{side}p"
    own, shared = getattr(part, store, {}), getattr(whole, store, {})
    check_text(key, store)
    if key not in own and whole is not part and key in shared:
        places = getattr(whole, side).index.get_indexer(getattr(part, side).index)
        weights: Any = sparse.csr_array(shared[key])[places][:, places]
    else:
        weights = _entry(own, key, store)
    try:
        return Graph.from_adjacency(weights if sparse.issparse(weights) else np.asarray(weights))
    except InputError as error:
        raise InputError(f"{store}[{key!r}]: {error}") from None


# Out: pandas, xarray ------------------------------------------------------------------------------


def scores_frame(posterior: GaussianPosterior, rows: Any = None, *, names: Any = None) -> pd.DataFrame:
    r"""Posterior means :math:`\psi_{mn}` as a pandas frame (R, N), with the names of rows and columns.

    :param posterior: of any model.
    :param rows: (R,) numbers of rows; all of them when left out.
    :param names: data with ``row_names`` and ``col_names``, those that were fitted when left out. What has no names has
        its numbers.

    Example:
        >>> import gpytorch, mvgp, pandas as pd, torch
        >>> from mvgp.kernels import PrecomputedKernel
        >>> one = PrecomputedKernel(torch.ones(2, 2).double() + torch.eye(2).double())
        >>> data = mvgp.ObservedMatrix.from_frame(pd.DataFrame({"x": [1.0, 1.0], "y": [None, 1.0]}, index=["a", "b"]))
        >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        >>> mvgp.interchange.scores_frame(mvgp.FullGP(mvgp.MatrixGP(one, one), likelihood).fit(data)).round(2)
              x     y
        a  0.90  0.67
        b  0.94  0.90

    """
    import pandas as pd

    check_instance(posterior, "posterior", GaussianPosterior, "a posterior of mvgp")
    labels = _labels(posterior, names)
    chosen = range(posterior.shape[0]) if rows is None else check_index(rows, posterior.shape[0], "rows").tolist()
    scores = posterior.scores(rows).cpu().numpy()
    return pd.DataFrame(scores, index=[labels[0][row] for row in chosen], columns=list(labels[1]))


def to_xarray(
    posterior: GaussianPosterior,
    num_samples: int = 1000,
    rows: Any = None,
    cols: Any = None,
    *,
    chains: int = 1,
    seed: int = 0,
    names: Any = None,
) -> Any:
    r"""Joint posterior samples :math:`\psi^{(s)} \sim \mathcal{N}(\psi, S)` as an ``xarray.Dataset`` that ArviZ reads.

    The variable ``f`` has the dimensions chain, draw, row and col; coordinates are names. The samples are independent,
    so that how they are divided into chains changes nothing but what diagnostics of ArviZ are shown.

    :param posterior: of any model with a covariance.
    :param num_samples: of all chains.
    :param rows: (R,) numbers of rows; all of them when left out.
    :param cols: (C,) numbers of columns.
    :param chains: a divisor of ``num_samples``.
    :param seed: of the samples.
    :param names: data with ``row_names`` and ``col_names``, those that were fitted when left out.

    Example:
        >>> import gpytorch, mvgp, torch
        >>> from mvgp.kernels import PrecomputedKernel
        >>> one = PrecomputedKernel(torch.eye(2).double())
        >>> data = mvgp.ObservedMatrix([0], [1], [1.0], (2, 2), row_names=["a", "b"], col_names=["x", "y"])
        >>> likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        >>> posterior = mvgp.FullGP(mvgp.MatrixGP(one, one), likelihood).fit(data)
        >>> samples = mvgp.interchange.to_xarray(posterior, 400, chains=4)
        >>> dict(samples.sizes), samples.f.sel(row="a", col="y").shape
        ({'chain': 4, 'draw': 100, 'row': 2, 'col': 2}, (4, 100))

    """
    try:
        import xarray
    except ModuleNotFoundError as error:
        raise missing_package("to_xarray", "xarray", "arviz") from error
    check_instance(posterior, "posterior", GaussianPosterior, "a posterior of mvgp")
    count, parts = check_whole_number(num_samples, "num_samples"), check_whole_number(chains, "chains")
    if count % parts:
        raise InputError(f"chains: expected a divisor of num_samples={count}, got {parts}")
    labels, chosen = _labels(posterior, names), []
    for positions, size, name in zip((rows, cols), posterior.shape, ("rows", "cols"), strict=True):
        chosen.append(torch.arange(size) if positions is None else check_index(positions, size, name))
    generator = torch.Generator(device=posterior.device).manual_seed(check_seed(seed))
    values = posterior.sample(chosen[0].unsqueeze(1), chosen[1], count, generator=generator).cpu().numpy()
    named = [[own[at] for at in which.tolist()] for own, which in zip(labels, chosen, strict=True)]
    dims = ("chain", "draw", "row", "col")
    coords = dict(zip(dims, (np.arange(parts), np.arange(count // parts), *named), strict=True))
    values = values.reshape(parts, count // parts, *values.shape[1:])
    return xarray.Dataset({"f": (dims, values)}, coords, attrs={"inference_library": "mvgp"})


def _labels(posterior: GaussianPosterior, names: Any) -> list[Any]:
    """Names of the rows and of the columns; their numbers where there are none."""
    source = getattr(getattr(posterior, "_fit", None), "data", None) if names is None else names
    labels: list[Any] = []
    for side, size in zip(("row_names", "col_names"), posterior.shape, strict=True):
        own = getattr(source, side, None)
        if own is not None and len(own) != size:
            raise InputError(f"names: expected {size} {side}, got {len(own)}")
        labels.append(range(size) if own is None else [check_name(name, side) for name in own])
    return labels
