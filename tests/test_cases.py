"""The cases built after public bug reports, each through the product; `scripts/cases` runs any folder of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.run_cases import run_case

FOLDER = Path(__file__).parent / "cases"


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_case(name: str) -> None:
    assert run_case(FOLDER / name) == []
