"""What `verify` does beyond looking at the snapshot: clips decoded again, damage mended. No Prefect."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from clipshards.decode.media import Extent
from clipshards.hub.fetch import fetch
from clipshards.hub.listing import HubFile
from clipshards.hub.ranges import fetch_member
from clipshards.hub.source import FolderSource, parse_source
from clipshards.output import current_snapshot, read_dataset
from clipshards.tars import TarMember
from clipshards.unpack import is_packed_name, unpack, unpacked_path
from clipshards.verify import Problem, check_pixels, read_frames, verify_snapshot
from manifests.snapshot import discard


def verify_output(
    out: Path, *, decode: int = 0, endpoint: str | None = None
) -> tuple[dict[str, int], list[Problem]]:
    """Check the current snapshot, and decode some random views again; how much was checked, and what is wrong.

    Raises:
        UsageError: nothing is published in `out`.
        SourceError, IncompleteError: the clip of a view cannot be had.
    """
    snapshot = current_snapshot(out)
    checked, problems = verify_snapshot(snapshot)
    if not decode or problems:
        return checked, problems
    dataset = read_dataset(snapshot)
    views = pq.read_table(snapshot / "manifests/views.parquet")
    rows = views.take(random.sample(range(views.num_rows), min(decode, views.num_rows))).to_pylist()
    with tempfile.TemporaryDirectory() as temporary:
        clips = _Clips(out, dataset, endpoint, Path(temporary))
        for row in rows:
            frames = read_frames(snapshot / row["shard"], row["view"], row["offset_bytes"], row["length_bytes"])
            if what := check_pixels(frames, clips.of(row), row, dataset["quality"], dataset["decoder"]):
                problems.append(Problem(row["shard"], what))
    return {**checked, "views decoded again": len(rows)}, problems


class _Clips:
    """Finds the clips of views: in the part where that is on this disk, else each fetched alone.

    Out of a compressed part no clip can be fetched alone: the part is fetched, and unpacked once.
    """

    def __init__(self, out: Path, dataset: dict[str, Any], endpoint: str | None, temporary: Path) -> None:
        self._source = parse_source(dataset["source"], endpoint=endpoint)
        self._commit, self._work, self._temporary = dataset["commit"], out / "work", temporary
        parts = pq.read_table(current_snapshot(out) / "manifests/parts.parquet").to_pylist()
        self._parts = {part["part"]: part for part in parts}

    def of(self, row: dict[str, Any]) -> Extent:
        """The bytes of the clip of a view.

        Raises:
            SourceError, IncompleteError: they cannot be had.
        """
        member = TarMember(row["clip"], row["member_offset_bytes"], row["member_size_bytes"], row["member_sha256"])
        part = self._parts[row["part"]]
        if path := self._on_disk(part):
            tar = unpack(path, part["sha256"], self._temporary / part["part"])
            return Extent(str(tar), member.offset_bytes, member.size_bytes)
        if isinstance(self._source, FolderSource):
            return Extent(str(self._source.folder / part["part"]))  # it is not there: opening it says so
        if not _is_packed(part):
            clip = self._temporary / "clip"
            return Extent(str(fetch_member(self._source, self._commit, part["part"], member, clip)))
        file = HubFile(part["part"], part["size_bytes"], part["sha256"], None)
        packed = fetch(self._source, self._commit, file, self._temporary / part["part"])
        tar = unpack(packed, part["sha256"], packed)
        return Extent(str(tar), member.offset_bytes, member.size_bytes)

    def _on_disk(self, part: dict[str, Any]) -> Path | None:
        """The part, or what was unpacked of it, where this disk has it."""
        tar = unpacked_path(self._work / "unpacked" / part["part"], part["sha256"])
        if tar.is_file():
            return tar
        folder = self._source.folder if isinstance(self._source, FolderSource) else self._work / "downloads"
        path = folder / part["part"]
        return path if path.is_file() and path.stat().st_size == part["size_bytes"] else None


def _is_packed(part: dict[str, Any]) -> bool:
    return is_packed_name(part["part"]) or "tar-compressed" in part["warnings"]


def mend_options(out: Path, problems: Sequence[Problem]) -> dict[str, Any]:
    """Remove what is damaged; the options of the run that makes it again, at the commit of the snapshot."""
    snapshot = current_snapshot(out)
    dataset = read_dataset(snapshot)
    discard(out, snapshot, [problem.path for problem in problems if problem.path in dataset["files"]])
    source = dataset["source"]
    commit = None if isinstance(parse_source(source), FolderSource) else dataset["commit"]
    options = {**dataset["options"], **dataset["selection"], "quality": dataset["quality"]}
    return {"source": source, "commit": commit, **options}
