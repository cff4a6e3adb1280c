"""What a person sees while a run goes on: bars on a terminal, plain lines elsewhere, JSON lines on request."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from clipshards.hub.source import FolderSource, HubSource

PLAIN_SECONDS = 5.0
"""Least time between two plain lines of a stage."""


@dataclass
class Stage:
    """One kind of work. `total` grows as more of it becomes known."""

    name: str
    unit: str
    total: int = 0
    done: int = 0
    rejects: int = 0
    started: float = 0.0
    last: float = 0.0
    shown: float = 0.0

    def seconds(self) -> float:
        """From the first to the last piece of work."""
        return max(0.0, self.last - self.started)

    def rate(self) -> float:
        """Units a second so far."""
        return self.done / self.seconds() if self.seconds() > 0 else 0.0

    def line(self) -> str:
        """All of it in one line."""
        if self.unit == "bytes":
            amounts = f"{size(self.done)} of {size(self.total)}, {size(self.rate())}/s"
        else:
            amounts = f"{self.done:,} of {self.total:,} {self.unit}, {self.rate():,.0f}/s"
        left = (self.total - self.done) / self.rate() if self.rate() else 0.0
        rejects = f", {self.rejects:,} rejected" if self.rejects else ""
        return f"{amounts}{rejects}" + (f", {left:,.0f} s left" if left >= 1 else "")


class Reporter:
    """Keeps the stages; says nothing. Safe to call from any thread."""

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        self.num_decoded = 0
        self._lock = threading.Lock()

    def expect(self, name: str, unit: str, amount: int) -> None:
        """More work of a stage is known."""
        with self._lock:
            stage = self.stages.setdefault(name, Stage(name, unit, started=time.monotonic()))
            stage.last = stage.last or stage.started
            stage.total += amount
            self._show(stage)

    def advance(self, name: str, amount: int, rejects: int = 0) -> None:
        """Work of a stage is done."""
        with self._lock:
            stage = self.stages[name]
            stage.done += amount
            stage.rejects += rejects
            stage.last = time.monotonic()
            self._show(stage)

    def clip(self, clip: str, *, rejected: bool, decoded: bool) -> None:
        """A clip is done: its frames were decoded now, or were there already."""
        self.num_decoded += decoded
        self.advance("decode", 1, rejects=int(rejected))

    def say(self, text: str) -> None:
        """One line for the user."""

    def finish(self) -> None:
        """No more work comes."""

    def published(self, totals: dict[str, Any], source: HubSource | FolderSource) -> None:
        """A snapshot of `source` is there; the last word of a run that ended well."""

    def _show(self, stage: Stage) -> None:
        """Called with the lock held."""


class PlainReporter(Reporter):
    """A line a stage every few seconds, on stderr."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _show(self, stage: Stage) -> None:
        if stage.last - stage.shown >= PLAIN_SECONDS and stage.done:
            stage.shown = stage.last
            self.say(f"{stage.name}: {stage.line()}")


class JsonReporter(Reporter):
    """One JSON object a line, on stdout."""

    def say(self, text: str) -> None:
        self._print({"event": "message", "text": text})

    def finish(self) -> None:
        for stage in self.stages.values():
            self._print(self._event(stage))

    def _show(self, stage: Stage) -> None:
        if stage.last - stage.shown >= PLAIN_SECONDS and stage.done:
            stage.shown = stage.last
            self._print(self._event(stage))

    @staticmethod
    def _event(stage: Stage) -> dict[str, Any]:
        return {
            "event": "stage",
            "stage": stage.name,
            "unit": stage.unit,
            "done": stage.done,
            "total": stage.total,
            "rejects": stage.rejects,
            "seconds": round(stage.seconds(), 3),
        }

    @staticmethod
    def _print(event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)


class BarReporter(Reporter):
    """Bars on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(),
            TextColumn("{task.fields[line]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            redirect_stdout=False,
        )

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)

    def finish(self) -> None:
        self._progress.stop()

    def _show(self, stage: Stage) -> None:
        if stage.name not in self._bars:
            self._progress.start()
            self._bars[stage.name] = self._progress.add_task(stage.name, total=None, line="")
        bar = self._bars[stage.name]
        self._progress.update(bar, total=stage.total, completed=stage.done, line=stage.line())


_current: list[Reporter] = [Reporter()]


def use(reporter: Reporter) -> None:
    """From now on runs of this process report here."""
    _current[0] = reporter


def current() -> Reporter:
    """Where runs of this process report to."""
    return _current[0]


def size(num_bytes: float) -> str:
    """Bytes as a person reads them: decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(num_bytes) < 1000:
            return f"{num_bytes:,.0f} {unit}" if unit == "B" else f"{num_bytes:,.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} TB"
