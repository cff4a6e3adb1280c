"""Figures with goals: what a benchmark prints, keeps and exits with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value and what it was to be."""

    name: str
    value: float
    goal: str
    """The goal in words, such as `>= 1.7`; "" for a figure without one."""
    ok: bool = True


def at_least(name: str, value: float, least: float) -> Figure:
    """A figure that must not be smaller than `least`."""
    return Figure(name, value, f">= {least:g}", value >= least)


def at_most(name: str, value: float, most: float) -> Figure:
    """A figure that must not be larger than `most`."""
    return Figure(name, value, f"<= {most:g}", value <= most)


def report(name: str, figures: Sequence[Figure], results: Path = RESULTS) -> int:
    """Print `name value goal` one a line, write results/NAME.json; the exit code: 0 when all goals hold."""
    for figure in figures:
        verdict = "" if figure.ok else "   MISSED"
        print(f"{figure.name:52} {figure.value:10.3f}   {figure.goal}{verdict}")
    results.mkdir(parents=True, exist_ok=True)
    lines = json.dumps([asdict(figure) for figure in figures], indent=1)
    (results / f"{name}.json").write_text(lines + "\n")
    return 0 if all(figure.ok for figure in figures) else 1
