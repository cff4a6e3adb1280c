"""RGB pictures: resize as the trainer does, and to and from the bytes that a shard stores.

A leaf module of the base install: OpenCV is imported on the first resize, and by readers never. Its PNG
reader also fails in a process that has imported decord 0.6 (two zlibs), and trainers do that; so the few
lines of PNG that we need are here. Pictures are uint8 [H, W, 3] RGB with values in [0, 255].

    PNG    signature  chunk IHDR  chunk IDAT(zlib of rows)  chunk IEND
    chunk  [size of data 4 bytes][kind 4 bytes][data][crc32 of kind and data 4 bytes]
    row    [filter 1 byte: 2 = difference to the row above][RGB of W pixels, each modulo 256]
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import simplejpeg

from clipshards.errors import Rejected

Rgb = npt.NDArray[np.uint8]
"""One picture, uint8 [H, W, 3]."""

_JPEG_MAGIC = b"\xff\xd8\xff"
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_RGB_OF_8_BITS = bytes([8, 2, 0, 0, 0])
_ROW_ABOVE = 2


def use_one_thread() -> None:
    """Keep OpenCV from starting its own threads; for the start of a worker process."""
    import cv2

    cv2.setNumThreads(1)


def resize(rgb: Rgb, height: int, width: int) -> Rgb:
    """Picture of height × width pixels, as the trainer resizes it.

    INTER_AREA when the target is no larger in both directions, else INTER_LINEAR; a picture that has the
    size already is returned as it is, not copied.
    """
    old_height, old_width = rgb.shape[:2]
    if (old_height, old_width) == (height, width):
        return rgb
    import cv2

    shrinks = height <= old_height and width <= old_width
    resized = cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    return np.asarray(resized, dtype=np.uint8)


def encode(rgb: Rgb, quality: int | None) -> bytes:
    """Bytes of a picture: JPEG 4:2:0 at `quality` (1–100), lossless PNG when it is None."""
    if quality is not None:
        jpeg: bytes = simplejpeg.encode_jpeg(
            np.ascontiguousarray(rgb), quality=quality, colorspace="RGB", colorsubsampling="420"
        )
        return jpeg
    return _encode_png(rgb)


def decode_image(encoded: bytes) -> Rgb:
    """Picture uint8 [H, W, 3] from the bytes that `encode` gave (JPEG or PNG).

    Raises:
        Rejected: `decode-errors` when the bytes are no readable picture.
    """
    return _decode(encoded, None)


def decode_images(encoded: Sequence[bytes]) -> npt.NDArray[np.uint8]:
    """All pictures of a sample, at least one: uint8 [T, H, W, 3]. A fifth cheaper than stacking them afterwards.

    Raises:
        Rejected: `decode-errors` when one is no readable picture, or not of the size of the first.
    """
    first = decode_image(encoded[0])
    pictures = np.empty((len(encoded), *first.shape), np.uint8)
    pictures[0] = first
    for one, place in zip(encoded[1:], pictures[1:], strict=True):
        picture = _decode(one, place)
        if picture.shape != place.shape:
            raise Rejected("decode-errors", f"picture of {picture.shape[:2]} among pictures of {place.shape[:2]}")
        if not np.may_share_memory(picture, place):  # a PNG
            place[...] = picture
    return pictures


def _decode(encoded: bytes, into: Rgb | None) -> Rgb:
    """A JPEG is decoded right into that memory, when it is given."""
    if encoded[:3] == _JPEG_MAGIC:
        try:
            return np.asarray(simplejpeg.decode_jpeg(encoded, colorspace="RGB", buffer=into), dtype=np.uint8)
        except ValueError as error:
            raise Rejected("decode-errors", f"JPEG of {len(encoded)} bytes: {error}") from error
    if encoded[:8] == _PNG_MAGIC:
        try:
            return _decode_png(encoded)
        except (zlib.error, struct.error, ValueError) as error:
            raise Rejected("decode-errors", f"PNG of {len(encoded)} bytes: {error}") from error
    raise Rejected("decode-errors", f"{len(encoded)} bytes that are neither JPEG nor PNG")


def _encode_png(rgb: Rgb) -> bytes:
    height, width = rgb.shape[:2]
    rows = np.empty((height, 1 + 3 * width), np.uint8)
    rows[:, 0] = _ROW_ABOVE
    rows[:, 1:] = rgb.reshape(height, -1)
    rows[1:, 1:] -= rgb.reshape(height, -1)[:-1]
    header = struct.pack(">II", width, height) + _RGB_OF_8_BITS
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 1)), (b"IEND", b""))
    return _PNG_MAGIC + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _decode_png(encoded: bytes) -> Rgb:
    """Read what `_encode_png` wrote: one IDAT chunk, all rows with the same filter."""
    width, height = struct.unpack(">II", encoded[16:24])
    if encoded[24:29] != _RGB_OF_8_BITS:
        raise ValueError(f"header {encoded[24:29]!r} is not that of 8-bit RGB")
    (size_bytes,) = struct.unpack(">I", encoded[33:37])
    rows = np.frombuffer(zlib.decompress(encoded[41 : 41 + size_bytes]), np.uint8)
    rows = rows.reshape(height, 1 + 3 * width)
    if (rows[:, 0] != _ROW_ABOVE).any():
        raise ValueError("rows with another filter than 2")
    return np.add.accumulate(rows[:, 1:], axis=0, dtype=np.uint8).reshape(height, width, 3)
