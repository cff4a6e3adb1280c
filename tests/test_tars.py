"""Tars: what `tar -xf` would leave, read in place; and for each thing that is wrong, its word."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import random
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tar_bytes import END_MARK, header, member, padded, pax, tar_of, with_checksum

from clipshards.errors import IncompleteError, Rejected, UsageError
from clipshards.schema import REASONS, WARNINGS
from clipshards.tars import BLOCK, TarIndex, extract, index_tar, read_member

CASES = Path(__file__).parents[2] / "shared" / "cases"
PART = "train/videos/avsbench/avsbench_part000.tar"

BINARY = random.Random(1)
FILES = {
    "avsbench/video/a.mp4": BINARY.randbytes(1954),
    "avsbench/video/b.mp4": BINARY.randbytes(512),
    "avsbench/video/empty.mp4": b"",
    "avsbench/" + "d/" * 60 + "prefix.mp4": b"in the prefix field",
    "avsbench/video/" + "x" * 190 + "_видео_手.mp4": b"long and not ASCII",
    "avsbench/video/café.mp4": BINARY.randbytes(3000),
}


class Parts:
    """Puts bytes on the disk and reads them as a part."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "part.tar"

    def index(self, content: bytes, **options: Any) -> TarIndex:
        self.path.write_bytes(content)
        index = index_tar(self.path, part=PART, **options)
        for entry in index.members:
            payload = content[entry.offset_bytes : entry.offset_bytes + entry.size_bytes]
            assert hashlib.sha256(payload).hexdigest() == entry.sha256, entry
            assert read_member(self.path, entry) == payload
        assert all(word in WARNINGS for word, _ in index.warnings)
        assert all(reject.reason in REASONS and reject.path == PART for reject in index.rejects)
        return index

    def files(self, content: bytes) -> dict[str, bytes]:
        """All files; nothing may be rejected."""
        index = self.index(content)
        assert not index.rejects
        return {entry.name: read_member(self.path, entry) for entry in index.members}

    def reason(self, content: bytes) -> str:
        """Why the part cannot be used."""
        with pytest.raises(Rejected) as caught:
            self.index(content)
        assert caught.value.reason in REASONS
        return caught.value.reason


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return Parts(tmp_path)


def rejects(index: TarIndex) -> dict[str, str]:
    return {reject.member: reject.reason for reject in index.rejects}


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


# -- good archives


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_tarfile_writes_is_read_in_its_order(parts: Parts, format_: int) -> None:
    files = {name: payload for name, payload in FILES.items() if len(name) < 150 or format_ != tarfile.USTAR_FORMAT}
    content = tar_of(files, format=format_)
    assert list(parts.files(content).items()) == list(files.items())
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        expected = [(info.name, info.offset_data, info.size) for info in tar]
    index = parts.index(content)
    assert [(entry.name, entry.offset_bytes, entry.size_bytes) for entry in index.members] == expected
    assert not index.warnings


@pytest.mark.parametrize("format_", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_what_tar_writes_comes_out_as_tar_extracts_it(parts: Parts, tmp_path: Path, format_: str) -> None:
    source, expected = tmp_path / "source", tmp_path / "expected"
    expected.mkdir()
    for name, payload in FILES.items():
        if len(name) < 90 or format_ not in ("v7", "ustar"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(payload)
    (source / "avsbench/video/linked.mp4").hardlink_to(source / "avsbench/video/a.mp4")
    made = tmp_path / "made.tar"
    command = ["tar", "--create", f"--format={format_}", "--file", str(made), "--directory", str(source), "."]
    subprocess.run(command, check=True)
    subprocess.run(["tar", "-xf", str(made), "-C", str(expected)], check=True)
    assert parts.files(made.read_bytes()) == tree(expected) == tree(source)


def test_names_are_normalised(parts: Parts) -> None:
    assert parts.files(member("./a//b/./c.mp4", b"c") + END_MARK) == {"a/b/c.mp4": b"c"}


@pytest.mark.parametrize("end_mark", [bytes(BLOCK), END_MARK, bytes(20 * BLOCK), END_MARK + bytes(7)])
def test_zeros_end_an_archive(parts: Parts, end_mark: bytes) -> None:
    assert parts.files(member("a", b"bytes") + end_mark) == {"a": b"bytes"}


def test_sizes_may_be_binary_or_blank(parts: Parts) -> None:
    binary = header(b"a", size_field=b"\x80" + (5).to_bytes(11, "big")) + padded(b"bytes")
    spaces = header(b"b", size_field=b"         12 ") + padded(b"0123456789")
    blank = header(b"c", size_field=b"")
    assert parts.files(binary + spaces + blank + END_MARK) == {"a": b"bytes", "b": b"0123456789", "c": b""}


def test_a_member_of_nine_gigabytes(tmp_path: Path) -> None:
    """Sparse on the disk; only its headers are read here."""
    size_bytes, path = 9 << 30, tmp_path / "large.tar"
    with path.open("wb") as file:
        file.write(header(b"large.mp4", size_field=b"\x80" + size_bytes.to_bytes(11, "big")))
        file.seek(BLOCK + size_bytes)
        file.write(END_MARK)
    seen: list[int] = []
    stop = threading.Event()

    def progress(num_bytes: int) -> None:
        seen.append(num_bytes)
        stop.set()

    with pytest.raises(IncompleteError):
        index_tar(path, part=PART, progress=progress, stop=stop)
    assert seen == [1 << 20]


def test_pax_records_override_the_header(parts: Parts) -> None:
    content = pax(path="wide/имя.mp4".encode(), size=b"5", comment=b"x=y\n1 2") + header(b"short", 0)
    assert parts.files(content + padded(b"bytes") + member("next", b"n") + END_MARK) == {
        "wide/имя.mp4": b"bytes",
        "next": b"n",
    }


def test_global_pax_records_hold_until_a_member_has_its_own(parts: Parts) -> None:
    content = pax(b"g", size=b"5") + header(b"a") + padded(b"bytes")
    content += pax(size=b"3") + header(b"b") + padded(b"own") + header(b"c") + padded(b"again")
    assert parts.files(content + END_MARK) == {"a": b"bytes", "b": b"own", "c": b"again"}


def test_gnu_long_names_and_links(parts: Parts) -> None:
    name, link = b"n" * 200, b"l" * 200
    content = member("././@LongLink", name + b"\0", b"L") + member(name[:100], b"bytes")
    content += member("././@LongLink", name + b"\0", b"K") + member("././@LongLink", link + b"\0", b"L")
    content += member(link[:100], kind=b"1", link=name[:100])
    assert parts.files(content + END_MARK) == {name.decode(): b"bytes", link.decode(): b"bytes"}


def test_folders_labels_and_sidecars_are_no_clips(parts: Parts) -> None:
    content = member("label", kind=b"V") + member("folder/", kind=b"5") + member("old/", kind=b"\0")
    content += member("dump/", b"Ya.mp4\0\0", kind=b"D") + member("folder/._a.mp4", b"x") + member("a.mp4", b"a")
    content += member("__MACOSX/a.mp4", b"x") + member("folder/.DS_Store", b"x") + END_MARK
    index = parts.index(content)
    assert [entry.name for entry in index.members] == ["a.mp4"]
    assert index.sidecars == ("folder/._a.mp4", "__MACOSX/a.mp4", "folder/.DS_Store")
    assert not index.rejects


def test_old_checksums_of_signed_bytes(parts: Parts) -> None:
    block = header("é.mp4".encode(), 1)
    blank = block[:148] + b" " * 8 + block[156:]
    signed = sum(byte - 256 * (byte > 127) for byte in blank)
    assert parts.files(block[:148] + b"%06o\0 " % signed + block[156:] + padded(b"x") + END_MARK) == {"é.mp4": b"x"}


# -- one member


def test_the_last_copy_of_a_path_wins(parts: Parts) -> None:
    content = member("a", b"first") + member("same", b"s") + member("./a", b"last!") + member("same", b"s")
    index = parts.index(content + END_MARK)
    assert {entry.name: read_member(parts.path, entry) for entry in index.members} == {"a": b"last!", "same": b"s"}
    assert index.warnings == (("duplicate-member-conflict", "a"),)


def test_a_hard_link_has_the_bytes_its_target_had_there(parts: Parts) -> None:
    content = member("a", b"first") + member("b", kind=b"1", link=b"./a") + member("a", b"last!")
    content += member("c", kind=b"1", link=b"b", size_field=b"%011o\0" % 5)
    assert parts.files(content + END_MARK) == {"b": b"first", "a": b"last!", "c": b"first"}


def test_a_symbolic_link_has_the_bytes_it_leads_to(parts: Parts) -> None:
    content = member("v/l", kind=b"2", link=b"../w/./k") + member("w/k", kind=b"2", link=b"a")
    content += member("w/a", b"bytes") + member("v/m", b"old") + member("v/m", kind=b"2", link=b"../w/a")
    assert parts.files(content + END_MARK) == {name: b"bytes" for name in ("v/l", "w/k", "w/a", "v/m")}


def test_a_later_file_replaces_a_symbolic_link(parts: Parts) -> None:
    content = member("a", b"bytes") + member("l", kind=b"2", link=b"a") + member("l", b"own")
    assert parts.files(content + END_MARK) == {"a": b"bytes", "l": b"own"}


def test_many_hard_links_cost_one_hash(parts: Parts) -> None:
    links = b"".join(member(f"link{n}", kind=b"1", link=b"a") for n in range(50))
    seen: list[int] = []
    index = parts.index(member("a", bytes(4096)) + links + END_MARK, progress=seen.append)
    assert (len(index.members), seen) == (51, [4096])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (member("m", kind=b"1", link=b"later") + member("later", b"x"), "link-member"),
        (member("m", kind=b"1", link=b"/etc/hostname"), "link-member"),
        (member("m", kind=b"1", link=b"m"), "link-member"),
        (member("m", kind=b"2", link=b"nowhere"), "link-member"),
        (member("m", kind=b"2", link=b"m"), "link-member"),
        (member("m", kind=b"2", link=b"../first"), "link-member"),
        (member("m", kind=b"2", link=b"/first"), "link-member"),
        (member("m", kind=b"2", link=b""), "link-member"),
        (member("m", kind=b"3"), "special-member"),
        (member("m", kind=b"4"), "special-member"),
        (member("m", kind=b"6"), "special-member"),
        (member("m", b"payload", kind=b"Q"), "special-member"),
        (member("m", b"payload", kind=b"M"), "special-member"),
        (member("m", b"payload", kind=b"S"), "special-member"),
        (
            pax(GNU__sparse__major=b"1", GNU__sparse__name=b"m") + member("GNUSparseFile.7/m", b"1\n"),
            "special-member",
        ),
    ],
)
def test_links_and_special_members_leave_the_rest(parts: Parts, content: bytes, reason: str) -> None:
    index = parts.index(member("first", b"1") + content + member("last", b"2") + END_MARK)
    assert {"first", "last"} <= {entry.name for entry in index.members}
    assert rejects(index) == {"m": reason}
    assert all(entry.name != "m" for entry in index.members)


def test_the_map_of_an_old_sparse_file_is_skipped(parts: Parts) -> None:
    start = bytearray(header(b"sparse", 3, b"S", magic=b"ustar  \0"))
    start[482] = 1
    maps = bytes(504) + b"\1" + bytes(7) + bytes(512)
    index = parts.index(with_checksum(bytes(start)) + maps + padded(b"abc") + member("next", b"n") + END_MARK)
    assert rejects(index) == {"sparse": "special-member"}
    assert [entry.name for entry in index.members] == ["next"]


@pytest.mark.parametrize("format_", ["gnu", "posix"])
@pytest.mark.parametrize("num_holes", [2, 40])
def test_sparse_files_of_tar_are_rejected_alone(parts: Parts, tmp_path: Path, format_: str, num_holes: int) -> None:
    with (tmp_path / "sparse.mp4").open("wb") as file:
        for number in range(num_holes):
            file.seek(number << 20)
            file.write(b"x" * 4096)
    (tmp_path / "z.mp4").write_bytes(b"z")
    made = tmp_path / "made.tar"
    command = [
        "tar",
        f"--format={format_}",
        "--sparse",
        "-cf",
        str(made),
        "-C",
        str(tmp_path),
        "sparse.mp4",
        "z.mp4",
    ]
    subprocess.run(command, check=True)
    if made.stat().st_size > num_holes << 19:
        pytest.skip("the file system keeps no holes")
    index = parts.index(made.read_bytes())
    assert rejects(index) == {"sparse.mp4": "special-member"}
    assert [entry.name for entry in index.members] == ["z.mp4"]


@pytest.mark.parametrize(
    "name", ["s/..a.mp4", "s/a...mp4", "s/x: y.mp4", "s/-rf.mp4", "s/a b.mp4", "s/x._a.mp4", "s/my__MACOSX/c.mp4"]
)
def test_names_that_only_look_bad_are_kept(parts: Parts, name: str) -> None:
    assert parts.files(member(name, b"x") + END_MARK) == {name: b"x"}


@pytest.mark.parametrize(
    "name",
    [
        b"/abs.mp4", b"../up.mp4", b"a/../../up.mp4", b"a/..", b"..", b".", b"", b"./", b"\\abs.mp4", b"C:\\x.mp4",
        b"c:x.mp4", b"C:/x.mp4", b"a\\..\\..\\x.mp4", b"latin1-\xe9.mp4", b"half-\xed\xa0\x80.mp4", b"line\nbreak",
        b"escape\x1b[2J", "c1-\x9b2J".encode(), b"folder-with-bytes/", b"nul\0byte", b"x" * 256,
        b"y/" * 2100 + b"y",
    ],
)  # fmt: skip
def test_unsafe_names_are_rejected_and_the_rest_is_read(parts: Parts, name: bytes, tmp_path: Path) -> None:
    index = parts.index(pax(path=name) + member(b"", b"bytes") + member("good", b"g") + END_MARK)
    assert [entry.name for entry in index.members] == ["good"]
    (reject,) = index.rejects
    assert (reject.kind, reject.reason) == ("member", "unsafe-name")
    assert reject.offset_bytes % BLOCK == 0 and reject.detail and reject.member.isprintable()
    assert extract(index, parts.path, tmp_path / "deep" / "out") == 1
    assert set(tree(tmp_path)) == {"part.tar", "deep/out/good"}


def test_a_name_too_long_for_its_field_is_no_name_of_a_folder(parts: Parts) -> None:
    name = "/".join(["d" * 200] * 15) + "/видео.mp4"
    assert parts.files(tar_of({name: b"bytes"}, format=tarfile.PAX_FORMAT)) == {name: b"bytes"}


def test_a_file_that_is_also_a_folder(parts: Parts, tmp_path: Path) -> None:
    index = parts.index(member("a/b/c", b"c") + member("a", b"a") + member("ab/c", b"d") + END_MARK)
    assert rejects(index) == {"a/b/c": "unsafe-name"}
    extract(index, parts.path, tmp_path / "out")
    assert tree(tmp_path / "out") == {"a": b"a", "ab/c": b"d"}


# -- the whole part

COMPLETE = tar_of(FILES)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty-file"),
        (gzip.compress(COMPLETE), "tar-compressed"),
        (bz2.compress(COMPLETE), "tar-compressed"),
        (lzma.compress(COMPLETE), "tar-compressed"),
        (b"\x28\xb5\x2f\xfd" + bytes(600), "tar-compressed"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "lfs-pointer"),
        (b"<!DOCTYPE html>" + b"x" * 2000, "tar-damaged"),
        (b"short", "tar-damaged"),
        (member("a", b"x"), "tar-damaged"),
        (member("a", b"x") + bytes(100), "tar-damaged"),
        (header(b"a", 1), "tar-damaged"),
        (header(b"a", 1) + b"x", "tar-damaged"),
        (header(b"a", 2000) + padded(b"x") + END_MARK, "tar-damaged"),
        (header(b"a", size_field=b"\xff" * 12) + END_MARK, "tar-damaged"),
        (header(b"a", size_field=b"\x80" + b"\xff" * 11) + END_MARK, "tar-damaged"),
        (header(b"a", size_field=b"0000000009\0") + END_MARK, "tar-damaged"),
        (member("a", b"x") + END_MARK + b"and then this", "data-after-end-mark"),
        (member("a", b"x") + END_MARK + b"\1" * 1024, "data-after-end-mark"),
        (pax(path=b"a") + END_MARK, "tar-damaged"),
        (pax(path=b"a") + END_MARK + member("b", b"x") + END_MARK, "tar-damaged"),
        (member("long", b"name\0", b"L") + END_MARK, "tar-damaged"),
        (pax(size=b"-5") + member("a", b"x") + END_MARK, "tar-damaged"),
        (pax(size=b"9" * 30) + member("a", b"x") + END_MARK, "tar-damaged"),
        (pax(size=b"0x5") + member("a", b"x") + END_MARK, "tar-damaged"),
        (member("p", b"11 path=abc\n", b"x") + member("a", b"x") + END_MARK, "tar-damaged"),
        (member("p", b"99 path=a\n", b"x") + member("a", b"x") + END_MARK, "tar-damaged"),
        (member("p", b"no record", b"x") + member("a", b"x") + END_MARK, "tar-damaged"),
        (member("p", b"0 path=a\n", b"x") + member("a", b"x") + END_MARK, "tar-damaged"),
        (member("p", bytes(20), b"x") + member("a", b"x") + END_MARK, "tar-damaged"),
        (member("p", b"8 path=\n" + bytes(2 << 20), b"x") + member("a", b"x") + END_MARK, "tar-damaged"),
    ],
)
def test_a_part_that_cannot_be_used_has_a_word(parts: Parts, content: bytes, reason: str) -> None:
    assert parts.reason(content) == reason


def test_a_damaged_header_in_the_middle_fails_the_part(parts: Parts) -> None:
    """tarfile ends there without an error."""
    content = bytearray(member("a", b"1") + member("b", b"2") + member("c", b"3") + END_MARK)
    content[2 * BLOCK] ^= 1
    with tarfile.open(fileobj=io.BytesIO(bytes(content))) as tar:
        assert tar.getnames() == ["a"]
    with pytest.raises(Rejected, match="tar-damaged: the header at 1024 is damaged"):
        parts.index(bytes(content))


def test_every_cut_is_noticed(parts: Parts) -> None:
    content = member("a", b"1") + pax(path=b"long") + member("b", b"2") + END_MARK[:BLOCK]
    for length in range(0, len(content), 64):
        assert parts.reason(content[:length]) == ("tar-damaged" if length else "empty-file")


def test_an_archive_without_files_says_so(parts: Parts) -> None:
    for content in (END_MARK, bytes(10240), member("folder/", kind=b"5") + END_MARK):
        index = parts.index(content)
        assert index.members == ()
        assert (index.rejects, index.warnings) == ((), (("no-members", PART),))


def test_archives_glued_on_are_read_on(parts: Parts) -> None:
    content = tar_of({"a": b"1"}) + tar_of({"b": b"2"}) + member("c", b"3") + bytes(BLOCK) + member("d", b"4")
    index = parts.index(content + END_MARK)
    assert [entry.name for entry in index.members] == ["a", "b", "c", "d"]
    assert index.warnings == (("data-after-end-mark", "at 10240"),)


@pytest.mark.parametrize("gap", [BLOCK, 3 << 20])
def test_a_glued_archive_may_follow_a_gap_and_replace_members(parts: Parts, gap: int) -> None:
    index = parts.index(tar_of({"a": b"1", "b": b"2"}) + bytes(gap) + tar_of({"b": b"newer"}))
    assert {entry.name: read_member(parts.path, entry) for entry in index.members} == {"a": b"1", "b": b"newer"}
    assert index.warnings == (("data-after-end-mark", f"at {10240 + gap}"), ("duplicate-member-conflict", "b"))


def test_a_member_may_be_named_like_a_magic_number(parts: Parts) -> None:
    assert parts.files(member("BZh.mp4", b"x") + END_MARK) == {"BZh.mp4": b"x"}


def test_the_number_of_members_is_bounded(parts: Parts) -> None:
    content = b"".join(member(f"m{n}") for n in range(4)) + END_MARK
    assert len(parts.index(content, max_members=4).members) == 4
    with pytest.raises(Rejected, match="tar-damaged: more than 3 members"):
        parts.index(content, max_members=3)
    with pytest.raises(Rejected, match="more than 3 members"):
        parts.index(b"".join(member("/x", kind=b"2") for _ in range(4)) + END_MARK, max_members=3)


def test_a_header_of_many_records_takes_no_time(parts: Parts) -> None:
    payload = b"5 a=\n" * (1 << 17)
    assert parts.files(member("p", payload, b"x") * 3 + member("a", b"x") + END_MARK) == {"a": b"x"}


def test_progress_counts_what_was_hashed(parts: Parts) -> None:
    seen: list[int] = []
    parts.index(COMPLETE, progress=seen.append)
    assert sum(seen) == sum(map(len, FILES.values()))


def test_a_part_that_became_shorter_is_noticed(parts: Parts, tmp_path: Path) -> None:
    index = parts.index(member("a", bytes(5000)) + END_MARK)
    os.truncate(parts.path, 1000)
    with pytest.raises(Rejected, match="tar-damaged"):
        read_member(parts.path, index.members[0])
    with pytest.raises(Rejected, match="tar-damaged"):
        extract(index, parts.path, tmp_path / "out")
    assert tree(tmp_path / "out") == {}


# -- extraction


def test_extract_writes_what_tar_writes(parts: Parts, tmp_path: Path) -> None:
    files = {**FILES, "large.mp4": BINARY.randbytes((2 << 20) + 17)}
    index = parts.index(tar_of(files))
    assert extract(index, parts.path, tmp_path / "out") == sum(map(len, files.values()))
    assert tree(tmp_path / "out") == files


def test_extract_keeps_what_is_right_and_replaces_what_is_not(parts: Parts, tmp_path: Path) -> None:
    index = parts.index(member("a", b"good") + member("b", b"good") + member("c", b"good") + END_MARK)
    extract(index, parts.path, tmp_path)
    kept = (tmp_path / "a").stat().st_ino
    (tmp_path / "b").write_bytes(b"evil")
    (tmp_path / "c").unlink()
    (tmp_path / "c").symlink_to("a")
    assert extract(index, parts.path, tmp_path) == 8
    assert (tmp_path / "a").stat().st_ino == kept
    assert not (tmp_path / "c").is_symlink()
    assert {name: (tmp_path / name).read_bytes() for name in "abc"} == dict.fromkeys("abc", b"good")


def test_extract_leaves_nothing_outside(parts: Parts, tmp_path: Path) -> None:
    """Neither files nor folders, through links that were there before."""
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    out.mkdir()
    (outside / "victim").write_bytes(b"mine")
    (out / "leads_out").symlink_to(outside)
    (out / "victim").symlink_to(outside / "victim")
    (out / "circle").symlink_to("circle")
    for name in ("leads_out/new/x", "leads_out/victim", "circle/x"):
        with pytest.raises(UsageError, match="remove the link"):
            extract(parts.index(member(name, b"evil") + END_MARK), parts.path, out)
    extract(parts.index(member("victim", b"evil") + END_MARK), parts.path, out)
    assert tree(outside) == {"victim": b"mine"}
    assert (out / "victim").read_bytes() == b"evil" and not (out / "victim").is_symlink()


@pytest.mark.parametrize("name", ["file/below", "folder"])
def test_extract_says_what_is_in_the_way(parts: Parts, tmp_path: Path, name: str) -> None:
    (tmp_path / "out" / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "out" / "file").write_bytes(b"mine")
    with pytest.raises(UsageError, match="move away what is in its place"):
        extract(parts.index(member(name, b"x") + END_MARK), parts.path, tmp_path / "out")
    assert tree(tmp_path / "out") == {"file": b"mine"}


def test_extract_to_another_disk(parts: Parts, tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not os.access(other, os.W_OK) or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second disk")
    out = other / f"clipshards-test-{os.getpid()}"
    try:
        extract(parts.index(COMPLETE), parts.path, out)
        assert tree(out) == FILES
    finally:
        shutil.rmtree(out, ignore_errors=True)


# -- any bytes


def _sources() -> list[bytes]:
    files = {"a/b.mp4": b"1" * 700, "n" * 120: b"2", "видео.mp4": b"3" * 512}
    links = member("a", b"x") + member("b", kind=b"1", link=b"a") + member("c", kind=b"2", link=b"a")
    extended = pax(b"g", comment=b"x") + pax(path=b"p", size=b"4") + header(b"q") + padded(b"four")
    sparse = member("s", b"abc", b"S") + pax(GNU__sparse__major=b"1") + member("t", b"1\n")
    made = [tar_of(files, format=kind) for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)]
    made += [links + END_MARK + extended + END_MARK, sparse + member("a", b"y") + member("a/b", b"z") + END_MARK]
    return [content.rstrip(b"\0") + bytes(-len(content.rstrip(b"\0")) % BLOCK) + END_MARK for content in made]


def _change_bytes(content: bytearray, draw: random.Random) -> None:
    for _ in range(draw.randint(1, 8)):
        content[draw.randrange(len(content))] = draw.choice((0, 32, 47, 49, 128, 255, draw.randrange(256)))


def _change_field(content: bytearray, draw: random.Random) -> None:
    """A field of a header gets other bytes, and the checksum is made to fit."""
    start, length = draw.choice(((0, 100), (124, 12), (156, 1), (157, 100), (257, 8), (345, 155), (482, 1)))
    block = draw.randrange(len(content) // BLOCK or 1) * BLOCK
    words = (b"../x", b"/x", b"12", b"11 path=a\n", b"\x80", b"\xff", b"7777777", b"L", b"x", b"g", b"S", b"1", b"")
    content[block + start : block + start + length] = draw.choice(words).ljust(length, b"\0")[:length]
    content[block : block + BLOCK] = with_checksum(bytes(content[block : block + BLOCK]).ljust(BLOCK, b"\0"))


def _cut(content: bytearray, draw: random.Random) -> None:
    del content[draw.randrange(len(content)) :]


def _move_block(content: bytearray, draw: random.Random) -> None:
    source, target = (draw.randrange(len(content) // BLOCK + 1) * BLOCK for _ in range(2))
    block = content[source : source + BLOCK]
    if draw.random() < 0.5:
        del content[source : source + BLOCK]
    content[target:target] = block


MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _change_bytes, _change_field, _change_field, _cut, _move_block
)  # fmt: skip


def fuzz(folder: Path, count: int, seed: int) -> dict[str, int]:
    """Mutated tars: an index that holds, or Rejected; how often each came out."""
    draw, sources, parts = random.Random(seed), _sources(), Parts(folder)
    outcomes: dict[str, int] = {}
    for _ in range(count):
        content = bytearray(draw.choice(sources))
        for _ in range(draw.randint(1, 4)):
            if content:
                draw.choice(MUTATIONS)(content, draw)
        try:
            index = parts.index(bytes(content))
            extract(index, parts.path, folder / "inner" / "out")
            assert all((folder / "inner/out" / m.name).stat().st_size == m.size_bytes for m in index.members)
            shutil.rmtree(folder / "inner")
            outcome = "index"
        except Rejected as rejected:
            assert rejected.reason in REASONS
            outcome = rejected.reason
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        assert {path.name for path in folder.iterdir()} <= {"part.tar", "inner"}
    return outcomes


def test_any_bytes_give_an_index_or_a_word(tmp_path: Path) -> None:
    outcomes = fuzz(tmp_path, 500, seed=3)
    assert outcomes["index"] > 50 and outcomes["tar-damaged"] > 50, outcomes
