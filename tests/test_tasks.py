"""What a task tries again."""

from __future__ import annotations

import asyncio

import pytest
from prefect.states import Failed

from clipshards.errors import IncompleteError, NoSpaceError, Rejected, SourceError, StoppedError
from tasks.parts import _may_help, fetch_file, index_part, list_files
from tasks.rows import read_rows
from tasks.shards import shard_writer, write_shard
from tasks.snapshots import publish_snapshot


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (IncompleteError("the network is gone"), True),
        (StoppedError("stopped"), False),
        (SourceError("gated"), False),
        (NoSpaceError("full"), False),
        (Rejected("sha-mismatch"), False),
        (OSError("the disk is broken"), False),
    ],
)
def test_only_a_lost_network_is_tried_again(error: Exception, helps: bool) -> None:
    assert asyncio.run(_may_help(None, None, Failed(data=error))) is helps


def test_only_downloads_are_tried_again_and_wait_longer_each_time() -> None:
    assert fetch_file.retries == 3 and fetch_file.retry_delay_seconds == [5, 10, 20]
    assert fetch_file.retry_jitter_factor
    for verdict in (list_files, index_part, read_rows, write_shard, publish_snapshot):
        assert verdict.retries == 0


def test_slots() -> None:
    assert fetch_file.tags == {"clipshards-downloads"}
    assert shard_writer("cuda").tags == {"clipshards-gpu"}
    assert shard_writer("cpu").tags == set()
