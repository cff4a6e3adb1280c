"""The reader with torch: a training loop that is killed goes on with the very next example, also with workers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import clipshards

ROOT = Path(__file__).parents[2]
NUM_EXAMPLES = 175


def test_tensors(out: Path) -> None:
    frames = clipshards.open(out, frames="tensor")[5].frames
    assert frames.dtype == torch.uint8 and np.array_equal(frames.numpy(), clipshards.open(out)[5].frames)


def start(out: Path, form: str, workers: int, state: Path) -> subprocess.Popen[str]:
    """The loop, as the leader of a process group: its workers are killed with it."""
    command = [sys.executable, "tests/loaders/training_loop.py", out, form, workers, 4, state]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*map(str, command)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def run_to_the_end(out: Path, form: str, workers: int, state: Path) -> list[str]:
    with start(out, form, workers, state) as process:
        assert process.stdout is not None and process.stdout.read()
    assert process.returncode == 0
    ids: list[str] = torch.load(state)["ids"]
    return ids


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", ["map", "stream"])
def test_killed_and_gone_on(form: str, workers: int, out: Path, tmp_path: Path) -> None:
    whole = run_to_the_end(out, form, workers, tmp_path / "whole")
    assert len(whole) == len({*whole}) == NUM_EXAMPLES
    draw = random.Random(f"{form} {workers}")
    for steps in (draw.randint(1, 8), draw.randint(9, 20)):
        with start(out, form, workers, tmp_path / "killed") as process:
            assert process.stdout is not None
            for _ in range(steps):
                assert process.stdout.readline()
            os.killpg(process.pid, signal.SIGKILL)
        before = torch.load(tmp_path / "killed")["ids"]
        assert before == whole[: len(before)] and len(before) < NUM_EXAMPLES
    assert run_to_the_end(out, form, workers, tmp_path / "killed") == whole
