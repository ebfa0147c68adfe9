"""Graph of genes that share pathways, from a GMT file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import sparse

from ..kernels import Graph
from .table_error import TableError, shown, some
from .text_lines import read_lines


def read_pathways(path: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """The genes of each pathway.

    :param path: GMT: on each line the name of a pathway, a description, and its genes, separated by tabs.
    """
    place = Path(path)
    found: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_lines(place), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, *rest = (field.strip() for field in line.split("\t"))
        if len(rest) < 2:
            raise TableError(place, f"expected a name, a description and genes, got {shown(line)}", number)
        if name in found:
            raise TableError(place, f"expected every pathway once, got {shown(name)} again", number)
        found[name] = tuple(sorted({gene for gene in rest[1:] if gene}))
    if not found:
        raise TableError(place, "expected pathways, got none")
    return found


def pathway_graph(path: str | os.PathLike[str], genes: Sequence[str]) -> Graph:
    """Genes linked if they share a pathway; the weight is the sum of 1 / (size - 1) over the pathways they share.

    So each pathway that a gene is in counts 1 in its degree, if all genes of the pathway are there.

    :param path: a GMT file.
    :param genes: ids of the N nodes; genes of pathways that are not among them are left out.
    """
    pathways = read_pathways(path)
    node = {gene: at for at, gene in enumerate(genes)}
    members = [[node[gene] for gene in listed if gene in node] for listed in pathways.values()]
    if not any(members):
        known = {gene for listed in pathways.values() for gene in listed}
        raise TableError(path, f"none of its genes ({some(known)}) is among the genes wanted ({some(set(genes))})")
    share = [1.0 / max(len(listed) - 1, 1) for listed in pathways.values()]
    rows = np.concatenate([np.asarray(found, dtype=np.int64) for found in members])
    cols = np.repeat(np.arange(len(members)), [len(found) for found in members])
    belongs = sparse.csr_array((np.ones(len(rows)), (rows, cols)), shape=(len(genes), len(members)))
    return Graph.from_adjacency(belongs @ sparse.diags_array(np.array(share)) @ belongs.T)
