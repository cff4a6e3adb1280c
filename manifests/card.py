"""The pages of a snapshot: README.md with the `configs:` that `datasets` reads, and what could not be used."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

from clipshards.advice import REASONS as REASON_ADVICE
from clipshards.schema import REASONS
from manifests.tables import Manifest

_MEDIA = ("part", "member", "clip", "view")
_NAMED_BY_ROWS_ALONE = ("clip-missing", "duplicate-across-parts-conflict")
"""Reasons of clips that have no line of their own: rows and examples name them."""

MAX_PLACES_OF_REASON = 20
"""Places that the page names of each reason; the table names all."""


def data_card(manifest: Manifest, source: str, licence: str) -> str:
    """The data card as Markdown with a YAML head."""
    tables = [name for name, table in manifest.tables.items() if table.num_rows]
    configs = "\n".join(f"- config_name: {name}\n  data_files: manifests/{name}.parquet" for name in tables)
    counts = "\n".join(f"| {name} | {manifest.tables[name].num_rows:,} |" for name in tables)
    return f"""---
configs:
{configs}
---

# Prepared by clipshards

Source: `{source}`. {licence}

Frames are stored exactly as a trainer would have decoded and resized them. The tars are WebDataset shards: a
sample is `<key>.json` and `<key>.mp` (a msgpack list of encoded frames). `dataset.json` holds the commit, the
rules and the sha256 of every file.

| table | rows |
|---|---|
{counts}
"""


def quarantine_page(manifest: Manifest) -> str:
    """What was left out, by reason, as Markdown: how much, what is lost with it, where, and in whose words."""
    by_reason: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in manifest.tables["quarantine"].to_pylist():
        by_reason[row["reason"]].append(row)
    if not by_reason:
        return "# Quarantine\n\nNothing was left out.\n"
    ranked = sorted(by_reason.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    lines = [
        "# Quarantine",
        "",
        "What could not be used, and why. `manifests/quarantine.parquet` names all of it; "
        "`clipshards prepare … --retry-quarantined` decodes these clips again, `clipshards refresh` takes in what "
        "was mended at the source.",
        "",
        "| reason | what it means | parts, clips, views | rows and items | examples |",
        "|---|---|---|---|---|",
    ]
    for reason, rows in ranked:
        num_examples = sum(row["kind"] == "example" for row in rows)
        num_rows = sum(row["kind"] in ("row", "item") for row in rows)
        num_media = len(rows) - num_examples - num_rows
        if reason in _NAMED_BY_ROWS_ALONE:
            num_media += len({row["clip"] for row in rows} - {row["clip"] for row in rows if row["kind"] in _MEDIA})
        lines.append(f"| {reason} | {REASONS[reason]} | {num_media:,} | {num_rows:,} | {num_examples:,} |")
    for reason, rows in ranked:
        causes = _causes(rows)
        lines += ["", f"## {reason}", "", REASON_ADVICE[reason], ""]
        lines += [f"- {_place(row)}: `{_plain(row['detail'])}`" for row in causes[:MAX_PLACES_OF_REASON]]
        if len(causes) > MAX_PLACES_OF_REASON:
            lines.append(f"- and {len(causes) - MAX_PLACES_OF_REASON:,} more")
    return "\n".join(lines) + "\n"


def _causes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the rows that are lost only because their clip is."""
    lost_clips = {row["clip"] for row in rows if row["kind"] in _MEDIA}
    return [row for row in rows if row["kind"] in _MEDIA or row["clip"] is None or row["clip"] not in lost_clips]


def _place(row: dict[str, Any]) -> str:
    where = f"`{_plain(row['path'])}`"
    if row["line"]:
        return f"{row['kind']} in {where}, line {row['line']}"
    if row["member"]:
        at = "" if row["offset_bytes"] is None else f", byte {row['offset_bytes']}"
        return f"{row['kind']} `{_plain(row['member'])}` in {where}{at}"
    return f"{row['kind']} {where}"


def _plain(text: str) -> str:
    """Text of the data set for a code span: one line, nothing that ends the span."""
    return re.sub(r"\s+", " ", text or "no words").replace("`", "'")
