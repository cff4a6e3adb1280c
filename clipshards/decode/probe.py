"""One pass over the packets of a clip: which frames it holds, in which order, at which rate and size.

    container ──demux──▶ PacketTable (decode order)  ──sort by pts──▶ frame i = i-th packet that is shown

Nothing of a header is trusted but rates and sizes: the number of frames is counted. Packets that a player
does not show (edit lists, VP8/VP9 reference pictures) are no frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from av.container.input import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from clipshards.decode.boxes import has_split_runs
from clipshards.decode.decoder import Decoder
from clipshards.decode.media import MEDIA_ERRORS, Extent, describe, open_media, rejection, video_stream
from clipshards.errors import Rejected

_FIRST_FRAME_ATTEMPTS = 8
"""Key packets that are tried for the first picture before the header's size has to do."""

_FORMATS_WITHOUT_INDEX = frozenset({"mpegts", "mpeg", "h264", "hevc", "vvc", "m4v", "mpegvideo", "obu"})
"""Containers in which decord's seeks miss."""


@dataclass(frozen=True, slots=True)
class ClipInfo:
    """What a clip is, as decoded: a row of the clips table."""

    codec: str
    pix_fmt: str
    format_name: str
    fps: float
    """Average rate of the stream in frames a second, decord's `get_avg_fps`."""
    num_frames: int
    """Frames that a player shows, counted in the packets."""
    height: int
    """Pixels as shown, after the rotation; so is `width`."""
    width: int
    rotation: int
    """Degrees by which the stored picture is turned to the left when shown: −90, 0, 90 or 180."""
    duration_seconds: float
    """num_frames / fps."""
    decord_divergent: bool
    """decord 0.6 would count or return other frames than a player shows."""
    is_truncated: bool
    """The container promises more than is there; only frames that are there are counted."""
    warnings: tuple[str, ...] = ()
    """Words of `schema.WARNINGS`."""


@dataclass(frozen=True, slots=True, eq=False)
class PacketTable:
    """The packets of one video stream in decode order; the arrays are [num_packets] but the last."""

    pts: npt.NDArray[np.int64]
    """Ticks of the stream; the rank in output order where the container has no times."""
    is_key: npt.NDArray[np.bool_]
    is_trimmed: npt.NDArray[np.bool_]
    """Hidden by the container's edit list."""
    is_corrupt: npt.NDArray[np.bool_]
    is_encrypted: npt.NDArray[np.bool_]
    frame_packets: npt.NDArray[np.int64]
    """[num_frames]: position of the packet that holds frame i."""
    has_times: bool = True
    """Whether `pts` are times of the container."""

    def __repr__(self) -> str:
        return f"PacketTable({len(self.pts)} packets, {self.frame_packets.shape = })"


class _Row(NamedTuple):
    """What is kept of one packet."""

    pts: int | None
    is_key: bool
    is_trimmed: bool
    is_hidden: bool
    is_corrupt: bool
    is_encrypted: bool

    @property
    def is_shown(self) -> bool:
        return not self.is_trimmed and not self.is_hidden


def probe(extent: Extent) -> tuple[ClipInfo, PacketTable]:
    """Read all packets of the clip, and decode its first picture for what only a picture can tell.

    Raises:
        Rejected: the clip cannot be used, with a word of `schema.REASONS`.
    """
    with open_media(extent) as container:
        stream = video_stream(container)
        rows, first_frame, demux_error = _read_packets(container, stream)
        if not rows:
            raise Rejected("no-decodable-frames", f"no packets in the video stream; {demux_error}".strip("; "))
        if all(row.is_encrypted for row in rows):
            raise Rejected("encrypted", f"all {len(rows)} packets are encrypted")
        # AVI keeps no display times: where pictures are reordered FFmpeg's guesses are wrong.
        is_guessed = container.format.name == "avi" and bool(stream.codec_context.has_b_frames)
        has_times = not is_guessed and all(row.pts is not None for row in rows if row.is_shown)
        table = _tabulate(extent, rows, has_times)
        if len(table.frame_packets) == 0:
            raise Rejected("no-decodable-frames", f"none of {len(rows)} packets is shown")
        is_truncated = bool(demux_error) or bool(table.is_corrupt.any()) or _ends_early(stream, extent)
        is_divergent = (
            not has_times
            or len(table.frame_packets) < len(rows)
            or container.format.name in _FORMATS_WITHOUT_INDEX
            or has_leading_pictures(table)
            or (
                stream.frames == 0
                and "mp4" in container.format.name
                and has_split_runs(extent.path, *extent.span())
            )
        )
        return _clip_info(container, stream, table, first_frame, is_divergent, is_truncated), table


def media_packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    """Packets of one stream in decode order, without the empty one by which PyAV marks the end.

    PyAV looks up each stream once more at the end, and fails on those that appeared while it read.
    """
    with suppress(IndexError):
        for packet in container.demux(stream):
            if packet.size > 0:
                yield packet


def has_leading_pictures(table: PacketTable) -> bool:
    """Whether a frame is shown before the key frame that precedes it in the file (open GOP)."""
    keys = np.flatnonzero(table.is_key)
    if len(keys) == 0:
        return False
    frames = np.sort(table.frame_packets)
    preceding = np.searchsorted(keys, frames, side="right") - 1
    frames, preceding = frames[preceding >= 0], preceding[preceding >= 0]
    return bool((table.pts[frames] < table.pts[keys[preceding]]).any())


def _read_packets(container: InputContainer, stream: VideoStream) -> tuple[list[_Row], VideoFrame | None, str]:
    """A row a packet; the first picture, if there is one; the words of the error that ended it, if any."""
    rows: list[_Row] = []
    first_frame, attempts = None, 0
    codec = stream.codec_context.name
    try:
        for packet in media_packets(container, stream):
            is_encrypted = packet.has_sidedata("encryption_info")
            is_hidden = _is_reference_only(codec, packet)
            row = _Row(
                packet.pts, packet.is_keyframe, packet.is_discard, is_hidden, packet.is_corrupt, is_encrypted
            )
            rows.append(row)
            if first_frame is None and row.is_key and not is_encrypted and attempts < _FIRST_FRAME_ATTEMPTS:
                attempts += 1
                first_frame = _decode_alone(stream, packet)
    except MEDIA_ERRORS as error:
        return rows, first_frame, describe(error)
    return rows, first_frame, ""


def _decode_alone(stream: VideoStream, packet: Packet[VideoStream]) -> VideoFrame | None:
    """The picture of a key packet, None when the decoder fails or wants more than that."""
    context = stream.codec_context
    try:
        frames = [*context.decode(packet), *context.decode(None)]
    except MEDIA_ERRORS as error:
        rejected = rejection(error, "decode-errors")
        if rejected.reason != "decode-errors":
            raise rejected from error
        frames = []
    context.flush_buffers()
    return frames[0] if frames else None


def _is_reference_only(codec: str, packet: Packet[VideoStream]) -> bool:
    """Whether a VP8/VP9 packet holds only a picture to predict from (alternate reference), never shown."""
    if codec not in ("vp8", "vp9"):
        return False
    data = memoryview(packet)
    if codec == "vp8":
        return not data[0] & 0x10
    if data[-1] & 0xE0 == 0xC0:  # a superframe: several pictures, the last of them is shown
        return False
    # First byte: marker 2 bits, profile 2 (3 in profile 3), show_existing_frame, frame_type, show_frame.
    bits = data[0] << 1 if data[0] & 0x30 == 0x30 else data[0]
    return not bits & 0x08 and not bits & 0x02


def _tabulate(extent: Extent, rows: list[_Row], has_times: bool) -> PacketTable:
    """The table; a clip without display times is decoded once to number its frames."""
    if has_times:
        pts = np.array([row.pts or 0 for row in rows], np.int64)
        is_shown = np.array([row.is_shown for row in rows])
    else:
        pts, is_shown = _number_by_decoding(extent, len(rows))
    order = np.argsort(pts, kind="stable")
    return PacketTable(
        pts=pts,
        is_key=np.array([row.is_key for row in rows]),
        is_trimmed=np.array([row.is_trimmed for row in rows]),
        is_corrupt=np.array([row.is_corrupt for row in rows]),
        is_encrypted=np.array([row.is_encrypted for row in rows]),
        frame_packets=order[is_shown[order]],
        has_times=has_times,
    )


def _number_by_decoding(extent: Extent, num_packets: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Rank in output order of each packet, and whether it came out at all."""
    output_order: list[int] = []
    with open_media(extent) as container:
        stream = video_stream(container)
        decoder = Decoder(stream)
        with suppress(*MEDIA_ERRORS):  # the first pass ended there as well, and said so
            for position, packet in enumerate(media_packets(container, stream)):
                output_order += [output.packet for output in decoder.feed(packet, position)]
        output_order += [output.packet for output in decoder.drain()]
    rank = np.zeros(num_packets, np.int64)
    is_shown = np.zeros(num_packets, np.bool_)
    rank[output_order] = np.arange(len(output_order))
    is_shown[output_order] = True
    return rank, is_shown


def _clip_info(
    container: InputContainer,
    stream: VideoStream,
    table: PacketTable,
    first_frame: VideoFrame | None,
    is_divergent: bool,
    is_truncated: bool,
) -> ClipInfo:
    context = stream.codec_context
    height, width = (first_frame or context).height, (first_frame or context).width
    if not height or not width:
        raise Rejected("no-decodable-frames", f"no frame size: {height}×{width} px in the header")
    rotation = _rotation(first_frame) if first_frame else 0
    if rotation % 180:
        height, width = width, height
    num_frames = len(table.frame_packets)
    fps = _frames_per_second(stream, table)
    warnings = {
        "edit-list-trim": bool(table.is_trimmed.any()),
        "rotated": rotation != 0,
        "truncated-media": is_truncated,
        "no-leading-keyframe": not table.is_key[: table.frame_packets[0] + 1].any(),
    }
    return ClipInfo(
        codec=context.name,
        pix_fmt=first_frame.format.name if first_frame else context.pix_fmt or "",
        format_name=container.format.name,
        fps=fps,
        num_frames=num_frames,
        height=height,
        width=width,
        rotation=rotation,
        duration_seconds=num_frames / fps,
        decord_divergent=is_divergent,
        is_truncated=is_truncated,
        warnings=tuple(word for word, applies in warnings.items() if applies),
    )


def _rotation(frame: VideoFrame) -> int:
    """Degrees as a multiple of 90; a matrix that is no rotation, for which PyAV gives no angle, turns nothing."""
    return round(frame.rotation / 90) * 90 if abs(frame.rotation) <= 180 else 0


def _frames_per_second(stream: VideoStream, table: PacketTable) -> float:
    """The stream's average rate; without one what FFmpeg guesses, else what the times say."""
    for rate in (stream.average_rate, stream.guessed_rate, stream.base_rate):
        if rate and rate > 0:  # a damaged header can say −25
            return float(rate)
    times = np.sort(table.pts[table.frame_packets])
    span_ticks = int(times[-1] - times[0])
    if not span_ticks or not stream.time_base:
        raise Rejected("no-decodable-frames", f"no frame rate: {len(times)} frames, {span_ticks} ticks")
    return float((len(times) - 1) / (span_ticks * stream.time_base))


def _ends_early(stream: VideoStream, extent: Extent) -> bool:
    """Whether the index of the container names a packet past the end of the bytes."""
    entries = stream.index_entries
    last = entries[len(entries) - 1] if len(entries) else None
    return last is not None and last.pos + last.size > extent.available_bytes()
