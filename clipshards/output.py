"""Where the published state of an output folder lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def read_dataset(snapshot: Path) -> dict[str, Any]:
    """`dataset.json` of a snapshot: what it is, and the sha256 of every other file.

    Raises:
        UsageError: it is damaged.
    """
    path = snapshot / "dataset.json"
    try:
        dataset = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}): remove {snapshot} and run `prepare` again") from None
    if not isinstance(dataset, dict):
        raise UsageError(f"{path} holds no object: remove {snapshot} and run `prepare` again")
    return dataset
