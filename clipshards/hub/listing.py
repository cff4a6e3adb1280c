"""Which files the source has, with size and hash, at one commit that is pinned at the start.

The listing, not a folder on disk, is the truth of a run: everything is fetched from this commit and checked
against these hashes.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2
from huggingface_hub import hf_hub_url

from clipshards.errors import SourceError
from clipshards.hub.replies import TryLater, request, require_ok
from clipshards.hub.source import FolderSource, HubSource, parse_source

__all__ = ["FolderSource", "HubFile", "HubSource", "Listing", "hash_file", "list_source", "parse_source"]

BLOCK_BYTES = 1 << 20

_log = logging.getLogger(__name__)

_REDACTED = "*"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of the source. A hash that the Hub shows as stars is unknown: None."""

    path: str
    """Relative to the root of the data set, with '/'."""
    size_bytes: int
    sha256: str | None
    """Of the content, for files in LFS."""
    git_sha1: str | None
    """Git blob hash of the content, for files that are not in LFS."""

    def __post_init__(self) -> None:
        if self.sha256 is not None and self.sha256.startswith(_REDACTED):
            object.__setattr__(self, "sha256", None)


@dataclass(frozen=True)
class Listing:
    """All files of the source at one commit, sorted by path."""

    repo: str
    """OWNER/NAME, or the name of the local folder."""
    commit: str
    """40 hex digits; "" for a local folder, whose files are not hashed yet."""
    files: tuple[HubFile, ...]

    def find(self, patterns: Sequence[str]) -> list[HubFile]:
        """Files whose path matches at least one pattern (`*` also matches '/'), sorted by path."""
        return [file for file in self.files if any(fnmatchcase(file.path, pattern) for pattern in patterns)]


def list_source(
    source: HubSource | FolderSource,
    *,
    commit: str | None = None,
    tries: int = 5,
    backoff_seconds: float = 0.5,
    timeout_seconds: float = 30.0,
    asks_for_file: bool = True,
) -> Listing:
    """List the source: at the commit that its revision names now, or the folder as it is now.

    Hidden files and folders of a local folder are left out, nothing is hashed. On a Hub one file is asked
    for, so that a gated data set is noticed before hours of work.

    Args:
        commit: of a Hub; None: what the revision of the source names now.
        tries: requests that may fail in a row, each time the Hub is busy or the network breaks.
        backoff_seconds: the pause after the first failure; it doubles up to a minute.
        timeout_seconds: how long a connection may be silent.
        asks_for_file: False: `require_access` does that.

    Raises:
        SourceError: the source does not exist, does not let us in, does not answer, or is empty.
    """
    if isinstance(source, FolderSource):
        listing = _list_folder(source.folder)
    else:
        listing = _HubLister(source, tries, backoff_seconds, timeout_seconds).listing(commit)
    if not listing.files:
        raise SourceError(f"{source.name} holds no files: check the name and the revision")
    if asks_for_file and isinstance(source, HubSource):
        require_access(
            source, listing, tries=tries, backoff_seconds=backoff_seconds, timeout_seconds=timeout_seconds
        )
    return listing


def require_access(
    source: HubSource,
    listing: Listing,
    *,
    tries: int = 5,
    backoff_seconds: float = 0.5,
    timeout_seconds: float = 30.0,
) -> None:
    """Ask for one file of a listing: a token without access to a gated data set sees its listing all the same.

    Arguments and errors as `list_source`.
    """
    file = next((file for file in listing.files if file.git_sha1 is None), listing.files[0])
    _HubLister(source, tries, backoff_seconds, timeout_seconds).require_access(file, listing.commit)


def pin_commit(
    source: HubSource, *, tries: int = 5, backoff_seconds: float = 0.5, timeout_seconds: float = 30.0
) -> str:
    """The commit that a Hub source's revision names now: one request. Arguments and errors as `list_source`."""
    return _HubLister(source, tries, backoff_seconds, timeout_seconds).pin_commit()


def hash_file(path: Path, progress: Callable[[int], None] = lambda num_bytes: None) -> str:
    """The sha256 of a file in hex; `progress` is called with the size in bytes of each block read.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        for block in read_blocks(stream):
            digest.update(block)
            progress(len(block))
    return digest.hexdigest()


def read_blocks(stream: io.FileIO) -> Iterator[memoryview]:
    """The rest of `stream` in blocks of 1 MB; a block is overwritten by the next one."""
    buffer = memoryview(bytearray(BLOCK_BYTES))
    while num_bytes := stream.readinto(buffer):
        yield buffer[:num_bytes]


@dataclass(frozen=True)
class _HubLister:
    """Our own two requests in place of `repo_info` and `list_repo_tree`: these wait forever on a connection
    that stalls, do not retry (the first) or send the token wherever a `Link` header points (the second)."""

    source: HubSource
    tries: int
    backoff_seconds: float
    timeout_seconds: float

    def listing(self, commit: str | None) -> Listing:
        """All files at a commit; None: the one that the revision names now."""
        commit = commit or self.pin_commit()
        files = tuple(sorted(self._list_tree(commit), key=lambda file: file.path))
        return Listing(self.source.repo, commit, files)

    def pin_commit(self) -> str:
        """The commit that the revision names."""
        revision = quote(self.source.revision, safe="")
        info, _ = self._get_json(f"{self._api_url}/revision/{revision}")
        try:
            return str(info["sha"])
        except (KeyError, TypeError):
            raise self._not_a_hub() from None

    def _list_tree(self, commit: str) -> Iterator[HubFile]:
        url: str | None = f"{self._api_url}/tree/{commit}?recursive=True&expand=False"
        while url is not None:
            rows, url = self._get_json(url)
            try:
                yield from [_hub_file(row) for row in rows if row["type"] == "file"]
            except (KeyError, TypeError):
                raise self._not_a_hub() from None

    def require_access(self, file: HubFile, commit: str) -> None:
        """Ask for a file: only that shows a closed door."""
        url = hf_hub_url(
            self.source.repo,
            file.path,
            repo_type="dataset",
            revision=commit,
            endpoint=self.source.base_url,
        )

        def ask() -> None:
            with self._request("HEAD", url, follow_redirects=False) as response:
                require_ok(response, self.source)

        self._repeat(ask)

    @property
    def _api_url(self) -> str:
        return f"{self.source.base_url}/api/datasets/{self.source.repo}"

    def _get_json(self, url: str) -> tuple[Any, str | None]:
        """The JSON that the Hub answers, and the URL of the next page."""

        def get() -> tuple[Any, str | None]:
            with self._request("GET", url) as response:
                require_ok(response, self.source)
                response.read()
                try:
                    return response.json(), self._next_url(response)
                except ValueError:
                    raise TryLater("the answer is not JSON, perhaps the page of a proxy") from None

        return self._repeat(get)

    def _next_url(self, response: httpx2.Response) -> str | None:
        link = response.links.get("next", {}).get("url")
        if link is None:
            return None
        url = response.url.join(link)
        # A mirror may hand on the links of the Hub it mirrors; the token stays with our endpoint.
        return str(httpx2.URL(self.source.base_url).copy_with(raw_path=url.raw_path))

    def _request(
        self, method: str, url: str, *, follow_redirects: bool = True
    ) -> AbstractContextManager[httpx2.Response]:
        return request(
            self.source, method, url, timeout_seconds=self.timeout_seconds, follow_redirects=follow_redirects
        )

    def _repeat(self, call: Callable[[], _T]) -> _T:
        failures = 0
        while True:
            try:
                return call()
            except TryLater as problem:
                failures += 1
                if failures >= self.tries:
                    raise SourceError(
                        f"{self.source.base_url} does not serve data set {self.source.repo}, "
                        f"{failures} tries, the last: {problem}; "
                        "check the network and the endpoint, then run again"
                    ) from None
                seconds = problem.pause_seconds(failures, self.backoff_seconds)
                told = ", as told" if problem.wait_seconds is not None else ""
                _log.warning("listing %s: %s; asking again in %.1f s%s", self.source.repo, problem, seconds, told)
                time.sleep(seconds)

    def _not_a_hub(self) -> SourceError:
        return SourceError(
            f"{self.source.base_url} answers for data set {self.source.repo}, but not as a Hub does: "
            "check the endpoint"
        )


def _hub_file(row: dict[str, Any]) -> HubFile:
    path = str(row["path"])
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts:
        raise SourceError(f"the listing names a file outside of the data set ({path!r}): do not use this source")
    if lfs := row.get("lfs"):
        # `oid` is the hash of the pointer text here, not of the content.
        return HubFile(path, int(row["size"]), str(lfs["oid"]), None)
    return HubFile(path, int(row["size"]), None, str(row["oid"]))


def _list_folder(folder: Path) -> Listing:
    files = sorted(_walk(folder), key=lambda file: file.path)
    return Listing(folder.resolve().name, "", tuple(files))


def _walk(folder: Path) -> Iterator[HubFile]:
    def fail(error: OSError) -> None:
        raise SourceError(f"folder {error.filename} cannot be read ({error.strerror}): check its permissions")

    for parent, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".") and not _leads_back(Path(parent, name))]
        for name in names:
            if not name.startswith("."):
                yield from _folder_file(folder, Path(parent, name))


def _leads_back(folder: Path) -> bool:
    return folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve())


def _folder_file(folder: Path, path: Path) -> list[HubFile]:
    """The file, also behind a link (as in the cache of huggingface_hub); no pipes, no devices."""
    try:
        status = path.stat()
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror}): restore or remove it") from None
    if not stat.S_ISREG(status.st_mode):
        return []
    return [HubFile(path.relative_to(folder).as_posix(), status.st_size, None, None)]
