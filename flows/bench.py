"""How fast this worker's machine decodes: to choose a machine, or to say how long a data set will take."""

from __future__ import annotations

import os
from typing import Any

from prefect import flow
from prefect.artifacts import create_table_artifact

from clipshards.decode.choice import choose_decoder
from clipshards.recipe import load_profile, load_recipe
from clipshards.speed import measure_speed


@flow(name="bench", flow_run_name="bench {profile}", persist_result=False)
def bench(profile: str = "grasp-train", decoder: str = "auto", workers: int | None = None) -> dict[str, Any]:
    """Decode a made clip (720p, H.264, 10 s) and store its frames, by the rules of a profile.

    Args:
        profile: sampling rules, a name or a TOML file.
        decoder: auto, cpu, cuda or ffmpeg; auto: cuda where a probe decode succeeds, else cpu.
        workers: decoder processes; None: one for each core.

    Returns:
        Rates, as in the table artifact `clipshards-bench`.
    """
    rules = load_profile(profile, load_recipe("grasp"))
    chosen = choose_decoder(decoder).decoder
    speed = measure_speed(rules, chosen, workers=workers or os.cpu_count() or 1)
    rates = {
        "decoder": chosen,
        "workers": speed.workers,
        "stored_frames_per_second": round(speed.stored_frames_per_second, 1),
        "video_seconds_per_second": round(speed.video_seconds_per_second, 1),
        "hours_for_1000_hours_of_video": round(1000 / speed.video_seconds_per_second, 1),
    }
    create_table_artifact(
        [{"what": name.replace("_", " "), "amount": amount} for name, amount in rates.items()],
        key="clipshards-bench", description=f"Decoding on {os.uname().nodename}, profile {profile}",
    )  # fmt: skip
    return rates
