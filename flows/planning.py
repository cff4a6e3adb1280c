"""What a run would do, from the listing and the rows alone. No Prefect: it answers in seconds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from clipshards.annotations import read_questions
from clipshards.examples import read_examples
from clipshards.hub.fetch import fetch
from clipshards.hub.listing import HubFile, Listing, list_source
from clipshards.hub.source import FolderSource, HubSource
from clipshards.plan import plan_split, planned_bytes
from flows.settings import Settings, make_settings


def plan_run(source: str, out: Path | None, *, recipe: str, profile: str | None, parts: str) -> dict[str, Any]:
    """Totals that a run would come to; frames of clips whose length no row gives are estimated.

    Raises:
        UsageError, SourceError: as `prepare`.
    """
    settings = make_settings(source, out or ".", recipe=recipe, profile=profile, parts=parts)
    listing = list_source(settings.source)
    with tempfile.TemporaryDirectory() as folder:
        totals = [_plan_split(settings, listing, name, Path(folder)) for name in settings.recipe.splits]
    summed = {name: sum(split[name] for split in totals) for name in totals[0]}
    free_bytes = {"disk_free_bytes": shutil.disk_usage(_existing(out)).free} if out else {}
    return {"source": settings.source.name, "commit": listing.commit or "a folder", **summed, **free_bytes}


def _plan_split(settings: Settings, listing: Listing, name: str, folder: Path) -> dict[str, int]:
    source, recipe, split = settings.source, settings.recipe, settings.recipe.splits[name]
    wanted = [file for file in listing.find(split.parts) if settings.wants(file.path)]
    question_files = listing.find(split.questions)
    example_files = [(stage, file) for stage, found in split.examples.items() for file in listing.find(found)]
    paths = _on_disk(source, listing, [*question_files, *(file for _, file in example_files)], folder)
    questions = read_questions([(file.path, paths[file.path]) for file in question_files], recipe, split)
    examples = read_examples(
        [(stage, file.path, paths[file.path]) for stage, file in example_files], split.clip_folder
    )
    profile = settings.profile_of(split)
    plan = plan_split(name, profile, examples, questions.clips())
    return {
        "parts": len(wanted),
        "part_bytes": sum(file.size_bytes for file in wanted),
        "clips": len(plan.views),
        "questions": questions.table.num_rows,
        "examples": examples.table.num_rows,
        "bad_rows": len(questions.rejects) + len(examples.rejects),
        "views": plan.num_views(),
        "frames": sum(v.num_frames or profile.max_total // 2 for of_clip in plan.views.values() for v in of_clip),
        "estimated_shard_bytes": planned_bytes(plan.views, profile),
    }


def _on_disk(
    source: HubSource | FolderSource, listing: Listing, files: Iterable[HubFile], folder: Path
) -> dict[str, Path]:
    if isinstance(source, FolderSource):
        return {file.path: source.folder / file.path for file in files}
    return {file.path: fetch(source, listing.commit, file, folder / file.path) for file in files}


def _existing(out: Path) -> Path:
    """The nearest folder above an output that is not made yet."""
    return next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
