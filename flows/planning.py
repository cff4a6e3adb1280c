"""What a run would do: from the listing, the rows, headers of parts, and some seconds of decoding. No Prefect.

Of a folder every part is known. Of a Hub one part a split is looked into, by requests for ranges of it; parts that
an earlier run indexed are known by their receipts. Nothing is written into the output.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from clipshards.annotations import QuestionBuilder, Questions, read_questions
from clipshards.decode.choice import choose_decoder
from clipshards.decode.media import Extent
from clipshards.errors import SourceError, UsageError
from clipshards.estimate import (
    NOTHING,
    VIEW_BYTES,
    Amount,
    Seen,
    estimate,
    learn_rates,
    least_budget,
    part_working_bytes,
)
from clipshards.examples import Examples, read_examples
from clipshards.hub.listing import HubFile, Listing, list_source
from clipshards.hub.source import HubSource
from clipshards.output import current_snapshot
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
from clipshards.rendering import ClipJob
from clipshards.shards import Encoding, PartOnDisk, ShardInfo, find_shard, made_with
from clipshards.speed import Measurement, made_job, measure_clips
from clipshards.survey import Headers
from clipshards.tars import TarMember
from flows.changes import diff_of_listing
from flows.looking import Access, Look
from flows.settings import Settings
from manifests.kept import KeptFrames, kept_frames
from manifests.rows import RowsOfViews


@dataclass(frozen=True)
class Plan:
    """What a run would come to; `estimated` names the numbers that were not counted, None is not known."""

    source: str
    commit: str
    access: Access
    parts: int
    source_bytes: int
    """Of the parts and the files of rows."""
    download_bytes: int
    """0 for a folder."""
    download_bytes_here: int
    download_bytes_left: int
    clips: int | None
    examples: int | None
    questions: int | None
    bench_items: int | None
    rejected_rows: int | None
    views: int | None
    frames: int | None
    frames_left: int | None
    output_bytes: int | None
    output_bytes_left: int | None
    shards: int | None
    shards_left: int | None
    disk_free_bytes: int
    disk_needed_bytes: int | None
    """Besides what is there already."""
    disk_budget_bytes: int | None
    disk_needed_bytes_with_budget: int | None
    least_disk_budget_bytes: int
    decoder: str
    workers: int
    measured_on: str
    """Which clips the decoder was measured on, "" when nothing is left to decode."""
    stored_frames_per_second: float | None
    decode_hours: float | None
    download_hours: float | None
    """None: nothing was fetched that would tell."""
    estimated: tuple[str, ...]
    notes: tuple[str, ...]
    """What could not be looked at, and why."""
    refresh: dict[str, Any] | None
    """What changed in the source since the snapshot of the output; None when there is no snapshot."""


def plan_run(settings: Settings) -> Plan:
    """Look at the source and the output, and measure the decoder for some ten seconds.

    Raises:
        UsageError, SourceError: as `prepare`, but not for a gated data set, of which the sizes are known.
    """
    decoder = choose_decoder(settings.decoder).decoder
    listing = list_source(settings.source, commit=settings.commit, asks_for_file=False)
    with tempfile.TemporaryDirectory() as folder:
        look = Look(settings.source, listing, settings.out / "work", Path(folder))
        is_open = look.access.state != "refused"
        splits = [_open_split(settings, listing, look, name, is_open) for name in settings.recipe.splits]
        if not any(split.files for split in splits):
            raise SourceError(
                f"{settings.source.name} holds no part that recipe {settings.recipe.name!r} and "
                f"--parts {settings.parts!r} name: check both"
            )
        if not is_open:
            return _without_rows(_sum_up(settings, listing, look, splits, decoder, Measurement(), ""))
        _find_what_is_there(settings, splits, decoder)
        measured, measured_on = _measure(settings, look, splits, decoder, Path(folder))
        return _sum_up(settings, listing, look, splits, decoder, measured, measured_on)


@dataclass
class _SplitLook:
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


def _open_split(settings: Settings, listing: Listing, look: Look, name: str, is_open: bool) -> _SplitLook:
    split = settings.recipe.splits[name]
    profile = settings.profile_of(split)
    files = [file for file in listing.find(split.parts) if settings.wants(file.path)]
    question_files = listing.find(split.questions)
    example_files = [(stage, file) for stage, found in split.examples.items() for file in listing.find(found)]
    row_files = [*question_files, *(file for _, file in example_files)]
    if not is_open:
        return _SplitLook(split, SplitPlan(name, profile), 1, files, row_files)
    questions = read_questions([(file.path, look.rows(file)) for file in question_files], settings.recipe, split)
    examples = read_examples(
        [(stage, file.path, look.rows(file)) for stage, file in example_files], split.clip_folder
    )
    source = "bench" if split.item_folder else None
    plan = plan_split(name, profile, examples, questions.clips(), source=source)
    size_bytes = shard_bytes(planned_bytes(plan.views, profile))
    known = _SplitLook(split, plan, size_bytes, files, row_files, examples, questions)
    _look_into_parts(known, look)
    _add_views(known, settings)
    _place_clips(known, settings)
    return known


def _look_into_parts(split: _SplitLook, look: Look) -> None:
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


def _add_views(split: _SplitLook, settings: Settings) -> None:
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


def _place_clips(split: _SplitLook, settings: Settings) -> None:
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


def _expected(split: _SplitLook, files: list[HubFile]) -> tuple[float, float]:
    """Clips and items of these parts."""
    counts = [split.headers[file.path].expected(file.size_bytes) for file in files]
    return sum(clips for clips, _ in counts), sum(items for _, items in counts) if split.split.item_folder else 0.0


def _find_what_is_there(settings: Settings, splits: list[_SplitLook], decoder: str) -> None:
    """Which views are in finished shards or in the snapshot, so that nothing has to be decoded for them."""
    profiles = {split.plan.split: asdict(split.plan.profile) for split in splits}
    kept = kept_frames(settings.out, made_with(settings.quality, decoder), profiles)
    for split in splits:
        rows = RowsOfViews(
            split.plan, split.examples, split.questions, split.items, link_examples(split.examples, split.questions)
        )
        encoding = Encoding(split.plan.profile, settings.quality, decoder)
        for file in split.files:
            if file.path not in split.headers:
                continue
            mine = {clip: member for clip, (part, member) in split.places.items() if part == file.path}
            plans = plan_shards(split.plan, file.path, mine, split.shard_bytes)
            split.num_shards += len(plans)
            if file.path in split.hashes:
                _find_shards(settings, split, file, mine, plans, kept, encoding, rows)


def _find_shards(
    settings: Settings, split: _SplitLook, file: HubFile, mine: dict[str, TarMember], plans: list[ShardPlan],
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


def _measure(
    settings: Settings, look: Look, splits: list[_SplitLook], decoder: str, folder: Path
) -> tuple[Measurement, str]:
    """Frames, bytes and speed, from clips that are on disk or fetched, else from a made one."""
    if all(view.key in split.stored for split in splits for view in split.views) and any(s.views for s in splits):
        return Measurement(), ""
    jobs = [job for split in splits for job in _jobs(settings, look, split, decoder)]
    words = f"{len(jobs)} clips of the source" if jobs else "a made clip: none of the source could be had"
    measured = measure_clips(
        jobs or [made_job(splits[0].plan.profile, decoder, folder)] * settings.workers,
        workers=settings.workers,
    )  # fmt: skip
    return measured, words


def _jobs(settings: Settings, look: Look, split: _SplitLook, decoder: str) -> list[ClipJob]:
    extents: dict[str, Extent] = {}
    for file in split.files:
        mine = _to_measure(split, file)
        if path := look.on_disk(file):
            extents |= {clip: Extent(str(path), m.offset_bytes, m.size_bytes) for clip, m in mine.items()}
    if not extents and split.places:
        file = next(file for file in split.files if _to_measure(split, file))
        extents = look.fetch_clips(file, _to_measure(split, file))
    views, profile, quality = split.plan.views, split.plan.profile, settings.quality
    return [
        ClipJob(clip, extent, tuple(views[clip]), profile, quality, Path(), decoder=decoder)
        for clip, extent in extents.items()
    ]


def _to_measure(split: _SplitLook, file: HubFile) -> dict[str, TarMember]:
    """Clips of a part that is known of which something is not in a finished shard."""
    return {
        clip: member
        for clip, (part, member) in split.places.items()
        if part == file.path and any(view.key not in split.stored for view in split.plan.views[clip])
    }


def _sum_up(
    settings: Settings,
    listing: Listing,
    look: Look,
    splits: list[_SplitLook],
    decoder: str,
    measured: Measurement,
    measured_on: str,
) -> Plan:
    total, left = _amounts(splits, measured)
    is_fetched = isinstance(settings.source, HubSource)
    row_files = [file for split in splits for file in split.row_files]
    files = [file for split in splits for file in split.files]
    wanted = [*row_files, *files]
    here = sum(map(look.bytes_here, wanted))
    to_fetch = sum(file.size_bytes - look.bytes_here(file) for file in row_files)
    to_fetch += sum(_left_of_part(look, split, file) for split in splits for file in split.files)
    needs = [
        [part_working_bytes(file.size_bytes, settings.quality, is_fetched=is_fetched) for file in split.files]
        for split in splits
    ]
    least = max(
        least_budget(of_split, together=bool(split.split.item_folder))
        for split, of_split in zip(splits, needs, strict=True)
    )
    download_left = to_fetch if is_fetched else 0
    shards, shards_left = _shards(splits, total, left)
    budget, rate = settings.disk_budget, measured.stored_frames_per_second
    network = look.download_bytes_per_second()
    return Plan(
        source=settings.source.name,
        commit=listing.commit,
        access=look.access,
        parts=len(files),
        source_bytes=sum(file.size_bytes for file in wanted),
        download_bytes=sum(file.size_bytes for file in wanted) if is_fetched else 0,
        download_bytes_here=here,
        download_bytes_left=download_left,
        clips=round(sum(split.num_clips for split in splits)),
        examples=round(sum(_num_examples(split) for split in splits)),
        questions=sum(split.questions.table.num_rows for split in splits),
        bench_items=round(sum(split.num_items for split in splits)),
        rejected_rows=sum(len(rows.rejects) for s in splits for rows in (s.questions, s.examples, s.items)),
        views=round(sum(len(split.views) * split.scale for split in splits)),
        frames=round(total.frames),
        frames_left=round(left.frames),
        output_bytes=round(total.num_bytes),
        output_bytes_left=round(left.num_bytes),
        shards=shards,
        shards_left=shards_left,
        disk_free_bytes=shutil.disk_usage(_existing(settings.out)).free,
        disk_needed_bytes=round(download_left + left.num_bytes),
        disk_budget_bytes=budget,
        disk_needed_bytes_with_budget=None
        if budget is None
        else round(min(budget, download_left) + left.num_bytes),
        least_disk_budget_bytes=least,
        decoder=decoder,
        workers=settings.workers,
        measured_on=measured_on,
        stored_frames_per_second=round(rate, 1),
        decode_hours=round(left.frames / rate / 3600, 4) if rate else 0.0,
        download_hours=round(download_left / network / 3600, 4) if network else None,
        estimated=_estimated(splits),
        notes=tuple(look.notes),
        refresh=_refresh(settings, listing, look, row_files),
    )


def _amounts(splits: list[_SplitLook], measured: Measurement) -> tuple[Amount, Amount]:
    """Frames and bytes of all shards, and of the shards and frames that are not there."""
    total, left = Amount(), Amount()
    for split in splits:
        looked = {**measured.views, **split.stored}
        rates = learn_rates(split.views, looked, split.plan.profile)
        rows = sum(file.size_bytes for file in split.row_files) / max(1, len(split.views))
        with_rows = Amount(0, VIEW_BYTES + rows)

        def of(views: list[View]) -> Amount:
            return estimate(views, looked, rates) + with_rows * len(views)  # noqa: B023  called at once

        whole = of(split.views) * split.scale
        total += whole
        left += whole - of([view for view in split.views if view.key in split.stored])
        left -= Amount(estimate([v for v in split.views if v.key in split.kept], looked, rates).frames)
    return total, left


def _shards(splits: list[_SplitLook], total: Amount, left: Amount) -> tuple[int, int]:
    """How many there will be, and how many of these are not there: of parts that are not known by their share."""
    num = there = 0
    for split in splits:
        known = sum(file.size_bytes for file in split.files if file.path in split.headers)
        factor = sum(file.size_bytes for file in split.files) / known if known else 0.0
        num += round(split.num_shards * factor)
        there += split.num_shards_there
    return num, num - there


def _left_of_part(look: Look, split: _SplitLook, file: HubFile) -> int:
    """Bytes of a part that must be fetched: none when all of its frames are there."""
    keys = [v.key for clip, (part, _) in split.places.items() if part == file.path for v in split.plan.views[clip]]
    is_done = file.path in split.hashes and all(key in split.stored or key in split.kept for key in keys)
    return 0 if is_done else file.size_bytes - look.bytes_here(file)


def _num_examples(split: _SplitLook) -> float:
    if not split.by_parts:
        return split.examples.table.num_rows
    clips = split.places
    return split.scale * sum(all(window.clip in clips for window in shown) for shown in split.examples.shown)


def _estimated(splits: list[_SplitLook]) -> tuple[str, ...]:
    names = ["output_bytes", "decode_hours"]
    if not all(split.is_known for split in splits):
        names += ["bench_items", "clips", "frames", "views", "shards"]
    return tuple(names)


def _without_rows(plan: Plan) -> Plan:
    """What is known of a source that does not let us in: the sizes of its files."""
    unknown = (
        "clips", "examples", "questions", "bench_items", "rejected_rows", "views", "frames", "frames_left",
        "output_bytes", "output_bytes_left", "shards", "shards_left", "disk_needed_bytes",
        "disk_needed_bytes_with_budget", "stored_frames_per_second", "decode_hours",
    )  # fmt: skip
    return replace(plan, estimated=(), **dict.fromkeys(unknown))


def _refresh(settings: Settings, listing: Listing, look: Look, row_files: list[HubFile]) -> dict[str, Any] | None:
    try:
        snapshot = current_snapshot(settings.out)
    except UsageError:
        return None
    diff = diff_of_listing(snapshot, settings, listing, look.hash_of)
    rows = {file.path for file in row_files}
    return {
        "parts_added": sorted({*diff.added} - rows),
        "parts_changed": sorted({*diff.changed} - rows),
        "parts_removed": [*diff.removed],
        "parts_renamed": diff.renamed,
        "rows_changed": sorted({*diff.added, *diff.changed} & rows),
    }


def _existing(out: Path) -> Path:
    """The nearest folder above an output that is not made yet."""
    return next(folder for folder in (out, *out.parents) if folder.exists())
