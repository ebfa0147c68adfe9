"""Ranked lists as a record, a page and files: what is in them, links to elsewhere, sizes, and what is refused."""

import copy
import csv
import importlib.util
import json
import re
from dataclasses import dataclass, make_dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mvgp.errors import InputError
from mvgp.kernels import Graph
from mvgp.prioritise import fit_prioritiser
from mvgp.prioritise.ranking import outputs
from mvgp.prioritise.ranking.mixture import Mixture
from mvgp.prioritise.ranking.rows import RankedRow
from mvgp.prioritise.report import lists, record_of, write_lists
from mvgp.prioritise.report.candidates import URLS, links_out, why
from mvgp.prioritise.report.figures import Figure
from mvgp.prioritise.report.record import COLUMNS
from mvgp.prioritise.tables import LinkSet
from mvgp.text import from_cell
from tests import randomness
from tests.prioritise.report.records import make_record
from tests.prioritise.report.studies import NASTY
from tests.prioritise.report.test_report import Outline, snapshot

M, N = 40, 60


@pytest.fixture
def no_png(monkeypatch):
    monkeypatch.setattr(Figure, "png", lambda figure: b"PNG")


@pytest.fixture(scope="module")
def links():
    cells = randomness.numpy_generator(0).choice(M * N, 200, replace=False)
    rings = [Graph([(i, (i + 1) % n) for i in range(n)], n) for n in (M, N)]
    names = [f"Disease {row}" for row in range(M)], [f"GENE{col}" for col in range(N)]
    return LinkSet(
        [f"OMIM:{100000 + row}" for row in range(M)], range(N), cells // N, cells % N, *rings, *names, "made up"
    )


@pytest.fixture(scope="module")
def fitted(links):
    return fit_prioritiser(links)


@pytest.fixture(scope="module")
def record(fitted):
    return record_of(fitted, fitted.ranked([3, 5], top=7, seed=0, num_samples=50))


# Links to elsewhere ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identifier", "name", "word", "expected"),
    [
        ("2200", "FBN1", "gene", [("NCBI Gene", "https://www.ncbi.nlm.nih.gov/gene/2200")]),
        ("NCBIGene:2200", "", "", [("NCBI Gene", "https://www.ncbi.nlm.nih.gov/gene/2200")]),
        ("ENTREZ:2200", "", "column", [("NCBI Gene", "https://www.ncbi.nlm.nih.gov/gene/2200")]),
        (
            "ENSG00000166147.14",
            "FBN1",
            "gene",
            [
                ("Ensembl", "https://www.ensembl.org/id/ENSG00000166147"),
                ("Open Targets", "https://platform.opentargets.org/target/ENSG00000166147"),
            ],
        ),
        (
            "HGNC:3603",
            "FBN1",
            "gene",
            [("HGNC", "https://www.genenames.org/data/gene-symbol-report/#!/hgnc_id/HGNC:3603")],
        ),
        ("OMIM:154700", "", "", [("OMIM", "https://omim.org/entry/154700")]),
        ("MIM:154700", "", "", [("OMIM", "https://omim.org/entry/154700")]),
        ("154700", "", "Disease", [("OMIM", "https://omim.org/entry/154700")]),
        ("OMIM:PS154700", "", "", [("OMIM", "https://omim.org/phenotypicSeries/PS154700")]),
        (
            "MONDO:0007947",
            "",
            "",
            [
                ("Mondo", "https://monarchinitiative.org/MONDO:0007947"),
                ("Open Targets", "https://platform.opentargets.org/disease/MONDO_0007947"),
            ],
        ),
        ("EFO_0000270", "", "", [("Open Targets", "https://platform.opentargets.org/disease/EFO_0000270")]),
        ("HP:0001166", "", "", [("HPO", "https://hpo.jax.org/browse/term/HP:0001166")]),
        ("DOID:14323", "", "", [("Disease Ontology", "https://disease-ontology.org/?id=DOID:14323")]),
        ("MESH:D008382", "", "", [("MeSH", "https://meshb.nlm.nih.gov/record/ui?ui=D008382")]),
        ("d008382", "", "", [("MeSH", "https://meshb.nlm.nih.gov/record/ui?ui=D008382")]),
        ("C000657245", "", "", [("MeSH", "https://meshb.nlm.nih.gov/record/ui?ui=C000657245")]),
        ("ORPHA:558", "", "", [("Orphanet", "https://www.orpha.net/en/disease/detail/558")]),
        ("g17", "HLA-A", "gene", [("NCBI Gene search", "https://www.ncbi.nlm.nih.gov/gene/?term=HLA-A%5Bsym%5D")]),
        ("IL13", "", "gene", [("NCBI Gene search", "https://www.ncbi.nlm.nih.gov/gene/?term=IL13%5Bsym%5D")]),
    ],
)
def test_links_are_built_from_ids(identifier, name, word, expected):
    assert links_out(identifier, name, word) == expected


@pytest.mark.parametrize(
    ("identifier", "name", "word"),
    [
        ("17", "Some film", "film"),
        ("2200", "", "column"),
        ("OMIM:15470", "", ""),
        ("OMIM:154700 x", "", ""),
        ("javascript:alert(1)", "x y", "gene"),
        ("\u0662\u0662\u0660\u0660", "\u202eevil", "gene"),
        ("<b>", "a/../b?c", "gene"),
        ("", "", "gene"),
    ],
)
def test_other_ids_have_none(identifier, name, word):
    assert links_out(identifier, name, word) == []


def test_addresses_are_safe():
    assert all(url.startswith("https://") and url.count("{}") == 1 for _, url in URLS)
    assert len(set(URLS)) == len(URLS)


# The record --------------------------------------------------------------------------------------


def test_the_record_of_today(record, fitted):
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["words"] == {"row": "disease", "col": "gene"}
    assert record["data"] == {"rows": M, "cols": N, "links": 200}
    assert len(record["summary"]) == 3
    assert "auto" in record["summary"][0]
    assert record["calibration"] is None
    assert "no probabilities were measured" in record["summary"][2]
    first = record["lists"][0]
    assert first["row_name"] == "Disease 3"
    known = fitted.known.cols[fitted.known.rows == 3].tolist()
    assert sorted(entry["col_id"] for entry in first["known"]) == sorted(map(str, known))
    assert first["num_known"] == len(known)
    assert [candidate["rank"] for candidate in first["candidates"]] == list(range(1, 8))
    assert not {candidate["col_id"] for candidate in first["candidates"]} & set(map(str, known))
    assert all(0 <= candidate["p_top"] <= 1 and candidate["k"] == 7 for candidate in first["candidates"])
    assert all(candidate["probability"] is None for candidate in first["candidates"])
    for candidate in first["candidates"]:
        assert candidate["why"]
        assert sum(reason["share"] for reason in candidate["reasons"]) == pytest.approx(1.0)
    names = [model["name"] for model in record["assessment"]["models"]]
    assert names[0] == "auto"
    assert "popularity" in names
    assert record["assessment"]["rows"] >= 2


def test_networks_have_the_edges_of_the_graph(record, links):
    weights = links.col_graph.adjacency()
    for entry in record["lists"]:
        if entry["network"] is None:  # nothing to draw: no edge among the candidates and the known genes
            listed = [int(gene["col_id"]) for gene in (*entry["candidates"], *entry["known"])]
            assert not any(weights[i, j] for i in listed for j in listed)
            continue
        nodes, edges = entry["network"]["nodes"], entry["network"]["edges"]
        numbers = [int(node["id"]) for node in nodes]
        assert len(set(numbers)) == len(numbers)
        kinds = {node["id"]: node["kind"] for node in nodes}
        assert {entry["col_id"] for entry in entry["known"]} == {
            name for name, kind in kinds.items() if kind == "known"
        }
        expected = {(i, j) for j in range(len(nodes)) for i in range(j) if weights[numbers[i], numbers[j]]}
        assert {(i, j) for i, j, _ in edges} == expected
        assert all(weight == pytest.approx(weights[numbers[i], numbers[j]], rel=1e-4) for i, j, weight in edges)


def test_no_edges_no_network(links):
    alone = replace(links, col_graph=Graph([], N), col_graphs=())
    fitted = fit_prioritiser(alone, model="popularity")
    made = record_of(fitted, fitted.ranked([0], top=3, uncertainty=False), link_set=alone)
    assert made["lists"][0]["network"] is None
    assert made["assessment"] is None
    assert "not known" in made["summary"][1]
    without = record_of(fitted, fitted.ranked([0], top=3, uncertainty=False))
    assert without["lists"][0]["network"] is None


@dataclass(frozen=True)
class Reason:
    share: float
    source: str
    text: str
    links: tuple


class Reasons:
    def __init__(self, *parts):
        self.parts = parts

    def __str__(self):
        return "; ".join(f"{100 * part.share:.0f} %: {part.text}" for part in self.parts)


def trusted(row, **more):
    """A list with the fields that probabilities, reasons and warnings add."""
    values = {name: getattr(row, name) for name in row.__dataclass_fields__} | more
    return make_dataclass("Trusted", [(name, object, None) for name in more], bases=(RankedRow,), frozen=True)(**values)


def test_probabilities_reasons_and_notes_are_shown_where_they_are(fitted):
    row = next(fitted.ranked([3], top=3, uncertainty=False))
    reasons = (Reasons(Reason(0.75, "row graph", "like it", ((4, 2, 0.5),)), Reason(0.25, "popularity", "often", ())),)
    chance = torch.tensor([0.5, 0.04, float("nan")])
    row = trusted(
        row,
        probability=chance,
        probability_low=chance / 2,
        probability_high=chance,
        classes=("A", "C", ""),
        reasons=reasons * 3,
        notes=("take care",),
        lengths={0.9: 34},
    )
    point = {"low": 0, "high": 1, "mean_probability": 0.3, "share": 0.31, "share_low": 0.3, "share_high": 0.4}
    yields = {"name": "A", "at_least": 0.2, "candidates": 9.0, "links": 2.0, "share": 0.22, "low": 0.1, "high": 0.4}
    calibration = SimpleNamespace(
        error=0.004, curve=[SimpleNamespace(**point, count=20.0)], classes=[SimpleNamespace(**yields)]
    )
    covered = {"group": "2 to 5", "length": 34, "links": 100, "covered": 0.91}
    trust = SimpleNamespace(
        calibration=calibration, coverage=lambda levels: [{**covered, "level": level} for level in levels]
    )
    judged = copy.copy(fitted)
    object.__setattr__(judged, "trust", trust)
    made = record_of(judged, [row])
    listed = made["lists"][0]
    assert listed["notes"] == ["take care"]
    assert listed["lengths"] == {"0.9": 34}
    first, _, last = listed["candidates"]
    assert (first["probability"], first["low"], first["class"]) == (0.5, 0.25, "A")
    assert (last["probability"], last["class"]) == (None, None)
    assert first["why"] == "75 %: like it; 25 %: often"
    assert first["reasons"][0]["links"] == [
        {"row_id": "OMIM:100004", "row_name": "Disease 4", "col_id": "2", "col_name": "GENE2", "share": 0.5}
    ]
    assert made["calibration"]["error"] == 0.004
    assert made["calibration"]["classes"][0]["yield"] == 0.22
    assert made["coverage"][0]["length"] == 34
    assert re.search("class A.$", made["summary"][2])


def test_reasons_of_auto_are_asked_for(fitted, monkeypatch):
    """Where lists come without any, and the mixture of rankers can give them."""
    asked = []

    def reasons(mixture, row, cols, **options):
        asked.append((row, options["words"], options["col_names"][0]))
        return tuple(Reasons(Reason(1.0, "popularity", f"often, {col}", ())) for col in cols.tolist())

    monkeypatch.setattr(Mixture, "reasons", reasons, raising=False)
    row = next(fitted.ranked([3], top=3, uncertainty=False))
    made = record_of(fitted, [row], row_word="user", col_word="film")
    assert asked in ([], [(3, ("user", "film"), "GENE0")])  # or they were there already
    whys = [candidate["why"] for candidate in made["lists"][0]["candidates"]]
    assert not asked or whys == [f"100 %: often, {col}" for col in row.cols.tolist()]


def test_reasons_in_one_line():
    assert why([{"share": 0.672, "text": "a"}, {"share": 0.3, "text": "b"}]) == "67 %: a; 30 %: b"


# Files -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_png")
def test_the_page_and_its_files(tmp_path):
    made = make_record()
    page = write_lists(made, tmp_path / "new")
    assert page == tmp_path / "new" / "report.html"
    text = page.read_text(encoding="utf-8")
    outline = Outline(text)
    sections = [attributes["id"] for tag, attributes in outline.elements if tag == "section"]
    assert sections == ["candidates", "network", "quality", "trust", "made"]
    for sentence in made["summary"]:
        assert sentence in "".join(outline.text)
    assert json.loads((page.parent / "lists.json").read_text()) == made
    with open(page.parent / "lists.tsv", newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert list(lines[0]) == list(COLUMNS)
    candidates = [candidate for entry in made["lists"] for candidate in entry["candidates"]]
    assert [from_cell(line["col_name"]) for line in lines] == [candidate["col_name"] for candidate in candidates]
    assert float(lines[0]["probability"]) == pytest.approx(candidates[0]["probability"])
    assert lines[-1]["probability"] == ""
    figures = {path.name for path in (page.parent / "figures").iterdir()}
    assert figures == {f"{name}.{kind}" for name in ("probabilities", "coverage") for kind in ("svg", "png")}
    for href in [attributes["href"] for tag, attributes in outline.elements if tag == "a" and "href" in attributes]:
        assert href.startswith("#") or (page.parent / href).is_file(), href
    assert "order only: too little to go by" in text
    assert "many" in text.split("Coverage in numbers")[1]
    assert "many" not in (page.parent / "figures" / "coverage.svg").read_text()
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in outline.elements:
        for key in ("for", "aria-labelledby", "aria-controls"):
            assert attributes.get(key) in (None, *ids)


@pytest.mark.usefixtures("no_png")
def test_the_same_record_gives_the_same_bytes(tmp_path):
    for folder in "ab":
        write_lists(make_record(rows=2), tmp_path / folder)
    a, b = (
        {str(path.relative_to(tmp_path / folder)): content for path, content in snapshot(tmp_path / folder).items()}
        for folder in "ab"
    )
    assert a == b


@pytest.mark.usefixtures("no_png")
def test_what_is_not_known_is_left_out(tmp_path, record):
    write_lists(make_record(), tmp_path)
    text = write_lists(record, tmp_path).read_text(encoding="utf-8")
    assert not list((tmp_path / "figures").iterdir())
    outline = Outline(text)
    sections = [attributes["id"] for tag, attributes in outline.elements if tag == "section"]
    assert sections == ["candidates", "network", "quality", "made"]
    assert "Order only: these lists have scores and no probabilities" in text
    assert 'id="candidates-class"' not in text


@pytest.mark.slow
@pytest.mark.usefixtures("no_png")
def test_a_hundred_lists_stay_small(tmp_path):
    page = write_lists(make_record(rows=100, top=20, known=8), tmp_path)
    assert page.stat().st_size < 3_000_000


@pytest.mark.usefixtures("no_png")
def test_hostile_names_are_text(tmp_path):
    made = make_record(rows=2, top=2)
    for entry in made["lists"]:
        entry["row_id"] = entry["row_name"] = entry["notes"] = f"</script>{NASTY}\u202e\ud800"
        entry["notes"] = [NASTY]
        entry["network"]["nodes"][0]["name"] = NASTY
        for candidate in entry["candidates"]:
            candidate |= {"col_name": NASTY, "col_id": "=1+1\t", "why": NASTY}
            candidate["reasons"][0]["text"] = candidate["reasons"][0]["source"] = NASTY
    made |= {name: NASTY for name in ("title", "source", "model", "setting", "created", "version")}
    made["summary"] = [NASTY]
    made["words"] = {"row": NASTY, "col": "<i>"}
    made["assessment"]["chosen"] = [NASTY]
    made["assessment"]["models"][0]["name"] = NASTY
    made["coverage"][0]["group"] = NASTY
    page = write_lists(made, tmp_path).read_text(encoding="utf-8")
    outline = Outline(page)
    scripts = [attributes.get("type") for tag, attributes in outline.elements if tag == "script"]
    assert scripts == ["application/json", None]
    assert "hacked" not in page.split("<script>")[-1]
    assert not [attributes for _, attributes in outline.elements for key in attributes if key.startswith("on")]
    table = (tmp_path / "lists.tsv").read_text()
    assert "'=1+1\\t" in table
    assert "\u202e" not in table


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "record: expected ranked lists of format 1, got 2"),
        ({"title": None}, r"record\.title: expected a text, got None"),
        ({"words": None}, r"record\.words\.row: expected a text, got None"),
        ({"words": {"row": " ", "col": "x"}}, "row_word: expected a word, got ' '"),
        ({"lists": []}, r"record\.lists: expected at least one list, got none"),
        ({"lists": [3]}, r"record\.lists\[0\]: expected an object, got 3"),
        ({"coverage": None}, r"record\.coverage: expected a list, got None"),
    ],
)
def test_malformed_records(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        write_lists({**make_record(rows=1, top=2), **change}, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 1.5}, r"candidates\[1\]\.rank: expected a whole number of at least 0, got 1\.5"),
        ({"score": float("nan")}, r"\.score: expected a number or null, got nan"),
        ({"probability": 1.2}, r"\.probability: expected a number from 0 to 1 or null, got 1\.2"),
        ({"known": 1}, r"\.known: expected true or false, got 1"),
    ],
)
def test_malformed_candidates(tmp_path, change, message):
    made = make_record(rows=1, top=2)
    made["lists"][0]["candidates"][1] |= change
    with pytest.raises(InputError, match=message):
        write_lists(made, tmp_path)


def test_the_directory_of_a_study_is_refused(tmp_path):
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(InputError, match="expected a directory without another report, got that of a study"):
        write_lists(make_record(rows=1, top=2), tmp_path)
    with pytest.raises(InputError, match="expected a directory for report.html"):
        write_lists(make_record(rows=1, top=2), tmp_path / "my.html")


def test_no_lists(fitted):
    with pytest.raises(InputError, match="lists: expected at least one ranked list, got none"):
        record_of(fitted, [])
    with pytest.raises(InputError, match="fitted: expected"):
        record_of("fitted", [])


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "has_pyarrow", lambda: False)
    with pytest.raises(InputError, match="parquet: expected pyarrow"):
        lists.save_record(make_record(rows=1, top=2), tmp_path / "l.parquet", "parquet")


@pytest.mark.usefixtures("no_png")
@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow")
def test_parquet_holds_the_same(tmp_path):
    from pyarrow import parquet

    made = make_record(rows=2, top=3, include_known=True)
    write_lists(made, tmp_path)
    lists.save_record(made, tmp_path / "own.parquet", "parquet")
    for file in ("lists.parquet", "own.parquet"):
        rows = parquet.read_table(tmp_path / file).to_pylist()
        assert list(rows[0]) == list(COLUMNS)
        candidates = [candidate for entry in made["lists"] for candidate in entry["candidates"]]
        for row, candidate in zip(rows, candidates, strict=True):
            assert all(row[name] == candidate[name] for name in ("rank", "col_name", "probability", "class", "known"))


# The layout of networks --------------------------------------------------------------------------


def test_labels_of_a_network_are_apart():
    generator = randomness.numpy_generator(0)
    for count in (1, 2, 12, 40):
        pairs = {tuple(sorted(generator.integers(0, count, 2).tolist())) for _ in range(3 * count)}
        edges = [(i, j, 1.0 + j) for i, j in sorted(pairs) if i < j]
        labels = [f"GENE{n}" for n in range(count)]
        width, height, places = lists.layout(labels, edges)
        assert lists.layout(labels, edges) == (width, height, places)
        points = np.array(places)
        assert points[:, 0].min() >= 0
        assert points[:, 0].max() <= width
        assert points[:, 1].min() >= 0
        assert points[:, 1].max() <= height - 15
        apart = np.abs(points[:, None] - points[None])
        touching = (apart[..., 0] < 7.2 * 6) & (apart[..., 1] < 20) & ~np.eye(count, dtype=bool)
        assert touching.sum() / 2 <= 0.05 * count
