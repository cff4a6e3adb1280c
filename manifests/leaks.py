"""Clips that stand in more than one split, found by their bytes: what is trained on must not be tested on. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa

WORD = "clip-in-train-and-test"


@dataclass(frozen=True)
class Leak:
    """The same bytes in several splits."""

    sha256: str
    clips: tuple[tuple[str, str], ...]
    """(split, clip), sorted."""


def find_leaks(clips: pa.Table) -> list[Leak]:
    """Clips of `schema.TABLES["clips"]` that rows of two splits use, sorted by hash."""
    places: dict[str, set[tuple[str, str]]] = defaultdict(set)
    columns = (clips.column(name).to_pylist() for name in ("sha256", "split", "clip", "status"))
    for sha256, split, clip, status in zip(*columns, strict=True):
        if status != "unused":
            places[sha256].add((split, clip))
    return [
        Leak(sha256, tuple(sorted(found)))
        for sha256, found in sorted(places.items())
        if len({split for split, _ in found}) > 1
    ]


def mark_leaks(clips: pa.Table, leaks: list[Leak]) -> pa.Table:
    """The table with the warning at each clip that leaks."""
    leaking = {place for leak in leaks for place in leak.clips}
    if not leaking:
        return clips
    columns = (clips.column(name).to_pylist() for name in ("split", "clip", "status", "warnings"))
    warnings = [
        [*words, WORD] if (split, clip) in leaking and status != "unused" else words
        for split, clip, status, words in zip(*columns, strict=True)
    ]
    at = clips.schema.get_field_index("warnings")
    return clips.set_column(at, clips.schema.field(at), pa.array(warnings, clips.schema.field(at).type))
