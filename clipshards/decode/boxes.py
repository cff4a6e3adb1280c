"""The boxes of MP4 files, as far as FFmpeg does not tell: [size 4 bytes][kind 4 bytes][payload], nested.

ftyp  moov  [ moof( traf( tfhd trun trun … ) … )  mdat ] …         a fragmented file
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_TOP_KINDS = frozenset(
    {b"ftyp", b"styp", b"moof", b"mdat", b"free", b"skip", b"wide", b"sidx", b"emsg", b"uuid", b"prft"}
)


class _Box(NamedTuple):
    kind: bytes
    start: int
    """Offset of the payload in the file; [start, end)."""
    end: int


def _boxes(file: BinaryIO, start: int, end: int) -> Iterator[_Box]:
    """The boxes of [start, end), up to the first that makes no sense."""
    while start + 8 <= end:
        file.seek(start)
        head = file.read(16)
        size, kind, payload = int.from_bytes(head[:4], "big"), head[4:8], start + 8
        if size == 1:
            size, payload = int.from_bytes(head[8:16], "big"), start + 16
        if size == 0:
            size = end - start
        if size < payload - start:
            return
        yield _Box(kind, payload, min(start + size, end))
        start += size


def lacks_moov(path: str, start: int, end: int) -> bool:
    """Whether the bytes [start, end) of a file are a chain of MP4 boxes without the index box `moov`."""
    num_boxes = 0
    with Path(path).open("rb") as file:
        for box in _boxes(file, start, end):
            if box.kind not in _TOP_KINDS:
                return num_boxes > 0 and box.kind != b"moov"
            num_boxes += 1
    return num_boxes > 0


def has_split_runs(path: str, start: int, end: int) -> bool:
    """Whether a fragment lists the samples of a track in several `trun` boxes.

    The FFmpeg inside decord 0.6 gives such samples wrong times, so decord sorts the frames wrongly.
    """
    with Path(path).open("rb") as file:
        for moof in _boxes(file, start, end):
            if moof.kind != b"moof":
                continue
            for traf in _boxes(file, moof.start, moof.end):
                truns = (box for box in _boxes(file, traf.start, traf.end) if box.kind == b"trun")
                if traf.kind == b"traf" and sum(1 for _ in truns) > 1:
                    return True
    return False
