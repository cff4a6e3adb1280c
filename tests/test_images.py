"""Resizing as the trainer does, and pictures to bytes and back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from clipshards.errors import Rejected
from clipshards.images import Rgb, decode_image, decode_images, encode, resize


@pytest.fixture
def rgb() -> Rgb:
    y, x = np.mgrid[0:96, 0:128]
    return np.stack([x * 2, y * 2, (x + y) % 256], axis=-1).astype(np.uint8)


def test_equal_size_is_the_same_array(rgb: Rgb) -> None:
    assert resize(rgb, 96, 128) is rgb


@pytest.mark.parametrize(
    ("height", "width", "interpolation"),
    [
        (64, 96, cv2.INTER_AREA),
        (96, 64, cv2.INTER_AREA),
        (128, 160, cv2.INTER_LINEAR),
        (64, 160, cv2.INTER_LINEAR),
    ],
)
def test_resize_is_the_trainers(rgb: Rgb, height: int, width: int, interpolation: int) -> None:
    expected = cv2.resize(rgb, (width, height), interpolation=interpolation)
    np.testing.assert_array_equal(resize(rgb, height, width), expected)


def test_png_is_lossless_and_jpeg_is_close(rgb: Rgb) -> None:
    np.testing.assert_array_equal(decode_image(encode(rgb, None)), rgb)
    again = decode_image(encode(rgb, 95))
    assert again.shape == rgb.shape
    assert np.abs(again.astype(int) - rgb).mean() < 3


@pytest.mark.parametrize("encoded", [b"", b"nothing", b"\xff\xd8\xff\xe0 cut", b"\x89PNG\r\n\x1a\n cut"])
def test_bytes_that_are_no_picture_are_rejected(encoded: bytes) -> None:
    with pytest.raises(Rejected, match="decode-errors"):
        decode_image(encoded)


@pytest.mark.parametrize("quality", [95, None])
def test_many_at_once_are_each_as_alone(rgb: Rgb, quality: int | None) -> None:
    encoded = [encode(np.roll(rgb, shift, axis=1), quality) for shift in (0, 7, 50)]
    np.testing.assert_array_equal(decode_images(encoded), [decode_image(one) for one in encoded])


@pytest.mark.parametrize("quality", [95, None])
@pytest.mark.parametrize("cut", [np.s_[:64], np.s_[:, :64], np.s_[:0:-1]])
def test_pictures_of_several_sizes_are_rejected(rgb: Rgb, quality: int | None, cut: slice) -> None:
    """Larger ones, smaller ones, and ones with fewer rows that would fit."""
    for one, other in ((rgb, rgb[cut]), (rgb[cut], rgb)):
        with pytest.raises(Rejected, match="decode-errors"):
            decode_images([encode(one, quality), encode(other, quality)])


def test_the_png_is_one_that_others_read(rgb: Rgb, tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(encode(rgb, None))
    with av.open(str(tmp_path / "picture.png")) as container:
        (frame,) = container.decode(video=0)
    np.testing.assert_array_equal(frame.to_ndarray(format="rgb24"), rgb)


@pytest.mark.parametrize("quality", [90, None])
def test_reading_needs_no_opencv(rgb: Rgb, quality: int | None) -> None:
    code = (
        "import sys; from clipshards.images import decode_image;"
        "decode_image(sys.stdin.buffer.read()); assert 'cv2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], input=encode(rgb, quality), check=True)
