"""Frees what no snapshot that is kept needs: older snapshots, and shards and spools of runs that are over."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from clipshards.errors import UsageError
from clipshards.output import current_snapshot


@dataclass(frozen=True)
class Freed:
    """What was removed."""

    snapshots: tuple[str, ...]
    bytes: int
    """Of files that nothing else holds: a shard that a kept snapshot links to frees nothing."""


def collect_garbage(out: Path, keep: int) -> Freed:
    """Remove all but the latest `keep` snapshots, never the current one; call it holding the output.

    A reader that has a file of a removed snapshot open reads it to its end.

    Raises:
        UsageError: nothing is published in `out`, or `keep` is < 1.
    """
    if keep < 1:
        raise UsageError(f"--keep ({keep}) must be ≥ 1: the current snapshot always stays")
    current = current_snapshot(out)
    latest_first = sorted((out / "snapshots").iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    others = [path for path in latest_first if path.resolve() != current]
    doomed = others[keep - 1 :]
    work = out / "work"
    before = _bytes(out)
    for folder in doomed:
        # Renamed first: a folder that is half removed must not look like a snapshot.
        trash = work / f"trash-{folder.name}"
        folder.rename(trash)
    sweep(work)
    snapshots = list((out / "snapshots").iterdir())
    kept = {path.relative_to(folder) for folder in snapshots for path in folder.rglob("*.tar")}
    for shard in work.glob("shards/*/*"):
        if shard.with_suffix(".tar").relative_to(work / "shards") not in kept:
            shard.unlink()
    return Freed(tuple(path.name for path in doomed), before - _bytes(out))


def sweep(work: Path) -> None:
    """Remove what runs that died left half done; call it holding the output."""
    for folder in [*work.glob("trash-*"), work / "staging", work / "library", *work.glob("shards/*/*.frames")]:
        shutil.rmtree(folder, ignore_errors=True)
    for path in [*work.glob("shards/*/*.tmp"), *work.glob("parts/*.tmp"), *work.glob("unpacked/**/*.tmp")]:
        path.unlink(missing_ok=True)


def _bytes(folder: Path) -> int:
    """Bytes on the disk; hard links to one file count once."""
    stats = (path.lstat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum({(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}.values())
