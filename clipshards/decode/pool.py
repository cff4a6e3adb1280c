"""A pool of spawned processes: a job that hangs is killed, one that kills its worker costs itself alone.

Spawned, because forked children of a process with threads hang; one decoding thread each, because two
one-thread processes are as fast as one decoder with two threads.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, TimeoutError, as_completed
from types import TracebackType
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessPool

from clipshards.errors import IncompleteError
from clipshards.images import use_one_thread

CLIP_SECONDS = 600.0
"""Wall time that one clip may take; far above any clip that decodes."""

_JOBS_PER_WORKER = 500  # a worker is replaced after so many jobs: what a decoder leaks stays bounded

J = TypeVar("J")
R = TypeVar("R")


class WorkerPool:
    """Runs functions on jobs in `workers` processes; use it as a context manager, from any thread.

    Args:
        workers: number of processes.
        job_seconds: time after which a job is given up and its process killed.
    """

    def __init__(self, workers: int, *, job_seconds: float = CLIP_SECONDS) -> None:
        self.job_seconds = job_seconds
        self._pool: Any = ProcessPool(
            max_workers=workers,
            max_tasks=_JOBS_PER_WORKER,
            initializer=_start_worker,
            context=multiprocessing.get_context("spawn"),
        )

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._pool.close()
        else:
            self._pool.stop()
        self._pool.join()

    def stop(self) -> None:
        """Kill the workers now; jobs that wait are cancelled."""
        self._pool.stop()

    def run(self, function: Callable[[J], R], jobs: Iterable[J], given_up: Callable[[J, str], R]) -> Iterator[R]:
        """Yield the result of each job, in the order in which they end.

        Args:
            function: importable, called in a worker.
            given_up: makes the result of a job that hung or whose worker died, from the job and the words.

        Raises:
            IncompleteError: the pool was stopped.
        """
        jobs_of = {self._pool.schedule(function, args=(job,), timeout=self.job_seconds): job for job in jobs}
        for future in as_completed(jobs_of):
            try:
                yield future.result()
            except CancelledError:
                raise IncompleteError("stopped while clips were being decoded") from None
            except TimeoutError:
                yield given_up(jobs_of[future], f"no result after {self.job_seconds:g} s")
            except ProcessExpired as error:
                yield given_up(jobs_of[future], f"the decoder's process died (exit code {error.exitcode})")


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    use_one_thread()
