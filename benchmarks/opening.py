"""Opening an output of 290,000 examples: `clipshards.open` against pyarrow's `read_table` of the same columns.

`python -m benchmarks.opening`: CPU and wall seconds of the call and peak memory, each in a fresh process, the
two by turns, medians of 7.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

import clipshards
from benchmarks.annotations import CLIPS, ROWS, prepare_rows
from benchmarks.figures import Figure, at_most, report
from benchmarks.synthetic import write_rows
from clipshards.reader import HELD_OF_EXAMPLES
from clipshards.schema import SCHEMA_VERSION

REPEATS = 7


def build_snapshot(folder: Path) -> Path:
    """Tables of a run over rows at the size of GRASP, without shards."""
    write_rows(folder, rows=ROWS, clips=CLIPS)
    prepare_rows(folder)
    (folder / "tables").rename(folder / "manifests")
    (folder / "dataset.json").write_text(json.dumps({"schema_version": SCHEMA_VERSION}))
    return folder


def open_with(kind: str, snapshot: Path) -> int:
    """Rows of the examples, by one of the two."""
    if kind == "open":
        return len(clipshards.open(snapshot))
    return int(pq.read_table(snapshot / "manifests/examples.parquet", columns=HELD_OF_EXAMPLES).num_rows)


def measure(kind: str, snapshot: Path) -> tuple[float, float, float]:
    """CPU seconds, wall seconds, peak MiB of a fresh process."""
    command = [sys.executable, "-m", "benchmarks.opening", kind, snapshot]
    cpu, wall, mebibytes = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return cpu, wall, mebibytes


def main() -> int:
    """Measure, or, with arguments, be the measured process."""
    if len(sys.argv) > 2:
        cpu, wall = time.process_time(), time.perf_counter()
        if open_with(sys.argv[1], Path(sys.argv[2])) != ROWS:
            raise RuntimeError(f"{sys.argv[2]} has not {ROWS} examples")
        seconds = time.process_time() - cpu, time.perf_counter() - wall
        status = Path("/proc/self/status").read_text()  # ru_maxrss would count the process that forked this one
        peak_kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
        print(json.dumps([*seconds, int(peak_kib) / 1024]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        snapshot = build_snapshot(Path(folder))
        runs = [(measure("open", snapshot), measure("read_table", snapshot)) for _ in range(REPEATS)]
    return report(
        "opening",
        [
            Figure("open: wall seconds", statistics.median(ours[1] for ours, _ in runs), ""),
            at_most("open / read_table, CPU", statistics.median(o[0] / b[0] for o, b in runs), 2.0),
            at_most("open / read_table, wall", statistics.median(o[1] / b[1] for o, b in runs), 2.0),
            at_most("open: peak megabytes", max(ours[2] for ours, _ in runs), 300),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
