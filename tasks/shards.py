"""Shards: one task each. Clips are no tasks: 46,000 of them would be a gigabyte of Prefect's database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE

from clipshards.decode.pool import WorkerPool
from clipshards.errors import StoppedError
from clipshards.plan import ShardPlan
from clipshards.rendering import ClipJob, ClipOutcome, rejected_clip, render_clip
from clipshards.shards import Encoding, PartOnDisk, ShardInfo, make_shard
from manifests.kept import KeptFrames, render_missing
from manifests.rows import RowsOfViews

GPU = "clipshards-gpu"
"""Tag: a concurrency limit of this name on the server bounds the shards that GPUs decode for all runs together."""


@task(name="write shard", task_run_name="write {plan.split}/{plan.name}", cache_policy=NO_CACHE)
def write_shard(
    plan: ShardPlan,
    part: PartOnDisk,
    encoding: Encoding,
    rows: RowsOfViews,
    kept: KeptFrames,
    *,
    pool: WorkerPool,
    folder: Path,
    retry_rejected: bool,
    progress: Callable[[ClipOutcome, bool], None],
    stop: threading.Event,
) -> ShardInfo:
    """Decode the clips of one shard in the pool, copy the frames that are there already, and write it.

    Args:
        progress: called with what became of each clip, and whether it was decoded now.
    """
    if stop.is_set():
        raise StoppedError("stopped before this shard was begun")
    decoded: set[str] = set()

    def render(jobs: Iterable[ClipJob]) -> Iterator[ClipOutcome]:
        return render_missing(jobs, kept, decode)

    def decode(jobs: Iterable[ClipJob]) -> Iterator[ClipOutcome]:
        for outcome in pool.run(render_clip, jobs, lambda job, words: rejected_clip(job, "time-limit", words)):
            decoded.add(outcome.clip)
            progress(outcome, True)
            yield outcome

    of_views = rows.of(plan.all_views())
    info = make_shard(plan, part, encoding, of_views, render=render, folder=folder, retry_rejected=retry_rejected)
    for outcome in info.outcomes:
        if outcome.clip not in decoded:
            progress(outcome, False)
    return info


def shard_writer(decoder: str) -> Task[..., Any]:
    """`write_shard` for a decoder, with its slot."""
    return write_shard.with_options(tags=[GPU]) if decoder == "cuda" else write_shard
