"""Is this machine ready? Each check says ok, warning or problem, and what to do; none says anything secret."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

import httpx2
from packaging.requirements import Requirement

from clipshards.decode.choice import choose_decoder, write_probe_clip
from clipshards.decode.decoders import collect, open_clip
from clipshards.decode.media import Extent
from clipshards.errors import ClipshardsError, UsageError
from clipshards.hub.listing import list_source
from clipshards.hub.source import HubSource

LEAST_FREE_BYTES = 50 * 10**9
LEAST_DISK_BYTES_PER_SECOND = 50 * 10**6
MOST_CLOCK_SKEW_SECONDS = 60.0
"""Signed URLs of the Hub's storage are refused by clocks that are far off."""

_DISK_PROBE_BYTES = 64 << 20
_TIMEOUT_SECONDS = 10.0

Status = Literal["ok", "warning", "problem"]


class Check(NamedTuple):
    """One line of the answer."""

    name: str
    status: Status
    what: str
    """What was seen."""
    todo: str = ""
    """What to do next, unless all is well."""


def examine(out: Path, source: HubSource) -> Iterator[Check]:
    """All checks that need no Prefect, as they are done.

    Args:
        out: where a run would write; its nearest existing folder is measured.
        source: the data set that would be fetched.
    """
    yield check_python()
    yield from check_packages()
    yield from check_decoders()
    yield from check_disk(out)
    yield check_hub(source)
    yield check_clock(source)


def check_python() -> Check:
    """The interpreter and the machine."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return Check("python", "ok", f"Python {platform.python_version()}, {machine}")


def check_packages() -> Iterator[Check]:
    """What `prepare` needs, in versions that it was written for."""
    wrong = []
    for text in requires("clipshards") or []:
        requirement = Requirement(text)
        extras = ("", "prepare")
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is not installed")
            continue
        if not requirement.specifier.contains(found, prereleases=True):
            wrong.append(f"{requirement.name} {found}, wanted {requirement.specifier}")
    versions = ", ".join(f"{name} {version(name)}" for name in ("clipshards", "av", "webdataset", "pyarrow"))
    if wrong:
        yield Check("packages", "problem", "; ".join(wrong), "install again: pip install 'clipshards[prepare]'")
    else:
        yield Check("packages", "ok", versions)


def check_decoders() -> Iterator[Check]:
    """Each decoder with a small clip."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.mp4"
        write_probe_clip(path)
        for name in ("cpu", "ffmpeg"):
            yield _check_decoder(name, path)
    try:
        choice = choose_decoder("cuda")
    except UsageError as error:
        yield Check("decoder cuda", "warning", str(error).split(": make", 1)[0], "none needed: clips go to the CPU")
    else:
        yield Check("decoder cuda", "ok", choice.why)


def _check_decoder(name: str, path: Path) -> Check:
    try:
        started = time.monotonic()
        done = collect(open_clip(Extent(str(path)), name), range(4), lambda rgb: rgb.shape)
    except ClipshardsError as error:
        return Check(f"decoder {name}", "problem", str(error), "install again: pip install 'clipshards[prepare]'")
    if done.fallback or len(done.frames) != 4:
        seen = done.fallback or f"{len(done.frames)} of 4 frames came"
        return Check(f"decoder {name}", "problem", seen, f"use another --decoder than {name}")
    return Check(f"decoder {name}", "ok", f"4 frames in {time.monotonic() - started:.2f} s")


def check_disk(out: Path) -> Iterator[Check]:
    """Space and speed where the output would be."""
    folder = next(path for path in (out.absolute(), *out.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(folder).free
    seen = f"{free / 1e9:,.0f} GB free in {folder}"
    if free < LEAST_FREE_BYTES:
        yield Check("disk space", "warning", seen, "name an output on a larger disk, or use --disk-budget")
    else:
        yield Check("disk space", "ok", seen)
    try:
        rate = _write_rate(folder)
    except OSError as error:
        yield Check("disk speed", "problem", f"{folder}: {error.strerror}", "name another output")
        return
    seen = f"{rate / 1e6:,.0f} MB/s written"
    if rate < LEAST_DISK_BYTES_PER_SECOND:
        yield Check("disk speed", "warning", seen, "name an output on a faster disk")
    else:
        yield Check("disk speed", "ok", seen)


def _write_rate(folder: Path) -> float:
    """Bytes a second of one file that is written and flushed."""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        started = time.monotonic()
        for _ in range(_DISK_PROBE_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return _DISK_PROBE_BYTES / (time.monotonic() - started)


def check_hub(source: HubSource) -> Check:
    """Whether the files of the data set may be fetched with the token that is set."""
    try:
        listing = list_source(source, tries=2)
    except ClipshardsError as error:
        return Check("hub", "problem", str(error), "see above; without a Hub, name a folder as the source")
    size_bytes = sum(file.size_bytes for file in listing.files)
    held = f"{len(listing.files)} files, {size_bytes / 1e9:,.1f} GB"
    return Check("hub", "ok", f"{source.repo} at {listing.commit[:12]}: {held}, may be fetched")


def check_clock(source: HubSource) -> Check:
    """This clock against the Hub's."""
    try:
        answer = httpx2.head(source.base_url, timeout=_TIMEOUT_SECONDS)
        hub_time = parsedate_to_datetime(answer.headers["Date"])
    except (httpx2.HTTPError, KeyError, ValueError):
        return Check("clock", "warning", "the Hub told no time", "compare this clock with another one")
    skew = abs((datetime.now(UTC) - hub_time).total_seconds())
    seen = f"{skew:,.0f} s from the Hub's"
    if skew > MOST_CLOCK_SKEW_SECONDS:
        return Check("clock", "problem", seen, "set the clock: signed URLs are refused otherwise")
    return Check("clock", "ok", seen)
