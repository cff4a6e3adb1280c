"""What can go wrong, and the exit code that says so.

ClipshardsError
├── UsageError          2    an argument, a path or a recipe is wrong
├── SourceError         3    the source is not reachable, or we are not allowed
├── IncompleteError     4    a part failed or the run stopped; what is done is kept
│   └── StoppedError         the run was stopped: nothing of it is tried again
├── TooManyRejectsError 5    more rows or clips are unusable than the run accepts
├── OutputInUseError    6    another run writes to this output
├── NoSpaceError        7    the disk is full, or would be
├── FallBack                 a decoder cannot give the frames of a clip: the CPU does
└── Rejected                 one part, member, clip or row cannot be used (a quarantine row, never a crash)
"""

from __future__ import annotations


class ClipshardsError(Exception):
    """Base of all errors that clipshards raises on purpose; its text is written for the user."""

    exit_code = 1


class UsageError(ClipshardsError):
    """An argument, a path or a recipe is wrong: nothing was started."""

    exit_code = 2


class SourceError(ClipshardsError):
    """The source is not reachable, does not exist, or does not let us in.

    Args:
        text: for the user.
        reason: a word of `schema.REASONS` when one fits.
    """

    exit_code = 3

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class IncompleteError(ClipshardsError):
    """A part failed or the run was stopped; what is done is kept, and the same command goes on."""

    exit_code = 4


class StoppedError(IncompleteError):
    """The run was told to stop: no fault, and no second try helps."""


class TooManyRejectsError(ClipshardsError):
    """More rows or clips were rejected than `max_rejected` allows: nothing was published."""

    exit_code = 5


class OutputInUseError(ClipshardsError):
    """Another live run holds the output folder."""

    exit_code = 6


class NoSpaceError(ClipshardsError):
    """The disk is full, or has less room than the next step needs."""

    exit_code = 7


class FallBack(ClipshardsError):
    """A decoder cannot give all the frames that were asked for, so it is not believed for any: the CPU does them.

    The text is "kind: detail", or the kind alone; clips are counted by kind.
    """


class Rejected(ClipshardsError):
    """One part, member, clip or row cannot be used.

    Args:
        reason: a word of `schema.REASONS`.
        detail: what was seen, for a person: which value broke which rule.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type[Rejected], tuple[str, str]]:
        return Rejected, (self.reason, self.detail)
