"""Cases about whole runs: a refresh, a run that is killed, two at once. Each is the program or its flow itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow.parquet as pq

from clipshards.hub.listing import list_source
from clipshards.hub.source import FolderSource
from scripts.case_operations import Answer, Case
from tests.hub_faults import FaultyHub, Request

NUM_PARTS = 4


def refresh(case: Case) -> Answer:
    """A source that moves from one revision to another: after a run, or in the middle of one."""
    if "list_from" in case.given:
        return _moves_while_it_runs(case)
    before, after = case.folder / case.given["from_"], case.folder / case.given["to"]
    out = case.work / "out"
    with FaultyHub(before) as hub:
        _run_flow("prepare", "hf://datasets/demo/GRASP", out, hub.endpoint)
        old_shards = {path.name: path.read_bytes() for path in (out / "current").glob("*/*.tar")}
        hub.publish(after)
        hub.log.clear()
        totals, reporter = _run_flow("refresh", None, out, hub.endpoint)
        fetched = sorted({r.path for r in hub.log if (r.where, r.method) == ("hub", "GET")})
    questions = _table(out, "questions")
    clips = {row["clip"] for row in _table(out, "clips")}
    new = [p for p in (out / "current").glob("*/*.tar") if old_shards.get(p.name) != p.read_bytes()]
    return {
        "status": "ok",
        "downloaded": fetched,
        "tars_read": int("index" in reporter.stages and reporter.stages["index"].done > 0),
        "clips_decoded": sorted(reporter.decoded),
        "clips_not_decoded": sorted(clips - set(reporter.decoded)),
        "manifest_rows": sorted(row["id"] for row in questions),
        "shards_rebuilt_hold": sorted({row["clip"] for row in _table(out, "views") if row["shard"] in _names(new)}),
        "n_decoded": totals.get("decoded_clips", 0),
        **{f"{row['id']}_answer": row["answer"] for row in questions},
        **_diff(before, after),
    }


def _names(shards: list[Path]) -> set[str]:
    return {f"{path.parent.name}/{path.name}" for path in shards}


def _diff(before: Path, after: Path) -> Answer:
    """What `refresh --dry-run` says of the two."""
    from clipshards.hub.listing import hash_file
    from manifests.diff import diff_files

    hashes = [
        {file.path: hash_file(folder / file.path) for file in list_source(FolderSource(folder)).files}
        for folder in (before, after)
    ]
    diff = diff_files(*hashes)
    return {
        "added": list(diff.added),
        "changed": list(diff.changed),
        "removed": list(diff.removed),
        "renamed": diff.renamed,
    }


def _moves_while_it_runs(case: Case) -> Answer:
    start, then = case.folder / case.given["list_from"], case.folder / case.given["branch_moves_to"]

    class Moving(FaultyHub):
        def take(self, request: Request) -> Any:
            if request.where == "hub" and request.method == "GET" and "part001" in request.path:
                self.publish(then)
            return super().take(request)

    out = case.work / "out"
    with Moving(start) as hub:
        commits = {hub.commit: case.given["list_from"]}
        _run_flow("prepare", "hf://datasets/demo/GRASP", out, hub.endpoint)
        commits[hub.commit] = case.given["branch_moves_to"]
    assert len(commits) == 2, "the branch did not move"
    dataset = json.loads((out / "current/dataset.json").read_text())
    files = {path: file["hash"] for path, file in dataset["inputs"].items()}
    listing = json.loads((case.folder / f"tree_{commits[dataset['commit']]}.json").read_text())
    listed = {file["path"]: file["sha256"] for file in listing}
    parts = {row["part"]: row["sha256"] for row in _table(out, "parts")}
    return {
        "status": "ok",
        "revision_used": commits[dataset["commit"]],
        "files_from_one_revision": all(listed[part] == sha256 for part, sha256 in parts.items())
        and set(files) == set(listed),
        "final_sha256": parts,
    }


def _run_flow(name: str, source: str | None, out: Path, endpoint: str) -> tuple[dict[str, Any], Any]:
    """Run a flow in this process; its totals, and the reporter with the names of the clips that were decoded."""
    from flows.console import Reporter, use

    class Recording(Reporter):
        def __init__(self) -> None:
            super().__init__()
            self.decoded: list[str] = []

        def clip(self, clip: str, *, decoded: bool, **amounts: Any) -> None:
            super().clip(clip, decoded=decoded, **amounts)
            if decoded:
                self.decoded.append(clip)

    from flows.cli import quiet_prefect

    quiet_prefect()
    from flows.prepare import prepare
    from flows.refresh import refresh as refresh_flow

    reporter = Recording()
    use(reporter)
    try:
        if name == "refresh":
            return refresh_flow(str(out), endpoint=endpoint), reporter
        return prepare(source, str(out), endpoint=endpoint), reporter
    finally:
        use(None)


def _table(out: Path, name: str) -> list[dict[str, Any]]:
    return pq.read_table(out / "current/manifests" / f"{name}.parquet").to_pylist()  # type: ignore[no-any-return]


# -- killed, and two at once


def crash_and_resume(case: Case) -> Answer:
    """Four shards; killed while the third is being written; run again; compared with a run that was left alone."""
    source = _source_of_parts(case.work / "source")
    out, calm = case.work / "out", case.work / "calm"
    with _program(source, out) as first:
        while len(_receipts(out)) < NUM_PARTS // 2:
            assert first.poll() is None, "the run ended before it could be killed"
            time.sleep(0.005)
        _kill_all(first.pid)
    kept = {path: path.stat().st_mtime_ns for path in _receipts(out)}
    with _program(source, out) as second:
        assert second.wait(timeout=240) == 0, "the second run failed"
    with _program(source, calm) as undisturbed:
        assert undisturbed.wait(timeout=240) == 0, "the undisturbed run failed"
    assert _shards(out) == _shards(calm), "the bytes differ from those of an undisturbed run"
    untouched = {path for path in _receipts(out) if kept.get(path) == path.stat().st_mtime_ns}
    assert untouched == set(kept), f"{len(kept) - len(untouched)} finished shards were written again"
    # Shards are numbered in the order in which they are finished; they are not begun in the order of their names.
    return {
        "status": "ok",
        "kept": list(range(len(kept))),
        "rewritten": list(range(len(kept), len(_receipts(out)))),
    }


def two_runs(case: Case) -> Answer:
    """A run that is held, a second one on the same folder, and a third when the first has ended."""
    source = _source_of_parts(case.work / "source")
    out = case.work / "out"
    with _program(source, out) as first:
        while not _receipts(out):
            assert first.poll() is None, "the run ended before it could be held"
            time.sleep(0.005)
        _signal_all(first.pid, signal.SIGSTOP)
        before = _state(out)
        with _program(source, out) as second:
            code = second.wait(timeout=120)
        changed = [path for path, state in _state(out).items() if before.get(path) != state]
        _signal_all(first.pid, signal.SIGCONT)
        assert first.wait(timeout=240) == 0, "the first run did not end well"
    shards = _state(out, "work/shards/**/*")
    with _program(source, out) as third:
        assert third.wait(timeout=120) == 0, "the third run failed"
    return {
        "status": "ok",
        "reason_kind": "output-in-use" if code == 6 else f"exit code {code}",
        "files_changed_by_b": len(changed),
        "work_done_by_c": sum(shards.get(path) != state for path, state in _state(out, "work/shards/**/*").items()),
    }


def _source_of_parts(folder: Path) -> Path:
    """Parts of one clip each, long enough that a shard takes a while."""
    clip = folder / "clip.mp4"
    (folder / "train/videos").mkdir(parents=True)
    _write_clip(clip)
    rows = []
    for number in range(NUM_PARTS):
        name = f"avsbench/video/{number}.mp4"
        with tarfile.open(folder / f"train/videos/avsbench_part{number:03}.tar", "w") as tar:
            tar.add(clip, name, filter=_plain)
        rows.append({"id": f"q{number}", "video": name, "question": "?", "answer": "x", "format": "open_ended"})
    clip.unlink()
    (folder / "train/annotations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.mtime, info.uid, info.gid, info.uname, info.gname = 0, 0, 0, "", ""
    return info


def _write_clip(path: Path) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"preset": "ultrafast"})
        stream.height, stream.width, stream.pix_fmt = 480, 640, "yuv420p"
        noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), np.uint8)
        for number in range(300):
            frame = av.VideoFrame.from_ndarray(np.roll(noise, number, axis=1), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@contextmanager
def _program(source: Path, out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`clipshards prepare` with one worker, in a process group of its own; nothing of it outlives the block."""
    command = [Path(sys.executable).with_name("clipshards"), "prepare", source, out, "--workers", "1"]
    process = subprocess.Popen(
        [*map(str, command), "--max-rejected", "0"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        _kill_all(process.pid)
        process.wait()


def _signal_all(group: int, number: int) -> None:
    with suppress(ProcessLookupError):  # all of it has ended
        os.killpg(group, number)


def _kill_all(group: int) -> None:
    _signal_all(group, signal.SIGKILL)


def _receipts(out: Path) -> list[Path]:
    return list(out.glob("work/shards/train/*.json"))


def _shards(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "current/train").glob("*.tar")}


def _state(out: Path, pattern: str = "**/*") -> dict[str, tuple[int, int]]:
    files = (path for path in out.glob(pattern) if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


RUNS: dict[str, Callable[[Case], Answer]] = {
    function.__name__: function for function in (refresh, crash_and_resume, two_runs)
}
