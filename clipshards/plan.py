"""Which views a split needs, and which shard each clip goes to. Pure: rows in, plans out.

A view is a clip, a window and a profile; rows with the same window share it. Its key names it for good:

    <source>-<stem of the clip>-<12 hex digits of the view>

The views of one clip go to one shard, chosen by the hash of the clip's path: a clip is opened once, a shard is
a random sample of its part, and an added clip does not move the others.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from clipshards.annotations import Questions
from clipshards.errors import Rejected, SourceError
from clipshards.examples import Examples, Shown, Window
from clipshards.sampling import Profile, count_frames
from clipshards.schema import Reject
from clipshards.tars import TarMember

SHARD_BYTES = 512 << 20
MIN_SHARDS_IN_SPLIT = 16
"""Readers split shards among them: a small split gets more and smaller ones."""

BYTES_PER_PIXEL = 0.4  # JPEG q95 4:2:0 of camera pictures: 102 kB at 672 × 384
_UNKNOWN_FRAMES = 120  # planned for a whole clip whose length is not known yet
_MAX_NAME = 80 - 13


@dataclass(frozen=True, slots=True)
class View:
    """What one sample of a shard holds."""

    key: str
    clip: str
    start_seconds: float | None
    """None: the whole clip, whose length is known when it is opened."""
    end_seconds: float | None
    num_frames: int | None
    """None: by the profile from the clip's length."""


@dataclass
class SplitPlan:
    """The views of a split and how rows lead to them."""

    split: str
    profile: Profile
    views: dict[str, list[View]] = field(default_factory=dict)
    """By clip, each list in order of first use."""
    views_of: dict[Shown, tuple[View, ...] | Rejected] = field(default_factory=dict)
    """By the windows that an example shows together."""

    def num_views(self) -> int:
        """Number of different views."""
        return sum(map(len, self.views.values()))

    def whole_clip(self, clip: str) -> View | None:
        """The view of the whole clip, when the plan has one."""
        return next((view for view in self.views.get(clip, ()) if view.start_seconds is None), None)


def plan_split(
    split: str,
    profile: Profile,
    examples: Examples,
    clips_without_windows: Iterable[str],
    *,
    source: str | None = None,
) -> SplitPlan:
    """Views for all windows of the examples, and of the whole clip for clips that only other rows name.

    Args:
        clips_without_windows: clips of annotation rows or bench items; those that an example shows already
            get no view of their own.
        source: first word of the keys; None: the first folder of the clip's path.
    """
    plan = SplitPlan(split, profile)
    known: dict[tuple[Window, int | None], View] = {}
    for shown in dict.fromkeys(examples.shown):
        plan.views_of[shown] = _views_of(plan, shown, known, source)
    for clip in dict.fromkeys(clips_without_windows):
        if clip not in plan.views:
            plan.views[clip] = [make_view(clip, None, None, None, profile, source)]
    return plan


def _views_of(
    plan: SplitPlan, shown: Shown, known: dict[tuple[Window, int | None], View], source: str | None
) -> tuple[View, ...] | Rejected:
    try:
        counts = _counts(shown, plan.profile)
    except Rejected as rejected:
        return rejected
    views = []
    for key in zip(shown, counts, strict=True):
        view = known.get(key)
        if view is None:
            window, count = key
            view = known[key] = make_view(*window, count, plan.profile, source)
            plan.views.setdefault(window.clip, []).append(view)
        views.append(view)
    return tuple(views)


def _counts(shown: Shown, profile: Profile) -> Sequence[int | None]:
    """Frames of each window; None for that of a whole clip, whose length is known when it is opened."""
    seconds = [window.duration_seconds for window in shown if window.duration_seconds is not None]
    return count_frames(seconds, profile) if len(seconds) == len(shown) else [None] * len(shown)


def make_view(
    clip: str,
    start_seconds: float | None,
    end_seconds: float | None,
    num_frames: int | None,
    profile: Profile,
    source: str | None = None,
) -> View:
    """The view of a window of a clip, with its key."""
    identity = f"{clip}\0{start_seconds!r} {end_seconds!r} {num_frames} {profile.rules}"
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return View(f"{_readable(clip, source)}-{digest}", clip, start_seconds, end_seconds, num_frames)


@lru_cache(maxsize=1 << 16)
def _readable(clip: str, source: str | None) -> str:
    """`<source>-<stem>` in [a-z0-9_-], short; that it is unique is the work of the digest."""
    folder, _, rest = clip.partition("/")
    stem = (rest or folder).rsplit("/", 1)[-1].rsplit(".", 1)[0]
    words = f"{source or folder}-{stem}" if rest or source else stem
    return re.sub(r"[^a-z0-9_-]+", "_", words.lower())[:_MAX_NAME].strip("_-") or "clip"


def link_examples(examples: Examples, questions: Questions) -> list[int]:
    """For each example the number of its annotation row, where clip and question agree; else −1.

    The question of an example is its `question_text`, else its prompt, which may hold the options as well.
    """
    if not questions.table.num_rows:
        return [-1] * examples.table.num_rows
    exact = pc.index_in(_asked(examples.table), value_set=_asked(questions.table))  # the first of equal ones
    numbers: list[int] = pc.fill_null(exact, -1).to_pylist()
    if -1 in numbers:
        of_clip: dict[str, list[int]] = defaultdict(list)
        for number, clip in enumerate(questions.clips()):
            of_clip[clip].append(number)
        texts = questions.table.column("question")
        for row, number in enumerate(numbers):
            if number < 0:
                clip, asked = (examples.table.column(name)[row].as_py() for name in ("clip", "question"))
                asked = (asked or "").strip()
                inside = [n for n in of_clip.get(clip, ()) if texts[n].as_py().strip() in asked]
                numbers[row] = max(inside, key=lambda n: len(texts[n].as_py()), default=-1)
    return numbers


def _asked(table: pa.Table) -> pa.ChunkedArray:
    """Clip and stripped question of each row in one text; a path holds no NUL."""
    questions = pc.utf8_trim_whitespace(pc.fill_null(table.column("question"), ""))
    return pc.binary_join_element_wise(table.column("clip"), questions, "\0")


@dataclass
class Assignment:
    """Which member of which part is the clip that rows name."""

    places: dict[str, tuple[str, TarMember]] = field(default_factory=dict)
    """clip → (path of the part, member)."""
    rejects: dict[str, Reject] = field(default_factory=dict)
    """clip → why no part holds it."""
    other_case: set[str] = field(default_factory=set)
    """Clips found under another case of letters."""

    def of_part(self, part: str) -> dict[str, TarMember]:
        """Members of one part by clip."""
        return {clip: member for clip, (holder, member) in self.places.items() if holder == part}


def assign_clips(clips: Iterable[str], parts: Mapping[str, Sequence[TarMember]]) -> Assignment:
    """Find each clip in the parts: by the exact path, else by a single one that differs in case alone.

    The same path in two parts is one clip when the bytes are the same (the first part holds it), else none
    (`duplicate-across-parts-conflict`). A clip that no part holds is `clip-missing`.
    """
    holders: dict[str, list[tuple[str, TarMember]]] = defaultdict(list)
    for part, members in sorted(parts.items()):
        for member in members:
            holders[member.name].append((part, member))
    names_in_lower: dict[str, list[str]] = defaultdict(list)
    assignment = Assignment()
    for clip in clips:
        if clip not in holders and not names_in_lower:
            for name in holders:
                names_in_lower[name.lower()].append(name)
        alike = [clip] if clip in holders else names_in_lower.get(clip.lower(), [])
        if len(alike) != 1:
            detail = f"{len(alike)} members differ from it in case alone" if alike else "no part holds it"
            assignment.rejects[clip] = Reject("clip", "", "clip-missing", detail, clip=clip)
            continue
        copies = holders[alike[0]]
        if len({member.sha256 for _, member in copies}) > 1:
            detail = "other bytes in " + ", ".join(part for part, _ in copies)
            assignment.rejects[clip] = Reject(
                "clip", copies[0][0], "duplicate-across-parts-conflict", detail, member=alike[0], clip=clip
            )
            continue
        assignment.places[clip] = copies[0]
        if alike[0] != clip:
            assignment.other_case.add(clip)
    return assignment


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard to write: views of clips of one part, by clip."""

    name: str
    """`<part>-<NNNN>.tar`, below the folder of its split."""
    split: str
    part: str
    views: Mapping[str, Sequence[View]]

    def all_views(self) -> list[View]:
        """The views of all its clips."""
        return [view for of_clip in self.views.values() for view in of_clip]


def expected_frames(views: Iterable[View], profile: Profile) -> int:
    """Frames of views before any clip is opened: of whole clips, whose length is not known, it is a guess."""
    whole = profile.max_total if profile.max_fps is None else min(_UNKNOWN_FRAMES, profile.max_total)
    return sum(whole if view.num_frames is None else view.num_frames for view in views)


def planned_bytes(views: Mapping[str, Sequence[View]], profile: Profile) -> int:
    """Estimate of what the views take in shards: full grids at JPEG q95."""
    unknown = min(_UNKNOWN_FRAMES, profile.max_total)
    frames = sum(view.num_frames or unknown for clip in views.values() for view in clip)
    return int(frames * profile.max_cells * profile.grid_pixels**2 * BYTES_PER_PIXEL)


def shard_bytes(split_bytes: int) -> int:
    """Planned size of a shard: 512 MB, halved until the split gives at least 16.

    Halving keeps most shards where they are when a data set grows a little.
    """
    size = SHARD_BYTES
    while split_bytes < size * MIN_SHARDS_IN_SPLIT and size > 1 << 20:
        size //= 2
    return size


def plan_shards(plan: SplitPlan, part: str, clips: Iterable[str], size_bytes: int) -> list[ShardPlan]:
    """The shards of one part: its clips that have views, spread by the hash of their paths.

    Args:
        part: path of the part in the source.
        clips: members of the part.
        size_bytes: what `shard_bytes` gave for the split.
    """
    views = {clip: plan.views[clip] for clip in clips if clip in plan.views}
    count = max(1, -(-planned_bytes(views, plan.profile) // size_bytes))
    shards: dict[int, dict[str, list[View]]] = defaultdict(dict)
    for clip, of_clip in sorted(views.items()):
        digest = hashlib.sha256(clip.encode()).digest()
        shards[int.from_bytes(digest[:8], "big") * count >> 64][clip] = of_clip
    stem = shard_stem(part)
    return [
        ShardPlan(f"{stem}-{number:04}.tar", plan.split, part, of_shard)
        for number, of_shard in sorted(shards.items())
    ]


def shard_stem(part: str) -> str:
    """First word of the shards of a part: its file name; one that has to be cleaned gets a hash of its path."""
    name = re.sub(r"\.(tar|tar\.gz|tgz)$", "", part.rsplit("/", 1)[-1])
    clean = re.sub(r"[^A-Za-z0-9_-]+", "_", name)
    return clean if clean == name else f"{clean}-{hashlib.sha256(part.encode()).hexdigest()[:8]}"


def require_different_names(parts: Iterable[str]) -> None:
    """Two parts of a split with one file name would write the same shards.

    Raises:
        SourceError: naming it.
    """
    first: dict[str, str] = {}
    for part in parts:
        if (other := first.setdefault(shard_stem(part), part)) != part:
            raise SourceError(f"{other} and {part}, of one split, have one name: choose one of them with --parts")
