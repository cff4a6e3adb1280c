"""Which reader gets which shards in an epoch, as webdataset deals them out; and what that costs.

webdataset gives rank r of R every R-th shard, and worker w of W every W-th of those: with fewer shards than
readers some get none, and the loader of that rank ends at once or waits for ever; with uneven shares the
ranks end at different steps. Better said before the training than found in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clipshards.errors import UsageError


@dataclass(frozen=True)
class EpochPlan:
    """The shards of each reader: `shares[rank][worker]` is a list of shards."""

    shares: tuple[tuple[tuple[str, ...], ...], ...]
    samples_of_rank: tuple[int, ...]
    problems: tuple[tuple[str, str], ...]
    """(word, sentence): `readers-without-shards`, `uneven-ranks`."""


def plan_epoch(num_samples: Mapping[str, int], *, ranks: int, workers: int) -> EpochPlan:
    """Deal out shards.

    Args:
        num_samples: shard → samples in it, in the order in which they are dealt.
        ranks: processes that train.
        workers: loader processes of each; 0 is one reader, as in torch.

    Raises:
        UsageError: a count is out of range.
    """
    if ranks < 1 or workers < 0:
        raise UsageError(f"ranks ({ranks}) must be ≥ 1 and workers ({workers}) ≥ 0")
    shards, readers = list(num_samples), max(1, workers)
    of_rank = [shards[rank::ranks] for rank in range(ranks)]
    shares = tuple(tuple(tuple(mine[worker::readers]) for worker in range(readers)) for mine in of_rank)
    samples = tuple(sum(num_samples[shard] for shard in mine) for mine in of_rank)
    problems = []
    if idle := sum(not share for mine in shares for share in mine):
        problems.append(
            (
                "readers-without-shards",
                f"{idle} of {ranks * readers} readers get none of {len(shards)} shards: "
                f"use at most {max(1, len(shards) // ranks)} workers, or make more shards",
            )
        )
    if min(samples) < max(samples):
        problems.append(
            (
                "uneven-ranks",
                f"ranks get {min(samples):,} to {max(samples):,} samples: end every rank after the least, "
                "or let the reader resample",
            )
        )
    return EpochPlan(shares, samples, tuple(problems))
