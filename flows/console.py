"""What a person sees while a run goes on: bars on a terminal, plain lines elsewhere, JSON lines on request."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from clipshards.disk import format_bytes as size
from flows.pace import Pace

if TYPE_CHECKING:
    from clipshards.hub.source import FolderSource, HubSource

PLAIN_SECONDS = 5.0
"""Least time between two plain lines of a stage."""


STAGES = ("fetch", "index", "decode")
"""In the order in which a part goes through them."""


@dataclass
class Stage:
    """One kind of work. How much it is becomes known step by step, and may turn out to be another amount."""

    name: str
    unit: str
    pace: Pace
    started: float
    last: float
    expected: float = 0.0
    """Of the work that was begun or waits."""
    foreseen: dict[str, float] = field(default_factory=dict)
    """Of work that is not known for sure yet, by what it belongs to; what comes last stands last."""
    last_amount: float = 0.0
    """Of what comes last, when it was foreseen."""
    covered: float = 0.0
    """What was expected of the work that is done."""
    done: float = 0
    """What this came to."""
    rejects: int = 0
    shown: float = 0.0

    @property
    def left(self) -> float:
        """Expected of what is not done."""
        return max(0.0, self.expected - self.covered) + sum(self.foreseen.values())

    @property
    def last_share(self) -> float:
        """How much of the work is that which comes last, [0, 1]."""
        return min(1.0, self.last_amount / ((self.covered + self.left) or 1.0))

    @property
    def total(self) -> int:
        """Of all work, done and to be done, by what came of the work that is done."""
        return round(self.done + self.left * (self.done / self.covered if self.covered else 1.0))

    @property
    def share(self) -> float:
        """Of the work that is done, [0, 1]."""
        return self.covered / (self.covered + self.left) if self.covered else 0.0

    def seconds(self) -> float:
        """From the first to the last piece of work."""
        return max(0.0, self.last - self.started)

    def rate(self) -> float:
        """Units a second so far."""
        return self.done / self.seconds() if self.seconds() > 0 else 0.0

    def line(self, seconds_left: float | None) -> str:
        """All of it in one line."""
        if self.unit == "bytes":
            amounts = f"{size(self.done)} of {size(self.total)}, {size(self.rate())}/s"
        else:
            amounts = f"{self.done:,.0f} of {self.total:,} {self.unit}, {self.rate():,.0f}/s"
        rejects = f", {self.rejects:,} rejected" if self.rejects else ""
        return f"{amounts}{rejects}" + (f", {duration(seconds_left)} left" if seconds_left else "")


class RunProgress(NamedTuple):
    """How far a run is."""

    share: float
    """Of its time, [0, 1]."""
    seconds_left: float | None
    """None: not known yet."""

    def line(self) -> str:
        """Both in one line."""
        if self.seconds_left is None:
            return "time left not known yet"
        return f"{self.share:.0%} · {duration(self.seconds_left)} left".replace("%", " %")


class Reporter:
    """Keeps the stages; says nothing. Safe to call from any thread.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.stages: dict[str, Stage] = {}
        self.num_decoded = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._run_shown = 0.0

    def foresee(self, name: str, unit: str, amount: float, *, of: str) -> None:
        """So much more work of a stage than is expected will be there; 0: no more."""
        with self._lock:
            stage = self._stage(name, unit)
            stage.foreseen[of] = max(0.0, amount)
            stage.last_amount = amount if of == next(reversed(stage.foreseen)) and amount else stage.last_amount

    def expect(self, name: str, unit: str, amount: float, *, of: str = "") -> None:
        """More work of a stage is there to be done, some of what was foreseen for `of`."""
        with self._lock:
            stage, now = self._stage(name, unit), self._clock()
            if not stage.expected:
                stage.started = stage.last = now
            if stage.covered >= stage.expected:
                stage.pace.idle_until(now)
            stage.expected += amount
            if of in stage.foreseen:
                stage.foreseen[of] = max(0.0, stage.foreseen[of] - amount)
            self._show(stage)

    def advance(
        self, name: str, amount: float, *, of: float | None = None, is_new: bool = True, rejects: int = 0
    ) -> None:
        """Work of a stage is done.

        Args:
            amount: what it came to; < 0 takes work back.
            of: what was expected of it; None: the same.
            is_new: False for what was there already, which says nothing of how long the rest takes.
        """
        covered = amount if of is None else of
        with self._lock:
            stage = self.stages[name]
            stage.done += amount
            stage.covered += covered
            stage.rejects += rejects
            stage.last = self._clock()
            if is_new and covered > 0:
                stage.pace.add(covered, stage.last)
            self._show(stage)

    def clip(self, clip: str, *, frames: int, expected_frames: float, rejected: bool, decoded: bool) -> None:
        """A clip is done: its frames were decoded now, or were there already."""
        self.num_decoded += decoded
        self.advance("decode", frames, of=expected_frames, is_new=decoded, rejects=int(rejected))

    def seconds_left(self, name: str) -> float | None:
        """Of a stage; None: not known yet.

        It cannot end before the stage that feeds it, nor before what comes last has gone through both.
        """
        stage = self.stages[name]
        own = stage.pace.seconds_for(stage.left)
        feeding = STAGES[STAGES.index(name) - 1] if name != STAGES[0] else ""
        if own is None or feeding not in self.stages or not (before := self.seconds_left(feeding)):
            return own
        last = (stage.covered + stage.left) * self.stages[feeding].last_share
        return max(own, before + (stage.pace.seconds_for(min(last, stage.left)) or 0.0))

    def run(self) -> RunProgress:
        """How far the run is: the last stage tells."""
        left = self.seconds_left(STAGES[-1]) if STAGES[-1] in self.stages else None
        if left is None:
            return RunProgress(0.0, None)
        elapsed = self._clock() - min(stage.started for stage in self.stages.values())
        return RunProgress(elapsed / (elapsed + left) if elapsed else 0.0, left)

    def line(self, stage: Stage) -> str:
        """A stage in one line."""
        return stage.line(self.seconds_left(stage.name))

    def say(self, text: str) -> None:
        """One line for the user."""

    def finish(self) -> None:
        """No more work comes."""

    def published(self, totals: dict[str, Any], source: HubSource | FolderSource) -> None:
        """A snapshot of `source` is there; the last word of a run that ended well."""

    def _stage(self, name: str, unit: str) -> Stage:
        now = self._clock()
        return self.stages.setdefault(name, Stage(name, unit, Pace(now), now, now))

    def _show(self, stage: Stage) -> None:
        """Called with the lock held."""

    def _is_due(self, stage: Stage) -> bool:
        """Whether a line of a stage was long ago; it is shown then."""
        if stage.last - stage.shown < PLAIN_SECONDS or not stage.covered:
            return False
        stage.shown = stage.last
        return True

    def _run_is_due(self) -> bool:
        now = self._clock()
        if now - self._run_shown < PLAIN_SECONDS or self.run().seconds_left is None:
            return False
        self._run_shown = now
        return True


class PartProgress:
    """Takes the bytes of one file as they go through a stage; the first ones may have been here already, no work.

    Args:
        of: what was foreseen of the file, its path.
        bytes_here: how many.
    """

    def __init__(self, reporter: Reporter, stage: str, of: str, size_bytes: int, bytes_here: int = 0) -> None:
        self._reporter, self._stage, self._of = reporter, stage, of
        self._bytes_here = bytes_here
        self._bytes_left = size_bytes - bytes_here
        reporter.expect(stage, "bytes", self._bytes_left, of=of)

    def __call__(self, num_bytes: int) -> None:
        found = min(num_bytes, max(0, self._bytes_here))
        self._bytes_here -= found
        self._bytes_left -= num_bytes - found
        self._reporter.advance(self._stage, num_bytes - found)

    def give_up(self) -> None:
        """The rest of the file will not come."""
        self._reporter.expect(self._stage, "bytes", -self._bytes_left)


class PlainReporter(Reporter):
    """A line a stage every few seconds, on stderr."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _show(self, stage: Stage) -> None:
        if self._is_due(stage):
            self.say(f"{stage.name}: {self.line(stage)}")
        if self._run_is_due():
            self.say(f"run: {self.run().line()}")


class JsonReporter(Reporter):
    """One JSON object a line, on stdout."""

    def say(self, text: str) -> None:
        self._print({"event": "message", "text": text})

    def finish(self) -> None:
        for stage in self.stages.values():
            self._print(self._event(stage))

    def _show(self, stage: Stage) -> None:
        if self._is_due(stage):
            self._print(self._event(stage))
        if self._run_is_due():
            run = self.run()
            self._print({"event": "run", "share": round(run.share, 4), "seconds_left": _rounded(run.seconds_left)})

    def _event(self, stage: Stage) -> dict[str, Any]:
        return {
            "event": "stage",
            "stage": stage.name,
            "unit": stage.unit,
            "done": round(stage.done),
            "total": stage.total,
            "rejects": stage.rejects,
            "seconds": round(stage.seconds(), 3),
            "seconds_left": _rounded(self.seconds_left(stage.name)),
        }

    @staticmethod
    def _print(event: dict[str, Any]) -> None:
        print(json.dumps(event), flush=True)


class BarReporter(Reporter):
    """Bars on a terminal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(),
            TextColumn("{task.fields[line]}"),
            console=Console(stderr=True),
            redirect_stdout=False,
        )

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def finish(self) -> None:
        self._progress.stop()

    def _show(self, stage: Stage) -> None:
        self._show_bar(stage.name, stage.share, self.line(stage))
        run = self.run()
        self._show_bar("run", run.share, run.line())

    def _show_bar(self, name: str, share: float, line: str) -> None:
        if name not in self._bars:
            self._progress.start()
            self._bars[name] = self._progress.add_task(name, total=1.0, line="")
        self._progress.update(self._bars[name], completed=share, line=line)


_chosen: list[Reporter | None] = [None]


def use(reporter: Reporter | None) -> None:
    """From now on runs of this process report here; None: nowhere."""
    _chosen[0] = reporter


def current() -> Reporter:
    """Where a run of this process reports to; where nothing was chosen, one of its own that says nothing."""
    return _chosen[0] or Reporter()


def duration(seconds: float) -> str:
    """Seconds as a person reads them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
