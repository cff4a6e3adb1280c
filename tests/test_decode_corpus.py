"""Real clips of many makers: as decord reads them where decord is right, and a word for each that fails."""

from __future__ import annotations

import csv
from pathlib import Path

import decord
import numpy as np
import pytest

from clipshards.decode.cpu import Clip
from clipshards.decode.decoders import open_clip
from clipshards.decode.media import Extent
from clipshards.errors import Rejected
from clipshards.images import resize
from clipshards.sampling import count_frames, fit_to_grid, frame_indices
from clipshards.schema import REASONS

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="no shared/corpus next to the project"),
]

MOST_PIXELS = 120 * 1280 * 720
"""Frames of large clips are thinned to this many pixels, so that the whole corpus takes seconds."""

# Not bit-exact between FFmpeg 4 (in decord) and 8: the IDCT of MPEG-4 part 2, swscale on 10 bits, and on
# an odd height, where chroma is interpolated.
_TOLERANCE_MPEG4, _TOLERANCE_10_BIT, _TOLERANCE_ODD_HEIGHT = 2, 6, 20


def _rows() -> list[dict[str, str]]:
    if not CORPUS.is_dir():
        return []
    with (CORPUS / "corpus.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if (CORPUS / row["file"]).exists()]


def _names(rows: list[dict[str, str]]) -> list[str]:
    return [row["file"] for row in rows]


def _wanted(clip: Clip) -> list[int]:
    """The trainer's frames of the whole clip, fewer where the clip is large or long."""
    info = clip.info
    count = count_frames([info.duration_seconds])[0]
    sample = frame_indices(
        0.0, info.duration_seconds, fps=info.fps, num_frames_in_clip=info.num_frames, count=count
    )
    indices = sorted({int(index) for index in sample.indices})
    most = max(2, MOST_PIXELS // (info.height * info.width))
    return indices[:most] if info.num_frames > 5000 else indices[:: -(-len(indices) // most)]


@pytest.mark.parametrize("name", _names(_rows()))
def test_every_clip_ends_in_frames_or_words(name: str) -> None:
    try:
        clip = open_clip(Extent(str(CORPUS / name)))
    except Rejected as rejected:
        assert rejected.reason in REASONS
        assert rejected.detail
        return
    wanted = _wanted(clip)
    got = [index for index, rgb in clip.frames(wanted) if rgb.shape == (clip.info.height, clip.info.width, 3)]
    assert got == sorted(got)
    assert sorted([*got, *clip.failures]) == wanted
    assert {failure.reason for failure in clip.failures.values()} <= set(REASONS)


def _tolerance(clip: Clip) -> int:
    if clip.info.codec == "mpeg4":
        return _TOLERANCE_MPEG4
    if "10" in clip.info.pix_fmt:
        return _TOLERANCE_10_BIT
    return _TOLERANCE_ODD_HEIGHT if clip.info.height % 2 else 0


@pytest.mark.parametrize("name", _names([row for row in _rows() if row["decord"] == "ok"]))
def test_what_decord_reads_right_is_the_same(name: str) -> None:
    clip = open_clip(Extent(str(CORPUS / name)))
    frames = dict(clip.frames(_wanted(clip)))
    if clip.info.decord_divergent:
        pytest.skip("decord counts or returns other frames than a player shows")
    assert clip.failures == {}
    reader = decord.VideoReader(str(CORPUS / name), ctx=decord.cpu(0), num_threads=1)
    assert len(reader) == clip.info.num_frames
    assert reader.get_avg_fps() == clip.info.fps or np.isnan(reader.get_avg_fps())
    for index, rgb in frames.items():
        expected = reader[index].asnumpy()
        assert rgb.shape == expected.shape
        if clip.info.height >= 32 and clip.info.width >= 32:
            size = fit_to_grid(clip.info.height, clip.info.width)
            rgb, expected = resize(rgb, *size), resize(expected, *size)
        assert np.abs(rgb.astype(int) - expected).max() <= _tolerance(clip), f"frame {index}"
