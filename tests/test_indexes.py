"""The indexes of other loaders say where everything lies in the shards; `tests/loaders` runs the loaders."""

from __future__ import annotations

import json
import sqlite3
import struct
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from test_snapshot import PROVENANCE, make_result

from clipshards.shards import ShardInfo
from clipshards.verify import verify_snapshot
from manifests.indexes import make_indexes
from manifests.snapshot import publish
from manifests.tables import build_manifest


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexes")
    split, rejects, shard_folder = make_result(folder)
    return publish(folder / "out", build_manifest([split], rejects), split.shards, shard_folder, PROVENANCE)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[ShardInfo]:
    split, _, _ = make_result(tmp_path_factory.mktemp("shards"))
    return [shard for shard in split.shards if shard.samples]


def members_of(folder: Path) -> dict[str, list[tarfile.TarInfo]]:
    members = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            members[path.name] = tar.getmembers()
    return members


def test_the_indexes_say_where_samples_and_members_lie(snapshot: Path) -> None:
    folder = snapshot / "train"
    members = members_of(folder)
    assert list(json.loads((folder / ".nv-meta/.info.json").read_text())["shard_counts"]) == list(members)
    database = sqlite3.connect(f"file:{folder}/.nv-meta/index.sqlite?mode=ro&immutable=1", uri=True)
    samples = database.execute("SELECT * FROM samples ORDER BY tar_file_id, sample_index").fetchall()
    parts = database.execute("SELECT * FROM sample_parts ORDER BY tar_file_id, content_byte_offset").fetchall()
    database.close()
    assert parts == [
        (shard, number // 2, member.name.split(".")[1], member.offset_data, member.size)
        for shard, in_shard in enumerate(members.values())
        for number, member in enumerate(in_shard)
    ]
    for number, (name, in_shard) in enumerate(members.items()):
        *starts, end = struct.unpack(f"<{len(in_shard) // 2 + 1}Q", (folder / f"{name}.idx").read_bytes())
        sizes = [after - start for start, after in zip(starts, [*starts[1:], end], strict=True)]
        keys = [member.name.removesuffix(".json") for member in in_shard[::2]]
        assert starts == [member.offset for member in in_shard[::2]]
        assert [row for row in samples if row[0] == number] == [
            (number, key, index, start, size)
            for index, (key, start, size) in enumerate(zip(keys, starts, sizes, strict=True))
        ]
        with (folder / name).open("rb") as file:
            file.seek(end)
            assert not any(file.read()), "what follows the last sample is the end mark"


def test_wids_json_lists_the_shards_that_have_samples(snapshot: Path) -> None:
    wids = json.loads((snapshot / "train/wids.json").read_text())
    assert {shard["url"]: (shard["nsamples"], shard["filesize"]) for shard in wids["shardlist"]} == {
        name: (len(members) // 2, (snapshot / "train" / name).stat().st_size)
        for name, members in members_of(snapshot / "train").items()
    }


def test_the_same_shards_give_the_same_bytes(shards: Sequence[ShardInfo]) -> None:
    first = make_indexes("train", shards)
    assert make_indexes("train", shards) == first
    assert first[".nv-meta/index.sqlite"][96:100] == bytes(4), "not the version of SQLite"
    changed = make_indexes("train", [replace(shards[0], sha256="0" * 64), *shards[1:]])
    assert {name for name in first if first[name] != changed[name]} == {".nv-meta/index.uuid"}


def test_the_indexes_are_verified_with_the_rest(snapshot: Path) -> None:
    assert verify_snapshot(snapshot)[1] == []
    for name in (".nv-meta/index.sqlite", ".nv-meta/.info.json", "wids.json"):
        path = snapshot / "train" / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b"?")
        assert [problem.path for problem in verify_snapshot(snapshot)[1]] == [f"train/{name}"]
        path.write_bytes(content)
