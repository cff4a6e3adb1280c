"""Where the published state of an output folder lies."""

from __future__ import annotations

from pathlib import Path

from clipshards.errors import UsageError


def current_snapshot(out: Path) -> Path:
    """The published snapshot of an output folder (or the folder itself, when it is a snapshot).

    Raises:
        UsageError: nothing is published there.
    """
    for folder in (out / "current", out):
        if (folder / "dataset.json").is_file():
            return folder.resolve()
    raise UsageError(f"{out} holds no finished output: run `clipshards prepare SOURCE {out}` first")
