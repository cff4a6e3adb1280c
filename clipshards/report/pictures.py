"""Each picture of the page: a title, one line that reads it, the drawing, and its numbers as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from clipshards.disk import format_bytes
from clipshards.report.drawing import Panel, draw_bars, draw_histogram, shorten
from clipshards.report.facts import Balance, Facts, Group, Reason, describe_balance

MAX_NAME = 100
"""Characters of a name in a table."""

_BINS = 20


@dataclass(frozen=True)
class Picture:
    """`drawing` is None where there is nothing to draw: then `reading` says so."""

    title: str
    reading: str
    drawing: Markup | None = None
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[Any, ...]] = ()


def draw_pictures(facts: Facts, stages: Mapping[str, Mapping[str, Any]]) -> list[Picture]:
    """All pictures of a snapshot.

    Args:
        facts: of its tables.
        stages: of the run that made it: name → done, unit and seconds.
    """
    return [
        *(_of_balance(name, balance) for name, balance in facts.balances.items()),
        *(_of_groups(field, groups) for field, groups in facts.groups.items()),
        _of_lengths(facts.clip_seconds),
        _histogram("Frames a view", facts.frames, "stored frames", "views", one_of="view"),
        _histogram("Sizes of the clips", facts.clip_bytes / 1e6, "MB", "clips", one_of="clip"),
        _of_sizes(facts.pictures),
        _of_reasons(facts.reasons),
        _of_stages(stages),
    ]


def _of_groups(field: str, groups: list[Group]) -> Picture:
    title = f"By {field}"
    if not groups:
        return Picture(title, f"There are no {'training ' if field == 'format' else ''}examples.")
    groups = [replace(group, name=f"{group.name} (benchmark)") if not group.examples else group for group in groups]
    total = sum(group.examples + group.items for group in groups)
    largest = max(groups, key=lambda group: group.examples + group.items)
    share = (largest.examples + largest.items) / total
    kinds = " Dimmer bars: items of the benchmark." if any(group.items for group in groups) else ""
    kinds = " Of training examples only." if field == "format" else kinds
    noun = f"{field if len(groups) == 1 else _plural(field)}"
    unit, factor = ("hours", 1) if max(group.hours for group in groups) >= 1 else ("minutes", 60)
    times = [factor * group.hours for group in groups]
    panels = [
        Panel("clips", [g.clips for g in groups], [f"{g.clips:,}" for g in groups]),
        Panel(unit, times, [_short_time(time) for time in times]),
        Panel(
            "examples", [g.examples for g in groups], [f"{g.examples + g.items:,}" for g in groups],
            more=[g.items for g in groups],
        ),
    ]  # fmt: skip
    return Picture(
        title,
        f"{len(groups)} {noun}; {shorten(largest.name, 40)} has most examples: {share:.0%}.{kinds}",
        draw_bars([group.name for group in groups], panels),
        (field, "clips", unit, "examples", "items"),
        [
            (shorten(g.name, MAX_NAME), f"{g.clips:,}", f"{time:,.1f}", f"{g.examples:,}", f"{g.items:,}")
            for g, time in zip(groups, times, strict=True)
        ],
    )


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def _short_time(time: float) -> str:
    return f"{time:,.0f}" if time >= 100 else f"{time:.1f}"


def _of_balance(name: str, balance: Balance) -> Picture:
    title = f"Answer letters, {name}"
    reading = describe_balance(balance)
    if not balance.total:
        return Picture(title, reading)
    reading += f" {balance.total:,} of {balance.num_rows:,} {name} have a letter."
    if rarer := [
        letter for letter, few in zip(balance.letters, balance.expected, strict=True) if few < balance.expected[0]
    ]:
        reading += f" Not all questions have an option {' or '.join(rarer)}: chance is lower there."
    shares = [count / balance.total for count in balance.counts]
    chances = [expected / balance.total for expected in balance.expected]
    texts = [f"{share:.1%}" for share in shares]
    panel = Panel("share of the answers; the line is chance", shares, texts, marks=chances)
    rows = zip(balance.letters, balance.counts, texts, chances, strict=True)
    return Picture(
        title, reading, draw_bars(balance.letters, [panel]), ("letter", "answers", "share", "by chance"),
        [(letter, f"{count:,}", text, f"{chance:.1%}") for letter, count, text, chance in rows],
    )  # fmt: skip


def _of_lengths(seconds: npt.NDArray[np.float64]) -> Picture:
    if len(seconds) and np.median(seconds) > 180:
        return _histogram("Lengths of the clips", seconds / 60, "minutes", "clips", one_of="clip")
    return _histogram("Lengths of the clips", seconds, "seconds", "clips", one_of="clip")


def _histogram(title: str, values: npt.NDArray[Any], unit: str, what: str, *, one_of: str) -> Picture:
    if not len(values):
        return Picture(title, f"There are no {what}.")
    least, middle, high, most = np.percentile(values, [0, 50, 90, 100])
    top = max(most, 1) if values.dtype.kind == "i" else most or 1.0
    step = max(1, -(-top // _BINS)) if values.dtype.kind == "i" else top / _BINS
    counts, edges = np.histogram(values, np.arange(0, top + 1.001 * step, step))
    used = slice(0, int(np.flatnonzero(counts)[-1]) + 1)
    counts, edges = counts[used], edges[: used.stop + 1]
    reading = (
        f"Median {_short(middle)} {unit}; 9 of 10 up to {_short(high)}; from {_short(least)} to {_short(most)}."
    )
    if least == most:
        reading = f"Each {one_of} has {_short(most)} {unit}."
    return Picture(
        title, reading, draw_histogram(counts, edges, unit, what), (f"{unit} from", "to below", what),
        [
            (_short(start), _short(end), f"{count:,}")
            for start, end, count in zip(edges, edges[1:], counts, strict=False)
            if count
        ],
    )  # fmt: skip


def _short(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) or number >= 100 else f"{number:.3g}"


def _of_sizes(pictures: list[tuple[str, int]]) -> Picture:
    title = "Sizes of the stored frames"
    if not pictures:
        return Picture(title, "There are no views.")
    texts = [f"{count:,}" for _, count in pictures]
    name, count = pictures[0]
    total = sum(count for _, count in pictures)
    return Picture(
        title, f"Most views, {count / total:.0%}, have frames of {name} pixels.",
        draw_bars([name for name, _ in pictures], [Panel("views", [count for _, count in pictures], texts)]),
        ("width × height", "views"), [(name, text) for (name, _), text in zip(pictures, texts, strict=True)],
    )  # fmt: skip


def _of_reasons(reasons: list[Reason]) -> Picture:
    title = "Rejects by reason"
    if not reasons:
        return Picture(title, "Nothing was rejected.")
    causes = sum(reason.causes for reason in reasons)
    total = sum(reason.total for reason in reasons)
    first = [reason.name for reason in reasons if reason.total == reasons[0].total]
    each = " each" if len(first) == 2 else ""
    most = " and ".join(first) if len(first) < 3 else f"each of {len(first):,} reasons"
    lost = f"{causes:,} causes; {total - causes:,} rows, items and examples are lost with them."
    shown = reasons[:24]
    panels = [
        Panel("causes", [r.causes for r in shown], [f"{r.causes:,}" for r in shown]),
        Panel("lost with them", [r.total - r.causes for r in shown], [f"{r.total - r.causes:,}" for r in shown]),
    ]
    return Picture(
        title, f"{lost} Most by {most}: {reasons[0].total:,}{each}.",
        draw_bars([reason.name for reason in shown], panels), ("reason", "causes", "lost with them"),
        [(reason.name, f"{reason.causes:,}", f"{reason.total - reason.causes:,}") for reason in shown],
    )  # fmt: skip


_AMOUNTS: Mapping[str, Callable[[float], str]] = {
    "bytes": format_bytes,
    "frames": lambda count: f"{count:,.0f} frames",
}


def _of_stages(stages: Mapping[str, Mapping[str, Any]]) -> Picture:
    title = "Seconds and bytes by stage"
    if not stages:
        return Picture(title, "The run that made this snapshot left no record of its stages.")
    names = list(stages)
    seconds = [float(stage["seconds"]) for stage in stages.values()]
    num_bytes = [float(stage["bytes"]) for stage in stages.values()]
    slowest = names[int(np.argmax(seconds))]
    reading = f"{slowest} took longest, {max(seconds):,.1f} s. Stages overlap; those with nothing to do are short."
    panels = [
        Panel("seconds", seconds, [f"{value:,.1f}" for value in seconds]),
        Panel("bytes", num_bytes, [format_bytes(value) for value in num_bytes]),
    ]
    rows: Iterable[Any] = zip(names, seconds, stages.values(), strict=True)
    return Picture(
        title, reading, draw_bars(names, panels), ("stage", "seconds", "bytes", "done"),
        [
            (name, f"{second:,.2f}", format_bytes(stage["bytes"]), _AMOUNTS[stage["unit"]](stage["done"]))
            for name, second, stage in rows
        ],
    )  # fmt: skip
