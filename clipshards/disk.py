"""How much disk a run takes while it works, measured and bounded."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Hashable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from clipshards.errors import UsageError

_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SAMPLE_SECONDS = 0.1


def parse_bytes(text: str, name: str) -> int:
    """An amount such as `500GB` or `1.5 TB`, decimal units.

    Args:
        name: of the option, for the error.

    Raises:
        UsageError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kMGT]B|)", text.strip())
    if not match or float(match[1]) <= 0:
        raise UsageError(f"{name} ({text!r}) must be an amount > 0 such as 500GB (kB, MB, GB, TB or bytes)")
    return int(float(match[1]) * _UNITS[match[2]])


class DiskBudget:
    """What may be on the disk at once; work is admitted when it fits.

    Args:
        total_bytes: None: everything fits.
    """

    def __init__(self, total_bytes: int | None) -> None:
        self.total_bytes = total_bytes
        self._taken: dict[Hashable, int] = {}

    def take(self, key: Hashable, num_bytes: int) -> bool:
        """Whether that much fits beside what is taken; it is taken then."""
        if self.total_bytes is not None and sum(self._taken.values()) + num_bytes > self.total_bytes:
            return False
        self._taken[key] = num_bytes
        return True

    def give_back(self, key: Hashable) -> None:
        """It is no longer on the disk."""
        self._taken.pop(key, None)


class DiskMeter:
    """Samples what downloads and unfinished shards take, while it is open; `peak_bytes` is the most."""

    def __init__(self, work: Path) -> None:
        self.peak_bytes = 0
        self._work = work
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> DiskMeter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.wait(_SAMPLE_SECONDS):
            self.peak_bytes = max(self.peak_bytes, working_bytes(self._work))


def working_bytes(work: Path) -> int:
    """Bytes of downloads, unpacked parts, frames that wait for their shard, and shards that are not finished."""
    fetched = [*_files(work / "downloads"), *_files(work / "unpacked")]
    shards = [path for path in _files(work / "shards") if path.suffix == ".tmp" or path.parent.suffix == ".frames"]
    return sum(map(_size, fetched + shards))


def _files(folder: Path) -> list[Path]:
    """All files below a folder, of which some, also folders, may vanish meanwhile."""
    return [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]


class KeptWork(NamedTuple):
    """What a run that ended early leaves for the next one."""

    parts: int
    part_bytes: int
    """Also of parts that are fetched in part."""
    shards: int
    shard_bytes: int

    def __str__(self) -> str:
        fetched = f"{self.parts:,} files fetched ({format_bytes(self.part_bytes)} with those that were begun)"
        finished = f"{self.shards:,} shards finished ({format_bytes(self.shard_bytes)})"
        return ", ".join([*[fetched] * bool(self.part_bytes), finished])


def kept_work(work: Path) -> KeptWork:
    """Look at OUT/work."""
    files = [path for path in work.glob("downloads/**/*") if path.is_file()]
    parts = [path for path in files if path.with_name(f"{path.name}.verified").is_file()]
    begun = [path for path in files if path.suffix == ".part"]
    shards = [path for path in work.glob("shards/*/*.tar") if path.with_suffix(".json").is_file()]
    return KeptWork(len(parts), sum(map(_size, [*parts, *begun])), len(shards), sum(map(_size, shards)))


def format_bytes(num_bytes: float) -> str:
    """Bytes as a person reads them: decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(num_bytes) < 1000:
            return f"{num_bytes:,.0f} {unit}" if unit == "B" else f"{num_bytes:,.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} TB"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # finished meanwhile
        return 0
