"""Which decoder a run uses, and why: `auto` is the GPU where one probe decode gives the CPU's frames.

The probe decode runs in a process of its own with a time limit: a broken driver may hang or end its process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import av
import av.logging
import numpy as np

from clipshards.decode.cpu import Clip
from clipshards.decode.cuda import CudaClip
from clipshards.decode.media import MEDIA_ERRORS, Extent, describe
from clipshards.decode.probe import probe
from clipshards.errors import FallBack, UsageError

ASKED = ("auto", "cpu", "cuda", "ffmpeg")
"""What a user may ask for."""

_PROBE_SECONDS = 60.0  # the first use of a GPU after boot takes some
_PROBE_FRAMES, _PROBE_PIXELS = 12, 256


@dataclass(frozen=True, slots=True)
class Choice:
    """The decoder of a run."""

    decoder: str
    """A name of `decoders.DECODERS`."""
    why: str


def require_known(asked: str) -> None:
    """Raises UsageError when there is no such decoder to ask for."""
    if asked not in ASKED:
        raise UsageError(f"--decoder ({asked!r}) must be one of {', '.join(ASKED)}")


def choose_decoder(asked: str) -> Choice:
    """The decoder for what a user asked for.

    Args:
        asked: a word of `ASKED`. `auto` is `cuda` or `cpu`; `ffmpeg` uses the GPU where that works.

    Raises:
        UsageError: unknown, or `cuda` where that does not work.
    """
    require_known(asked)
    if asked == "cpu":
        return Choice("cpu", "asked for")
    trouble = _gpu_trouble()
    if asked == "cuda" and trouble:
        raise UsageError(
            f"--decoder cuda: a probe decode on the GPU failed ({trouble}): "
            "make an NVIDIA driver with video decoding visible here, or use --decoder auto"
        )
    if asked == "ffmpeg":
        return Choice("ffmpeg", f"no GPU: {trouble}") if trouble else Choice("ffmpeg-cuda", "with -hwaccel cuda")
    return Choice("cpu", f"no GPU: {trouble}") if trouble else Choice("cuda", "a probe decode on the GPU succeeded")


@cache
def _gpu_trouble() -> str:
    """Why the GPU cannot be used, "" when a probe decode gave the CPU's frames."""
    command = [sys.executable, "-c", "from clipshards.decode.choice import probe_gpu; print(probe_gpu())"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_PROBE_SECONDS:g} s"
    if done.returncode:
        return f"the probe's process ended with exit code {done.returncode}"
    return done.stdout.strip()


def probe_gpu() -> str:
    """Decode a small clip on the GPU and on the CPU in this process: what goes wrong, "" when nothing does."""
    av.logging.set_level(av.logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, av.logging.Capture() as messages:
        path = Path(folder) / "probe.mp4"
        write_probe_clip(path)
        extent = Extent(str(path))
        probed = probe(extent)
        try:
            on_gpu = dict(CudaClip(extent, *probed).frames(range(_PROBE_FRAMES)))
        except FallBack as why:
            return next((text.strip() for _, _, text in messages), str(why))
        except MEDIA_ERRORS as error:
            return describe(error)
        for index, rgb in Clip(extent, *probed).frames(range(_PROBE_FRAMES)):
            if not np.array_equal(rgb, on_gpu[index]):
                return f"frame {index} of the probe clip came out with other pixels than on the CPU"
    return ""


def write_probe_clip(path: Path) -> None:
    """A clip of 12 frames of 256 × 256 pixels, H.264."""
    y, x = np.mgrid[0:_PROBE_PIXELS, 0:_PROBE_PIXELS]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width = stream.height = _PROBE_PIXELS
        stream.pix_fmt = "yuv420p"
        for number in range(_PROBE_FRAMES):
            rgb = np.stack([x + 5 * number, y - 3 * number, x ^ y], axis=-1).astype(np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb24")))
        container.mux(stream.encode())
