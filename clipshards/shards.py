"""Shards: WebDataset tars whose bytes depend on nothing but their input.

    <key>.json      the clip, where its bytes came from, the frames, the examples and questions of the view
    <key>.mp        msgpack list of encoded frames (JPEG, or PNG when lossless)

per sample, adjacent, sorted by key; plain USTAR headers with mtime 0. A shard is written under another name,
flushed and renamed; beside it lies a receipt that names what it was made from, so that a later run takes the
shard over instead of making it again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import webdataset

from clipshards.decode.media import Extent
from clipshards.errors import NoSpaceError
from clipshards.plan import ShardPlan
from clipshards.rendering import ClipJob, ClipOutcome, RenderedView
from clipshards.sampling import Profile
from clipshards.tars import TarMember

SHARD_VERSION = 1
"""Goes up with each change of what a shard holds."""

_DECIDES_BYTES = ("av", "opencv-python-headless", "simplejpeg", "webdataset", "msgpack")

Render = Callable[[Iterable[ClipJob]], Iterator[ClipOutcome]]
"""Runs jobs, usually in a pool; outcomes may come in any order."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How frames are chosen and stored."""

    profile: Profile
    quality: int | None
    """JPEG quality 1–100; None: lossless PNG."""
    decoder: str = "cpu"
    """A name of `decoders.DECODERS`. Frames of one decoder are not taken over by a run with another."""


@dataclass(frozen=True, slots=True)
class PartOnDisk:
    """A verified part and its members by name."""

    path: str
    """In the source."""
    file: Path
    sha256: str
    members: Mapping[str, TarMember]


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """Where a sample lies in its shard: header of the first member to the end of the last."""

    key: str
    offset_bytes: int
    length_bytes: int
    json_size_bytes: int
    mp_size_bytes: int


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A finished shard. `path` is relative to the snapshot; a shard without samples has size 0 and no file."""

    path: str
    split: str
    part: str
    size_bytes: int
    sha256: str
    num_frames: int
    samples: tuple[SamplePlace, ...]
    outcomes: tuple[ClipOutcome, ...]
    """Of all clips of the plan, sorted by clip."""
    fingerprint: str


def make_shard(
    plan: ShardPlan,
    part: PartOnDisk,
    encoding: Encoding,
    rows: Mapping[str, Mapping[str, Any]],
    *,
    render: Render,
    folder: Path,
    retry_rejected: bool = False,
) -> ShardInfo:
    """Decode the clips of a shard and write it to `folder`, or take over the one an earlier run finished.

    Args:
        rows: for each view key the examples and questions that its JSON holds.
        render: decodes the clips.
        folder: holds `<split>/<name>` and its receipt.
        retry_rejected: make a shard again of which clips or views were rejected.

    Raises:
        NoSpaceError: the disk is full.
    """
    known = find_shard(plan, part, encoding, rows, folder)
    if known and not (retry_rejected and has_rejects(known)):
        return known
    target = folder / plan.split / plan.name
    fingerprint = _fingerprint(plan, part, encoding, rows)
    spool = target.with_suffix(".frames")
    try:
        shutil.rmtree(spool, ignore_errors=True)
        spool.mkdir(parents=True)
        outcomes = sorted(render(_jobs(plan, part, encoding, spool)), key=lambda outcome: outcome.clip)
        info = _write(plan, part, encoding, rows, outcomes, spool, target, fingerprint)
        _write_atomically(_receipt(target), msgspec.json.encode(info))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(f"the disk is full while writing {target.name}: free some space") from error
        raise
    finally:
        shutil.rmtree(spool, ignore_errors=True)
        _unfinished(target).unlink(missing_ok=True)
    return info


def find_shard(
    plan: ShardPlan, part: PartOnDisk, encoding: Encoding, rows: Mapping[str, Mapping[str, Any]], folder: Path
) -> ShardInfo | None:
    """The finished shard of this plan that an earlier run left in `folder`, if it is still there."""
    return _read_receipt(folder / plan.split / plan.name, _fingerprint(plan, part, encoding, rows))


def has_rejects(info: ShardInfo) -> bool:
    """Whether something that belongs into a finished shard could not be decoded."""
    return any(outcome.rejected_views for outcome in info.outcomes)


def made_with(quality: int | None, decoder: str) -> str:
    """What decides the bytes of a frame, besides the clip and the profile: in words, equal when it is the same."""
    names = [*_DECIDES_BYTES, *(["imageio-ffmpeg"] if decoder.startswith("ffmpeg") else [])]
    packages = [f"{name} {version(name)}" for name in names]
    words = [f"version {SHARD_VERSION}", f"quality {quality or 'lossless'}", f"decoder {decoder}", *packages]
    return ", ".join(words)


def _jobs(plan: ShardPlan, part: PartOnDisk, encoding: Encoding, spool: Path) -> list[ClipJob]:
    jobs = []
    for clip, views in plan.views.items():
        member = part.members[clip]
        extent = Extent(str(part.file), member.offset_bytes, member.size_bytes)
        jobs.append(
            ClipJob(
                clip,
                extent,
                tuple(views),
                encoding.profile,
                encoding.quality,
                spool,
                member.sha256,
                encoding.decoder,
            )
        )
    return jobs


def _write(
    plan: ShardPlan,
    part: PartOnDisk,
    encoding: Encoding,
    rows: Mapping[str, Mapping[str, Any]],
    outcomes: list[ClipOutcome],
    spool: Path,
    target: Path,
    fingerprint: str,
) -> ShardInfo:
    rendered = {view.key: (outcome, view) for outcome in outcomes for view in outcome.views}
    places: list[SamplePlace] = []
    digest, size_bytes = "", 0
    if rendered:
        temporary = _unfinished(target)
        with temporary.open("wb") as file:
            hashing = _HashingFile(file)
            with webdataset.TarWriter(hashing, encoder=False, mtime=0, compress=False) as tar:
                for key, (outcome, view) in sorted(rendered.items()):
                    start = tar.tarstream.offset
                    text = sample_json(outcome, view, part, encoding.profile, rows[key])
                    waiting = spool / f"{key}.mp"
                    frames = waiting.read_bytes()
                    tar.write({"__key__": key, "json": text, "mp": frames})
                    waiting.unlink()  # the disk never holds the frames of a shard twice
                    length = tar.tarstream.offset - start
                    places.append(SamplePlace(key, start, length, len(text), len(frames)))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        digest, size_bytes = hashing.hexdigest(), target.stat().st_size
    else:
        target.unlink(missing_ok=True)  # of an earlier run, when there was something to store
    num_frames = sum(view.num_frames for _, view in rendered.values())
    return ShardInfo(
        f"{plan.split}/{plan.name}", plan.split, plan.part, size_bytes, digest, num_frames,
        tuple(places), tuple(outcomes), fingerprint,
    )  # fmt: skip


def sample_json(
    outcome: ClipOutcome,
    view: RenderedView,
    part: PartOnDisk,
    profile: Profile,
    rows: Mapping[str, Any],
) -> bytes:
    """The JSON member of a sample. The commit is not in it: the part's hash names the same bytes for good."""
    member, info = part.members[outcome.clip], outcome.info
    indices = np.frombuffer(view.frame_indices, "<i4")
    assert info is not None, f"{view.key} was rendered from a clip that cannot be opened"
    return msgspec.json.encode(
        {
            "clip": outcome.clip,
            "part": part.path,
            "part_sha256": part.sha256,
            "member_offset_bytes": member.offset_bytes,
            "member_size_bytes": member.size_bytes,
            "member_sha256": member.sha256,
            "fps": info.fps,
            "num_frames_in_clip": info.num_frames,
            "start_seconds": view.start_seconds,
            "end_seconds": view.end_seconds,
            "frame_indices": indices.tolist(),
            "frame_seconds": (indices / info.fps).tolist(),
            "height": view.height,
            "width": view.width,
            "video_tokens": profile.tokens(view.height, view.width, view.num_frames),
            "warnings": view.warnings,
            **rows,
        }
    )


def _fingerprint(
    plan: ShardPlan, part: PartOnDisk, encoding: Encoding, rows: Mapping[str, Mapping[str, Any]]
) -> str:
    keys = [view.key for view in plan.all_views()]
    made_from = {
        "made_with": made_with(encoding.quality, encoding.decoder),
        "part": [part.path, part.sha256],
        "members": {clip: asdict(part.members[clip]) for clip in plan.views},
        "views": keys,
        "encoding": asdict(encoding),
        "rows": {key: rows[key] for key in keys},
    }
    return hashlib.sha256(msgspec.json.encode(made_from, order="sorted")).hexdigest()


def _unfinished(target: Path) -> Path:
    return target.with_suffix(".tar.tmp")


def _receipt(target: Path) -> Path:
    return target.with_suffix(".json")


def _read_receipt(target: Path, fingerprint: str) -> ShardInfo | None:
    try:
        info = msgspec.json.decode(_receipt(target).read_bytes(), type=ShardInfo)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return None
    there = target.stat().st_size if target.exists() else 0
    return info if info.fingerprint == fingerprint and info.size_bytes == there else None


def _write_atomically(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(path.suffix + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class _HashingFile:
    """Hashes what passes on its way to the file."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def write(self, block: bytes) -> int:
        self._digest.update(block)
        return self._file.write(block)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
