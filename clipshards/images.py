"""RGB pictures: resize as the trainer does, and to and from the bytes that a shard stores.

A leaf module of the base install: JPEG needs simplejpeg alone; OpenCV is imported on the first resize or PNG.
Pictures are uint8 [H, W, 3] RGB with values in [0, 255].
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import simplejpeg

from clipshards.errors import Rejected

Rgb = npt.NDArray[np.uint8]
"""One picture, uint8 [H, W, 3]."""

_JPEG_MAGIC = b"\xff\xd8\xff"


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
    import cv2

    _, png = cv2.imencode(".png", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))
    return png.tobytes()


def decode_image(encoded: bytes) -> Rgb:
    """Picture uint8 [H, W, 3] from the bytes that `encode` gave (JPEG or PNG).

    Raises:
        Rejected: `decode-errors` when the bytes are no readable picture.
    """
    if encoded[:3] == _JPEG_MAGIC:
        try:
            return np.asarray(simplejpeg.decode_jpeg(encoded, colorspace="RGB"), dtype=np.uint8)
        except ValueError as error:
            raise Rejected("decode-errors", f"JPEG of {len(encoded)} bytes: {error}") from error
    import cv2

    bgr = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR) if encoded else None
    if bgr is None:
        raise Rejected("decode-errors", f"{len(encoded)} bytes that are neither JPEG nor PNG")
    return np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), dtype=np.uint8)
