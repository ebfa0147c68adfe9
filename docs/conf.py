"""Settings of the documentation site."""

import re
import shutil
import sys
from pathlib import Path

import mvgp

sys.path[:0] = [str(Path(__file__).parent / "_extensions"), str(Path(__file__).parents[1])]
from benchmarks.book.figures import draw_figures  # noqa: E402, found by the line above
from benchmarks.sbc_page import draw_figure  # noqa: E402

# sphinx reads what lies below this folder only, so the notebooks are copied here; with their outputs, which are stored
HERE = Path(__file__).parent
shutil.rmtree(HERE / "tutorials", ignore_errors=True)
(HERE / "tutorials").mkdir()
for notebook in (HERE.parent / "tutorials").glob("*.ipynb"):
    copy = HERE / "tutorials" / notebook.name
    copy.write_text(notebook.read_text().replace("](../docs/", "](../"))  # pages are one folder nearer there
    shutil.copystat(notebook, copy)
draw_figures(HERE / "figures" / "bench.json")  # the numbers are committed, the figures of the benchmark book are not
draw_figure(HERE / "figures" / "sbc.json")  # the same for simulation-based calibration

project = "mvgp"
author = "The mvgp authors"
copyright = "2026, the mvgp authors"
release = mvgp.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "mathml"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_merge_streams = True
html_math_renderer = "mathml"
math_eqref_format = "({number})"
html_theme = "furo"
html_title = "mvgp"
html_static_path = ["_static"]
html_css_files = ["mvgp.css"]
html_favicon = "_static/favicon.svg"  # without one browsers ask for favicon.ico
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88  # longer ones have a line for each parameter


def set_one_letter_as_text(app, what, name, thing, options, lines):
    """``:param num_rows: M.`` would begin a list whose first item is empty."""
    lines[:] = [re.sub(r"^(:param \w+:) ([A-Za-z]\.)$", r"\1 \\\2", line) for line in lines]


def leave_out_arguments_of_protocols(app, what, name, thing, options, signature, returned):
    return ("", returned) if getattr(thing, "_is_protocol", False) else None


def setup(app):
    app.connect("autodoc-process-docstring", set_one_letter_as_text)
    app.connect("autodoc-process-signature", leave_out_arguments_of_protocols)
