"""Memory and handles of a decoder's process stay bounded: by large pictures, long clips, and many clips."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import ffmpeg
import imageio_ffmpeg
import media
import pytest

BASE = """
import sys
from pathlib import Path
from clipshards.decode.media import Extent
from clipshards.images import use_one_thread
from clipshards.plan import make_view
from clipshards.rendering import ClipJob, render_clip
from clipshards.sampling import GRASP_TRAIN

use_one_thread()
clip, folder = Path(sys.argv[1]), Path(sys.argv[2])
view = make_view("s/clip.mp4", None, None, None, GRASP_TRAIN)

def render():
    outcome = render_clip(ClipJob("s/clip.mp4", Extent(str(clip)), (view,), GRASP_TRAIN, 95, folder))
    assert outcome.views, outcome.reason + outcome.detail

def status(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) // 1024
"""


def measure(clip: Path, folder: Path, code: str) -> list[int]:
    """Numbers that `code` prints in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", BASE + code, str(clip), str(folder)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    return [int(word) for word in done.stdout.split()]


def encode(path: Path, size: str, frames: int, **options: object) -> Path:
    card = ffmpeg.input(f"testsrc2=s={size}:r=30", f="lavfi")
    x264 = {"vcodec": "libx264", "preset": "ultrafast", "pix_fmt": "yuv420p"}
    output = card.output(str(path), vframes=frames, **x264, **options)
    output.global_args("-v", "error").run(cmd=imageio_ffmpeg.get_ffmpeg_exe())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("bounds")


def test_a_long_clip_takes_no_more_than_a_short_one(folder: Path) -> None:
    short, long = encode(folder / "short.mp4", "320x180", 100), encode(folder / "long.mp4", "320x180", 10_000)
    code = "render(); print(status('VmHWM'))"
    (peak_of_short,), (peak_of_long,) = measure(short, folder, code), measure(long, folder, code)
    # 512 stored pictures, and a row for each of 10,000 packets.
    assert peak_of_long < peak_of_short + 60, f"{peak_of_short} MB, {peak_of_long} MB"
    assert peak_of_long < 250


def test_an_8k_clip(folder: Path) -> None:
    clip = encode(folder / "8k.mp4", "7680x4320", 12, threads=1)
    (peak,) = measure(clip, folder, "render(); print(status('VmHWM'))")
    assert peak < 900, f"{peak} MB; a picture of it takes 100 MB as RGB and 50 MB in each place of the decoder"


def test_a_thousand_clips_do_not_grow_the_process(folder: Path) -> None:
    clip = media.ClipFolder(folder)("h264_short_gop")
    code = """
import os
for number in range(1, 1001):
    render()
    if number in (200, 1000):
        print(status("VmRSS"), len(os.listdir("/proc/self/fd")))
"""
    early, early_handles, late, late_handles = measure(clip, folder, code)
    assert late - early < 16, f"{early} MB after 200 clips, {late} MB after 1,000"
    assert late_handles == early_handles
