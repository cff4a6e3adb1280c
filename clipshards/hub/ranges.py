"""A few bytes of a file of a Hub: one clip out of a part, or its headers, without the part."""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import hf_hub_url

from clipshards.errors import IncompleteError, Rejected, SourceError
from clipshards.hub.listing import HubFile
from clipshards.hub.replies import TryLater, request, require_ok
from clipshards.hub.source import HubSource
from clipshards.tars import TarMember

_TRIES = 4
_TIMEOUT_SECONDS = 30.0


def fetch_member(source: HubSource, commit: str, part: str, member: TarMember, target: Path) -> Path:
    """Fetch the payload of one member of a part to `target`, and check its hash.

    Raises:
        Rejected: `sha-mismatch`.
        SourceError: the Hub refuses.
        IncompleteError: it does not answer.
    """
    payload = _fetch(source, commit, part, member.offset_bytes, member.size_bytes)
    digest = hashlib.sha256(payload).hexdigest()
    if digest != member.sha256:
        raise Rejected(
            "sha-mismatch", f"{member.name} of {part} has sha256 {digest}, the table says {member.sha256}"
        )
    target.write_bytes(payload)
    return target


class RangeFile(io.RawIOBase):
    """A file of a Hub as a seekable stream; each read is a request. Errors as `fetch_member`.

    A server that knows no ranges is refused: it would send all bytes before the wanted ones.
    """

    def __init__(self, source: HubSource, commit: str, file: HubFile) -> None:
        self.num_requests = 0
        self.num_bytes = 0
        self._source, self._commit, self._file = source, commit, file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size_bytes}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = min(len(buffer), self._file.size_bytes - self._position)
        if size <= 0:
            return 0
        buffer[:size] = _fetch(self._source, self._commit, self._file.path, self._position, size, needs_ranges=True)
        self._position += size
        self.num_requests += 1
        self.num_bytes += size
        return size


def _fetch(
    source: HubSource, commit: str, path: str, offset: int, size: int, *, needs_ranges: bool = False
) -> bytes:
    for tried in range(1, _TRIES + 1):
        try:
            return _receive(source, commit, path, offset, size, needs_ranges)
        except TryLater as problem:
            if tried == _TRIES:
                raise IncompleteError(f"bytes of {path}: {problem}, {_TRIES} tries; run again") from None
            time.sleep(problem.pause_seconds(tried, 0.5))
    raise AssertionError("the last try returns or raises")


def _receive(source: HubSource, commit: str, path: str, offset: int, size: int, needs_ranges: bool) -> bytes:
    url = hf_hub_url(source.repo, path, repo_type="dataset", revision=commit, endpoint=source.base_url)
    headers = {"Accept-Encoding": "identity", "Range": f"bytes={offset}-{offset + size - 1}"}
    with request(source, "GET", url, headers=headers, timeout_seconds=_TIMEOUT_SECONDS) as response:
        require_ok(response, source)
        if needs_ranges and offset and response.status_code != 206:
            raise SourceError(f"{source.base_url} sends no ranges of {path}: its parts can only be fetched whole")
        # A server without ranges sends the whole part: what comes before the member is passed over.
        skip = 0 if response.status_code == 206 else offset
        payload = _slice(response.iter_raw(), skip, size)
    if len(payload) != size:
        raise TryLater(f"{len(payload)} of {size} bytes came")
    return payload


def _slice(blocks: Iterable[bytes], skip: int, size: int) -> bytes:
    """`size` bytes after the first `skip`, or fewer when the blocks end before."""
    found = bytearray()
    for block in blocks:
        found += block[skip : skip + size - len(found)]
        skip = max(0, skip - len(block))
        if len(found) == size:
            break
    return bytes(found)
