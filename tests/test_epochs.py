"""Shards dealt to readers: as webdataset does it, and said when some get none."""

from __future__ import annotations

import pytest
import webdataset

from clipshards.epochs import plan_epoch
from clipshards.errors import UsageError

SHARDS = {f"s{number}.tar": 10 for number in range(8)}


@pytest.mark.parametrize(("ranks", "workers"), [(1, 1), (2, 2), (3, 2), (4, 4)])
def test_as_webdataset_deals_them(monkeypatch: pytest.MonkeyPatch, ranks: int, workers: int) -> None:
    plan = plan_epoch(SHARDS, ranks=ranks, workers=workers)
    for rank in range(ranks):
        for worker in range(workers):
            info = (rank, ranks, worker, workers)
            monkeypatch.setattr("webdataset.utils.pytorch_worker_info", lambda group=None, info=info: info)
            mine = webdataset.split_by_worker(webdataset.split_by_node(iter(SHARDS)))
            assert plan.shares[rank][worker] == tuple(mine)


def test_an_even_deal_has_no_problem() -> None:
    plan = plan_epoch(SHARDS, ranks=4, workers=0)
    assert (plan.samples_of_rank, plan.problems) == ((20,) * 4, ())


def test_readers_without_shards_and_uneven_ranks_are_named() -> None:
    plan = plan_epoch({"a": 5, "b": 7, "c": 9}, ranks=2, workers=2)
    assert [word for word, _ in plan.problems] == ["readers-without-shards", "uneven-ranks"]
    assert "1 of 4 readers get none of 3 shards" in plan.problems[0][1]
    assert plan.samples_of_rank == (14, 7)


def test_counts_out_of_range() -> None:
    with pytest.raises(UsageError, match="ranks"):
        plan_epoch(SHARDS, ranks=0, workers=1)
