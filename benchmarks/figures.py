"""Figures with goals: printed a line each, written as JSON, and an exit code that says whether all hold."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """One measured value; `goal` None: printed for information."""

    name: str
    value: float
    goal: float | None = None
    at_most: bool = False
    """The goal is an upper bound, not a lower one."""

    def holds(self) -> bool:
        """Whether the goal is reached."""
        if self.goal is None:
            return True
        return self.value <= self.goal if self.at_most else self.value >= self.goal


def report(benchmark: str, figures: list[Figure]) -> int:
    """Print `name value goal`, write results/<benchmark>.json; 0 when every goal holds, else 1."""
    for figure in figures:
        sign = "<=" if figure.at_most else ">="
        goal = f"{sign}{figure.goal:g}" if figure.goal is not None else "-"
        print(f"{figure.name} {figure.value:.3f} {goal}" + ("" if figure.holds() else "  MISSED"))
    RESULTS.mkdir(exist_ok=True)
    rows = [{**asdict(figure), "holds": figure.holds()} for figure in figures]
    (RESULTS / f"{benchmark}.json").write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(figure.holds() for figure in figures) else 1
