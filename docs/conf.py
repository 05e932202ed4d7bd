"""Settings of the documentation as a site: `make docs` builds it."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

from lmfcn import __version__  # noqa: E402

project = "lmfcn"
author = "the lmfcn contributors"
copyright = author  # noqa: A001
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "command_pages",
    "local_links",
    "mathml",
]
exclude_patterns = ["_build", "extensions", "templates"]
templates_path = ["templates"]
default_role = "code"
# A name such as `labels`, an attribute of several classes, is then no link.
suppress_warnings = ["ref.python"]

# Markdown: the same pages are read on a code host, so only what is read there is switched on.
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# API reference
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# Gallery
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 1e6,
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "show_signature": False,
}

# Pages
html_theme = "furo"
html_title = f"lmfcn {release}"
html_logo = html_favicon = "../src/lmfcn/serve/static/icon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_show_search_summary = False  # it is loaded from other pages, which a browser refuses for files
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f6f54", "color-brand-content": "#1f6f54"},
    "dark_css_variables": {"color-brand-primary": "#7fd1b0", "color-brand-content": "#7fd1b0"},
}
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"
