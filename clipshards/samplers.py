"""In which order the GRASP trainer takes its examples: windows of like length, easy before hard.

The rule is the trainer's (`LengthGroupedSampler`); the shuffle is numpy's, so an order is not that of a given
run of the trainer, but another one by the same rule. Equal arguments give equal orders on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clipshards.errors import UsageError

WINDOW_BATCHES = 50
"""Global batches in a window that is sorted by length."""

CURRICULUM = ("easy", "medium", "hard")


def length_grouped(
    lengths: Sequence[int] | npt.NDArray[np.int64],
    global_batch: int,
    random: np.random.Generator,
    difficulties: Sequence[str] | None = None,
) -> npt.NDArray[np.int64]:
    """An order of all examples: shuffled, then windows of 50 global batches sorted, longest first.

    Args:
        lengths: tokens of each example.
        global_batch: examples of one step on all ranks together.
        difficulties: of each example; given, all easy ones come first, then medium, then hard, each grouped
            for itself.

    Raises:
        UsageError: an argument is out of range, or a difficulty is none of the three.
    """
    if global_batch < 1:
        raise UsageError(f"global_batch ({global_batch}) must be ≥ 1")
    tokens = np.asarray(lengths, np.int64)
    if difficulties is None:
        return _grouped(np.arange(len(tokens)), tokens, global_batch, random)
    words = np.asarray(difficulties, dtype=object)
    if len(words) != len(tokens):
        raise UsageError(f"{len(words)} difficulties and {len(tokens)} lengths must be of the same examples")
    if unknown := set(difficulties) - set(CURRICULUM):
        raise UsageError(
            f"difficulty ({min(map(str, unknown))!r}) must be one of {', '.join(CURRICULUM)}: use `where`"
        )
    stages = [np.flatnonzero(words == word) for word in CURRICULUM]
    return np.concatenate([_grouped(stage, tokens, global_batch, random) for stage in stages])


def _grouped(
    numbers: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64], global_batch: int, random: np.random.Generator
) -> npt.NDArray[np.int64]:
    shuffled = random.permutation(numbers)
    window = np.arange(len(shuffled)) // (WINDOW_BATCHES * global_batch)
    # lexsort sorts by its last key first and keeps the shuffled order of equals.
    return shuffled[np.lexsort((-tokens[shuffled], window))]


class LengthGroupedSampler:
    """Numbers of examples for one rank, epoch by epoch; a `sampler` for a DataLoader.

    Rank r takes places r, r + ranks, … of the common order, so examples of one step have like lengths on all
    ranks. What does not fill a round of all ranks is taken from the start of the order again, as torch's
    `DistributedSampler` does.

    Args:
        lengths, global_batch, difficulties: as for `length_grouped`; `difficulties` switches the curriculum on.
        seed: together with the epoch it decides the order; the same on all ranks.
    """

    def __init__(
        self,
        lengths: Sequence[int] | npt.NDArray[np.int64],
        global_batch: int,
        *,
        difficulties: Sequence[str] | None = None,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        if not 0 <= rank < ranks:
            raise UsageError(f"rank ({rank}) must be ≥ 0 and < ranks ({ranks})")
        self._lengths, self._global_batch, self._difficulties = lengths, global_batch, difficulties
        self._seed, self._rank, self._ranks = seed, rank, ranks
        self._epoch = self._given = 0
        self._order()  # wrong arguments are answered here

    def __len__(self) -> int:
        """Examples of one epoch on this rank."""
        return -(-len(self._lengths) // self._ranks)

    def __iter__(self) -> Iterator[int]:
        """The rest of the epoch; then the next epoch begins."""
        mine = self._order()[self._rank :: self._ranks].tolist()
        for number in mine[self._given :]:
            self._given += 1
            yield number
        self.set_epoch(self._epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch; the place within the present one is kept."""
        if epoch != self._epoch:
            self._epoch, self._given = epoch, 0

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Where this rank is.

        Args:
            consumed: examples of this epoch that the training has used; a loader with workers asks the sampler
                for more ahead. None: as many as were given.
        """
        return {"seed": self._seed, "epoch": self._epoch, "given": self._given if consumed is None else consumed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Raises:
            UsageError: the state is that of another seed, whose order was another.
        """
        if state["seed"] != self._seed:
            raise UsageError(f"seed ({self._seed}) must be {state['seed']}, that of the state")
        self._epoch, self._given = state["epoch"], state["given"]

    def _order(self) -> npt.NDArray[np.int64]:
        random = np.random.default_rng([self._seed, self._epoch])
        order = length_grouped(self._lengths, self._global_batch, random, self._difficulties)
        return np.resize(order, len(self) * self._ranks)
