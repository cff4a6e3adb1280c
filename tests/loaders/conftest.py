"""The prepared demo, given as `--out`; these tests have torch, and clipshards from the checkout alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--out", type=Path, required=True, help="output of `clipshards demo`")


@pytest.fixture(scope="session")
def out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The output; at the end it has to be as it was."""
    folder: Path = request.config.getoption("--out")
    environment = pytest.MonkeyPatch()
    environment.setenv("HF_HUB_OFFLINE", "1")
    environment.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf")))  # before `datasets` is imported
    before = hashes(folder / "current")
    yield folder
    environment.undo()
    assert hashes(folder / "current") == before


def hashes(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
