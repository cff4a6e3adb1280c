"""scripts/gpu-check, as far as a machine without a GPU goes: the wheels are enough, and the lack of one is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    command = ["scripts/gpu-check", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)


def test_the_wheels_are_enough_to_begin(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    fetched = run("--wheels", str(wheels))
    if fetched.returncode and "No matching distribution" in fetched.stderr:
        pytest.skip("no package index can be reached")
    assert fetched.returncode == 0, fetched.stderr
    from clipshards.decode.choice import choose_decoder

    checked = run(str(wheels))
    if choose_decoder("auto").decoder == "cuda":
        assert checked.returncode == 0, checked.stdout + checked.stderr
    else:
        assert checked.returncode == 1
        assert "Failed: no GPU" in checked.stdout
        assert "gpu-check: --decoder cuda: a probe decode on the GPU failed" in checked.stderr
