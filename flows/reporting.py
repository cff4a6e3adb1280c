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
    for name, value in totals.items():
        table.add_row(name.replace("_", " "), _text(name, value))
    Console(soft_wrap=True).print(table)


def print_plan(plan: Plan, as_json: bool) -> None:
    """A plan: sections of aligned lines, or one JSON object."""
    if as_json:
        print(json.dumps({"event": "plan", **asdict(plan)}))
        return


def _text(name: str, value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "\n".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return "\n".join(f"{key} {_text(key, inner)}" for key, inner in value.items()) or "none"
    if name.endswith("bytes"):
        return size(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
