"""Whole shards in a row, split over ranks and workers, shuffled through a buffer; stops and goes on exactly.

The tables say which examples lie in which shard, so the order of an epoch is known before a byte is read:

    shards        shuffled by seed and epoch, dealt out to ranks, then to workers (`epochs.plan_epoch`)
    examples      in the order in which they lie there
    buffer        a place of it is drawn, given, and filled with the next example

Resuming is going on in that order: shards that hold nothing of the rest are not opened again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from webdataset import WebDataset
from webdataset.pytorch import IterableDataset
from webdataset.utils import pytorch_worker_info

from clipshards.epochs import plan_epoch
from clipshards.errors import UsageError
from clipshards.reader import Reader, Sample


def buffered_order(count: int, buffer: int, random: np.random.Generator) -> list[int]:
    """Order in which a shuffle buffer gives 0 … count − 1, of which at most `buffer` wait at a time."""
    held = list(range(min(buffer, count)))
    order = []
    for place, following in zip(random.integers(0, buffer, count), range(buffer, count), strict=False):
        order.append(held[place])
        held[place] = following
    return [*order, *random.permutation(held).tolist()]


class Stream(IterableDataset):  # type: ignore[misc]
    """The rows of a reader, read shard after shard; a data set for a DataLoader (torch's IterableDataset).

    Rank and worker come from the environment of torch; a reader without a shard gets no rows. Each iteration is
    the rest of one epoch. `state_dict` and `load_state_dict` are those that torchdata's StatefulDataLoader calls
    in each worker.

    Args:
        reader: of `clipshards.open`: its filter and its form of frames hold.
        buffer: rows that the shuffle draws from; 1 keeps the order of the shards.
        seed: decides the order together with the epoch; the same on all ranks.
        ranks: (rank, ranks), where the environment does not tell.

    Raises:
        UsageError: `buffer` or `ranks` is out of range.
    """

    def __init__(
        self, reader: Reader, *, buffer: int = 1000, seed: int = 0, ranks: tuple[int, int] | None = None
    ) -> None:
        if buffer < 1:
            raise UsageError(f"buffer ({buffer}) must be ≥ 1")
        if ranks is not None and not 0 <= ranks[0] < ranks[1]:
            raise UsageError(f"ranks ({ranks}) must be (rank, ranks) with 0 ≤ rank < ranks")
        self._reader, self._buffer, self._seed, self._ranks = reader, buffer, seed, ranks
        self._epoch = self._given = 0

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; the place within the present one is kept."""
        if epoch != self._epoch:
            self._epoch, self._given = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Where this rank and worker is."""
        return {"seed": self._seed, "buffer": self._buffer, "epoch": self._epoch, "given": self._given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken: by as many ranks and workers, on the same snapshot.

        Raises:
            UsageError: the state is that of another seed or buffer, whose order was another.
        """
        for name, mine in (("seed", self._seed), ("buffer", self._buffer)):
            if state[name] != mine:
                raise UsageError(f"{name} ({mine}) must be {state[name]}, that of the state")
        self._epoch, self._given = state["epoch"], state["given"]

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch; then the next epoch begins."""
        rank, ranks, worker, workers = pytorch_worker_info()
        rank, ranks = self._ranks or (rank, ranks)
        shards, places = self._share(rank, ranks, worker, workers)
        random = np.random.default_rng([self._seed, self._epoch, rank, worker])
        rest = buffered_order(len(places), self._buffer, random)[self._given :]
        for row in self._read(shards, [places[number] for number in rest]):
            self._given += 1
            yield row
        self.set_epoch(self._epoch + 1)

    def _share(self, rank: int, ranks: int, worker: int, workers: int) -> tuple[list[str], list[dict[str, Any]]]:
        """Shards of one worker, and the rows that lie in them, in that order."""
        places = self._reader.table.select(["shard", "offset_bytes", "view"]).to_pylist()
        rows = [{**place, "number": number} for number, place in enumerate(places) if place["view"] is not None]
        counts = Counter(row["shard"] for row in rows)
        shuffled = np.random.default_rng([self._seed, self._epoch]).permutation(sorted(counts)).tolist()
        dealt = plan_epoch({shard: counts[shard] for shard in shuffled}, ranks=ranks, workers=workers)
        mine = list(dealt.shares[rank][worker])
        turn = {shard: number for number, shard in enumerate(mine)}
        rows = [row for row in rows if row["shard"] in turn]
        return mine, sorted(rows, key=lambda row: (turn[row["shard"]], row["offset_bytes"], row["number"]))

    def _read(self, shards: list[str], places: list[dict[str, Any]]) -> Iterator[Any]:
        """The rows at these places, in their order, from samples read in the order of the shards."""
        left = Counter(place["view"] for place in places)
        wanted = {place["shard"] for place in places}
        samples = _samples([str(self._reader.snapshot / shard) for shard in shards if shard in wanted])
        waiting: dict[str, Sample] = {}
        for place in places:
            key = place["view"]
            while key not in waiting:
                sample = next(samples)
                if left[sample.key]:
                    waiting[sample.key] = sample
            left[key] -= 1
            yield self._reader.of_sample(place["number"], waiting[key] if left[key] else waiting.pop(key))


def _samples(shards: list[str]) -> Iterator[Sample]:
    """All samples of these shards in a row. webdataset gives the members undecoded."""
    if shards:
        for fields in WebDataset(shards, shardshuffle=False, nodesplitter=None, workersplitter=None).decode():
            yield Sample(fields["__key__"], fields["json"], fields["mp"])
