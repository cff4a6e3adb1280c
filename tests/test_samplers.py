"""Order of training: the rule of the trainer, ranks that share one order, and going on from a state."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clipshards
from clipshards.errors import UsageError
from clipshards.samplers import LengthGroupedSampler, length_grouped

RANDOM = np.random.default_rng(1)
LENGTHS = RANDOM.integers(200, 30_000, 1777)
DIFFICULTIES = RANDOM.choice(["hard", "easy", "medium"], 1777).tolist()


def windows(order: Any, size: int) -> list[Any]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def test_windows_of_50_batches_are_sorted_longest_first() -> None:
    order = length_grouped(LENGTHS, 8, np.random.default_rng(0))
    assert sorted(order) == list(range(1777))
    cut = windows(order, 400)
    assert [len(window) for window in cut] == [400, 400, 400, 400, 177]
    for window in cut:
        assert (np.diff(LENGTHS[window]) <= 0).all()
    assert len({LENGTHS[window].max() for window in cut}) > 1 and LENGTHS[cut[0]].min() < LENGTHS[cut[1]].max()


def test_curriculum_is_easy_medium_hard() -> None:
    order = length_grouped(LENGTHS, 2, np.random.default_rng(0), DIFFICULTIES)
    assert sorted(order) == list(range(1777))
    words = [DIFFICULTIES[number] for number in order]
    start = 0
    for word in ("easy", "medium", "hard"):
        count = DIFFICULTIES.count(word)
        assert set(words[start : start + count]) == {word}
        for window in windows(order[start : start + count], 100):
            assert (np.diff(LENGTHS[window]) <= 0).all()
        start += count


def test_equal_lengths_are_shuffled() -> None:
    order = length_grouped([7] * 100, 1, np.random.default_rng(0)).tolist()
    assert order != sorted(order) and sorted(order) == list(range(100))


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_ranks_share_one_order(ranks: int) -> None:
    samplers = [LengthGroupedSampler(LENGTHS, 24, seed=3, rank=rank, ranks=ranks) for rank in range(ranks)]
    given = [list(sampler) for sampler in samplers]
    assert {len(numbers) for numbers in given} == {len(samplers[0])} == {-(-1777 // ranks)}
    (common,) = [list(LengthGroupedSampler(LENGTHS, 24, seed=3))]
    together = [number for step in zip(*given, strict=True) for number in step]
    assert together[:1777] == common
    assert together[1777:] == common[: len(together) - 1777]  # so that all ranks take as many steps


def test_seed_and_epoch_decide() -> None:
    sampler, same = (LengthGroupedSampler(LENGTHS, 8, seed=1) for _ in range(2))
    first, second = list(sampler), list(sampler)
    assert (list(same), list(same)) == (first, second) and first != second
    assert list(LengthGroupedSampler(LENGTHS, 8, seed=2)) != first
    same.set_epoch(0)
    assert list(same) == first


@pytest.mark.parametrize("stop", [0, 1, 500, 889])
def test_goes_on_exactly(stop: int) -> None:
    def make() -> LengthGroupedSampler:
        return LengthGroupedSampler(LENGTHS, 8, difficulties=DIFFICULTIES, seed=1, rank=1, ranks=2)

    whole = make()
    first, second = list(whole), list(whole)
    stopped = make()
    assert list(islice(iter(stopped), stop)) == first[:stop]
    fresh = make()
    fresh.load_state_dict(stopped.state_dict())
    assert list(fresh) == first[stop:] and list(fresh) == second
    if stop > 10:  # a loader had asked for ten more than the training used
        fresh.load_state_dict(stopped.state_dict(consumed=stop - 10))
        assert list(fresh) == first[stop - 10 :]


def test_wrong_arguments() -> None:
    with pytest.raises(UsageError, match=r"global_batch \(0\)"):
        LengthGroupedSampler(LENGTHS, 0)
    with pytest.raises(UsageError, match=r"rank \(2\)"):
        LengthGroupedSampler(LENGTHS, 8, rank=2, ranks=2)
    with pytest.raises(UsageError, match=r"difficulty \('odd'\) must be one of easy, medium, hard"):
        LengthGroupedSampler([1, 2], 8, difficulties=["easy", "odd"])
    with pytest.raises(UsageError, match="1 difficulties and 2 lengths"):
        LengthGroupedSampler([1, 2], 8, difficulties=["easy"])
    with pytest.raises(UsageError, match=r"seed \(0\) must be 4"):
        LengthGroupedSampler(LENGTHS, 8).load_state_dict(LengthGroupedSampler(LENGTHS, 8, seed=4).state_dict())


@pytest.mark.flow
def test_order_of_the_demo(demo_snapshot: Path) -> None:
    data = clipshards.open(demo_snapshot)
    order = list(LengthGroupedSampler(data.lengths(), 4, difficulties=data.difficulties))
    rows = [data.table.slice(number, 1).to_pylist()[0] for number in order]
    rank_of = {"easy": 0, "medium": 1, "hard": 2}
    keys = [(rank_of[row["difficulty"]], -row["video_tokens"]) for row in rows]
    assert keys == sorted(keys) and len(rows) == len(data)  # each difficulty fits one window
