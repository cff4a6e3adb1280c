"""Shards of real clips: the same bytes whoever makes them, taken over when nothing changed, right frames within."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import media
import msgpack
import numpy as np
import pytest
import simplejpeg
import webdataset

from clipshards.errors import IncompleteError, NoSpaceError
from clipshards.examples import Examples, Window
from clipshards.plan import ShardPlan, plan_shards, plan_split
from clipshards.rendering import ClipJob, ClipOutcome, render_clip
from clipshards.sampling import GRASP_TRAIN
from clipshards.schema import REASONS
from clipshards.shards import Encoding, PartOnDisk, Render, ShardInfo, make_shard
from clipshards.tars import index_tar

PART = "train/part_000.tar"
CLIPS = {"s/a.mp4": "h264_short_gop", "s/b.webm": "vp9", "s/broken.mp4": "no_moov", "s/late.mp4": "h264_short_gop"}
WINDOWS = [
    (Window("s/a.mp4", 0.0, 2.4),),
    (Window("s/a.mp4", 1.0, 2.0),),
    (Window("s/a.mp4", 1.0, 30.0),),
    (Window("s/broken.mp4", 0.0, 1.0),),
    (Window("s/late.mp4", 9.0, 10.0),),
]
ENCODING = Encoding(GRASP_TRAIN, 95)
Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> media.ClipFolder:
    return media.ClipFolder(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="module")
def part(clips: media.ClipFolder, tmp_path_factory: pytest.TempPathFactory) -> PartOnDisk:
    path = tmp_path_factory.mktemp("part") / "part, 000.tar"
    with tarfile.open(path, "w") as tar:
        for name, clip in CLIPS.items():
            tar.add(clips(clip), name)
    return _part(path)


def _part(path: Path) -> PartOnDisk:
    members = {member.name: member for member in index_tar(path, part=PART).members}
    return PartOnDisk(PART, path, hashlib.sha256(path.read_bytes()).hexdigest(), members)


@pytest.fixture(scope="module")
def plan(part: PartOnDisk) -> ShardPlan:
    split = plan_split("train", GRASP_TRAIN, Examples(shown=list(WINDOWS)), ["s/b.webm"])
    (shard,) = plan_shards(split, PART, part.members, 1 << 40)
    return shard


@pytest.fixture(scope="module")
def rows(plan: ShardPlan) -> Rows:
    return {
        view.key: {"examples": [{"id": f"é {number}"}], "questions": [], "items": []}
        for number, view in enumerate(plan.all_views())
    }


def _render(jobs: Iterable[ClipJob]) -> Iterator[ClipOutcome]:
    return map(render_clip, jobs)


def _render_backwards(jobs: Iterable[ClipJob]) -> Iterator[ClipOutcome]:
    return map(render_clip, reversed(list(jobs)))


def _never(jobs: Iterable[ClipJob]) -> Iterator[ClipOutcome]:
    raise AssertionError("a finished shard is rendered again")


class _Counting:
    """Renders, and counts the clips."""

    def __init__(self) -> None:
        self.num_clips = 0

    def __call__(self, jobs: Iterable[ClipJob]) -> Iterator[ClipOutcome]:
        for job in jobs:
            self.num_clips += 1
            yield render_clip(job)


Make = Callable[..., ShardInfo]


@pytest.fixture
def make(part: PartOnDisk, plan: ShardPlan, rows: Rows, tmp_path: Path) -> Make:
    def run(
        *,
        render: Render = _render,
        folder: Path = tmp_path / "shards",
        part: PartOnDisk = part,
        encoding: Encoding = ENCODING,
        rows: Rows = rows,
    ) -> ShardInfo:
        return make_shard(plan, part, encoding, rows, render=render, folder=folder)

    return run


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_shard_and_its_receipt_are_all_that_is_left(make: Make, tmp_path: Path) -> None:
    info = make()
    path = tmp_path / "shards" / info.path
    assert info.path == "train/part_000-0000.tar"
    assert _files(tmp_path / "shards") == ["train", "train/part_000-0000.json", "train/part_000-0000.tar"]
    assert (info.split, info.part, info.size_bytes) == ("train", PART, path.stat().st_size)
    assert info.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_equal_bytes_in_any_order_and_place(make: Make, part: PartOnDisk, tmp_path: Path) -> None:
    first = make()
    moved = tmp_path / "elsewhere" / "other name.tar"
    moved.parent.mkdir()
    shutil.copy(part.file, moved)
    second = make(render=_render_backwards, folder=tmp_path / "again", part=replace(part, file=moved))
    assert first == second
    for name in (first.path, first.path.replace(".tar", ".json")):
        assert (tmp_path / "shards" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    with tarfile.open(tmp_path / "again" / first.path) as tar:
        assert {(member.mtime, len(member.pax_headers)) for member in tar} == {(0, 0)}


def test_finished_shard_is_taken_over(make: Make, part: PartOnDisk, tmp_path: Path) -> None:
    info = make()
    path = tmp_path / "shards" / info.path
    before = path.stat()
    moved = replace(part, file=tmp_path / "gone.tar")
    assert make(render=_never, part=moved) == info
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_other_rows_or_rules_make_it_again(make: Make, rows: Rows) -> None:
    first = make()
    counting = _Counting()
    key = first.samples[0].key
    other_rows = {**rows, key: {**rows[key], "questions": [{"id": "new"}]}}
    second = make(render=counting, rows=other_rows)
    third = make(render=counting, rows=other_rows, encoding=replace(ENCODING, quality=60))
    assert counting.num_clips == 2 * len(CLIPS)
    assert len({first.sha256, second.sha256, third.sha256}) == 3
    assert third.size_bytes < second.size_bytes
    assert make(render=_never, rows=other_rows, encoding=replace(ENCODING, quality=60)) == third


def test_another_decoder_makes_it_again_with_the_same_bytes(make: Make) -> None:
    first = make()
    counting = _Counting()
    second = make(render=counting, encoding=replace(ENCODING, decoder="ffmpeg"))
    assert counting.num_clips == len(CLIPS)
    assert first.fingerprint != second.fingerprint
    assert (first.sha256, first.samples) == (second.sha256, second.samples)
    assert {outcome.decoder for outcome in first.outcomes} == {"cpu", ""}
    assert {outcome.decoder for outcome in second.outcomes} == {"ffmpeg", ""}
    assert {outcome.fallback for outcome in second.outcomes} == {""}


def test_other_bytes_of_a_clip_make_it_again(make: Make, part: PartOnDisk, tmp_path: Path) -> None:
    first = make()
    content = part.file.read_bytes()
    (tmp_path / "part.tar").write_bytes(content.replace(b"Lavc", b"lavc"))
    changed = _part(tmp_path / "part.tar")
    assert changed.sha256 != part.sha256
    counting = _Counting()
    assert make(render=counting, part=changed).fingerprint != first.fingerprint
    assert counting.num_clips == len(CLIPS)


def _remove(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("suffix", [".tar", ".json"])
@pytest.mark.parametrize("damage", [_remove, _cut])
def test_receipt_or_shard_alone_is_not_taken_over(
    make: Make, tmp_path: Path, suffix: str, damage: Callable[[Path], None]
) -> None:
    info = make()
    path = tmp_path / "shards" / info.path
    content = path.read_bytes()
    damage(path.with_suffix(suffix))
    counting = _Counting()
    assert make(render=counting) == info
    assert counting.num_clips == len(CLIPS)
    assert path.read_bytes() == content


def test_stopped_run_leaves_nothing_that_looks_finished(make: Make, tmp_path: Path) -> None:
    def stopped(jobs: Iterable[ClipJob]) -> Iterator[ClipOutcome]:
        yield render_clip(next(iter(jobs)))
        raise IncompleteError("stopped")

    with pytest.raises(IncompleteError):
        make(render=stopped)
    assert _files(tmp_path / "shards") == ["train"]
    assert make() == make(render=_never)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_is_told(make: Make, tmp_path: Path, number: int) -> None:
    def full(jobs: Iterable[ClipJob]) -> Iterator[ClipOutcome]:
        raise OSError(number, os.strerror(number))

    with pytest.raises(NoSpaceError):
        make(render=full)
    assert _files(tmp_path / "shards") == ["train"]


def test_remains_of_a_killed_run_are_swept(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "shards" / "train"
    (folder / "part_000-0000.frames").mkdir(parents=True)
    (folder / "part_000-0000.frames" / "old.mp").write_bytes(b"old")
    (folder / "part_000-0000.tar.tmp").write_bytes(b"half")
    make()
    assert _files(folder) == ["part_000-0000.json", "part_000-0000.tar"]


def test_samples_lie_where_the_receipt_says(make: Make, tmp_path: Path) -> None:
    info = make()
    content = (tmp_path / "shards" / info.path).read_bytes()
    assert [place.key for place in info.samples] == sorted(place.key for place in info.samples)
    end = 0
    for place in info.samples:
        assert place.offset_bytes == end
        end += place.length_bytes
        sample = content[place.offset_bytes : end]
        with tarfile.open(fileobj=io.BytesIO(sample)) as tar:
            members = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
        assert list(members) == [f"{place.key}.json", f"{place.key}.mp"]
        told = json.loads(members[f"{place.key}.json"])
        assert len(msgpack.unpackb(members[f"{place.key}.mp"])) == len(told["frame_indices"])
    assert content[end:].strip(b"\0") == b""
    assert {reject.name for reject in _index(tmp_path / "shards" / info.path)} == {
        f"{place.key}.{suffix}" for place in info.samples for suffix in ("json", "mp")
    }


def _index(path: Path) -> Iterator[Any]:
    index = index_tar(path, part="shard.tar")
    assert (index.rejects, index.warnings) == ((), ())
    return iter(index.members)


def _samples(path: Path) -> dict[str, dict[str, Any]]:
    dataset = webdataset.WebDataset(str(path), shardshuffle=False).decode()
    return {sample["__key__"]: sample for sample in dataset}


def test_webdataset_reads_frames_and_where_they_came_from(
    make: Make, clips: media.ClipFolder, part: PartOnDisk, rows: Rows, tmp_path: Path
) -> None:
    info = make()
    samples = _samples(tmp_path / "shards" / info.path)
    assert list(samples) == [place.key for place in info.samples]
    assert info.num_frames == sum(len(sample["mp"]) for sample in samples.values())
    tar = part.file.read_bytes()
    for key, sample in samples.items():
        told, frames = sample["json"], sample["mp"]
        assert all(type(frame) is bytes for frame in frames)
        start = told["member_offset_bytes"]
        clip = tar[start : start + told["member_size_bytes"]]
        assert hashlib.sha256(clip).hexdigest() == told["member_sha256"]
        assert clip == clips(CLIPS[told["clip"]]).read_bytes()
        assert (told["part"], told["part_sha256"]) == (PART, hashlib.sha256(tar).hexdigest())
        assert (told["fps"], told["num_frames_in_clip"]) == (media.FPS, media.NUM_FRAMES)
        assert {name: told[name] for name in rows[key]} == rows[key]
        pictures = [simplejpeg.decode_jpeg(frame) for frame in frames]
        assert {picture.shape for picture in pictures} == {(told["height"], told["width"], 3)}
        assert [media.number_in(picture) for picture in pictures] == told["frame_indices"]
        assert told["frame_seconds"] == [index / media.FPS for index in told["frame_indices"]]
        assert told["video_tokens"] == (told["height"] // 32) * (told["width"] // 32) * len(frames) // 2


def test_windows_hold_the_frames_of_the_trainer(make: Make, tmp_path: Path) -> None:
    told = [sample["json"] for sample in _samples(tmp_path / "shards" / make().path).values()]
    of_window = {(t["clip"], t["start_seconds"], t["end_seconds"]): t["frame_indices"] for t in told}
    assert of_window == {
        ("s/a.mp4", 0.0, 2.4): np.linspace(0, 59, 4, dtype=int).tolist(),
        ("s/a.mp4", 1.0, 2.0): [25, 49],
        ("s/b.webm", 0.0, 2.4): np.linspace(0, 59, 4, dtype=int).tolist(),
    }


def test_lossless_frames_are_png(make: Make, tmp_path: Path) -> None:
    info = make(encoding=replace(ENCODING, quality=None))
    for sample in _samples(tmp_path / "shards" / info.path).values():
        assert all(frame.startswith(b"\x89PNG\r\n") for frame in sample["mp"])


def test_what_cannot_be_rendered_has_a_reason_and_no_sample(make: Make, plan: ShardPlan, tmp_path: Path) -> None:
    info = make()
    outcomes = {outcome.clip: outcome for outcome in info.outcomes}
    assert list(outcomes) == sorted(CLIPS)
    assert outcomes["s/broken.mp4"].reason == "moov-missing"
    assert outcomes["s/broken.mp4"].info is None
    assert outcomes["s/late.mp4"].reason == "end-beyond-video"
    assert outcomes["s/a.mp4"].reason == outcomes["s/b.webm"].reason == ""
    assert [reason for _, reason, _ in outcomes["s/a.mp4"].rejected_views] == ["end-beyond-video"]
    rejected = {key for outcome in info.outcomes for key, reason, _ in outcome.rejected_views if reason in REASONS}
    rendered = {view.key for outcome in info.outcomes for view in outcome.views}
    assert rejected | rendered == {view.key for view in plan.all_views()}
    assert not rejected & rendered
    assert set(_samples(tmp_path / "shards" / info.path)) == rendered == {place.key for place in info.samples}


def test_shard_of_bad_clips_alone_has_no_file_and_is_taken_over(
    part: PartOnDisk, plan: ShardPlan, rows: Rows, tmp_path: Path
) -> None:
    bad = replace(plan, views={"s/broken.mp4": plan.views["s/broken.mp4"]})
    info = make_shard(bad, part, ENCODING, rows, render=_render, folder=tmp_path)
    assert (info.size_bytes, info.sha256, info.samples, info.num_frames) == (0, "", (), 0)
    assert _files(tmp_path) == ["train", "train/part_000-0000.json"]
    assert make_shard(bad, part, ENCODING, rows, render=_never, folder=tmp_path) == info


def test_shard_that_loses_all_its_samples_is_taken_over_next_time(
    make: Make, part: PartOnDisk, plan: ShardPlan, rows: Rows, tmp_path: Path
) -> None:
    make()
    bad = replace(plan, views={"s/broken.mp4": plan.views["s/broken.mp4"]})
    info = make_shard(bad, part, ENCODING, rows, render=_render, folder=tmp_path / "shards")
    assert make_shard(bad, part, ENCODING, rows, render=_never, folder=tmp_path / "shards") == info
