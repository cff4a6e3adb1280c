"""The other transport: huggingface_hub's own download, over Xet where the Hub offers it.

It checks the size only, starts a failed file at byte 0 and waits as long as it likes. So it works in a private
folder, in a thread that can be left behind, and what it returns goes through the gate of `fetch`.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from huggingface_hub import hf_hub_download
from huggingface_hub.errors import FileMetadataError, HfHubHTTPError, LocalEntryNotFoundError
from huggingface_hub.utils import silent_tqdm  # type: ignore[attr-defined]  # public, but not marked as exported

from clipshards.errors import SourceError
from clipshards.hub.fetch import Download, Part
from clipshards.hub.listing import HubFile
from clipshards.hub.replies import TryLater, connection_errors, hub_headers
from clipshards.hub.source import HubSource

_STOP_POLL_SECONDS = 0.2


def fetch(
    source: HubSource,
    commit: str,
    file: HubFile,
    target: Path,
    *,
    staging: Path,
    progress: Callable[[int], None] = lambda num_bytes: None,
    stop: threading.Event | None = None,
    reserve_bytes: int = 0,
    tries: int = 6,
    backoff_seconds: float = 0.5,
    timeout_seconds: float = 15.0,
) -> Path:
    """Fetch `file` at `commit` to `target` with huggingface_hub; arguments and errors as `fetch.fetch`.

    Args:
        staging: a folder of this run's own, on the disk of `target`; a run that is killed leaves files there.
        timeout_seconds: for the library's question about the file; how long its download may be silent says
            HF_HUB_DOWNLOAD_TIMEOUT.

    Raises:
        SourceError: also when the library cannot fetch such a file at all.
    """
    download = _LibraryDownload(
        source,
        commit,
        file,
        progress,
        stop or threading.Event(),
        tries,
        backoff_seconds,
        timeout_seconds,
        staging,
    )
    return download.to(target, reserve_bytes)


@dataclass(frozen=True)
class _LibraryDownload(Download):
    staging: Path

    def receive(self, part: Part) -> None:
        """Let the library download the whole file, then take it over."""
        part.clear()
        self.staging.mkdir(parents=True, exist_ok=True)
        # A thread that was left behind may still write: what it leaves is removed with the staging folder.
        with tempfile.TemporaryDirectory(dir=self.staging, ignore_cleanup_errors=True) as folder:
            count = _Count(self.progress)
            try:
                path = self._ask(Path(folder), count, part)
            finally:
                count.take_back()
            size_bytes = path.stat().st_size
            if size_bytes != self.file.size_bytes:
                with path.open("rb") as stream:
                    self.refuse_pointer(stream.read(100), size_bytes)
                raise self.wrong_size(f"huggingface_hub got {size_bytes} bytes")
            part.adopt(path, self.check_stop)

    def _ask(self, folder: Path, count: _Count, part: Part) -> Path:
        """The file as the library got it; its errors in our words, without texts that may hold a signed URL."""
        try:
            with part.disk(), connection_errors(self.source):
                return self._download_in_thread(folder, count)
        except HfHubHTTPError as error:
            self.require_file(error.response)
            raise TryLater(f"huggingface_hub gave up at status {error.response.status_code}") from None
        except FileMetadataError:
            raise TryLater("the answer is not that of a Hub, perhaps the page of a proxy") from None
        except ValueError as error:
            raise SourceError(
                f"huggingface_hub cannot fetch {self.file.path} ({_first_line(error)}): use --transport http"
            ) from None
        except (OSError, RuntimeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk
            said = _first_line(error) if type(error) is OSError else type(error).__name__
            raise TryLater(f"huggingface_hub gave up: {said}") from None

    def _download_in_thread(self, folder: Path, count: _Count) -> Path:
        """Nothing stops the library in the middle of a wait, so at a stop its thread is left behind."""
        headers = hub_headers(self.source)
        done: Future[Path] = Future()

        def download() -> None:
            try:
                done.set_result(self._download(folder, headers, count))
            except BaseException as error:  # noqa: BLE001  it is raised where the result is asked for
                done.set_exception(error)

        threading.Thread(target=download, daemon=True).start()
        while not wait([done], timeout=_STOP_POLL_SECONDS).done:
            self.check_stop()
        return done.result()

    def _download(self, folder: Path, headers: dict[str, str], count: _Count) -> Path:
        try:
            path = hf_hub_download(
                self.source.repo,
                self.file.path,
                repo_type="dataset",
                revision=self.commit,
                endpoint=self.source.base_url,
                local_dir=folder,
                cache_dir=folder / "cache",  # of its own: the user's cache is not checked by anybody
                etag_timeout=self.timeout_seconds,
                token=False,  # it is in the headers
                headers=headers,
                tqdm_class=cast(Any, _bar_for(count, self.check_stop)),
            )
        except LocalEntryNotFoundError as error:
            # "Not in the cache either" is what it says last; why it was not to be had is the cause.
            raise (error.__cause__ or error) from None
        return Path(path)


class _Count:
    """Bytes that the library reported; they are counted again when they are hashed, so they are taken back."""

    def __init__(self, progress: Callable[[int], None]) -> None:
        self._progress = progress
        self._num_bytes = 0

    def add(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        self._progress(num_bytes)

    def take_back(self) -> None:
        self._progress(-self._num_bytes)


def _bar_for(count: _Count, check_stop: Callable[[], None]) -> type[silent_tqdm]:
    """What the library takes for a progress bar."""

    class Bar(silent_tqdm):
        def update(self, n: float | None = 1) -> None:
            check_stop()
            count.add(int(n or 0))

        def update_transfer(self, n: float) -> None:
            """Bytes on the wire; because it is here, they are not shown on a second bar."""

        def set_postfix_str(self, text: str = "", refresh: bool = True) -> None: ...

        set_transfer_postfix_str = set_postfix_str

    return Bar


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
