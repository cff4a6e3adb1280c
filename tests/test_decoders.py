"""All decoders give the CPU's frames: the same indices, the same pixels; or the CPU gives them and says why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import av
import ffmpeg
import imageio_ffmpeg
import media
import numpy as np
import numpy.typing as npt
import pytest
from av.video.reformatter import ColorRange

from clipshards.decode import choice
from clipshards.decode.decoders import DECODERS, Collected, collect, open_clip
from clipshards.decode.media import Extent
from clipshards.decode.pixels import GPU_LAYOUTS, ToRgb
from clipshards.errors import UsageError

Rgb = npt.NDArray[np.uint8]

WHOLE = [*media.ENCODED, "odd_size", "front_index", "rotated", "upside_down"]
"""Clips of NUM_FRAMES frames."""

MOST_LEVELS = {"cpu": 0, "ffmpeg": 2, "cuda": 2, "ffmpeg-cuda": 2}
"""Largest difference to the CPU's pixels. The codecs are exact and so are the conversions: 0 is expected of all,
and is what `ffmpeg` gives; the other two are not measured yet."""

EVERYWHERE = [
    *("cpu", "ffmpeg"),
    *(pytest.param(name, marks=pytest.mark.needs_gpu) for name in ("cuda", "ffmpeg-cuda")),
]


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> media.ClipFolder:
    return media.ClipFolder(tmp_path_factory.mktemp("clips"))


def _collect(path: Path, decoder: str, indices: Any = None) -> Collected[Rgb]:
    clip = open_clip(Extent(str(path)), decoder)
    return collect(clip, range(clip.info.num_frames) if indices is None else indices, lambda rgb: rgb)


def _require_same(done: Collected[Rgb], expected: Collected[Rgb], most_levels: int) -> None:
    """The same clip, frames and failures."""
    assert done.clip.info == expected.clip.info
    assert list(done.frames) == list(expected.frames)
    reasons = {index: failure.reason for index, failure in done.clip.failures.items()}
    assert reasons == {index: failure.reason for index, failure in expected.clip.failures.items()}
    for index, rgb in done.frames.items():
        assert rgb.shape == expected.frames[index].shape and rgb.flags.c_contiguous
        difference = np.abs(rgb.astype(int) - expected.frames[index])
        assert difference.max() <= most_levels, f"frame {index}"


@pytest.mark.parametrize("decoder", EVERYWHERE)
@pytest.mark.parametrize("name", WHOLE)
def test_every_index_gives_its_frame(clips: media.ClipFolder, name: str, decoder: str) -> None:
    done, expected = _collect(clips(name), decoder), _collect(clips(name), "cpu")
    _require_same(done, expected, MOST_LEVELS[decoder])
    turned = {index: np.rot90(rgb, -done.clip.info.rotation // 90) for index, rgb in done.frames.items()}
    assert {index: media.number_in(rgb) for index, rgb in turned.items()} == {i: i for i in range(60)}
    assert done.clip.decoder == ("cpu" if done.fallback else decoder)


@pytest.mark.parametrize("decoder", EVERYWHERE)
@pytest.mark.parametrize("name", ["h264_long_gop", "h264_vfr", "hevc_open_gop", "vp8_alt_ref", "edit_list"])
def test_few_frames(clips: media.ClipFolder, name: str, decoder: str) -> None:
    for indices in ([0], [36], [3, 29, 31], []):
        done = _collect(clips(name), decoder, indices)
        _require_same(done, _collect(clips(name), "cpu", indices), MOST_LEVELS[decoder])
        assert (list(done.frames), done.clip.decoder) == (indices, decoder)
    with pytest.raises(ValueError, match="must be in"):
        _collect(clips(name), decoder, [0, 60])


@pytest.mark.parametrize("decoder", EVERYWHERE)
def test_a_clip_inside_a_tar(clips: media.ClipFolder, decoder: str) -> None:
    path, offset_bytes, size_bytes = clips.in_tar("h264_short_gop")
    clip = open_clip(Extent(str(path), offset_bytes, size_bytes), decoder)
    done = collect(clip, [7, 50], lambda rgb: rgb)
    assert done.clip.decoder == decoder
    _require_same(done, _collect(clips("h264_short_gop"), "cpu", [7, 50]), MOST_LEVELS[decoder])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("damaged", "damaged"),
        ("truncated", "damaged"),
        ("no_first_key", "damaged"),
        ("h264_avi", "no display times"),
        ("h264_raw", "no display times"),
        ("size_change", "no display times"),
        ("ictcp_matrix", "ffmpeg failed"),
    ],
)
def test_what_the_program_cannot_vouch_for_is_done_by_the_cpu(
    clips: media.ClipFolder, name: str, kind: str
) -> None:
    done = _collect(clips(name), "ffmpeg")
    assert (done.clip.decoder, done.fallback.split(":")[0]) == ("cpu", kind)
    _require_same(done, _collect(clips(name), "cpu"), 0)


def test_a_turned_size_of_the_same_area_is_noticed(clips: media.ClipFolder, tmp_path: Path) -> None:
    upright = media.encode(tmp_path / "b.ts", media.WIDTH, media.HEIGHT, **media.ENCODED["h264_ts"][1])
    path = tmp_path / "both.ts"
    path.write_bytes(clips("h264_ts").read_bytes() + upright.read_bytes())
    expected = _collect(path, "cpu")
    assert "size-change" in {failure.reason for failure in expected.clip.failures.values()}
    done = _collect(path, "ffmpeg")
    assert done.clip.decoder == "cpu"
    _require_same(done, expected, 0)


def test_the_program_finds_any_number_of_frames(tmp_path: Path) -> None:
    path = tmp_path / "long.mp4"
    card = ffmpeg.input("testsrc2=s=64x64:r=25", f="lavfi", t=120)
    card.output(str(path), vcodec="libx264", preset="ultrafast", pix_fmt="yuv420p", v="error").run(
        cmd=imageio_ffmpeg.get_ffmpeg_exe()
    )
    indices = list(range(0, 3000, 2))
    done = _collect(path, "ffmpeg", indices)
    assert (list(done.frames), done.fallback) == (indices, "")


def _children() -> list[str]:
    return [
        child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()
    ]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_frames_that_nobody_wants_any_more_leave_no_program(clips: media.ClipFolder) -> None:
    before = _children()
    frames = open_clip(Extent(str(clips("h264_long_gop"))), "ffmpeg").frames(range(60))
    assert next(frames)[0] == 0
    assert len(_children()) == len(before) + 1
    frames.close()  # type: ignore[attr-defined]
    assert _children() == before


# -- the GPU, as far as it can be tested without one


def _without_gpu() -> bool:
    return choice.choose_decoder("auto").decoder == "cpu"


@pytest.mark.parametrize("decoder", ["cuda", "ffmpeg-cuda"])
def test_without_a_gpu_the_cpu_does_the_clip_and_says_why(clips: media.ClipFolder, decoder: str) -> None:
    if not _without_gpu():
        pytest.skip("there is a GPU")
    done = _collect(clips("h264_short_gop"), decoder, [3, 40])
    kind, _, words = done.fallback.partition(": ")
    assert (done.clip.decoder, kind) == ("cpu", "no GPU" if decoder == "cuda" else "ffmpeg failed")
    assert words
    _require_same(done, _collect(clips("h264_short_gop"), "cpu", [3, 40]), 0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("h264_10_bit", "h264 yuv420p10le"), ("h264_444", "h264 yuv444p"), ("mpeg4", "mpeg4 yuv420p")],
)
def test_formats_that_gpus_do_not_decode_are_left_to_the_cpu(clips: media.ClipFolder, name: str, kind: str) -> None:
    done = _collect(clips(name), "cuda", [5])
    assert (done.clip.decoder, done.fallback) == ("cpu", kind)
    assert media.number_in(done.frames[5]) == 5
    by_program = _collect(clips(name), "ffmpeg-cuda", [5])  # the program decodes such clips without the GPU
    assert (by_program.clip.decoder, by_program.fallback) == ("ffmpeg-cuda", "")
    assert media.number_in(by_program.frames[5]) == 5


@pytest.mark.parametrize("pix_fmt", GPU_LAYOUTS)
@pytest.mark.parametrize("size", [(192, 320), (190, 322)])
def test_colours_of_the_gpu_layout_are_those_of_the_cpu(pix_fmt: str, size: tuple[int, int]) -> None:
    """NV12 and P010 hold the same values as the CPU's layouts; through them RGB must be the same as well."""
    convert = ToRgb(pix_fmt, 0)
    for number in range(3):
        frame = av.VideoFrame.from_ndarray(media.picture(number, *size), format="rgb24").reformat(format=pix_fmt)
        frame.color_range = ColorRange.JPEG if pix_fmt == "yuvj420p" else ColorRange.MPEG  # as decoders say
        on_gpu = frame.reformat(format=GPU_LAYOUTS[pix_fmt])
        np.testing.assert_array_equal(convert(on_gpu), convert(frame))


def test_choosing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_gpu_trouble", lambda: "no driver")
    assert choice.choose_decoder("auto") == choice.Choice("cpu", "no GPU: no driver")
    assert choice.choose_decoder("cpu").decoder == "cpu"
    assert choice.choose_decoder("ffmpeg") == choice.Choice("ffmpeg", "no GPU: no driver")
    with pytest.raises(UsageError, match=r"--decoder cuda.*no driver.*--decoder auto"):
        choice.choose_decoder("cuda")
    with pytest.raises(UsageError, match="'nvdec'"):
        choice.choose_decoder("nvdec")
    monkeypatch.setattr(choice, "_gpu_trouble", lambda: "")
    chosen = {asked: choice.choose_decoder(asked).decoder for asked in choice.ASKED}
    assert chosen == {"auto": "cuda", "cpu": "cpu", "cuda": "cuda", "ffmpeg": "ffmpeg-cuda"}
    assert set(chosen.values()) <= set(DECODERS)


@pytest.mark.parametrize(
    ("script", "words"),
    [("sleep 60", "no answer within 1 s"), ("kill -SEGV $$", f"exit code {-signal.SIGSEGV}"), ("exit 3", "code 3")],
)
def test_a_probe_that_hangs_or_dies_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec 1>&-\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(choice, "_PROBE_SECONDS", 1.0)
    choice._gpu_trouble.cache_clear()
    started = time.monotonic()
    try:
        assert words in choice._gpu_trouble()
    finally:
        choice._gpu_trouble.cache_clear()
    assert time.monotonic() - started < 20


def test_the_probe_says_what_is_missing() -> None:
    if not _without_gpu():
        pytest.skip("there is a GPU")
    assert choice.choose_decoder("auto").why.startswith("no GPU: ")
    assert "\n" not in choice.choose_decoder("auto").why
    assert choice.choose_decoder("auto") == choice.choose_decoder("auto")


# -- on a GPU


@pytest.mark.needs_gpu
def test_the_probe_finds_the_gpu() -> None:
    assert choice.choose_decoder("auto").decoder == "cuda"


@pytest.mark.needs_gpu
@pytest.mark.parametrize("name", ["h264_long_gop", "h264_open_gop", "h264_vfr", "hevc", "vp8_alt_ref", "rotated"])
def test_the_gpu_gives_the_frames_itself(clips: media.ClipFolder, name: str) -> None:
    done = _collect(clips(name), "cuda")
    assert (done.clip.decoder, done.fallback) == ("cuda", "")


@pytest.mark.needs_gpu
def test_a_size_that_the_gpu_refuses_is_done_by_the_cpu(tmp_path: Path) -> None:
    path = media.encode(tmp_path / "tiny.mp4", 16, 16, **media.ENCODED["h264_short_gop"][1])
    done = _collect(path, "cuda")
    assert done.clip.decoder == "cpu" and done.fallback
    _require_same(done, _collect(path, "cpu"), 0)


@pytest.mark.needs_gpu
@pytest.mark.parametrize("decoder", ["cuda", "ffmpeg-cuda"])
def test_clips_of_changing_sizes_one_after_the_other(tmp_path: Path, decoder: str) -> None:
    """A decoder that is kept between clips could crop the next one to the size of the last."""
    for height, width in ((192, 320), (194, 320), (256, 256), (192, 320)):
        path = media.encode(tmp_path / f"{height}.mp4", height, width, **media.ENCODED["h264_short_gop"][1])
        _require_same(_collect(path, decoder), _collect(path, "cpu"), MOST_LEVELS[decoder])


@pytest.mark.parametrize(("asked", "word", "code"), [("", "1 skipped", 0), ("1", "1 error", 1)])
def test_without_a_gpu_its_tests_are_skipped_or_fail_on_request(asked: str, word: str, code: int) -> None:
    if not _without_gpu():
        pytest.skip("there is a GPU")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__, "-k", "the_probe_finds_the_gpu"]
    done = subprocess.run(command, env={**os.environ, "FAIL_WITHOUT_GPU": asked}, capture_output=True, text=True)
    assert word in done.stdout and done.returncode == code


# -- scripts/gpu-check


def test_the_check_compares_a_clip(clips: media.ClipFolder) -> None:
    from scripts.gpu_check import Comparison, compare_clip

    same = compare_clip((Extent(str(clips("h264_short_gop"))), "ffmpeg"))
    assert (same.num_frames, same.num_mismatched, same.largest) == (4, 0, 0)
    assert same.num_equal == same.num_values == 4 * media.HEIGHT * media.WIDTH * 3
    assert compare_clip((Extent(str(clips("h264_raw"))), "ffmpeg")) == Comparison(fallback="no display times")
    assert compare_clip((Extent(str(clips("no_moov"))), "ffmpeg")) == Comparison(reason="moov-missing")


def test_the_check_says_how_it_is_called(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "scripts" / "gpu-check"
    helped = subprocess.run([script, "--help"], capture_output=True, text=True)
    assert helped.returncode == 0 and "--wheels FOLDER" in helped.stdout
    wrong = subprocess.run([script, tmp_path / "none"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "--wheels" in wrong.stderr
