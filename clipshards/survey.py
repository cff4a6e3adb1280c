"""What a part holds, from its headers alone: for a plan, which must not read the clips.

`tars.index_tar` is what a run believes; this reads a part in the stream's own order, as far as it may, and hashes
nothing.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

from clipshards.tars import TarMember

MAX_TEXT_BYTES = 1 << 20
"""Of a bench item that is read with its header."""


@dataclass(frozen=True)
class Headers:
    """The members of a part, the first ones or all."""

    members: tuple[TarMember, ...]
    """Without hashes."""
    end_bytes: int
    """Up to here the part is known."""
    is_complete: bool
    texts: dict[str, bytes] = field(default_factory=dict)
    """Of the members that end in `.json`, by name."""
    damage: str = ""
    """Why no more could be read."""

    def expected(self, part_bytes: int) -> tuple[float, float]:
        """How many clips and texts a part of that size holds.

        Texts that stand in front of all clips are taken for all that there are.
        """
        texts = [member for member in self.members if member.name in self.texts]
        clips = [member for member in self.members if member.name not in self.texts]
        if self.is_complete or not clips:
            return len(clips), len(texts)
        first = clips[0].offset_bytes
        if texts and texts[-1].offset_bytes < first:
            return len(clips) * (part_bytes - first) / (self.end_bytes - first), len(texts)
        share = part_bytes / self.end_bytes
        return len(clips) * share, len(texts) * share


def read_headers(stream: IO[bytes], goes_on: Callable[[], bool] = lambda: True) -> Headers:
    """Walk the headers of an uncompressed tar.

    Args:
        stream: seekable; what lies between the headers is passed over.
        goes_on: asked before each header; False ends the walk.
    """
    members: dict[str, TarMember] = {}
    texts: dict[str, bytes] = {}
    end_bytes, damage, is_complete = 0, "", False
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            while goes_on():
                if (info := tar.next()) is None:
                    is_complete = True
                    break
                end_bytes = tar.offset
                if not info.isreg():
                    continue
                name = "/".join(piece for piece in info.name.split("/") if piece not in ("", "."))
                members[name] = TarMember(name, info.offset_data, info.size, "")
                if name.endswith(".json") and info.size <= MAX_TEXT_BYTES:
                    stream.seek(info.offset_data)
                    texts[name] = stream.read(info.size)
                tar.members.clear()  # type: ignore[attr-defined]  # it keeps them all
    except tarfile.TarError as error:
        damage = str(error)
    return Headers(tuple(members.values()), end_bytes, is_complete, texts, damage)
