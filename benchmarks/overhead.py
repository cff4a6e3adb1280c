"""What Prefect and our own bookkeeping cost: the wall time of a run in which nothing is fetched or made.

    python -m benchmarks.overhead [--clips 24]

A run of eight parts from a Hub on loopback, when Prefect's server is up. The clock runs in the functions of the
core that fetch, that make shards (decode, encode, write) and that publish; what of the run's wall time none of them
covers is overhead: tasks, indexing, rows, joining.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.decode import build_clip
from benchmarks.figures import Figure, at_most, report
from clipshards.hub.server import HubServer

PARTS = 8
MOST_SHARE = 0.05

Interval = tuple[float, float]


def build_source(folder: Path, clip: Path, clips_per_part: int) -> Path:
    """A data set of `PARTS` parts, all clips alike."""
    (folder / "train/videos").mkdir(parents=True)
    rows = []
    for part in range(PARTS):
        names = [f"avsbench/video/{part}_{number}.mp4" for number in range(clips_per_part)]
        with tarfile.open(folder / f"train/videos/avsbench_part{part:03}.tar", "w") as tar:
            for name in names:
                tar.add(clip, name)
        rows += [
            {"id": name, "video": name, "question": "?", "answer": "x", "format": "open_ended"} for name in names
        ]
    (folder / "train/annotations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@contextmanager
def recorded() -> Iterator[dict[str, list[Interval]]]:
    """While open: when the core was at work, by what it did."""
    import tasks.parts
    import tasks.rows
    import tasks.shards
    import tasks.snapshots

    places: dict[str, list[tuple[Any, str]]] = {
        "fetch": [(tasks.parts, "fetch")],
        "make": [(tasks.shards, "make_shard"), (tasks.snapshots, "publish")],
        "books": [(tasks.parts, "index_tar"), (tasks.rows, "read_questions"), (tasks.snapshots, "build_manifest")],
    }
    intervals: dict[str, list[Interval]] = {name: [] for name in places}

    def timed(function: Callable[..., Any], kept: list[Interval]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                kept.append((started, time.perf_counter()))

        return call

    with ExitStack() as stack:
        for name, found in places.items():
            for module, attribute in found:
                stack.enter_context(
                    patch.object(module, attribute, timed(getattr(module, attribute), intervals[name]))
                )
        yield intervals


def covered_seconds(intervals: list[Interval]) -> float:
    """Length of the union."""
    seconds, end = 0.0, float("-inf")
    for start, stop in sorted(intervals):
        seconds += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return seconds


def measure(folder: Path, clip: Path, clips_per_part: int) -> list[Figure]:
    """One run that makes everything, after one that starts all there is to start."""
    from prefect.testing.utilities import prefect_test_harness

    from flows.prepare import prepare

    source = build_source(folder / "source", clip, clips_per_part)
    with prefect_test_harness(server_startup_timeout=180), HubServer(source) as hub:
        prepare("hf://datasets/demo/GRASP", str(folder / "warm-up"), limit=1, endpoint=hub.endpoint)
        with recorded() as intervals:
            started = time.perf_counter()
            prepare("hf://datasets/demo/GRASP", str(folder / "out"), endpoint=hub.endpoint)
            wall_seconds = time.perf_counter() - started
    work_seconds = covered_seconds(intervals["fetch"] + intervals["make"])
    all_seconds = covered_seconds([interval for kept in intervals.values() for interval in kept])
    return [
        Figure("wall seconds", wall_seconds, ""),
        Figure("of it fetch, decode, encode, write", work_seconds, ""),
        Figure("index, rows, join, where nothing else ran", all_seconds - work_seconds, ""),
        at_most("share outside fetch, decode, encode, write", 1 - work_seconds / wall_seconds, MOST_SHARE),
    ]


def main() -> int:
    """Build the source, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clips", type=int, default=24, help="of 8 s and 720p in each part")
    arguments = parser.parse_args()
    from flows.cli import quiet_prefect

    quiet_prefect()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return report("overhead", measure(folder, build_clip(folder, "h264_720p_long_gop"), arguments.clips))


if __name__ == "__main__":
    sys.exit(main())
