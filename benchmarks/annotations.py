"""Rows at the size of GRASP: parse, validate, plan, join and write all tables, without the decoding.

`python -m benchmarks.annotations`: CPU time against a bare `json.loads` loop over the same files, each in a
process of its own, interleaved, medians of 3; and the peak memory of the whole.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path

from benchmarks.figures import Figure, at_most, report
from benchmarks.synthetic import SyntheticClip, make_clips, write_rows
from clipshards.collector import paused_collector

ROWS, CLIPS, REPEATS = 290_000, 46_000, 3


def main() -> int:
    """Measure, or, with an argument, be the measured process."""
    if len(sys.argv) > 2:
        work = {"json": loop_over_json, "ours": prepare_rows}[sys.argv[1]]
        with paused_collector() if sys.argv[1] == "ours" else nullcontext():
            invented_seconds = work(Path(sys.argv[2]))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps([usage.ru_utime + usage.ru_stime - invented_seconds, usage.ru_maxrss / 1024]))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), rows=ROWS, clips=CLIPS)
        size_mb = sum(path.stat().st_size for path in Path(folder).rglob("*.jsonl")) / 1e6
        runs = [(measure("json", folder), measure("ours", folder)) for _ in range(REPEATS)]
    ratio = statistics.median(ours[0] / bare[0] for bare, ours in runs)
    return report(
        "annotations",
        [
            Figure("jsonl_mb", size_mb, ""),
            Figure("json_loads_cpu_seconds", statistics.median(bare[0] for bare, _ in runs), ""),
            at_most("cpu_ratio_to_json_loads", ratio, 3.0),
            at_most("peak_memory_gb", max(ours[1] for _, ours in runs) / 1024, 1.5),
        ],
    )


def measure(what: str, folder: str) -> tuple[float, float]:
    """CPU seconds and peak memory in MiB of one process."""
    command = [sys.executable, "-m", "benchmarks.annotations", what, folder]
    seconds, mebibytes = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return seconds, mebibytes


def loop_over_json(folder: Path) -> float:
    """The bare loop that everyone writes; nothing of it is invented."""
    for path in sorted(folder.rglob("*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                json.loads(line)
    return 0.0


def prepare_rows(folder: Path) -> float:
    """What a run does with rows, with invented outcomes in place of decoded clips.

    Returns the CPU seconds that the invention took, which no run spends.
    """
    from clipshards.annotations import Questions, read_questions
    from clipshards.examples import read_examples
    from clipshards.plan import (
        assign_clips,
        link_examples,
        plan_shards,
        plan_split,
        planned_bytes,
        shard_bytes,
    )
    from clipshards.recipe import load_recipe
    from clipshards.tars import TarMember
    from manifests.snapshot import write_tables
    from manifests.tables import PartRecord, SplitResult, build_manifest

    recipe = load_recipe("grasp")
    split = recipe.splits["train"]
    profile = recipe.profile(split.profile)
    train = folder / "train"
    questions = read_questions([("train/annotations.jsonl", train / "annotations.jsonl")], recipe, split)
    files = [(stage, f"train/data_{stage}.jsonl", train / f"data_{stage}.jsonl") for stage in ("sft", "rl")]
    examples = read_examples(files)
    links = link_examples(examples, questions)
    plan = plan_split("train", profile, examples, questions.clips())
    clips = {clip.path: clip for clip in make_clips(CLIPS)}
    members = tuple(TarMember(path, 512, 1000, "0" * 64) for path in clips)
    part = PartRecord("train/videos/all_part000.tar", "train", 1 << 30, "0" * 64, members)
    assignment = assign_clips(plan.views, {part.path: members})
    size_bytes = shard_bytes(planned_bytes(plan.views, profile))
    plans = plan_shards(plan, part.path, assignment.places, size_bytes)
    before = time.process_time()
    shards = [_invent(shard, clips, profile) for shard in plans]
    invented_seconds = time.process_time() - before
    result = SplitResult(plan, questions, Questions(), examples, links, assignment, [part], shards)
    manifest = build_manifest([result])
    assert manifest.counts["examples"] == ROWS, manifest.counts
    write_tables(manifest.tables, folder / "tables")
    return invented_seconds


def _invent(plan, clips, profile):  # type: ignore[no-untyped-def]
    """A shard whose clips all decoded."""
    from clipshards.decode.probe import ClipInfo
    from clipshards.rendering import ClipOutcome, RenderedView, sample_view
    from clipshards.sampling import fit_to_grid
    from clipshards.shards import SamplePlace, ShardInfo

    def outcomes() -> Iterator[ClipOutcome]:
        for path, views in plan.views.items():
            clip: SyntheticClip = clips[path]
            num_frames = round(clip.duration_seconds * clip.fps)
            info = ClipInfo(
                "h264", "yuv420p", "mov,mp4", clip.fps, num_frames, clip.height, clip.width, 0,
                clip.duration_seconds, False, False,
            )  # fmt: skip
            height, width = fit_to_grid(clip.height, clip.width, profile)
            yield ClipOutcome(path, info, "", "", tuple(rendered(views, info, height, width)))

    def rendered(views: Iterable, info: ClipInfo, height: int, width: int) -> Iterator[RenderedView]:  # type: ignore[type-arg]
        for view in views:
            sample = sample_view(view, info, profile)
            indices = sample.indices.astype("<i4").tobytes()
            yield RenderedView(
                view.key, view.start_seconds, view.end_seconds, indices, len(sample.indices), height, width, (),
            )  # fmt: skip

    made = tuple(outcomes())
    places = tuple(SamplePlace(view.key, 0, 1000, 100, 400) for outcome in made for view in outcome.views)
    num_frames = sum(view.num_frames for outcome in made for view in outcome.views)
    return ShardInfo(f"train/{plan.name}", "train", plan.part, 1 << 29, "0" * 64, num_frames, places, made, "")


if __name__ == "__main__":
    sys.exit(main())
