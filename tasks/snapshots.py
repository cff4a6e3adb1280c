"""Tables and the snapshot: what came out, published last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clipshards.collector import paused_collector
from clipshards.schema import Reject
from manifests.snapshot import Provenance, RunRecord, publish
from manifests.tables import Manifest, SplitResult, build_manifest


@task(name="join rows and clips", cache_policy=NO_CACHE)
def join_rows(results: Sequence[SplitResult], rejects: Sequence[Reject]) -> Manifest:
    """All tables."""
    with paused_collector():
        return build_manifest(results, rejects)


@task(name="publish snapshot", cache_policy=NO_CACHE)
def publish_snapshot(
    out: Path,
    manifest: Manifest,
    results: Sequence[SplitResult],
    shard_folder: Path,
    provenance: Provenance,
    run: RunRecord,
    say: Callable[[str], None],
) -> Path:
    """The folder of the snapshot that `current` now names."""
    shards = [info for result in results for info in result.shards]
    return publish(out, manifest, shards, shard_folder, provenance, run=run, say=say)
