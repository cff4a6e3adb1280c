"""Opening media, choosing the stream, and what each error of the decoder library means to us.

The only place where libav's errors become reason words.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import av.error
from av.codec.hwaccel import HWAccel
from av.container.input import InputContainer
from av.video.stream import VideoStream

from clipshards.decode.boxes import lacks_moov
from clipshards.errors import Rejected

# Only local bytes: a playlist dressed up as a clip must not make us open a network address.
PROTOCOLS = "file,subfile"

# Titles that are no UTF-8 do not make a clip unusable; PyAV 19 sees to that itself.
_METADATA: dict[str, Any] = {"metadata_errors": "replace"} if int(av.__version__.split(".")[0]) < 19 else {}

_NOT_CLIPS = frozenset({"concat", "dash", "hls", "image2", "rawvideo", "sdp", "tty"})
"""Demuxers that name other files or take anything for video; so do the still pictures `*_pipe`."""

_REASON_OF_ERROR: tuple[tuple[type[BaseException], str], ...] = (
    (av.error.FileNotFoundError, "file-missing"),
    (av.error.DecoderNotFoundError, "codec-unsupported"),
    (av.error.PatchWelcomeError, "codec-unsupported"),
    (av.error.NotImplementedError, "codec-unsupported"),
    (av.error.ExperimentalError, "codec-unsupported"),
)

# What PyAV lets through besides its own family: text that is no UTF-8, values it cannot represent.
MEDIA_ERRORS = (av.error.FFmpegError, ValueError)


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a clip's bytes lie: a file of its own, or a member inside a tar."""

    path: str
    offset_bytes: int = 0
    size_bytes: int | None = None
    """None: to the end of the file."""

    @property
    def url(self) -> str:
        """Address for FFmpeg; `file:` keeps a name such as `concat:x.mp4` from choosing a protocol."""
        if self.offset_bytes == 0 and self.size_bytes is None:
            return f"file:{self.path}"
        end_bytes = 0 if self.size_bytes is None else self.offset_bytes + self.size_bytes
        return f"subfile,,start,{self.offset_bytes},end,{end_bytes},,:file:{self.path}"

    def span(self) -> tuple[int, int]:
        """The bytes that are there, as offsets [start, end) in the file."""
        return self.offset_bytes, self.offset_bytes + self.available_bytes()

    def available_bytes(self) -> int:
        """Bytes that are there: `size_bytes`, or less when the file ends before."""
        rest = max(0, Path(self.path).stat().st_size - self.offset_bytes)
        return rest if self.size_bytes is None else min(rest, self.size_bytes)


def open_media(extent: Extent, hwaccel: HWAccel | None = None) -> InputContainer:
    """Open the clip's container.

    Raises:
        Rejected: `empty-file`, `file-missing`, `moov-missing`, `not-media`, `not-a-video`, ...
    """
    try:
        if extent.available_bytes() == 0:
            raise Rejected("empty-file", f"0 bytes at {extent.offset_bytes}")
        container: InputContainer = av.open(
            extent.url, mode="r", options={"protocol_whitelist": PROTOCOLS}, hwaccel=hwaccel, **_METADATA
        )
    except FileNotFoundError as error:
        raise Rejected("file-missing", describe(error)) from error
    except MEDIA_ERRORS as error:
        default = "moov-missing" if lacks_moov(extent.path, *extent.span()) else "not-media"
        raise rejection(error, default) from error
    if container.format.name in _NOT_CLIPS or container.format.name.endswith("_pipe"):
        container.close()
        raise Rejected("not-a-video", f"container format {container.format.name}")
    return container


def video_stream(container: InputContainer) -> VideoStream:
    """The stream that a player would show: FFmpeg's best video stream, never a cover picture; one thread.

    Raises:
        Rejected: `no-video-stream`, `codec-unsupported`.
    """
    videos = [stream for stream in container.streams.video if not _is_picture(stream)]
    best = container.streams.best("video")
    stream = next((video for video in videos if best is not None and video.index == best.index), None)
    stream = stream or (videos[0] if videos else None)
    if stream is None:
        kinds = ", ".join(sorted(stream.type for stream in container.streams)) or "none"
        raise Rejected("no-video-stream", f"streams: {kinds}")
    if stream.codec_context is None:
        raise Rejected("codec-unsupported", f"no decoder for stream {stream.index}")
    stream.codec_context.thread_count = 1
    return stream


def _is_picture(stream: VideoStream) -> bool:
    return bool(stream.disposition & av.stream.Disposition.attached_pic)


def rejection(error: BaseException, default: str) -> Rejected:
    """The reject that an error of the decoder library stands for, `default` when the error is unspecific."""
    reason = next((word for kind, word in _REASON_OF_ERROR if isinstance(error, kind)), default)
    return Rejected(reason, describe(error))


def describe(error: BaseException) -> str:
    """The library's own words, without addresses, at most 120 characters."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"{type(error).__name__}: {text}"[:120]
