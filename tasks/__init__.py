"""HOW OFTEN: Prefect tasks. A body calls one function of the core; retries and limits live here."""
