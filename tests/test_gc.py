"""Old snapshots go; the current one, and what it shares with them, stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clipshards.errors import UsageError
from manifests.gc import collect_garbage

SHARED, OWN = b"s" * 1000, b"o" * 100


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Four snapshots that share one shard; the second one is current."""
    shard = tmp_path / "work/shards/train/a.tar"
    shard.parent.mkdir(parents=True)
    shard.write_bytes(SHARED)
    shard.with_suffix(".json").write_text("{}")
    for number in range(4):
        folder = tmp_path / "snapshots" / f"s{number}"
        (folder / "train").mkdir(parents=True)
        (folder / "dataset.json").write_text("{}")
        os.link(shard, folder / "train/a.tar")
        (folder / f"train/own{number}.tar").write_bytes(OWN)
        os.utime(folder, ns=(number, number))
    (tmp_path / "current").symlink_to("snapshots/s1")
    return tmp_path


def names(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "snapshots").iterdir())


def test_the_latest_and_the_current_stay(out: Path) -> None:
    freed = collect_garbage(out, keep=2)
    assert names(out) == ["s1", "s3"]
    assert set(freed.snapshots) == {"s0", "s2"}
    assert freed.bytes == 2 * (len(OWN) + 2), "the shared shard is still linked"
    assert (out / "current/train/a.tar").read_bytes() == SHARED


def test_only_the_current_one(out: Path) -> None:
    collect_garbage(out, keep=1)
    assert names(out) == ["s1"]


def test_an_open_shard_is_read_to_its_end(out: Path) -> None:
    with (out / "snapshots/s0/train/own0.tar").open("rb") as shard:
        shard.read(10)
        collect_garbage(out, keep=1)
        assert shard.read() == OWN[10:]


def test_orphans_of_runs_that_are_over_go(out: Path) -> None:
    orphans = [out / "work/shards/train/gone.tar", out / "work/shards/train/gone.json"]
    for path in orphans:
        path.write_bytes(OWN)
    (out / "work/staging").mkdir()
    (out / "work/library").mkdir()
    (out / "work/shards/train/a.frames").mkdir()
    (out / "work/trash-s9").mkdir()
    (out / "work/shards/train/b.tar.tmp").write_bytes(OWN)
    collect_garbage(out, keep=4)
    assert names(out) == ["s0", "s1", "s2", "s3"]
    assert sorted(str(path.relative_to(out)) for path in (out / "work").rglob("*")) == [
        "work/shards", "work/shards/train", "work/shards/train/a.json", "work/shards/train/a.tar",
    ]  # fmt: skip


def test_mistakes(out: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--keep"):
        collect_garbage(out, keep=0)
    with pytest.raises(UsageError, match="no finished output"):
        collect_garbage(tmp_path / "empty", keep=1)
