"""A decoder against the CPU: pixels on all clips of the demo and the corpus, and frames/s by number of workers.

    python -m scripts.gpu_check [--decoder cuda] [--seconds 270] [--corpus ../shared/corpus]

Prints Markdown. Exit code 1 when a frame is missing or differs by more than 2 levels, or the decoder gave none.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from benchmarks.decode import build_clip, run_clipshards, sampled_indices
from clipshards.decode.choice import choose_decoder
from clipshards.decode.decoders import collect, open_clip
from clipshards.decode.media import Extent
from clipshards.decode.pool import WorkerPool
from clipshards.demo import build_demo
from clipshards.errors import Rejected, UsageError
from clipshards.tars import index_tar

MOST_LEVELS = 2
WORKERS = (1, 2, 4, 8, 16)
CLIPS = ("h264_720p_long_gop", "h264_1080p_long_gop")
JOBS_PER_WORKER = 6
MOST_PIXELS = 40 * 1280 * 720
"""Frames of large clips are thinned to so many pixels."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One clip, decoded by the CPU and by another decoder."""

    reason: str = ""
    """Why the clip cannot be used at all."""
    fallback: str = ""
    """Why the CPU gave the other's frames too; then there is nothing to compare."""
    num_frames: int = 0
    num_mismatched: int = 0
    """Frames that one of the two lacks, or that differ by more than MOST_LEVELS."""
    num_values: int = 0
    num_equal: int = 0
    largest: int = 0


def compare_clip(job: tuple[Extent, str]) -> Comparison:
    """Decode a clip's frames both ways; runs in a worker."""
    extent, decoder = job
    try:
        clip = open_clip(extent, decoder)
    except Rejected as rejected:
        return Comparison(reason=rejected.reason)
    most = max(2, MOST_PIXELS // (clip.info.height * clip.info.width))
    indices = sorted(set(sampled_indices(clip.info.num_frames, clip.info.fps)))
    indices = indices[:: -(-len(indices) // most)]
    done = collect(clip, indices, lambda rgb: rgb)
    if done.fallback:
        return Comparison(fallback=done.fallback)
    expected = collect(open_clip(extent), indices, lambda rgb: rgb).frames
    both = done.frames.keys() & expected.keys()
    differences = {index: np.abs(done.frames[index].astype(np.int16) - expected[index]) for index in both}
    largest = {index: int(difference.max()) for index, difference in differences.items()}
    return Comparison(
        num_frames=len(expected),
        num_mismatched=len(done.frames.keys() ^ expected.keys()) + sum(x > MOST_LEVELS for x in largest.values()),
        num_values=sum(difference.size for difference in differences.values()),
        num_equal=sum(int((difference == 0).sum()) for difference in differences.values()),
        largest=max(largest.values(), default=0),
    )


def frames_of(job: tuple[str, str]) -> int:
    """Clip to JPEG bytes, as `prepare` does it; the number of pictures. Runs in a worker."""
    path, decoder = job
    return run_clipshards(Path(path), decoder)


def demo_clips(folder: Path) -> list[Extent]:
    """Build the demo data set; its clips lie in its tars."""
    build_demo(folder, workers=8)
    members = [(tar, member) for tar in folder.rglob("*.tar") for member in index_tar(tar, part=tar.name).members]
    return [Extent(str(tar), m.offset_bytes, m.size_bytes) for tar, m in members if m.name.endswith(".mp4")]


def corpus_clips(folder: Path) -> list[Extent]:
    """The clips of a folder; none when it is not there."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return [Extent(str(path)) for path in files if path.suffix != ".csv"]


def compare(name: str, clips: Sequence[Extent], decoder: str) -> tuple[str, list[Comparison]]:
    """A line of the table of pixels, and the comparisons."""
    with WorkerPool(8, job_seconds=60) as pool:
        jobs = [(extent, decoder) for extent in clips]
        # A worker that hung or died has lost at least one frame.
        lost = lambda job, words: Comparison(num_mismatched=1)  # noqa: E731
        done = list(pool.run(compare_clip, jobs, lost))
    given = [comparison for comparison in done if not comparison.reason and not comparison.fallback]
    values = sum(comparison.num_values for comparison in given)
    equal = sum(comparison.num_equal for comparison in given) / values if values else 0.0
    cells = [
        name, len(done), len(given), sum(c.num_frames for c in given), f"{equal:.6%}",
        max((c.largest for c in given), default=0), sum(c.num_mismatched for c in given),
    ]  # fmt: skip
    return _row(cells), done


def frames_per_second(clip: Path, decoder: str, workers: int) -> float:
    """Pictures a second of all workers together, after each had time to start."""
    with WorkerPool(workers, job_seconds=60) as pool:
        job = (str(clip), decoder)
        list(pool.run(frames_of, [job] * 2 * workers, lambda job, words: 0))
        started = time.monotonic()
        counts = list(pool.run(frames_of, [job] * JOBS_PER_WORKER * workers, lambda job, words: 0))
        return sum(counts) / (time.monotonic() - started)


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _head(cells: Sequence[str]) -> str:
    return f"{_row(cells)}\n{_row(['---'] * len(cells))}"


def main() -> int:
    """Compare, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--decoder", choices=["cuda", "ffmpeg"], default="cuda")
    parser.add_argument("--seconds", type=float, default=270.0, help="no new measurement is begun after so long")
    parser.add_argument("--corpus", type=Path, default=Path("../shared/corpus"))
    arguments = parser.parse_args()
    ends = time.monotonic() + arguments.seconds
    try:
        decoder = choose_decoder(arguments.decoder).decoder
    except UsageError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return error.exit_code
    with tempfile.TemporaryDirectory() as folder:
        print(f"`{decoder}` against `cpu`: {platform.machine()}, PyAV {av.__version__}\n")
        titles = ["clips of", "clips", f"decoded by {decoder}", "frames"]
        print(_head([*titles, "equal values", "largest difference", "mismatched frames"]))
        done: list[Comparison] = []
        for name, clips in (("demo", demo_clips(Path(folder))), ("corpus", corpus_clips(arguments.corpus))):
            line, comparisons = compare(name, clips, decoder)
            done += comparisons
            print(line, flush=True)
        for title, words in (("cannot be used", "reason"), ("went to the CPU", "fallback")):
            counts = Counter(getattr(comparison, words).split(":")[0] for comparison in done)
            counts.pop("", None)
            print(f"\n{title}: " + (", ".join(f"{kind} {count}" for kind, count in counts.most_common()) or "none"))
        if not any(comparison.num_frames for comparison in done):
            return 1
        print("\nframes/s, clip to JPEG:\n")
        paths = {name: build_clip(Path(folder), name) for name in CLIPS}
        print(_head(["workers", *(f"{name.split('_')[1]} {d}" for name in CLIPS for d in (decoder, "cpu"))]))
        for workers in WORKERS:
            if time.monotonic() > ends:
                print(f"\nout of time: {arguments.seconds:g} s")
                break
            rates = [frames_per_second(path, d, workers) for path in paths.values() for d in (decoder, "cpu")]
            print(_row([workers, *(f"{rate:.0f}" for rate in rates)]), flush=True)
    return int(any(comparison.num_mismatched for comparison in done))


if __name__ == "__main__":
    sys.exit(main())
