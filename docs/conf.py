"""Settings of the documentation site."""

import shutil
import sys
from pathlib import Path

import mvgp

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

# sphinx reads what lies below this folder only, so the notebooks are copied here; with their outputs, which are stored
HERE = Path(__file__).parent
shutil.rmtree(HERE / "tutorials", ignore_errors=True)
(HERE / "tutorials").mkdir()
for notebook in (HERE.parent / "tutorials").glob("*.ipynb"):
    shutil.copy2(notebook, HERE / "tutorials")

project = "mvgp"
author = "The mvgp authors"
copyright = "2026, the mvgp authors"
release = mvgp.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "mathml"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
html_math_renderer = "mathml"
math_eqref_format = "({number})"
html_theme = "furo"
html_title = "mvgp"
html_static_path = ["_static"]
html_css_files = ["mvgp.css"]
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
