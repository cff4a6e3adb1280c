"""The time that is said to be left against the time that it then takes, in runs that a fake clock plays through."""

from __future__ import annotations

import contextlib
import heapq
import io
import json
import random
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import pytest

from flows.console import STAGES, BarReporter, JsonReporter, PartProgress, PlainReporter, Reporter, duration
from flows.pace import Pace

BLOCK = 1_000_000


@dataclass(frozen=True)
class Part:
    """Bytes of a part, and for each clip the expected frames, those that came, and the seconds they take."""

    size_bytes: int
    clips: list[tuple[int, int, float]]
    is_here: bool = False


@dataclass(frozen=True)
class Run:
    """A run to be played."""

    parts: list[Part]
    bytes_per_second: float = 50e6
    workers: int = 4
    start_seconds: float = 0.0
    noise: float = 0.0
    rows_name_frames: bool = True
    """False: the parts that are known tell of the others, by their bytes."""


@dataclass
class Player:
    """Plays a run as `prepare` does: a part is fetched, indexed, and its clips wait for a worker."""

    run: Run
    reporter: Reporter
    clock: list[float]
    random: random.Random = field(default_factory=lambda: random.Random(1))
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    waiting: deque[tuple[int, int, float]] = field(default_factory=deque)
    idle_workers: int = 0

    def play(self) -> Iterator[float]:
        """Yields the time after each event."""
        run, reporter = self.run, self.reporter
        for number, part in enumerate(run.parts):
            reporter.foresee("fetch", "bytes", part.size_bytes * (not part.is_here), of=str(number))
            reporter.foresee("index", "bytes", part.size_bytes, of=str(number))
        frames = sum(clip[0] for part in run.parts for clip in part.clips)
        if run.rows_name_frames:
            reporter.foresee("decode", "frames", frames, of="train")
        self.after(0.0, lambda: self.fetch(0))
        for _ in range(run.workers):
            self.after(run.start_seconds * self.random.uniform(0.8, 1.2), self.free)
        while self.events:
            self.clock[0], _, action = heapq.heappop(self.events)
            action()
            yield self.clock[0]

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        noisy = seconds * self.random.uniform(1 - self.run.noise, 1 + self.run.noise)
        heapq.heappush(self.events, (self.clock[0] + noisy, len(self.events) + id(action), action))

    def fetch(self, number: int) -> None:
        if number == len(self.run.parts):
            return
        part = self.run.parts[number]
        here = part.size_bytes if part.is_here else 0
        progress = PartProgress(self.reporter, "fetch", str(number), part.size_bytes, here)
        self.receive(number, progress, part.size_bytes)

    def receive(self, number: int, progress: PartProgress, left: int) -> None:
        part = self.run.parts[number]
        if left <= 0:
            self.reporter.expect("index", "bytes", part.size_bytes, of=str(number))
            self.after(part.size_bytes / 1e9, lambda: self.indexed(number))
            self.fetch(number + 1)
            return
        amount = left if part.is_here else min(left, 20 * BLOCK)
        seconds = 0.0 if part.is_here else amount / self.run.bytes_per_second

        def came() -> None:
            progress(amount)
            self.receive(number, progress, left - amount)

        self.after(seconds, came)

    def indexed(self, number: int) -> None:
        part = self.run.parts[number]
        self.reporter.advance("index", part.size_bytes)
        self.reporter.expect("decode", "frames", sum(clip[0] for clip in part.clips), of="train")
        if not self.run.rows_name_frames:
            known, rest = self.run.parts[: number + 1], self.run.parts[number + 1 :]
            frames = sum(clip[0] for part in known for clip in part.clips)
            share = sum(part.size_bytes for part in rest) / sum(part.size_bytes for part in known)
            self.reporter.foresee("decode", "frames", frames * share, of="train")
        if number == len(self.run.parts) - 1:
            self.reporter.foresee("decode", "frames", 0, of="train")
        self.waiting += part.clips
        while self.idle_workers and self.waiting:
            self.idle_workers -= 1
            self.free()

    def free(self) -> None:
        if not self.waiting:
            self.idle_workers += 1
            return
        expected, frames, seconds = self.waiting.popleft()

        def done() -> None:
            self.reporter.clip("", frames=frames, expected_frames=expected, rejected=False, decoded=seconds > 0)
            self.free()

        self.after(seconds, done)


def parts(sizes: list[float], *, clips: int = 40, seconds_per_frame: float = 0.05) -> list[Part]:
    """Parts of so many GB; a clip has 10 to 200 frames."""
    chance = random.Random(0)
    made = []
    for size in sizes:
        frames = [chance.randint(10, 200) for _ in range(max(1, round(size * clips)))]
        made.append(Part(round(size * 1e9), [(n, n, n * seconds_per_frame) for n in frames]))
    return made


def guessed(part: Part) -> Part:
    """The rows show whole clips, and expect 120 frames of each."""
    return replace(part, clips=[(120, frames, seconds) for _, frames, seconds in part.clips])


EVEN = parts([1.0] * 12)
UNEVEN = parts([0.2, 6.0, 0.5, 0.1, 3.0, 0.3, 1.0, 0.2, 2.0, 4.0])
RUNS = {
    "steady": Run(EVEN),
    "steady, one worker": Run(EVEN, workers=1),
    "a slow start": Run(EVEN, start_seconds=40),
    "parts of very different sizes": Run(UNEVEN),
    "parts of very different sizes, slowly fetched": Run(UNEVEN, bytes_per_second=5e6),
    "fetching as fast as decoding": Run(EVEN, bytes_per_second=12e6),
    "the first part is here": Run([replace(EVEN[0], is_here=True), *EVEN[1:]], bytes_per_second=12e6),
    "a part in the middle is here": Run(
        [*EVEN[:2], replace(UNEVEN[1], is_here=True), *EVEN[2:]], bytes_per_second=12e6
    ),
    "noise": Run(EVEN, noise=0.3),
    "noise and different sizes": Run(UNEVEN, noise=0.3, start_seconds=20),
    "lengths of clips that no row tells": Run([guessed(part) for part in EVEN]),
    "only the parts tell how much there is": Run(UNEVEN, rows_name_frames=False),
    "a run that takes days": Run(parts([50.0] * 40, clips=4, seconds_per_frame=2.0), bytes_per_second=20e6),
}


def played(run: Run) -> tuple[Reporter, list[tuple[float, dict[str, float], dict[str, float | None]]]]:
    """For each event its time, the shares of work that are done, and the seconds that are said to be left."""
    clock = [1000.0]
    reporter = Reporter(lambda: clock[0])
    seen = []
    for now in Player(run, reporter, clock).play():
        shares = {name: stage.share for name, stage in reporter.stages.items()}
        lefts = {name: reporter.seconds_left(name) for name in reporter.stages}
        run_left = reporter.run().seconds_left
        seen.append((now, shares | {"run": shares.get("decode", 0.0)}, lefts | {"run": run_left}))
    return reporter, seen


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("what", ["fetch", "decode", "run"])
def test_the_time_left_is_right_within_a_quarter_after_a_tenth_of_the_work(name: str, what: str) -> None:
    _, seen = played(RUNS[name])
    ends = max(now for now, shares, _ in seen if shares.get(what, 0.0) < 1)
    checked = [(now, lefts[what]) for now, shares, lefts in seen if 0.1 <= shares.get(what, 0.0) <= 0.9]
    assert checked
    wrong = [
        f"at {now - 1000:.0f} s: {left} s, it was {ends - now:.0f} s"
        for now, left in checked
        if left is None or abs(left - (ends - now)) > 0.25 * (ends - now)
    ]
    assert not wrong, f"{len(wrong)} of {len(checked)}, such as {wrong[:3]}"


def test_work_that_was_there_already_says_nothing_of_the_rest() -> None:
    clock = [0.0]
    reporter = Reporter(lambda: clock[0])
    reporter.expect("decode", "frames", 400)
    for number in range(20):
        clock[0] += 0.0 if number < 10 else 2.0
        reporter.clip("", frames=10, expected_frames=10, rejected=False, decoded=number >= 10)
    assert reporter.seconds_left("decode") == pytest.approx(200 * 0.2)


def test_a_clip_that_came_to_less_than_expected_is_done_all_the_same() -> None:
    reporter = Reporter(lambda: 0.0)
    reporter.expect("decode", "frames", 240)
    reporter.clip("", frames=0, expected_frames=120, rejected=True, decoded=True)
    reporter.clip("", frames=31, expected_frames=120, rejected=False, decoded=True)
    stage = reporter.stages["decode"]
    assert (stage.done, stage.total, stage.share, stage.rejects) == (31, 31, 1.0, 1)


def test_a_pace_knows_nothing_before_the_first_work() -> None:
    pace = Pace(5.0)
    assert pace.seconds_for(3) is None and pace.seconds_for(0) == 0
    pace.idle_until(10.0)
    pace.add(4, 12.0)
    assert pace.seconds_for(6) == pytest.approx(3.0)


@pytest.fixture(scope="module")
def lines() -> dict[type[Reporter], list[str]]:
    """What a steady run says, plain and as JSON."""
    said: dict[type[Reporter], list[str]] = {}
    for kind in (PlainReporter, JsonReporter):
        clock, out = [0.0], io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            for _ in Player(RUNS["steady"], kind(lambda: clock[0]), clock).play():  # noqa: B023  called at once
                pass
        said[kind] = out.getvalue().splitlines()
    return said


def test_plain_lines_tell_of_each_stage_and_of_the_run(lines: dict[type[Reporter], list[str]]) -> None:
    plain = lines[PlainReporter]
    assert {line.split(":")[0] for line in plain} == {"fetch", "index", "decode", "run"}
    runs = [line for line in plain if line.startswith("run: ")]
    assert all(re.fullmatch(r"run: \d+ % · [\d.]+ (s|min|h) left", line) for line in runs)
    assert any(re.search(r"frames, \d+/s, \d+ (s|min) left", line) for line in plain)


def test_json_lines_tell_the_seconds_left(lines: dict[type[Reporter], list[str]]) -> None:
    events = [json.loads(line) for line in lines[JsonReporter]]
    runs = [event for event in events if event["event"] == "run"]
    assert 0 < runs[0]["share"] < 0.1 and 0.9 < runs[-1]["share"] <= 1
    assert runs[0]["seconds_left"] > runs[len(runs) // 2]["seconds_left"] > runs[-1]["seconds_left"]
    assert all("seconds_left" in event for event in events)


def test_bars_tell_of_each_stage_and_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    clock = [0.0]
    reporter = BarReporter(lambda: clock[0])
    for _ in Player(Run(parts([0.2] * 3)), reporter, clock).play():
        pass
    assert reporter.run() == (1.0, 0.0)
    reporter.finish()
    shown = capsys.readouterr().err
    assert {name for name in ("fetch", "index", "decode", "run") if name in shown} == {*STAGES, "run"}


def test_durations_have_the_unit_that_fits() -> None:
    assert [duration(seconds) for seconds in (0.4, 89, 240, 7000)] == ["0 s", "89 s", "4 min", "1.9 h"]


def test_a_part_that_is_given_up_is_waited_for_no_more() -> None:
    clock = [0.0]
    reporter = Reporter(lambda: clock[0])
    for name in ("good", "bad"):
        reporter.foresee("fetch", "bytes", 800, of=name)
    good, bad = (PartProgress(reporter, "fetch", name, 1000, bytes_here=200) for name in ("good", "bad"))
    for progress, amounts in ((bad, [200, 300]), (good, [200, 400])):
        for amount in amounts:
            clock[0] += 1.0
            progress(amount)
    assert reporter.stages["fetch"].left == 900
    bad.give_up()
    assert reporter.stages["fetch"].left == 400
    good(400)
    assert reporter.stages["fetch"].share == 1 and reporter.seconds_left("fetch") == 0
