"""Whether the first line of a table is a header, told from what is in it."""

from __future__ import annotations

import re

DIGIT, DIGITS = re.compile(r"\d"), re.compile(r"\d+")
LISTED = """
    accession approved associated association code col column combined curie database disease diseases disorder drug
    edge ensembl entrez entity first from gene genes hgnc hpo id identifier ids index item items key label left mesh
    mim movie name names ncbi node nodes number object official omim phenotype preferred primary product protein
    proteins right row rows score second source subject symbol symbols target task tasks term text title to type
    umls uniprot user users value weight
"""
COLUMN_WORDS = frozenset(LISTED.split())


def is_header(first: list[str], ids: list[list[str]], weight: str | None = None) -> bool:
    """Whether ``first`` names columns rather than being a line of ids.

    It is none if one of its fields is an id of a later line. With weights it then is a header if its weight is a word.
    Without weights it is one if none of its fields is built like a later id (the same up to digits) and they are words:
    either one of them consists of words such as "gene", "id" or "source" and the other too or is without a digit, or
    each is without a digit in a column of ids that all have some. In doubt it is data, and nothing is lost.

    :param first: the ids of the first line.
    :param ids: those of the other lines, column by column.
    :param weight: of the first line, in a table with weights.
    """
    if weight is not None:
        wordy = weight != "" and not is_number(weight) and not _has_digit(weight)
    elif any(map(_names_a_column, first)):
        wordy = all(_names_a_column(field) or not _has_digit(field) for field in first)
    else:
        wordy = not any(map(_has_digit, first)) and all(column and all(map(_has_digit, column)) for column in ids)
    if not wordy or any(field in column for field in first for column in ids):
        return False
    digits = [(field, column) for field, column in zip(first, ids, strict=True) if _has_digit(field)]
    return weight is not None or not any(_form(field) in map(_form, column) for field, column in digits)


def is_number(text: str) -> bool:
    """Also nan and infinity, which are no weights but no names either."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _names_a_column(field: str) -> bool:
    """As "disease_id", "geneSymbol2" and "Gene Symbol" do."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", field)
    words = re.findall(r"[^\W\d_]+", spaced.lower())
    known = COLUMN_WORDS.issuperset(word for word in words if len(word) > 1)  # single letters: "gene_a"
    return known and any(len(word) > 1 for word in words) and sum(map(str.isdigit, field)) <= 1


def _has_digit(text: str) -> bool:
    return DIGIT.search(text) is not None


def _form(text: str) -> str:
    return DIGITS.sub("0", text)
