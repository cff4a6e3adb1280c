"""Parts: a strict index of a tar, its members read in place by (offset, size).

    [header 512][payload, padded to 512] … [512 zeros] [512 zeros] [padding]

    header: name 0–100, size 124–136, checksum 148–156, type 156, link target 157–257, "ustar\\0" 257,
            prefix 345–500; numbers are octal, or big-endian binary when the first bit is set.

Python's `tarfile` loses members without a word when a header is damaged or the end mark is missing; here each
block is accounted for. Nothing is ever extracted by a name that the archive chose.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from clipshards.errors import IncompleteError, Rejected, UsageError
from clipshards.schema import Reject

BLOCK = 512
READ_BYTES = 1 << 20
MAX_MEMBERS = 2_000_000
MAX_EXTENDED_HEADER_BYTES = 1 << 20

_ZEROS = bytes(BLOCK)
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_LFS_POINTER = b"version https://git-lfs"
_FILE_TYPES = (b"0", b"\0", b"7")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SIDECAR = re.compile(r"(^|/)(\._[^/]*|\.DS_Store|__MACOSX/.*)$")


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file in a part; its payload is `size_bytes` at `offset_bytes` of the tar."""

    name: str
    offset_bytes: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class TarIndex:
    """All files of a part, in the order of the archive; each name once."""

    members: tuple[TarMember, ...]
    rejects: tuple[Reject, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()
    """(word of `schema.WARNINGS`, name of the member concerned)."""
    sidecars: tuple[str, ...] = ()
    """macOS and Finder files (`._x`, `.DS_Store`), which are no clips."""


def index_tar(
    path: Path,
    *,
    part: str,
    progress: Callable[[int], None] = lambda num_bytes: None,
    stop: threading.Event | None = None,
) -> TarIndex:
    """Index a tar and hash each member's payload.

    Args:
        part: path of the part in the source, for the rejects.
        progress: called with the number of bytes just hashed.
        stop: when set, the work ends with IncompleteError.

    Raises:
        Rejected: the part cannot be used: `empty-file`, `tar-compressed`, `lfs-pointer`, `tar-damaged`.
    """
    with path.open("rb", buffering=0) as file:
        reader = _Reader(file.fileno(), os.fstat(file.fileno()).st_size, part)
        reader.read()
        hashed = [_hash_member(file.fileno(), entry, progress, stop) for entry in reader.entries]
    return _resolve(hashed, reader, part)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    offset_bytes: int
    size_bytes: int


@dataclass
class _Reader:
    """Walks the headers of one tar."""

    descriptor: int
    end: int
    part: str
    entries: list[_Entry] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    sidecars: list[str] = field(default_factory=list)
    _latest: dict[str, _Entry] = field(default_factory=dict)
    _pax: dict[str, bytes] = field(default_factory=dict)
    _global_pax: dict[str, bytes] = field(default_factory=dict)
    _long: dict[bytes, bytes] = field(default_factory=dict)

    def read(self) -> None:
        self._refuse_what_is_no_tar()
        position = 0
        while True:
            header = self._header_at(position)
            if header == _ZEROS:
                following = self._next_archive(position)
                if following is None:
                    return
                position = following
                continue
            _require_checksum(header, position)
            position = self._take(header, position)

    def _refuse_what_is_no_tar(self) -> None:
        start = os.pread(self.descriptor, BLOCK, 0)
        if not start:
            raise Rejected("empty-file", f"{self.part} has 0 bytes")
        for magic, name in _COMPRESSED.items():
            if start.startswith(magic):
                raise Rejected("tar-compressed", f"{self.part} is {name}-compressed: decompress it first")
        if start.startswith(_LFS_POINTER):
            raise Rejected("lfs-pointer", f"{self.part} is the pointer, not the archive")

    def _header_at(self, position: int) -> bytes:
        header = os.pread(self.descriptor, BLOCK, position)
        if len(header) < BLOCK:
            raise Rejected("tar-damaged", f"the archive ends at {position} without an end mark")
        return header

    def _next_archive(self, position: int) -> int | None:
        """Where a second archive starts after the end mark; None when only zeros follow."""
        while block := os.pread(self.descriptor, READ_BYTES, position):
            stripped = block.lstrip(b"\0")
            if stripped:
                position += (len(block) - len(stripped)) // BLOCK * BLOCK
                break
            position += len(block)
        else:
            return None
        header = os.pread(self.descriptor, BLOCK, position)
        if len(header) < BLOCK or not _has_checksum(header):
            raise Rejected("tar-damaged", f"bytes that are no tar header at {position}, after the end mark")
        self.warnings.append(("data-after-end-mark", f"at {position}"))
        return position

    def _take(self, header: bytes, position: int) -> int:
        """Take in one member; returns the position of the next header."""
        kind, start = header[156:157], position + BLOCK
        size = self._size(header, position)
        if kind in (b"1", b"2", b"3", b"4", b"5", b"6"):
            size = 0  # by POSIX they carry no payload, whatever the field says
        if start + size > self.end:
            raise Rejected("tar-damaged", f"the member at {position} runs past the end of the archive")
        if kind in b"xgLK" and kind:
            self._take_extension(kind, start, size)
        else:
            self._take_member(header, kind, position, start, size)
            self._pax, self._long = {}, {}
        return start + -(-size // BLOCK) * BLOCK

    def _size(self, header: bytes, position: int) -> int:
        if header[156:157] not in b"xgLK":
            text = self._pax.get("size", self._global_pax.get("size"))
            if text is not None:
                if not text.isdigit() or len(text) > 20:
                    raise Rejected("tar-damaged", f"size {text!r:.40} in the PAX header before {position}")
                return int(text)
        return _number(header[124:136], position)

    def _take_extension(self, kind: bytes, start: int, size: int) -> None:
        if size > MAX_EXTENDED_HEADER_BYTES:
            raise Rejected("tar-damaged", f"an extended header of {size} bytes at {start}")
        payload = os.pread(self.descriptor, size, start)
        if kind in (b"L", b"K"):
            self._long[kind] = payload.split(b"\0", 1)[0]
        else:
            (self._pax if kind == b"x" else self._global_pax).update(_pax_records(payload, start))

    def _take_member(self, header: bytes, kind: bytes, position: int, start: int, size: int) -> None:
        raw = self._raw_name(header)
        if kind == b"5" or (kind in _FILE_TYPES and raw.endswith(b"/")):
            return
        try:
            name = _safe_name(raw)
        except Rejected as rejected:
            self._reject(raw.decode("utf-8", "replace"), position, rejected)
            return
        if _SIDECAR.search(name):
            self.sidecars.append(name)
        elif kind == b"1":
            self._take_hard_link(header, name, position)
        elif kind == b"2":
            self._reject(name, position, Rejected("link-member", "a symbolic link"))
        elif kind not in _FILE_TYPES or any(key.startswith("GNU.sparse") for key in self._pax):
            self._reject(name, position, Rejected("special-member", f"member type {kind!r}"))
        else:
            self._add(_Entry(name, start, size))

    def _raw_name(self, header: bytes) -> bytes:
        if name := self._pax.get("path") or self._global_pax.get("path") or self._long.get(b"L"):
            return name
        name = header[:100].split(b"\0", 1)[0]
        prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
        return prefix + b"/" + name if prefix else name

    def _take_hard_link(self, header: bytes, name: str, position: int) -> None:
        raw = self._pax.get("linkpath") or self._long.get(b"K") or header[157:257].split(b"\0", 1)[0]
        try:
            target = self._latest.get(_safe_name(raw))
        except Rejected:
            target = None
        if target is None:
            self._reject(name, position, Rejected("link-member", f"to {raw!r:.80}, which does not precede it"))
        else:
            self._add(_Entry(name, target.offset_bytes, target.size_bytes))

    def _add(self, entry: _Entry) -> None:
        if len(self.entries) >= MAX_MEMBERS:
            raise Rejected("tar-damaged", f"more than {MAX_MEMBERS} members")
        self.entries.append(entry)
        self._latest[entry.name] = entry

    def _reject(self, name: str, position: int, rejected: Rejected) -> None:
        name = _CONTROL.sub("?", name)[:300]
        self.rejects.append(
            Reject("member", self.part, rejected.reason, rejected.detail, member=name, offset_bytes=position)
        )


def _has_checksum(header: bytes) -> bool:
    try:
        stored = _number(header[148:156], 0)
    except Rejected:
        return False
    blank = header[:148] + b" " * 8 + header[156:]
    signed = sum(byte - 256 if byte > 127 else byte for byte in blank)
    return stored in (sum(blank), signed)


def _require_checksum(header: bytes, position: int) -> None:
    if not _has_checksum(header):
        raise Rejected("tar-damaged", f"the header at {position} is damaged (checksum)")


def _number(digits: bytes, position: int) -> int:
    if digits[0] == 0x80:
        return int.from_bytes(digits[1:], "big")
    text = digits.split(b"\0", 1)[0].strip(b" ")
    if not re.fullmatch(rb"[0-7]*", text):
        raise Rejected("tar-damaged", f"{text!r:.40} is no number, header at {position}")
    return int(text or b"0", 8)


def _pax_records(payload: bytes, position: int) -> Iterator[tuple[str, bytes]]:
    """`LENGTH KEY=VALUE\\n` records; LENGTH counts all of the record."""
    while payload.strip(b"\0"):
        digits = payload.partition(b" ")[0]
        length = int(digits) if digits.isdigit() and len(digits) < 8 else 0
        record = payload[len(digits) + 1 : length]
        if not len(digits) + 2 < length <= len(payload) or not record.endswith(b"\n") or b"=" not in record:
            raise Rejected("tar-damaged", f"a PAX record at {position} is damaged")
        key, _, value = record[:-1].partition(b"=")
        yield key.decode("utf-8", "replace"), value
        payload = payload[length:]


def _safe_name(raw: bytes) -> str:
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Rejected("unsafe-name", f"{raw!r:.80} is not UTF-8") from None
    pieces = [piece for piece in name.split("/") if piece not in ("", ".")]
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:[\\/]", name):
        raise Rejected("unsafe-name", f"{name!r:.80} is absolute")
    if not pieces or ".." in re.split(r"[/\\]", name) or _CONTROL.search(name):
        raise Rejected("unsafe-name", f"{name!r:.80} climbs, is empty or holds control characters")
    return "/".join(pieces)


def _hash_member(
    descriptor: int, entry: _Entry, progress: Callable[[int], None], stop: threading.Event | None
) -> TarMember:
    digest = hashlib.sha256()
    position, end = entry.offset_bytes, entry.offset_bytes + entry.size_bytes
    while position < end:
        if stop is not None and stop.is_set():
            raise IncompleteError("stopped while a part was being indexed")
        block = os.pread(descriptor, min(READ_BYTES, end - position), position)
        if not block:
            raise Rejected("tar-damaged", f"the archive became shorter at {position}")
        digest.update(block)
        position += len(block)
        progress(len(block))
    return TarMember(entry.name, entry.offset_bytes, entry.size_bytes, digest.hexdigest())


def _resolve(hashed: list[TarMember], reader: _Reader, part: str) -> TarIndex:
    """One member a name: the last copy, as `tar -xf` leaves it."""
    last: dict[str, TarMember] = {}
    conflicts: list[tuple[str, str]] = []
    for member in hashed:
        earlier = last.pop(member.name, None)
        if earlier and earlier.sha256 != member.sha256:
            conflicts.append(("duplicate-member-conflict", member.name))
        last[member.name] = member
    rejects = list(reader.rejects)
    if not last:
        rejects.append(Reject("part", part, "no-members", "the archive holds no files"))
    warnings = (*reader.warnings, *dict.fromkeys(conflicts))
    return TarIndex(tuple(last.values()), tuple(rejects), warnings, tuple(reader.sidecars))


def read_member(path: Path, member: TarMember) -> bytes:
    """The payload of one member."""
    with path.open("rb", buffering=0) as file:
        return os.pread(file.fileno(), member.size_bytes, member.offset_bytes)


def extract(index: TarIndex, path: Path, folder: Path) -> int:
    """Write the members of a part as plain files below `folder`; returns the number of bytes written.

    A file that is there with the right bytes is kept. A file appears by a rename, complete.

    Raises:
        UsageError: a folder on the way is a symbolic link that leads out of `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    root = folder.resolve()
    written = 0
    with path.open("rb", buffering=0) as source:
        for member in index.members:
            target = root / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.parent.resolve().is_relative_to(root):
                raise UsageError(f"{target.parent} is a link that leads out of {folder}: remove it")
            if not _is_same(target, member):
                _copy_out(source.fileno(), member, target)
                written += member.size_bytes
    return written


def _is_same(target: Path, member: TarMember) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != member.size_bytes:
        return False
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == member.sha256


def _copy_out(descriptor: int, member: TarMember, target: Path) -> None:
    temporary = target.with_name(f".{member.sha256[:16]}.tmp")
    temporary.unlink(missing_ok=True)
    position, end = member.offset_bytes, member.offset_bytes + member.size_bytes
    with temporary.open("xb", buffering=0) as file:
        while position < end:
            block = os.pread(descriptor, min(READ_BYTES, end - position), position)
            if not block:
                raise Rejected("tar-damaged", f"the archive became shorter at {position}")
            file.write(block)
            position += len(block)
    temporary.replace(target)
