"""The disk that a run takes while it works: bounded when asked, measured always."""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any

import ffmpeg
import imageio_ffmpeg
import pyarrow.parquet as pq
import pytest

from clipshards.disk import DiskBudget, DiskMeter, parse_bytes, working_bytes
from clipshards.errors import UsageError
from clipshards.hub.server import HubServer

NUM_PARTS = 10


@pytest.mark.parametrize(
    ("text", "num_bytes"), [("500GB", 500 * 10**9), ("1.5 TB", 15 * 10**11), ("20kB", 20_000), ("7", 7)]
)
def test_amounts(text: str, num_bytes: int) -> None:
    assert parse_bytes(text, "--disk-budget") == num_bytes


@pytest.mark.parametrize("text", ["", "0", "-5GB", "5 GiB", "much", "1e9", "5gb"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(UsageError, match="--disk-budget"):
        parse_bytes(text, "--disk-budget")


def test_what_fits_is_taken() -> None:
    budget = DiskBudget(100)
    assert budget.take("a", 60)
    assert not budget.take("b", 41)
    assert budget.take("b", 40)
    budget.give_back("a")
    assert budget.take("c", 60)
    assert DiskBudget(None).take("a", 1 << 60)


def test_work_is_measured_and_results_are_not(tmp_path: Path) -> None:
    sizes = {"downloads/train/a.tar": 5, "shards/train/x.frames/k.mp": 70, "shards/train/x.tar.tmp": 600}
    sizes |= {"unpacked/train/a.tar.gz.0123456789abcdef.unpacked": 1000}
    for name, num_bytes in {**sizes, "shards/train/x.tar": 8000, "parts/a.json": 90_000}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(num_bytes))
    assert working_bytes(tmp_path) == 1675
    with DiskMeter(tmp_path) as meter:
        deadline = time.monotonic() + 30
        while not meter.peak_bytes and time.monotonic() < deadline:
            time.sleep(0.01)
    assert meter.peak_bytes == 1675


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten parts of two clips each, noisy enough that clips are larger than the frames that are taken."""
    folder = tmp_path_factory.mktemp("source")
    (folder / "train/videos").mkdir(parents=True)
    rows = []
    for number in range(NUM_PARTS):
        with tarfile.open(folder / f"train/videos/p{number}.tar", "w") as tar:
            for letter in "ab":
                name = f"s/{number}{letter}.mp4"
                content = noise(tmp_path_factory.mktemp("clip") / "clip.mp4", seed=10 * number + ord(letter))
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
                rows.append({"id": name, "video": name, "question": "?", "answer": "yes", "format": "open"})
    (folder / "train/annotations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def noise(path: Path, seed: int) -> bytes:
    grey = ffmpeg.input("color=gray:s=320x192:r=25", f="lavfi", t=2)
    noisy = grey.filter("noise", alls=60, allf="t", all_seed=seed)
    output = noisy.output(str(path), vcodec="libx264", preset="ultrafast", crf=18, pix_fmt="yuv420p")
    output.global_args("-v", "error").run(cmd=imageio_ffmpeg.get_ffmpeg_exe())
    return path.read_bytes()


def run(hub: HubServer, out: Path, **options: Any) -> dict[str, Any]:
    from flows.prepare import prepare

    return prepare("hf://datasets/demo/GRASP", str(out), workers=2, endpoint=hub.endpoint, **options)  # type: ignore[no-any-return]


@pytest.mark.flow
def test_a_budget_of_two_parts_over_ten(prefect_server: None, source: Path, tmp_path: Path) -> None:
    part_bytes = max(path.stat().st_size for path in (source / "train/videos").iterdir())
    with HubServer(source) as hub:
        bounded = run(hub, tmp_path / "bounded", disk_budget=2 * part_bytes)
        free = run(hub, tmp_path / "free")
    assert part_bytes <= bounded["peak_disk_bytes"] <= 2 * part_bytes < free["peak_disk_bytes"]
    left = [path.name for path in (tmp_path / "bounded/work/downloads").rglob("*.tar*")]
    assert not left, "what was downloaded of a part is gone"
    bounded_shards, free_shards = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "current/train").glob("*.tar*")}
        for name in ("bounded", "free")
    )
    assert bounded_shards == free_shards
    assert pq.read_table(tmp_path / "bounded/current/manifests/views.parquet").num_rows == 2 * NUM_PARTS


@pytest.mark.flow
def test_a_budget_that_cannot_do_is_said_before_anything_is_fetched(
    prefect_server: None, source: Path, tmp_path: Path
) -> None:
    with HubServer(source) as hub, pytest.raises(UsageError, match="must be at least"):
        run(hub, tmp_path / "out", disk_budget=1000)
    assert not list((tmp_path / "out/work/downloads").rglob("*.tar*"))
