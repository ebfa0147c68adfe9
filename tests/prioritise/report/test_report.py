"""The report as files: sections, escaping, what is missing, and whole or not at all."""

import builtins
import errno
import re
from html.parser import HTMLParser

import pytest

from mvgp.errors import InputError
from mvgp.kernels import Graph
from mvgp.prioritise.report import write_report
from mvgp.prioritise.report.figures import Figure
from mvgp.prioritise.report.page import embedded_json
from mvgp.prioritise.studies import Study, run_study
from mvgp.prioritise.tables import LinkSet
from tests import randomness
from tests.prioritise.report.studies import NASTY, write_candidates, write_description, write_study, write_table

SECTIONS = ("candidates", "metrics", "comparisons", "curves", "path", "calibration", "about")
VOID = {"meta", "link", "input", "br", "path", "rect", "circle"}


class Outline(HTMLParser):
    """Elements in order with their attributes; notes tags that are not closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.text = [], [], []
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def no_png(monkeypatch):
    """PNG files take most of the time; tests of other things do without."""
    monkeypatch.setattr(Figure, "png", lambda figure: b"PNG")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    directory = write_study(tmp_path_factory.mktemp("study"))
    write_report(directory)
    return directory


@pytest.fixture(scope="module")
def page(study):
    return (study / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_sections_and_files(study, page):
    elements = Outline(page).elements
    assert [attributes["id"] for tag, attributes in elements if tag == "section"] == list(SECTIONS)
    names = ("curves", "path-whole", "path-trace", "calibration")
    expected = {f"{name}.{kind}" for name in names for kind in ("svg", "png")}
    assert {path.name for path in (study / "figures").iterdir()} == expected
    for href in [attributes["href"] for tag, attributes in elements if tag == "a" and "href" in attributes]:
        assert href.startswith("#") or (study / href).is_file(), href


@pytest.mark.slow
def test_ids_are_unique_and_references_resolve(page):
    elements = Outline(page).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in elements:
        for key in ("for", "aria-labelledby", "aria-controls"):
            assert attributes.get(key) in (None, *ids)


@pytest.mark.slow
def test_nothing_comes_from_elsewhere(page):
    for tag, attributes in Outline(page).elements:
        for key in ("src", "href", "srcset", "action", "data", "xlink:href"):
            assert not re.match(r"\s*(https?:|//)", attributes.get(key) or ""), (tag, attributes)
    assert "@import" not in page
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_figures_of_the_table_are_in_the_page(page):
    words = " ".join(Outline(page).text)
    assert "Genes of rare diseases, known diseases" in words
    assert "13,614" in words
    assert "Mean ± standard deviation over 5 folds" in words
    assert "torch" in words
    best = re.findall(r"<strong>(0\.\d{4})</strong>", page.split('id="comparisons"')[0])
    assert len(best) == 9  # one for each metric


@pytest.mark.usefixtures("no_png")
def test_the_best_of_equal_models_are_all_bold(tmp_path):
    write_description(tmp_path)
    rows = [["a", "AUC", 0.75, "", 1], ["b", "AUC", 0.75, "", 1], ["c", "AUC", 0.5, "", 1], ["d", "AUC", "", "", 1]]
    write_table(tmp_path, "metrics", ["model", "metric", "mean", "std", "folds"], rows)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert page.count("<strong>0.7500</strong>") == 2
    assert "One fold, so no standard deviation" in page


@pytest.mark.usefixtures("no_png")
def test_an_unfinished_study_says_so(tmp_path, page):
    assert "not finished" not in page
    write_description(tmp_path, finished=False, units={"done": 7, "total": 1200})
    text = write_report(tmp_path).read_text(encoding="utf-8")
    assert "This study is not finished" in text
    assert "7 of 1,200 units" in text
    assert text.count("is not in the study directory") == 6


@pytest.mark.parametrize("name", SECTIONS[:-1])
@pytest.mark.usefixtures("no_png")
def test_a_missing_or_empty_table_is_a_note(tmp_path, name):
    write_study(tmp_path, models=("a", "b"), folds=2, rows=2, top=3)
    path = tmp_path / "tables" / f"{name}.tsv"
    header = path.read_text().split("\n")[0]
    path.unlink()
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert f"Left out: <code>tables/{name}.tsv</code> is not in the study directory" in page
    assert page.count("Left out") == 1
    path.write_text(header + "\n")
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert f"<code>tables/{name}.tsv</code> has a header and no lines" in page
    Outline(page)


@pytest.mark.slow
def test_hostile_names_are_text(tmp_path):
    long = "x" * 5000
    write_study(
        tmp_path, models=(NASTY, "</title>$css ${css} {{x}}", long), folds=2, rows=1, top=2,
        title=f"</title>{NASTY}", data={"source": f"</script>{NASTY}", "digest": "\ud800\x00"}, settings={NASTY: NASTY}, versions={"v": "</style>"},
    )  # fmt: skip
    header = "row_id row_name rank col_id col_name score std p_top k model held_out"
    rows = [
        [f"</script>{NASTY}", NASTY, 1, "<!--", "\u202eevil\u2028", 1.5, "", "", "", NASTY, 1],
        ["名", "", 2, long, "", -0.5, 0.1, 0.25, 9, "other", 0],
    ]
    write_table(tmp_path, "candidates", header, rows)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    outline = Outline(page)
    scripts = [attributes for tag, attributes in outline.elements if tag == "script"]
    assert [attributes.get("type") for attributes in scripts] == ["application/json", None]
    assert "hacked" not in page.split("<script>")[-1]  # the one that runs is ours
    assert f"</title>{NASTY}" in "".join(outline.text)
    assert "$css ${css} {{x}}" in "".join(outline.text)
    assert not [attributes for _, attributes in outline.elements for key in attributes if key.startswith("on")]
    assert len(list((tmp_path / "figures").iterdir())) == 8


def test_embedded_json_cannot_end_its_element():
    written = embedded_json(["</script><!--", "&", "\u2028"])
    assert not set("<>&") & set(written)
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded_json(float("nan"))


@pytest.mark.usefixtures("no_png")
def test_models_with_like_names_have_files_of_their_own(tmp_path):
    write_study(tmp_path, models=("A b", "a-B"), folds=1, rows=1, top=1)
    write_report(tmp_path)
    assert (tmp_path / "figures" / "path-a-b.svg").exists()
    assert (tmp_path / "figures" / "path-a-b-2.svg").exists()


@pytest.mark.usefixtures("no_png")
def test_fits_without_a_strength_are_told(tmp_path):
    write_study(tmp_path, models=("a", "b"), folds=1, rows=1, top=1)
    header = "model fold trace_share strength metric score standard_error rank relative_gap iterations seconds chosen"
    rows = [
        ["a", 0, "", "", "AUC", 0.5, "", "", "", "", "", 1],
        ["b", 0, 1, 0, "AUC", 0.5, "", 3, 0, 1, 1, 0],
        ["b", 0, 1, 0.1, "AUC", 0.6, "", 3, 0, 1, 1, 1],
    ]
    write_table(tmp_path, "path", header, rows)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "<bdi>a</bdi>: no fit with a positive strength" in page
    assert "Fits without a positive strength, which have no place on the axis: 1." in page
    Outline(page)


@pytest.mark.usefixtures("no_png")
def test_little_to_draw_is_drawn_or_told(tmp_path):
    write_study(tmp_path, models=("a", "b"), folds=1, rows=1, top=1)
    header = "model fold trace_share strength metric score standard_error rank relative_gap iterations seconds chosen"
    rows = [["a", 0, 1, 0.1, "AUC", "", "", "", "", "", "", 0], ["b", 0, 1, 0.1, "AUC", 0.5, "", 0, 0, 1, 1, 1]]
    write_table(tmp_path, "path", header, rows)
    write_table(tmp_path, "calibration", "model low high mean_probability share count", [["a", 0, 1, "", "", 0]])
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "<bdi>a</bdi>: no fit with a positive strength and a known value" in page
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {"curves", "path-b", "calibration"}
    Outline(page)


@pytest.mark.slow
def test_the_same_study_gives_the_same_bytes(study, page):
    figures = {path.name: path.read_bytes() for path in (study / "figures").iterdir()}
    assert write_report(study).read_text(encoding="utf-8") == page
    assert {path.name: path.read_bytes() for path in (study / "figures").iterdir()} == figures


@pytest.mark.slow
def test_a_report_elsewhere_takes_the_tables_along(study, page, tmp_path):
    path = write_report(study, tmp_path / "new" / "place")
    assert path == tmp_path / "new" / "place" / "report.html"
    assert path.read_text(encoding="utf-8") == page
    for table in (study / "tables").iterdir():
        assert (path.parent / "tables" / table.name).read_bytes() == table.read_bytes()


@pytest.mark.usefixtures("no_png")
def test_words_for_rows_and_columns(tmp_path):
    write_description(tmp_path)
    write_table(tmp_path, "metrics", ["model", "metric", "mean", "std", "folds"], [["a", "AUC", 0.5, "", 1]])
    page = write_report(tmp_path, row_word="city", col_word="<b>").read_text(encoding="utf-8")
    assert "cities" in page
    assert "&lt;b&gt;s" in page
    with pytest.raises(InputError, match="row_word: expected a word, got ''"):
        write_report(tmp_path, row_word="")


def test_paths_that_are_files_are_refused(study, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "my.html"):
        with pytest.raises(InputError, match="expected a directory for report.html"):
            write_report(study, out)
    with pytest.raises(InputError, match="below: expected a directory, got a file"):
        write_report(study, tmp_path / "file" / "below")


def snapshot(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("no_png")
def test_a_malformed_table_leaves_the_old_report(tmp_path):
    write_study(tmp_path, models=("a", "b"), folds=1, rows=1, top=2)
    write_report(tmp_path)
    (tmp_path / "tables" / "metrics.tsv").write_text("model\n")
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match=r"metrics\.tsv, line 1"):
        write_report(tmp_path)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("at", [0, 3, 6])
@pytest.mark.usefixtures("no_png")
def test_a_full_disk_leaves_the_old_report(tmp_path, monkeypatch, at):
    write_study(tmp_path, models=("a", "b"), folds=1, rows=1, top=2)
    write_report(tmp_path)
    write_description(tmp_path, title="Another title")
    before = snapshot(tmp_path)
    made = []

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self.file.close()

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, content):
            self.file.write(content[:10])
            raise OSError(errno.ENOSPC, "No space left on device")

    plain_open = builtins.open

    def opened(path, mode="r", *rest, **more):
        file = plain_open(path, mode, *rest, **more)
        if mode == "x+b":
            made.append(path)
            return Full(file) if len(made) == at + 1 else file
        return file

    monkeypatch.setattr(builtins, "open", opened)
    with pytest.raises(InputError, match="No space left on device"):
        write_report(tmp_path)
    monkeypatch.undo()
    assert snapshot(tmp_path) == before


def test_many_candidates_stay_small(tmp_path):
    write_description(tmp_path)
    write_candidates(tmp_path, 200, 50, randomness.numpy_generator(0))
    page = write_report(tmp_path)
    assert page.stat().st_size < 80 * 200 * 50


@pytest.mark.usefixtures("no_png")
def test_notes_and_used_links_are_told(tmp_path):
    write_description(
        tmp_path, notes=["trace, fold 0: <1> of 3 fits missed"], data={"links": 100, "used_links": 5, "source": ""}
    )
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert "trace, fold 0: &lt;1&gt; of 3 fits missed" in page
    assert "of them used" in page
    assert "Data: <bdi>not stated" in page
    write_description(tmp_path, notes="none")
    with pytest.raises(InputError, match="'notes' of the study to be list"):
        write_report(tmp_path)


@pytest.mark.slow
def test_a_study_that_was_run(tmp_path):
    """The tables of mvgp.prioritise.studies are what the report expects."""
    cells = randomness.numpy_generator(0).choice(12 * 20, 60, replace=False)
    rings = [Graph([(i, (i + 1) % n) for i in range(n)], n) for n in (12, 20)]
    links = LinkSet(range(12), range(20), cells // 20, cells % 20, *rings)
    study = Study(
        models=("popularity", "trace", "prodige"), folds=2, negative_sets=1, strengths=3, lowest=0.1, costs=(1.0, 10.0), metric="MAP@10",
        k=10, calibration_rows=2, candidate_rows=3, top=5,
    )  # fmt: skip
    run_study(links, study, tmp_path / "study", progress=False)
    page = write_report(tmp_path / "study").read_text(encoding="utf-8")
    Outline(page)
    assert "Left out" not in page
    assert "P(top 5)" in page
    assert "<option selected>MAP@10</option>" in page
    assert "not finished" not in page


@pytest.mark.slow
def test_what_is_no_longer_there_goes(tmp_path, no_png):
    study, out = write_study(tmp_path / "study"), tmp_path / "page"
    for target in (study, out):
        write_report(study, target)
        (target / "figures" / "mine.svg").write_text("of the user")
        (target / "tables" / "mine.tsv").write_text("of the user")
    before = {target: {str(path.relative_to(target)) for path in target.rglob("*.*")} for target in (study, out)}
    for name in ("calibration", "path"):
        (study / "tables" / f"{name}.tsv").unlink()
    for target in (study, out):
        write_report(study, target)
        gone = before[target] - {str(path.relative_to(target)) for path in target.rglob("*.*")}
        assert {"figures/calibration.svg", "figures/calibration.png", "tables/path.tsv"} <= gone
        assert {name.split("-")[0].split(".")[0] for name in gone} == {
            "figures/calibration",
            "figures/path",
            "tables/calibration",
            "tables/path",
        }
