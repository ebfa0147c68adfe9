"""The report in a real browser: wide and narrow, light and dark, with and without JavaScript."""

import contextlib
import json
import pathlib

import pytest

from mvgp.prioritise.report import write_lists, write_report
from mvgp.prioritise.report.record import COLUMNS
from tests.prioritise.report.records import make_record
from tests.prioritise.report.studies import NASTY, write_study, write_table

CHROMIUM = pathlib.Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--no-first-run",
]
sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install 'mvgp[test]'")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs a browser at {CHROMIUM}")]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return write_report(write_study(tmp_path_factory.mktemp("study"), rows=500, top=100)).as_uri()


@pytest.fixture
def visit(browser):
    """Opens pages, and fails at the end if one of them complained or asked for anything else than itself."""
    troubles = []
    with contextlib.ExitStack() as stack:

        def open_page(address, width=1280, **options):
            context = browser.new_context(viewport={"width": width, "height": 900}, **options)
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(60_000)  # of a busy machine
            page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on("request", lambda request: troubles.append(request.url) if request.url.startswith("http") else None)
            page.goto(address)
            return page

        yield open_page
    assert troubles == []


def column(page, table, index):
    cells = page.locator(f"{table} tbody tr:visible").evaluate_all(
        "(rows, index) => rows.map(row => row.cells[index].innerText)", index
    )
    return [cell.split("\n")[0] for cell in cells]


def heading(page, table, name):
    return page.locator(f"{table} thead th").filter(has=page.get_by_role("button", name=name, exact=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_runs_over_the_edge(visit, address, width, scheme):
    page = visit(address, width, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    bright = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert bright == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")
    stroke = page.evaluate("getComputedStyle(document.querySelector('#figure-curves .line')).stroke")
    assert stroke == ("rgb(10, 99, 180)" if scheme == "light" else "rgb(94, 176, 255)")
    clipped = page.evaluate(
        """[...document.querySelectorAll('svg.panel')].filter(panel => {
            const frame = panel.getBoundingClientRect();
            return [...panel.querySelectorAll('text')].some(label => {
                const box = label.getBoundingClientRect();
                return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
            });
        }).length"""
    )
    assert clipped == 0


def test_the_colours_can_be_chosen(visit, address):
    page = visit(address, color_scheme="light")
    seen = []
    for _ in range(3):
        page.locator("#theme").click()
        seen.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert seen == ["rgb(255, 255, 255)", "rgb(20, 23, 27)", "rgb(255, 255, 255)"]
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.emulate_media(color_scheme="dark", media="screen")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"


@pytest.mark.parametrize("width", [1280, 390])
def test_metrics_are_sorted_by_a_click_and_by_the_keyboard(visit, address, width):
    page = visit(address, width)
    table = "#metrics table"
    auc = heading(page, table, "AUC")
    auc.get_by_role("button").click()
    values = [float(value) for value in column(page, table, 1)]
    assert values == sorted(values, reverse=True)
    assert auc.get_attribute("aria-sort") == "descending"
    auc.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert [float(value) for value in column(page, table, 1)] == sorted(values)
    assert auc.get_attribute("aria-sort") == "ascending"
    heading(page, table, "Model").get_by_role("button").click()
    assert column(page, table, 0) == sorted(column(page, table, 0))
    assert page.locator(f"{table} [aria-sort]").count() == 1


def test_comparisons_show_one_metric_and_one_model(visit, address):
    page = visit(address)
    assert set(column(page, "#comparisons-table", 1)) == {"trace", "hilbert", "full", "prodige", "popularity"}
    assert page.locator("#comparisons-count").inner_text() == "15 of 135 comparisons"
    page.locator("#comparisons-model").select_option("full")
    assert page.locator("#comparisons-table tbody tr:visible").count() == 5
    before = column(page, "#comparisons-table", 3)
    page.locator("#comparisons-metric").select_option("AUC")
    assert column(page, "#comparisons-table", 3) != before


@pytest.mark.parametrize("width", [1280, 390])
def test_a_disease_is_chosen_from_the_list(visit, address, width):
    page = visit(address, width)
    assert page.locator("#candidates-table tbody tr").count() == 100
    choose = page.get_by_role("combobox", name="Choose a disease")
    choose.fill("syndrome 37")
    options = page.locator("#candidates-options [role=option]")
    fitting = [n for n in range(1, 501) if "37" in f"{n} {n + 99999}"]
    assert options.count() == len(fitting)
    assert options.first.inner_text().endswith("OMIM:100036")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert choose.get_attribute("aria-activedescendant") == "candidates-option-1"
    page.keyboard.press("Enter")
    assert "syndrome 370 (OMIM:100369)" in page.locator("#candidates-title").inner_text()
    assert options.first.is_hidden()
    choose.fill("OMIM:100004")
    options.first.click()
    assert "syndrome 5 (" in page.locator("#candidates-title").inner_text()
    page.get_by_role("button", name="Next disease").click()
    assert "syndrome 6 (" in page.locator("#candidates-title").inner_text()
    choose.fill("nothing like this")
    assert page.get_by_text("No disease matches").is_visible()
    page.keyboard.press("Escape")
    assert "syndrome 6" in choose.input_value()


@pytest.mark.parametrize("width", [1280, 390])
def test_candidates_are_sorted_and_stay_so(visit, address, width):
    page = visit(address, width)
    heading(page, "#candidates-table", "Score").get_by_role("button").click()
    scores = [float(value) for value in column(page, "#candidates-table", 3)]
    assert scores == sorted(scores, reverse=True)
    heading(page, "#candidates-table", "P(top 20)").get_by_role("button").click()
    heading(page, "#candidates-table", "P(top 20)").get_by_role("button").click()
    page.get_by_role("button", name="Next disease").click()
    chances = [float(value) for value in column(page, "#candidates-table", 2)]
    assert chances == sorted(chances)
    heading(page, "#candidates-table", "Rank").get_by_role("button").click()
    assert column(page, "#candidates-table", 0) == [str(rank) for rank in range(1, 101)]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_search_goes_over_everything(visit, address, width):
    page = visit(address, width)
    gene = column(page, "#candidates-table", 1)[0]
    search = page.get_by_role("searchbox")
    search.fill(gene.lower())
    page.locator("#search-results").wait_for(state="visible")
    genes = column(page, "#search-table", 1)
    assert gene in genes
    assert all(gene in name for name in genes)
    assert page.locator("#candidates-table").is_hidden()
    search.fill("syndrome 12 gen")
    count = sync_api.expect(page.locator("#search-count"))
    count.to_contain_text("first 200 shown", timeout=7_200_000)
    search.fill("zzzz")
    count.to_have_text("Nothing found", timeout=7_200_000)
    search.fill("OMIM:100498")
    count.to_have_text("100 candidates found", timeout=7_200_000)
    search.fill("syndrome 499")  # and genes with 499 in their names, of any syndrome, after it
    count.to_contain_text("first 200 shown", timeout=7_200_000)
    page.locator("#search-table .link").first.click()
    assert "syndrome 499" in page.locator("#candidates-title").inner_text()
    assert page.locator("#search-results").is_hidden()
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_a_legend_hides_and_the_pointer_reads(visit, address):
    page = visit(address)
    figure = page.locator("#figure-curves")
    figure.scroll_into_view_if_needed()
    figure.get_by_role("button", name="trace", exact=True).click()
    assert figure.locator(".series[data-place='1']").first.is_hidden()
    figure.locator("svg.panel").nth(1).hover()
    assert "whole" in figure.locator(".reading").inner_text()
    assert "trace" not in figure.locator(".reading").inner_text()
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [1280, 390])
def test_without_javascript_all_is_readable(visit, address, width):
    page = visit(address, width, java_script_enabled=False)
    assert page.locator("#candidates-table tbody tr").count() == 100
    assert page.locator("#candidates-row").is_hidden()
    assert page.locator("#comparisons-table tbody tr").last.is_visible()
    assert page.get_by_text("JavaScript is off").is_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_and_long_names_do_nothing(visit, tmp_path, width):
    long = "x" * 3000
    write_study(
        tmp_path, models=(NASTY, long, "c"), folds=1, rows=1, top=1, title=NASTY + long, data={"source": long + NASTY}
    )
    header = ["row_id", "row_name", "rank", "col_id", "col_name", "score", "std", "p_top", "k", "model", "held_out"]
    rows = [
        ["r</script>", NASTY, 1, long, NASTY, 1.5, "", "", "", NASTY, 1],
        ["q", long, 2, "i", "", -0.5, 0.1, 0.25, 9, long, 0],
    ]
    write_table(tmp_path, "candidates", header, rows)
    page = visit(write_report(tmp_path).as_uri(), width)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert column(page, "#candidates-table", 1)[0].replace("\n", "") == NASTY
    page.locator("#candidates-model").select_option("1")
    assert column(page, "#candidates-table", 0) == ["2"]
    page.get_by_role("searchbox").fill("i")
    page.locator("#search-results").wait_for(state="visible")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert page.evaluate("window.hacked") is None


# The page of ranked lists ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lists_address(tmp_path_factory):
    return write_lists(make_record(rows=30, include_known=True), tmp_path_factory.mktemp("lists")).as_uri()


@pytest.fixture(scope="module")
def single_address(tmp_path_factory):
    return write_lists(make_record(rows=1), tmp_path_factory.mktemp("single")).as_uri()


def names(page):
    return page.locator("#candidates-table tbody tr:visible td.name").all_inner_texts()


def saved(page, button):
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    return download.value, pathlib.Path(download.value.path()).read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_lists_at_both_widths_and_themes(visit, lists_address, width, scheme):
    page = visit(lists_address, width, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    page.locator(".unfold").first.click()
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")
    assert page.locator("main section").evaluate_all("parts => parts.map(part => part.id)") == [
        *("candidates", "network", "quality", "trust", "made"),
    ]
    contrast = page.evaluate(
        """() => {
            const channel = (value) => { value /= 255; return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
            const light = (colour) => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number); return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b); };
            const paper = light(getComputedStyle(document.body).backgroundColor);
            return [...document.querySelectorAll('.grade-C, .quiet, .out, .summary p, .network text, .reasons li, small')].map(part => {
                const style = getComputedStyle(part);
                const ink = light(part.closest('.network') ? style.fill : style.color);
                return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
            });
        }"""
    )
    assert min(contrast) >= 4.5


@pytest.mark.parametrize("width", [1280, 390])
def test_lists_are_searched_and_chosen(visit, lists_address, width):
    page = visit(lists_address, width)
    first = names(page)[2]
    page.get_by_role("searchbox").fill(first.lower())
    page.locator("#search-results").wait_for(state="visible")
    assert first in column(page, "#search-table", 1)
    page.get_by_role("searchbox").fill("")
    page.locator("#search-results").wait_for(state="hidden")
    choose = page.get_by_role("combobox", name="Choose a disease")
    choose.fill("OMIM:100001")
    page.keyboard.press("Enter")
    assert "syndrome 2 (OMIM:100001)" in page.locator("#candidates-title").inner_text()
    assert page.locator("#candidates-about .warning").inner_text() == "Probabilities of this disease are extrapolated."
    assert "4 known genes" in page.locator("#candidates-about .known").inner_text()
    assert "among the first 340 with 90\u202f%" in page.locator("#candidates-about").inner_text()
    choose.fill("syndrome 30")
    page.keyboard.press("Enter")
    assert "order only: too little to go by" in page.locator("#candidates-about .warning").inner_text()
    assert set(page.locator("#candidates-table td.probability .quiet").all_inner_texts()) == {"order only"}


def test_reasons_unfold_by_the_keyboard_and_stay_with_their_line(visit, lists_address):
    page = visit(lists_address)
    button = page.locator(".unfold").first
    assert button.get_attribute("aria-expanded") == "false"
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    reasons = page.locator(f"#{button.get_attribute('aria-controls')}")
    words = reasons.inner_text()
    assert "67\u202f% linked to diseases like this one" in words.replace("\n", " ")
    assert "8\u202f% often linked" in words.replace("\n", " ")
    heading(page, "#candidates-table", "Score").get_by_role("button").click()
    heading(page, "#candidates-table", "Score").get_by_role("button").click()
    assert page.locator("#candidates-table tbody tr").last.get_attribute("class") == "unfolded"
    assert page.locator("#candidates-table tbody tr").nth(-2).locator("th").inner_text() == "1"
    button = page.locator(".unfold[aria-expanded=true]")
    button.focus()
    page.keyboard.press("Space")
    assert page.locator("tr.unfolded").count() == 0
    assert page.locator(".unfold[aria-expanded=true]").count() == 0


def test_lists_are_sorted_and_filtered(visit, lists_address):
    page = visit(lists_address)
    by_chance = heading(page, "#candidates-table", "Probability")
    by_chance.get_by_role("button").click()
    by_chance.get_by_role("button").click()
    assert by_chance.get_attribute("aria-sort") == "ascending"
    ranks = [int(rank) for rank in page.locator("#candidates-table tbody th").all_inner_texts()]
    known = [2, 7, 12, 17]  # which have no probability, and come last
    assert ranks == [*(rank for rank in range(20, 0, -1) if rank not in known), *known]
    heading(page, "#candidates-table", "Class").get_by_role("button").click()
    classes = page.locator("#candidates-table td.class").all_inner_texts()
    assert classes[-4:] == ["\u2013"] * 4
    assert classes[:-4] == sorted(classes[:-4])
    count = page.locator("#candidates-count")
    assert count.inner_text() == "20 of 20 genes shown"
    page.get_by_role("combobox", name="Class").select_option("A")
    assert page.locator("#candidates-table tbody tr:visible").count() == classes.count("A")
    assert count.inner_text() == f"{classes.count('A')} of 20 genes shown"
    page.get_by_role("combobox", name="Class").select_option("")
    page.get_by_label("Hide known genes").check()
    assert count.inner_text() == "16 of 20 genes shown"
    assert page.locator("#candidates-table .held:visible").count() == 0
    page.get_by_role("button", name="Next disease").click()
    assert count.inner_text() == "16 of 20 genes shown"


def test_what_is_shown_is_exported(visit, lists_address):
    page = visit(lists_address)
    page.get_by_role("combobox", name="Class").select_option("B")
    page.get_by_label("Hide known genes").check()
    heading(page, "#candidates-table", "Rank").get_by_role("button").click()
    heading(page, "#candidates-table", "Rank").get_by_role("button").click()
    shown = names(page)
    download, text = saved(page, "Export TSV")
    assert download.suggested_filename == "OMIM_100000.tsv"
    header, *lines = [line.split("\t") for line in text.splitlines()]
    assert header == list(COLUMNS)
    assert [line[header.index("col_name")] for line in lines] == shown
    assert lines[0][header.index("why")].startswith("67 %: linked to")
    download, text = saved(page, "Export JSON")
    entries = json.loads(text)
    assert [entry["col_name"] for entry in entries] == shown
    made = make_record(rows=30, include_known=True)["lists"][0]["candidates"]
    original = {candidate["col_name"]: candidate for candidate in made}
    for entry in entries:
        assert entry["reasons"] == original[entry["col_name"]]["reasons"]
        assert entry["why"] == original[entry["col_name"]]["why"]
        assert entry["probability"] == pytest.approx(original[entry["col_name"]]["probability"], rel=1e-4)


def test_links_lead_elsewhere_and_nothing_is_requested(visit, lists_address):
    page = visit(lists_address)
    pages = page.locator("#candidates a.out, #candidates-about a.out")
    assert pages.count() > 20
    for target, rel, href in pages.evaluate_all("links => links.map(link => [link.target, link.rel, link.href])"):
        assert (target, rel) == ("_blank", "noopener noreferrer")
        assert href.startswith("https://")
    assert page.get_by_role("link", name="OMIM").first.get_attribute("href") == "https://omim.org/entry/100000"


def test_the_network_is_drawn_and_told(visit, lists_address):
    page = visit(lists_address)
    assert page.locator("svg.network .node").count() == 24
    assert page.locator("svg.network .known-node").count() == 4
    edges = page.locator("svg.network line").count()
    assert "20 candidates and 4 known genes of" in page.locator("#network-title").text_content()
    page.get_by_text("The same as a table").click()
    neighbours = [
        int(key)
        for key in page.locator("#network-table td:last-child").evaluate_all(
            "cells => cells.map(cell => cell.dataset.key)"
        )
    ]
    assert sum(neighbours) == 2 * edges
    first = page.locator("svg.network").inner_html()
    page.get_by_role("button", name="Next disease").click()
    assert page.locator("svg.network").inner_html() != first


def test_one_list_is_searched_in_place(visit, single_address):
    page = visit(single_address)
    assert page.get_by_role("combobox", name="Choose a disease").count() == 0
    gene = names(page)[3]
    page.get_by_role("searchbox", name="Search the genes").fill(gene)
    sync_api.expect(page.locator("#candidates-count")).to_have_text("1 of 20 genes shown", timeout=60_000)
    assert names(page) == [gene]


def test_tables_and_controls_have_names(visit, lists_address):
    page = visit(lists_address)
    unnamed = page.evaluate(
        """[...document.querySelectorAll('button, input, select, [role=region], [role=img], a')].filter(part => !(
            part.getAttribute('aria-label') || part.getAttribute('aria-labelledby') || part.textContent.trim() || part.labels?.length)).length"""
    )
    assert unnamed == 0
    assert page.evaluate("[...document.querySelectorAll('thead th')].every(cell => cell.scope === 'col')")
    assert page.evaluate("[...document.querySelectorAll('tbody th')].every(cell => cell.scope === 'row')")
    assert page.locator("#candidates-count").get_attribute("aria-live") == "polite"


def test_lists_without_javascript(visit, lists_address):
    page = visit(lists_address, java_script_enabled=False)
    assert page.locator("#candidates-table tbody tr").count() == 20
    assert page.get_by_text("JavaScript is off").is_visible()
    assert page.get_by_text("JavaScript draws this picture").is_visible()
    assert "67 %: linked to diseases" in page.locator("#candidates-table tbody tr").first.inner_text()


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_names_of_lists_do_nothing(visit, tmp_path, width):
    evil = f"\u202e{NASTY}\u2066"
    made = make_record(rows=2, top=2)
    for entry in made["lists"]:
        entry |= {"row_name": evil, "row_id": f"{evil}{entry['row_id']}", "notes": [evil], "group": evil}
        entry["known"][0] |= {"col_name": evil, "col_id": "x" * 2000}
        for node in entry["network"]["nodes"]:
            node["name"] = evil
        for candidate in entry["candidates"]:
            candidate |= {"col_name": evil, "col_id": f"=1\t{evil}", "class": "A"}
            candidate["reasons"][0] |= {"text": evil, "source": evil}
            candidate["reasons"][0]["links"][0] |= {"row_name": evil, "col_name": "y" * 2000}
    made |= {"title": evil, "source": "z" * 3000, "summary": [evil], "model": evil}
    page = visit(write_lists(made, tmp_path).as_uri(), width)
    for button in page.locator(".unfold").all():
        button.click()
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert page.locator("#candidates-table td.name bdi").first.text_content() == evil
    assert page.locator(".reasons bdi").first.text_content() == evil
    _, text = saved(page, "Export TSV")
    assert "\u202e" not in text
    assert len(text.splitlines()) == 3
    assert "'=1\\t\\u202e" in text
    page.get_by_role("searchbox").fill("hacked")
    page.locator("#search-results").wait_for(state="visible")
    assert page.evaluate("window.hacked") is None
