"""One file of a Hub onto the disk: resumed, also in a later process, and checked against the listing.

    TARGET                       the file, complete, its bytes checked: it appears by a rename
    TARGET.<16 hex digits>.part  what is fetched so far; the digits are of the wanted hash
    TARGET.lock                  held (flock) by the process that fetches it
    TARGET.verified              its hash, size and time of change when its bytes were found right

huggingface_hub starts a failed file at byte 0 and checks its size only, so just its URLs, headers and
connections are used. Plain HTTP, no Xet; `library` fetches the other way, behind the same gate.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import io
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import httpx2
from huggingface_hub import hf_hub_url

from clipshards.errors import IncompleteError, NoSpaceError, Rejected, StoppedError
from clipshards.hub.listing import HubFile, read_blocks
from clipshards.hub.replies import TryLater, is_from_hub, request, require_ok
from clipshards.hub.source import HubSource

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LFS_POINTER_MAX_BYTES = 1024
_LOCK_POLL_SECONDS = 0.2
_KEY_DIGITS = 16

_log = logging.getLogger(__name__)


def fetch(
    source: HubSource,
    commit: str,
    file: HubFile,
    target: Path,
    *,
    progress: Callable[[int], None] = lambda num_bytes: None,
    stop: threading.Event | None = None,
    reserve_bytes: int = 0,
    tries: int = 6,
    backoff_seconds: float = 0.5,
    timeout_seconds: float = 15.0,
) -> Path:
    """Fetch `file` at `commit` to `target`, or go on from what an earlier call left; return `target`.

    A `target` that is there already is kept when it is right: it is hashed, unless it was found right before and
    was not changed since.

    Args:
        progress: called with bytes that are new on the disk, or were found there; their sum is `size_bytes`
            at the end, so a negative number takes back bytes that turned out to be wrong.
        stop: looked at between blocks and while waiting.
        reserve_bytes: free space that must be left when the file is complete.
        tries: failures in a row, without one new byte, that are accepted.
        backoff_seconds: the pause after the first failure; it doubles up to a minute.
        timeout_seconds: how long a connection may be silent.

    Raises:
        Rejected: `sha-mismatch`, `size-mismatch`, `lfs-pointer` or `file-missing`.
        SourceError: the Hub refuses (401, 403, 404 of the repository or the revision).
        StoppedError, IncompleteError: stopped, or all tries used up; what is fetched is kept.
        NoSpaceError: the disk is full or too small.
        OSError: the disk fails in another way.
    """
    download = Download(
        source, commit, file, progress, stop or threading.Event(), tries, backoff_seconds, timeout_seconds
    )
    return download.to(target, reserve_bytes)


def part_path(target: Path, commit: str, file: HubFile) -> Path:
    """Where the bytes of `file` are kept until it is complete: next to `target`, the same in each process."""
    key = _wanted_hash(file) or commit
    return target.with_name(f"{target.name}.{key[:_KEY_DIGITS]}.part")


def bytes_here(target: Path, commit: str, file: HubFile) -> int:
    """How much of `file` an earlier call left: all of it, or what it had fetched."""
    if target.is_file() and target.stat().st_size == file.size_bytes:
        return file.size_bytes
    begun = part_path(target, commit, file)
    return begun.stat().st_size if begun.is_file() else 0


def verified_path(target: Path) -> Path:
    """The note that says that `target` was found right."""
    return target.with_name(f"{target.name}.verified")


def remove_download(target: Path) -> None:
    """Remove a fetched file and the notes beside it."""
    for path in (target, verified_path(target), target.with_name(f"{target.name}.lock")):
        path.unlink(missing_ok=True)


def _wanted_hash(file: HubFile) -> str | None:
    return file.sha256 or file.git_sha1


def _new_hash(file: HubFile) -> hashlib._Hash:
    if file.sha256 is None and file.git_sha1 is not None:
        return hashlib.sha1(b"blob %d\0" % file.size_bytes, usedforsecurity=False)
    return hashlib.sha256()


def _is_right(file: HubFile, digest: hashlib._Hash) -> bool:
    return _wanted_hash(file) in (None, digest.hexdigest())


def _remove_stale_parts(target: Path, current: Path) -> None:
    """Drop what was fetched of another version of the file: nobody will go on with it."""
    for path in target.parent.glob(f"{glob.escape(target.name)}.{'?' * _KEY_DIGITS}.part"):
        if path != current:
            path.unlink()


@dataclass(frozen=True)
class Download:
    """How one file is fetched: the arguments of `fetch`, and the loop over its tries."""

    source: HubSource
    commit: str
    file: HubFile
    progress: Callable[[int], None]
    stop: threading.Event
    tries: int
    backoff_seconds: float
    timeout_seconds: float

    def to(self, target: Path, reserve_bytes: int) -> Path:
        """As `fetch`."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._locked(target):
            if self._is_complete(target):
                return target
            verified_path(target).unlink(missing_ok=True)
            with Part(part_path(target, self.commit, self.file), self.file, self.progress) as part:
                _remove_stale_parts(target, part.path)
                part.resume(self.check_stop)
                part.require_space(reserve_bytes)
                self._fill(part)
                part.rename(target)
            self._note_verified(target)
        return target

    @contextmanager
    def _locked(self, target: Path) -> Iterator[None]:
        """Hold the lock file of `target`; polled, so that a stop is seen while another process holds it."""
        with target.with_name(f"{target.name}.lock").open("w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self.check_stop()
                    self.stop.wait(_LOCK_POLL_SECONDS)
            yield

    def _is_complete(self, target: Path) -> bool:
        """Whether `target` is there and has the wanted bytes."""
        if not target.is_file() or target.stat().st_size != self.file.size_bytes:
            return False
        if self._was_verified(target):
            self.progress(self.file.size_bytes)
            return True
        digest = _new_hash(self.file)
        with target.open("rb", buffering=0) as stream:
            for block in read_blocks(stream):
                self.check_stop()
                digest.update(block)
        if not _is_right(self.file, digest):
            return False
        self._note_verified(target)
        self.progress(self.file.size_bytes)
        return True

    def _was_verified(self, target: Path) -> bool:
        try:
            return verified_path(target).read_text() == self._verified(target)
        except (OSError, UnicodeDecodeError):
            return False

    def _note_verified(self, target: Path) -> None:
        """Remember that the bytes of `target`, as it is now, are right."""
        verified_path(target).write_text(self._verified(target))

    def _verified(self, target: Path) -> str:
        stat = target.stat()
        return f"{_wanted_hash(self.file)} {stat.st_size} {stat.st_mtime_ns}\n"

    def _fill(self, part: Part) -> None:
        """Receive until `part` has the wanted bytes: wrong ones are fetched once more, failures retried."""
        self._fill_once(part)
        if part.is_right:
            return
        _log.warning("%s: the bytes received are not those listed; fetching it once more", self.file.path)
        part.clear()
        self._fill_once(part)
        if part.is_right:
            return
        got = part.hexdigest
        part.clear()
        raise Rejected(
            "sha-mismatch",
            f"{self.file.path} has hash {got}, the listing says {_wanted_hash(self.file)} (twice)",
        )

    def _fill_once(self, part: Part) -> None:
        failures = 0
        while part.have_bytes < self.file.size_bytes:
            self.check_stop(part)
            before = part.have_bytes
            try:
                self.receive(part)
                problem = TryLater("the body ended too early")
            except TryLater as caught:
                problem = caught
            if part.have_bytes < self.file.size_bytes:
                failures = 1 if part.have_bytes > before else failures + 1
                self._pause(problem, failures, part)

    def _pause(self, problem: TryLater, failures: int, part: Part) -> None:
        size, have = self.file.size_bytes, part.have_bytes
        if failures > self.tries:
            if problem.reason:
                raise Rejected(problem.reason, f"{self.file.path}: {problem}")
            raise IncompleteError(
                f"{self.file.path} of {self.source.repo}: {problem}, no new byte in {self.tries} tries; "
                f"{have:,} of {size:,} bytes are kept: check the network and run the same command again"
            )
        seconds = problem.pause_seconds(failures, self.backoff_seconds)
        told = ", as told" if problem.wait_seconds is not None else ""
        _log.warning(
            "%s: %s at byte %d of %d; going on in %.1f s%s",
            self.file.path,
            problem,
            have,
            size,
            seconds,
            told,
        )
        self.stop.wait(seconds)

    def receive(self, part: Part) -> None:
        """One request for the bytes that `part` lacks; the signed URL behind it is new each time.

        Raises:
            TryLater: it may succeed when it is repeated; what has come is kept.
        """
        url = hf_hub_url(
            self.source.repo,
            self.file.path,
            repo_type="dataset",
            revision=self.commit,
            endpoint=self.source.base_url,
        )
        headers = {"Accept-Encoding": "identity"}
        if part.have_bytes:
            headers["Range"] = f"bytes={part.have_bytes}-"
        with request(self.source, "GET", url, headers=headers, timeout_seconds=self.timeout_seconds) as response:
            self.require_file(response)
            blocks = response.iter_raw()
            first = next(blocks, b"")
            at_byte = self._start_byte(response, first, part.have_bytes)
            self._append(part, chain([first], blocks), skip_bytes=part.have_bytes - at_byte)

    def _append(self, part: Part, blocks: Iterator[bytes], *, skip_bytes: int) -> None:
        for block in blocks:
            self.check_stop(part)
            new = block[skip_bytes:]
            skip_bytes = max(0, skip_bytes - len(block))
            if part.have_bytes + len(new) > self.file.size_bytes:
                raise self.wrong_size("the body is longer")
            if new:
                part.append(new)

    def require_file(self, response: httpx2.Response) -> None:
        """As `require_ok`, and Rejected `file-missing` when just the file is not there."""
        missing = response.status_code == 404 and is_from_hub(response, self.source)
        if missing and response.headers.get("X-Error-Code") not in ("RepoNotFound", "RevisionNotFound"):
            where = f"{self.source.repo} at {self.commit[:12]}"
            raise Rejected("file-missing", f"{self.file.path} is not in {where}")
        if response.status_code == 416:
            raise self.wrong_size(f"the server has {response.headers.get('Content-Range', 'fewer bytes')}")
        require_ok(response, self.source)

    def _start_byte(self, response: httpx2.Response, first: bytes, have_bytes: int) -> int:
        """The byte at which the body starts; a body that cannot be the file is refused before it is stored.

        Without `Range` support the whole file comes: the bytes we have are skipped, not thrown away.
        """
        if response.status_code == 206:
            return self._range_start(response, have_bytes)
        declared = response.headers.get("Content-Length", "")
        self.refuse_pointer(first, int(declared or 0))
        if declared == str(self.file.size_bytes):
            return 0
        if response.headers.get("Content-Type", "").startswith("text/html"):
            raise TryLater("a web page came in its place, perhaps of a proxy", reason="size-mismatch")
        if declared:
            raise self.wrong_size(f"the server sends {declared} bytes")
        return 0

    def refuse_pointer(self, first: bytes, size_bytes: int) -> None:
        """Raise Rejected when what came is the text that git keeps in place of a large file."""
        if first.startswith(_LFS_POINTER) and size_bytes <= _LFS_POINTER_MAX_BYTES:
            raise Rejected("lfs-pointer", f"{self.file.path}: the server has only the pointer text")

    def _range_start(self, response: httpx2.Response, have_bytes: int) -> int:
        text = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", text)
        if match is None or int(match[1]) != have_bytes:
            raise TryLater(f"asked for bytes from {have_bytes}, got {text!r}")
        if match[2] not in ("*", str(self.file.size_bytes)):
            raise self.wrong_size(f"the server has {match[2]} bytes")
        return have_bytes

    def wrong_size(self, seen: str) -> TryLater:
        """The file has another size than the listing says; an answer to another request may be right."""
        return TryLater(f"{seen}, the listing says {self.file.size_bytes}", reason="size-mismatch")

    def check_stop(self, part: Part | None = None) -> None:
        """Raise IncompleteError when the run is to stop."""
        if self.stop.is_set():
            kept = f", {part.have_bytes:,} of {self.file.size_bytes:,} bytes are kept" if part else ""
            raise StoppedError(f"{self.file.path}: stopped{kept}; the same command goes on")


class Part:
    """The bytes of one file that are on the disk so far, and their running hash."""

    def __init__(self, path: Path, file: HubFile, progress: Callable[[int], None]) -> None:
        self.path = path
        self.have_bytes = 0
        self._file = file
        self._progress = progress
        self._hash = _new_hash(file)
        self._out = io.FileIO(path, "a+")

    def __enter__(self) -> Part:
        return self

    def __exit__(self, *_: object) -> None:
        self._out.close()

    @property
    def is_right(self) -> bool:
        return self.have_bytes == self._file.size_bytes and _is_right(self._file, self._hash)

    @property
    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def resume(self, check_stop: Callable[[], None]) -> None:
        """Hash what an earlier call left; too much of it, or all of it and wrong, is thrown away."""
        on_disk_bytes = os.fstat(self._out.fileno()).st_size
        if on_disk_bytes == 0:
            return
        if on_disk_bytes <= self._file.size_bytes:
            self._read(check_stop)
        if on_disk_bytes > self._file.size_bytes or (on_disk_bytes == self._file.size_bytes and not self.is_right):
            self.clear()

    def adopt(self, path: Path, check_stop: Callable[[], None]) -> None:
        """Take a whole file, right or not, in place of the bytes that are here."""
        self.clear()
        self._out.close()
        path.replace(self.path)
        self._out = io.FileIO(self.path, "a+")
        self._read(check_stop)

    def append(self, block: bytes) -> None:
        """Write and hash a block; it is on the disk, or an error is raised."""
        with self.disk():
            written = 0
            while written < len(block):
                written += self._out.write(memoryview(block)[written:])
        self._count(block)

    def clear(self) -> None:
        """Start again with no bytes."""
        self._out.truncate(0)
        self._hash = _new_hash(self._file)
        self._progress(-self.have_bytes)
        self.have_bytes = 0

    def rename(self, target: Path) -> None:
        """Make the bytes durable, then let them appear as `target`."""
        with self.disk():
            os.fsync(self._out.fileno())
        self.path.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def require_space(self, reserve_bytes: int) -> None:
        """Raise NoSpaceError when the rest of the file does not fit beside the reserve."""
        needed_bytes = self._file.size_bytes - self.have_bytes + reserve_bytes
        if self._free_bytes() < needed_bytes:
            raise self._no_space(needed_bytes)

    def _read(self, check_stop: Callable[[], None]) -> None:
        self._out.seek(0)
        for block in read_blocks(self._out):
            check_stop()
            self._count(block)

    def _count(self, block: bytes | memoryview) -> None:
        self._hash.update(block)
        self.have_bytes += len(block)
        self._progress(len(block))

    @contextmanager
    def disk(self) -> Iterator[None]:
        """Raise NoSpaceError for an error that says that the disk is full."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._no_space(self._file.size_bytes - self.have_bytes) from error
            raise

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self.path.parent).free

    def _no_space(self, needed_bytes: int) -> NoSpaceError:
        return NoSpaceError(
            f"{self._file.path} needs {needed_bytes:,} more bytes in {self.path.parent}, "
            f"{self._free_bytes():,} are free: make room, or give another folder; what is fetched is kept"
        )
