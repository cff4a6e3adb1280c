"""How long the rest of some work takes, judged by the work that is done. No clock of its own."""

from __future__ import annotations


class Pace:
    """Units of work a second.

    A weighted mean: a piece of work, and the time that it took, weighs as much as there was done when it came. So
    the start of the workers fades as the work goes on, while noise is still averaged over three quarters of all the
    work. The plain mean would carry a slow start to the end, a moving average of the last minutes would be as noisy
    at the end as at the start, and has a length to choose: here ten clips and ten million are judged alike.

    Time in which there was nothing to do, such as that of waiting for a part, is no time of the work.
    """

    def __init__(self, now: float) -> None:
        self._since = now
        self._done = 0.0
        self._work = 0.0
        self._seconds = 0.0

    def idle_until(self, now: float) -> None:
        """Nothing was there to be done since the last work."""
        self._since = now

    def add(self, amount: float, now: float) -> None:
        """Some work is done, `amount` > 0; it took the time since the last."""
        share = self._done / (self._done + amount)
        self._done += amount
        self._work = share * self._work + amount
        self._seconds = share * self._seconds + max(0.0, now - self._since)
        self._since = now

    def seconds_for(self, amount: float) -> float | None:
        """How long more work takes; None: nothing is done that would tell."""
        if amount <= 0:
            return 0.0
        return amount * self._seconds / self._work if self._seconds > 0 else None
