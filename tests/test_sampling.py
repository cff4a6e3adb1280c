"""Counts, indices and sizes are those that the trainer computes: checked against its rules, stated naively."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipshards.errors import Rejected
from clipshards.sampling import (
    GRASP_BENCH,
    GRASP_TRAIN,
    Profile,
    count_frames,
    fit_to_grid,
    frame_indices,
    whole_clip_indices,
)


def naive_counts(
    durations: list[float], max_fps: float = 2.0, least: int = 2, multiple: int = 2, most: int = 512
) -> tuple[int, ...] | None:
    """The bisection as the contract states it, step by step; None when no step is accepted."""
    low, high, accepted = 0.0, max_fps, None
    for _ in range(30):
        middle = (low + high) / 2
        counts = [max(least, round(d * middle / multiple) * multiple) for d in durations]
        if sum(counts) <= most:
            accepted, low = tuple(counts), middle
        else:
            high = middle
    return accepted


def naive_grid(height: int, width: int) -> tuple[int, int] | None:
    """All pairs that the contract's search visits, in its order; the first one with the most cells."""
    ratio = width / height
    pairs = []
    for h in range(1, height // 32 + 1):
        w = math.floor(h * ratio)
        pairs += [(h, w), (h, w + 1)]
    pairs = [(h, w) for h, w in pairs if 0 < w <= width // 32 and h * w <= 256]
    if not pairs:
        return None
    most = max(h * w for h, w in pairs)
    h, w = next((h, w) for h, w in pairs if h * w == most)
    return 32 * h, 32 * w


def grid_or_none(height: int, width: int) -> tuple[int, int] | None:
    try:
        return fit_to_grid(height, width)
    except Rejected as rejected:
        assert rejected.reason == "frame-too-small"
        return None


@pytest.mark.parametrize(
    ("seconds", "frames"),
    [
        (57.5, 114),  # 57.5 · (2 − ε) / 2 rounds to 57: the rate never reaches 2
        (10.0, 10 * 2),
        (0.01, 2),
        (1.0, 2),
        (1.5, 2),  # 1.5 · (1 − ε) rounds to 1
        (2.5, 4),  # just under 2.5: 2
        (3.5, 6),  # just under 3.5: 3, where half to even would give 4
        (255.9, 512),
        (256.0, 512),
        (300.0, 512),
        (7200.0, 512),
    ],
)
def test_count_of_one_video(seconds: float, frames: int) -> None:
    assert count_frames([seconds]) == (frames,)


def test_videos_of_an_example_share_512_frames() -> None:
    assert count_frames([200.0, 200.0]) == (256, 256)
    counts = count_frames([300.0, 100.0, 0.5])
    assert counts == naive_counts([300.0, 100.0, 0.5])
    assert sum(counts) <= 512
    assert counts[2] == 2
    assert 2.9 < counts[0] / counts[1] < 3.1


def test_short_videos_do_not_take_from_each_other() -> None:
    assert count_frames([10.0, 57.5, 1.0]) == (20, 114, 2)


def test_too_many_videos() -> None:
    assert count_frames([1.0] * 256) == (2,) * 256
    with pytest.raises(Rejected, match="257 videos") as caught:
        count_frames([1.0] * 257)
    assert caught.value.reason == "too-many-videos"


def test_rules_of_another_profile() -> None:
    assert count_frames([30.0], Profile("slow", max_fps=0.5)) == (14,)  # 7.5 from below: 7 pairs
    assert count_frames([30.0], Profile("fast", max_fps=4.0, multiple=4, max_total=64)) == (64,)
    assert count_frames([0.1], Profile("many", min_frames=8)) == (8,)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats(0.01, 4000, allow_nan=False), min_size=1, max_size=9))
def test_counts_are_those_of_the_naive_bisection(durations: list[float]) -> None:
    assert count_frames(durations) == naive_counts(durations)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 3000).map(lambda n: n / 4), min_size=1, max_size=5),
    st.sampled_from([0.5, 1.0, 2.0, 3.0]),
    st.sampled_from([(2, 2), (4, 4), (2, 4), (1, 1)]),
    st.sampled_from([32, 100, 512]),
)
def test_counts_of_any_profile_are_those_of_the_naive_bisection(
    durations: list[float], max_fps: float, rules: tuple[int, int], most: int
) -> None:
    profile = Profile("any", max_fps=max_fps, min_frames=rules[0], multiple=rules[1], max_total=most)
    assert count_frames(durations, profile) == naive_counts(durations, max_fps, *rules, most)


def test_indices_are_spread_over_the_window() -> None:
    sample = frame_indices(0, 3.5, fps=30, num_frames_in_clip=400, count=6)
    assert sample.indices.tolist() == [0, 20, 41, 62, 83, 104]  # 105 frames: 0, 20.8, 41.6, 62.4, 83.2, 104
    assert not sample.end_clamped


def test_indices_of_a_window_inside_a_clip_of_a_broken_rate() -> None:
    fps = 30000 / 1001
    sample = frame_indices(10.0, 12.0, fps=fps, num_frames_in_clip=1000, count=4)
    assert sample.indices.tolist() == [300, 319, 339, 359]  # frames 299.7 → 300 and 359.64 → 360


def test_frame_numbers_are_rounded_half_to_even() -> None:
    sample = frame_indices(0.5, 2.5, fps=1, num_frames_in_clip=9, count=2)
    assert sample.indices.tolist() == [0, 1]  # 0.5 → 0, 2.5 → 2
    sample = frame_indices(1.5, 3.5, fps=1, num_frames_in_clip=9, count=2)
    assert sample.indices.tolist() == [2, 3]  # 1.5 → 2, 3.5 → 4


def test_frames_repeat_in_a_short_window() -> None:
    assert frame_indices(1, 1.1, fps=10, num_frames_in_clip=30, count=2).indices.tolist() == [10, 10]
    assert frame_indices(0, 0.3, fps=10, num_frames_in_clip=30, count=6).indices.tolist() == [0, 0, 0, 1, 1, 2]


def test_end_up_to_half_a_second_past_the_clip_is_clamped() -> None:
    whole = frame_indices(0, 10, fps=30, num_frames_in_clip=300, count=3)
    assert (whole.indices.tolist(), whole.end_clamped) == ([0, 149, 299], False)
    over = frame_indices(0, 10.5, fps=30, num_frames_in_clip=300, count=3)  # 15 frames = 0.5 s over
    assert (over.indices.tolist(), over.end_clamped) == ([0, 149, 299], True)


def test_end_further_past_the_clip_is_rejected() -> None:
    for start, end in [(0, 10.5334), (0, 20), (10, 10.4), (50, 60)]:  # 16 frames over; no frame left
        with pytest.raises(Rejected) as caught:
            frame_indices(start, end, fps=30, num_frames_in_clip=300, count=4)
        assert caught.value.reason == "end-beyond-video"
        assert "300 frames" in caught.value.detail


@pytest.mark.parametrize(("start", "end"), [(2, 2), (3, 2), (-1, 2), (2, 2.01), (1.0, 1.016)])
def test_window_without_a_frame_is_rejected(start: float, end: float) -> None:
    with pytest.raises(Rejected) as caught:
        frame_indices(start, end, fps=30, num_frames_in_clip=300, count=4)
    assert caught.value.reason == "bad-window"


def test_a_window_as_long_as_a_double_can_say_is_no_crash() -> None:
    with pytest.raises(Rejected, match="too-many-videos"):
        count_frames([1.7e308])


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 4000).map(lambda n: n / 20),
    st.integers(1, 4000).map(lambda n: n / 20),
    st.sampled_from([23.976023976, 24.0, 25.0, 29.97002997, 30.0, 60.0]),
    st.integers(2, 512),
)
def test_indices_follow_the_rule(start: float, seconds: float, fps: float, count: int) -> None:
    end = start + seconds
    first, past = round(start * fps), round(end * fps)
    sample = frame_indices(start, end, fps=fps, num_frames_in_clip=past + 3, count=count)
    expected = np.linspace(first, past - 1, count, dtype=int)
    assert sample.indices.dtype == np.int64
    assert sample.indices.tolist() == expected.tolist()
    assert sample.indices[0] == first
    assert sample.indices[-1] == past - 1


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ((720, 1280), (384, 672)),  # 12 × 21 = 252 cells
        ((1080, 1920), (384, 672)),
        ((1280, 720), (672, 384)),
        ((512, 512), (512, 512)),
        ((2000, 2000), (512, 512)),
        ((32, 32), (32, 32)),
        ((63, 63), (32, 32)),
        ((360, 480), (352, 480)),  # 11 rows: ⌊14.67⌋ = 14 columns, then 15, which still fit
        ((32, 640), (32, 640)),
        ((32, 8192), (32, 8192)),  # 256 cells in one row
    ],
)
def test_size_on_the_grid(source: tuple[int, int], target: tuple[int, int]) -> None:
    assert fit_to_grid(*source) == target


@pytest.mark.parametrize(("height", "width"), [(16, 640), (640, 16), (31, 31), (31, 4000), (32, 9000)])
def test_flat_frames_are_rejected(height: int, width: int) -> None:
    with pytest.raises(Rejected, match=f"{height}×{width}") as caught:
        fit_to_grid(height, width)
    assert caught.value.reason == "frame-too-small"


def test_sizes_are_those_of_the_naive_search() -> None:
    sizes = random.Random(5)
    for _ in range(1500):
        height, width = sizes.randint(8, 1500), sizes.randint(8, 1500)
        assert grid_or_none(height, width) == naive_grid(height, width), (height, width)


def test_whole_clip_takes_at_most_240_frames() -> None:
    assert whole_clip_indices(5).indices.tolist() == [0, 1, 2, 3, 4]
    assert whole_clip_indices(1).indices.tolist() == [0]
    assert whole_clip_indices(240).indices.tolist() == list(range(240))
    long = whole_clip_indices(1000)
    assert len(long.indices) == 240
    assert long.indices.tolist() == [999 * k // 239 for k in range(240)]
    assert not long.end_clamped


def test_whole_clip_of_another_profile() -> None:
    assert whole_clip_indices(9, Profile("few", max_fps=None, max_total=3)).indices.tolist() == [0, 4, 8]


def test_tokens() -> None:
    assert GRASP_TRAIN.tokens(384, 672, 114) == 12 * 21 * 114 // 2 == 14364
    assert GRASP_BENCH.tokens(32, 32, 1) == 0
    assert GRASP_BENCH.tokens(96, 32, 3) == 4
