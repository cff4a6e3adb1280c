"""`clipshards recipe`: a recipe checked, also against a source; a first draft of one. No Prefect."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import typer

from clipshards.errors import UsageError
from clipshards.hub.listing import Listing, list_source
from clipshards.hub.ranges import RangeFile
from clipshards.hub.source import FolderSource, parse_source
from clipshards.plan import require_different_names
from clipshards.recipe import Recipe, Split, find_mistakes, read_recipe
from clipshards.recipe_draft import START_BYTES, draft_recipe
from clipshards.sampling import Profile
from flows.console import size

_MOST_UNCLAIMED = 20


def check(name_or_file: str, source: str | None, *, endpoint: str | None = None) -> None:
    """Print what a recipe means, and what its patterns find in a source.

    Raises:
        UsageError: the recipe has mistakes, each is printed on a line; or no pattern finds a part.
        SourceError: the source cannot be listed, or two parts of a split have one name.
    """
    file, table = read_recipe(name_or_file)
    if mistakes := find_mistakes(table):
        for mistake in mistakes:
            typer.echo(f"{file}: {mistake}", err=True)
        raise UsageError(f"recipe {file} has {len(mistakes)} mistake(s)")
    recipe = msgspec.convert(table, Recipe)
    listing = list_source(parse_source(source, endpoint=endpoint)) if source else None
    typer.echo(f"recipe {recipe.name!r} is right: {len(recipe.splits)} split(s)")
    for name, split in recipe.splits.items():
        typer.echo(f"{name}: {_in_words(split, recipe.profile(split.profile))}")
        for what, patterns in _patterns(split).items():
            for pattern in patterns:
                typer.echo(f"  {what:14} {pattern}{_found(listing, pattern)}")
    if listing:
        _check_listing(recipe, listing)


def _in_words(split: Split, profile: Profile) -> str:
    form = f"examples are {split.examples_format}, " if split.examples else ""
    rate = f"{profile.max_fps:g} frames a second" if profile.max_fps else "frames of whole clips"
    return f"{form}profile {profile.name}: {rate}, at most {profile.max_total}"


def _patterns(split: Split) -> dict[str, list[str]]:
    rows = {f"examples.{stage}": patterns for stage, patterns in split.examples.items()}
    return {"parts": split.parts, "questions": split.questions, **rows}


def _found(listing: Listing | None, pattern: str) -> str:
    if listing is None:
        return ""
    files = listing.find([pattern])
    return f"  {len(files)} file(s), {size(sum(file.size_bytes for file in files))}"


def _check_listing(recipe: Recipe, listing: Listing) -> None:
    patterns = [pattern for split in recipe.splits.values() for of in _patterns(split).values() for pattern in of]
    claimed = {file.path for file in listing.find(patterns)}
    unclaimed = [file.path for file in listing.files if file.path not in claimed]
    for path in unclaimed[:_MOST_UNCLAIMED]:
        typer.echo(f"claimed by nothing: {path}")
    if unclaimed[_MOST_UNCLAIMED:]:
        typer.echo(f"claimed by nothing: {len(unclaimed) - _MOST_UNCLAIMED:,} more")
    parts = {name: listing.find(split.parts) for name, split in recipe.splits.items()}
    if not any(parts.values()):
        raise UsageError(f"none of the patterns of recipe {recipe.name!r} finds a part in {listing.repo}")
    for of_split in parts.values():
        require_different_names(file.path for file in of_split)


def draft(source: str, *, endpoint: str | None = None) -> str:
    """A first draft of a recipe for a source, as TOML.

    Raises:
        SourceError: the source cannot be read, or holds no tar.
        IncompleteError: it does not answer.
    """
    where = parse_source(source, endpoint=endpoint)
    listing = list_source(where)
    files = {file.path: file for file in listing.files}

    def read_start(path: str) -> bytes:
        num_bytes = min(START_BYTES, files[path].size_bytes)
        if isinstance(where, FolderSource):
            with (where.folder / path).open("rb") as file:
                return file.read(num_bytes)
        return RangeFile(where, listing.commit, files[path]).read(num_bytes) or b""

    repo = "" if isinstance(where, FolderSource) else where.repo
    name = re.sub(r"[^a-z0-9]+", "-", listing.repo.rsplit("/", 1)[-1].lower()).strip("-")
    return draft_recipe(name or "draft", repo, [*files], read_start)


def write_new(file: Path, text: str) -> None:
    """Write a file that is not there yet.

    Raises:
        UsageError: it is there, or cannot be written.
    """
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise UsageError(f"--write ({str(file)!r}) cannot be written ({error.strerror}): name a new file") from None
