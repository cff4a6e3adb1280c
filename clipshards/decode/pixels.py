"""Decoded frames to RGB arrays as shown: one conversion for all decoders, so that their colours agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter

from clipshards.images import Rgb

_UNSPECIFIED_MATRIX, _RESERVED_MATRIX = 2, 3
"""The second says no more than the first, but FFmpeg 8, unlike decord's, does not convert such a frame."""

GPU_LAYOUTS = {"yuv420p": "nv12", "yuvj420p": "nv12", "yuv420p10le": "p010le"}
"""How NVDEC lays out what a CPU decoder gives in the layout on the left: the same values, chroma interleaved."""


class ToRgb:
    """Converts the frames of one clip; swscale's contexts are kept between frames.

    Args:
        pix_fmt: layout in which the CPU decodes the clip.
        rotation: degrees by which pictures are turned to the left when shown.
    """

    def __init__(self, pix_fmt: str, rotation: int) -> None:
        self._pix_fmt = pix_fmt
        self._rotation = rotation
        self._to_planar, self._to_rgb24 = VideoReformatter(), VideoReformatter()

    def __call__(self, frame: VideoFrame) -> Rgb:
        """The picture as shown: RGB uint8 [height, width, 3], turned by the rotation tag.

        swscale to rgb24 without a change of size gives decord's values exactly on 8-bit clips. From NV12 it does
        not: such frames (and those still on the GPU, which come as NV12) take the CPU's layout first.
        """
        if frame.colorspace == _RESERVED_MATRIX:
            frame.colorspace = _UNSPECIFIED_MATRIX
        if frame.format.name in ("cuda", *GPU_LAYOUTS.values()):
            frame = self._to_planar.reformat(frame, format=self._pix_fmt, threads=1)
        rgb24 = self._to_rgb24.reformat(frame, format="rgb24", threads=1)  # by default one thread for each core
        return as_shown(rgb24.to_ndarray(), self._rotation)


def as_shown(rgb: npt.NDArray[Any], rotation: int) -> Rgb:
    """A stored picture turned to the left by `rotation` degrees."""
    return np.ascontiguousarray(np.rot90(rgb, rotation // 90), np.uint8)
