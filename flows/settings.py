"""What was asked for, checked before anything starts. No Prefect: a typing mistake is answered at once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from clipshards.decode.choice import require_known
from clipshards.errors import UsageError
from clipshards.hub.source import FolderSource, HubSource, parse_source
from clipshards.recipe import Recipe, Split, load_profile, load_recipe
from clipshards.sampling import Profile

TRANSPORTS = ("http", "xet")


@dataclass(frozen=True)
class Settings:
    """The options of a run; `make_settings` makes them of text."""

    source: HubSource | FolderSource
    out: Path
    recipe: Recipe
    recipe_name: str
    profile: str | None
    parts: str
    limit: int | None
    quality: int | None
    decoder: str
    workers: int
    extract: bool
    all_clips: bool
    disk_budget: int | None
    retry_quarantined: bool
    max_rejected: float
    transport: str
    commit: str | None

    def profile_of(self, split: Split) -> Profile:
        """Sampling rules of a split; `--profile` is for splits with training lines."""
        named = self.profile if self.profile and split.examples else split.profile
        return load_profile(named, self.recipe)

    def selection(self) -> dict[str, Any]:
        """What narrows the run to some of the source, else empty."""
        asked = {"parts": None if self.parts == "*" else self.parts, "limit": self.limit}
        return {name: value for name, value in asked.items() if value is not None}

    def options(self) -> dict[str, Any]:
        """The other options that a refresh takes over, as `prepare` takes them."""
        return {
            "recipe": self.recipe_name,
            "profile": self.profile,
            "decoder": self.decoder,
            "all_clips": self.all_clips,
            "extract": self.extract,
            "max_rejected": self.max_rejected,
            "transport": self.transport,
        }

    def wants(self, part: str) -> bool:
        """Whether a part is among those asked for, by its path or its file name."""
        return fnmatchcase(part, self.parts) or fnmatchcase(part.rsplit("/", 1)[-1], self.parts)


def make_settings(
    source: str,
    out: str | Path,
    *,
    recipe: str = "grasp",
    profile: str | None = None,
    parts: str = "*",
    limit: int | None = None,
    quality: int | None = 95,
    decoder: str = "auto",
    workers: int | None = None,
    extract: bool = False,
    all_clips: bool = False,
    disk_budget: int | None = None,
    retry_quarantined: bool = False,
    max_rejected: float = 0.01,
    transport: str = "http",
    endpoint: str | None = None,
    commit: str | None = None,
) -> Settings:
    """Check the options of `prepare`; they are described there.

    Raises:
        UsageError: the source, output, recipe, profile, decoder or transport is wrong.
    """
    require_known(decoder)
    if transport not in TRANSPORTS:
        raise UsageError(f"--transport ({transport!r}) must be one of {', '.join(TRANSPORTS)}")
    if not str(out).strip():
        raise UsageError(f"OUT ({out!r}) must name a folder: give its path")
    settings = Settings(
        source=parse_source(source, endpoint=endpoint),
        out=Path(out).absolute(),
        recipe=load_recipe(recipe),
        recipe_name=recipe,
        profile=profile,
        parts=parts,
        limit=limit,
        quality=quality,
        decoder=decoder,
        workers=workers or os.cpu_count() or 1,
        extract=extract,
        all_clips=all_clips,
        disk_budget=disk_budget,
        retry_quarantined=retry_quarantined,
        max_rejected=max_rejected,
        transport=transport,
        commit=commit,
    )
    for name, split in settings.recipe.splits.items():
        profile_name = settings.profile_of(split).name
        if settings.profile_of(split).max_fps is None and split.examples and split.examples_format == "specs":
            raise UsageError(f"profile {profile_name!r} has no max_fps, which windows in examples of {name} need")
    return settings
