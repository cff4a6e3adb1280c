"""The main job on the demo data set, through Prefect, read back as a trainer would."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow.parquet as pq
import pytest

from clipshards.decode.choice import choose_decoder
from clipshards.errors import TooManyRejectsError
from clipshards.hub.server import HubServer
from clipshards.images import decode_image
from clipshards.sampling import GRASP_BENCH, count_frames, fit_to_grid, frame_indices, whole_clip_indices
from clipshards.tars import index_tar, read_member
from clipshards.verify import verify_snapshot

pytestmark = pytest.mark.flow


@pytest.fixture(scope="module")
def run(prefect_server: None, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs `prepare` into a new folder and returns the snapshot."""
    from flows.prepare import prepare

    def run(source: str | Path, **options: Any) -> Path:
        out = options.pop("out", None) or tmp_path_factory.mktemp("out")
        return Path(prepare(str(source), str(out), **{"decoder": "cpu", **options})["snapshot"])

    return run


@pytest.fixture(scope="module")
def snapshot(demo_snapshot: Path) -> Path:
    """The demo, prepared from its folder with two workers."""
    return demo_snapshot


@pytest.fixture(scope="module")
def lossless(demo_lossless: Path) -> Path:
    """The demo with frames as PNG."""
    return demo_lossless


def hashes(snapshot: Path) -> dict[str, str]:
    """sha256 of every shard, index and table; the card and dataset.json name the source."""
    paths = [path for folder in ("train", "test", "manifests") for path in (snapshot / folder).rglob("*.*")]
    paths = [path for path in paths if path.is_file()]
    return {str(p.relative_to(snapshot)): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


def table(snapshot: Path, name: str) -> list[dict[str, Any]]:
    return pq.read_table(snapshot / f"manifests/{name}.parquet").to_pylist()  # type: ignore[no-any-return]


def read_sample(snapshot: Path, row: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """JSON and frames of a sample by one pread, as a reader does."""
    with (snapshot / row["shard"]).open("rb") as file:
        block = os.pread(file.fileno(), row["length_bytes"], row["offset_bytes"])
    with tarfile.open(fileobj=io.BytesIO(block)) as tar:
        text, frames = (tar.extractfile(member).read() for member in tar.getmembers())  # type: ignore[union-attr]
    return json.loads(text), msgpack.unpackb(frames)


def test_one_worker_and_two_give_the_same_bytes(run: Any, demo_source: Path, snapshot: Path) -> None:
    other = run(demo_source, workers=1)
    assert hashes(other) == hashes(snapshot)
    assert len(hashes(snapshot)) > 20


def test_a_gated_hub_and_a_folder_give_the_same_bytes(
    run: Any, demo_source: Path, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "a-token-of-the-test")
    with HubServer(demo_source, token="a-token-of-the-test", gated=True) as hub:
        from_hub = run("hf://datasets/demo/GRASP", endpoint=hub.endpoint)
        commit = hub.commit
    assert hashes(from_hub) == hashes(snapshot)
    dataset = json.loads((from_hub / "dataset.json").read_text())
    assert dataset["commit"] == commit
    assert "a-token-of-the-test" not in (from_hub / "dataset.json").read_text()


def test_a_second_run_takes_everything_over(run: Any, demo_source: Path, snapshot: Path) -> None:
    out = snapshot.parents[1]
    shards = {path: path.stat().st_mtime_ns for path in (out / "work/shards").rglob("*.tar")}
    assert run(demo_source, out=out) == snapshot
    assert {path: path.stat().st_mtime_ns for path in (out / "work/shards").rglob("*.tar")} == shards


def test_all_rows_are_in_tables(snapshot: Path, demo_source: Path) -> None:
    def num_lines(name: str) -> int:
        return len((demo_source / name).read_text().splitlines())

    assert len(table(snapshot, "examples")) == num_lines("train/data_sft.jsonl") + num_lines("train/data_rl.jsonl")
    questions = table(snapshot, "questions")
    assert len(questions) == num_lines("train/annotations.jsonl") + num_lines("test/annotations.jsonl")
    assert len(table(snapshot, "bench")) >= 16
    assert table(snapshot, "quarantine") == []
    assert {row["category_canonical"] for row in table(snapshot, "bench")} == {
        *(f"{group}{n}" for group in "TG" for n in range(1, 7)),
        *(f"J{n}" for n in range(1, 5)),
    }
    assert {row["category"][0] for row in table(snapshot, "bench")} == {"T", "G", "C"}
    assert sum(row["question_id"] is None for row in table(snapshot, "examples")) == 2
    assert all(row["question_id"] for row in table(snapshot, "bench"))


def test_verify_finds_nothing_wrong(snapshot: Path) -> None:
    checked, problems = verify_snapshot(snapshot)
    assert problems == []
    assert checked["views"] == len(table(snapshot, "views"))


def test_each_view_names_the_bytes_it_came_from(snapshot: Path, demo_source: Path) -> None:
    hash_of_part = {row["part"]: row["sha256"] for row in table(snapshot, "parts")}
    for row in table(snapshot, "views"):
        text, _ = read_sample(snapshot, row)
        with (demo_source / row["part"]).open("rb") as file:
            clip = os.pread(file.fileno(), row["member_size_bytes"], row["member_offset_bytes"])
        assert hashlib.sha256(clip).hexdigest() == row["member_sha256"] == text["member_sha256"]
        assert text["part_sha256"] == hash_of_part[row["part"]]


def test_webdataset_reads_the_shards(snapshot: Path) -> None:
    import webdataset

    keys = set()
    for shard in sorted(snapshot.glob("train/*.tar")):
        for sample in webdataset.WebDataset(str(shard), shardshuffle=False).decode():
            assert isinstance(sample["json"]["clip"], str)
            assert isinstance(sample["mp"], list) and all(isinstance(frame, bytes) for frame in sample["mp"])
            assert len(sample["mp"]) == len(sample["json"]["frame_indices"])
            keys.add(sample["__key__"])
    assert keys == {row["view"] for row in table(snapshot, "views") if row["split"] == "train"}


def test_pandas_and_duckdb_read_the_tables(snapshot: Path) -> None:
    import duckdb
    import pandas

    path = snapshot / "manifests/examples.parquet"
    num_rows = pq.read_metadata(path).num_rows
    assert len(pandas.read_parquet(path)) == num_rows
    counted = duckdb.sql(f"select count(*), sum(len(gt_events)) from '{path}'").fetchall()
    assert counted[0][0] == num_rows and counted[0][1] > 0


def decord_frames(clip: bytes, indices: Any, height: int, width: int) -> Any:
    """What the trainer decodes today, resized as it does."""
    import cv2
    import decord

    reader = decord.VideoReader(io.BytesIO(clip), ctx=decord.cpu(0), num_threads=1)
    frames = reader.get_batch(list(indices)).asnumpy()
    assert frames.shape[1] >= height and frames.shape[2] >= width
    return np.stack([cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA) for frame in frames])


def test_stored_frames_are_those_of_the_trainer(lossless: Path, demo_source: Path) -> None:
    decord = pytest.importorskip("decord")
    parts: dict[str, dict[str, bytes]] = {}
    for part in demo_source.rglob("*.tar"):
        index = index_tar(part, part=part.name)
        parts[str(part.relative_to(demo_source))] = {m.name: read_member(part, m) for m in index.members}
    asked = table(lossless, "examples")
    asked += [{**row, "start_seconds": None} for row in table(lossless, "bench")]
    part_of = {row["view"]: row["part"] for row in table(lossless, "views")}
    assert {row["view"] for row in asked} == set(part_of)
    for row in {row["view"]: row for row in asked}.values():
        clip = parts[part_of[row["view"]]][row["clip"]]
        reader = decord.VideoReader(io.BytesIO(clip), ctx=decord.cpu(0), num_threads=1)
        if row["start_seconds"] is None:
            wanted = whole_clip_indices(len(reader), GRASP_BENCH).indices
        else:
            start, end = row["start_seconds"], row["end_seconds"]
            count = count_frames([end - start])[0]
            fps, length = reader.get_avg_fps(), len(reader)
            wanted = frame_indices(start, end, fps=fps, num_frames_in_clip=length, count=count).indices
        text, frames = read_sample(lossless, row)
        assert text["frame_indices"] == wanted.tolist(), row["clip"]
        height, width = fit_to_grid(*reader[0].shape[:2])
        assert (text["height"], text["width"]) == (height, width)
        stored = np.stack([decode_image(frame) for frame in frames])
        expected = decord_frames(clip, wanted, height, width)
        assert np.abs(stored.astype(int) - expected.astype(int)).max() == 0, row["clip"]


@pytest.fixture
def damaged_source(demo_source: Path, tmp_path: Path) -> Path:
    """The demo with one clip cut to pieces, one bad line and one clip that no part holds."""
    import shutil

    source = tmp_path / "source"
    shutil.copytree(demo_source, source)
    part = source / "train/videos/avsbench_part000.tar"
    member = index_tar(part, part="p").members[0]
    with part.open("r+b") as file:
        file.seek(member.offset_bytes)
        file.write(bytes(member.size_bytes))
    with tarfile.open(source / "train/videos/avsbench_part001.tar", "a") as tar:
        tar.addfile(tarfile.TarInfo("avsbench/video/._sidecar.mp4"))
    with (source / "train/annotations.jsonl").open("a") as file:
        file.write('{"id": "x", "video": "avsbench/video/gone.mp4", "question": "?", "answer": "y"}\n{"id": \n')
    return source


def test_what_cannot_be_used_is_named(run: Any, damaged_source: Path) -> None:
    snapshot = run(damaged_source, max_rejected=0.5)
    rows = table(snapshot, "quarantine")
    clip = next(row for row in rows if row["kind"] == "clip")
    assert clip["reason"] == "not-media" and clip["num_rows"] > 0 and clip["num_examples"] > 0
    lost = [row for row in rows if row["clip"] == clip["clip"] and row["kind"] in ("row", "example")]
    assert len(lost) == clip["num_rows"] + clip["num_examples"]
    assert any(row["reason"] == "clip-missing" and row["clip"] == "avsbench/video/gone.mp4" for row in rows)
    bad = next(row for row in rows if row["reason"] == "row-not-json")
    num_lines = len((damaged_source / "train/annotations.jsonl").read_text().splitlines())
    sidecars = {row["part"]: row["num_sidecars"] for row in table(snapshot, "parts") if row["num_sidecars"]}
    assert sidecars == {"train/videos/avsbench_part001.tar": 1}
    assert (bad["path"], bad["line"]) == ("train/annotations.jsonl", num_lines)
    assert verify_snapshot(snapshot)[1] == []


def test_too_many_rejects_publish_nothing(run: Any, damaged_source: Path, tmp_path: Path) -> None:
    with pytest.raises(TooManyRejectsError, match="clip-missing"):
        run(damaged_source, out=tmp_path / "out")
    assert not (tmp_path / "out" / "current").exists()


def test_a_selection_leaves_rows_out(run: Any, demo_source: Path) -> None:
    snapshot = run(demo_source, parts="avsbench*", limit=1)
    clips = [row for row in table(snapshot, "clips") if row["status"] == "sharded"]
    assert [row["part"].rsplit("/")[-1] for row in clips] == ["avsbench_part000.tar", "avsbench_part001.tar"]
    counts = json.loads((snapshot / "dataset.json").read_text())["counts"]
    assert counts["rows_left_out"] > 100 and counts["rejected_rows"] == 0
    assert table(snapshot, "quarantine") == []


def test_the_decoder_is_told_and_does_not_change_the_shards(
    prefect_server: None, snapshot: Path, demo_source: Path, tmp_path: Path
) -> None:
    from flows.console import Reporter, use
    from flows.prepare import prepare

    choice = choose_decoder("ffmpeg")
    said: list[str] = []

    class Listening(Reporter):
        def say(self, text: str) -> None:
            said.append(text)

    use(Listening())
    try:
        totals = prepare(str(demo_source), str(tmp_path), parts="avsbench*", decoder="ffmpeg")
    finally:
        use(None)
    by_program = Path(totals["snapshot"])
    assert json.loads((by_program / "dataset.json").read_text())["decoder"] == choice.decoder
    assert json.loads((snapshot / "dataset.json").read_text())["decoder"] == "cpu"
    decoders = {row["decoder"] for row in table(by_program, "clips") if row["status"] == "sharded"}
    assert decoders == {choice.decoder} and totals["clips_gone_to_cpu"] == {}
    assert said[0] == f"decoder: {choice.decoder} ({choice.why})"
    shards = {name: digest for name, digest in hashes(by_program).items() if name.endswith(".tar")}
    assert shards and shards.items() <= hashes(snapshot).items()


def test_extract_writes_the_plain_tree(run: Any, demo_source: Path) -> None:
    snapshot = run(demo_source, parts="avsbench_part000.tar", limit=1, extract=True)
    videos = snapshot.parents[1] / "videos"
    part = demo_source / "train/videos/avsbench_part000.tar"
    for member in index_tar(part, part="p").members:
        assert hashlib.sha256((videos / member.name).read_bytes()).hexdigest() == member.sha256
