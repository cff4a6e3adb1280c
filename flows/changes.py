"""What changed in the source of a snapshot. No Prefect: it answers in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clipshards.hub.listing import HubFile, Listing, hash_file, list_source, pin_commit
from clipshards.hub.source import FolderSource, HubSource, parse_source
from clipshards.output import current_snapshot, read_dataset
from clipshards.schema import SCHEMA_VERSION
from clipshards.shards import made_with
from flows.settings import Settings, make_settings
from manifests.diff import Diff, diff_files


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
    dataset = read_dataset(snapshot)
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
    settings = make_settings(plan.source, plan.snapshot, endpoint=endpoint, **plan.options)
    listing = list_source(settings.source)
    return diff_of_listing(plan.snapshot, settings, listing, lambda file: hash_of(settings.source, file))


def diff_of_listing(
    snapshot: Path, settings: Settings, listing: Listing, hash_of: Callable[[HubFile], str]
) -> Diff:
    """What changed between the inputs of a snapshot and the files of a listing."""
    dataset = read_dataset(snapshot)
    now = {}
    for split in settings.recipe.splits.values():
        patterns = [*split.questions, *(pattern for found in split.examples.values() for pattern in found)]
        files = [*listing.find(patterns), *(f for f in listing.find(split.parts) if settings.wants(f.path))]
        now |= {file.path: hash_of(file) for file in files}
    return diff_files({path: file["hash"] for path, file in dataset["inputs"].items()}, now)


def hash_of(source: HubSource | FolderSource, file: HubFile) -> str:
    """The hash by which a file of the source is known: of a folder's file it is computed."""
    known = file.sha256 or file.git_sha1
    return known or (hash_file(source.folder / file.path) if isinstance(source, FolderSource) else "")
