"""How fast this machine turns clips into stored frames, and what the frames take: the real path, all workers.

`measure_speed` decodes a made clip, to compare machines; `measure_clips` decodes clips of a data set, to tell how
long that one takes and how large it becomes.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from clipshards.decode.decoders import collect, open_clip
from clipshards.decode.media import Extent
from clipshards.decode.pool import WorkerPool
from clipshards.decode.probe import ClipInfo
from clipshards.errors import ClipshardsError, Rejected
from clipshards.estimate import NOTHING, Seen
from clipshards.images import encode, resize
from clipshards.plan import View, make_view
from clipshards.rendering import ClipJob, ClipOutcome, rejected_clip, render_clip, sample_view
from clipshards.sampling import Profile, fit_to_grid

CLIP_SECONDS, FPS, HEIGHT, WIDTH, QUALITY = 10, 30, 720, 1280, 95

MAX_CLIPS = 512
"""Clips of a split that are looked at for a plan, if the time suffices."""
_FRAMES_OF_LOOK = 4
_LOOK_SECONDS, _COUNT_SECONDS, _RENDER_SECONDS = 5.0, 2.0, 4.0
"""For each worker."""
_JOB_SECONDS = 30.0
_LEAST_JOBS_AT_ONCE = 8


@dataclass(frozen=True)
class Speed:
    """What was done in `seconds` of wall time."""

    workers: int
    clips: int
    stored_frames: int
    seconds: float

    @property
    def stored_frames_per_second(self) -> float:
        return self.stored_frames / self.seconds

    @property
    def video_seconds_per_second(self) -> float:
        """How much faster than it plays video is prepared."""
        return self.clips * CLIP_SECONDS / self.seconds


@dataclass(frozen=True)
class ClipLook:
    """What the views of a clip come to."""

    views: Mapping[str, Seen]
    """By key."""
    seconds: float = 0.0
    """That one worker took."""


@dataclass(frozen=True)
class Measurement:
    """Clips of a data set that were decoded, in whole or a few frames of them."""

    views: Mapping[str, Seen] = field(default_factory=dict)
    """By the key of the view; of one that is rejected nothing is stored."""
    stored_frames_per_second: float = 0.0
    """Of all workers together; 0 when nothing was decoded."""


def measure_speed(profile: Profile, decoder: str, *, workers: int, clips_per_worker: int = 8) -> Speed:
    """Decode a 720p H.264 clip of ten seconds so often into JPEGs, after a round that starts the workers."""
    with tempfile.TemporaryDirectory() as name, WorkerPool(workers) as pool:
        job = made_job(profile, decoder, Path(name))

        def run(count: int) -> int:
            return sum(
                _stored_frames(outcome, decoder) for outcome in pool.run(render_clip, [job] * count, _given_up)
            )

        run(2 * workers)
        started = time.perf_counter()
        stored_frames = run(workers * clips_per_worker)
        return Speed(workers, workers * clips_per_worker, stored_frames, time.perf_counter() - started)


def made_job(profile: Profile, decoder: str, folder: Path) -> ClipJob:
    """All of a clip that is made here, for when there is no real one."""
    clip = _make_clip(folder / "clip.mp4")
    view = make_view(clip.name, None, None, None, profile)
    return ClipJob(clip.name, Extent(str(clip)), (view,), profile, QUALITY, folder, decoder=decoder)


def measure_clips(jobs: Sequence[ClipJob], *, workers: int) -> Measurement:
    """Look at clips in an order drawn by lot, then make all frames of some of them: about ten seconds.

    Looking is cheap: the packets are read and a few frames decoded; when its time is over, the packets alone.

    Args:
        jobs: clips with the views that are wanted of them; their folder is not used.
    """
    jobs = sorted(jobs, key=lambda job: job.clip)
    random.Random(0).shuffle(jobs)
    with tempfile.TemporaryDirectory() as name, WorkerPool(workers, job_seconds=_JOB_SECONDS) as pool:
        here = [replace(job, folder=Path(name)) for job in jobs[:MAX_CLIPS]]
        looks = _run(pool, look_at_clip, here, workers, _LOOK_SECONDS)
        looks += _run(pool, count_frames_of_clip, here[len(looks) :], workers, _COUNT_SECONDS)
        whole = _run(pool, render_whole, here, workers, _RENDER_SECONDS)
    views = {key: seen for look in [*looks, *whole] for key, seen in look.views.items()}
    frames, seconds = (
        sum(seen.frames for look in whole for seen in look.views.values()),
        sum(look.seconds for look in whole),
    )
    return Measurement(views, workers * frames / seconds if frames else 0.0)


def _run(
    pool: WorkerPool, function: Callable[[ClipJob], ClipLook], jobs: Sequence[ClipJob], workers: int, seconds: float
) -> list[ClipLook]:
    """Results of the first jobs, until they took so many seconds of each worker."""
    done: list[ClipLook] = []
    at_once = max(_LEAST_JOBS_AT_ONCE, 2 * workers)
    while len(done) < len(jobs) and sum(look.seconds for look in done) < workers * seconds:
        some = jobs[len(done) : len(done) + at_once]
        done += pool.run(function, some, lambda job, words: ClipLook({}, _JOB_SECONDS))
    return done


def look_at_clip(job: ClipJob, num_frames: int = _FRAMES_OF_LOOK) -> ClipLook:
    """How many frames the views of a clip have, and what they take by a few of them.

    The seconds are those of the processor: on a busy machine it takes longer, but sees as much.
    """
    started = _cpu_seconds()
    try:
        clip = open_clip(job.extent, job.decoder)
        height, width = fit_to_grid(clip.info.height, clip.info.width, job.profile)
        indices = {view.key: _indices(view, clip.info, job.profile) for view in job.views}
        some = _spread(np.unique(np.concatenate([*indices.values()])), num_frames)
        done = collect(clip, some, lambda rgb: len(encode(resize(rgb, height, width), job.quality)))
    except Rejected:
        return _look(job, {}, _cpu_seconds() - started)
    frame_bytes = sum(done.frames.values()) / len(done.frames) if done.frames else None
    failed = done.clip.failures.keys()
    whole = {key: len(of_view) for key, of_view in indices.items() if not failed & set(of_view.tolist())}
    views = {key: Seen(frames, height * width, frame_bytes) for key, frames in whole.items()}
    return _look(job, views, _cpu_seconds() - started)


def count_frames_of_clip(job: ClipJob) -> ClipLook:
    """As `look_at_clip`, by the packets alone."""
    return look_at_clip(job, 0)


def render_whole(job: ClipJob) -> ClipLook:
    """What the views of a clip come to when a run prepares it, and how long that takes."""
    started = time.perf_counter()
    outcome = render_clip(job)
    seconds, views = time.perf_counter() - started, {}
    for view in outcome.views:
        file = job.folder / f"{view.key}.mp"
        num_bytes = file.stat().st_size / view.num_frames
        views[view.key] = Seen(view.num_frames, view.height * view.width, num_bytes)
        file.unlink()
    return _look(job, views, seconds)


def _cpu_seconds() -> float:
    """Of this process and of the programs it ran."""
    return sum(os.times()[:4])


def _look(job: ClipJob, views: Mapping[str, Seen], seconds: float) -> ClipLook:
    return ClipLook({view.key: views.get(view.key, NOTHING) for view in job.views}, seconds)


def _indices(view: View, info: ClipInfo, profile: Profile) -> npt.NDArray[np.int64]:
    try:
        return sample_view(view, info, profile).indices
    except Rejected:
        return np.zeros(0, np.int64)


def _spread(indices: npt.NDArray[np.int64], count: int) -> list[int]:
    """At most `count` of them, evenly."""
    places = (np.arange(count) + 0.5) / count * len(indices)
    return sorted(set(indices[places.astype(int)].tolist())) if len(indices) else []


def _stored_frames(outcome: ClipOutcome, decoder: str) -> int:
    if trouble := outcome.fallback or outcome.reason:
        raise ClipshardsError(
            f"decoder {decoder} fails on a clip made here ({trouble} {outcome.detail}): try another"
        )
    return sum(view.num_frames for view in outcome.views)


def _given_up(job: ClipJob, words: str) -> ClipOutcome:
    return rejected_clip(job, "time-limit", words)


def _make_clip(path: Path) -> Path:
    """A moving pattern with some noise, in GOPs of four seconds with B pictures."""
    options = {"preset": "veryfast", "crf": "23", "g": "120"}
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    noise = np.random.default_rng(0).integers(0, 24, (HEIGHT, WIDTH, 3), np.uint8)
    still = np.stack([x % 200, y % 200, (x + y) % 200], axis=-1).astype(np.uint8) + noise
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options=options)
        stream.height, stream.width, stream.pix_fmt = HEIGHT, WIDTH, "yuv420p"
        for number in range(CLIP_SECONDS * FPS):
            rgb = np.roll(still, 3 * number, axis=1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        container.mux(stream.encode(None))
    return path
