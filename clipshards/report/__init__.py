"""The page of a snapshot: one file for eyes, without a network, that says whether the data is good.

    facts ──── pictures (matplotlib → SVG) ─┐
    explorer (examples, small frames) ──────┴─ page (template, script, style) ─┬─ report.html
                                                                               └─ server (all examples)

Reads manifests, dataset.json, run.json and shards of one snapshot. The other modules of the library do without.
"""

from clipshards.report.page import PAGE, RUN, render, write_page

__all__ = ["PAGE", "RUN", "render", "write_page"]
