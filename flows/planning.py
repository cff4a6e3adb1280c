"""What a run would do: from the listing, the rows, headers of parts, and some seconds of decoding. No Prefect.

Of a folder every part is known. Of a Hub one part a split is looked into, by requests for ranges of it; parts that
an earlier run indexed are known by their receipts. Nothing is written into the output.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clipshards.decode.choice import choose_decoder
from clipshards.decode.media import Extent
from clipshards.errors import SourceError, UsageError
from clipshards.estimate import (
    VIEW_BYTES,
    Amount,
    estimate,
    learn_rates,
    least_budget,
    part_working_bytes,
)
from clipshards.hub.listing import HubFile, Listing, list_source
from clipshards.hub.source import HubSource
from clipshards.output import current_snapshot
from clipshards.plan import View
from clipshards.rendering import ClipJob
from clipshards.speed import Measurement, made_job, measure_clips
from clipshards.unpack import bytes_set_apart, is_packed_name
from flows.changes import diff_of_listing
from flows.looking import Access, Look
from flows.settings import Settings
from flows.splits import SplitLook, find_what_is_there, open_split


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
    """Downloaded already, also in part."""
    download_bytes_left: int
    """Without parts of which all frames are there."""
    clips: int | None
    examples: int | None
    questions: int | None
    bench_items: int | None
    rejected_rows: int | None
    """Rows that a run would quarantine for what they say themselves."""
    views: int | None
    frames: int | None
    frames_left: int | None
    """To decode: those that finished shards or the snapshot hold are not."""
    output_bytes: int | None
    output_bytes_left: int | None
    shards: int | None
    shards_left: int | None
    """To write, of new frames or of frames that the snapshot holds."""
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
        splits = [open_split(settings, listing, look, name, is_open) for name in settings.recipe.splits]
        if not any(split.files for split in splits):
            raise SourceError(
                f"{settings.source.name} holds no part that recipe {settings.recipe.name!r} and "
                f"--parts {settings.parts!r} name: check both"
            )
        if not is_open:
            return _without_rows(_sum_up(settings, listing, look, splits, decoder, Measurement(), ""))
        find_what_is_there(settings, splits, decoder)
        measured, measured_on = _measure(settings, look, splits, decoder, Path(folder))
        return _sum_up(settings, listing, look, splits, decoder, measured, measured_on)


def _measure(
    settings: Settings, look: Look, splits: list[SplitLook], decoder: str, folder: Path
) -> tuple[Measurement, str]:
    """Frames, bytes and speed, from clips that are on disk or fetched, else from a made one."""
    if all(view.key in split.stored for split in splits for view in split.views) and any(s.views for s in splits):
        return Measurement(), ""
    jobs = [job for split in splits for job in _jobs(settings, look, split, decoder)]
    words = f"{len(jobs)} clips of the source" if jobs else "a made clip: none of the source could be had"
    measured = measure_clips(
        jobs or [made_job(splits[0].plan.profile, decoder, folder)] * settings.workers,
        workers=settings.workers,
    )
    return measured, words


def _jobs(settings: Settings, look: Look, split: SplitLook, decoder: str) -> list[ClipJob]:
    extents: dict[str, Extent] = {}
    for file in split.files:
        mine = split.clips_to_measure(file)
        if path := look.on_disk(file):
            extents |= {clip: Extent(str(path), m.offset_bytes, m.size_bytes) for clip, m in mine.items()}
    if not extents:
        for file in split.files:
            if members := split.clips_to_measure(file):
                extents = look.fetch_clips(file, members)
                break
    views, profile, quality = split.plan.views, split.plan.profile, settings.quality
    return [
        ClipJob(clip, extent, tuple(views[clip]), profile, quality, Path(), decoder=decoder)
        for clip, extent in extents.items()
    ]


def _sum_up(
    settings: Settings,
    listing: Listing,
    look: Look,
    splits: list[SplitLook],
    decoder: str,
    measured: Measurement,
    measured_on: str,
) -> Plan:
    total, left = _amounts(splits, measured)
    row_files = [file for split in splits for file in split.row_files]
    sizes = _sizes(settings, look, splits, row_files)
    network = look.download_bytes_per_second()
    return Plan(
        source=settings.source.name,
        commit=listing.commit,
        access=look.access,
        **sizes,
        **_content(splits),
        **_output(settings, splits, total, left, sizes["download_bytes_left"] + _unpacked_left(look, splits)),
        decoder=decoder,
        workers=settings.workers,
        measured_on=measured_on,
        stored_frames_per_second=round(measured.stored_frames_per_second, 1),
        decode_hours=_hours(left.frames, measured.stored_frames_per_second),
        download_hours=_hours(sizes["download_bytes_left"], network) if network else None,
        estimated=_estimated(splits),
        notes=tuple(look.notes),
        refresh=_refresh(settings, listing, look, row_files),
    )


def _sizes(settings: Settings, look: Look, splits: list[SplitLook], row_files: list[HubFile]) -> dict[str, int]:
    """What the source takes, and what of it must be fetched."""
    parts = [file for split in splits for file in split.files]
    num_bytes = sum(file.size_bytes for file in [*row_files, *parts])
    left = sum(file.size_bytes - look.bytes_here(file) for file in row_files)
    left += sum(split.download_left(file, look) for split in splits for file in split.files)
    is_hub = isinstance(settings.source, HubSource)
    return {
        "parts": len(parts),
        "source_bytes": num_bytes,
        "download_bytes": num_bytes * is_hub,
        "download_bytes_here": sum(map(look.bytes_here, [*row_files, *parts])),
        "download_bytes_left": left * is_hub,
    }


def _content(splits: list[SplitLook]) -> dict[str, int]:
    rejects = [rows.rejects for split in splits for rows in (split.questions, split.examples, split.items)]
    return {
        "clips": round(sum(split.num_clips for split in splits)),
        "examples": round(sum(split.num_examples() for split in splits)),
        "questions": sum(split.questions.table.num_rows for split in splits),
        "bench_items": round(sum(split.num_items for split in splits)),
        "rejected_rows": sum(map(len, rejects)),
        "views": round(sum(len(split.views) * split.scale for split in splits)),
    }


def _working_bytes(file: HubFile, quality: int | None, *, is_fetched: bool) -> int:
    unpacked_bytes = bytes_set_apart(file.path, file.size_bytes)
    return part_working_bytes(file.size_bytes, quality, is_fetched=is_fetched, unpacked_bytes=unpacked_bytes)


def _output(
    settings: Settings, splits: list[SplitLook], total: Amount, left: Amount, work_left: int
) -> dict[str, int | None]:
    shards, shards_left = _shards(splits)
    budget = settings.disk_budget
    is_hub = isinstance(settings.source, HubSource)
    least = [
        least_budget(
            [_working_bytes(file, settings.quality, is_fetched=is_hub) for file in split.files],
            together=bool(split.split.item_folder),
        )
        for split in splits
    ]
    return {
        "frames": round(total.frames),
        "frames_left": round(left.frames),
        "output_bytes": round(total.num_bytes),
        "output_bytes_left": round(left.num_bytes),
        "shards": shards,
        "shards_left": shards_left,
        "disk_free_bytes": shutil.disk_usage(_existing(settings.out)).free,
        "disk_needed_bytes": round(work_left + left.num_bytes),
        "disk_budget_bytes": budget,
        "disk_needed_bytes_with_budget": budget and round(min(budget, work_left) + left.num_bytes),
        "least_disk_budget_bytes": max(least),
    }


def _unpacked_left(look: Look, splits: list[SplitLook]) -> int:
    """Bytes of compressed parts that are not unpacked yet: clips hardly shrink, a tar is as large as its part."""
    files = [file for split in splits for file in split.files if is_packed_name(file.path)]
    return sum(file.size_bytes for file in files if look.on_disk(file) is None)


def _hours(amount: float, rate: float) -> float | None:
    """None: it could not be measured."""
    if amount == 0:
        return 0.0
    return round(amount / rate / 3600, 4) if rate else None


def _amounts(splits: list[SplitLook], measured: Measurement) -> tuple[Amount, Amount]:
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


def _shards(splits: list[SplitLook]) -> tuple[int, int]:
    """How many there will be, and how many of these are not there: of parts that are not known by their share."""
    num = there = 0
    for split in splits:
        known = sum(file.size_bytes for file in split.files if file.path in split.headers)
        factor = sum(file.size_bytes for file in split.files) / known if known else 0.0
        num += round(split.num_shards * factor)
        there += split.num_shards_there
    return num, num - there


def _estimated(splits: list[SplitLook]) -> tuple[str, ...]:
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
