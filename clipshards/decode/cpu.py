"""Decoding chosen frames of a clip on the CPU: exactly those, or the reason why not.

    clip = Clip(extent, *probe(extent)) one pass over the packets
    clip.info                           size, rate, number of frames
    for index, rgb in clip.frames([0, 15, 30]): ...
    clip.failures                       {index: Rejected} of the frames that did not come

The fast pass feeds only the packets that the plan names. When a frame is missing or the decoder reports
damage, the rest is decoded again from the start without leaving anything out; what is still missing then, is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from av.codec.hwaccel import HWAccel
from av.video.frame import PictureType

from clipshards.decode.decoder import Decoder, Output
from clipshards.decode.media import MEDIA_ERRORS, Extent, describe, open_media, video_stream
from clipshards.decode.pixels import ToRgb
from clipshards.decode.plan import Run, governing_key, is_damaged, is_leading, plan_runs
from clipshards.decode.probe import ClipInfo, PacketTable, media_packets
from clipshards.errors import Rejected
from clipshards.images import Rgb


class Clip:
    """A probed clip, ready to decode; nothing is held open between calls.

    The other decoders derive from it: what they give is `frames`.

    Args:
        extent: where the bytes lie.
        info: what `probe` found; so is `table`.
    """

    decoder: ClassVar[str] = "cpu"
    """Name of the decoder."""

    def __init__(self, extent: Extent, info: ClipInfo, table: PacketTable) -> None:
        self.extent = extent
        self.info = info
        """What is known of the clip; decoding can still find it `decord_divergent`."""
        self.table = table
        self.failures: dict[int, Rejected] = {}
        """Frames asked for that could not be decoded, and why; grows with each call of `frames`."""

    def frames(self, indices: Iterable[int]) -> Iterator[tuple[int, Rgb]]:
        """Decode frames; yields (index, RGB uint8 [height, width, 3] as shown) in ascending order.

        Repeats come once. A frame that cannot be decoded is not yielded but noted in `failures`.

        Raises:
            ValueError: an index is not in [0, num_frames).
            Rejected: the clip can no longer be opened.
            FallBack: a decoder other than this one cannot give them all; there are no `failures` then.
        """
        missing = self._decodable(indices)
        if missing:
            yield from self._fast_pass(missing)
        if missing:
            yield from self._full_pass(missing)

    def _decodable(self, indices: Iterable[int]) -> deque[int]:
        """The indices in ascending order, without those that nothing can decode; these are failures."""
        wanted = sorted({int(index) for index in indices})
        if wanted and not 0 <= wanted[0] <= wanted[-1] < self.info.num_frames:
            raise ValueError(f"indices {wanted[0]}…{wanted[-1]} must be in [0, {self.info.num_frames})")
        return deque(index for index in wanted if self._can_start(index))

    def _can_start(self, index: int) -> bool:
        packet = int(self.table.frame_packets[index])
        if self.table.is_encrypted[packet]:
            self._fail(index, "encrypted", "")
        elif governing_key(self.table, packet) is None:
            self._fail(index, "no-leading-keyframe", "")
        else:
            return True
        return False

    def _fast_pass(
        self, missing: deque[int], hwaccel: HWAccel | None = None
    ) -> Generator[tuple[int, Rgb], None, str]:
        """Take frames off `missing` up to the first that is missing, damaged or of another size.

        Returns why it stopped there: a kind, ": " and words.
        """
        packets = {int(self.table.frame_packets[index]): index for index in missing}
        runs = plan_runs(self.table, list(packets))
        starts = {run.first for run in runs}
        decoding = _Decoding(self, runs, keep=frozenset(packets), hwaccel=hwaccel)
        for output in decoding:
            if output.packet in starts and not _is_intra(output):
                # The container's key flags lie: seeking there, as decord does, gives wrong pictures.
                self.info = replace(self.info, decord_divergent=True)
                return "key flags that lie"
            index = packets.get(output.packet)
            if index is None:
                continue
            if index != missing[0]:
                break
            if flaw := decoding.flaw(output):
                return ": ".join(flaw)
            yield from self._shown(missing.popleft(), output, decoding)
        return f"missing frames: {next(iter(decoding.damage.values()), 'the decoder gave none')}"

    def _full_pass(self, missing: deque[int]) -> Iterator[tuple[int, Rgb]]:
        """Decode all packets up to the last one needed; empties `missing`."""
        packets = {int(self.table.frame_packets[index]): index for index in missing}
        decoding = _Decoding(self, [Run(0, max(packets))], keep=None)
        num_outputs = 0
        for output in decoding:
            num_outputs += 1
            index = packets.get(output.packet)
            if index is None or not missing or index < missing[0]:
                continue
            while missing[0] < index:
                self._fail_absent(missing.popleft(), decoding.damage, num_outputs)
            missing.popleft()
            if flaw := decoding.flaw(output):
                self._fail(index, *flaw)
            else:
                yield from self._shown(index, output, decoding)
        while missing:
            self._fail_absent(missing.popleft(), decoding.damage, num_outputs)

    def _shown(self, index: int, output: Output, decoding: _Decoding) -> Iterator[tuple[int, Rgb]]:
        """The frame as RGB, if its colours can be converted."""
        try:
            rgb = decoding.to_rgb(output.frame)
        except MEDIA_ERRORS as error:
            colours = f"{output.frame.format.name}, matrix {output.frame.colorspace:d}"
            self._fail(index, "codec-unsupported", f"no conversion of {colours} to RGB, {describe(error)}")
        else:
            yield index, rgb

    def _fail(self, index: int, reason: str, words: str) -> None:
        detail = f"frame {index} of {self.info.num_frames}" + (f": {words}" if words else "")
        self.failures[index] = Rejected(reason, detail)

    def _fail_absent(self, index: int, damage: dict[int, str], num_outputs: int) -> None:
        """Say why the decoder gave no frame at all for this index."""
        words = next(iter(damage.values()), "the decoder gave no frame")
        packet = int(self.table.frame_packets[index])
        if num_outputs == 0:
            self._fail(index, "no-decodable-frames", words)
        elif is_leading(self.table, packet):
            self._fail(index, "no-leading-keyframe", words)
        elif self.table.is_corrupt[packet]:
            self._fail(index, "truncated-media", words)
        else:
            self._fail(index, "decode-errors", words)


def _is_intra(output: Output) -> bool:
    return output.frame.key_frame or output.frame.pict_type == PictureType.I


class _Decoding:
    """One pass over the clip: the frames that come out of the packets of `runs`, in output order.

    Args:
        clip: the clip to open once more.
        runs: packets to feed, ascending.
        keep: packets whose frames are needed (others may be skipped); None: skip nothing.
        hwaccel: the device that decodes; None: the CPU.
    """

    def __init__(
        self,
        clip: Clip,
        runs: Sequence[Run],
        keep: frozenset[int] | None,
        hwaccel: HWAccel | None = None,
    ) -> None:
        self.damage: dict[int, str] = {}
        self.to_rgb = ToRgb(clip.info.pix_fmt, clip.info.rotation)
        self._clip = clip
        self._runs = runs
        self._keep = keep
        self._hwaccel = hwaccel

    def __iter__(self) -> Iterator[Output]:
        with open_media(self._clip.extent, self._hwaccel) as container:
            stream = video_stream(container)
            decoder = Decoder(stream, self.damage)
            runs = iter(self._runs)
            run = next(runs, None)
            position = -1
            try:
                for position, packet in enumerate(media_packets(container, stream)):
                    if run is None:
                        return
                    if position < run.first:
                        continue
                    skippable = self._keep is not None and position not in self._keep
                    yield from decoder.feed(packet, position, skippable=skippable)
                    if position == run.last:
                        yield from decoder.drain()
                        run = next(runs, None)
            except MEDIA_ERRORS as error:
                self.damage.setdefault(position + 1, describe(error))
            if run is not None:
                yield from decoder.drain()

    def flaw(self, output: Output) -> tuple[str, str] | None:
        """Reason and words why a frame is not to be used, None when it is good."""
        info, table = self._clip.info, self._clip.table
        size = (output.frame.height, output.frame.width)
        shown = size[::-1] if info.rotation % 180 else size
        if shown != (info.height, info.width):
            return "size-change", f"{shown[0]}×{shown[1]} px, the first frame {info.height}×{info.width}"
        if table.is_corrupt[output.packet]:
            return "truncated-media", "the packet is cut"
        if is_damaged(table, output.packet, [*self.damage, *np.flatnonzero(table.is_corrupt)]):
            return "decode-errors", next(iter(self.damage.values()), "a packet before it is cut")
        if output.frame.is_corrupt:
            return "decode-errors", "the decoder flags the frame as corrupt"
        return None
