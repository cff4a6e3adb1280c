"""Whether the Prefect server that is set answers; the one check of `clipshards doctor` that knows Prefect."""

from __future__ import annotations

from clipshards.doctor import Check


def check_prefect() -> Check:
    """The server that PREFECT_API_URL names; without one each run starts its own."""
    import prefect
    from prefect.client.orchestration import get_client
    from prefect.settings import get_current_settings

    url = get_current_settings().api.url
    if not url:
        return Check("prefect", "ok", f"Prefect {prefect.__version__}; no server is set: each run starts its own")
    with get_client(sync_client=True) as client:
        trouble = client.api_healthcheck()
    if trouble:
        todo = "start it (prefect server start), or unset PREFECT_API_URL"
        return Check("prefect", "problem", f"{url} does not answer ({type(trouble).__name__})", todo)
    return Check("prefect", "ok", f"Prefect {prefect.__version__}; {url} answers")
