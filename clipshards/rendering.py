"""One clip → the encoded frames of its views, on disk. Runs in a worker process.

Frames do not travel between processes: each view becomes `<folder>/<key>.mp`, a msgpack list of encoded
pictures, and what goes back is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgpack
import numpy as np
import numpy.typing as npt

from clipshards.decode.decoders import collect, open_clip
from clipshards.decode.media import Extent
from clipshards.decode.probe import ClipInfo
from clipshards.errors import Rejected
from clipshards.images import encode, resize
from clipshards.plan import View
from clipshards.sampling import Profile, Sample, count_frames, fit_to_grid, frame_indices, whole_clip_indices


@dataclass(frozen=True, slots=True)
class ClipJob:
    """A clip and the views that are wanted of it."""

    clip: str
    extent: Extent
    views: tuple[View, ...]
    profile: Profile
    quality: int | None
    """JPEG quality 1–100; None: lossless PNG."""
    folder: Path
    """Where the frames of the views are put."""
    sha256: str = ""
    """Of the clip's bytes."""
    decoder: str = "cpu"
    """A name of `decoders.DECODERS`."""


@dataclass(frozen=True, slots=True)
class RenderedView:
    """A view whose frames are on disk."""

    key: str
    start_seconds: float
    end_seconds: float
    frame_indices: bytes
    """int32, little-endian: 46,000 clips hold five million of them."""
    num_frames: int
    height: int
    width: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClipOutcome:
    """What became of a clip: views in the order of the job; each is rendered or rejected."""

    clip: str
    info: ClipInfo | None
    """None when the clip cannot be opened."""
    reason: str
    """Why no view of it could be rendered, "" when at least one was."""
    detail: str
    views: tuple[RenderedView, ...] = ()
    rejected_views: tuple[tuple[str, str, str], ...] = ()
    """(key, reason, detail)."""
    decoder: str = ""
    """The decoder that gave the frames, "" when nothing was decoded."""
    fallback: str = ""
    """Why it was the CPU when another decoder was asked: a kind, or "kind: detail"."""


def render_clip(job: ClipJob) -> ClipOutcome:
    """Decode all views of a clip in one pass and write their frames; never raises for a bad clip."""
    try:
        clip = open_clip(job.extent, job.decoder)
        height, width = fit_to_grid(clip.info.height, clip.info.width, job.profile)
    except Rejected as rejected:
        return rejected_clip(job, rejected.reason, rejected.detail)
    samples, rejects = _sample(job, clip.info)
    try:
        wanted = sorted({int(index) for sample in samples.values() for index in sample.indices})
        done = collect(clip, wanted, lambda rgb: encode(resize(rgb, height, width), job.quality))
    except Rejected as rejected:
        return rejected_clip(job, rejected.reason, rejected.detail)
    clip, rendered = done.clip, []
    for view in job.views:
        if view.key not in samples:
            continue
        failure = next((clip.failures[i] for i in samples[view.key].indices if i in clip.failures), None)
        if failure:
            rejects.append((view.key, failure.reason, failure.detail))
            continue
        rendered.append(_write(job, view, clip.info, samples[view.key], done.frames, (height, width)))
    _, reason, detail = rejects[0] if rejects and not rendered else ("", "", "")
    return ClipOutcome(
        job.clip, clip.info, reason, detail, tuple(rendered), tuple(rejects),
        decoder=clip.decoder if wanted else "", fallback=done.fallback,
    )  # fmt: skip


def rejected_clip(job: ClipJob, reason: str, detail: str) -> ClipOutcome:
    """The outcome of a clip of which nothing can be had."""
    views = tuple((view.key, reason, detail) for view in job.views)
    return ClipOutcome(job.clip, None, reason, detail, rejected_views=views)


def sample_view(view: View, info: ClipInfo, profile: Profile) -> Sample:
    """The frames of a view, now that rate and length of its clip are known.

    Raises:
        Rejected: `bad-window`, `end-beyond-video`, `no-decodable-frames`.
    """
    if view.start_seconds is not None and view.end_seconds is not None and view.num_frames is not None:
        return frame_indices(
            view.start_seconds,
            view.end_seconds,
            fps=info.fps,
            num_frames_in_clip=info.num_frames,
            count=view.num_frames,
        )
    if profile.max_fps is None:
        return whole_clip_indices(info.num_frames, profile)
    count = count_frames([info.num_frames / info.fps], profile)[0]
    return Sample(np.linspace(0, info.num_frames - 1, count, dtype=int), end_clamped=False)


def _sample(job: ClipJob, info: ClipInfo) -> tuple[dict[str, Sample], list[tuple[str, str, str]]]:
    samples: dict[str, Sample] = {}
    rejects: list[tuple[str, str, str]] = []
    for view in job.views:
        try:
            samples[view.key] = sample_view(view, info, job.profile)
        except Rejected as rejected:
            rejects.append((view.key, rejected.reason, rejected.detail))
    return samples, rejects


def _write(
    job: ClipJob,
    view: View,
    info: ClipInfo,
    sample: Sample,
    encoded: dict[int, bytes],
    size: tuple[int, int],
) -> RenderedView:
    frames = [encoded[index] for index in sample.indices.tolist()]
    (job.folder / f"{view.key}.mp").write_bytes(msgpack.packb(frames))
    whole = view.start_seconds is None or view.end_seconds is None
    return RenderedView(
        key=view.key,
        start_seconds=0.0 if whole else view.start_seconds,  # type: ignore[arg-type]
        end_seconds=info.num_frames / info.fps if whole else view.end_seconds,  # type: ignore[arg-type]
        frame_indices=sample.indices.astype("<i4").tobytes(),
        num_frames=len(sample.indices),
        height=size[0],
        width=size[1],
        warnings=(*info.warnings, *_view_warnings(sample, sample.indices, frames)),
    )


def _view_warnings(sample: Sample, indices: npt.NDArray[np.int64], frames: list[bytes]) -> list[str]:
    """Equal pictures give equal bytes, so the encoded frames tell what stands still."""
    pairs = [(a, b) for a, b, i, j in zip(frames, frames[1:], indices, indices[1:], strict=False) if i != j]
    num_equal = sum(a == b for a, b in pairs)
    warnings = ["end-clamped"] if sample.end_clamped else []
    if len(pairs) < len(indices) - 1:
        warnings.append("short-clip")
    if pairs and num_equal == len(pairs):
        warnings.append("static-clip")
    elif num_equal:
        warnings.append("frozen-frames")
    return warnings
