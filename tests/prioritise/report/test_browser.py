"""The report in a real browser: wide and narrow, light and dark, with and without JavaScript."""

import contextlib
import pathlib

import pytest

from mvgp.prioritise.report import write_report
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
