"""Decoding on the GPU (NVDEC) through PyAV: the plan, the packets and the checks of the CPU's fast pass.

Only wanted frames are downloaded. The codecs used here are exact by their standards, so the pictures are those
of the CPU. What the GPU does not decode, or not rightly, raises FallBack and is left to the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import ClassVar

from av.codec.context import CodecContext
from av.codec.hwaccel import HWAccel

from clipshards.decode.cpu import Clip
from clipshards.decode.media import MEDIA_ERRORS, describe
from clipshards.decode.probe import ClipInfo, PacketTable
from clipshards.errors import FallBack, Rejected
from clipshards.images import Rgb

# What Hopper decodes and FFmpeg's own decoders hand on to NVDEC; newer GPUs do more, which is not used. MPEG-4
# part 2 and older are left out: their inverse transforms are not exact. Sizes are the driver's to refuse.
_ON_GPU = {
    "h264": ("yuv420p", "yuvj420p"),
    "hevc": ("yuv420p", "yuvj420p", "yuv420p10le"),
    "vp8": ("yuv420p",),
    "vp9": ("yuv420p", "yuv420p10le"),
}


class CudaClip(Clip):
    """A clip decoded on the GPU."""

    decoder: ClassVar[str] = "cuda"

    def frames(self, indices: Iterable[int]) -> Iterator[tuple[int, Rgb]]:
        """As `Clip.frames`, but FallBack when not all of them can be had from the GPU."""
        require_gpu_format(self.info)
        missing = self._decodable(indices)
        require_undamaged(self.table, self.failures)
        if not missing:
            return
        try:
            _keep_context()
            why = yield from self._fast_pass(missing, _hwaccel())
        except Rejected as rejected:  # the CPU has opened it, so it is the device that fails
            raise FallBack(f"no GPU: {rejected.detail}") from rejected
        except MEDIA_ERRORS as error:
            raise FallBack(f"no GPU: {describe(error)}") from error
        if missing:
            raise FallBack(why)
        require_undamaged(self.table, self.failures)


def require_gpu_format(info: ClipInfo) -> None:
    """Raises FallBack when GPUs (or not all of those in use) decode such clips."""
    if info.pix_fmt not in _ON_GPU.get(info.codec, ()):
        raise FallBack(f"{info.codec} {info.pix_fmt}")


def require_undamaged(table: PacketTable, failures: dict[int, Rejected]) -> None:
    """Raises FallBack when frames are lost or packets cut: saying which frames cannot be had is the CPU's work."""
    if table.is_corrupt.any():
        raise FallBack("damaged: a packet is cut")
    if failures:
        raise FallBack(f"damaged: {next(iter(failures.values())).reason}")


def _hwaccel() -> HWAccel:
    # Without software fallback: the CPU's frames are to come from the CPU's pass, and be counted.
    return HWAccel("cuda", is_hw_owned=True, allow_software_fallback=False, options={"primary_ctx": "1"})


@cache
def _keep_context() -> CodecContext:
    """Hold the GPU's primary context while the process lives: the driver would make it anew for each clip."""
    return CodecContext.create("h264", "r", hwaccel=_hwaccel())
