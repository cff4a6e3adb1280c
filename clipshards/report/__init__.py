"""The page of a snapshot: one file for eyes, without a network, that says whether the data is good.

    facts ──── pictures (matplotlib → SVG) ─┐
    explorer (examples, small frames) ──────┴─ page (template, script, style) ─┬─ report.html
                                                                               └─ server (all examples)

Reads manifests, dataset.json, run.json and shards of one snapshot. The other modules of the library do without.
"""

from __future__ import annotations

from pathlib import Path

PAGE, RUN = "report.html", "run.json"
"""Names in a snapshot. Neither is among the files that dataset.json hashes: both hold the seconds of a run."""


def write_page(snapshot: Path, page: Path) -> None:
    """Make the page of a snapshot and put it at `page`, whole or not at all.

    Raises:
        OSError: the snapshot cannot be read, or the page not written.
    """
    from clipshards.report.page import render  # with it matplotlib, which only this needs

    new = page.with_name(f"{page.name}.new")
    new.write_text(render(snapshot), encoding="utf-8")
    new.replace(page)
