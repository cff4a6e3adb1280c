"""Shards: one task each. Clips are no tasks: 46,000 of them would be a gigabyte of Prefect's database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from clipshards.decode.pool import WorkerPool
from clipshards.errors import IncompleteError
from clipshards.plan import ShardPlan
from clipshards.rendering import ClipJob, ClipOutcome, rejected_clip, render_clip
from clipshards.shards import Encoding, PartOnDisk, ShardInfo, make_shard


@task(name="write shard", task_run_name="write {plan.split}/{plan.name}", cache_policy=NO_CACHE)
def write_shard(
    plan: ShardPlan,
    part: PartOnDisk,
    encoding: Encoding,
    rows: Mapping[str, Mapping[str, Any]],
    *,
    pool: WorkerPool,
    folder: Path,
    progress: Callable[[ClipOutcome], None],
    stop: threading.Event,
) -> ShardInfo:
    """Decode the clips of one shard in the pool and write it."""
    if stop.is_set():
        raise IncompleteError("stopped before this shard was begun")

    def render(jobs: Iterable[ClipJob]) -> Iterator[ClipOutcome]:
        for outcome in pool.run(render_clip, jobs, lambda job, words: rejected_clip(job, "time-limit", words)):
            progress(outcome)
            yield outcome

    return make_shard(plan, part, encoding, rows, render=render, folder=folder)
