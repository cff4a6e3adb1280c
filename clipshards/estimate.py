"""What views come to, from those that were looked at. Pure.

A view that was looked at counts as it was found. For the others the number of frames that the rows ask for is
known, unless they show a whole clip; what they take is told by the views of the same split that were looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clipshards.plan import View, planned_bytes
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


@dataclass(frozen=True)
class Rates:
    """What is expected of a view that was not looked at."""

    frames_of_whole_clip: float
    kept_share: float
    """Of the frames that windows ask for: some lie behind the end of their clip, some clips are damaged."""
    frame_bytes: float

    def of(self, view: View) -> Amount:
        """The view's frames and bytes."""
        frames = self.frames_of_whole_clip if view.num_frames is None else view.num_frames * self.kept_share
        return Amount(frames, frames * self.frame_bytes)


def learn_rates(views: Iterable[View], looked: Mapping[str, Amount], profile: Profile) -> Rates:
    """What the views of a split that were looked at say of the others.

    Args:
        looked: by the key of a view.
    """
    known = [(view, looked[view.key]) for view in views if view.key in looked]
    whole = [amount.frames for view, amount in known if view.num_frames is None]
    asked = sum(view.num_frames or 0 for view, _ in known)
    given = sum(amount.frames for view, amount in known if view.num_frames is not None)
    total = sum((amount for _, amount in known), Amount())
    guessed = View("", "", None, None, 1)
    return Rates(
        frames_of_whole_clip=sum(whole) / len(whole) if whole else profile.max_total / 2,
        kept_share=given / asked if asked else 1.0,
        frame_bytes=total.num_bytes / total.frames if total.frames else planned_bytes({"": [guessed]}, profile),
    )


def estimate(views: Iterable[View], looked: Mapping[str, Amount], rates: Rates) -> Amount:
    """The frames of views and what they take, without the rows."""
    return sum((looked.get(view.key) or rates.of(view) for view in views), Amount())


def least_budget(part_bytes: Sequence[int], *, together: bool) -> int:
    """The smallest --disk-budget for parts of a split that take so much of the disk while they are worked on.

    Args:
        together: the parts stay until the last of them is known.
    """
    return sum(part_bytes) if together else max(part_bytes, default=0)


def part_working_bytes(size_bytes: int, quality: int | None, *, is_fetched: bool) -> int:
    """What a part takes of the disk until its shards are finished: itself, and frames that wait for them."""
    ratio = FRAMES_TO_CLIPS if quality is not None else LOSSLESS_FRAMES_TO_CLIPS
    return size_bytes * is_fetched + int(size_bytes * ratio)
