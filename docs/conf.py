"""Settings of the documentation site."""

import mvgp

project = "mvgp"
author = "The mvgp authors"
copyright = "2026, the mvgp authors"
release = mvgp.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
html_theme = "furo"
html_title = "mvgp"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
