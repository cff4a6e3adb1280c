"""Every frame of every kind of clip, seen in its pixels; and a word for everything that is no good clip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import av.error
import decord
import media
import numpy as np
import pytest
from av.container.input import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from clipshards.decode.cpu import Clip
from clipshards.decode.decoders import open_clip
from clipshards.decode.media import Extent
from clipshards.decode.plan import Run, governing_key, plan_runs
from clipshards.decode.probe import PacketTable, media_packets
from clipshards.errors import Rejected
from clipshards.schema import REASONS

WHOLE = [*media.ENCODED, "odd_size", "front_index"]
"""Clips that hold all NUM_FRAMES frames in order."""

OPEN_GOPS = {"h264_open_gop", "h264_intra_refresh", "hevc_open_gop", "mpeg4"}
DIVERGENT = {*OPEN_GOPS, "h264_avi", "h264_ts", "h264_raw"}


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> media.ClipFolder:
    return media.ClipFolder(tmp_path_factory.mktemp("clips"))


def _open(path: Path) -> Clip:
    return open_clip(Extent(str(path)))


def _numbers(clip: Clip, indices: list[int]) -> dict[int, int]:
    return {index: media.number_in(rgb) for index, rgb in clip.frames(indices)}


@pytest.mark.parametrize("name", WHOLE)
def test_every_index_gives_its_frame(clips: media.ClipFolder, name: str) -> None:
    clip = _open(clips(name))
    assert clip.info.num_frames == media.NUM_FRAMES
    numbers = _numbers(clip, list(range(media.NUM_FRAMES)))
    assert clip.failures == {}
    assert numbers == {index: index for index in range(media.NUM_FRAMES)}


@pytest.mark.parametrize("name", WHOLE)
def test_few_frames_are_the_same_pixels_as_all_frames(clips: media.ClipFolder, name: str) -> None:
    clip = _open(clips(name))
    everything = dict(clip.frames(range(media.NUM_FRAMES)))
    random = np.random.default_rng(0)
    for indices in ([0], [59], [3, 29, 31], sorted(random.choice(60, 8, replace=False).tolist())):
        some = dict(clip.frames(indices))
        assert list(some) == indices
        for index, rgb in some.items():
            assert rgb.flags.c_contiguous
            np.testing.assert_array_equal(rgb, everything[index], err_msg=f"frame {index} of {indices}")


@pytest.mark.parametrize("name", [*WHOLE, "rotated", "upside_down"])
def test_frames_equal_decord(clips: media.ClipFolder, name: str) -> None:
    path = clips(name)
    clip = _open(path)
    assert clip.info.decord_divergent == (name in DIVERGENT)
    if clip.info.decord_divergent:
        return
    reader = decord.VideoReader(str(path), ctx=decord.cpu(0), num_threads=1)
    assert (len(reader), reader.get_avg_fps()) == (clip.info.num_frames, clip.info.fps)
    worst, worst_mean = 0, 0.0
    for index, rgb in clip.frames(range(0, 60, 7)):
        assert rgb.shape == (clip.info.height, clip.info.width, 3) == tuple(reader[index].shape)
        difference = np.abs(reader[index].asnumpy().astype(int) - rgb)
        worst, worst_mean = max(worst, int(difference.max())), max(worst_mean, float(difference.mean()))
    # swscale places the chroma of 10-bit pictures otherwise than decord's old one: seen at colour edges.
    assert worst <= (64 if name == "h264_10_bit" else 0)
    assert worst_mean < 3


def test_rotation_is_applied(clips: media.ClipFolder) -> None:
    clip = _open(clips("rotated"))
    assert abs(clip.info.rotation) == 90
    assert (clip.info.height, clip.info.width) == (media.WIDTH, media.HEIGHT)
    assert clip.info.warnings == ("rotated",)
    stored = dict(_open(clips("h264_short_gop")).frames([5, 44]))
    for index, rgb in clip.frames([5, 44]):
        np.testing.assert_array_equal(rgb, np.rot90(stored[index], clip.info.rotation // 90))


def test_hidden_frames_of_an_edit_list_are_no_frames(clips: media.ClipFolder) -> None:
    clip = _open(clips("edit_list"))
    assert clip.info.decord_divergent
    assert clip.info.warnings == ("edit-list-trim",)
    numbers = _numbers(clip, list(range(clip.info.num_frames)))
    first = media.NUM_FRAMES - clip.info.num_frames
    assert first == pytest.approx(0.9 * media.FPS, abs=1)
    assert numbers == {index: first + index for index in range(clip.info.num_frames)}


def test_a_clip_inside_a_tar(clips: media.ClipFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path, offset_bytes, size_bytes = clips.in_tar("h264_short_gop")
    alone = dict(_open(clips("h264_short_gop")).frames([7, 50]))
    monkeypatch.chdir(path.parent)
    for name in (str(path), path.name):
        clip = open_clip(Extent(name, offset_bytes, size_bytes))
        assert clip.info.num_frames == media.NUM_FRAMES
        for index, rgb in clip.frames([7, 50]):
            np.testing.assert_array_equal(rgb, alone[index])
    with pytest.raises(Rejected, match="empty-file"):
        open_clip(Extent(str(path), 512, 0))


def test_a_name_cannot_choose_a_protocol(clips: media.ClipFolder, tmp_path: Path) -> None:
    path = tmp_path / "concat:a,b ?#%20.mp4"
    path.write_bytes(clips("h264_short_gop").read_bytes())
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert open_clip(Extent(path.name)).info.num_frames == media.NUM_FRAMES
    finally:
        os.chdir(before)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty", "empty-file"),
        ("text", "not-media"),
        ("playlist", "not-media"),
        ("no_moov", "moov-missing"),
        ("no_size", "no-decodable-frames"),
        ("sound_only", "no-video-stream"),
        ("still", "not-a-video"),
    ],
)
def test_what_is_no_clip_has_a_word(clips: media.ClipFolder, name: str, reason: str) -> None:
    with pytest.raises(Rejected) as caught:
        _open(clips(name))
    assert caught.value.reason == reason
    assert caught.value.reason in REASONS


def test_a_missing_file_has_a_word(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="file-missing"):
        _open(tmp_path / "nothing.mp4")


def test_a_truncated_clip_gives_the_frames_that_are_there(clips: media.ClipFolder) -> None:
    clip = _open(clips("truncated"))
    assert clip.info.is_truncated
    assert 20 < clip.info.num_frames < media.NUM_FRAMES
    numbers = _numbers(clip, list(range(clip.info.num_frames)))
    assert all(index == number for index, number in numbers.items())
    assert len(numbers) >= clip.info.num_frames - 4
    assert set(numbers) | set(clip.failures) == set(range(clip.info.num_frames))
    assert {failure.reason for failure in clip.failures.values()} <= {"truncated-media", "decode-errors"}


def test_damage_takes_its_gop_and_no_more(clips: media.ClipFolder) -> None:
    clip = _open(clips("damaged"))
    good = dict(_open(clips("front_index")).frames(range(media.NUM_FRAMES)))
    kept = dict(clip.frames(range(media.NUM_FRAMES)))
    assert list(kept) == sorted(kept)
    assert set(kept) | set(clip.failures) == set(range(media.NUM_FRAMES))
    assert 1 <= len(clip.failures) <= 24
    assert {failure.reason for failure in clip.failures.values()} == {"decode-errors"}
    for index, rgb in kept.items():
        np.testing.assert_array_equal(rgb, good[index], err_msg=f"frame {index}")


def test_frames_before_the_first_key_frame(clips: media.ClipFolder) -> None:
    clip = _open(clips("no_first_key"))
    numbers = _numbers(clip, list(range(clip.info.num_frames)))
    assert {failure.reason for failure in clip.failures.values()} == {"no-leading-keyframe"}
    assert max(clip.failures) < min(numbers)
    assert list(numbers.values()) == list(range(min(numbers.values()), media.NUM_FRAMES))


def test_another_size_in_the_middle(clips: media.ClipFolder) -> None:
    clip = _open(clips("size_change"))
    kept = dict(clip.frames(range(clip.info.num_frames)))
    assert list(kept) == list(range(media.NUM_FRAMES))
    assert {failure.reason for failure in clip.failures.values()} == {"size-change"}


def test_a_stream_that_appears_late_is_no_end(clips: media.ClipFolder) -> None:
    clip = _open(clips("late_sound"))
    assert clip.info.num_frames == 5 * media.NUM_FRAMES
    assert not clip.info.is_truncated
    assert _numbers(clip, [0, 61, 299]) == {0: 0, 61: 1, 299: 59}
    assert clip.failures == {}


@pytest.mark.parametrize("name", ["h264_avi", "rotated"])
def test_what_came_before_an_error_of_the_container(
    clips: media.ClipFolder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    whole = _open(clips(name))
    expected = dict(whole.frames(range(30)))

    def first_packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
        yield from islice(media_packets(container, stream), 40)
        raise av.error.InvalidDataError(1, "Invalid data found")

    monkeypatch.setattr("clipshards.decode.probe.media_packets", first_packets)
    monkeypatch.setattr("clipshards.decode.cpu.media_packets", first_packets)
    clip = _open(clips(name))
    assert clip.info.is_truncated
    assert clip.info.num_frames == 40
    assert set(clip.info.warnings) == {*whole.info.warnings, "truncated-media"}
    same = ("rotation", "height", "width", "pix_fmt")
    assert all(getattr(clip.info, field) == getattr(whole.info, field) for field in same)
    frames = dict(clip.frames(range(30)))
    assert list(frames) == list(expected)
    for index, rgb in frames.items():
        np.testing.assert_array_equal(rgb, expected[index])


def test_a_rate_is_positive_whatever_the_header_says(clips: media.ClipFolder) -> None:
    info = _open(clips("negative_rate")).info
    assert info.fps == pytest.approx(media.FPS, rel=0.01)
    assert info.duration_seconds == pytest.approx(media.NUM_FRAMES / media.FPS, rel=0.01)


def test_a_reserved_colour_matrix_is_none(clips: media.ClipFolder) -> None:
    indices = [0, 31, 59]
    plain = dict(_open(clips("h264_short_gop")).frames(indices))
    frames = dict(_open(clips("reserved_matrix")).frames(indices))
    expected = decord.VideoReader(str(clips("reserved_matrix"))).get_batch(indices).asnumpy()
    for index, rgb in zip(indices, expected, strict=True):
        np.testing.assert_array_equal(frames[index], plain[index])
        np.testing.assert_array_equal(frames[index], rgb)


def test_colours_that_cannot_be_converted(clips: media.ClipFolder) -> None:
    clip = _open(clips("ictcp_matrix"))
    assert _numbers(clip, [3, 50]) == {}
    assert {index: failure.reason for index, failure in clip.failures.items()} == dict.fromkeys(
        [3, 50], "codec-unsupported"
    )
    assert "yuv420p, matrix 14" in clip.failures[3].detail


def test_a_matrix_that_is_no_rotation_turns_nothing(clips: media.ClipFolder) -> None:
    clip = _open(clips("flat_matrix"))
    assert (clip.info.rotation, clip.info.height, clip.info.width) == (0, media.HEIGHT, media.WIDTH)
    assert "rotated" not in clip.info.warnings
    assert _numbers(clip, [0, 59]) == {0: 0, 59: 59}


def test_indices_must_be_in_the_clip(clips: media.ClipFolder) -> None:
    clip = _open(clips("h264_short_gop"))
    with pytest.raises(ValueError, match=r"must be in \[0, 60\)"):
        list(clip.frames([0, 60]))
    assert list(clip.frames([])) == []
    assert [index for index, _ in clip.frames([4, 4, 2])] == [2, 4]


def test_probing_and_decoding_write_nothing_to_stderr(clips: media.ClipFolder) -> None:
    code = (
        "import sys; from clipshards.decode.decoders import open_clip; from clipshards.decode.media import Extent;"
        "clip = open_clip(Extent(sys.argv[1])); print(len(list(clip.frames(range(60)))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(clips("damaged"))], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def _table(pts: list[int], keys: list[int]) -> PacketTable:
    flags = np.zeros(len(pts), np.bool_)
    return PacketTable(
        pts=np.array(pts),
        is_key=np.isin(np.arange(len(pts)), keys),
        is_trimmed=flags,
        is_corrupt=flags,
        is_encrypted=flags,
        frame_packets=np.argsort(pts),
    )


def test_leading_pictures_start_at_the_gop_before() -> None:
    table = _table([0, 3, 1, 2, 6, 4, 5, 7], keys=[0, 4])
    assert [governing_key(table, packet) for packet in range(8)] == [0, 0, 0, 0, 4, 0, 0, 4]
    assert plan_runs(table, [5]) == (Run(0, 5),)
    assert plan_runs(table, [4]) == (Run(4, 4),)


def test_runs_join_only_when_nothing_lies_between() -> None:
    table = _table(list(range(12)), keys=[0, 4, 8])
    assert plan_runs(table, [1, 3, 5]) == (Run(0, 5),)
    assert plan_runs(table, [1, 5, 9]) == (Run(0, 1), Run(4, 5), Run(8, 9))
    assert plan_runs(table, []) == ()
