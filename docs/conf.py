"""How the documentation is built: ``make docs``. Cells run, warnings are errors, nothing is fetched."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import multiplexnet

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "multiplexnet"
author = "The multiplexnet authors"
copyright = "2026, The multiplexnet authors"
version = multiplexnet.__version__
release = version

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "repository",
]
exclude_patterns = ["_build", "pictures"]
default_role = "code"  # of docstrings: `x` is code, as in Markdown

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 3
nb_execution_mode = "force"  # always: what the cells show depends on the library and not on the page alone
nb_execution_in_temp = True  # what cells write is not written here
nb_execution_timeout = 900  # seconds for a cell: a busy machine is slow, not wrong
nb_execution_raise_on_error = True
nb_merge_streams = True
logging.getLogger("traitlets").setLevel(logging.WARNING)  # it tells of every page

# kernels of cells warn of connections without encryption, which stay on this machine
_settings = TemporaryDirectory()
_profile = Path(_settings.name) / "profile_default"
_profile.mkdir()
(_profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n")
os.environ.setdefault("IPYTHONDIR", _settings.name)
nb_output_stderr = (
    "remove-warn"  # what a cell says on stderr is a warning, and warnings are errors
)

autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_google_docstring = True

html_math_renderer = "mathml"
html_theme = "furo"
html_title = "multiplexnet"
pygments_dark_style = "a11y-high-contrast-dark"  # furo's own underlines imports
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#1f5f8b",
        "color-brand-content": "#1f5f8b",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7fb8e0",
        "color-brand-content": "#7fb8e0",
    },
}
