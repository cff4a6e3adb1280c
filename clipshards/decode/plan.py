"""Which packets to decode for the wanted frames. Pure: a table and numbers in, numbers out.

    packets   K p b b p b b K p b b p ...      decode order, K = key
    wanted            ↑           ↑
    runs      ├───────┤     ├─────┤            from the key packet that a wanted one depends on, up to it

Inside a run packets that are not wanted are skipped by the decoder if no picture is predicted from them;
between runs nothing is fed and the decoder starts anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clipshards.decode.probe import PacketTable


@dataclass(frozen=True, slots=True)
class Run:
    """Packets `first` … `last` (both included, decode order) that are fed one after the other."""

    first: int
    last: int


def governing_key(table: PacketTable, packet: int) -> int | None:
    """Position of the key packet at which decoding must start to get the frame of `packet`.

    That is the last key packet before it, unless the frame is shown before that key frame: such leading
    pictures of an open GOP are predicted from the GOP before; those of the first GOP have nothing but its key
    frame, and the decoder knows whether that is enough. None when no key packet precedes it.
    """
    keys = np.flatnonzero(table.is_key[: packet + 1])
    if len(keys) == 0:
        return None
    earlier = keys[table.pts[keys] <= table.pts[packet]]
    return int(earlier[-1] if len(earlier) else keys[0])


def is_leading(table: PacketTable, packet: int) -> bool:
    """Whether the frame of `packet` is shown before the key frame that decoding starts at."""
    first = governing_key(table, packet)
    return first is not None and bool(table.pts[packet] < table.pts[first])


def plan_runs(table: PacketTable, packets: Sequence[int]) -> tuple[Run, ...]:
    """The fewest packets, as ascending runs, from which the frames of `packets` can be decoded.

    Packets that no key packet governs are left out.
    """
    runs: list[Run] = []
    for packet in sorted(packets):
        first = governing_key(table, packet)
        if first is None:
            continue
        if runs and first <= runs[-1].last + 1:
            runs[-1] = Run(runs[-1].first, packet)
        else:
            runs.append(Run(first, packet))
    return tuple(runs)


def is_damaged(table: PacketTable, packet: int, damage: Sequence[int]) -> bool:
    """Whether damage at one of the positions `damage` can have reached the frame of `packet`.

    Damage spreads by prediction up to the next key packet; leading pictures reach back over one.
    """
    first = governing_key(table, packet) or 0
    return any(first <= position <= packet for position in damage)
