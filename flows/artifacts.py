"""What a run in a worker leaves on the Prefect server: bars that move, messages, the totals, links."""

from __future__ import annotations

import threading
from contextvars import copy_context
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import get_run_logger, runtime
from prefect.artifacts import (
    create_image_artifact,
    create_link_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from clipshards.hub.source import FolderSource, HubSource
from clipshards.output import read_dataset
from clipshards.report.explorer import Explorer
from flows.console import Reporter, current

PUSH_SECONDS = 5.0
"""Time between two updates of the bars: a request a stage."""


def reporter_of_run() -> Reporter:
    """Of a deployment's run the artifacts; else what the command line chose."""
    return ArtifactReporter() if runtime.deployment.id else current()


class ArtifactReporter(Reporter):
    """A progress artifact a stage, sent by a thread of its own: no decoder waits for the server. Made in a flow."""

    def __init__(self) -> None:
        super().__init__()
        self._log = get_run_logger()
        self._bars: dict[str, UUID] = {}
        self._shown: dict[str, str] = {}
        self._finished = threading.Event()
        # The copy of the context holds the run that the artifacts belong to.
        self._sender = threading.Thread(target=copy_context().run, args=(self._send_until_finished,), daemon=True)
        self._sender.start()

    def say(self, text: str) -> None:
        self._log.info(text)

    def finish(self) -> None:
        self._finished.set()
        self._sender.join()

    def published(self, totals: dict[str, Any], source: HubSource | FolderSource) -> None:
        snapshot = Path(totals["snapshot"])
        create_table_artifact(_rows(totals), key="clipshards-totals", description=f"Totals of {snapshot}")
        create_link_artifact(snapshot.as_uri(), str(snapshot), key="clipshards-snapshot", description="Published")
        if page := totals.get("page"):
            create_link_artifact(Path(page).as_uri(), page, key="clipshards-page", description="To look at")
        if sheet := Explorer(snapshot).contact_sheet():
            create_image_artifact(sheet, key="clipshards-frames", description="Stored frames")
        if isinstance(source, HubSource):
            commit = read_dataset(snapshot)["commit"]
            page = f"{source.base_url}/datasets/{source.repo}/tree/{commit}"
            create_link_artifact(page, f"{source.repo} at {commit}", key="clipshards-source", description="Made of")

    def _send_until_finished(self) -> None:
        while not self._finished.wait(PUSH_SECONDS):
            self._send()
        self._send()

    def _send(self) -> None:
        with self._lock:
            lines = {stage.name: (self.line(stage), stage.share) for stage in self.stages.values()}
            if lines:
                run = self.run()
                lines["run"] = run.line(), run.share
        for name, (line, share) in lines.items():
            if self._shown.get(name) == line:
                continue
            try:
                self._show_bar(name, f"{name}: {line}", 100 * share)
            except Exception as error:  # noqa: BLE001  a server that is away does not cost the run
                self._log.warning(f"progress of {name} could not be sent ({type(error).__name__}): the run goes on")
                return
            self._shown[name] = line

    def _show_bar(self, name: str, line: str, percent: float) -> None:
        if name in self._bars:
            update_progress_artifact(self._bars[name], percent, line)
        else:
            self._bars[name] = create_progress_artifact(percent, key=f"clipshards-{name}", description=line)


def _rows(totals: dict[str, Any]) -> list[dict[str, Any]]:
    """A row a number; numbers of a kind, such as rejects by reason, are named after it."""
    rows = []
    for name, value in totals.items():
        lines = enumerate(value, 1) if isinstance(value, list) else [("", value)]
        inner = value.items() if isinstance(value, dict) else lines
        rows += [{"what": f"{name} {key}".strip().replace("_", " "), "amount": amount} for key, amount in inner]
    return rows
