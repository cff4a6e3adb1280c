"""The pinned requirements are those of pyproject.toml."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_locking_again_changes_nothing(tmp_path: Path) -> None:
    """uv keeps a pin that still fits; so a difference is a change of pyproject.toml that was not locked."""
    if not shutil.which("uv"):
        pytest.skip("uv is not here")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("requirements", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    done = subprocess.run(["scripts/lock"], cwd=tmp_path, capture_output=True, text=True, timeout=180)
    if "Failed to fetch" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    for path in (ROOT / "requirements").iterdir():
        assert (tmp_path / "requirements" / path.name).read_text() == path.read_text(), path.name
