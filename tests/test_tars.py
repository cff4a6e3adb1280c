"""Archives as tar programs write them, and as damage leaves them: each member is indexed or has a reason."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from clipshards.errors import IncompleteError, Rejected, UsageError
from clipshards.schema import REASONS, WARNINGS
from clipshards.tars import BLOCK, TarIndex, TarMember, extract, index_tar, read_member

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases"

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT}
LONG = "s/" + "d" * 60 + "/" + "e" * 60 + "/" + "x" * 120 + "_видео_手.mp4"
LONG_FOR_USTAR = "s/" + "d" * 60 + "/" + "e" * 60 + "/clip.mp4"

Entry = tarfile.TarInfo | tuple[str, bytes]


def _payload(name: str, size: int = 700) -> bytes:
    return random.Random(name).randbytes(size)


def _special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def _tar(entries: Iterable[Entry], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
                continue
            info = tarfile.TarInfo(entry[0])
            info.size = len(entry[1])
            tar.addfile(info, io.BytesIO(entry[1]))
    return buffer.getvalue()


def _some(*names: str, form: int = tarfile.PAX_FORMAT) -> bytes:
    return _tar([(name, _payload(name)) for name in names], form)


def _without_end(content: bytes) -> bytes:
    return content.rstrip(b"\0") + bytes(-len(content.rstrip(b"\0")) % BLOCK)


def _sign(header: bytearray) -> bytes:
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.fixture
def part(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(content: bytes) -> Path:
        path = tmp_path / "part, of é.tar"
        path.write_bytes(content)
        return path

    return write


def _index(path: Path) -> TarIndex:
    return index_tar(path, part="train/part000.tar")


def _extents(index: TarIndex) -> dict[str, tuple[int, int]]:
    return {member.name: (member.offset_bytes, member.size_bytes) for member in index.members}


def _extents_by_tarfile(path: Path) -> dict[str, tuple[int, int]]:
    with tarfile.open(path) as tar:
        return {member.name: (member.offset_data, member.size) for member in tar if member.isreg()}


def _names_by_tar(path: Path) -> list[str]:
    command = ["tar", "--quoting-style=literal", "-tf", str(path)]
    listed = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    return listed.stdout.decode().splitlines()


def _reasons(index: TarIndex) -> dict[str, str]:
    assert all(reject.reason in REASONS for reject in index.rejects)
    return {reject.member: reject.reason for reject in index.rejects}


def _reason(path: Path) -> str:
    with pytest.raises(Rejected) as caught:
        _index(path)
    assert caught.value.reason in REASONS
    return caught.value.reason


# -- good archives


@pytest.mark.parametrize("form", FORMATS)
def test_index_agrees_with_tarfile_and_tar(part: Callable[[bytes], Path], form: str) -> None:
    long = LONG_FOR_USTAR if form == "ustar" else LONG
    names = ["s/a.mp4", "s/é 手.mp4", long, "s/z.mp4"]
    payloads = {name: _payload(name, 511 + number) for number, name in enumerate(names)}
    payloads["s/empty.mp4"] = b""
    path = part(_tar([_special("s", tarfile.DIRTYPE), *payloads.items()], FORMATS[form]))
    index = _index(path)
    assert _extents(index) == _extents_by_tarfile(path)
    assert [member.name for member in index.members] == _names_by_tar(path)[1:] == list(payloads)
    for member in index.members:
        assert read_member(path, member) == payloads[member.name]
        assert member.sha256 == hashlib.sha256(payloads[member.name]).hexdigest()
    assert (index.rejects, index.warnings, index.sidecars) == ((), (), ())


@pytest.mark.parametrize("form", ["v7", "ustar", "oldgnu", "gnu", "posix"])
def test_archives_written_by_tar(tmp_path: Path, form: str) -> None:
    name = "s/a.mp4" if form == "v7" else LONG_FOR_USTAR if form == "ustar" else LONG
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_bytes(_payload(name, 5000))
    (tmp_path / "s" / "é.mp4").write_bytes(_payload("é", 1024))
    os.link(tmp_path / "s" / "é.mp4", tmp_path / "s" / "link.mp4")
    path = tmp_path / "part.tar"
    members = [f"./{name}", "./s/é.mp4", "./s/link.mp4"]
    command = ["tar", f"--format={form}", "-cf", str(path), "-C", str(tmp_path), *members]
    subprocess.run(command, check=True, capture_output=True)
    index = _index(path)
    assert [member.name for member in index.members] == [name, "s/é.mp4", "s/link.mp4"]
    assert read_member(path, index.members[0]) == _payload(name, 5000)
    assert read_member(path, index.members[2]) == _payload("é", 1024)
    assert index.rejects == ()


def test_size_in_binary(part: Callable[[bytes], Path]) -> None:
    content = bytearray(_some("s/a.mp4", "s/b.mp4", form=tarfile.USTAR_FORMAT))
    content[124:136] = b"\x80" + (700).to_bytes(11, "big")
    content[:BLOCK] = _sign(content[:BLOCK])
    path = part(bytes(content))
    index = _index(path)
    assert _extents(index) == _extents_by_tarfile(path)
    assert read_member(path, index.members[0]) == _payload("s/a.mp4")


def test_size_in_the_pax_header_beats_the_header(part: Callable[[bytes], Path]) -> None:
    info = tarfile.TarInfo("s/a.mp4")
    info.pax_headers = {"size": "700"}
    header = info.tobuf(tarfile.PAX_FORMAT)
    path = part(header + _payload("a") + bytes(-700 % BLOCK) + _some("s/b.mp4"))
    assert _extents(_index(path)) == {"s/a.mp4": (len(header), 700), "s/b.mp4": (len(header) + 1536, 700)}


def test_progress_is_told_all_bytes(part: Callable[[bytes], Path]) -> None:
    steps: list[int] = []
    path = part(_tar([("a.mp4", bytes(3 << 20)), ("b.mp4", b"12345")]))
    index_tar(path, part="p.tar", progress=steps.append)
    assert sum(steps) == (3 << 20) + 5
    assert len(steps) > 2


# -- policies


@pytest.mark.parametrize(("second", "warnings"), [(b"other", ["s/a.mp4"]), (_payload("s/a.mp4"), [])])
def test_of_two_copies_the_last_is_used(
    part: Callable[[bytes], Path], second: bytes, warnings: list[str]
) -> None:
    path = part(_tar([("s/a.mp4", _payload("s/a.mp4")), ("s/b.mp4", b"b"), ("s/a.mp4", second)]))
    index = _index(path)
    with tarfile.open(path) as tar:
        last = tar.getmember("s/a.mp4").offset_data
    assert _extents(index)["s/a.mp4"] == (last, len(second))
    assert sorted(_extents(index)) == ["s/a.mp4", "s/b.mp4"]
    assert index.warnings == tuple(("duplicate-member-conflict", name) for name in warnings)
    assert "duplicate-member-conflict" in WARNINGS


def test_names_that_differ_in_a_dot_folder_are_one_name(part: Callable[[bytes], Path]) -> None:
    index = _index(part(_tar([("./s//a.mp4", b"old"), ("s/./a.mp4", b"new!")])))
    assert [(member.name, member.size_bytes) for member in index.members] == [("s/a.mp4", 4)]


@pytest.mark.parametrize("form", ["pax", "gnu"])
@pytest.mark.parametrize("target", ["s/a.mp4", LONG])
def test_hard_link_is_its_target(part: Callable[[bytes], Path], form: str, target: str) -> None:
    link = _special("s/link.mp4", tarfile.LNKTYPE, target)
    index = _index(part(_tar([(target, _payload(target)), link, ("s/z.mp4", b"z")], FORMATS[form])))
    extents = _extents(index)
    assert list(extents) == [target, "s/link.mp4", "s/z.mp4"]
    assert extents["s/link.mp4"] == extents[target]
    assert index.rejects == ()


def test_hard_link_means_the_copy_before_it(part: Callable[[bytes], Path]) -> None:
    link = _special("s/link.mp4", tarfile.LNKTYPE, "s/a.mp4")
    path = part(_tar([("s/a.mp4", b"first"), link, ("s/a.mp4", b"second")]))
    contents = {member.name: read_member(path, member) for member in _index(path).members}
    assert contents == {"s/a.mp4": b"second", "s/link.mp4": b"first"}


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (_special("s/l.mp4", tarfile.SYMTYPE, "a.mp4"), "link-member"),
        (_special("s/l.mp4", tarfile.LNKTYPE, "s/later.mp4"), "link-member"),
        (_special("s/l.mp4", tarfile.LNKTYPE, "s/l.mp4"), "link-member"),
        (_special("s/l.mp4", tarfile.LNKTYPE, "../../etc/passwd"), "link-member"),
        (_special("s/l.mp4", tarfile.FIFOTYPE), "special-member"),
        (_special("s/l.mp4", tarfile.CHRTYPE), "special-member"),
        (_special("s/l.mp4", tarfile.BLKTYPE), "special-member"),
        (_special("s/l.mp4", b"Z"), "special-member"),
    ],
)
def test_what_is_no_file_is_rejected_alone(
    part: Callable[[bytes], Path], entry: tarfile.TarInfo, reason: str
) -> None:
    index = _index(part(_tar([("s/a.mp4", b"a"), entry, ("s/later.mp4", b"l")])))
    assert _reasons(index) == {"s/l.mp4": reason}
    assert list(_extents(index)) == ["s/a.mp4", "s/later.mp4"]
    assert index.rejects[0].offset_bytes == 2 * BLOCK
    assert (index.rejects[0].kind, index.rejects[0].path) == ("member", "train/part000.tar")


@pytest.mark.parametrize("form", ["gnu", "posix"])
@pytest.mark.parametrize("num_holes", [2, 40])
def test_sparse_file_is_rejected_alone(tmp_path: Path, form: str, num_holes: int) -> None:
    with (tmp_path / "sparse.mp4").open("wb") as file:
        for number in range(num_holes):
            file.seek(number << 20)
            file.write(b"x" * 4096)
    (tmp_path / "z.mp4").write_bytes(b"z")
    path = tmp_path / "part.tar"
    command = ["tar", f"--format={form}", "--sparse", "-cf", path, "-C", tmp_path, "sparse.mp4", "z.mp4"]
    subprocess.run(command, check=True)
    if path.stat().st_size > num_holes << 19:
        pytest.skip("the file system keeps no holes")
    index = _index(path)
    assert list(_reasons(index).values()) == ["special-member"]
    assert list(_extents(index)) == ["z.mp4"]


@pytest.mark.parametrize(
    "name",
    [
        "../x.mp4",
        "s/../../x.mp4",
        "s/..",
        "/etc/x.mp4",
        "\\x.mp4",
        "C:\\x.mp4",
        "c:/x.mp4",
        "s\\..\\..\\x.mp4",
        "s/a\nb.mp4",
        "s/\x1b[31m.mp4",
        "s/\udcff.mp4",
        ".",
    ],
)
def test_unsafe_name_is_rejected_alone(part: Callable[[bytes], Path], name: str) -> None:
    index = _index(part(_tar([("s/a.mp4", b"a"), (name, b"evil"), ("s/z.mp4", b"z")], tarfile.GNU_FORMAT)))
    assert list(_reasons(index).values()) == ["unsafe-name"]
    assert list(_extents(index)) == ["s/a.mp4", "s/z.mp4"]
    shown = index.rejects[0].member
    assert shown.isprintable()
    assert shown.encode()


def test_names_that_only_look_unsafe_are_kept(part: Callable[[bytes], Path]) -> None:
    names = ["s/..a.mp4", "s/a...mp4", "s/x: y.mp4", "s/-rf.mp4", "s/a b.mp4"]
    index = _index(part(_some(*names)))
    assert list(_extents(index)) == names
    assert index.rejects == ()


def test_sidecars_are_no_clips(part: Callable[[bytes], Path]) -> None:
    sidecars = ["s/._a.mp4", "._b.mp4", ".DS_Store", "s/.DS_Store", "__MACOSX/s/a.mp4", "t/__MACOSX/b.mp4"]
    index = _index(part(_some("s/a.mp4", *sidecars, "s/x._a.mp4", "s/my__MACOSX/c.mp4")))
    assert list(_extents(index)) == ["s/a.mp4", "s/x._a.mp4", "s/my__MACOSX/c.mp4"]
    assert index.sidecars == tuple(sidecars)
    assert index.rejects == ()


@pytest.mark.parametrize("content", [_tar([]), _tar([_special("s", tarfile.DIRTYPE)]), bytes(10240)])
def test_archive_without_files(part: Callable[[bytes], Path], content: bytes) -> None:
    index = _index(part(content))
    assert index.members == ()
    assert [(reject.kind, reject.reason) for reject in index.rejects] == [("part", "no-members")]


# -- damage


def test_damaged_header_in_the_middle(part: Callable[[bytes], Path]) -> None:
    content = bytearray(_some("s/a.mp4", "s/b.mp4", "s/c.mp4"))
    content[3 * BLOCK + 5] ^= 1
    path = part(bytes(content))
    assert _reason(path) == "tar-damaged"


@pytest.mark.parametrize("kept", [1, 100, 511, 512, 600, 1535, 1536, 1537, 2048, 3000])
def test_cut_archive(part: Callable[[bytes], Path], kept: int) -> None:
    assert _reason(part(_some("s/a.mp4", "s/b.mp4")[:kept])) == "tar-damaged"


def test_missing_end_mark(part: Callable[[bytes], Path]) -> None:
    content = _some("s/a.mp4", "s/b.mp4")
    assert list(_extents(_index(part(content)))) == ["s/a.mp4", "s/b.mp4"]
    path = part(_without_end(content))
    assert len(_extents_by_tarfile(path)) == 2  # tarfile says nothing
    assert _reason(path) == "tar-damaged"


@pytest.mark.parametrize("garbage", [b"x", b"<html>" * 200, bytes(5000) + b"x" * 512, b"\0" * 100 + b"x" * 412])
def test_garbage_after_the_end_mark(part: Callable[[bytes], Path], garbage: bytes) -> None:
    assert _reason(part(_some("s/a.mp4") + garbage)) == "tar-damaged"


@pytest.mark.parametrize("gap", [0, BLOCK, 3 << 20])
def test_glued_archive_is_read_on(part: Callable[[bytes], Path], gap: int) -> None:
    first = _some("s/a.mp4", "s/b.mp4")
    path = part(first + bytes(gap) + _tar([("s/b.mp4", b"newer"), ("s/c.mp4", b"c")]))
    index = _index(path)
    contents = {member.name: read_member(path, member) for member in index.members}
    assert contents == {"s/a.mp4": _payload("s/a.mp4"), "s/b.mp4": b"newer", "s/c.mp4": b"c"}
    assert index.warnings == (
        ("data-after-end-mark", f"at {len(first) + gap}"),
        ("duplicate-member-conflict", "s/b.mp4"),
    )


@pytest.mark.parametrize(
    "field", [b"99999999999\0", b"\xff" + b"\xff" * 11, b"\x80" + b"\x7f" * 11, b"77777777777\0", b"-1\0" + bytes(9)]
)
def test_impossible_size(part: Callable[[bytes], Path], field: bytes) -> None:
    content = bytearray(_some("s/a.mp4"))
    content[124:136] = field
    content[:BLOCK] = _sign(content[:BLOCK])
    assert _reason(part(bytes(content))) == "tar-damaged"


@pytest.mark.parametrize(
    "records", [b"5 a=\n", b"99 path=x\n", b"path=x\n", b"12 path=s/x.m", b"10 pathxx\n", b"11 size=-5\n", b"0 a=b\n"]
)
def test_damaged_pax_header(part: Callable[[bytes], Path], records: bytes) -> None:
    info = _special("pax", b"x")
    info.size = len(records)
    header = info.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % BLOCK)
    path = part(header + _some("s/a.mp4"))
    if records == b"5 a=\n":  # an empty value is good PAX
        assert list(_extents(_index(path))) == ["s/a.mp4"]
    else:
        assert _reason(path) == "tar-damaged"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty-file"),
        (gzip.compress(_some("s/a.mp4")), "tar-compressed"),
        (b"BZh91AY&SY" + bytes(600), "tar-compressed"),
        (b"\xfd7zXZ\0" + bytes(600), "tar-compressed"),
        (b"\x28\xb5\x2f\xfd" + bytes(600), "tar-compressed"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "lfs-pointer"),
        (b"<!DOCTYPE html>" * 100, "tar-damaged"),
    ],
)
def test_what_is_no_tar(part: Callable[[bytes], Path], content: bytes, reason: str) -> None:
    assert _reason(part(content)) == reason


@pytest.mark.parametrize("form", FORMATS)
def test_no_changed_byte_breaks_the_indexer(part: Callable[[bytes], Path], form: str) -> None:
    assert fuzz(part(b""), FORMATS[form], 170, seed=form) == {"index", "rejected"}


def fuzz(path: Path, form: int, count: int, *, seed: str) -> set[str]:
    """Index `count` tars with a few bytes changed, half of them in a header that is signed again."""
    long = LONG_FOR_USTAR if form == tarfile.USTAR_FORMAT else LONG
    links = [_special("s/l", tarfile.LNKTYPE, "s/a"), _special("s/s", tarfile.SYMTYPE, "s/a")]
    good = _tar([("s/a", b"a" * 600), (long, b"b"), *links, ("s/z", b"z" * 512)], form).rstrip(b"\0") + bytes(1536)
    good = good[: len(good) // BLOCK * BLOCK]
    headers = [at for at in range(0, len(good), BLOCK) if good[at + 257 : at + 262] == b"ustar"]
    dice = random.Random(seed)
    seen = set()
    for _ in range(count):
        content = bytearray(good)
        at = dice.choice(headers)
        signed = dice.random() < 0.5
        for _ in range(dice.randint(1, 3)):
            where = dice.randrange(at, at + BLOCK) if signed else dice.randrange(len(content))
            content[where] = dice.choice([0, 0x20, 0x2F, 0x80, 0xFF, dice.randrange(256), *b"01257xgLKSV"])
        if signed:
            content[at : at + BLOCK] = _sign(content[at : at + BLOCK])
        path.write_bytes(content)
        try:
            index = _index(path)
        except Rejected as rejected:
            assert rejected.reason in REASONS
            seen.add("rejected")
            continue
        assert all(0 <= m.offset_bytes <= m.offset_bytes + m.size_bytes <= len(content) for m in index.members)
        assert len({m.name for m in index.members}) == len(index.members)
        assert all(m.name.isprintable() and ".." not in m.name.split("/") for m in index.members)
        seen.add("index")
    return seen


# -- stop and extract


def test_stop_in_the_middle(part: Callable[[bytes], Path]) -> None:
    stop, steps = threading.Event(), []

    def progress(num_bytes: int) -> None:
        steps.append(num_bytes)
        stop.set()

    path = part(_tar([("a.mp4", bytes(4 << 20)), ("b.mp4", b"b")]))
    with pytest.raises(IncompleteError):
        index_tar(path, part="p.tar", progress=progress, stop=stop)
    assert len(steps) == 1


def _tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _hostile(tmp_path: Path) -> Path:
    path = tmp_path / "part.tar"
    entries: list[Entry] = [
        ("s/a.mp4", _payload("a", 3 << 20)),
        ("../escape.mp4", b"evil"),
        (f"{tmp_path}/absolute.mp4", b"evil"),
        _special("s/l.mp4", tarfile.SYMTYPE, "../../x"),
        _special("s/pipe.mp4", tarfile.FIFOTYPE),
        ("s/._a.mp4", b"sidecar"),
        _special("s/hard.mp4", tarfile.LNKTYPE, "s/a.mp4"),
        (LONG, b""),
    ]
    path.write_bytes(_tar(entries))
    return path


def test_extract_writes_the_members_and_nothing_else(tmp_path: Path) -> None:
    path = _hostile(tmp_path)
    written = extract(_index(path), path, tmp_path / "out" / "clips")
    content = _payload("a", 3 << 20)
    assert written == 6 << 20
    assert _tree(tmp_path / "out") == {"clips/s/a.mp4": content, "clips/s/hard.mp4": content, f"clips/{LONG}": b""}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "part.tar"]


def test_extract_again_keeps_right_files_and_mends_wrong_ones(tmp_path: Path) -> None:
    path = _hostile(tmp_path)
    index, out = _index(path), tmp_path / "out"
    extract(index, path, out)
    before = (out / "s/a.mp4").stat()
    assert extract(index, path, out) == 0
    after = (out / "s/a.mp4").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    wrong = bytearray(_payload("a", 3 << 20))
    wrong[-1] ^= 1
    (out / "s/hard.mp4").write_bytes(wrong)
    assert extract(index, path, out) == 3 << 20
    assert (out / "s/hard.mp4").read_bytes() == _payload("a", 3 << 20)


def test_extract_replaces_a_link_in_a_files_place(tmp_path: Path) -> None:
    path = _hostile(tmp_path)
    (tmp_path / "out" / "s").mkdir(parents=True)
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "out" / "s" / "a.mp4").symlink_to(tmp_path / "victim")
    extract(_index(path), path, tmp_path / "out")
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert (tmp_path / "out/s/a.mp4").read_bytes() == _payload("a", 3 << 20)
    assert not (tmp_path / "out/s/a.mp4").is_symlink()


@pytest.mark.parametrize("name", ["s/a.mp4", "s/deep/er/a.mp4"])
def test_extract_never_leaves_the_folder_by_a_link(tmp_path: Path, name: str) -> None:
    path = tmp_path / "part.tar"
    path.write_bytes(_some(name))
    (tmp_path / "outside").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "s").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError):
        extract(_index(path), path, tmp_path / "out")
    assert list((tmp_path / "outside").iterdir()) == []


def test_extract_from_an_archive_that_became_shorter(tmp_path: Path) -> None:
    path = tmp_path / "part.tar"
    path.write_bytes(_some("s/a.mp4", "s/b.mp4"))
    index = _index(path)
    os.truncate(path, 2200)
    with pytest.raises(Rejected) as caught:
        extract(index, path, tmp_path / "out")
    assert caught.value.reason == "tar-damaged"
    assert not (tmp_path / "out/s/b.mp4").exists()


# -- the shared cases


@pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")
@pytest.mark.parametrize("case", ["T01", "T04", "T10", "T12", "T13"])
def test_shared_case(case: str) -> None:
    if not (CASES / case / "expected.json").is_file():
        pytest.skip(f"case {case} is not here")
    expected = json.loads((CASES / case / "expected.json").read_text(encoding="utf-8"))
    (path,) = (CASES / case).glob("*.tar")
    index = _index(path)
    assert {member.name: member.sha256 for member in index.members} == expected["members"]
    for member in index.members:
        assert hashlib.sha256(read_member(path, member)).hexdigest() == member.sha256
    words = {"unsafe-path": "unsafe-name", "unsafe-link": "link-member", "not-a-file": "special-member"}
    wanted = {name: words[reason] for name, reason in expected.get("quarantined", {}).items()}
    assert _reasons(index) == wanted
    assert [word for word, _ in index.warnings] == expected.get("warnings", [])
    assert len(index.sidecars) == expected.get("ignored", 0)


def test_read_member_of_no_bytes(part: Callable[[bytes], Path]) -> None:
    assert read_member(part(_some("a")), TarMember("x", 512, 0, "")) == b""
