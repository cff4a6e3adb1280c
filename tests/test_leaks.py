"""The same clip in two splits is found by its bytes and marked in both."""

from __future__ import annotations

import pyarrow as pa

from clipshards.schema import TABLES
from manifests.leaks import Leak, find_leaks, mark_leaks

ROWS = [
    ("train/a.mp4", "train", "sharded", "1"),
    ("video/b.mp4", "test", "sharded", "1"),
    ("train/c.mp4", "train", "rejected", "2"),
    ("train/d.mp4", "train", "sharded", "2"),
    ("train/e.mp4", "train", "unused", "3"),
    ("video/e.mp4", "test", "sharded", "3"),
]


def clips() -> pa.Table:
    names = ("clip", "split", "status", "sha256")
    rows = [{**dict(zip(names, row, strict=True)), "warnings": ["rotated"]} for row in ROWS]
    return pa.Table.from_pylist(rows, TABLES["clips"])


def test_only_clips_that_rows_of_both_splits_use() -> None:
    assert find_leaks(clips()) == [Leak("1", (("test", "video/b.mp4"), ("train", "train/a.mp4")))]


def test_both_are_marked_and_keep_their_warnings() -> None:
    table = clips()
    marked = mark_leaks(table, find_leaks(table))
    words = dict(zip(marked.column("clip").to_pylist(), marked.column("warnings").to_pylist(), strict=True))
    assert words["train/a.mp4"] == words["video/b.mp4"] == ["rotated", "clip-in-train-and-test"]
    assert all(words[clip] == ["rotated"] for clip in words.keys() - {"train/a.mp4", "video/b.mp4"})
    assert marked.schema == table.schema


def test_nothing_leaks() -> None:
    table = clips().slice(2)
    assert find_leaks(table) == [] and mark_leaks(table, []) is table
