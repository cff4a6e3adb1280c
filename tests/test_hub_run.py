"""The program against a Hub that misbehaves: killed in the middle of a download, and wrong bytes for good."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hub_faults import Fault, FaultyHub
from test_hub_fetch import wait_until

pytestmark = pytest.mark.flow

CLIPSHARDS = Path(sys.executable).with_name("clipshards")
TOKEN = "hf_secret_of_the_run"
PART, OTHER = (f"train/videos/avsbench_part00{n}.tar" for n in (0, 1))
CUT = 50_000


@pytest.fixture
def hub(demo_source: Path) -> Iterator[FaultyHub]:
    with FaultyHub(demo_source, token=TOKEN, gated=True) as server:
        yield server


def start(hub: FaultyHub, folder: Path, *options: str) -> subprocess.Popen[str]:
    """`clipshards prepare` of a clip of each part, all that it writes in `folder`."""
    command = [str(CLIPSHARDS), "prepare", "hf://datasets/demo/GRASP", str(folder / "out")]
    environment = {"HF_ENDPOINT": hub.endpoint, "HF_TOKEN": TOKEN, "PREFECT_HOME": str(folder / "prefect")}
    return subprocess.Popen(
        [*command, "--parts", "avsbench*", "--limit", "1", "--workers", "1", *options],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def command_lines() -> str:
    """What `ps` shows to everybody."""
    texts = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            texts.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return "\n".join(texts)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
@pytest.mark.parametrize("transport", ["http", "xet"])
def test_killed_in_a_download(hub: FaultyHub, tmp_path: Path, transport: str) -> None:
    hub.queue("cdn", PART, Fault("stall", CUT, seconds=120))
    killed = start(hub, tmp_path, "--transport", transport)
    work = tmp_path / "out/work"
    try:
        if transport == "http":
            wait_until(lambda: any(p.stat().st_size == CUT for p in work.glob(f"downloads/{PART}.*.part")), 120)
        else:
            wait_until(lambda: bool(hub.requests("cdn", PART)), 120)
        assert "avsbench*" in command_lines()
        assert TOKEN not in command_lines()
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        said = "".join(killed.communicate())
    assert bool(list(work.glob("library/*"))) == (transport == "xet")
    hub.queue("hub", PART, Fault("status", status=429, headers={"Retry_After": "1"}))

    second = start(hub, tmp_path, "--transport", transport)
    stdout, stderr = second.communicate(timeout=240)
    assert second.returncode == 0, stderr
    assert list(work.glob("library/*")) == []
    assert hub.ranges("cdn", PART) == [None, f"bytes={CUT}-" if transport == "http" else None]
    dataset = json.loads((tmp_path / "out/current/dataset.json").read_text())
    assert dataset["options"]["transport"] == transport
    if transport == "http":
        assert "answered 429" in stderr and "as told" in stderr

    holders = [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert holders == []
    assert TOKEN not in said + stdout + stderr
    assert {request.authorization for request in hub.log if request.where == "cdn"} == {None}
    assert {request.authorization for request in hub.log if request.where == "hub"} == {f"Bearer {TOKEN}"}


def test_a_part_with_wrong_bytes_is_not_published(hub: FaultyHub, tmp_path: Path) -> None:
    hub.queue("cdn", OTHER, *[Fault("corrupt")] * 2)
    run = start(hub, tmp_path, "--max-rejected", "1")
    _, stderr = run.communicate(timeout=240)
    assert run.returncode == 4, stderr
    assert f"{OTHER}: sha-mismatch" in stderr and "Traceback" not in stderr
    assert hub.ranges("cdn", OTHER) == [None, None]
    current = tmp_path / "out/current"
    names = ("parts", "views", "quarantine")
    tables = {name: pq.read_table(current / f"manifests/{name}.parquet") for name in names}
    assert set(tables["parts"]["part"].to_pylist()) == set(tables["views"]["part"].to_pylist()) == {PART}
    rejects = tables["quarantine"].to_pylist()
    assert [(row["path"], row["reason"]) for row in rejects if row["kind"] == "part"] == [(OTHER, "sha-mismatch")]
