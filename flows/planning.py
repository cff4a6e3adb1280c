"""What a run or a refresh would do, from the listing and the rows alone. No Prefect: it answers in seconds."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clipshards.annotations import read_questions
from clipshards.examples import read_examples
from clipshards.hub.fetch import fetch
from clipshards.hub.listing import HubFile, Listing, hash_file, list_source, pin_commit
from clipshards.hub.source import FolderSource, HubSource, parse_source
from clipshards.output import current_snapshot
from clipshards.plan import plan_split, planned_bytes
from clipshards.schema import SCHEMA_VERSION
from clipshards.shards import made_with
from flows.settings import Settings, make_settings
from manifests.diff import Diff, diff_files


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


@dataclass(frozen=True)
class RefreshPlan:
    """The present snapshot of an output and the present state of its source."""

    snapshot: Path
    source: str
    commit: str
    """Of the source now; "" for a folder."""
    is_current: bool
    """The snapshot was made of this commit, by this version: there is nothing to do."""
    options: dict[str, Any]
    """What `prepare` was asked for: a refresh asks for the same."""


def plan_refresh(out: Path, *, endpoint: str | None = None) -> RefreshPlan:
    """Look at the snapshot, and ask the Hub for its commit: one request.

    Raises:
        UsageError: nothing is published in `out`.
        SourceError: the Hub does not answer, or refuses.
    """
    snapshot = current_snapshot(out)
    dataset = json.loads((snapshot / "dataset.json").read_text(encoding="utf-8"))
    source = parse_source(dataset["source"], endpoint=endpoint)
    commit = pin_commit(source) if isinstance(source, HubSource) else ""
    by_this_version = dataset["schema_version"] == SCHEMA_VERSION and dataset["made_with"] == made_with(
        dataset["quality"], dataset["decoder"]
    )
    options = {**dataset["options"], **dataset["selection"], "quality": dataset["quality"]}
    return RefreshPlan(
        snapshot, dataset["source"], commit, by_this_version and commit == dataset["commit"], options
    )


def diff_of_source(plan: RefreshPlan, *, endpoint: str | None = None) -> Diff:
    """What changed in the source since the snapshot; the files of a local folder are hashed for it."""
    dataset = json.loads((plan.snapshot / "dataset.json").read_text(encoding="utf-8"))
    settings = make_settings(plan.source, plan.snapshot, endpoint=endpoint, **plan.options)
    listing = list_source(settings.source)
    now = {}
    for split in settings.recipe.splits.values():
        patterns = [*split.questions, *(pattern for found in split.examples.values() for pattern in found)]
        files = [*listing.find(patterns), *(f for f in listing.find(split.parts) if settings.wants(f.path))]
        now |= {file.path: file.sha256 or file.git_sha1 or _hash(settings.source, file) for file in files}
    return diff_files({path: file["hash"] for path, file in dataset["inputs"].items()}, now)


def _hash(source: HubSource | FolderSource, file: HubFile) -> str:
    return hash_file(source.folder / file.path) if isinstance(source, FolderSource) else ""
