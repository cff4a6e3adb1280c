"""What `verify` does beyond looking at the snapshot: clips decoded again, damage mended. No Prefect."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from clipshards.decode.media import Extent
from clipshards.hub.ranges import fetch_member
from clipshards.hub.source import FolderSource, parse_source
from clipshards.output import current_snapshot
from clipshards.tars import TarMember
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
    dataset = json.loads((snapshot / "dataset.json").read_text(encoding="utf-8"))
    views = pq.read_table(snapshot / "manifests/views.parquet")
    rows = views.take(random.sample(range(views.num_rows), min(decode, views.num_rows))).to_pylist()
    for row in rows:
        frames = read_frames(snapshot / row["shard"], row["view"], row["offset_bytes"], row["length_bytes"])
        with _clip(out, dataset, row, endpoint) as extent:
            if what := check_pixels(frames, extent, row, dataset["quality"], dataset["decoder"]):
                problems.append(Problem(row["shard"], what))
    return {**checked, "views decoded again": len(rows)}, problems


@contextmanager
def _clip(out: Path, dataset: dict[str, Any], row: dict[str, Any], endpoint: str | None) -> Iterator[Extent]:
    """The clip of a view: in the part where that is on this disk, else fetched alone."""
    member = TarMember(row["clip"], row["member_offset_bytes"], row["member_size_bytes"], row["member_sha256"])
    source = parse_source(dataset["source"], endpoint=endpoint)
    folder = source.folder if isinstance(source, FolderSource) else out / "work/downloads"
    part = folder / row["part"]
    if part.is_file() and part.stat().st_size == dataset["inputs"][row["part"]]["size_bytes"]:
        yield Extent(str(part), member.offset_bytes, member.size_bytes)
        return
    if isinstance(source, FolderSource):
        yield Extent(str(part))  # it is not there: opening it says so
        return
    with tempfile.TemporaryDirectory() as temporary:
        clip = fetch_member(source, dataset["commit"], row["part"], member, Path(temporary) / "clip")
        yield Extent(str(clip))


def mend_options(out: Path, problems: Sequence[Problem]) -> dict[str, Any]:
    """Remove what is damaged; the options of the run that makes it again, at the commit of the snapshot."""
    snapshot = current_snapshot(out)
    dataset = json.loads((snapshot / "dataset.json").read_text(encoding="utf-8"))
    discard(out, snapshot, [problem.path for problem in problems if problem.path in dataset["files"]])
    source = dataset["source"]
    commit = None if isinstance(parse_source(source), FolderSource) else dataset["commit"]
    options = {**dataset["options"], **dataset["selection"], "quality": dataset["quality"]}
    return {"source": source, "commit": commit, **options}
