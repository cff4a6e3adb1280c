"""Where the bytes of a clip lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a clip's bytes lie: a file of its own, or a member inside a tar."""

    path: str
    offset_bytes: int = 0
    size_bytes: int | None = None
    """None: to the end of the file."""

    @property
    def url(self) -> str:
        """Address for FFmpeg; `file:` keeps a name such as `concat:x.mp4` from choosing a protocol."""
        if self.offset_bytes == 0 and self.size_bytes is None:
            return f"file:{self.path}"
        end_bytes = 0 if self.size_bytes is None else self.offset_bytes + self.size_bytes
        return f"subfile,,start,{self.offset_bytes},end,{end_bytes},,:file:{self.path}"

    def available_bytes(self) -> int:
        """Bytes that are there: `size_bytes`, or less when the file ends before."""
        rest = max(0, Path(self.path).stat().st_size - self.offset_bytes)
        return rest if self.size_bytes is None else min(rest, self.size_bytes)
