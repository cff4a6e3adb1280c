"""How fast this machine turns a clip into stored frames: a made clip, the real path, all workers at once."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from clipshards.decode.media import Extent
from clipshards.decode.pool import WorkerPool
from clipshards.errors import ClipshardsError
from clipshards.plan import make_view
from clipshards.rendering import ClipJob, ClipOutcome, rejected_clip, render_clip
from clipshards.sampling import Profile

CLIP_SECONDS, FPS, HEIGHT, WIDTH, QUALITY = 10, 30, 720, 1280, 95


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


def measure_speed(profile: Profile, decoder: str, *, workers: int, clips_per_worker: int = 8) -> Speed:
    """Decode a 720p H.264 clip of ten seconds so often into JPEGs, after a round that starts the workers."""
    with tempfile.TemporaryDirectory() as name, WorkerPool(workers) as pool:
        folder = Path(name)
        clip = _make_clip(folder / "clip.mp4")
        view = make_view(clip.name, None, None, None, profile)

        def run(count: int) -> int:
            job = ClipJob(clip.name, Extent(str(clip)), (view,), profile, QUALITY, folder, decoder=decoder)
            return sum(
                _stored_frames(outcome, decoder) for outcome in pool.run(render_clip, [job] * count, _given_up)
            )

        run(2 * workers)
        started = time.perf_counter()
        stored_frames = run(workers * clips_per_worker)
        return Speed(workers, workers * clips_per_worker, stored_frames, time.perf_counter() - started)


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
