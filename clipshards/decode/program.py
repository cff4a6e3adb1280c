"""Decoding with the ffmpeg program: it selects the wanted frames by their times and writes them to a pipe.

    clip ──demux──decode──select pts──rgb24──▶ NUT on a pipe: each picture with its time
                                               messages: in a file, as nobody reads a second pipe

The program decodes the clip from its start to its end: where damage lies cannot be told from its messages, so
any sign of it raises FallBack and the CPU does the clip, whatever the program made of it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import IO, Any, ClassVar

import av
import ffmpeg
import imageio_ffmpeg
import numpy as np

from clipshards.decode.cpu import Clip
from clipshards.decode.cuda import require_gpu_format, require_undamaged
from clipshards.decode.decoder import tells_of_damage
from clipshards.decode.media import MEDIA_ERRORS, PROTOCOLS, describe, open_media, video_stream
from clipshards.decode.pixels import GPU_LAYOUTS, as_shown
from clipshards.errors import FallBack
from clipshards.images import Rgb

_MOST_SECONDS = 600  # of CPU time; the program must not outlive a worker that was killed for its time

_LEVEL = re.compile(r"\[(fatal|panic|error|warning)\] (.*)")


class ProgramClip(Clip):
    """A clip decoded by the ffmpeg program."""

    decoder: ClassVar[str] = "ffmpeg"

    def frames(self, indices: Iterable[int]) -> Iterator[tuple[int, Rgb]]:
        """As `Clip.frames`, but FallBack when not all of them can be had from the program."""
        missing = self._decodable(indices)
        require_undamaged(self.table, self.failures)
        if not missing:
            return
        tick_of = self._ticks(missing)
        with tempfile.TemporaryDirectory(prefix="clipshards-") as folder:
            for tick, rgb in self._run(list(tick_of.values()), Path(folder)):
                if not missing or tick != tick_of[missing[0]]:
                    raise FallBack("missing frames: the program gave others")
                yield missing.popleft(), rgb
        if missing:
            raise FallBack("missing frames: the program gave none")

    def _ticks(self, indices: Iterable[int]) -> dict[int, int]:
        """By index the time of the frame, by which the program finds it."""
        if not self.table.has_times:
            raise FallBack("no display times")
        of_frames = self.table.pts[self.table.frame_packets]
        if (np.diff(of_frames) == 0).any():
            raise FallBack("frames of equal time")
        return {index: int(of_frames[index]) for index in indices}

    def _run(self, ticks: Sequence[int], folder: Path) -> Iterator[tuple[int, Rgb]]:
        """(time in ticks, picture as shown) of what the program gives."""
        with open_media(self.extent) as container:
            stream = video_stream(container)
            stream_index, tick_seconds = stream.index, stream.time_base or Fraction(1)
        (folder / "filters").write_text(self._filters(ticks))
        command = self._command(stream_index, folder / "filters")
        height, width = (self.info.height, self.info.width)[:: -1 if self.info.rotation % 180 else 1]
        with _running(command, folder / "messages") as pictures:
            with av.open(f"pipe:{pictures.fileno()}", format="nut", options={"protocol_whitelist": "pipe"}) as nut:
                (raw,) = nut.streams.video
                for packet in nut.demux(raw):
                    if packet.size == 0:
                        continue
                    if packet.size != height * width * 3 or packet.pts is None or raw.time_base is None:
                        raise FallBack(f"size-change: a picture of {packet.size} bytes")
                    rgb = np.frombuffer(memoryview(packet), np.uint8).reshape(height, width, 3)
                    tick = ticks[0] + packet.pts * raw.time_base / tick_seconds
                    yield int(tick), as_shown(rgb, self.info.rotation)

    def _command(self, stream_index: int, filters: Path) -> list[str]:
        source = ffmpeg.input(self.extent.url, **self._input_options())[str(stream_index)]
        output = source.output(
            "pipe:1",
            **{"/filter:v": str(filters)},  # read from a file: an argument may have 128 kB
            fps_mode="passthrough",
            enc_time_base="demux",
            map_metadata=-1,  # titles that are no UTF-8
            vcodec="rawvideo",
            format="nut",
        )
        output = output.global_args("-v", "repeat+level+warning", "-nostdin", "-copyts", "-filter_threads", "1")
        output = output.global_args("-timelimit", str(_MOST_SECONDS))
        command: list[str] = output.compile(cmd=imageio_ffmpeg.get_ffmpeg_exe())
        return command

    def _input_options(self) -> dict[str, Any]:
        # drop_changed: a picture of another size is missing then, and not scaled.
        return {"threads": 1, "noautorotate": None, "drop_changed": 1, "protocol_whitelist": PROTOCOLS}

    def _filters(self, ticks: Sequence[int]) -> str:
        # As PyAV calls swscale, which looks at the frame: decoders of H.264 and HEVC say where the chroma lies.
        chroma = "left" if self.info.codec in ("h264", "hevc") else "center"
        to_rgb24 = f"scale=flags=bilinear:in_chroma_loc={chroma},format=rgb24"
        # NUT has no negative times.
        return f"select='{_is_one_of(ticks)}',setpts=PTS-({ticks[0]}),{to_rgb24}"


class ProgramOnGpuClip(ProgramClip):
    """A clip decoded by the ffmpeg program on the GPU, or by the program alone where GPUs do not decode such."""

    decoder: ClassVar[str] = "ffmpeg-cuda"

    def _input_options(self) -> dict[str, Any]:
        options = super()._input_options()
        if self._is_on_gpu():
            options |= {"hwaccel": "cuda", "hwaccel_output_format": "cuda"}
        return options

    def _filters(self, ticks: Sequence[int]) -> str:
        filters = super()._filters(ticks)
        if self._is_on_gpu():
            layout = f"hwdownload,format={GPU_LAYOUTS[self.info.pix_fmt]},format={self.info.pix_fmt}"
            filters = filters.replace(",scale=", f",{layout},scale=")
        return filters

    def _is_on_gpu(self) -> bool:
        try:
            require_gpu_format(self.info)
        except FallBack:
            return False
        return True


def _is_one_of(ticks: Sequence[int]) -> str:
    """FFmpeg expression that is not 0 when `pts` is one of the ascending `ticks`: a search tree.

    A sum of comparisons may have 100 terms, a balanced one 512.
    """
    if len(ticks) == 1:
        return f"eq(pts,{ticks[0]})"
    middle = len(ticks) // 2
    return f"if(lt(pts,{ticks[middle]}),{_is_one_of(ticks[:middle])},{_is_one_of(ticks[middle:])})"


@contextmanager
def _running(command: Sequence[str], messages: Path) -> Iterator[IO[bytes]]:
    """The program's output while it runs; afterwards FallBack when it failed or told of damage."""
    with messages.open("wb") as file:
        # A session of its own: Ctrl-C must not cut a clip short. When we die, the broken pipe ends it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, start_new_session=True
        )
    assert process.stdout is not None
    try:
        yield process.stdout
        process.wait()
    except MEDIA_ERRORS as error:  # no output that can be read; usually the program has said why and ended
        raise FallBack(f"ffmpeg failed: {_complaint(messages) or describe(error)}") from error
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    if complaint := _complaint(messages):
        raise FallBack(f"damaged: {complaint}")
    if process.returncode:
        raise FallBack(f"ffmpeg failed: exit code {process.returncode}")


def _complaint(messages: Path) -> str:
    """The first message that tells of damage or of the end of the program, "" without one."""
    for line in messages.read_text(errors="replace").splitlines():
        if found := _LEVEL.search(line):
            level, text = found.groups()
            if level in ("fatal", "panic") or tells_of_damage(text, is_error=level == "error"):
                return text[:120]
    return ""
