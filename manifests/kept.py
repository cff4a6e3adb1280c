"""What the last snapshot holds already: frames of the same bytes, by the same rules, are copied, not decoded.

A view's key names its clip, window and profile; the hash of the clip's bytes and `made_with` settle the rest.
Clips that could not be decoded are remembered too: their bytes would fail in the same way again.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from clipshards.decode.probe import ClipInfo
from clipshards.errors import UsageError
from clipshards.output import current_snapshot, read_dataset
from clipshards.plan import View
from clipshards.rendering import ClipJob, ClipOutcome, RenderedView
from clipshards.schema import SCHEMA_VERSION
from clipshards.shards import Render

_MAY_PASS = frozenset({"time-limit"})
"""Reasons that another try, on another day, may not give."""


@dataclass(frozen=True, slots=True)
class _Sample:
    view: RenderedView
    shard: str
    offset_bytes: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class _KeptClip:
    sha256: str
    info: ClipInfo | None
    decoder: str
    samples: dict[str, _Sample]
    """By the key of the view."""
    rejected: dict[str, tuple[str, str]]
    """Key of a view → reason and detail; "" stands for all views of the clip."""

    def why(self, key: str) -> tuple[str, str] | None:
        return self.rejected.get(key) or self.rejected.get("")


class KeptFrames:
    """The frames of one snapshot; picklable and read-only.

    Args:
        folder: the snapshot, None for one that holds nothing.
        clips: what is known of each clip of it, by path.
    """

    def __init__(self, folder: Path | None = None, clips: dict[str, _KeptClip] | None = None) -> None:
        self._folder = folder
        self._clips = clips or {}

    def knows(self, clip: str, sha256: str, views: Iterable[View]) -> bool:
        """Whether nothing has to be decoded for these views of a clip."""
        return all(not self._is_missing(self._clips.get(clip), sha256, view.key) for view in views)

    def restore(self, job: ClipJob) -> tuple[ClipOutcome | None, ClipJob | None]:
        """Copy the frames that are there into the job's folder.

        Returns:
            What came of the views that are known, None when it is none of them; and the job of decoding the
            others, None when there are none.
        """
        clip = self._clips.get(job.clip)
        missing = tuple(view for view in job.views if self._is_missing(clip, job.sha256, view.key))
        if clip is None or len(missing) == len(job.views):
            return None, job
        views, rejected = [], []
        for view in job.views:
            if view in missing:
                continue
            if why := clip.why(view.key):
                rejected.append((view.key, *why))
                continue
            sample = clip.samples[view.key]
            (job.folder / f"{view.key}.mp").write_bytes(self._frames(sample))
            views.append(sample.view)
        _, reason, detail = rejected[0] if rejected and not views else ("", "", "")
        outcome = ClipOutcome(job.clip, clip.info, reason, detail, tuple(views), tuple(rejected), clip.decoder)
        return outcome, replace(job, views=missing) if missing else None

    @staticmethod
    def _is_missing(clip: _KeptClip | None, sha256: str, key: str) -> bool:
        return clip is None or clip.sha256 != sha256 or (key not in clip.samples and clip.why(key) is None)

    def _frames(self, sample: _Sample) -> bytes:
        assert self._folder is not None, "a clip is known, so there is a snapshot"
        with (self._folder / sample.shard).open("rb", buffering=0) as file:
            block = os.pread(file.fileno(), sample.length_bytes, sample.offset_bytes)
        with tarfile.open(fileobj=io.BytesIO(block)) as tar:
            member = tar.extractfile(f"{sample.view.key}.mp")
            assert member is not None, f"{sample.shard} at {sample.offset_bytes} holds no {sample.view.key}.mp"
            return member.read()


def render_missing(jobs: Iterable[ClipJob], kept: KeptFrames, decode: Render) -> Iterator[ClipOutcome]:
    """Outcomes of all jobs, decoding only what was not kept; in any order."""
    asked: dict[str, ClipJob] = {}
    known: dict[str, ClipOutcome] = {}
    to_decode = []
    for job in jobs:
        outcome, rest = kept.restore(job)
        if rest is None:
            assert outcome is not None, f"{job.clip} has no views"
            yield outcome
            continue
        to_decode.append(rest)
        if outcome is not None:
            asked[job.clip], known[job.clip] = job, outcome
    for made in decode(to_decode):
        yield _merge(known[made.clip], made, asked[made.clip]) if made.clip in known else made


def _merge(kept: ClipOutcome, made: ClipOutcome, job: ClipJob) -> ClipOutcome:
    """One outcome of a clip of which some views were kept and others decoded, in the order of the job."""
    order = {view.key: number for number, view in enumerate(job.views)}
    views = sorted([*kept.views, *made.views], key=lambda view: order[view.key])
    rejected = sorted([*kept.rejected_views, *made.rejected_views], key=lambda view: order[view[0]])
    _, reason, detail = rejected[0] if rejected and not views else ("", "", "")
    return ClipOutcome(
        job.clip, made.info or kept.info, reason, detail, tuple(views), tuple(rejected),
        decoder=made.decoder or kept.decoder, fallback=made.fallback,
    )  # fmt: skip


def kept_frames(
    out: Path,
    made_with: str,
    profiles: Mapping[str, Mapping[str, Any]],
    *,
    retry_rejected: bool = False,
) -> KeptFrames:
    """The frames of the current snapshot of an output, when they were made as they would be now.

    Args:
        made_with: `shards.made_with` of this run.
        profiles: of this run, by split; clips that were rejected by other rules may now be accepted.
        retry_rejected: forget which clips could not be decoded.
    """
    try:
        folder = current_snapshot(out)
    except UsageError:
        return KeptFrames()
    try:
        return _kept_of(folder, made_with, profiles, retry_rejected)
    except (OSError, UsageError, pa.ArrowInvalid):  # something is lost or damaged: then nothing is known
        return KeptFrames()


def _kept_of(
    folder: Path, made_with_now: str, profiles: Mapping[str, Mapping[str, Any]], retry_rejected: bool
) -> KeptFrames:
    dataset = read_dataset(folder)
    if dataset["schema_version"] != SCHEMA_VERSION or dataset.get("made_with") != made_with_now:
        return KeptFrames()
    samples = _samples(folder, _whole_shards(folder))
    rejected = {} if retry_rejected or dataset["profiles"] != profiles else _rejected(folder)
    clips = {}
    for row in _rows(folder, "clips"):
        if row["status"] in ("sharded", "rejected"):
            clip, info = row["clip"], _info(row)
            words = rejected.get(clip, {})
            if info is not None:  # it could be opened, so what failed was one of its views, and others may not
                words = {view: why for view, why in words.items() if view}
            clips[clip] = _KeptClip(row["sha256"], info, row["decoder"] or "", samples.get(clip, {}), words)
    return KeptFrames(folder, clips)


def known_parts(out: Path) -> dict[str, str]:
    """The parts of the current snapshot, with the sha256 of each; {} when there is none."""
    try:
        rows = _rows(current_snapshot(out), "parts")
    except (UsageError, OSError, pa.ArrowInvalid):
        return {}
    return {row["part"]: row["sha256"] for row in rows}


def _whole_shards(folder: Path) -> set[str]:
    """Shards that are there, as long as they should be."""
    whole = set()
    for row in _rows(folder, "shards"):
        path = folder / row["shard"]
        if path.is_file() and path.stat().st_size == row["size_bytes"]:
            whole.add(row["shard"])
    return whole


def _samples(folder: Path, shards: set[str]) -> dict[str, dict[str, _Sample]]:
    samples: dict[str, dict[str, _Sample]] = defaultdict(dict)
    table = pq.read_table(folder / "manifests" / "views.parquet")
    lists = table.column("frame_indices").combine_chunks()
    indices, offsets = lists.values.to_numpy().astype("<i4"), lists.offsets.to_pylist()
    for number, row in enumerate(table.drop_columns(["frame_indices"]).to_pylist()):
        if row["shard"] not in shards:
            continue
        view = RenderedView(
            key=row["view"],
            start_seconds=row["start_seconds"],
            end_seconds=row["end_seconds"],
            frame_indices=indices[offsets[number] : offsets[number + 1]].tobytes(),
            num_frames=row["num_frames"],
            height=row["height"],
            width=row["width"],
            warnings=tuple(row["warnings"]),
        )
        sample = _Sample(view, row["shard"], row["offset_bytes"], row["length_bytes"])
        samples[row["clip"]][view.key] = sample
    return samples


def _rejected(folder: Path) -> dict[str, dict[str, tuple[str, str]]]:
    rejected: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for row in _rows(folder, "quarantine"):
        if row["kind"] in ("clip", "view") and row["reason"] not in _MAY_PASS:
            rejected[row["clip"]][row["view"] or ""] = (row["reason"], row["detail"])
    return rejected


def _info(row: dict[str, Any]) -> ClipInfo | None:
    if row["codec"] is None:
        return None
    return ClipInfo(
        codec=row["codec"],
        pix_fmt=row["pix_fmt"],
        format_name=row["container"],
        fps=row["fps"],
        num_frames=row["num_frames"],
        height=row["height"],
        width=row["width"],
        rotation=row["rotation"],
        duration_seconds=row["duration_seconds"],
        decord_divergent=row["decord_divergent"],
        is_truncated=row["is_truncated"],
        warnings=tuple(word for word in row["warnings"] if word != "path-case"),
    )


def _rows(folder: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "manifests" / f"{table}.parquet").to_pylist()
    return rows
