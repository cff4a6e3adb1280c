"""What rows say of their clips, against what the clips are."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest

from clipshards.examples import ExampleBuilder
from manifests.hints import hint_warnings


def words(fps: float | None, size: list[int] | None, *, max_fps: float | None = 2.0) -> list[str]:
    """The words for a row of a clip of 96 × 128 pixels."""
    height, width = size or (None, None)
    rows = pa.table(
        {
            "fps_from_row": pa.array([fps], pa.float64()),
            "height_from_row": pa.array([height], pa.int32()),
            "width_from_row": pa.array([width], pa.int32()),
        }
    )
    found = hint_warnings(rows, pa.array([96], pa.int32()), pa.array([128], pa.int32()), max_fps)
    return [word for word, flags in found.items() if np.array_equal(flags, [True])]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ([96, 128], []),
        ([128, 96], ["resolution-swapped"]),
        ([1080, 1920], ["resolution-stale"]),
        (None, ["resolution-missing"]),
    ],
)
def test_sizes(size: list[int] | None, expected: list[str]) -> None:
    assert words(2.0, size) == expected


@pytest.mark.parametrize(
    ("fps", "expected"), [(2.0, []), (0.5, []), (None, ["fps-default"]), (30.0, ["fps-capped"])]
)
def test_rates(fps: float | None, expected: list[str]) -> None:
    assert words(fps, [96, 128]) == expected


def test_a_profile_without_a_rate_caps_nothing() -> None:
    assert words(30.0, [96, 128], max_fps=None) == words(None, [96, 128], max_fps=None) == []


@pytest.mark.parametrize("size", [b"[96]", b'"96x128"', b"[96, 0]", b"[96.5, 128]", b"{}"])
def test_a_size_that_is_none_is_named_when_it_is_read(size: bytes) -> None:
    line = b'[{"type":"video","path":"s/a.mp4","fps":2.0,"start_seconds":0.0,"end_seconds":2.0,"src_resolution":'
    line += size + b'},{"type":"text","content":"?","output":false},{"type":"text","content":"a","output":true}]\n'
    builder = ExampleBuilder()
    builder.add_lines("sft", "f", BytesIO(line))
    (row,) = builder.finish().table.to_pylist()
    assert (row["warnings"], row["height_from_row"]) == (["resolution-bad"], None)
