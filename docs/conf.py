"""The pages as a site: `make docs`. On GitHub the same files are read as they are, so they are plain Markdown."""

from __future__ import annotations

import re
from importlib.metadata import version as version_of

from sphinx.application import Sphinx

project = "clipshards"
author = "the clipshards authors"
copyright = "the clipshards authors"
version = release = version_of("clipshards")

extensions = ["myst_parser"]
html_theme = "furo"
html_title = "clipshards"
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 4


def list_as_toctree(app: Sphinx, page: str, text: list[str]) -> None:
    """The lists of links of an index are its table of contents: a `toctree` is not rendered by GitHub."""
    if page.rsplit("/", 1)[-1] != "index":
        return
    for section in re.split(r"^## ", text[0], flags=re.MULTILINE)[1:] or [text[0]]:
        caption, _, body = section.partition("\n")
        pages = "\n".join(re.findall(r"^- \[[^]]*\]\(([^)]*)\.md\)", body, re.MULTILINE))
        text[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption.lstrip('# ')}\n\n{pages}\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", list_as_toctree)
