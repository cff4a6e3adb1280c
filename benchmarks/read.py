"""What an example costs a trainer: our readers, webdataset alone, and decord on the fly.

    python -m benchmarks.read [--folder FOLDER] [--repeats 3]

Clips of 60 s at 720p and 1080p (H.264, GOP 250; a moving test card with noise, crf 23), one example each that shows
all of it: 120 frames by the trainer's rule, of 384 × 672 pixels. They are prepared once, as JPEG q95, and stay in
FOLDER. All kinds give uint8 [T, H, W, 3] in memory.

    CPU     of one process, each example once; the kinds take turns; median of the rounds after one that warms up
    wall    an example's share of two processes at work; warm, and after its files were dropped from the page cache
    memory  peak of a fresh process that reads one example

`bare` is simplejpeg alone on the same JPEGs, in memory already. How many times cheaper than decord depends on the
clip: more pictures a second, longer GOPs and larger sizes cost decord more and the reader nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ffmpeg
import imageio_ffmpeg
import numpy as np
import pyarrow.compute as pc
import simplejpeg

import clipshards
from benchmarks.decode import sampled_indices
from benchmarks.figures import Figure, at_least, at_most, report
from clipshards.images import resize, use_one_thread
from clipshards.sampling import fit_to_grid
from clipshards.streaming import Stream

SECONDS, FPS, CLIPS = 60, 30, 4
HEIGHTS = (720, 1080)
WINDOW = (20.0, 36.0)
"""Seconds of a window that holds 32 frames."""

Work = Callable[[Path, int], Any]
"""Reads example `number` of an output: its frames."""


def build(folder: Path, height: int) -> Path:
    """An output of `CLIPS` clips alike, beside the clips as plain files; kept between runs."""
    out = folder / f"{height}p" / "out"
    if (out / "current").exists():
        return out
    source = out.with_name("source")
    videos = source / "train/videos"
    videos.mkdir(parents=True, exist_ok=True)
    first = _encode(out.with_name("clip.mp4"), height)
    lines: dict[str, list[str]] = {"sft": [], "rl": []}
    with tarfile.open(videos / "avsbench_part000.tar", "w") as tar:
        for number in range(CLIPS):
            name = f"avsbench/video/{number}.mp4"
            tar.add(_copy(first, number), name)
            lines["sft"].append(_line(name, height, 0.0, float(SECONDS)))
            lines["rl"].append(_line(name, height, *WINDOW))
    for stage, of_stage in lines.items():
        (source / f"train/data_{stage}.jsonl").write_text("\n".join(of_stage) + "\n")
    (source / "train/annotations.jsonl").write_text("")
    from prefect.testing.utilities import prefect_test_harness

    from flows.prepare import prepare

    with prefect_test_harness(server_startup_timeout=180):
        prepare(str(source), str(out), decoder="cpu")
    return out


def _encode(path: Path, height: int) -> Path:
    size = f"{height * 16 // 9}x{height}"
    card = ffmpeg.input(f"testsrc2=s={size}:r={FPS}", f="lavfi", t=SECONDS)
    moving = card.filter("noise", alls=6, allf="t")
    output = moving.output(str(path), pix_fmt="yuv420p", vcodec="libx264", preset="medium", crf=23, g=250)
    output.global_args("-v", "error", "-y").run(cmd=imageio_ffmpeg.get_ffmpeg_exe())
    return path


def _copy(clip: Path, number: int) -> Path:
    """The same pictures in other bytes: equal clips would be one."""
    path = clip.with_name(f"{number}.mp4")
    copied = ffmpeg.input(str(clip)).output(str(path), c="copy", metadata=f"title={number}")
    copied.global_args("-v", "error", "-y").run(cmd=imageio_ffmpeg.get_ffmpeg_exe())
    return path


def _line(name: str, height: int, start_seconds: float, end_seconds: float) -> str:
    video = {"type": "video", "path": name, "fps": FPS, "start_seconds": start_seconds, "end_seconds": end_seconds}
    video["src_resolution"] = [height, height * 16 // 9]
    turns = [{"type": "text", "content": "?", "output": False}, {"type": "text", "content": "!", "output": True}]
    return json.dumps([video, *turns])


@cache
def _open(out: Path, stage: str, frames: Any) -> Any:
    return clipshards.open(out, where=pc.field("stage") == stage, frames=frames)


def read_ours(out: Path, number: int) -> Any:
    """The map-style reader."""
    return _open(out, "sft", "array")[number].frames


def read_window(out: Path, number: int) -> Any:
    """The same of a window of 32 frames."""
    return _open(out, "rl", "array")[number].frames


def read_encoded(out: Path, number: int) -> Any:
    """`pread` and parsing alone."""
    return _open(out, "sft", "jpeg")[number].frames


def read_bare(out: Path, number: int) -> Any:
    """The JPEGs that `encoded` gives, decoded by simplejpeg and nothing else."""
    return [simplejpeg.decode_jpeg(jpeg, colorspace="RGB") for jpeg in _encoded(out, number)]


@cache
def _encoded(out: Path, number: int) -> Any:
    return read_encoded(out, number)


def read_decord(out: Path, number: int) -> Any:
    """What the trainer does today: decode the clip, resize by its rule."""
    import decord  # not at the top: processes whose memory is measured have no decord

    reader = decord.VideoReader(str(out.with_name(f"{number}.mp4")), ctx=decord.cpu(0), num_threads=1)
    pictures = reader.get_batch(sampled_indices(len(reader), float(reader.get_avg_fps()))).asnumpy()
    height, width = fit_to_grid(*pictures.shape[1:3])
    return np.stack([resize(picture, height, width) for picture in pictures])


def stream_ours(out: Path) -> Iterable[Any]:
    """The streaming reader, shuffled through a buffer."""
    return (example.frames for example in Stream(_open(out, "sft", "array"), buffer=CLIPS))


def stream_webdataset(out: Path) -> Iterable[Any]:
    """webdataset alone; a sample of a window is passed over, as its filter would."""
    import webdataset

    shards = sorted(map(str, (out / "current/train").glob("*.tar")))
    for sample in webdataset.WebDataset(shards, shardshuffle=False).decode():
        if sample["json"]["start_seconds"] == 0.0:
            yield np.stack([simplejpeg.decode_jpeg(jpeg, colorspace="RGB") for jpeg in sample["mp"]])


BY_NUMBER: dict[str, Work] = {
    "map reader": read_ours,
    "window of 32": read_window,
    "pread and parse": read_encoded,
    "bare": read_bare,
    "decord": read_decord,
}
STREAMS = {"stream": stream_ours, "webdataset": stream_webdataset}


def cpu_seconds(out: Path, repeats: int) -> dict[str, float]:
    """Median CPU seconds an example, by kind."""
    rounds = [
        {name: _cpu_of(lambda name=name: _read_all(name, out)) / CLIPS for name in [*BY_NUMBER, *STREAMS]}
        for _ in range(repeats + 1)
    ][1:]
    return {name: statistics.median(of[name] for of in rounds) for name in rounds[0]}


def _read_all(name: str, out: Path) -> None:
    """Each example once, one at a time in memory."""
    frames = STREAMS[name](out) if name in STREAMS else (BY_NUMBER[name](out, n) for n in range(CLIPS))
    count = sum(1 for _ in frames)
    if count != CLIPS:
        raise RuntimeError(f"{name} read {count} of {CLIPS} examples of {out}")


def _cpu_of(work: Callable[[], None]) -> float:
    before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def wall_seconds(out: Path, repeats: int) -> dict[str, float]:
    """Median wall seconds an example with two processes, by kind, warm and cold."""
    files = [*out.parent.glob("*.mp4"), *(out / "current/train").glob("*.tar")]
    rounds = []
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for _ in range(repeats + 1):
            walls = {}
            for state in ("warm", "cold"):
                for name in ("map reader", "decord"):
                    if state == "cold":
                        _drop_from_cache(files)
                    started = time.perf_counter()
                    list(pool.map(_read_one, *zip(*[(name, out, n) for n in range(CLIPS)], strict=True)))
                    walls[f"{name}, {state}"] = (time.perf_counter() - started) / CLIPS
            rounds.append(walls)
    return {name: statistics.median(of[name] for of in rounds[1:]) for name in rounds[0]}


def _read_one(name: str, out: Path, number: int) -> int:
    """In a worker: what goes back is small, as with torch's shared memory."""
    return len(BY_NUMBER[name](out, number))


def _drop_from_cache(files: Iterable[Path]) -> None:
    os.sync()  # pages that are not written yet stay
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def peak_megabytes(out: Path, name: str) -> float:
    """Of a fresh process that reads one example."""
    code = (
        "import sys; from pathlib import Path; from benchmarks.read import BY_NUMBER;"
        "BY_NUMBER[sys.argv[1]](Path(sys.argv[2]), 0); print(Path('/proc/self/status').read_text())"
    )
    done = subprocess.run([sys.executable, "-c", code, name, out], capture_output=True, text=True, check=True)
    peak = next(line for line in done.stdout.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def measure(out: Path, height: int, repeats: int) -> list[Figure]:
    """All figures of one size."""
    cpu, wall = cpu_seconds(out, repeats), wall_seconds(out, repeats)
    least = 60 if height == 720 else 1
    frames = {name: len(BY_NUMBER[name](out, 0)) for name in ("map reader", "window of 32")}
    window = cpu["window of 32"] / frames["window of 32"] / (cpu["map reader"] / frames["map reader"])
    figures = [
        Figure("decord: CPU seconds an example", cpu["decord"], ""),
        at_least("map reader: cheaper than decord by", cpu["decord"] / cpu["map reader"], least),
        at_most("map reader / bare simplejpeg", cpu["map reader"] / cpu["bare"], 1.05),
        at_most("pread and parse / bare simplejpeg", cpu["pread and parse"] / cpu["bare"], 0.05),
        at_most("a frame of a window of 32 / of all 120", window, 1.1),
        Figure("stream: cheaper than decord by", cpu["decord"] / cpu["stream"], ""),
        Figure("webdataset alone: cheaper than decord by", cpu["decord"] / cpu["webdataset"], ""),
        *(Figure(f"wall, 2 processes: {name}", seconds, "") for name, seconds in wall.items()),
        *(Figure(f"peak megabytes: {name}", peak_megabytes(out, name), "") for name in ("map reader", "decord")),
    ]
    return [Figure(f"{height}p {figure.name}", figure.value, figure.goal, figure.ok) for figure in figures]


def main() -> int:
    """Build, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "clipshards-read")
    arguments = parser.parse_args()
    from flows.cli import quiet_prefect

    quiet_prefect()
    use_one_thread()
    outs = {height: build(arguments.folder, height) for height in HEIGHTS}
    return report("read", [f for height, out in outs.items() for f in measure(out, height, arguments.repeats)])


if __name__ == "__main__":
    sys.exit(main())
