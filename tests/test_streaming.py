"""The stream over whole shards: all rows once, over ranks and workers, and exactly on from a state."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import webdataset

import clipshards
from clipshards import streaming
from clipshards.errors import UsageError
from clipshards.streaming import Stream, buffered_order


@pytest.fixture(scope="module")
def data(demo_snapshot: Path) -> Any:
    return clipshards.open(demo_snapshot, frames="jpeg")


def ids(rows: Iterator[Any]) -> list[str]:
    return [row.id for row in rows]


@pytest.mark.parametrize(("count", "buffer"), [(0, 5), (1, 5), (5, 5), (100, 1), (100, 7), (7, 100)])
def test_buffer_gives_each_once_and_holds_few(count: int, buffer: int) -> None:
    order = buffered_order(count, buffer, np.random.default_rng(0))
    assert sorted(order) == list(range(count))
    for given, number in enumerate(order):
        assert number < given + buffer  # it had been read
    if buffer == 1:
        assert order == list(range(count))
    if min(buffer, count) > 5:
        assert order != sorted(order)


@pytest.mark.flow
def test_all_rows_once_and_as_the_reader_gives_them(data: Any) -> None:
    rows = list(Stream(data, buffer=20))
    assert sorted(row.id for row in rows) == sorted(data.table.column("id").to_pylist())
    assert [row.id for row in rows] != data.table.column("id").to_pylist()
    for row in rows[::10]:
        again = data[row.id]
        assert (row.frames, row.target, row.gt_events) == (again.frames, again.target, again.gt_events)


@pytest.mark.flow
@pytest.mark.parametrize(("ranks", "workers"), [(1, 3), (2, 1), (3, 2), (2, 40)])
def test_ranks_and_workers_share_the_rows(
    ranks: int, workers: int, data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when there are more workers than shards."""
    found = Counter[str]()
    for rank in range(ranks):
        for worker in range(workers):
            for name, value in (
                ("RANK", rank),
                ("WORLD_SIZE", ranks),
                ("WORKER", worker),
                ("NUM_WORKERS", workers),
            ):
                monkeypatch.setenv(name, str(value))
            found.update(ids(iter(pickle.loads(pickle.dumps(Stream(data, buffer=10))))))
    assert found == Counter(data.table.column("id").to_pylist())


@pytest.mark.flow
@pytest.mark.parametrize("stop", [0, 1, 60, 174, 175])
def test_goes_on_exactly(stop: int, data: Any) -> None:
    whole = Stream(data, buffer=30, seed=5)
    first_epoch, second_epoch = ids(iter(whole)), ids(iter(whole))
    assert first_epoch != second_epoch and sorted(first_epoch) == sorted(second_epoch)
    stopped = Stream(data, buffer=30, seed=5)
    taken = ids(islice(iter(stopped), stop))
    fresh = Stream(data, buffer=30, seed=5)
    fresh.load_state_dict(stopped.state_dict())
    assert taken + ids(iter(fresh)) == first_epoch
    assert ids(iter(fresh)) == second_epoch


@pytest.mark.flow
def test_shards_that_are_done_are_not_read_again(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def watched(shards: list[str], **options: Any) -> Any:
        opened.extend(shards)
        return webdataset.WebDataset(shards, **options)

    monkeypatch.setattr(streaming, "WebDataset", watched)
    stream = Stream(data, buffer=1)
    stream.load_state_dict({**stream.state_dict(), "given": len(data) - 1})
    assert len(ids(iter(stream))) == len(opened) == 1


@pytest.mark.flow
def test_filter_and_bench(demo_snapshot: Path) -> None:
    easy = clipshards.open(demo_snapshot, where=pc.field("difficulty") == "easy", frames="jpeg")
    assert sorted(ids(iter(Stream(easy)))) == sorted(easy.table.column("id").to_pylist())
    bench = clipshards.open(demo_snapshot, split="bench", frames="jpeg")
    assert sorted(ids(iter(Stream(bench)))) == sorted(bench.table.column("id").to_pylist())


@pytest.mark.flow
def test_wrong_arguments(data: Any) -> None:
    with pytest.raises(UsageError, match=r"buffer \(0\) must be ≥ 1"):
        Stream(data, buffer=0)
    with pytest.raises(UsageError, match=r"ranks \(\(2, 2\)\)"):
        Stream(data, ranks=(2, 2))
    stream = Stream(data)
    with pytest.raises(UsageError, match=r"seed \(0\) must be 3"):
        stream.load_state_dict(Stream(data, seed=3).state_dict())
