"""CPU time of decoding a clip into the trainer's frames with each decoder, against decord and FFmpeg alone.

    python -m benchmarks.decode [--repeats 5] [--folder FOLDER]

Ratios are medians of interleaved runs in this process (CPU seconds, children included), one thread each.
How much faster than decord depends on the clip: on the share of pictures from which no other is predicted
(half in the long GOPs here, 16–27 % in the short ones), on what those cost, and on the GOPs' tails that need not
be decoded. Real clips came out between 1.06 and 1.88; those without B pictures at 1.06–1.17.

Goals hold for `cpu`. `ffmpeg` starts a program for each clip and decodes all of it; the decoders on the GPU are
measured where there is one, and then their CPU time is what they leave to the CPU.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ffmpeg
import imageio_ffmpeg

from benchmarks.figures import Figure, at_least, at_most, report
from clipshards.decode.choice import choose_decoder
from clipshards.decode.decoders import DECODERS, collect, open_clip
from clipshards.decode.media import Extent
from clipshards.images import encode, resize, use_one_thread
from clipshards.sampling import count_frames, fit_to_grid, frame_indices

SECONDS, FPS, QUALITY = 8, 30, 95
MOST_WORKER_MEGABYTES = 250

_X264 = {"vcodec": "libx264", "preset": "medium", "crf": 23}
_X265 = {"vcodec": "libx265", "preset": "veryfast", "crf": 26, "x265-params": "log-level=error"}
_VP9 = {"vcodec": "libvpx-vp9", "deadline": "realtime", "cpu-used": 8, "b:v": "2M"}

CLIPS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "h264_720p_long_gop": ("mp4", 720, {**_X264, "g": 250}),
    "h264_720p_short_gop": ("mp4", 720, {**_X264, "g": 15}),
    "h264_1080p_long_gop": ("mp4", 1080, {**_X264, "g": 250}),
    "h264_1080p_short_gop": ("mp4", 1080, {**_X264, "g": 15}),
    "hevc_720p": ("mp4", 720, {**_X265, "g": 250}),
    "vp9_720p": ("webm", 720, {**_VP9, "g": 128}),
}
"""name → (container, height, encoder options)."""


def build_clip(folder: Path, name: str) -> Path:
    """A clip of a moving test card with noise; kept between runs."""
    container, height, options = CLIPS[name]
    path = folder / f"{name}.{container}"
    if path.exists():
        return path
    size = f"{height * 16 // 9}x{height}"
    card = ffmpeg.input(f"testsrc2=s={size}:r={FPS}", f="lavfi", t=SECONDS)
    moving = card.filter("noise", alls=6, allf="t")
    unfinished = path.with_name(f"unfinished-{path.name}")
    output = moving.output(str(unfinished), pix_fmt="yuv420p", **options)
    output.global_args("-v", "error", "-y").run(cmd=imageio_ffmpeg.get_ffmpeg_exe())
    return unfinished.rename(path)


def sampled_indices(num_frames: int, fps: float) -> list[int]:
    """The frames that the trainer takes of the whole clip."""
    seconds = num_frames / fps
    count = count_frames([seconds])[0]
    sample = frame_indices(0.0, seconds, fps=fps, num_frames_in_clip=num_frames, count=count)
    return [int(index) for index in sample.indices]


def run_clipshards(path: Path, decoder: str = "cpu") -> int:
    """Clip to JPEG bytes with one of our decoders; the number of pictures."""
    clip = open_clip(Extent(str(path)), decoder)
    height, width = fit_to_grid(clip.info.height, clip.info.width)
    indices = sampled_indices(clip.info.num_frames, clip.info.fps)
    done = collect(clip, indices, lambda rgb: encode(resize(rgb, height, width), QUALITY))
    if done.fallback:
        raise RuntimeError(f"{decoder} left {path.name} to the CPU: {done.fallback}")
    return len(done.frames)


def run_decord(path: Path) -> int:
    """The same with decord, as the trainer uses it."""
    import decord  # not at the top: the worker whose memory is measured has no decord

    reader = decord.VideoReader(str(path), ctx=decord.cpu(0), num_threads=1)
    indices = sampled_indices(len(reader), float(reader.get_avg_fps()))
    pictures = reader.get_batch(indices).asnumpy()
    height, width = fit_to_grid(*pictures.shape[1:3])
    return len([encode(resize(rgb, height, width), QUALITY) for rgb in pictures])


def run_ffmpeg(path: Path) -> int:
    """FFmpeg decoding every frame and doing nothing with it."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-threads", "1", "-i", str(path)]
    subprocess.run([*command, "-map", "0:v", "-f", "null", "-"], check=True)
    return 0


def cpu_seconds(work: Callable[[Path], int], path: Path) -> float:
    """CPU time of one run, that of ended child processes included."""
    before = _used_seconds()
    work(path)
    return _used_seconds() - before


def _used_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def compare(path: Path, decoders: Sequence[str], repeats: int) -> dict[str, float]:
    """Median CPU seconds by decoder, of `decord` and of `null` (FFmpeg alone), interleaved after one warm-up."""
    works: dict[str, Callable[[Path], int]] = {"decord": run_decord, "null": run_ffmpeg}
    works |= {decoder: partial(run_clipshards, decoder=decoder) for decoder in decoders}
    rounds = [[cpu_seconds(work, path) for work in works.values()] for _ in range(repeats + 1)][1:]
    return dict(zip(works, map(statistics.median, zip(*rounds, strict=True)), strict=True))


def worker_megabytes(path: Path) -> float:
    """Peak resident memory of a fresh process that decodes one clip."""
    # Not getrusage: ru_maxrss of a child starts at the size of the process that forked it.
    code = (
        "import sys; from pathlib import Path; from benchmarks.decode import run_clipshards;"
        "run_clipshards(Path(sys.argv[1])); print(Path('/proc/self/status').read_text())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    peak = next(line for line in done.stdout.splitlines() if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def measure(folder: Path, repeats: int) -> list[Figure]:
    """All figures."""
    figures = []
    decoders = list(DECODERS) if choose_decoder("auto").decoder == "cuda" else ["cpu", "ffmpeg"]
    for name in CLIPS:
        path = build_clip(folder, name)
        seconds = compare(path, decoders, repeats)
        of_decord = {decoder: seconds["decord"] / seconds[decoder] for decoder in decoders}
        figures.append(at_least(f"{name}: faster than decord by", of_decord.pop("cpu"), _least(name)))
        of_null = seconds["null"] / seconds["cpu"]
        if "720p" in name and name.startswith("h264"):
            figures.append(at_least(f"{name}: ffmpeg -f null / ours", of_null, 0.85))
        else:
            figures.append(Figure(f"{name}: ffmpeg -f null / ours", of_null, ""))
        figures += [Figure(f"{name}: {other} / decord", ratio, "") for other, ratio in of_decord.items()]
    megabytes = worker_megabytes(folder / "h264_1080p_long_gop.mp4")
    return [*figures, at_most("worker, 1080p: peak megabytes", megabytes, MOST_WORKER_MEGABYTES)]


def _least(name: str) -> float:
    return 1.7 if name.startswith("h264") else 1.0


def main() -> int:
    """Build the clips, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "clipshards-bench")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    use_one_thread()
    return report("decode", measure(arguments.folder, arguments.repeats))


if __name__ == "__main__":
    sys.exit(main())
