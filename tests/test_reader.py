"""The reader on the prepared demo, against decord and cv2 by the rules of the trainer."""

from __future__ import annotations

import io
import json
import multiprocessing
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from test_cli import call

import clipshards
from clipshards import reader
from clipshards.errors import ClipshardsError, UsageError
from clipshards.examples import ExampleBuilder
from clipshards.tars import index_tar, read_member

pytestmark = pytest.mark.flow


@pytest.fixture(scope="module")
def data(demo_snapshot: Path) -> reader.Examples:
    return clipshards.open(demo_snapshot)


def lines_of(source: Path, stage: str) -> list[list[dict[str, Any]]]:
    return [json.loads(line) for line in (source / f"train/data_{stage}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def clip_bytes(demo_source: Path) -> dict[str, bytes]:
    """Clips of both splits by the path that rows use."""
    found = {}
    for part in demo_source.rglob("*.tar"):
        for member in index_tar(part, part=part.name).members:
            found[member.name] = read_member(part, member)
    return found


# What the trainer computes, written a second time, straight from guide/trainer-contract.md.


def counts_of_trainer(durations: list[float]) -> list[int]:
    low, high, accepted = 0.0, 2.0, None
    for _ in range(30):
        rate = (low + high) / 2
        counts = [max(2, round(seconds * rate / 2) * 2) for seconds in durations]
        if sum(counts) <= 512:
            low, accepted = rate, counts
        else:
            high = rate
    assert accepted is not None
    return accepted


def size_of_trainer(height: int, width: int) -> tuple[int, int]:
    ratio, best = width / height, (0, 0)
    for rows in range(1, height // 32 + 1):
        for columns in (int(rows * ratio), int(rows * ratio) + 1):
            if 0 < columns <= width // 32 and best[0] * best[1] < rows * columns <= 256:
                best = (rows, columns)
    return best[0] * 32, best[1] * 32


def open_by_trainer(clip: bytes) -> Any:
    import decord

    return decord.VideoReader(io.BytesIO(clip), ctx=decord.cpu(0), num_threads=1)


def decoded_by_trainer(video: Any, indices: Any) -> tuple[np.ndarray, tuple[int, int]]:
    """Frames of decord, resized by cv2, and their size before."""
    import cv2

    frames = video.get_batch(list(indices)).asnumpy()
    source_size = frames.shape[1:3]
    height, width = size_of_trainer(*source_size)
    if source_size == (height, width):
        return frames, source_size
    is_smaller = height <= source_size[0] and width <= source_size[1]
    how = cv2.INTER_AREA if is_smaller else cv2.INTER_LINEAR
    return np.stack([cv2.resize(frame, (width, height), interpolation=how) for frame in frames]), source_size


def specs_of_trainer(line: list[dict[str, Any]], clips: dict[str, bytes]) -> list[dict[str, Any]]:
    """The specs that the trainer's loader makes of a line."""
    videos = [spec for spec in line if spec["type"] == "video"]
    counts = iter(counts_of_trainer([spec["end_seconds"] - spec["start_seconds"] for spec in videos]))
    specs = []
    for spec in line:
        if spec["type"] == "video":
            video = open_by_trainer(clips[spec["path"]])
            fps, count = video.get_avg_fps(), next(counts)
            start, end = round(spec["start_seconds"] * fps), round(spec["end_seconds"] * fps)
            indices = np.linspace(start, min(end, len(video)) - 1, count, dtype=int)
            frames, source_size = decoded_by_trainer(video, indices)
            height, width = frames.shape[1:3]
            spec = {
                **spec,
                "src_resolution": list(source_size),  # one line of the demo is wrong on purpose
                "content": frames,
                "content_time": indices / fps,
                "num_frames": count,
                "dst_resolution": [height, width],
                "num_tokens": (height // 32) * (width // 32) * count // 2,
            }
        specs.append(spec)
    return specs


def without_pixels(specs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    pixels = ("content", "content_time")
    return [{k: v for k, v in s.items() if s["type"] != "video" or k not in pixels} for s in specs]


@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_specs_are_those_of_the_trainer(
    stage: str, demo_source: Path, demo_snapshot: Path, demo_lossless: Path, clip_bytes: dict[str, bytes]
) -> None:
    """All examples of the demo: all but pixels equal; pixels equal from PNG, near from JPEG q95."""
    pytest.importorskip("decord")
    where = pc.field("stage") == stage
    exact, lossy = (clipshards.open(out, where=where) for out in (demo_lossless, demo_snapshot))
    lines = lines_of(demo_source, stage)
    assert len(exact) == len(lossy) == len(lines) > 50
    worst_psnr, worst_level, squares, count = 99.0, 0, 0.0, 0
    for number, line in enumerate(lines):
        wanted = specs_of_trainer(line, clip_bytes)
        for data in (exact, lossy):
            specs = data.specs(number)
            assert without_pixels(specs) == without_pixels(wanted)
            assert [s["content_time"].tolist() for s in specs if "content" in s and s["type"] == "video"] == [
                s["content_time"].tolist() for s in wanted if s["type"] == "video"
            ]
        pixels, stored, near = (
            wanted[0]["content"],
            exact.specs(number)[0]["content"],
            lossy.specs(number)[0]["content"],
        )
        assert stored.dtype == near.dtype == np.uint8 and stored.shape == near.shape == pixels.shape
        assert np.array_equal(stored, pixels), line[0]["path"]
        error = near.astype(np.int16) - pixels
        mean_square = float(np.mean(np.square(error, dtype=np.float64)))
        worst_psnr = min(worst_psnr, 10 * np.log10(255**2 / mean_square))
        worst_level = max(worst_level, int(np.abs(error).max()))
        squares, count = squares + mean_square * error.size, count + error.size
    psnr = 10 * np.log10(255**2 / (squares / count))
    print(f"{stage}: {len(lines)} examples, q95 PSNR {psnr:.1f} dB, worst {worst_psnr:.1f}, by up to {worst_level}")
    assert psnr > 40 and worst_psnr > 38 and worst_level <= 80


def test_bench_frames_are_those_of_the_evaluator(
    demo_source: Path, demo_lossless: Path, clip_bytes: dict[str, bytes]
) -> None:
    pytest.importorskip("decord")
    bench = clipshards.open(demo_lossless, split="bench")
    stored = {
        name: json.loads(content)
        for part in demo_source.glob("test/*.tar")
        for member in index_tar(part, part=part.name).members
        if (name := member.name).endswith(".json") and (content := read_member(part, member))
    }
    assert len(bench) == len(stored) > 16
    for item in bench:
        raw = stored[f"json/{item.id}.json"]
        video = open_by_trainer(clip_bytes[f"video/{raw['clip_file']}"])
        indices = np.linspace(0, len(video) - 1, min(240, len(video)), dtype=int)
        assert item.video.indices == tuple(indices.tolist())
        assert np.array_equal(item.frames, decoded_by_trainer(video, indices)[0]), item.id
        qa = raw["qa"]
        assert (item.question, list(item.options), item.answer, item.difficulty) == (
            qa["question"], qa["options"], qa["answer"], qa["difficulty"],
        )  # fmt: skip
        assert item.category == qa["category"].replace("C", "J")
        assert item.options[item.answer_index][0] == item.answer


def test_lengths_and_difficulties_come_without_frames(
    data: reader.Examples, demo_source: Path, demo_snapshot: Path, tmp_path: Path
) -> None:
    """Of all lines, from the tables alone: the shards are not even there."""
    shutil.copytree(demo_snapshot, tmp_path / "tables", ignore=shutil.ignore_patterns("*.tar"))
    tables_only = clipshards.open(tmp_path / "tables")
    lines = [*lines_of(demo_source, "rl"), *lines_of(demo_source, "sft")]
    texts = [sum(len(spec["content"].split()) for spec in line if spec["type"] == "text") for line in lines]
    videos = [sum(s["num_tokens"] for s in data.specs(n) if s["type"] == "video") for n in range(len(data))]
    assert tables_only.lengths().tolist() == videos
    assert (tables_only.lengths(lambda text: len(text.split())) - tables_only.lengths()).tolist() == texts
    assert tables_only.difficulties == [line[-1]["difficulty"] for line in lines]


def test_example_tells_the_line(data: reader.Examples, demo_source: Path) -> None:
    line = lines_of(demo_source, "rl")[3]
    example = data["rl-4"]
    events = [(event["source"], event["persons"], event["target"]) for event in example.gt_events or []]
    assert events == [(event["source"], event["persons"], event["target"]) for event in line[-1]["gt_events"]]
    assert example.turns == tuple((spec["output"], spec["content"]) for spec in line[1:-1])
    assert (example.target, example.question) == (line[2]["content"].strip(), line[-1]["question_text"])
    assert example.video_tokens == example.videos[0].video_tokens
    assert example.frames.shape == (len(example.seconds), example.videos[0].height, example.videos[0].width, 3)


def test_by_number_id_and_key(data: reader.Examples) -> None:
    example = data[-1]
    assert data[len(data) - 1].id == data[example.id].id == example.id
    key = example.videos[0].key
    assert example.id in [data[number].id for number in data.find(key)]
    assert data[key].videos[0].indices == example.videos[0].indices
    for wrong in (len(data), -len(data) - 1):
        with pytest.raises(IndexError, match=str(wrong)):
            data[wrong]
    with pytest.raises(KeyError, match="no-such-id"):
        data["no-such-id"]


def test_filters(demo_snapshot: Path, data: reader.Examples) -> None:
    rows = pq.read_table(demo_snapshot / "manifests/examples.parquet").to_pylist()
    for column in ("source", "category", "difficulty", "format"):
        value = rows[0][column]
        found = clipshards.open(demo_snapshot, where=pc.field(column) == value)
        assert {example["id"] for example in found.table.to_pylist()} == {
            row["id"] for row in rows if row[column] == value
        }
        assert 0 < len(found) < len(data)
    both = clipshards.open(demo_snapshot, where=(pc.field("difficulty") == "easy") & (pc.field("stage") == "rl"))
    assert {(example.difficulty, example.stage) for example in both} == {("easy", "rl")}
    assert len(clipshards.open(demo_snapshot, where=pc.field("source") == "none")) == 0


def test_forms_of_frames(demo_snapshot: Path, data: reader.Examples) -> None:
    encoded = clipshards.open(demo_snapshot, frames="jpeg")[5].frames
    assert [picture[:3] for picture in encoded] == [b"\xff\xd8\xff"] * len(data[5].seconds)


def test_wrong_arguments(demo_snapshot: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"split \('dev'\) must be one of bench, train"):
        clipshards.open(demo_snapshot, split="dev")
    with pytest.raises(UsageError, match=r"nowhere.*difficulty"):
        clipshards.open(demo_snapshot, where=pc.field("nowhere") == 1)
    with pytest.raises(UsageError, match=r"frames \('png'\) must be one of"):
        clipshards.open(demo_snapshot, frames="png")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no finished output"):
        clipshards.open(tmp_path)


def read_some(data: reader.Examples, numbers: list[int]) -> list[tuple[str, int]]:
    return [(example.id, int(example.frames.astype(np.int64).sum())) for example in map(data.__getitem__, numbers)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_read_the_same(method: str, data: reader.Examples) -> None:
    numbers = list(range(0, len(data), 7))
    wanted = read_some(data, numbers)  # shards are open in this process when the workers are made
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.starmap(read_some, [(data, numbers[::-1]), (data, numbers)])
    assert found == [wanted[::-1], wanted]


def test_threads_read_the_same(data: reader.Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when shards are closed and opened again all the time."""
    monkeypatch.setattr(reader, "OPEN_SHARDS", 1)
    numbers = list(range(0, len(data), 9))
    wanted = read_some(data, numbers)
    found: dict[int, Any] = {}

    def work(thread: int) -> None:
        found[thread] = read_some(data, numbers)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {thread: wanted for thread in range(4)}


def open_files(under: Path) -> Iterator[str]:
    for descriptor in Path("/proc/self/fd").iterdir():
        if descriptor.is_symlink() and descriptor.readlink().is_relative_to(under):
            yield descriptor.name


def test_open_files_are_bounded(demo_snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "OPEN_SHARDS", 3)
    fresh = clipshards.open(demo_snapshot, frames="jpeg")
    before = len([*open_files(demo_snapshot)])
    shards = {row["shard"] for row in fresh.table.to_pylist()}
    assert len(shards) > 3
    for _ in fresh:
        assert len([*open_files(demo_snapshot)]) - before <= 3
    del fresh
    assert len([*open_files(demo_snapshot)]) == before


def test_pickles_small(data: reader.Examples, demo_snapshot: Path) -> None:
    where = pc.field("difficulty") == "hard"
    hard = clipshards.open(demo_snapshot, where=where, frames="jpeg")
    copy = pickle.loads(pickle.dumps(hard))
    assert len(pickle.dumps(hard)) < 4096
    assert len(copy) == len(hard) < len(data)
    assert copy[0].frames == hard[0].frames


def test_imports_nothing_heavy(demo_snapshot: Path) -> None:
    code = (
        "import sys, clipshards; data = clipshards.open(sys.argv[1]); data.specs(0); "
        "import clipshards.samplers, clipshards.score; "
        "print([m for m in ('prefect', 'av', 'cv2', 'msgspec', 'typer', 'torch') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(demo_snapshot)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_refresh_does_not_disturb(demo_snapshot: Path, tmp_path: Path) -> None:
    """The snapshot is resolved when it is opened: pointing `current` elsewhere changes nothing."""
    out = tmp_path / "out"
    shutil.copytree(demo_snapshot, out / "snapshots" / "one")
    (out / "current").symlink_to("snapshots/one")
    data = clipshards.open(out)
    (out / "current").unlink()
    (out / "current").symlink_to("snapshots/two")
    assert data[3].frames.shape[0] > 0
    assert pickle.loads(pickle.dumps(data))[3].id == data[3].id
    with pytest.raises(UsageError):
        clipshards.open(out)


@pytest.fixture
def copy(demo_snapshot: Path, tmp_path: Path) -> Path:
    """A snapshot that a test may damage."""
    return shutil.copytree(demo_snapshot, tmp_path / "copy")


def test_damage_is_named(copy: Path) -> None:
    data = clipshards.open(copy)
    place = data.table.slice(0, 1).to_pylist()[0]
    shard = copy / place["shard"]
    content = shard.read_bytes()
    damaged = rf"{place['shard']} is damaged at {place['view']} .*: run `clipshards verify OUT --repair`"

    def damage(number: int) -> None:
        shard.write_bytes(content[:number] + bytes([content[number] ^ 1]) + content[number + 1 :])

    damage(place["offset_bytes"])
    with pytest.raises(ClipshardsError, match=damaged):
        data[0]
    damage(place["offset_bytes"] + 512)
    with pytest.raises(ClipshardsError, match=damaged):
        data[0]
    damage(content.index(b"\xff\xd8\xff", place["offset_bytes"]))
    with pytest.raises(ClipshardsError, match=rf"{place['view']} of {copy} is damaged .*: run `clipshards verify"):
        data[0]
    shard.write_bytes(content[: place["offset_bytes"] + 512])
    with pytest.raises(ClipshardsError, match=damaged):
        data[0]
    shard.unlink()
    with pytest.raises(ClipshardsError, match=rf"{place['shard']} is damaged .*No such file"):
        clipshards.open(copy)[0]


@pytest.mark.parametrize("name", ["manifests/examples.parquet", "manifests/clips.parquet", "dataset.json"])
@pytest.mark.parametrize("content", [b"", b"nothing", b"[]", None])
def test_damaged_tables_are_named(name: str, content: bytes | None, copy: Path) -> None:
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    with pytest.raises(ClipshardsError, match=r"run `clipshards verify OUT --repair`|run `(clipshards )?prepare"):
        clipshards.open(copy)


def test_a_damaged_page_of_a_table_is_named(copy: Path) -> None:
    table = copy / "manifests/examples.parquet"
    content = table.read_bytes()
    table.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    with pytest.raises(
        ClipshardsError, match=r"examples.parquet is damaged .*: run `clipshards verify OUT --repair`"
    ):
        clipshards.open(copy)


@pytest.mark.parametrize("command", ["verify", "refresh", "report"])
def test_a_damaged_description_is_one_sentence(command: str, copy: Path) -> None:
    (copy / "dataset.json").write_text("{")
    (copy / "report.html").unlink()
    done = call(command, copy)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"{copy / 'dataset.json'} cannot be read" in done.stderr


def test_a_row_that_is_not_there(data: reader.Examples, demo_snapshot: Path) -> None:
    for number in (len(data), -len(data) - 1):
        with pytest.raises(
            IndexError, match=rf"row {number} is not there: train of {demo_snapshot} has {len(data)}"
        ):
            data[number]
    with pytest.raises(KeyError, match="'nobody' is neither an id nor a key"):
        data["nobody"]


def test_another_version_is_refused(copy: Path) -> None:
    dataset = json.loads((copy / "dataset.json").read_text())
    (copy / "dataset.json").write_text(json.dumps({**dataset, "schema_version": 1}))
    with pytest.raises(UsageError, match="schema_version 1, this program reads"):
        clipshards.open(copy)


def test_example_of_several_videos(copy: Path) -> None:
    """The other videos are found by their keys; prompt times go on where the one before ended."""
    path = copy / "manifests/examples.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    other = next(row for row in rows if row["view"] != rows[0]["view"] and row["start_seconds"] > 0)
    rows[0]["more_views"] = [other["view"]]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    data = clipshards.open(copy)
    example, alone = data[rows[0]["id"]], data[other["id"]]
    assert [video.key for video in example.videos] == [rows[0]["view"], other["view"]]
    assert np.array_equal(example.videos[1].frames, alone.frames)
    first, second = example.prompt_seconds()
    assert first[0] == example.seconds[0] - rows[0]["start_seconds"]
    length = rows[0]["end_seconds"] - rows[0]["start_seconds"]
    assert np.allclose(second, alone.seconds - other["start_seconds"] + length)
    assert [spec["type"] for spec in data.specs(rows[0]["id"])][:3] == ["video", "video", "text"]


@pytest.mark.parametrize(
    "line",
    [
        [{"type": "video", "camera": 2}, {"type": "text", "content": "?"}, {"type": "meta", "note": "n"}],
        [{"type": "text", "content": "?"}, {"type": "video"}, {"type": "text", "content": "!"}, {"type": "meta"}],
        [{"type": "meta"}, {"type": "video"}, {"type": "audio", "path": "a.wav"}, {"type": "text", "content": "!"}],
        [{"type": "video"}, {"type": "video", "camera": 1}, {"untyped": 1}, {"type": "text", "content": "!"}],
    ],
)
def test_lines_come_back_as_they_were(line: list[dict[str, Any]]) -> None:
    """Order, unknown fields and unknown specs: through the table of examples and back."""
    window = {"path": "s/a.mp4", "start_seconds": 0, "end_seconds": 1}
    answer = {"type": "text", "content": "A", "output": True}
    full = [spec | window if spec.get("type") == "video" else spec for spec in [*line, answer]]
    builder = ExampleBuilder()
    builder.add_lines("sft", "f.jsonl", io.BytesIO(json.dumps(full).encode() + b"\n"))
    (row,) = builder.finish().table.to_pylist()
    texts = [spec["content"] for spec in full if spec.get("type") == "text"]
    assert [turn["content"] for turn in row["turns"]] == texts
    videos = [{"type": "video"} for spec in line if spec.get("type") == "video"]
    known = [*videos, *({"type": "text", "content": text} for text in texts), {"type": "meta"}]
    found = reader._with_extra(known, json.loads(row["extra"] or "{}"))
    wanted = [*line, {"type": "text", "content": "A"}]
    has_meta = any(spec.get("type") == "meta" for spec in line)
    assert found == (wanted if has_meta else [*wanted, {"type": "meta"}])
