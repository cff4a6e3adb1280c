"""A pool of spawned processes: a job that hangs is killed, one that kills its worker costs itself alone.

Spawned, because forked children of a process with threads hang; one decoding thread each, because two
one-thread processes are as fast as one decoder with two threads.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, TimeoutError, wait
from types import TracebackType
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessPool

from clipshards.errors import StoppedError
from clipshards.images import use_one_thread

CLIP_SECONDS = 600.0
"""Wall time that one clip may take; far above any clip that decodes."""

_JOBS_PER_WORKER = 500  # a worker is replaced after so many jobs: what a decoder leaks stays bounded

_POLL_SECONDS = 0.5
_STOPPED = "stopped while clips were being decoded"
_TERMINATED = (signal.SIGTERM, -signal.SIGTERM)
"""Exit codes of a worker that got SIGTERM: with pebble's handler, and before it is set."""

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
        self._stopped = threading.Event()
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
            self.stop()
        self._pool.join()

    def stop(self) -> None:
        """Kill the workers now; who waits in `run` gets a StoppedError."""
        self._stopped.set()
        self._pool.stop()

    def run(self, function: Callable[[J], R], jobs: Iterable[J], given_up: Callable[[J, str], R]) -> Iterator[R]:
        """Yield the result of each job, in the order in which they end.

        Args:
            function: importable, called in a worker.
            given_up: makes the result of a job that hung or whose worker died, from the job and the words.

        Raises:
            StoppedError: the pool was stopped, or a worker got SIGTERM: a cancelled run's processes all do.
        """
        try:
            jobs_of = {self._schedule(function, job): job for job in jobs}
        except RuntimeError:  # the pool was stopped meanwhile and takes no more
            raise StoppedError(_STOPPED) from None
        waiting = set(jobs_of)
        while waiting:
            # Futures of a stopped pool may never end, so the flag is looked at as well.
            done, waiting = wait(waiting, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                yield self._outcome(future, jobs_of[future], given_up)
            if self._stopped.is_set():
                raise StoppedError(_STOPPED)

    def _schedule(self, function: Callable[[J], R], job: J) -> Future[R]:
        future: Future[R] = self._pool.schedule(function, args=(job,), timeout=self.job_seconds)
        return future

    def _outcome(self, future: Future[R], job: J, given_up: Callable[[J, str], R]) -> R:
        try:
            return future.result()
        except CancelledError:
            raise StoppedError(_STOPPED) from None
        except TimeoutError:
            return given_up(job, f"no result after {self.job_seconds:g} s")
        except ProcessExpired as error:
            if self._stopped.is_set() or error.exitcode in _TERMINATED:
                raise StoppedError(_STOPPED) from None
            return given_up(job, f"the decoder's process died (exit code {error.exitcode})")


def _start_worker() -> None:
    """In a new worker: one thread a decoder, and no life after the process that it works for."""
    use_one_thread()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # Nobody waits for the clip in hand any more; a thread, because PDEATHSIG goes by the thread that forked.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
