"""The check that ``make docs`` runs on the built site finds what it is there for."""

import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parent.parent / "docs" / "check_links.py"
GOOD = {
    "index.html": (
        '<link rel="stylesheet" href="static/a.css?v=1"><a href="sub/page.html#part">there</a> <a href="#">top</a>'
        '<a href="https://example.org/gone.html#no">other sites are not asked</a> <a href="mailto:a@b.org">mail</a>'
        '<img src="static/a%20b.png" srcset="static/a%20b.png 1x, static/a%20b.png 2x"><img src="data:image/png;base64,">'
        '<link rel="canonical" href="https://example.org/index.html">'
    ),
    "sub/page.html": '<h2 id="part">Part</h2> <a name="old"></a> <a href="../index.html">home</a> <a href="#old">up</a>',
    "static/a.css": "",
    "static/a b.png": "",
}


def run(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return subprocess.run([sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, check=False)


def test_a_site_without_a_mistake(tmp_path):
    done = run(tmp_path, GOOD)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "8 links inside the site, 0 of them wrong\n"


@pytest.mark.parametrize(
    ("html", "wrong"),
    [
        ('<a href="gone.html">', "index.html: gone.html is not there"),
        ('<a href="sub/page.html#gone">', "index.html: sub/page.html#gone has no such anchor"),
        ('<a href="#gone">', "index.html: #gone has no such anchor"),
        ('<a href="../elsewhere.html">', "index.html: ../elsewhere.html is not there"),
        ('<img src="gone.png">', "index.html: gone.png is not there"),
        ('<source srcset="static/a%20b.png 1x, gone.png 2x">', "index.html: gone.png is not there"),
        ('<script src="https://cdn.example.org/a.js"></script>', "index.html: would load https://cdn.example.org/a.js"),
        (
            '<link rel="stylesheet" href="//fonts.example.org/a.css">',
            "index.html: would load //fonts.example.org/a.css",
        ),
        ('<img src="http://example.org/a.png">', "index.html: would load http://example.org/a.png"),
    ],
)
def test_a_mistake_is_named_and_fails(tmp_path, html, wrong):
    done = run(tmp_path, {**GOOD, "index.html": GOOD["index.html"] + html})
    assert done.returncode == 1
    assert done.stderr == wrong + "\n"


def test_a_folder_without_a_page_is_no_success(tmp_path):
    assert run(tmp_path, {"a.txt": ""}).returncode == 1
