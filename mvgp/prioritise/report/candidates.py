"""The table of candidates of a page: links to databases built from ids, and all lists as compact data for the script.

A page shows the same table for a study and for ranked lists; columns without any value are left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True)
class Site:
    """A page of a database about an id: ``pattern`` matches the whole id, its group goes into ``url``.

    :param word: what the row or the column must be called, for ids that could mean anything; empty for all.
    """

    name: str
    url: str
    pattern: str
    word: str = ""


NCBI, OPEN_TARGETS, OMIM = "NCBI Gene", "Open Targets", "OMIM"
NCBI_URL, OMIM_URL = "https://www.ncbi.nlm.nih.gov/gene/{}", "https://omim.org/entry/{}"
TARGET_URL, DISEASE_URL = "https://platform.opentargets.org/target/{}", "https://platform.opentargets.org/disease/{}"
SITES = (
    Site(NCBI, NCBI_URL, r"(?:NCBI[ _]?GENE|ENTREZ(?:GENE)?|GENEID)[:_]([0-9]{1,9})"),
    Site(NCBI, NCBI_URL, r"([0-9]{1,9})", "gene"),
    Site("Ensembl", "https://www.ensembl.org/id/{}", r"(?:ENSEMBL:)?(ENSG[0-9]{11})(?:\.[0-9]+)?"),
    Site(OPEN_TARGETS, TARGET_URL, r"(?:ENSEMBL:)?(ENSG[0-9]{11})(?:\.[0-9]+)?"),
    Site("HGNC", "https://www.genenames.org/data/gene-symbol-report/#!/hgnc_id/HGNC:{}", r"HGNC:([0-9]+)"),
    Site(OMIM, OMIM_URL, r"O?MIM[:_]([0-9]{6})"),
    Site(OMIM, OMIM_URL, r"([0-9]{6})", "disease"),
    Site(OMIM, "https://omim.org/phenotypicSeries/PS{}", r"(?:O?MIM[:_])?PS[:_]?([0-9]{6})"),
    Site("Mondo", "https://monarchinitiative.org/MONDO:{}", r"MONDO[:_]([0-9]{7})"),
    Site(OPEN_TARGETS, DISEASE_URL.replace("{}", "MONDO_{}"), r"MONDO[:_]([0-9]{7})"),
    Site(OPEN_TARGETS, DISEASE_URL.replace("{}", "EFO_{}"), r"EFO[:_]([0-9]{7})"),
    Site("HPO", "https://hpo.jax.org/browse/term/HP:{}", r"HP[:_]([0-9]{7})"),
    Site("Disease Ontology", "https://disease-ontology.org/?id=DOID:{}", r"DOID[:_]([0-9]+)"),
    Site("MeSH", "https://meshb.nlm.nih.gov/record/ui?ui={}", r"(?:MESH[:_])?([CD](?:[0-9]{6}|[0-9]{9}))"),
    Site("Orphanet", "https://www.orpha.net/en/disease/detail/{}", r"ORPHA(?:NET)?[:_]([0-9]+)"),
)
# where no id leads to a gene, its symbol is searched for
SYMBOL = Site("NCBI Gene search", "https://www.ncbi.nlm.nih.gov/gene/?term={}%5Bsym%5D", r"([A-Za-z][A-Za-z0-9._-]*)")
GENE_SITES = (NCBI, "Ensembl", "HGNC")
URLS = tuple(dict.fromkeys((site.name, site.url) for site in (*SITES, SYMBOL)))


def links_out(identifier: str, name: str = "", word: str = "") -> list[tuple[str, str]]:
    """Pages about a row or a column elsewhere: names of sites and addresses, built from the id alone.

    :param identifier: its id.
    :param name: its name, which is searched for if it is a gene and the id leads nowhere.
    :param word: what it is called, as "gene" or "disease": a number is an NCBI id of a gene, an OMIM id of a disease.

    Example:
        >>> from mvgp.prioritise.report.candidates import links_out
        >>> links_out("OMIM:154700")
        [('OMIM', 'https://omim.org/entry/154700')]
        >>> links_out("2200", "FBN1", "gene")
        [('NCBI Gene', 'https://www.ncbi.nlm.nih.gov/gene/2200')]
        >>> links_out("17", "Some film", "film")
        []

    """
    return [(name, url.replace("{}", quote(key, safe=""))) for (name, url), key in _matches(identifier, name, word)]


def _matches(identifier: str, name: str, word: str) -> list[tuple[tuple[str, str], str]]:
    """Site and address, and what goes into it."""
    word = word.strip().lower()
    found = []
    for site in SITES:
        match = re.fullmatch(site.pattern, identifier.strip(), re.IGNORECASE | re.ASCII)
        if match and site.word in ("", word):
            found.append(((site.name, site.url), match[1].upper()))
    if word == "gene" and not any(site in GENE_SITES for (site, _), _ in found):
        symbol = next((text for text in (name, identifier) if re.fullmatch(SYMBOL.pattern, text)), None)
        found += [((SYMBOL.name, SYMBOL.url), symbol)] if symbol else []
    return found


# Data of the script ------------------------------------------------------------------------------

# fields of a candidate, in the order of the arrays that stand for it; None at the end of an array is left out
FIELDS = ("col", "rank", "score", "std", "p_top", "flag", "probability", "low", "high", "class", "why", "reasons")
SHOWN = ("class", "probability", "p_top", "score", "std", "flag")  # columns, if there are any values


class Compact:
    """Lists of candidates as data for the script: every id and name once.

    :param flag: what is marked: "known" or "held out".
    """

    def __init__(self, flag: str) -> None:
        self.flag = flag
        self.columns: dict[tuple[str, str], int] = {}
        self.rows: dict[tuple[str, str], int] = {}
        self.lists: list[list[Any]] = []
        self.present: set[str] = set()

    def add(
        self, model: int, row: tuple[str, str], k: int | None, candidates: Iterable[Mapping[str, Any]], **more: Any
    ) -> None:
        """A list: the number of its model, id and name of the row, and the candidates with keys of the record."""
        items = []
        for candidate in candidates:
            values = {**candidate, "col": self.column(candidate["col_id"], candidate["col_name"])}
            values["reasons"] = [self._reason(part) for part in candidate.get("reasons") or ()] or None
            if values["reasons"] and values.get("why") == why(candidate["reasons"]):
                values["why"] = None  # the script puts it together
            values["flag"], values["why"] = values.get("flag") or None, values.get("why") or None
            item = [_short(values.get(field)) for field in FIELDS]
            self.present |= {field for field, value in zip(FIELDS, item, strict=True) if value is not None}
            while item and item[-1] is None:
                item.pop()
            items.append(item)
        self.lists.append([model, *row, k, items, more])

    def column(self, identifier: str, name: str) -> int:
        """The number of a column."""
        return self.columns.setdefault((identifier, name), len(self.columns))

    def _reason(self, part: Mapping[str, Any]) -> list[Any]:
        ends = [
            [
                self.rows.setdefault((link["row_id"], link["row_name"]), len(self.rows)),
                self.column(link["col_id"], link["col_name"]),
                _short(link.get("share"), 3),
            ]
            for link in part.get("links") or ()
        ]
        return [_short(part.get("share"), 3), part.get("source", ""), part.get("text", ""), *([ends] if ends else [])]

    def shown(self) -> list[str]:
        """Columns of the table."""
        reasons = ["why"] if self.present & {"why", "reasons"} else []
        always = {"score", "std", "p_top", "flag"} if self.flag == "held out" else {"score"}
        return ["rank", "name", *reasons, *(key for key in SHOWN if key in self.present | always), "id"]

    def data(self, models: Sequence[str], words: Mapping[str, str]) -> dict[str, Any]:
        """All of it; ``words`` are what rows and columns are called."""
        addresses = {pair: number for number, pair in enumerate(URLS)}

        def pages(identifier: str, name: str, word: str) -> list[list[Any]]:
            return [[addresses[pair], key] for pair, key in _matches(identifier, name, words[word])]

        lists = [[*entry[:5], {**entry[5], "links": pages(entry[1], entry[2], "row")}] for entry in self.lists]
        columns = [[*pair, pages(*pair, "col")] for pair in self.columns]
        return {
            "models": list(models),
            "sites": URLS,
            "columns": columns,
            "rows": list(self.rows),
            "lists": lists,
            "show": self.shown(),
            "flag": self.flag,
            "words": [words[key] for key in ("row", "col", "rows", "cols")],
        }


def component(compact: Compact, models: Sequence[str], first: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the template of the table shows; ``first`` are the candidates of the first list, shown without a script."""
    return {
        "compact": compact,
        "columns": compact.shown(),
        "models": list(models),
        "count": sum(len(entry[4]) for entry in compact.lists),
        "num_rows": len({entry[1] for entry in compact.lists}),
        "first": [{**dict.fromkeys(FIELDS), **candidate} for candidate in first],
        "list": dict(zip(("model", "row_id", "row_name", "k", "items", "more"), compact.lists[0], strict=True)),
        "digits": {key: num_decimals(candidate.get(key) for candidate in first) for key in ("score", "std")},
    }


def why(reasons: Sequence[Mapping[str, Any]]) -> str:
    """Reasons in one line, as of a table.

    Example:
        >>> why([{"share": 0.67, "text": "like A"}, {"share": 0.33, "text": "near B"}])
        '67 %: like A; 33 %: near B'

    """
    return "; ".join(f"{100 * part['share']:.0f} %: {part['text']}" for part in reasons)


def num_decimals(values: Iterable[float | None], digits: int = 4) -> int:
    """Decimals with which the largest of some numbers has so many digits, so that a column of them lines up."""
    largest = max((abs(value) for value in values if value is not None), default=0) or 1.0
    return min(10, max(0, digits - 1 - math.floor(math.log10(largest))))


def _short(value: Any, digits: int = 5) -> Any:
    """So many digits of a number."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
