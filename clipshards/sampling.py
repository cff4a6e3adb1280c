"""Which frames the GRASP trainer decodes, and at what size: the one place where its rules live.

Restated from the behaviour of the public trainer (`socialmllm`); parity is proved in
`tests/test_sampling.py`. Pure functions: numbers in, numbers out. Windows are [start, end) in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from clipshards.errors import Rejected

END_TOLERANCE_SECONDS = 0.5
"""A window may reach this far past the last frame and is then clamped; further, it is rejected."""

_BISECTION_STEPS = 30
_ENDLESS = 1e18  # a window of absurd length needs more frames than any limit, not an overflow


@dataclass(frozen=True)
class Profile:
    """The sampling rules of one consumer.

    `max_fps` is None for a consumer that spreads at most `max_total` frames over the whole clip
    (GRASP-Bench) in place of sampling at a rate.
    """

    name: str
    max_fps: float | None = 2.0
    min_frames: int = 2
    multiple: int = 2
    max_total: int = 512
    grid_pixels: int = 32
    max_cells: int = 256
    frames_per_token_row: int = 2

    @cached_property
    def rules(self) -> str:
        """All but the name, as JSON: two profiles of the same rules give the same frames."""
        return json.dumps({name: value for name, value in asdict(self).items() if name != "name"}, sort_keys=True)

    def tokens(self, height: int, width: int, num_frames: int) -> int:
        """Vision tokens of `num_frames` frames of height × width pixels (both on the grid)."""
        cells = (height // self.grid_pixels) * (width // self.grid_pixels)
        return cells * num_frames // self.frames_per_token_row


GRASP_TRAIN = Profile("grasp-train")
GRASP_BENCH = Profile("grasp-bench", max_fps=None, max_total=240)


def count_frames(durations_seconds: Sequence[float], profile: Profile = GRASP_TRAIN) -> tuple[int, ...]:
    """Frames to take of each video of one training example.

    The trainer bisects the rate 30 times on [0, max_fps] and keeps the counts of the last rate that
    fits `max_total`; so the rate never reaches `max_fps` (57.5 s at 2 fps gives 114 frames, not 116).

    Args:
        durations_seconds: end − start of each video, in the order of the example.

    Raises:
        Rejected: `too-many-videos` when not even the smallest counts fit `max_total`.
    """
    # Counts never fall when the rate rises: what fits at the highest rate of the bisection fits at all others.
    assert profile.max_fps is not None, f"profile {profile.name} has no rate to bisect"
    counts = _counts_at(_highest_rate(profile.max_fps), durations_seconds, profile)
    return tuple(counts) if sum(counts) <= profile.max_total else _bisect(tuple(durations_seconds), profile)


def _counts_at(rate: float, durations_seconds: Sequence[float], profile: Profile) -> list[int]:
    multiple, least = profile.multiple, profile.min_frames
    return [max(least, round(min(seconds * rate / multiple, _ENDLESS)) * multiple) for seconds in durations_seconds]


@lru_cache(maxsize=1 << 16)
def _bisect(durations_seconds: tuple[float, ...], profile: Profile) -> tuple[int, ...]:
    assert profile.max_fps is not None
    low, high = 0.0, profile.max_fps
    accepted: list[int] | None = None
    for _ in range(_BISECTION_STEPS):
        rate = (low + high) / 2
        counts = _counts_at(rate, durations_seconds, profile)
        if sum(counts) <= profile.max_total:
            low, accepted = rate, counts
        else:
            high = rate
    if accepted is None:
        smallest = profile.min_frames * len(durations_seconds)
        limit = f"max_total is {profile.max_total}"
        raise Rejected("too-many-videos", f"{len(durations_seconds)} videos need {smallest} frames, {limit}")
    return tuple(accepted)


@lru_cache(maxsize=64)
def _highest_rate(max_fps: float) -> float:
    """The rate of the last step when every step is accepted."""
    low = 0.0
    for _ in range(_BISECTION_STEPS):
        low = (low + max_fps) / 2
    return low


@dataclass(frozen=True)
class Sample:
    """The frames of one window: `indices` int64 [num_frames], ascending, repeats are legal."""

    indices: npt.NDArray[np.int64]
    end_clamped: bool


def frame_indices(
    start_seconds: float, end_seconds: float, *, fps: float, num_frames_in_clip: int, count: int
) -> Sample:
    """Indices that the trainer would decode for the window [start_seconds, end_seconds).

    Raises:
        Rejected: `bad-window` when the window holds no frame, `end-beyond-video` when it reaches more
            than 0.5 s past the last frame (the trainer dies there in the middle of an epoch).
    """
    start, end = (round(min(seconds * fps, _ENDLESS)) for seconds in (start_seconds, end_seconds))
    window = f"window {start_seconds}–{end_seconds} s at {fps:.6g} fps, clip of {num_frames_in_clip} frames"
    if start < 0 or start >= end:
        raise Rejected("bad-window", f"{window}: frames {start}…{end - 1}")
    clamped = min(end, num_frames_in_clip)
    if (end - clamped) / fps > END_TOLERANCE_SECONDS or start >= clamped:
        raise Rejected("end-beyond-video", window)
    return Sample(np.linspace(start, clamped - 1, count, dtype=int), end_clamped=clamped < end)


def whole_clip_indices(num_frames_in_clip: int, profile: Profile = GRASP_BENCH) -> Sample:
    """Indices of at most `max_total` frames spread over the whole clip (GRASP-Bench)."""
    count = min(profile.max_total, num_frames_in_clip)
    return Sample(np.linspace(0, num_frames_in_clip - 1, count, dtype=int), end_clamped=False)


@lru_cache(maxsize=4096)
def fit_to_grid(height: int, width: int, profile: Profile = GRASP_TRAIN) -> tuple[int, int]:
    """Size (height, width) in pixels to which a frame of height × width pixels is resized.

    Of all grids whose ratio is that of the frame, the one with the most cells ≤ `max_cells`; the first on
    ties, as the trainer searches: rows ascending, columns ⌊rows · ratio⌋, then one more.

    Raises:
        Rejected: `frame-too-small` when no grid fits into the frame.
    """
    grid = profile.grid_pixels
    ratio = width / height
    best = (0, 0)
    for rows in range(1, height // grid + 1):
        for columns in (int(rows * ratio), int(rows * ratio) + 1):
            fits = 0 < columns <= width // grid and rows * columns <= profile.max_cells
            if fits and rows * columns > best[0] * best[1]:
                best = (rows, columns)
    if best == (0, 0):
        raise Rejected("frame-too-small", f"{height}×{width} px holds no cell of the {grid} px grid")
    return best[0] * grid, best[1] * grid
