"""What is known of one split before a run: its rows, the members of its parts, and what is there of it already."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from clipshards.annotations import QuestionBuilder, Questions, read_questions
from clipshards.estimate import NOTHING, Seen
from clipshards.examples import Examples
from clipshards.formats import read_split_examples
from clipshards.hub.listing import HubFile, Listing
from clipshards.plan import (
    ShardPlan,
    SplitPlan,
    View,
    assign_clips,
    link_examples,
    make_view,
    plan_shards,
    plan_split,
    planned_bytes,
    shard_bytes,
)
from clipshards.recipe import Split
from clipshards.shards import Encoding, PartOnDisk, ShardInfo, find_shard, made_with
from clipshards.survey import Headers
from clipshards.tars import TarMember
from flows.looking import Look
from flows.settings import Settings
from manifests.kept import KeptFrames, kept_frames
from manifests.rows import RowsOfViews


@dataclass
class SplitLook:
    """What is known of one split."""

    split: Split
    plan: SplitPlan
    shard_bytes: int
    files: list[HubFile]
    row_files: list[HubFile]
    examples: Examples = field(default_factory=Examples)
    questions: Questions = field(default_factory=Questions)
    items: Questions = field(default_factory=Questions)
    num_items: float = 0.0
    hashes: dict[str, str] = field(default_factory=dict)
    """sha256 of the parts that an earlier run indexed."""
    headers: dict[str, Headers] = field(default_factory=dict)
    places: dict[str, tuple[str, TarMember]] = field(default_factory=dict)
    """The clips that are wanted of the parts that were looked into: part and member of each."""
    num_clips: float = 0.0
    by_parts: bool = False
    """The number of clips follows from the parts that were looked into, not from the rows."""
    scale: float = 1.0
    """How many times as much as `views` the split holds."""
    stored: dict[str, Seen] = field(default_factory=dict)
    """By the key of the view, what finished shards hold."""
    kept: set[str] = field(default_factory=set)
    """Keys of other views that need not be decoded: the snapshot has their frames."""
    num_shards: int = 0
    num_shards_there: int = 0

    @property
    def is_known(self) -> bool:
        """Whether all members of all parts are."""
        return all(file.path in self.headers and self.headers[file.path].is_complete for file in self.files)

    @property
    def views(self) -> list[View]:
        """The views that the numbers rest on."""
        clips = self.places if self.is_known or self.by_parts else self.plan.views
        return [view for clip in clips for view in self.plan.views[clip]]

    def clips_of(self, file: HubFile) -> dict[str, TarMember]:
        """The clips that are wanted of a part."""
        return {clip: member for clip, (part, member) in self.places.items() if part == file.path}

    def clips_to_measure(self, file: HubFile) -> dict[str, TarMember]:
        """Those of which something is not in a finished shard."""
        views, stored = self.plan.views, self.stored
        return {c: m for c, m in self.clips_of(file).items() if any(view.key not in stored for view in views[c])}

    def download_left(self, file: HubFile, look: Look) -> int:
        """Bytes of a part that must be fetched: none when all of its frames are there."""
        keys = [view.key for clip in self.clips_of(file) for view in self.plan.views[clip]]
        is_done = file.path in self.hashes and all(key in self.stored or key in self.kept for key in keys)
        return 0 if is_done else file.size_bytes - look.bytes_here(file)

    def num_examples(self) -> float:
        """Training lines that show only clips that are wanted."""
        if not self.by_parts:
            return self.examples.table.num_rows
        return self.scale * sum(
            all(window.clip in self.places for window in shown) for shown in self.examples.shown
        )


def open_split(settings: Settings, listing: Listing, look: Look, name: str, is_open: bool) -> SplitLook:
    """Read the rows of a split and look into its parts; of one that is not open only the files are known."""
    split = settings.recipe.splits[name]
    profile = settings.profile_of(split)
    files = [file for file in listing.find(split.parts) if settings.wants(file.path)]
    question_files = listing.find(split.questions)
    example_files = [(stage, file) for stage, found in split.examples.items() for file in listing.find(found)]
    row_files = [*question_files, *(file for _, file in example_files)]
    if not is_open:
        return SplitLook(split, SplitPlan(name, profile), 1, files, row_files)
    questions = read_questions([(file.path, look.rows(file)) for file in question_files], settings.recipe, split)
    files_of_stages = [(stage, file.path, look.rows(file)) for stage, file in example_files]
    examples = read_split_examples(files_of_stages, settings.recipe, split)
    source = "bench" if split.item_folder else None
    plan = plan_split(name, profile, examples, questions.clips(), source=source)
    size_bytes = shard_bytes(planned_bytes(plan.views, profile))
    known = SplitLook(split, plan, size_bytes, files, row_files, examples, questions)
    _look_into_parts(known, look)
    _add_views(known, settings)
    _place_clips(known, settings)
    return known


def _look_into_parts(split: SplitLook, look: Look) -> None:
    for file in split.files:
        if receipt := look.receipt(file):
            index = receipt.index
            split.hashes[file.path] = receipt.sha256
            split.headers[file.path] = Headers(index.members, file.size_bytes, True, receipt.texts)
        elif headers := look.headers(file):
            split.headers[file.path] = headers
    if split.files and not split.headers:
        typical = sorted(split.files, key=lambda file: file.size_bytes)[len(split.files) // 2]
        if headers := look.first_headers(typical):
            split.headers[typical.path] = headers


def _add_views(split: SplitLook, settings: Settings) -> None:
    """Views of bench items, and with --all-clips of clips that no row names."""
    views, profile, folder = split.plan.views, split.plan.profile, split.split.item_folder
    if folder:
        builder = QuestionBuilder(settings.recipe, split.split)
        for part, headers in sorted(split.headers.items()):
            for member, text in sorted(headers.texts.items()):
                if member.startswith(folder):
                    builder.add_item(part, member, text)
        split.items = builder.finish()
    for headers in split.headers.values() if settings.all_clips else ():
        for member in headers.members:
            if member.name not in views and not (folder and member.name.startswith(folder)):
                views[member.name] = [make_view(member.name, None, None, None, profile)]
    for clip in split.items.clips():
        if clip not in views:
            views[clip] = [make_view(clip, None, None, None, profile, "bench")]


def _place_clips(split: SplitLook, settings: Settings) -> None:
    """Which clips are wanted of the parts that are known, and how many that makes of all."""
    members = {part: headers.members for part, headers in split.headers.items()}
    assignment = assign_clips(split.plan.views, members)
    num_named = len(assignment.places)
    for part in sorted(members):
        split.places |= dict(sorted((c, p) for c, p in assignment.places.items() if p[0] == part)[: settings.limit])
    split.by_parts = bool(settings.selection()) or settings.all_clips or not split.plan.views
    sampled = [file for file in split.files if file.path in split.headers]
    clips, items = _expected(split, sampled)
    part_bytes = sum(file.size_bytes for file in sampled)
    factor = sum(file.size_bytes for file in split.files) / part_bytes if part_bytes else 1.0
    split.num_items = items * factor
    if split.is_known or not split.by_parts:
        split.num_clips = len({view.clip for view in split.views})
        return
    num_members = sum(len(headers.members) - len(headers.texts) for headers in split.headers.values())
    named = num_named / max(1, num_members)
    split.num_clips = clips * factor * named
    if settings.limit:
        split.num_clips = min(split.num_clips, settings.limit * len(split.files))
    split.scale = split.num_clips / len(split.places) if split.places else 1.0


def _expected(split: SplitLook, files: list[HubFile]) -> tuple[float, float]:
    """Clips and items of these parts."""
    counts = [split.headers[file.path].expected(file.size_bytes) for file in files]
    return sum(clips for clips, _ in counts), sum(items for _, items in counts) if split.split.item_folder else 0.0


def find_what_is_there(settings: Settings, splits: list[SplitLook], decoder: str) -> None:
    """Which views are in finished shards or in the snapshot, so that nothing has to be decoded for them."""
    profiles = {split.plan.split: asdict(split.plan.profile) for split in splits}
    kept = kept_frames(settings.out, made_with(settings.quality, decoder), profiles)
    for split in splits:
        linked = link_examples(split.examples, split.questions) if split.hashes else []
        rows = RowsOfViews(split.plan, split.examples, split.questions, split.items, linked)
        encoding = Encoding(split.plan.profile, settings.quality, decoder)
        for file in split.files:
            if file.path not in split.headers:
                continue
            mine = split.clips_of(file)
            plans = plan_shards(split.plan, file.path, mine, split.shard_bytes)
            split.num_shards += len(plans)
            if file.path in split.hashes:
                _find_shards(settings, split, file, mine, plans, kept, encoding, rows)


def _find_shards(
    settings: Settings, split: SplitLook, file: HubFile, mine: dict[str, TarMember], plans: list[ShardPlan],
    kept: KeptFrames, encoding: Encoding, rows: RowsOfViews,
) -> None:  # fmt: skip
    work = settings.out / "work"
    for plan in plans:
        members = {clip: mine[clip] for clip in plan.views}
        part = PartOnDisk(file.path, work / "downloads" / file.path, split.hashes[file.path], members)
        if info := find_shard(plan, part, encoding, rows.of(plan.all_views()), work / "shards"):
            split.num_shards_there += 1
            split.stored |= _stored(plan, info)
            continue
        for clip, views in plan.views.items():
            if kept.knows(clip, members[clip].sha256, views):
                split.kept |= {view.key for view in views}


def _stored(plan: ShardPlan, info: ShardInfo) -> dict[str, Seen]:
    """What a finished shard holds; of a view that was rejected nothing."""
    num_bytes = {place.key: place.mp_size_bytes for place in info.samples}
    rendered = [view for outcome in info.outcomes for view in outcome.views]
    seen = {v.key: Seen(v.num_frames, v.height * v.width, num_bytes[v.key] / v.num_frames) for v in rendered}
    return {view.key: seen.get(view.key, NOTHING) for view in plan.all_views()}
