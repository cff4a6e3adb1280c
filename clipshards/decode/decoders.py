"""The decoders by name, and a clip's frames from one of them, or from the CPU when that one cannot give them.

clip = open_clip(extent, "cuda")
done = collect(clip, [0, 15, 30], encode)
done.frames {index: bytes}, done.clip.decoder "cuda" or "cpu", done.fallback why it was the CPU
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from clipshards.decode.cpu import Clip
from clipshards.decode.cuda import CudaClip
from clipshards.decode.media import Extent
from clipshards.decode.probe import probe
from clipshards.decode.program import ProgramClip, ProgramOnGpuClip
from clipshards.errors import FallBack
from clipshards.images import Rgb

T = TypeVar("T")

DECODERS: dict[str, type[Clip]] = {kind.decoder: kind for kind in (Clip, CudaClip, ProgramClip, ProgramOnGpuClip)}


@dataclass(frozen=True, slots=True)
class Collected(Generic[T]):
    """Frames of one clip, all from one decoder."""

    clip: Clip
    """The clip that gave them: its decoder, and the failures of frames that are missing."""
    frames: dict[int, T]
    """By index, ascending."""
    fallback: str = ""
    """Why the decoder that was asked did not give them: a kind, or "kind: detail"."""


def open_clip(extent: Extent, decoder: str = "cpu") -> Clip:
    """Probe a clip, the same way for every decoder: indices and times are the same for all of them.

    Args:
        extent: where the bytes lie.
        decoder: a name of `DECODERS`.

    Raises:
        Rejected: the clip cannot be used, with a word of `schema.REASONS`.
    """
    return DECODERS[decoder](extent, *probe(extent))


def collect(clip: Clip, indices: Iterable[int], use: Callable[[Rgb], T]) -> Collected[T]:
    """Decode frames and keep what `use` makes of each.

    A decoder that cannot give all of them is not believed for any: what it got wrong may be more than it noticed,
    and a clip whose frames come from two decoders could not be made again. The CPU decodes such a clip anew.

    Args:
        indices: frames, in [0, num_frames).
        use: called with RGB uint8 [height, width, 3].

    Raises:
        Rejected: the clip can no longer be opened.
    """
    wanted = list(indices)
    try:
        return Collected(clip, {index: use(rgb) for index, rgb in clip.frames(wanted)})
    except FallBack as why:
        on_cpu = Clip(clip.extent, clip.info, clip.table)
        return Collected(on_cpu, {index: use(rgb) for index, rgb in on_cpu.frames(wanted)}, str(why))
