"""What the repository writes for its own readers, made fit for the pages.

Links to files outside the documentation (results, programs) become downloads, so that they lead somewhere in the built
pages as they do in the repository. Shapes in docstrings, such as ``(*batch, D)``, keep their star.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

OUTSIDE = re.compile(
    r"(?<!!)(\[[^]]+\])\((\.\./(?:\.\./)*(?:benchmarks|campaign|examples|experiments)/[^)\s]+)\)"
)
"""A link, not an image, to a file of the repository that is no page."""


def _links_become_downloads(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = OUTSIDE.sub(r"\1(path:\2)", source[0])


def _stars_stay(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    lines[:] = [line.replace("(*", r"(\*") for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", _links_become_downloads)
    app.connect("autodoc-process-docstring", _stars_stay)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
