"""What a plan may read of a source: its rows, headers of its parts, a few clips; and what a run has left of it."""

from __future__ import annotations

import gzip
import io
import time
import zlib
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO

from clipshards.decode.media import Extent
from clipshards.errors import ClipshardsError, SourceError
from clipshards.hub.fetch import bytes_here, fetch
from clipshards.hub.listing import HubFile, Listing, require_access
from clipshards.hub.ranges import RangeFile
from clipshards.hub.replies import hub_headers
from clipshards.hub.source import FolderSource, HubSource
from clipshards.receipts import PartReceipt, read_receipt
from clipshards.survey import Headers, read_headers
from clipshards.tars import TarMember
from clipshards.unpack import is_packed_name, unpacked_path
from flows.changes import hash_of

MAX_REQUESTS, MAX_CLIPS, MAX_CLIP_BYTES, MAX_SECONDS = 48, 12, 64_000_000, 20.0
"""What looking into one part of a Hub may cost."""

_HEADER_BLOCK_BYTES, _PACKED_BLOCK_BYTES = 1 << 16, 1 << 22
_BYTES_THAT_TELL = 8_000_000
"""Less than that does not tell how fast a network is."""


@dataclass(frozen=True)
class Access:
    """Whether the source lets us in."""

    state: str
    """folder, anonymous, token-accepted or refused."""
    has_token: bool
    detail: str = ""
    """Why it was refused, and what to do; never the token."""


class Look:
    """A source and the downloads and receipts of an output; writes into `folder` alone.

    Args:
        work: OUT/work.
        folder: for what is fetched.
    """

    def __init__(self, source: HubSource | FolderSource, listing: Listing, work: Path, folder: Path) -> None:
        self.access = _access(source, listing)
        self.notes: list[str] = []
        self.hash_of = cache(lambda file: hash_of(source, file))
        self._source, self._listing, self._work, self._folder = source, listing, work, folder
        self._received_bytes, self._seconds = 0, 0.0

    def download_bytes_per_second(self) -> float | None:
        """None: too little was fetched to tell."""
        enough = self._received_bytes >= _BYTES_THAT_TELL
        return self._received_bytes / self._seconds if enough and self._seconds else None

    def rows(self, file: HubFile) -> Path:
        """A file of rows on disk; of a Hub it is fetched."""
        if isinstance(self._source, FolderSource):
            return self._source.folder / file.path
        return fetch(self._source, self._listing.commit, file, self._folder / "rows" / file.path)

    def on_disk(self, file: HubFile) -> Path | None:
        """Where the whole file is, None when it must be fetched; of a compressed part, the tar that is unpacked."""
        if is_packed_name(file.path):
            return self._unpacked(file)
        if isinstance(self._source, FolderSource):
            return self._source.folder / file.path
        path = self._download(file)
        return path if path.is_file() and path.stat().st_size == file.size_bytes else None

    def _unpacked(self, file: HubFile) -> Path | None:
        folder = self._work / "unpacked"
        if not folder.is_dir():
            return None
        tar = unpacked_path(folder / file.path, file.sha256 or self.hash_of(file))
        return tar if tar.is_file() else None

    def bytes_here(self, file: HubFile) -> int:
        """How much of a file of a Hub was downloaded already."""
        if isinstance(self._source, FolderSource):
            return 0
        return bytes_here(self._download(file), self._listing.commit, file)

    def receipt(self, file: HubFile) -> PartReceipt | None:
        """What an earlier run knows of a part; where there was one, parts of a folder are hashed for it."""
        parts = self._work / "parts"
        if not parts.is_dir():
            return None
        return read_receipt(parts, file.sha256 or self.hash_of(file))

    def headers(self, file: HubFile) -> Headers | None:
        """The members of a part that is on disk."""
        if (path := self.on_disk(file)) is None:
            return None
        with path.open("rb") as stream:
            return self._noted(file, read_headers(stream))

    def first_headers(self, file: HubFile) -> Headers | None:
        """The first members of a part of a Hub, by a few requests, or of a compressed part."""
        if is_packed_name(file.path):
            return self._headers_of_packed(file)
        assert isinstance(self._source, HubSource), "parts of a folder are on disk"
        raw = RangeFile(self._source, self._listing.commit, file)
        ends = time.monotonic() + MAX_SECONDS

        def goes_on() -> bool:
            return raw.num_requests < MAX_REQUESTS and time.monotonic() < ends

        try:
            return self._noted(file, read_headers(io.BufferedReader(raw, _HEADER_BLOCK_BYTES), goes_on))
        except ClipshardsError as error:
            self.notes.append(f"{file.path} could not be looked into: {error}")
            return None

    def fetch_clips(self, file: HubFile, members: dict[str, TarMember]) -> dict[str, Extent]:
        """Some of these members of a part, on disk: as many as the limits allow, all over it."""
        if is_packed_name(file.path):
            path = self._start_of_packed(file)
            return {
                clip: Extent(str(path), member.offset_bytes, member.size_bytes)
                for clip, member in list(members.items())[:MAX_CLIPS]
            }
        assert isinstance(self._source, HubSource), "parts of a folder are on disk"
        raw = RangeFile(self._source, self._listing.commit, file)
        started, extents = time.monotonic(), dict[str, Extent]()
        for number, clip in enumerate([*members][:: -(-len(members) // MAX_CLIPS)]):
            member = members[clip]
            if raw.num_bytes + member.size_bytes > MAX_CLIP_BYTES or time.monotonic() > started + MAX_SECONDS:
                continue
            path = self._folder / f"{file.path.replace('/', '-')}-{number}"
            try:
                raw.seek(member.offset_bytes)
                path.write_bytes(raw.read(member.size_bytes))
            except ClipshardsError as error:
                self.notes.append(f"{member.name} could not be fetched: {error}")
                break
            extents[clip] = Extent(str(path))
        self._received_bytes += raw.num_bytes
        self._seconds += time.monotonic() - started
        return extents

    def _headers_of_packed(self, file: HubFile) -> Headers | None:
        try:
            path = self._start_of_packed(file)
        except (ClipshardsError, OSError, EOFError, zlib.error) as error:
            self.notes.append(f"{file.path} could not be looked into: {error}")
            return None
        with path.open("rb") as stream:
            headers = read_headers(stream)
        size_bytes = path.stat().st_size
        whole = tuple(m for m in headers.members if m.offset_bytes + m.size_bytes <= size_bytes)
        if size_bytes < MAX_CLIP_BYTES:
            return self._noted(file, headers)
        return replace(headers, members=whole, is_complete=False, damage="")  # it was cut here

    def _start_of_packed(self, file: HubFile) -> Path:
        """The first 64 MB of a compressed part, unpacked: nobody can pass over what is in front of a clip."""
        path = self._folder / f"{file.path.replace('/', '-')}-start"
        if not path.exists():
            started = time.monotonic()
            with ExitStack() as stack:
                raw = stack.enter_context(self._open(file))
                packed = stack.enter_context(gzip.open(raw))
                path.write_bytes(packed.read(MAX_CLIP_BYTES))
            if isinstance(self._source, HubSource):
                self._received_bytes += raw.tell()
                self._seconds += time.monotonic() - started
        return path

    def _open(self, file: HubFile) -> IO[bytes]:
        if isinstance(self._source, FolderSource):
            return (self._source.folder / file.path).open("rb")
        raw = RangeFile(self._source, self._listing.commit, file)
        return io.BufferedReader(raw, _PACKED_BLOCK_BYTES)

    def _noted(self, file: HubFile, headers: Headers) -> Headers:
        if headers.damage:
            self.notes.append(f"{file.path} cannot be read to its end: {headers.damage}")
        return headers

    def _download(self, file: HubFile) -> Path:
        return self._work / "downloads" / file.path


def _access(source: HubSource | FolderSource, listing: Listing) -> Access:
    if isinstance(source, FolderSource):
        return Access("folder", has_token=False)
    has_token = "authorization" in hub_headers(source)
    try:
        require_access(source, listing)
    except SourceError as error:
        return Access("refused", has_token, str(error))
    return Access("token-accepted" if has_token else "anonymous", has_token)
