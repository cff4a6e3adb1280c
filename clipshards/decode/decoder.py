"""One decoder fed packet by packet, that says of each frame which packet it came from and what broke.

Each packet carries a tag that libav hands on to the frame it becomes (`copy_opaque`): frames are never
counted, and two packets of equal time stay apart. One thread, so an error belongs to the packet just fed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import av.logging
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from clipshards.decode.media import MEDIA_ERRORS, describe

# Decoders fill in what damage took and say so in the log only. Errors that do not match, such as
# `mmco: unref short failure`, also come with clips that decode to the right pixels. Flipped bits that still
# make sense to the decoder (VP9, VP8, much of HEVC) cannot be seen at all: that is what hashes are for.
_DAMAGE = re.compile(
    r"error|concealing|invalid|unavailable|could not find ref|missing|out of range|overread|corrupt|damaged"
    r"|truncat|no frame|undecodable",
    re.IGNORECASE,
)
_DAMAGE_IN_WARNINGS = re.compile(r"undecodable NALU")


def tells_of_damage(text: str, *, is_error: bool) -> bool:
    """Whether a message of libav means that pictures are damaged; else it is a warning."""
    return bool((_DAMAGE if is_error else _DAMAGE_IN_WARNINGS).search(text))


@dataclass(frozen=True, slots=True)
class Output:
    """A frame and the position, in decode order, of the packet that held it."""

    frame: VideoFrame
    packet: int


@contextmanager
def _captured_messages() -> Iterator[list[tuple[int, str, str]]]:
    """libav's warnings and errors of this thread; PyAV is silent before and after."""
    level, skips = av.logging.get_level(), av.logging.get_skip_repeated()
    av.logging.set_level(av.logging.WARNING)
    av.logging.set_skip_repeated(False)
    try:
        with av.logging.Capture() as messages:
            yield messages
    finally:
        av.logging.set_level(level)
        av.logging.set_skip_repeated(skips)


@dataclass(slots=True)
class Decoder:
    """The decoder of one stream."""

    stream: VideoStream
    damage: dict[int, str] = field(default_factory=dict)
    """Position of each packet at which the decoder reported damage, with its words."""
    _packet: int = -1

    def __post_init__(self) -> None:
        self.stream.codec_context.copy_opaque = True

    def feed(self, packet: Packet[VideoStream], position: int, *, skippable: bool = False) -> list[Output]:
        """Decode one packet; `skippable`: leave it out if no other picture is predicted from it.

        Frames come out later than their packets, in display order; `drain` gives the rest.
        """
        context = self.stream.codec_context
        context.skip_frame = "NONREF" if skippable else "DEFAULT"
        # A tuple of its own: libav's tags are kept by object identity, and small integers are shared.
        packet.opaque = (position,)
        self._packet = position
        return self._decode(packet)

    def drain(self) -> list[Output]:
        """The frames still inside; afterwards the decoder can start again at a key packet."""
        outputs = self._decode(None)
        self.stream.codec_context.flush_buffers()
        return outputs

    def _decode(self, packet: Packet[VideoStream] | None) -> list[Output]:
        with _captured_messages() as messages:
            try:
                frames = self.stream.codec_context.decode(packet)
            except MEDIA_ERRORS as error:
                self.damage.setdefault(self._packet, describe(error))
                frames = []
        for level, _, text in messages:
            if tells_of_damage(text, is_error=level <= av.logging.ERROR):
                self.damage.setdefault(self._packet, text.strip()[:120])
        return [Output(frame, frame.opaque[0]) for frame in frames if isinstance(frame.opaque, tuple)]
