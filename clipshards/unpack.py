"""gzip-compressed parts: unpacked once, so that clips are read in place as out of any other part.

    TARGET.<16 hex digits>.unpacked   the tar, complete: it appears by a rename; the digits are of the packed part
    TARGET.<anything>.tmp             what a run that died left of it

The hash of a part is that of the file in the source; offsets of its members are those in the unpacked tar.
"""

from __future__ import annotations

import errno
import glob
import gzip
import os
import tempfile
import threading
import zlib
from pathlib import Path
from typing import IO

from clipshards.errors import NoSpaceError, Rejected, StoppedError
from clipshards.tars import READ_BYTES, is_gzip

MAX_UNPACKED_RATIO = 20
"""Clips are compressed already: a part that grows more is taken for a bomb. gzip can grow a thousandfold."""

MIN_LIMIT_BYTES = 64 << 20
"""What a small part may grow to in any case: headers and padding of a tar shrink well."""

UNPACKED_TO_PACKED = 1.5
"""What a disk budget sets apart for the tar out of a compressed part: clips hardly shrink, so it is 1.0 to 1.1."""

_KEY_DIGITS = 16
_SUFFIX = ".unpacked"
_PACKED_NAMES = (".tar.gz", ".tgz")


def is_packed_name(part: str) -> bool:
    """Whether the name of a part says that it is compressed."""
    return part.lower().endswith(_PACKED_NAMES)


def bytes_set_apart(part: str, size_bytes: int) -> int:
    """What a disk budget holds for the tar out of a part: 0 when its name does not say that it is compressed."""
    return int(size_bytes * UNPACKED_TO_PACKED) if is_packed_name(part) else 0


def is_unpacked(path: Path) -> bool:
    """Whether a file is what `unpack` made of a part."""
    return path.suffix == _SUFFIX


def unpacked_path(target: Path, sha256: str) -> Path:
    """Where the tar out of a part of that hash is kept; `target` is named as the part."""
    return target.with_name(f"{target.name}.{sha256[:_KEY_DIGITS]}{_SUFFIX}")


def unpack(
    packed: Path,
    sha256: str,
    target: Path,
    *,
    limit_bytes: int | None = None,
    stop: threading.Event | None = None,
) -> Path:
    """The tar out of a gzip-compressed part; a part that is none is returned as it is.

    Args:
        sha256: of the part.
        target: the tar appears beside it, see above; one that is there already is kept.
        limit_bytes: most that it may take, as the disk budget has it; None: 20 times the part, at least 64 MB.
        stop: looked at between blocks.

    Raises:
        Rejected: `tar-damaged` (the stream is damaged or ends too early), `no-space` (it grows over the limit),
            `tar-compressed` (the budget has nothing for it).
        NoSpaceError: the disk is full.
        StoppedError: stopped; nothing of it is kept.
    """
    if not is_gzip(packed):
        return packed
    done = unpacked_path(target, sha256)
    if done.is_file():
        return done
    if limit_bytes == 0:
        what = f"{packed.name} is gzip under a tar's name, for which --disk-budget sets nothing apart"
        raise Rejected("tar-compressed", f"{what}: name it .tar.gz, or leave --disk-budget out")
    remove_unpacked(target, but=done)  # of another version of the part
    done.parent.mkdir(parents=True, exist_ok=True)
    # Two splits may name one part, so each writes a file of its own.
    with tempfile.NamedTemporaryFile(
        dir=done.parent, prefix=f"{target.name}.", suffix=".tmp", delete=False
    ) as file:
        temporary = Path(file.name)
        try:
            _copy(packed, file, limit_bytes, stop)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(done)
        except BaseException as error:
            temporary.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoSpaceError(f"the disk is full while unpacking {packed.name}: free some space") from error
            raise
    return done


def remove_unpacked(target: Path, *, but: Path | None = None) -> None:
    """Remove what was unpacked of a part, whatever its hash was; `but` one, which another task may have made."""
    for path in target.parent.glob(f"{glob.escape(target.name)}.{'?' * _KEY_DIGITS}{_SUFFIX}"):
        if path != but:
            path.unlink(missing_ok=True)


def _copy(packed: Path, file: IO[bytes], limit_bytes: int | None, stop: threading.Event | None) -> None:
    most_bytes = limit_bytes or max(MIN_LIMIT_BYTES, MAX_UNPACKED_RATIO * packed.stat().st_size)
    num_bytes = 0
    with gzip.open(packed) as stream:
        while block := _next_block(stream, num_bytes):
            if stop is not None and stop.is_set():
                raise StoppedError("stopped while a part was being unpacked")
            num_bytes += len(block)
            if num_bytes > most_bytes:
                hint = "unpack it yourself" if limit_bytes is None else "leave --disk-budget out"
                raise Rejected("no-space", f"{packed.name} unpacks to more than {most_bytes:,} bytes: {hint}")
            file.write(block)


def _next_block(stream: gzip.GzipFile, num_bytes: int) -> bytes:
    try:
        return stream.read(READ_BYTES)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Rejected("tar-damaged", f"the gzip stream is damaged after {num_bytes:,} bytes: {error}") from None
