"""Two real sets of ``../shared/data``, which are not part of the repository: genes of diseases from DisGeNET (MeSH) and from OMIM."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

import mvgp
from mvgp.kernels import DiffusionKernel, Graph
from mvgp.prioritise.tables import LinkSet

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
NETWORK = 12_331  # genes of the network


def _table(name: str, columns: int) -> np.ndarray:
    path = DATA / name
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected the sets of ../shared/data beside the repository")
    with gzip.open(path, "rt") as lines:
        next(lines)
        return np.array([line.rstrip("\n").split("\t")[:columns] for line in lines])


def mesh_links() -> tuple[LinkSet, np.ndarray]:
    """DisGeNET genes of MeSH diseases, 4,756 x 12,331; and (P, 2) its links in the order of the file."""
    edges = _table("mesh_disgenet/gene_edges.tsv.gz", 2)
    network = set(edges.ravel())
    if len(network) < NETWORK:  # genes without an edge belong to the network too; the OMIM set lists them
        network |= set(_table("omim_humannet/genes.tsv.gz", 1).ravel())
    col_ids = [gene for gene in sorted(set(_table("mesh_disgenet/genes.tsv.gz", 1).ravel())) if gene in network]
    row_ids = sorted(set(_table("mesh_disgenet/diseases.tsv.gz", 1).ravel()))
    rows, cols = ({name: place for place, name in enumerate(ids)} for ids in (row_ids, col_ids))
    alike = _table("mesh_disgenet/disease_edges.tsv.gz", 2)
    graphs = [
        Graph(np.array([(place[a], place[b]) for a, b in pairs if a in place and b in place]), len(place))
        for place, pairs in ((rows, alike), (cols, edges))
    ]
    known = _table("mesh_disgenet/associations.tsv.gz", 2)
    pairs = np.array([(rows[disease], cols[gene]) for disease, gene in known if gene in cols])
    source = "DisGeNET genes of MeSH diseases"
    return LinkSet(row_ids, col_ids, pairs[:, 0], pairs[:, 1], *graphs, source=source), pairs


def omim_problem() -> tuple[mvgp.MatrixGP, mvgp.ObservedMatrix]:
    """OMIM genes of diseases, 3,051 x 12,331, with as many random negatives as there are links."""
    rows = {line[0]: place for place, line in enumerate(_table("omim_humannet/diseases.tsv.gz", 1))}
    cols = {line[0]: place for place, line in enumerate(_table("omim_humannet/genes.tsv.gz", 1))}
    alike = _table("omim_humannet/disease_edges.tsv.gz", 3)
    diseases = Graph([(rows[a], rows[b]) for a, b, _ in alike], len(rows), [float(weight) for *_, weight in alike])
    genes = Graph([(cols[a], cols[b]) for a, b in _table("omim_humannet/gene_edges.tsv.gz", 2)], len(cols))
    known = np.array([rows[d] * len(cols) + cols[g] for d, g in _table("omim_humannet/associations.tsv.gz", 2)])
    drawn = np.random.default_rng(0).permutation(len(rows) * len(cols))[: 2 * len(known)]
    negative = drawn[~np.isin(drawn, known)][: len(known)]
    cells = np.concatenate([known, negative])
    labels = np.concatenate([np.ones(len(known)), -np.ones(len(negative))])
    data = mvgp.ObservedMatrix(cells // len(cols), cells % len(cols), labels, shape=(len(rows), len(cols)))
    return mvgp.MatrixGP(DiffusionKernel(diseases), DiffusionKernel(genes)), data
