"""The scheduled job: bring an output to the present state of its source. Same commit: one request, no work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger

from flows.changes import plan_refresh
from flows.prepare import prepare


@flow(name="refresh", flow_run_name="refresh {out}", persist_result=False)
def refresh(out: str, workers: int | None = None, endpoint: str | None = None) -> dict[str, Any]:
    """Prepare again what changed since the current snapshot, with the options that it was made with.

    Args:
        out: output folder with a finished snapshot.
        workers: decoder processes; None: one for each core.
        endpoint: URL of the Hub; None: as huggingface_hub is configured.

    Returns:
        Totals as of `prepare`; {"snapshot", "changed": "nothing"} when the snapshot is current.
    """
    plan = plan_refresh(Path(out).absolute(), endpoint=endpoint)
    if plan.is_current:
        get_run_logger().info("%s is the present state of %s: nothing to do", plan.snapshot, plan.source)
        return {"snapshot": str(plan.snapshot), "changed": "nothing"}
    totals: dict[str, Any] = prepare(plan.source, out, workers=workers, endpoint=endpoint, **plan.options)
    return totals
