"""Snapshots: immutable states of the output, published by one rename.

    OUT/current -> snapshots/<id>      replaced last, atomically
    OUT/snapshots/<id>/dataset.json    what this is, and the sha256 of every other file
                       train/*.tar     hard links to the shards; beside them the indexes of other loaders
                       manifests/*.parquet
                       README.md       the data card
                       report.html     the page, and run.json, the numbers of the run: these two are not hashed
    OUT/work/                          downloads, receipts; no trainer reads it

The id is made of the contents, so that the same contents are published once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from clipshards import __version__
from clipshards.report import PAGE, RUN, write_page
from clipshards.schema import SCHEMA_VERSION, TABLES
from clipshards.shards import ShardInfo
from manifests.card import data_card, quarantine_page
from manifests.indexes import make_indexes
from manifests.tables import Manifest, rows_by_clip

ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 1 << 29
_FEW_VALUES = [
    "split", "file", "stage", "clip", "source", "status", "reason", "part", "codec", "pix_fmt", "decoder",
    "shard", "kind", "category", "category_canonical", "difficulty", "format", "fps_from_row",
]  # fmt: skip
"""Columns worth a dictionary; trying one on texts that all differ costs half of the writing."""
_LONG_TEXTS = ("question", "options", "response", "target", "turns", "gt_events", "extra", "detail")
"""Columns of which nobody asks for the least and the greatest value."""
_IN_ORDER_OF_FILES = ("examples", "questions", "bench")


@dataclass(frozen=True)
class Provenance:
    """Where a snapshot came from and by which rules it was made."""

    source: str
    commit: str
    recipe: str
    licence: str
    profiles: Mapping[str, Mapping[str, Any]]
    """By split."""
    quality: int | None
    made_with: str
    """`shards.made_with`."""
    decoder: str
    """The decoder of the run; a clip that the CPU had to do says so in its row."""
    selection: Mapping[str, Any]
    """What was asked for when it was not all of the source, else empty."""
    options: Mapping[str, Any]
    """The other options of the run, as `prepare` takes them: a refresh asks for the same."""
    inputs: Mapping[str, Mapping[str, Any]]
    """The files of the source that were used: path → size_bytes and hash (sha256, or git's sha1)."""


@dataclass(frozen=True)
class RunRecord:
    """What differs between two runs that make the same snapshot."""

    finished: str
    """UTC, ISO 8601."""
    seconds: float
    """From the start of the run until the snapshot was written."""
    cores: int
    workers: int
    """Decoder processes."""
    stages: Mapping[str, Mapping[str, Any]]
    """By name: done, its unit, bytes and seconds from the first to the last piece of work."""
    decoded_clips: int
    """The others were there already."""
    clips_gone_to_cpu: Mapping[str, int]
    """By kind of reason."""
    peak_disk_bytes: int
    """Of working files."""


def write_tables(tables: Mapping[str, pa.Table], folder: Path) -> None:
    """Write each table as `<name>.parquet`: one explicit schema, zstd 3; equal tables give equal bytes.

    Rows are sorted by clip on the way, one row group at a time: a sorted copy of all texts would take more
    memory than anything else in a run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        schema = TABLES[name].with_metadata({"clipshards_schema_version": str(SCHEMA_VERSION)})
        order = pa.array(rows_by_clip(table)) if name in _IN_ORDER_OF_FILES else None
        write_table(table, folder / f"{name}.parquet", schema, order=order)


def write_table(
    table: pa.Table,
    path: Path,
    schema: pa.Schema,
    *,
    order: pa.Array | None = None,
    row_group_bytes: int = ROW_GROUP_BYTES,
) -> None:
    """Write one table with one explicit schema, in row groups that are small by rows and by bytes.

    Args:
        order: numbers of the rows as they are to be written; None: as they are.
        row_group_bytes: most bytes of a row group in memory, unless one row alone has more. Readers join the
            chunks of a group, and Arrow's offsets of texts are int32.
    """
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=3,
        use_dictionary=[column for column in _FEW_VALUES if column in schema.names],
        write_statistics=[column for column in schema.names if column not in _LONG_TEXTS],
    ) as writer:
        for start in range(0, max(1, table.num_rows), ROW_GROUP_ROWS):
            rows = slice(start, start + ROW_GROUP_ROWS)
            group = table[rows] if order is None else table.take(order[rows])
            for piece in _cut(group.cast(schema), row_group_bytes):
                writer.write_table(piece, ROW_GROUP_ROWS)


def _cut(group: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """Halves of halves until each is small enough."""
    if group.num_rows <= 1 or group.nbytes <= most_bytes:
        yield group
        return
    middle = group.num_rows // 2
    yield from _cut(group[:middle], most_bytes)
    yield from _cut(group[middle:], most_bytes)


def publish(
    out: Path,
    manifest: Manifest,
    shards: Iterable[ShardInfo],
    shard_folder: Path,
    provenance: Provenance,
    *,
    run: RunRecord | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Make a snapshot of finished shards and tables and point `current` at it; returns its folder.

    Args:
        run: of the run that made it; None where nobody measured one.
        say: takes a line for the user: that the page could not be made. The data is right without it.
    """
    staging = out / "work" / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    write_tables(manifest.tables, staging / "manifests")
    files = {}
    by_split: dict[str, list[ShardInfo]] = defaultdict(list)
    for info in sorted((info for info in shards if info.samples), key=lambda info: info.path):
        _link_or_copy(shard_folder / info.path, staging / info.path)
        files[info.path] = {"size_bytes": info.size_bytes, "sha256": info.sha256}
        by_split[info.split].append(info)
    indexes = [path for split, infos in by_split.items() for path in _write_indexes(split, infos, staging)]
    card = data_card(manifest, provenance.source, provenance.licence)
    (staging / "README.md").write_text(card, encoding="utf-8")
    (staging / "QUARANTINE.md").write_text(quarantine_page(manifest), encoding="utf-8")
    pages = [staging / "README.md", staging / "QUARANTINE.md"]
    for path in [*indexes, *sorted((staging / "manifests").iterdir()), *pages]:
        files[path.relative_to(staging).as_posix()] = _describe(path)
    dataset = {
        "schema_version": SCHEMA_VERSION,
        "clipshards_version": __version__,
        **asdict(provenance),
        "counts": manifest.counts,
        "reasons": dict(sorted(manifest.reasons.items())),
        "warnings": manifest.warnings,
        "files": files,
    }
    text = json.dumps(dataset, indent=1, ensure_ascii=False) + "\n"
    _write_durably(staging / "dataset.json", text)
    content = hashlib.sha256(text.encode()).hexdigest()
    snapshot = out / "snapshots" / f"{provenance.commit[:12]}-{content[:12]}"
    snapshot.parent.mkdir(exist_ok=True)
    if snapshot.exists():
        _mend(snapshot, staging, files)
        shutil.rmtree(staging)
    else:
        _add_page(staging, run, say)
        staging.rename(snapshot)
    _point_current_at(out, snapshot)
    return snapshot


def _add_page(staging: Path, run: RunRecord | None, say: Callable[[str], None]) -> None:
    """The page and the numbers that it shows of the run. Whatever goes wrong with them, the data is right."""
    try:
        if run is not None:
            (staging / RUN).write_text(json.dumps(asdict(run), indent=1) + "\n", encoding="utf-8")
        write_page(staging, staging / PAGE)
    except Exception as error:  # noqa: BLE001  a run of days is not lost for a page
        what = f"{type(error).__name__}: {error}"
        say(f"the page could not be made ({what}); all else is published: `clipshards report OUT` makes it")


def _write_indexes(split: str, shards: Sequence[ShardInfo], staging: Path) -> list[Path]:
    paths = []
    (staging / split / ".nv-meta").mkdir()
    for name, content in make_indexes(split, shards).items():
        paths.append(staging / split / name)
        paths[-1].write_bytes(content)
    return paths


def _mend(snapshot: Path, staging: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Put back what was lost of a snapshot that is published again; what is there stays as it is."""
    for name, wanted in files.items():
        path = snapshot / name
        if not path.is_file() or path.stat().st_size != wanted["size_bytes"]:
            path.parent.mkdir(parents=True, exist_ok=True)
            (staging / name).replace(path)


def discard(out: Path, snapshot: Path, paths: Iterable[str]) -> None:
    """Remove damaged files of a snapshot, and what `work/` keeps of them, so that the next run makes them again."""
    for name in set(paths):
        for path in (
            snapshot / name,
            out / "work/shards" / name,
            (out / "work/shards" / name).with_suffix(".json"),
        ):
            path.unlink(missing_ok=True)


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"size_bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _link_or_copy(shard: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(shard, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(shard, target)


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _point_current_at(out: Path, snapshot: Path) -> None:
    link = out / "current.new"
    link.unlink(missing_ok=True)
    link.symlink_to(snapshot.relative_to(out))
    link.replace(out / "current")
