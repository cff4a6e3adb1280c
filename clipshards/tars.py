"""Parts: a strict index of a tar, its members read in place by (offset, size).

    [header 512][payload, padded to 512] … [512 zeros] [512 zeros] [padding]

    header: name 0–100, size 124–136, checksum 148–156, type 156, link target 157–257, "ustar\\0" 257,
            prefix 345–500; numbers are octal, or big-endian binary when the first bit is set.
    type:   0 file · 1 hard link · 2 symbolic link · 5 folder · x, g PAX records for the next member, for all ·
            L, K GNU long name, long link target of the next member · S GNU sparse

Python's `tarfile` loses members without a word when a header is damaged or the end mark is missing; here each
block is accounted for. Nothing is ever extracted by a name that was not checked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from clipshards.errors import NoSpaceError, Rejected, StoppedError, UsageError
from clipshards.schema import Reject

BLOCK = 512
READ_BYTES = 1 << 20
MAX_MEMBERS = 2_000_000
MAX_EXTENDED_HEADER_BYTES = 1 << 20
MAX_LINK_STEPS = 40
"""Symbolic links followed one after the other, as many as Linux follows."""
MAX_NAME_BYTES, MAX_PIECE_BYTES = 4095, 255
"""The longest path, and the longest name between two slashes, that a disk takes."""

_ZEROS = bytes(BLOCK)
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_LFS_POINTER = b"version https://git-lfs"
_FILE_TYPES = (b"0", b"\0", b"7")
_EXTENSION_TYPES = (b"x", b"g", b"L", b"K")
_TYPES_WITHOUT_PAYLOAD = (b"1", b"2", b"3", b"4", b"5", b"6")
_TYPES_OF_NO_INTEREST = (b"5", b"D", b"V")
"""Folders, also with GNU's list of what is in them, and the label of a volume."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
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
    max_members: int = MAX_MEMBERS,
) -> TarIndex:
    """Index a tar and hash each member's payload. Whatever the bytes, the end is an index or Rejected.

    Args:
        part: path of the part in the source, for the rejects.
        progress: called with the number of bytes just hashed.
        stop: when set, the work ends with StoppedError.
        max_members: with more, the part is rejected.

    Raises:
        Rejected: the part cannot be used: `empty-file`, `tar-compressed`, `lfs-pointer`, `tar-damaged`,
            `data-after-end-mark` (bytes that are no members; members there are read, with a warning).
        StoppedError: stopped.
    """
    with path.open("rb", buffering=0) as file:
        reader = _walk(file.fileno(), part, max_members)
        hashed = _hash_members(file.fileno(), reader.entries, progress, stop)
    return _resolve(hashed, reader)


def list_names(path: Path) -> list[str]:
    """Names of all files of a tar in the order of the archive, repeats included; nothing is hashed.

    Raises:
        Rejected: as `index_tar`.
    """
    with path.open("rb", buffering=0) as file:
        return [entry.name for entry in _walk(file.fileno(), path.name, MAX_MEMBERS).entries]


def is_gzip(path: Path) -> bool:
    """Whether a file is gzip, and no tar whose first member is named so that it looks like it."""
    with path.open("rb") as file:
        start = file.read(BLOCK)
    return start.startswith(b"\x1f\x8b") and not _is_header(start)


def _walk(descriptor: int, part: str, max_members: int) -> _Reader:
    reader = _Reader(descriptor, os.fstat(descriptor).st_size, part, max_members)
    reader.read()
    return reader


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _SymbolicLink:
    name: str
    target: str
    """The member that it leads to, as a path in the archive."""
    header: int
    """Where its header lies in the archive."""
    num_before: int
    """Entries that precede it."""


@dataclass
class _Reader:
    """Walks the headers of one tar."""

    descriptor: int
    end: int
    part: str
    max_members: int
    entries: list[_Entry] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    sidecars: list[str] = field(default_factory=list)
    symbolic_links: list[_SymbolicLink] = field(default_factory=list)
    _num_headers: int = 0
    _latest: dict[str, _Entry] = field(default_factory=dict)
    _pax: dict[str, bytes] = field(default_factory=dict)
    _global_pax: dict[str, bytes] = field(default_factory=dict)
    _long: dict[bytes, bytes] = field(default_factory=dict)
    _member_is_due: bool = False
    """An extended header was read whose member did not come yet."""

    def read(self) -> None:
        self._refuse_what_is_no_tar()
        position = 0
        while True:
            header = self._header_at(position)
            if header == _ZEROS:
                if self._member_is_due:
                    raise Rejected("tar-damaged", f"an extended header without its member before {position}")
                following = self._next_archive(position)
                if following is None:
                    self._follow_symbolic_links()
                    return
                position = following
                continue
            _require_checksum(header, position)
            position = self._take(header, position)

    def _refuse_what_is_no_tar(self) -> None:
        start = os.pread(self.descriptor, BLOCK, 0)
        if not start:
            raise Rejected("empty-file", f"{self.part} has 0 bytes")
        if _is_header(start):
            return  # a tar, whatever the name of its first member looks like
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
        """Where a second archive starts after the end mark; None when only zeros follow.

        One block of zeros is an end mark too, as for `tar`.
        """
        while block := os.pread(self.descriptor, READ_BYTES, position):
            stripped = block.lstrip(b"\0")
            if stripped:
                position += (len(block) - len(stripped)) // BLOCK * BLOCK
                break
            position += len(block)
        else:
            return None
        header = os.pread(self.descriptor, BLOCK, position)
        if not _is_header(header):
            raise Rejected("data-after-end-mark", f"bytes that are no tar header at {position}")
        if not self.warnings:  # once, however many are glued on
            self.warnings.append(("data-after-end-mark", f"at {position}"))
        return position

    def _take(self, header: bytes, position: int) -> int:
        """Take in one header and what belongs to it; returns the position of the next header."""
        kind, start = header[156:157], position + BLOCK
        size = self._size(header, position)
        if kind in _TYPES_WITHOUT_PAYLOAD:
            size = 0  # by POSIX they carry no payload, whatever the field says
        if kind == b"S":
            start = self._end_of_sparse_map(header, start)
        if start + size > self.end:
            raise Rejected("tar-damaged", f"the member at {position} runs past the end of the archive")
        if kind in _EXTENSION_TYPES:
            self._take_extension(kind, start, size)
        else:
            self._take_member(header, kind, position, start, size)
            self._pax, self._long, self._member_is_due = {}, {}, False
        return start + -(-size // BLOCK) * BLOCK

    def _size(self, header: bytes, position: int) -> int:
        if header[156:157] not in _EXTENSION_TYPES:
            text = self._pax.get("size", self._global_pax.get("size"))
            if text is not None:
                if not text.isdigit() or len(text) > 20:
                    raise Rejected("tar-damaged", f"size {text!r:.40} in the PAX header before {position}")
                return int(text)
        return _number(header[124:136], position)

    def _end_of_sparse_map(self, header: bytes, start: int) -> int:
        """The map of an old GNU sparse file goes on in blocks which its size does not count."""
        goes_on = header[482]
        while goes_on:
            goes_on = self._header_at(start)[504]
            start += BLOCK
        return start

    def _take_extension(self, kind: bytes, start: int, size: int) -> None:
        if size > MAX_EXTENDED_HEADER_BYTES:
            raise Rejected("tar-damaged", f"an extended header of {size} bytes at {start}")
        payload = os.pread(self.descriptor, size, start)
        if kind in (b"L", b"K"):
            self._long[kind] = payload.split(b"\0", 1)[0]
        elif kind == b"x":
            self._pax = dict(_pax_records(payload, start))
        else:
            self._global_pax.update(_pax_records(payload, start))
        self._member_is_due |= kind != b"g"

    def _take_member(self, header: bytes, kind: bytes, position: int, start: int, size: int) -> None:
        self._num_headers += 1
        if self._num_headers > self.max_members:
            raise Rejected("tar-damaged", f"more than {self.max_members} members")
        raw = self._raw_name(header)
        is_old_folder = kind in _FILE_TYPES and raw.endswith(b"/") and size == 0
        if kind in _TYPES_OF_NO_INTEREST or is_old_folder:
            return
        try:
            name = _safe_name(raw)
            if _SIDECAR.search(name):
                self.sidecars.append(name)
            elif kind == b"2":
                target = _inside_archive(name, self._raw_target(header))
                self.symbolic_links.append(_SymbolicLink(name, target, position, len(self.entries)))
            else:
                self._add(self._entry_of(header, kind, _Entry(name, start, size)))
        except Rejected as rejected:
            self.reject(raw.decode("utf-8", "replace"), position, rejected)

    def _entry_of(self, header: bytes, kind: bytes, entry: _Entry) -> _Entry:
        if kind == b"1":
            target = self._target(header)
            return _Entry(entry.name, target.offset_bytes, target.size_bytes)
        if kind not in _FILE_TYPES:
            raise Rejected("special-member", f"member type {kind!r}")
        if self._is_sparse():
            raise Rejected("special-member", "a sparse file")
        return entry

    def _is_sparse(self) -> bool:
        return any(name.startswith("GNU.sparse") for name in (*self._pax, *self._global_pax))

    def _raw_name(self, header: bytes) -> bytes:
        for records in (self._pax, self._global_pax):
            if name := records.get("GNU.sparse.name") or records.get("path"):
                return name
        if name := self._long.get(b"L"):
            return name
        name = header[:100].split(b"\0", 1)[0]
        prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
        return prefix + b"/" + name if prefix else name

    def _raw_target(self, header: bytes) -> bytes:
        raw = self._pax.get("linkpath") or self._global_pax.get("linkpath") or self._long.get(b"K")
        return raw or header[157:257].split(b"\0", 1)[0]

    def _target(self, header: bytes) -> _Entry:
        """The earlier member that a hard link names: it has the bytes, the link has none."""
        raw = self._raw_target(header)
        try:
            return self._latest[_safe_name(raw)]
        except (Rejected, KeyError):
            raise Rejected("link-member", f"to {raw!r:.80}, which does not precede it") from None

    def _follow_symbolic_links(self) -> None:
        """Give each symbolic link the bytes of the member it leads to, which may stand before or after it."""
        targets = {link.name: link.target for link in self.symbolic_links}
        # The last one first: it leaves the places of the others as they are.
        for link in reversed(self.symbolic_links):
            target, num_steps = link.target, 0
            while target not in self._latest and target in targets and num_steps < MAX_LINK_STEPS:
                target, num_steps = targets[target], num_steps + 1
            if (entry := self._latest.get(target)) is None:
                detail = f"to {link.target!r:.80}, which is no file of this part"
                self.reject(link.name, link.header, Rejected("link-member", detail))
                continue
            self.entries.insert(link.num_before, _Entry(link.name, entry.offset_bytes, entry.size_bytes))

    def _add(self, entry: _Entry) -> None:
        self.entries.append(entry)
        self._latest[entry.name] = entry

    def reject(self, name: str, position: int, rejected: Rejected) -> None:
        """Record that a member cannot be used."""
        name = _CONTROL.sub("?", name)[:300]
        self.rejects.append(
            Reject("member", self.part, rejected.reason, rejected.detail, member=name, offset_bytes=position)
        )


def _is_header(block: bytes) -> bool:
    return len(block) == BLOCK and _has_checksum(block)


def _has_checksum(header: bytes) -> bool:
    try:
        stored = _number(header[148:156], 0)
    except Rejected:
        return False
    blank = header[:148] + b" " * 8 + header[156:]
    unsigned = sum(blank)
    # Some old tars added the bytes up as signed.
    return stored == unsigned or stored == unsigned - 256 * sum(byte > 127 for byte in blank)


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
    """The records that matter here of `LENGTH KEY=VALUE\\n` …; LENGTH counts all of the record."""
    start = 0
    while start < len(payload):
        digits = payload[start : start + 8].partition(b" ")[0]
        length = int(digits) if digits.isdigit() and len(digits) < 8 else 0
        record = payload[start + len(digits) + 1 : start + length]
        if not len(digits) + 2 < length <= len(payload) - start or not record.endswith(b"\n") or b"=" not in record:
            raise Rejected("tar-damaged", f"a PAX record at {position + start} is damaged")
        key, _, value = record[:-1].partition(b"=")
        if key in (b"path", b"linkpath", b"size", b"GNU.sparse.name"):
            yield key.decode(), value
        elif key.startswith(b"GNU.sparse"):
            yield "GNU.sparse", b""
        start += length


def _safe_name(raw: bytes) -> str:
    """The name as a relative path without `.` and empty pieces."""
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Rejected("unsafe-name", f"{raw[:80]!r} is not UTF-8") from None
    pieces = [piece for piece in name.split("/") if piece not in ("", ".")]
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        raise Rejected("unsafe-name", f"{name[:80]!r} is absolute")
    if not pieces or ".." in re.split(r"[/\\]", name) or _CONTROL.search(name):
        raise Rejected("unsafe-name", f"{name[:80]!r} climbs, is empty or holds control characters")
    if name.endswith("/"):
        raise Rejected("unsafe-name", f"{name[:80]!r} is a folder's name")
    if len(raw) > MAX_NAME_BYTES or any(len(piece.encode()) > MAX_PIECE_BYTES for piece in pieces):
        raise Rejected("unsafe-name", f"{name[:80]!r}… is too long for a disk ({len(raw)} bytes)")
    return "/".join(pieces)


def _inside_archive(name: str, raw_target: bytes) -> str:
    """The path that a symbolic link leads to, when it is relative and stays in the archive.

    Raises:
        Rejected: `link-member`.
    """
    target = raw_target.decode("utf-8", "replace")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    if not target or "\0" in target or path.startswith(("/", "../")) or path in (".", ".."):
        raise Rejected("link-member", f"to {target!r:.80}, outside of the archive")
    return path


def _hash_members(
    descriptor: int, entries: list[_Entry], progress: Callable[[int], None], stop: threading.Event | None
) -> list[TarMember]:
    """Hash each payload once: any number of hard links may share one."""
    digests: dict[int, str] = {}
    for entry in entries:
        if entry.offset_bytes not in digests:
            digests[entry.offset_bytes] = _hash_payload(descriptor, entry, progress, stop)
    return [TarMember(e.name, e.offset_bytes, e.size_bytes, digests[e.offset_bytes]) for e in entries]


def _hash_payload(
    descriptor: int, entry: _Entry, progress: Callable[[int], None], stop: threading.Event | None
) -> str:
    digest = hashlib.sha256()
    position, end = entry.offset_bytes, entry.offset_bytes + entry.size_bytes
    while position < end:
        if stop is not None and stop.is_set():
            raise StoppedError("stopped while a part was being indexed")
        block = _read_block(descriptor, position, end)
        digest.update(block)
        position += len(block)
        progress(len(block))
    return digest.hexdigest()


def _read_block(descriptor: int, position: int, end: int) -> bytes:
    """Up to `READ_BYTES` of [position, end)."""
    block = os.pread(descriptor, min(READ_BYTES, end - position), position)
    if not block:
        raise Rejected("tar-damaged", f"the archive became shorter: no bytes at {position}")
    return block


def _resolve(hashed: list[TarMember], reader: _Reader) -> TarIndex:
    """One member a name: the last copy, as `tar -xf` leaves it."""
    last: dict[str, TarMember] = {}
    conflicts: list[tuple[str, str]] = []
    for member in hashed:
        earlier = last.pop(member.name, None)
        if earlier and earlier.sha256 != member.sha256:
            conflicts.append(("duplicate-member-conflict", member.name))
        last[member.name] = member
    for member in _members_below_files(last):
        rejected = Rejected("unsafe-name", "a folder on its path is a file in the same archive")
        reader.reject(member.name, member.offset_bytes, rejected)
        del last[member.name]
    warnings = (*reader.warnings, *dict.fromkeys(conflicts))
    if not last:
        warnings = (*warnings, ("no-members", reader.part))
    return TarIndex(tuple(last.values()), tuple(reader.rejects), warnings, tuple(reader.sidecars))


def _members_below_files(members: dict[str, TarMember]) -> list[TarMember]:
    """Members that no disk can hold next to the others: `a/b` when `a` is a file."""
    folders = {name.rpartition("/")[0] for name in members} - {""}
    hidden = {folder for folder in folders if any(path in members for path in _self_and_above(folder))}
    return [member for name, member in members.items() if name.rpartition("/")[0] in hidden] if hidden else []


def _self_and_above(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition("/")[0]


def read_member(path: Path, member: TarMember) -> bytes:
    """The payload of one member.

    Raises:
        Rejected: `tar-damaged` when the part is shorter than it was.
    """
    with path.open("rb", buffering=0) as file:
        payload = os.pread(file.fileno(), member.size_bytes, member.offset_bytes)
    if len(payload) != member.size_bytes:
        raise Rejected("tar-damaged", f"{member.name}: {len(payload)} of {member.size_bytes} bytes are there")
    return payload


def extract(index: TarIndex, path: Path, folder: Path) -> int:
    """Write the members of a part as plain files below `folder`; returns the number of bytes written.

    A file that is there with the right bytes is kept. A file appears by a rename, complete.

    Raises:
        UsageError: something in `folder` is in the way: a symbolic link that leads out of it, a file where
            a folder must be.
        NoSpaceError: the disk is full.
        Rejected: `tar-damaged` when the part is shorter than it was.
    """
    folder.mkdir(parents=True, exist_ok=True)
    root = folder.resolve()
    written = 0
    with path.open("rb", buffering=0) as source:
        for member in index.members:
            target = root / member.name
            try:
                _make_folder(target.parent, root)
                if not _is_same(target, member):
                    _copy_out(source.fileno(), member, target, _temporary(path, target))
                    written += member.size_bytes
            except OSError as error:
                raise _explained(error, target) from error
    return written


def _make_folder(folder: Path, root: Path) -> None:
    """Make `folder`; checked first, so that not even a folder appears outside of `root`."""
    try:
        is_inside = folder.resolve().is_relative_to(root)
    except RuntimeError:  # links that go round in a circle
        is_inside = False
    if not is_inside:
        raise UsageError(f"{folder} is reached by a link that leads out of {root}: remove the link")
    folder.mkdir(parents=True, exist_ok=True)


def _is_same(target: Path, member: TarMember) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != member.size_bytes:
        return False
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == member.sha256


def _temporary(path: Path, target: Path) -> Path:
    """The same name in each run, so that a run that was killed leaves nothing for good; no two parts share it."""
    key = hashlib.sha256(f"{path.absolute()}\0{target.name}".encode(errors="surrogateescape")).hexdigest()
    return target.with_name(f".{key[:24]}.tmp")


def _copy_out(descriptor: int, member: TarMember, target: Path, temporary: Path) -> None:
    position, end = member.offset_bytes, member.offset_bytes + member.size_bytes
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("xb") as file:
            position += _copy_in_kernel(descriptor, file.fileno(), position, end)
            file.seek(position - member.offset_bytes)
            while position < end:
                block = _read_block(descriptor, position, end)
                file.write(block)
                position += len(block)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _copy_in_kernel(source: int, target: int, position: int, end: int) -> int:
    """Copy [position, end) of `source` to the start of `target` as far as the disks allow; bytes copied."""
    start = position
    while position < end and hasattr(os, "copy_file_range"):
        try:
            num_bytes = os.copy_file_range(source, target, end - position, position, position - start)
        except OSError as error:
            if error.errno in _DISK_FULL:
                raise
            break  # two disks, or a kind of disk that cannot: the rest is read and written
        if not num_bytes:
            break
        position += num_bytes
    return position - start


def _explained(error: OSError, target: Path) -> Exception:
    if error.errno in _DISK_FULL:
        return NoSpaceError(f"no space to extract {target}: free some and run the same command again")
    if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
        return UsageError(f"{target} cannot be written ({error.strerror}): move away what is in its place")
    return error
