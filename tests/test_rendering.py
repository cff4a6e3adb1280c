"""What is said of the frames of a view: that they repeat, stand still, or could not be had in time."""

from __future__ import annotations

import time
from pathlib import Path

import ffmpeg
import imageio_ffmpeg
import media
import pytest

from clipshards.decode.media import Extent
from clipshards.decode.pool import WorkerPool
from clipshards.plan import make_view
from clipshards.rendering import ClipJob, ClipOutcome, rejected_clip, render_clip
from clipshards.sampling import GRASP_TRAIN


def job(path: Path, folder: Path, start: float, end: float, num_frames: int) -> ClipJob:
    view = make_view("s/clip.mp4", start, end, num_frames, GRASP_TRAIN)
    return ClipJob("s/clip.mp4", Extent(str(path)), (view,), GRASP_TRAIN, 95, folder)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> media.ClipFolder:
    return media.ClipFolder(tmp_path_factory.mktemp("clips"))


def encode(path: Path, source: str, **options: object) -> Path:
    output = ffmpeg.input(source, f="lavfi", t=2).output(str(path), vcodec="libx264", pix_fmt="yuv420p", **options)
    output.global_args("-v", "error", "-y").run(cmd=imageio_ffmpeg.get_ffmpeg_exe())
    return path


def test_a_window_shorter_than_its_frames_repeats_them(clips: media.ClipFolder, tmp_path: Path) -> None:
    (view,) = render_clip(job(clips("h264_short_gop"), tmp_path, 0.0, 0.1, 6)).views
    assert (view.num_frames, view.warnings) == (6, ("short-clip",))


def test_a_clip_that_stands_still(tmp_path: Path) -> None:
    path = encode(tmp_path / "black.mp4", "color=black:s=128x96:r=30")
    (view,) = render_clip(job(path, tmp_path, 0.0, 2.0, 4)).views
    assert view.warnings == ("static-clip",)


def test_a_clip_that_freezes(tmp_path: Path) -> None:
    path = encode(tmp_path / "frozen.mp4", "testsrc2=s=128x96:r=30", vf="loop=loop=60:size=1:start=30", qp=0, t=2)
    (view,) = render_clip(job(path, tmp_path, 0.0, 2.0, 8)).views
    assert view.warnings == ("frozen-frames",)


def test_a_clip_with_motion_has_no_warning(clips: media.ClipFolder, tmp_path: Path) -> None:
    (view,) = render_clip(job(clips("h264_short_gop"), tmp_path, 0.0, 2.0, 4)).views
    assert view.warnings == ()


def hang(job: ClipJob) -> ClipOutcome:
    """A decoder that never comes back; runs in a worker."""
    time.sleep(60)
    raise AssertionError("it was not killed")


def test_a_decoder_that_hangs_costs_its_clip(clips: media.ClipFolder, tmp_path: Path) -> None:
    with WorkerPool(1, job_seconds=1.0) as pool:
        asked = job(clips("h264_short_gop"), tmp_path, 0.0, 1.0, 2)
        (outcome,) = pool.run(hang, [asked], lambda job, words: rejected_clip(job, "time-limit", words))
        assert (outcome.reason, outcome.detail) == ("time-limit", "no result after 1 s")
        assert [reason for _, reason, _ in outcome.rejected_views] == ["time-limit"]


def test_an_encrypted_clip(tmp_path: Path) -> None:
    key = {"encryption_scheme": "cenc-aes-ctr", "encryption_key": "0" * 32, "encryption_kid": "1" * 32}
    path = encode(tmp_path / "encrypted.mp4", "testsrc2=s=128x96:r=30", **key)
    assert render_clip(job(path, tmp_path, 0.0, 1.0, 2)).reason == "encrypted"
