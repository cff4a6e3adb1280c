"""Shared by all tests: the demo data set, built once, and one Prefect server for the tests that need it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before anything imports Prefect, which reads its settings then.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `needs_gpu` are skipped without one, or fail when FAIL_WITHOUT_GPU=1 says that there is one."""
    if item.get_closest_marker("needs_gpu"):
        from clipshards.decode.choice import choose_decoder

        if (choice := choose_decoder("auto")).decoder != "cuda":
            (pytest.fail if os.environ.get("FAIL_WITHOUT_GPU") == "1" else pytest.skip)(choice.why)


@pytest.fixture(scope="session")
def demo_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo data set as a folder of the Hub's shape."""
    from clipshards.demo import build_demo

    folder = tmp_path_factory.mktemp("demo") / "source"
    build_demo(folder, workers=2)
    return folder


@pytest.fixture(scope="session")
def talks_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The other demo data set: compressed parts, conversations about whole clips."""
    from clipshards.demo.conversations import build_conversations

    folder = tmp_path_factory.mktemp("talks") / "source"
    build_conversations(folder, workers=2)
    return folder


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """A Prefect server with a database of its own."""
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture(scope="session")
def demo_snapshot(prefect_server: None, demo_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo, prepared as users do: JPEG q95."""
    return _prepare_demo(demo_source, tmp_path_factory.mktemp("demo-q95"), quality=95)


@pytest.fixture(scope="session")
def demo_lossless(prefect_server: None, demo_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo with frames as PNG."""
    return _prepare_demo(demo_source, tmp_path_factory.mktemp("demo-png"), quality=None)


def _prepare_demo(source: Path, out: Path, quality: int | None) -> Path:
    from flows.prepare import prepare

    return Path(prepare(str(source), str(out), decoder="cpu", workers=2, quality=quality)["snapshot"])
