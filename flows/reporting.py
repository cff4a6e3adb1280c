"""The closing table, and which reporter suits the place where we run."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from flows.console import BarReporter, JsonReporter, PlainReporter, Reporter, size

if TYPE_CHECKING:
    from flows.planning import Plan


WIDTH_OF_FILES = 200
"""Columns of a table that no terminal bounds: a path in it is not cut."""


def reporter_for(as_json: bool) -> Reporter:
    """Bars on a terminal, JSON lines on request, else plain lines."""
    if as_json:
        return JsonReporter()
    return BarReporter() if sys.stderr.isatty() else PlainReporter()


def print_totals(totals: dict[str, Any], as_json: bool) -> None:
    """The last word of a run: a table, or one JSON object."""
    if as_json:
        print(json.dumps({"event": "totals", **totals}))
        return
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in totals.items():
        table.add_row(name.replace("_", " "), _text(name, value))
    width = None if sys.stdout.isatty() else WIDTH_OF_FILES
    Console(width=width, markup=False).print(table)


def print_plan(plan: Plan, as_json: bool) -> None:
    """A plan: sections of aligned lines, or one JSON object."""
    if as_json:
        print(json.dumps({"event": "plan", **asdict(plan)}))
        return
    for title, lines in _sections(plan).items():
        print(title)
        for name, value, remark in lines:
            print(f"  {name:14} {value:>14}  {remark}".rstrip())
    for note in plan.notes:
        print(f"note: {note}")


def _sections(plan: Plan) -> dict[str, list[tuple[str, str, str]]]:
    """Lines of name, value and remark, by the title of their section."""

    def number(name: str) -> str:
        value = getattr(plan, name)
        if value is None:
            return "unknown"
        about = "≈ " if name.removesuffix("_left") in plan.estimated and value else ""
        return about + (size(value) if "_bytes" in name else f"{value:,}")

    def left(name: str) -> str:
        return "" if getattr(plan, name) is None else f"{number(name)} of it to do"

    is_hub = plan.access.state != "folder"
    budget = plan.disk_budget_bytes
    sections = {
        f"source {plan.source}" + (f" at {plan.commit}" if is_hub else ""): [
            ("access", _ACCESS[plan.access.state], plan.access.detail or _TOKEN[plan.access.has_token] * is_hub),
            ("parts", number("parts"), f"{size(plan.source_bytes)} with the rows"),
            *[("download", number("download_bytes"), left("download_bytes_left"))] * is_hub,
        ],
        "content": [
            ("clips", number("clips"), ""),
            ("examples", number("examples"), "training lines"),
            ("questions", number("questions"), f"{number('rejected_rows')} bad rows" if plan.rejected_rows else ""),
            ("bench items", number("bench_items"), ""),
            ("views", number("views"), "windows of clips, each stored once"),
            ("frames", number("frames"), left("frames_left")),
        ],
        "output": [
            ("shards", number("shards"), left("shards_left")),
            ("size", number("output_bytes"), left("output_bytes_left")),
        ],
        "disk": [
            ("free", number("disk_free_bytes"), ""),
            ("needed", number("disk_needed_bytes"), "without --disk-budget"),
            *[("needed", number("disk_needed_bytes_with_budget"), f"with --disk-budget {size(budget or 0)}")]
            * (budget is not None),
            ("least budget", number("least_disk_budget_bytes"), "the smallest --disk-budget that works"),
        ],
        "time on this machine": [
            ("decoding", _duration(plan.decode_hours), _measured(plan)),
            *[("download", _duration(plan.download_hours), "" if plan.download_hours else "not measured")] * is_hub,
        ],
    }
    if plan.refresh is not None:
        sections["changed since the snapshot"] = [
            (name.replace("_", " "), f"{len(paths):,}", ", ".join(paths)) for name, paths in plan.refresh.items()
        ]
    return sections


_ACCESS = {"folder": "a folder", "anonymous": "open", "token-accepted": "open", "refused": "refused"}
_TOKEN = {True: "the token is accepted", False: "no token, none is needed"}


def _measured(plan: Plan) -> str:
    if not plan.measured_on:
        return "nothing is left to decode" if plan.frames_left == 0 else ""
    rate = f"{plan.stored_frames_per_second:,.0f} frames/s"
    return f"{rate} with {plan.workers} workers of {plan.decoder}, measured on {plan.measured_on}"


def _duration(hours: float | None) -> str:
    """Hours, or minutes when it is less than two."""
    if hours is None:
        return "unknown"
    if hours < 1 / 30:
        return f"≈ {hours * 3600:,.0f} s"
    return f"≈ {hours:,.1f} h" if hours >= 2 else f"≈ {hours * 60:,.0f} min"


def _text(name: str, value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "\n".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return "\n".join(f"{key} {_text(key, inner)}" for key, inner in value.items()) or "none"
    if name.endswith("bytes"):
        return size(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
