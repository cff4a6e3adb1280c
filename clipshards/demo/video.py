"""Draws a clip and encodes it with the ffmpeg program: the same bytes on each machine."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cv2
import ffmpeg
import imageio_ffmpeg

from clipshards.demo.clips import VFR_SETPTS, VFR_TICKS_PER_SECOND, Clip, Codec
from clipshards.demo.draw import Picture, draw_frame
from clipshards.errors import ClipshardsError

_ENCODERS: dict[Codec, dict[str, str]] = {
    "h264": {
        "vcodec": "libx264",
        "preset": "veryfast",
        "crf": "23",
        "x264-params": "threads=1:cpu-independent=1:keyint=60:bframes=3",
    },
    "hevc": {
        "vcodec": "libx265",
        "preset": "veryfast",
        "crf": "26",
        "tag:v": "hvc1",
        "x265-params": "pools=none:frame-threads=1:wpp=0:open-gop=0:keyint=60:bframes=3:log-level=error",
    },
}


def encode_clip(clip: Clip) -> bytes:
    """The clip as an MP4 file: yuv420p, B-frames, no clock time or encoder threads in it.

    Raises:
        ClipshardsError: when ffmpeg fails; with what it said.
    """
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        path = Path(folder) / clip.name
        command = _command(clip, path)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log) as process:
            assert process.stdin is not None
            try:
                for frame in frames(clip):
                    process.stdin.write(frame.tobytes())
                process.stdin.close()
            except BrokenPipeError:
                pass
        if process.returncode != 0:
            log.seek(0, os.SEEK_SET)
            said = log.read().decode(errors="replace").strip()
            raise ClipshardsError(f"ffmpeg failed on demo clip {clip.path} ({process.returncode}): {said}")
        return path.read_bytes()


def frames(clip: Clip) -> Iterator[Picture]:
    """Pictures of the clip, uint8 [height, width, 3] RGB, in the order in which they are shown."""
    for seconds in clip.frame_seconds:
        yield draw_frame(clip.scene, seconds, clip.width, clip.height)


def _command(clip: Clip, path: Path) -> list[str]:
    rate = VFR_TICKS_PER_SECOND if clip.variable_rate else clip.fps
    stream = ffmpeg.input(
        "pipe:", format="rawvideo", pix_fmt="rgb24", s=f"{clip.width}x{clip.height}", framerate=str(rate)
    )
    if clip.variable_rate:
        stream = stream.filter("setpts", VFR_SETPTS)
    output = ffmpeg.output(
        stream,
        str(path),
        pix_fmt="yuv420p",
        sws_flags="bitexact+accurate_rnd+full_chroma_int",
        threads=1,
        fps_mode="vfr" if clip.variable_rate else "cfr",
        map_metadata=-1,
        fflags="+bitexact",
        movflags="+faststart",
        **{"flags:v": "+bitexact"},
        **_ENCODERS[clip.codec],
    )
    quiet = output.global_args("-v", "error", "-nostdin", "-filter_threads", "1")
    command: list[str] = ffmpeg.compile(quiet, cmd=imageio_ffmpeg.get_ffmpeg_exe(), overwrite_output=True)
    return command
