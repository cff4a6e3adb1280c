"""Parts and files of the source: listed, fetched, indexed. A network may be asked again, a verdict may not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff

from clipshards.errors import IncompleteError, StoppedError
from clipshards.hub import library
from clipshards.hub.fetch import fetch
from clipshards.hub.listing import HubFile, Listing, hash_file, list_source
from clipshards.hub.source import FolderSource, HubSource
from clipshards.receipts import PartReceipt, make_receipt, write_receipt
from clipshards.tars import extract, index_tar
from clipshards.unpack import is_packed_name, is_unpacked, unpack

Progress = Callable[[int], None]

DOWNLOADS = "clipshards-downloads"
"""Tag: a concurrency limit of this name on the server bounds the downloads of all runs together."""


async def _may_help(task: Any, run: Any, state: Any) -> bool:
    """A lost network may come back; a missing file, a wrong hash or a full disk stays, and a stop is a stop."""
    try:
        await state.result()
    except StoppedError:
        return False
    except IncompleteError:
        return True
    except Exception:  # noqa: BLE001  whatever it is, it is not a network that may come back
        return False
    return False


@dataclass(frozen=True, slots=True)
class Unpacking:
    """Where a part goes when it is compressed."""

    folder: Path
    limit_bytes: int | None
    """Most that it may take; None: see `unpack`."""


# The listing asks five times itself; what then still fails, a scheduled run asks the next time.
@task(name="list source", cache_policy=NO_CACHE)
def list_files(source: HubSource | FolderSource, commit: str | None) -> Listing:
    """All files of the source at a commit; None: the one that its revision names, which is pinned here."""
    return list_source(source, commit=commit)


@task(
    name="fetch file",
    task_run_name="fetch {file.path}",
    tags=[DOWNLOADS],
    cache_policy=NO_CACHE,
    retries=3,
    retry_delay_seconds=exponential_backoff(backoff_factor=5),
    retry_jitter_factor=0.5,
    retry_condition_fn=_may_help,
)
def fetch_file(
    source: HubSource | FolderSource,
    commit: str,
    file: HubFile,
    folder: Path,
    *,
    library_staging: Path | None,
    unpacking: Unpacking | None,
    progress: Progress,
    stop: threading.Event,
) -> tuple[Path, str]:
    """The verified file on disk and its sha256; a local folder's file stays where it is.

    With `library_staging`, huggingface_hub downloads it there first. A part that is compressed is unpacked; its
    hash stays that of the file in the source.
    """
    path, sha256 = _fetch(source, commit, file, folder, library_staging, progress, stop)
    if unpacking is None:
        return path, sha256
    target = unpacking.folder / file.path
    return unpack(path, sha256, target, limit_bytes=unpacking.limit_bytes, stop=stop), sha256


def _fetch(
    source: HubSource | FolderSource,
    commit: str,
    file: HubFile,
    folder: Path,
    library_staging: Path | None,
    progress: Progress,
    stop: threading.Event,
) -> tuple[Path, str]:
    if isinstance(source, FolderSource):
        path = source.folder / file.path
    else:
        target = folder / file.path
        if library_staging is None:
            path = fetch(source, commit, file, target, progress=progress, stop=stop)
        else:
            path = library.fetch(
                source, commit, file, target, staging=library_staging, progress=progress, stop=stop
            )
        if file.sha256:
            return path, file.sha256
        progress = _silent
    return path, hash_file(path, progress)


def _silent(num_bytes: int) -> None:
    """The bytes were counted when they were fetched."""


@task(name="index part", task_run_name="index {part}", cache_policy=NO_CACHE)
def index_part(
    part: str,
    fetched: tuple[Path, str],
    receipts: Path,
    *,
    extract_to: Path | None,
    progress: Progress,
    stop: threading.Event,
) -> PartReceipt:
    """The members of a part with their hashes; writes the plain tree when that was asked for."""
    path, sha256 = fetched
    index = index_tar(path, part=part, progress=progress, stop=stop)
    if is_unpacked(path) and not is_packed_name(part):
        index = replace(index, warnings=(*index.warnings, ("tar-compressed", part)))
    receipt = make_receipt(path, sha256, index)
    write_receipt(receipts, receipt)
    if extract_to is not None:
        extract(receipt.index, path, extract_to)
    return receipt
