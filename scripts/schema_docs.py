"""docs/tables.md and docs/reasons.md from `clipshards.schema` and `clipshards.advice`."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from clipshards import advice, schema

ROOT = Path(__file__).parents[1]
MADE_BY = "Made by `scripts/schema-docs`."


def tables_page() -> str:
    """Each table with its columns, their types and what they say."""
    lines = [
        "# Tables",
        "",
        f"{MADE_BY} Parquet files in `OUT/current/manifests`, schema version {schema.SCHEMA_VERSION}, zstd;",
        "rows are sorted by clip. How to read them: [loaders](loaders.md).",
    ]
    for table, columns in schema.TABLES.items():
        lines += ["", f"## {table}", "", schema.ROWS[table], "", "| column | type | |", "|---|---|---|"]
        lines += [f"| `{field.name}` | `{_type(field.type)}` | {column(table, field.name)} |" for field in columns]
    return "\n".join(lines) + "\n"


def column(table: str, name: str) -> str:
    """What a column of a table says."""
    return schema.COLUMNS.get(f"{table}.{name}") or schema.COLUMNS[name]


def reasons_page() -> str:
    """Each word with what it means, how it comes about and what to do."""
    lines = [
        "# Reasons and warnings",
        "",
        f"{MADE_BY} A **reason** stands in `quarantine.parquet`, in `QUARANTINE.md` and in the totals of a",
        "run: the thing is not used. `detail` and `line`, `member` or `offset_bytes` of its row say where to look.",
        "A **warning** stands in the `warnings` of a table's row: the thing is used.",
        "`clipshards prepare … --retry-quarantined` tries again what could not be decoded,",
        "`clipshards refresh OUT` takes in what was mended at the source.",
    ]
    for title, sentences, todo in (
        ("Reasons", schema.REASONS, advice.REASONS),
        ("Warnings", schema.WARNINGS, advice.WARNINGS),
    ):
        lines += ["", f"## {title}"]
        for word, sentence in sentences.items():
            lines += ["", f"### {word}", "", f"**{sentence}** {todo[word]}"]
    return "\n".join(lines) + "\n"


def _type(kind: pa.DataType) -> str:
    """Arrow's name of a type, without the names that it gives to list items."""
    return str(kind).replace("element: ", "").replace("item: ", "")


def main() -> None:
    """Write both pages to the folder that is named, default docs."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    (folder / "tables.md").write_text(tables_page(), encoding="utf-8")
    (folder / "reasons.md").write_text(reasons_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
