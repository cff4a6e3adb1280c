"""Compressed parts: unpacked whole or not at all, once, within what they may take."""

from __future__ import annotations

import errno
import gzip
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tar_bytes import END_MARK, member, tar_of

from clipshards.errors import NoSpaceError, Rejected, StoppedError
from clipshards.hub.listing import hash_file
from clipshards.receipts import make_receipt, read_receipt, write_receipt
from clipshards.schema import REASONS
from clipshards.tars import index_tar, is_gzip
from clipshards.unpack import MIN_LIMIT_BYTES, is_packed_name, is_unpacked, remove_unpacked, unpack
from manifests.gc import sweep

TAR = tar_of({"s/a.mp4": random.Random(1).randbytes(3 << 20), "s/b.mp4": random.Random(2).randbytes(700)})


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "source" / "p_videos_1.tar.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(TAR, mtime=0))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "work/unpacked/s/p_videos_1.tar.gz"


def files(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.glob("*"))


def test_the_tar_is_that_which_was_packed(packed: Path, target: Path) -> None:
    tar = unpack(packed, "0123456789abcdef" * 4, target)
    assert tar.read_bytes() == TAR and is_unpacked(tar) and not is_unpacked(packed)
    assert files(target) == ["p_videos_1.tar.gz.0123456789abcdef.unpacked"]
    assert [m.name for m in index_tar(tar, part="p").members] == ["s/a.mp4", "s/b.mp4"]


def test_it_is_unpacked_once(packed: Path, target: Path) -> None:
    tar = unpack(packed, "a" * 64, target)
    before = tar.stat().st_mtime_ns
    packed.write_bytes(packed.read_bytes()[:-30])  # it would fail
    assert unpack(packed, "a" * 64, target) == tar
    assert tar.stat().st_mtime_ns == before


def test_another_version_takes_the_place_of_the_first(packed: Path, target: Path) -> None:
    unpack(packed, "a" * 64, target)
    other = unpack(packed, "b" * 64, target)
    assert files(target) == [other.name]
    remove_unpacked(target)
    assert files(target) == []


def test_a_plain_tar_is_taken_as_it_is(tmp_path: Path, target: Path) -> None:
    # Its first member is named as gzip begins.
    odd = member(b"\x1f\x8b.mp4", b"x") + END_MARK
    for content in (TAR, odd, b"", b"\x1f"):
        plain = tmp_path / "plain.tar"
        plain.write_bytes(content)
        assert unpack(plain, "a" * 64, target) == plain
    assert not target.parent.exists()


@pytest.mark.parametrize("end", [b"", bytes(512), bytes(1)])
def test_streams_one_after_the_other_are_one_tar(packed: Path, target: Path, end: bytes) -> None:
    packed.write_bytes(gzip.compress(TAR[:1000]) + gzip.compress(b"") + gzip.compress(TAR[1000:]) + end)
    assert unpack(packed, "a" * 64, target).read_bytes() == TAR


def damaged(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


WHOLE = gzip.compress(TAR, mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        WHOLE[:-1],
        WHOLE[:-8],
        WHOLE[: len(WHOLE) // 2],
        WHOLE[:10],
        WHOLE[:3],
        damaged(WHOLE, len(WHOLE) // 2),
        damaged(WHOLE, len(WHOLE) - 6),
        damaged(WHOLE, len(WHOLE) - 2),
        damaged(WHOLE, 2),
        WHOLE + b"what is this",
        WHOLE + WHOLE[:100],
    ],
)
def test_damage_is_named_and_nothing_is_left(packed: Path, target: Path, content: bytes) -> None:
    packed.write_bytes(content)
    with pytest.raises(Rejected, match="gzip stream") as caught:
        unpack(packed, "a" * 64, target)
    assert caught.value.reason == "tar-damaged"
    assert files(target) == []


def test_a_bomb_is_stopped_at_the_limit_that_is_told(packed: Path, target: Path) -> None:
    packed.write_bytes(gzip.compress(bytes(MIN_LIMIT_BYTES + 1)))
    with pytest.raises(Rejected, match=f"more than {MIN_LIMIT_BYTES:,} bytes") as caught:
        unpack(packed, "a" * 64, target)
    assert caught.value.reason == "no-space" and caught.value.reason in REASONS
    assert files(target) == []
    packed.write_bytes(gzip.compress(bytes(MIN_LIMIT_BYTES)))
    assert unpack(packed, "a" * 64, target).stat().st_size == MIN_LIMIT_BYTES


def test_the_budget_is_a_limit_too(packed: Path, target: Path) -> None:
    with pytest.raises(Rejected, match=f"more than {len(TAR) - 1:,} bytes: leave --disk-budget out") as caught:
        unpack(packed, "a" * 64, target, limit_bytes=len(TAR) - 1)
    assert caught.value.reason == "no-space"
    with pytest.raises(Rejected, match=r"name it \.tar\.gz") as caught:
        unpack(packed, "a" * 64, target, limit_bytes=0)
    assert caught.value.reason == "tar-compressed"
    assert unpack(packed, "a" * 64, target, limit_bytes=len(TAR)).read_bytes() == TAR


def test_a_stop_leaves_nothing(packed: Path, target: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        unpack(packed, "a" * 64, target, stop=stop)
    assert files(target) == []


SLOWLY = """
import sys, threading, time
from pathlib import Path
from clipshards.unpack import unpack
stop = threading.Event()
stop.is_set = lambda: time.sleep(60)
unpack(Path(sys.argv[1]), "a" * 64, Path(sys.argv[2]), stop=stop)
"""


def test_a_killed_run_leaves_no_tar_and_the_next_one_sweeps(packed: Path, target: Path, tmp_path: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", SLOWLY, str(packed), str(target)])
    deadline = time.monotonic() + 60
    while not files(target) and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert [name.endswith(".tmp") for name in files(target)] == [True]
    sweep(tmp_path / "work")
    assert files(target) == []
    assert unpack(packed, "a" * 64, target).read_bytes() == TAR


def test_a_full_disk(packed: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        with pytest.raises(NoSpaceError, match="free some") as caught:
            unpack(packed, "a" * 64, disk / "p.tar.gz")
        assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.ENOSPC
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_part_that_two_splits_name_is_unpacked_and_kept_in_mind_by_both(packed: Path, tmp_path: Path) -> None:
    def work(number: int) -> bool:
        tar = unpack(packed, "a" * 64, tmp_path / f"work/unpacked/{number // 8}.tar.gz")
        receipt = make_receipt(tar, "a" * 64, index_tar(tar, part="p"))
        write_receipt(tmp_path / "parts", receipt)
        return read_receipt(tmp_path / "parts", "a" * 64) == receipt

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(48)))
    assert len(list(tmp_path.rglob("*.unpacked"))) == 6 and not list(tmp_path.rglob("*.tmp"))


def test_names() -> None:
    assert [is_packed_name(f"a/b{end}") for end in (".tar.gz", ".tgz", ".TAR.GZ", ".tar", ".gz", ".tar.xz")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_the_hash_stays_that_of_the_packed_part(packed: Path, target: Path) -> None:
    assert is_gzip(packed) and hash_file(packed) != hash_file(unpack(packed, hash_file(packed), target))
