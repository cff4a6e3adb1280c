"""The pool of spawned workers: a job that hangs or dies costs itself, a stop ends all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clipshards.decode.pool import WorkerPool
from clipshards.errors import Rejected, StoppedError

Job = tuple[str, float]


def work(job: Job) -> str:
    """Runs in a worker."""
    word, seconds = job
    if word == "sleep":
        time.sleep(seconds)
    elif word == "exit":
        os._exit(3)
    elif word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "show":
        print(os.getpid(), flush=True)
        time.sleep(seconds)
    elif word == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
    elif word == "abort":
        os.abort()
    elif word == "raise":
        raise Rejected("decode-errors", f"at {seconds}")
    return f"{word} {seconds:g}"


def worker_of(job: int) -> tuple[int, int, bool]:
    """(number, process, whether Ctrl-C is ignored)."""
    time.sleep(0.05)
    return job, os.getpid(), signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def given_up(job: Job, words: str) -> str:
    return f"given up: {job[0]} {job[1]:g}: {words}"


def test_each_job_has_its_result() -> None:
    with WorkerPool(2) as pool:
        results = list(pool.run(worker_of, range(40), lambda job, words: (job, 0, False)))
        assert list(pool.run(work, [], given_up)) == []
    assert sorted(number for number, _, _ in results) == list(range(40))
    processes = {process for _, process, _ in results}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert all(ignores for _, _, ignores in results)


def test_job_that_hangs_is_given_up_alone() -> None:
    quick = [("quick", float(number)) for number in range(20)]
    with WorkerPool(2, job_seconds=1.0) as pool:
        started = time.monotonic()
        results = list(pool.run(work, [*quick[:5], ("sleep", 60), *quick[5:]], given_up))
        seconds = time.monotonic() - started
    assert sorted(results) == sorted(
        ["given up: sleep 60: no result after 1 s", *(f"quick {number}" for number in range(20))]
    )
    assert seconds < 20


@pytest.mark.parametrize(("word", "code"), [("exit", "3"), ("kill", "-9"), ("abort", "-6")])
def test_job_that_kills_its_worker_costs_itself(word: str, code: str) -> None:
    others = [("sleep", 0.1 + number / 1000) for number in range(12)]
    with WorkerPool(2) as pool:
        results = list(pool.run(work, [*others[:3], (word, 0), *others[3:], (word, 1)], given_up))
    lost = [result for result in results if result.startswith("given up")]
    assert len(lost) == 2
    assert all(result.startswith(f"given up: {word}") and f"(exit code {code})" in result for result in lost)
    assert sorted(set(results) - set(lost)) == [f"sleep {seconds:g}" for _, seconds in others]


def test_stop_ends_the_run() -> None:
    with WorkerPool(2) as pool:
        run = pool.run(work, [("quick", 0), *[("sleep", 60.0)] * 6], given_up)
        assert next(run) == "quick 0"
        timer = threading.Timer(0.3, pool.stop)
        timer.start()
        started = time.monotonic()
        with pytest.raises(StoppedError):
            list(run)
    assert time.monotonic() - started < 20


def test_run_after_stop() -> None:
    with WorkerPool(1) as pool:
        pool.stop()
        with pytest.raises(StoppedError):
            list(pool.run(work, [("quick", 0)], given_up))


def test_error_of_a_job_is_raised_and_leaving_does_not_wait() -> None:
    started = time.monotonic()
    with pytest.raises(Rejected) as caught:
        with WorkerPool(2) as pool:
            list(pool.run(work, [("sleep", 60), ("raise", 7), ("sleep", 60)], given_up))
    assert (caught.value.reason, caught.value.detail) == ("decode-errors", "at 7")
    assert time.monotonic() - started < 20


def test_workers_that_are_terminated_stop_the_run() -> None:
    """SIGTERM to the whole group, as Prefect, systemd and batch systems send it, says nothing about the clip."""
    with pytest.raises(StoppedError):
        with WorkerPool(2) as pool:
            list(pool.run(work, [("quick", 0), ("terminate", 0), *[("sleep", 0.2)] * 6], given_up))


def hold_workers() -> None:
    """Two workers that name themselves and are busy for long."""
    with WorkerPool(2) as pool:
        list(pool.run(work, [("show", 60.0)] * 2, given_up))


def test_workers_end_when_their_parent_is_killed() -> None:
    command = [sys.executable, "-c", "from tests.test_pool import hold_workers; hold_workers()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as parent:
        assert parent.stdout is not None
        workers = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
    _wait_until(lambda: not any(map(_runs, workers)))


def _runs(process: int) -> bool:
    """Whether a process is there and not dead, waiting to be buried."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes() != b""
    except FileNotFoundError:
        return False


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "it did not happen within 30 s"
        time.sleep(0.05)
