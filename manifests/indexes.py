"""The indexes that other loaders want beside the shards, so that none of their own prepare steps is needed.

    <split>/wids.json        wids 0.1: the shards and how many samples each has
    <split>/<shard>.tar.idx  energon 7.4: where each sample starts, and the end of the last
    <split>/.nv-meta/        energon 7.4: shards by split, the kind of sample, each sample and member by its key

All of it is told by the receipts: no shard is read. The files hold what `energon prepare` writes (its prepare.py,
itar.py and indexing.py; `tests/loaders` compares), and the same shards give the same bytes. 300,000 samples take
3 s and an index.sqlite of 93 MB.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import PurePosixPath
from typing import Any

from clipshards.shards import ShardInfo

ENERGON_VERSION = "7.4.1"
"""Whose format `.nv-meta` has."""

_BLOCK = 512
"""Of a tar: a header is one block, contents fill whole ones."""

_DATASET_YAML = """\
__module__: megatron.energon
__class__: CrudeWebdataset
"""

# The statements of energon's SqliteIndexWriter; the pragmas name what builds of SQLite differ in.
_TABLES = """
PRAGMA page_size = 4096;
PRAGMA auto_vacuum = NONE;
PRAGMA encoding = 'UTF-8';
CREATE TABLE samples (
    tar_file_id INTEGER NOT NULL,
    sample_key TEXT NOT NULL UNIQUE,
    sample_index INTEGER NOT NULL,
    byte_offset INTEGER,
    byte_size INTEGER
);
CREATE TABLE sample_parts (
    tar_file_id INTEGER,
    sample_index INTEGER,
    part_name TEXT,
    content_byte_offset INTEGER,
    content_byte_size INTEGER
);
"""
_INDEXES = """
CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index);
CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset);
CREATE INDEX idx_sample_parts_full
    ON sample_parts(tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size);
"""
_SQLITE_VERSION = slice(96, 100)
"""Where a database names the SQLite that wrote it (sqlite.org/fileformat.html, 1.3); no reader goes by it."""


def make_indexes(split: str, shards: Sequence[ShardInfo]) -> dict[str, bytes]:
    """The files by their names in the folder of the split.

    Args:
        shards: all of the split that have samples, sorted by path.
    """
    named = {PurePosixPath(shard.path).name: shard for shard in shards}
    counts = {name: len(shard.samples) for name, shard in named.items()}
    hashes = hashlib.sha256("".join(shard.sha256 for shard in shards).encode())
    return {
        "wids.json": _json(_wids(split, named)),
        ".nv-meta/.info.json": _json({"energon_version": ENERGON_VERSION, "shard_counts": counts}),
        ".nv-meta/split.yaml": _json({"split_parts": {split: list(named)}, "exclude": []}),  # JSON is YAML
        ".nv-meta/dataset.yaml": _DATASET_YAML.encode(),
        ".nv-meta/index.uuid": str(uuid.UUID(bytes=hashes.digest()[:16])).encode(),
        ".nv-meta/index.sqlite": _sqlite(shards),
        **{f"{name}.idx": _offsets(shard) for name, shard in named.items()},
    }


def _wids(split: str, named: dict[str, ShardInfo]) -> dict[str, Any]:
    """wids looks for the shards beside the file. Of `md5sum`, which `wids-index` adds, it makes no use."""
    return {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "name": split,
        "shardlist": [
            {"url": name, "nsamples": len(shard.samples), "filesize": shard.size_bytes}
            for name, shard in named.items()
        ],
    }


def _offsets(shard: ShardInfo) -> bytes:
    starts = [place.offset_bytes for place in shard.samples]
    end = starts[-1] + shard.samples[-1].length_bytes
    return struct.pack(f"<{len(starts) + 1}Q", *starts, end)


def _sqlite(shards: Sequence[ShardInfo]) -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(_TABLES)
        with database:
            database.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", _samples(shards))
            database.executemany("INSERT INTO sample_parts VALUES (?, ?, ?, ?, ?)", _members(shards))
        database.executescript(_INDEXES)
        content = bytearray(database.serialize())
    content[_SQLITE_VERSION] = bytes(4)
    return bytes(content)


def _samples(shards: Sequence[ShardInfo]) -> Iterator[tuple[int, str, int, int, int]]:
    for number, shard in enumerate(shards):
        for index, place in enumerate(shard.samples):
            yield number, place.key, index, place.offset_bytes, place.length_bytes


def _members(shards: Sequence[ShardInfo]) -> Iterator[tuple[int, int, str, int, int]]:
    for number, shard in enumerate(shards):
        for index, place in enumerate(shard.samples):
            text = place.offset_bytes + _BLOCK
            frames = text + -(-place.json_size_bytes // _BLOCK) * _BLOCK + _BLOCK
            yield number, index, "json", text, place.json_size_bytes
            yield number, index, "mp", frames, place.mp_size_bytes


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
