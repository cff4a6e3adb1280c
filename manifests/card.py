"""README.md of a snapshot: what it is, in words, and the `configs:` that `datasets` reads."""

from __future__ import annotations

from manifests.tables import Manifest


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
