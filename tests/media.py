"""Tiny real clips with the frame number drawn into each picture, so that a wrong frame shows in the pixels.

Frame i carries i as 8 black or white blocks (highest bit first) along its top edge; below, a pattern that
moves, so that the encoders predict. Built with the ffmpeg of imageio-ffmpeg, once a session.
"""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ffmpeg
import imageio_ffmpeg
import numpy as np
import numpy.typing as npt

HEIGHT, WIDTH, FPS, NUM_FRAMES = 192, 320, 25, 60
BITS, BLOCK = 8, 24

Rgb = npt.NDArray[np.uint8]

_H264: dict[str, Any] = {
    "vcodec": "libx264",
    "pix_fmt": "yuv420p",
    "preset": "veryfast",
    "crf": 20,
    "threads": 1,
}
_OPEN_GOP = "open-gop=1:keyint=12:min-keyint=12:bframes=3:b-adapt=0:scenecut=0"

ENCODED: dict[str, tuple[str, dict[str, Any]]] = {
    "h264_long_gop": ("mp4", {**_H264, "g": 250, "bf": 3}),
    "h264_short_gop": ("mp4", {**_H264, "g": 12, "bf": 2}),
    "h264_no_reorder": ("mp4", {**_H264, "g": 20, "bf": 0}),
    "h264_open_gop": ("mp4", {**_H264, "x264-params": _OPEN_GOP}),
    "h264_pyramid": ("mkv", {**_H264, "x264-params": "keyint=30:bframes=5:b-pyramid=normal:b-adapt=0"}),
    "h264_intra_refresh": ("mp4", {**_H264, "x264-params": "intra-refresh=1:keyint=20"}),
    "h264_10_bit": ("mp4", {**_H264, "pix_fmt": "yuv420p10le", "g": 24}),
    "h264_444": ("mp4", {**_H264, "pix_fmt": "yuv444p", "g": 24}),
    "h264_vfr": ("mp4", {**_H264, "g": 24, "vf": "setpts=(N+floor(N/3))/25/TB", "fps_mode": "vfr"}),
    "h264_fragmented": ("mp4", {**_H264, "g": 15, "movflags": "frag_keyframe+empty_moov"}),
    "h264_late_start": ("mp4", {**_H264, "g": 15, "vf": "setpts=PTS+3/TB"}),
    "h264_flv": ("flv", {**_H264, "g": 15, "bf": 2}),
    "h264_avi": ("avi", {**_H264, "g": 15, "bf": 2}),
    "h264_ts": ("ts", {**_H264, "g": 15, "bf": 2}),
    "h264_raw": ("h264", {**_H264, "g": 15, "bf": 2}),
    "hevc": (
        "mp4",
        {
            "vcodec": "libx265",
            "pix_fmt": "yuv420p",
            "preset": "ultrafast",
            "x265-params": "log-level=error:keyint=20:bframes=3:open-gop=0:pools=1",
        },
    ),
    "hevc_open_gop": (
        "mp4",
        {
            "vcodec": "libx265",
            "pix_fmt": "yuv420p",
            "preset": "ultrafast",
            "x265-params": "log-level=error:keyint=20:min-keyint=20:bframes=3:open-gop=1:scenecut=0:pools=1",
        },
    ),
    "vp9": ("webm", {"vcodec": "libvpx-vp9", "g": 25, "deadline": "realtime", "cpu-used": 8, "crf": 20}),
    "vp9_alt_ref": ("webm", {"vcodec": "libvpx-vp9", "g": 25, "deadline": "good", "cpu-used": 5, "crf": 20}),
    "vp8_alt_ref": (
        "webm",
        {"vcodec": "libvpx", "g": 25, "auto-alt-ref": 1, "lag-in-frames": 12, "b:v": "2M"},
    ),
    "mpeg4": ("mp4", {"vcodec": "mpeg4", "g": 12, "bf": 2, "q:v": 3}),
}
"""name → (container, encoder options); every clip has NUM_FRAMES frames, i-th frame shows i."""


def picture(number: int, height: int = HEIGHT, width: int = WIDTH) -> Rgb:
    """The picture of frame `number`, uint8 [height, width, 3]."""
    y, x = np.mgrid[0:height, 0:width]
    wave = np.sin((x + 3 * number) / 17) * 60 + np.cos((y - 2 * number) / 11) * 60
    rgb = np.stack([128 + wave, 128 - wave, 128 + np.roll(wave, 5 * number, axis=1)], axis=-1)
    rgb[:BLOCK, : BITS * BLOCK] = 0
    for bit in range(BITS):
        if number >> (BITS - 1 - bit) & 1:
            rgb[:BLOCK, bit * BLOCK : (bit + 1) * BLOCK] = 255
    return rgb.clip(0, 255).astype(np.uint8)


def number_in(rgb: Rgb) -> int:
    """The frame number that a picture of any size made by `picture` shows."""
    blocks = rgb[4 : BLOCK - 4, : BITS * BLOCK].reshape(BLOCK - 8, BITS, BLOCK, 3)
    bits = blocks[:, :, 4:-4].mean(axis=(0, 2, 3)) > 128
    return int("".join("1" if bit else "0" for bit in bits), 2)


def encode(path: Path, height: int = HEIGHT, width: int = WIDTH, **options: Any) -> Path:
    """Write a clip of NUM_FRAMES numbered frames."""
    raw = b"".join(picture(number, height, width).tobytes() for number in range(NUM_FRAMES))
    source = ffmpeg.input("pipe:", format="rawvideo", pix_fmt="rgb24", s=f"{width}x{height}", framerate=FPS)
    return _run(source.output(str(path), **options), path, raw)


def copy(source: Path, path: Path, input_options: dict[str, Any], **options: Any) -> Path:
    """Write the packets of a clip into another file, without decoding."""
    return _run(ffmpeg.input(str(source), **input_options).output(str(path), c="copy", **options), path, None)


def _run(stream: Any, path: Path, raw: bytes | None) -> Path:
    executable = imageio_ffmpeg.get_ffmpeg_exe()
    arguments = stream.global_args("-v", "error", "-y")
    ffmpeg.run(arguments, cmd=executable, input=raw, capture_stderr=True)
    return path


def _rotated(clip: Callable[[str], Path], path: Path) -> Path:
    return copy(clip("h264_short_gop"), path.with_suffix(".mp4"), {"display_rotation": 90})


def _upside_down(clip: Callable[[str], Path], path: Path) -> Path:
    return copy(clip("h264_short_gop"), path.with_suffix(".mp4"), {"display_rotation": 180})


def _edit_list(clip: Callable[[str], Path], path: Path) -> Path:
    return copy(clip("h264_short_gop"), path.with_suffix(".mp4"), {"ss": 0.9})


def _odd_size(clip: Callable[[str], Path], path: Path) -> Path:
    return encode(path.with_suffix(".webm"), 193, 321, **ENCODED["vp9"][1])


def _front_index(clip: Callable[[str], Path], path: Path) -> Path:
    return copy(clip("h264_short_gop"), path.with_suffix(".mp4"), {}, movflags="faststart")


def _truncated(clip: Callable[[str], Path], path: Path) -> Path:
    whole = clip("front_index").read_bytes()
    return _written(path.with_suffix(".mp4"), whole[: len(whole) * 6 // 10])


def _no_moov(clip: Callable[[str], Path], path: Path) -> Path:
    whole = clip("h264_short_gop").read_bytes()
    return _written(path.with_suffix(".mp4"), whole[: len(whole) * 6 // 10])


def _damaged(clip: Callable[[str], Path], path: Path) -> Path:
    """Some bytes in the second of five GOPs are overwritten."""
    whole = bytearray(clip("front_index").read_bytes())
    start = len(whole) * 3 // 10
    whole[start : start + 400] = bytes((7 * i) % 251 for i in range(400))
    return _written(path.with_suffix(".mp4"), bytes(whole))


def _no_first_key(clip: Callable[[str], Path], path: Path) -> Path:
    """A transport stream whose first packets, key frame included, are cut off."""
    whole = clip("h264_ts").read_bytes()
    packets = [whole[i : i + 188] for i in range(0, len(whole), 188)]
    tables = [packet for packet in packets if (packet[1] & 0x1F) << 8 | packet[2] != 256][:3]
    return _written(path.with_suffix(".ts"), b"".join(tables + packets[len(packets) // 6 :]))


def _size_change(clip: Callable[[str], Path], path: Path) -> Path:
    small = encode(path.with_name("small.h264"), 96, 224, **ENCODED["h264_raw"][1])
    return _written(path.with_suffix(".h264"), clip("h264_raw").read_bytes() + small.read_bytes())


def _flat_matrix(clip: Callable[[str], Path], path: Path) -> Path:
    """A display matrix that turns by no angle: all zeros, which squeeze each picture into a point."""
    whole = bytearray(clip("rotated").read_bytes())
    start = whole.index(b"tkhd") + 44
    whole[start : start + 36] = bytes(36)
    return _written(path.with_suffix(".mp4"), bytes(whole))


def _no_size(clip: Callable[[str], Path], path: Path) -> Path:
    """FLV keeps the frame size in the H.264 parameter set alone; here it is overwritten."""
    whole = bytearray(clip("h264_flv").read_bytes())
    start = whole.index(b"\x67\x64\x00")
    whole[start : start + 16] = bytes(16)
    return _written(path.with_suffix(".flv"), bytes(whole))


def _negative_rate(clip: Callable[[str], Path], path: Path) -> Path:
    """An FLV whose metadata say −25 frames a second."""
    whole = bytearray(clip("h264_flv").read_bytes())
    start = whole.index(b"framerate\0") + 10
    whole[start : start + 8] = struct.pack(">d", -25.0)
    return _written(path.with_suffix(".flv"), bytes(whole))


def _late_sound(clip: Callable[[str], Path], path: Path) -> Path:
    """Shown five times; in front of the last tag the first sound, of which the header says nothing."""
    path = copy(clip("h264_flv"), path.with_suffix(".flv"), {"stream_loop": 4})
    whole = path.read_bytes()
    last_tag = len(whole) - 4 - int.from_bytes(whole[-4:], "big")
    sound = b"\x08" + (4).to_bytes(3, "big") + bytes(7) + b"\xaf\x00\x12\x10" + (15).to_bytes(4, "big")
    return _written(path, whole[:last_tag] + sound + whole[last_tag:])


def _matrix(number: int) -> Callable[[Callable[[str], Path], Path], Path]:
    """Tagged with matrix coefficients `number` of H.273; the pixels are as before."""
    options = {"bsf:v": f"h264_metadata=matrix_coefficients={number}"}
    return lambda clip, path: copy(clip("h264_short_gop"), path.with_suffix(".mp4"), {}, **options)


def _sound_only(clip: Callable[[str], Path], path: Path) -> Path:
    path = path.with_suffix(".m4a")
    return _run(ffmpeg.input("sine=d=1", f="lavfi").output(str(path), acodec="aac"), path, None)


def _still(clip: Callable[[str], Path], path: Path) -> Path:
    path = path.with_suffix(".png")
    return _run(ffmpeg.input("testsrc=s=64x64", f="lavfi").output(str(path), vframes=1), path, None)


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


DERIVED: dict[str, Callable[[Callable[[str], Path], Path], Path]] = {
    "rotated": _rotated,
    "upside_down": _upside_down,
    "edit_list": _edit_list,
    "odd_size": _odd_size,
    "front_index": _front_index,
    "truncated": _truncated,
    "no_moov": _no_moov,
    "damaged": _damaged,
    "no_first_key": _no_first_key,
    "size_change": _size_change,
    "flat_matrix": _flat_matrix,
    "no_size": _no_size,
    "negative_rate": _negative_rate,
    "late_sound": _late_sound,
    "reserved_matrix": _matrix(3),
    "ictcp_matrix": _matrix(14),
    "sound_only": _sound_only,
    "still": _still,
    "empty": lambda clip, path: _written(path.with_suffix(".mp4"), b""),
    "text": lambda clip, path: _written(path.with_suffix(".mp4"), b"version https://git-lfs\n" * 20),
    "playlist": lambda clip, path: _written(
        path.with_suffix(".mp4"), b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nx.ts\n"
    ),
}


class ClipFolder:
    """Clips by name, each made when it is first asked for.

    Args:
        folder: where to keep them; an existing folder is used again.
        height: of the encoded clips; so is `width`.
    """

    def __init__(self, folder: Path, height: int = HEIGHT, width: int = WIDTH) -> None:
        self.folder = folder
        self._size = height, width

    def __call__(self, name: str) -> Path:
        made = sorted(self.folder.glob(f"{name}.*"))
        if made:
            return made[0]
        if name in DERIVED:
            return DERIVED[name](self, self.folder / name)
        container, options = ENCODED[name]
        return encode(self.folder / f"{name}.{container}", *self._size, **options)

    def in_tar(self, name: str) -> tuple[Path, int, int]:
        """The clip as the second member of a tar: (tar, offset, size in bytes)."""
        path = self.folder / f"part, of: {name} é.tar"
        with tarfile.open(path, "w") as tar:
            tar.add(self("empty"), "first.mp4")
            tar.add(self(name), "video/second.mp4")
            tar.add(self("text"), "third.txt")
        with tarfile.open(path) as tar:
            member = tar.getmember("video/second.mp4")
            return path, member.offset_data, member.size
