"""Kill the demo's run with SIGKILL at random moments, run it again, and compare with a run that was left alone.

Each time: all shards and tables have the bytes of the undisturbed run; no file that was verified is fetched again;
no clip of a finished shard is decoded again. Exit 0 when that held each time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clipshards.demo import build_demo
from tests.hub_faults import FaultyHub

START_SHARE = 0.3
"""Of the time of a run of the demo, before anything is on the disk."""


@dataclass
class Verdict:
    """What one kill and the run after it came to."""

    killed_after_seconds: float
    stage: str
    same_bytes: bool
    bytes_fetched_twice: int
    """Of files that were verified before the kill."""
    clips_decoded_twice: int
    """Of shards that were finished before the kill."""
    bytes_of_open_files: int
    """Fetched again of files that were on their way: what the kill itself lost."""

    def is_right(self) -> bool:
        return self.same_bytes and not self.bytes_fetched_twice and not self.clips_decoded_twice


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="scripts/torture", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build_demo(folder / "source", workers=os.cpu_count() or 1)
        with FaultyHub(folder / "source") as hub:
            started = time.monotonic()
            finish(start(hub, folder / "calm"))
            whole_seconds = time.monotonic() - started
            wanted = hashes(folder / "calm")
            print(f"undisturbed: {whole_seconds:.1f} s, {len(wanted)} shards and tables", flush=True)
            verdicts = []
            for number in range(1, arguments.runs + 1):
                # Spread over the run to its very end, less the start of Python and Prefect.
                share = START_SHARE + (1 - START_SHARE) * (number - draw.random()) / arguments.runs
                after = whole_seconds * share
                verdict = torture(hub, folder / "out", after, wanted)
                verdicts.append(verdict)
                shutil.rmtree(folder / "out")
                print(f"{number:3} {'right' if verdict.is_right() else 'WRONG'} {verdict}", flush=True)
    right = sum(map(Verdict.is_right, verdicts))
    twice = sum(verdict.bytes_fetched_twice for verdict in verdicts)
    clips = sum(verdict.clips_decoded_twice for verdict in verdicts)
    print(f"{right} right of {len(verdicts)}; verified bytes fetched twice: {twice}; clips decoded twice: {clips}")
    return int(right < len(verdicts))


def torture(hub: FaultyHub, out: Path, after_seconds: float, wanted: dict[str, str]) -> Verdict:
    """One run that is killed, and the run that goes on."""
    process = start(hub, out)
    time.sleep(after_seconds)
    kill(process)
    verified = {path.name.removesuffix(".verified") for path in out.glob("work/downloads/**/*.verified")}
    receipts = [json.loads(path.read_bytes()) for path in out.glob("work/shards/*/*.json")]
    finished = {outcome["clip"] for receipt in receipts for outcome in receipt["outcomes"]}
    stage = "published" if (out / "current").exists() else "decoding" if receipts else "before the first shard"
    partial = {path.name: path.stat().st_size for path in out.glob("work/downloads/**/*.part")}
    hub.log.clear()
    totals = finish(start(hub, out))
    twice, reopened = 0, 0
    for request in hub.log:
        if (request.where, request.method) != ("cdn", "GET"):
            continue
        name = Path(request.path).name
        start_byte = int((request.range or "bytes=0-").removeprefix("bytes=").split("-")[0])
        had = next((size for part, size in partial.items() if part.startswith(name)), 0)
        twice += size_of(hub, request.path) - start_byte if name in verified else 0
        reopened += max(0, had - start_byte)
    again = max(0, totals["decoded_clips"] - (totals["clips"] - len(finished)))
    return Verdict(round(after_seconds, 1), stage, hashes(out) == wanted, twice, again, reopened)


def size_of(hub: FaultyHub, path: str) -> int:
    return (hub.folder / path).stat().st_size


def start(hub: FaultyHub, out: Path) -> subprocess.Popen[str]:
    command = [str(Path(sys.executable).with_name("clipshards")), "prepare", "hf://datasets/demo/GRASP", str(out)]
    return subprocess.Popen(
        [*command, "--json", "--max-rejected", "0.02"],
        env={**os.environ, "HF_ENDPOINT": hub.endpoint}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip


def kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a run; its totals."""
    try:
        output, _ = process.communicate(timeout=300)
    finally:
        kill(process)
    if process.returncode:
        raise SystemExit(f"a run ended with exit code {process.returncode}: {output[-2000:]}")
    totals: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return totals


def hashes(out: Path) -> dict[str, str]:
    """sha256 of each shard and table."""
    snapshot = out / "current"
    paths = [*snapshot.glob("t*/*.tar"), *snapshot.glob("manifests/*.parquet")]
    return {str(p.relative_to(snapshot)): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


if __name__ == "__main__":
    sys.exit(main())
