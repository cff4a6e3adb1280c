"""A refusal of the Hub has a word, for programs that read the errors of programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_faults import Fault, FaultyHub, write_files

from clipshards.errors import SourceError
from clipshards.hub.listing import list_source
from clipshards.hub.source import HubSource


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (403, "GatedRepo", "gated"),
        (401, "GatedRepo", "gated"),
        (401, "", "no-access"),
        (403, "", "no-access"),
        (404, "RepoNotFound", "source-missing"),
        (401, "RepoNotFound", "source-missing"),
        (404, "RevisionNotFound", "source-missing"),
        (404, "", "source-missing"),
        (410, "", ""),
    ],
)
def test_the_word_of_a_refusal(tmp_path: Path, status: int, code: str, reason: str) -> None:
    with FaultyHub(write_files(tmp_path, {"train/a.tar": b"a"})) as hub:
        hub.queue("api", "revision", Fault("status", status=status, headers={"X_Error_Code": code} if code else {}))
        with pytest.raises(SourceError) as caught:
            list_source(HubSource("demo/GRASP", endpoint=hub.endpoint))
    assert caught.value.reason == reason
