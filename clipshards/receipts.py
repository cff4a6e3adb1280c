"""What is known of a part once it was verified and indexed, kept under its hash: the tar itself may go.

    FOLDER/<sha256 of the part>.<INDEX_VERSION>.json

A part with the same bytes, under whatever name and at whatever commit, is not read again.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from clipshards.tars import TarIndex, TarMember, read_member

INDEX_VERSION = 1
"""Goes up with each change of what an index says of the same bytes."""


class PartReceipt(msgspec.Struct, frozen=True):
    """The index of a part and the texts that a run reads out of it."""

    sha256: str
    """Of the part."""
    index: TarIndex
    texts: dict[str, bytes]
    """The members that are read whole, by name: bench items."""


def is_text(member: TarMember) -> bool:
    """Whether a member is kept whole: a bench item."""
    return member.name.endswith(".json")


def make_receipt(path: Path, sha256: str, index: TarIndex) -> PartReceipt:
    """Read the texts of an indexed part."""
    return PartReceipt(sha256, index, {m.name: read_member(path, m) for m in index.members if is_text(m)})


def write_receipt(folder: Path, receipt: PartReceipt) -> None:
    """Keep a receipt; it appears complete or not at all."""
    path = _path(folder, receipt.sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two parts may have the same bytes, so each writes a file of its own.
    with tempfile.NamedTemporaryFile(dir=folder, prefix=receipt.sha256, suffix=".tmp", delete=False) as file:
        file.write(msgspec.json.encode(receipt))
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)


def read_receipt(folder: Path, sha256: str | None) -> PartReceipt | None:
    """The receipt of a part with these bytes, None when there is none that can be read."""
    if sha256 is None:
        return None
    try:
        return msgspec.json.decode(_path(folder, sha256).read_bytes(), type=PartReceipt)
    except (OSError, msgspec.DecodeError):
        return None


def _path(folder: Path, sha256: str) -> Path:
    return folder / f"{sha256}.{INDEX_VERSION}.json"
