"""The speed of this machine's decoder, as the deployment `bench` measures it."""

from __future__ import annotations

import pytest

from clipshards.recipe import load_profile, load_recipe
from clipshards.speed import CLIP_SECONDS, measure_speed


def test_speed_of_one_worker() -> None:
    speed = measure_speed(load_profile("grasp-train", load_recipe("grasp")), "cpu", workers=1, clips_per_worker=2)
    assert (speed.workers, speed.clips, speed.stored_frames) == (1, 2, 2 * 2 * CLIP_SECONDS)
    assert speed.video_seconds_per_second > 1


@pytest.mark.flow
def test_bench_leaves_a_table(prefect_server: None) -> None:
    from prefect.artifacts import Artifact

    from flows.bench import bench

    rates = bench(decoder="cpu", workers=1)
    table = Artifact.get("clipshards-bench")
    assert rates["stored_frames_per_second"] > 0
    assert table is not None and str(rates["stored_frames_per_second"]) in str(table.data)
