"""What views come to, from those that were looked at. Pure.

A view that was looked at counts as it was found. For the others the number of frames that the rows ask for is
known, unless they show a whole clip; what they take is told by the views of the same split that were looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clipshards.plan import BYTES_PER_PIXEL, View
from clipshards.sampling import Profile

FRAMES_TO_CLIPS, LOSSLESS_FRAMES_TO_CLIPS = 0.9, 4.0
"""Bytes of the stored frames by bytes of their clips: 0.8 and 3.6 were measured on GRASP's kinds of clips."""

VIEW_BYTES = 2_600
"""Of a sample besides its frames and rows: two tar headers, padding, where the frames come from."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Stored frames and their bytes; estimates are no whole numbers."""

    frames: float = 0.0
    num_bytes: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.frames + other.frames, self.num_bytes + other.num_bytes)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.frames - other.frames, self.num_bytes - other.num_bytes)

    def __mul__(self, factor: float) -> Amount:
        return Amount(self.frames * factor, self.num_bytes * factor)


@dataclass(frozen=True, slots=True)
class Seen:
    """A view that was looked at."""

    frames: int
    frame_pixels: int
    frame_bytes: float | None
    """None: nothing of its clip was decoded."""


NOTHING = Seen(0, 0, 0.0)
"""A view that is rejected."""


@dataclass(frozen=True)
class Rates:
    """What is expected of views of a split, by those that were looked at."""

    frames_of_whole_clip: float
    kept_share: float
    """Of the frames that windows ask for: some lie behind the end of their clip, some clips are damaged."""
    frame_pixels: float
    pixel_bytes: float

    def of(self, view: View, seen: Seen | None) -> Amount:
        """A view's frames and bytes."""
        if seen is not None:
            frame_bytes = seen.frame_bytes
            return Amount(
                seen.frames,
                seen.frames * (seen.frame_pixels * self.pixel_bytes if frame_bytes is None else frame_bytes),
            )
        frames = self.frames_of_whole_clip if view.num_frames is None else view.num_frames * self.kept_share
        return Amount(frames, frames * self.frame_pixels * self.pixel_bytes)


def learn_rates(views: Iterable[View], looked: Mapping[str, Seen], profile: Profile) -> Rates:
    """What the views of a split that were looked at say of the others.

    Args:
        looked: by the key of a view.
    """
    known = [(view, looked[view.key]) for view in views if view.key in looked]
    whole = [seen.frames for view, seen in known if view.num_frames is None]
    asked = sum(view.num_frames or 0 for view, _ in known)
    given = sum(seen.frames for view, seen in known if view.num_frames is not None)
    frames = sum(seen.frames for _, seen in known)
    pixels = sum(seen.frames * seen.frame_pixels for _, seen in known)
    decoded = [seen for _, seen in known if seen.frame_bytes]
    decoded_pixels = sum(seen.frames * seen.frame_pixels for seen in decoded)
    return Rates(
        frames_of_whole_clip=sum(whole) / len(whole) if whole else profile.max_total / 2,
        kept_share=given / asked if asked else 1.0,
        frame_pixels=pixels / frames if frames else profile.max_cells * profile.grid_pixels**2,
        pixel_bytes=sum(seen.frames * (seen.frame_bytes or 0) for seen in decoded) / decoded_pixels
        if decoded_pixels
        else BYTES_PER_PIXEL,
    )


def estimate(views: Iterable[View], looked: Mapping[str, Seen], rates: Rates) -> Amount:
    """The frames of views and what they take, without the rows."""
    return sum((rates.of(view, looked.get(view.key)) for view in views), Amount())


def least_budget(part_bytes: Sequence[int], *, together: bool) -> int:
    """The smallest --disk-budget for parts of a split that take so much of the disk while they are worked on.

    Args:
        together: the parts stay until the last of them is known.
    """
    return sum(part_bytes) if together else max(part_bytes, default=0)


def part_working_bytes(size_bytes: int, quality: int | None, *, is_fetched: bool, unpacked_bytes: int) -> int:
    """What a part takes of the disk until its shards are finished: itself, and frames that wait for them.

    Args:
        unpacked_bytes: set apart for the tar out of a compressed part.
    """
    ratio = FRAMES_TO_CLIPS if quality is not None else LOSSLESS_FRAMES_TO_CLIPS
    return size_bytes * is_fetched + unpacked_bytes + int(size_bytes * ratio)
