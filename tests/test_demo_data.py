"""The demo data set: what it promises is there, its answers are true, and its bytes are always the same."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import pytest

from clipshards.demo import build_demo, rows
from clipshards.demo.build import encode_clips
from clipshards.demo.clips import BENCH, TRAIN, Clip, vfr_tick
from clipshards.demo.draw import draw_frame
from clipshards.demo.questions import CATEGORIES, ask
from clipshards.demo.scene import Event, Scene, Window, direction
from clipshards.demo.verifier import answer
from clipshards.sampling import count_frames, fit_to_grid, frame_indices

ALL = (*TRAIN, *BENCH)
BY_PATH = {clip.path: clip for clip in ALL}


class Demo(NamedTuple):
    folder: Path
    seconds: float
    media: dict[str, bytes]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo")
    start = time.monotonic()
    build_demo(folder)
    seconds = time.monotonic() - start
    media: dict[str, bytes] = {}
    for path in folder.rglob("*.tar"):
        media |= {name: content for name, content in _members(path) if name.endswith(".mp4")}
    return Demo(folder, seconds, media)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as tar:
        for info in tar:
            content = tar.extractfile(info)
            assert content is not None
            yield info.name, content.read()


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _bench_items(demo: Demo) -> list[Any]:
    members = _members(demo.folder / "test/grasp_bench.tar")
    return [json.loads(content) for name, content in members if name.startswith("json/")]


# ---------------------------------------------------------------- what is there


def test_files_and_sizes(demo: Demo) -> None:
    parts = sorted(path.name for path in (demo.folder / "train/videos").iterdir())
    assert parts == [
        "avsbench_part000.tar",
        "avsbench_part001.tar",
        "embody3d_part000.tar",
        "friends_mmc_part000.tar",
        "social_iq_part000.tar",
        "socialgesture_part000.tar",
        "werewolf_part000.tar",
    ]
    assert sum(path.stat().st_size for path in demo.folder.rglob("*") if path.is_file()) < 12_000_000
    assert demo.seconds < 60
    assert set(demo.media) == {clip.path for clip in ALL}
    assert "CC0" in (demo.folder / "README.md").read_text()


def test_every_kind_of_row(demo: Demo) -> None:
    annotations = _lines(demo.folder / "train/annotations.jsonl")
    assert 120 <= len(annotations) <= 26 * 6
    assert {row["category"] for row in annotations} == set(CATEGORIES)
    assert {row["difficulty"] for row in annotations} == {"easy", "medium", "hard"}
    assert {row["source"] for row in annotations} == {clip.source for clip in TRAIN}
    assert {row["video"] for row in annotations} == {clip.path for clip in TRAIN}
    formats = Counter(row["format"] for row in annotations)
    assert min(formats["mcq"], formats["open_ended"]) > 40
    assert min(Counter(row["category"] for row in annotations).values()) >= 4
    assert len({row["id"] for row in annotations}) == len(annotations)
    assert len({(row["video"], row["question"]) for row in annotations}) == len(annotations)


def test_bench_items_and_their_rows_say_the_same(demo: Demo) -> None:
    items = _bench_items(demo)
    annotations = _lines(demo.folder / "test/annotations.jsonl")
    assert len(items) == len(annotations) >= 16
    assert {item["clip_file"] for item in items} == {clip.name for clip in BENCH}
    assert {item["qa"]["category"] for item in items} == {name.replace("J", "C") for name in CATEGORIES}
    assert {item["qa"]["difficulty"] for item in items} == {"easy", "medium", "hard"}
    keys = ("category", "question", "options", "answer", "difficulty")
    assert [[f"video/{item['clip_file']}", *(item["qa"][key] for key in keys)] for item in items] == [
        [row["video"], *(row[key] for key in keys)] for row in annotations
    ]


@pytest.mark.parametrize("split", ["train", "test"])
def test_answer_letters_are_balanced(demo: Demo, split: str) -> None:
    annotations = _lines(demo.folder / split / "annotations.jsonl")
    letters = Counter(row["answer"] for row in annotations if row["options"])
    assert set(letters) == set("ABCD")
    assert max(letters.values()) - min(letters.values()) <= 3


def test_training_lines(demo: Demo) -> None:
    annotations = _lines(demo.folder / "train/annotations.jsonl")
    sft, rl = (_lines(demo.folder / f"train/data_{name}.jsonl") for name in ("sft", "rl"))
    known = {(row["video"], row["question"]): row for row in annotations}
    linked = Counter()
    for line in (*sft, *rl):
        video, prompt, target, meta = line
        assert [spec["type"] for spec in line] == ["video", "text", "text", "meta"]
        assert (prompt["output"], target["output"]) == (False, True)
        row = known.get((video["path"], meta["question_text"]))
        linked[row is not None] += 1
        if row is not None:
            assert prompt["content"].splitlines() == [row["question"], *(row["options"] or [])]
            expected = row["answer"] if "gt_events" in meta else row["response"]
            assert target["content"] == expected
            assert row["response"].endswith(f"</think><answer>{row['answer']}</answer>")
    assert linked[False] == 2
    assert 0.5 < len(sft) / len(annotations) < 0.65
    assert 0.5 < len(rl) / len(annotations) < 0.65
    assert any("<gaze>P" in line[2]["content"] for line in sft)
    assert any("<gesture>P" in line[2]["content"] for line in sft)


def test_gt_events_are_events_of_the_clip(demo: Demo) -> None:
    sources = set()
    for video, _, _, meta in _lines(demo.folder / "train/data_rl.jsonl")[:-1]:
        scene = BY_PATH[video["path"]].scene
        assert meta["gt_events"]
        for one in meta["gt_events"]:
            event = Event(
                one["start_seconds"],
                one["end_seconds"],
                one["source"],
                f"P{one['persons'][0]}",
                one["target"],
            )
            assert event in scene.events
            assert video["start_seconds"] <= event.start_seconds < event.end_seconds <= video["end_seconds"]
            sources.add(event.kind)
    assert sources == {"gaze", "pointing", "waving", "showing", "reaching"}


# ---------------------------------------------------------------- what is true


def test_every_possible_question_has_the_verifiers_answer() -> None:
    asked = 0
    for clip in ALL:
        for window in (clip.whole, *clip.scene.beats):
            for question in ask(clip.scene, window):
                assert answer(clip.scene, window, question.text) == question.answer, (clip.name, question)
                assert question.choices.count(question.answer) == 1
                asked += 1
    assert asked > 1000


def test_every_written_answer_is_true(demo: Demo) -> None:
    windows = {(row.clip.path, row.question.text): row.question.window for row in rows.train_rows(TRAIN)}
    for split in ("train", "test"):
        for row in _lines(demo.folder / split / "annotations.jsonl"):
            clip = BY_PATH[row["video"]]
            window = windows.get((row["video"], row["question"]), clip.whole)
            true = answer(clip.scene, window, row["question"])
            if row["options"] is None:
                assert row["answer"] == true
            else:
                assert [text for text in row["options"] if text[3:] == true] == [f"{row['answer']}) {true}"]
                assert [text[:3] for text in row["options"]] == [
                    f"{letter}) " for letter in "ABCD"[: len(row["options"])]
                ]


def test_every_training_line_is_true(demo: Demo) -> None:
    for name in ("sft", "rl"):
        for video, prompt, target, meta in _lines(demo.folder / f"train/data_{name}.jsonl"):
            window = Window(video["start_seconds"], video["end_seconds"])
            true = answer(BY_PATH[video["path"]].scene, window, meta["question_text"])
            said = target["content"].rpartition("<answer>")[2].removesuffix("</answer>")
            options = prompt["content"].splitlines()[1:]
            assert (f"{said}) {true}" in options) if options else (said == true)


def test_the_verifier_notices_a_wrong_event() -> None:
    clip = TRAIN[3]
    one = clip.scene.events[0]
    question = f"Who or what does {_called(clip.scene, one.actor)} look at first?"
    other = next(name for name in ("P1", "P2", "P3") if name not in (one.actor, one.target))
    changed = replace(clip.scene, events=(replace(one, target=other), *clip.scene.events[1:]))
    assert answer(clip.scene, clip.whole, question) == one.target
    assert answer(changed, clip.whole, question) == other
    with pytest.raises(ValueError, match="must be one of the demo's"):
        answer(clip.scene, clip.whole, "What is for lunch?")


def _called(scene: Scene, name: str) -> str:
    return next(f"{name} ({person.shirt} shirt)" for person in scene.people if person.name == name)


def test_directions_of_gaze_can_be_told_apart() -> None:
    for clip in ALL:
        names = [one.name for one in (*clip.scene.people, *clip.scene.things)]
        for person in clip.scene.people:
            vectors = [
                complex(*direction(clip.scene, person.name, name, clip.width / clip.height))
                for name in names
                if name != person.name
            ]
            angles = np.sort(np.degrees(np.angle(vectors)))
            assert np.diff(angles, append=angles[0] + 360).min() > 6


def test_a_gaze_changes_the_picture_and_nothing_else_does() -> None:
    clip = TRAIN[1]
    event = next(one for one in clip.scene.events if one.kind == "gaze")
    quiet = replace(clip.scene, events=())
    middle = (event.start_seconds + event.end_seconds) / 2
    with_gaze = draw_frame(clip.scene, middle, clip.width, clip.height)
    without = draw_frame(quiet, middle, clip.width, clip.height)
    x, y = (round(v * s) for v, s in zip(clip.scene.position(event.actor), (clip.width, clip.height), strict=True))
    changed = np.abs(with_gaze.astype(int) - without).sum(axis=2) > 60
    near = changed[y - 40 : y + 40, max(0, x - 40) : x + 40]
    assert near.sum() > 300
    assert changed.sum() == near.sum()
    assert (draw_frame(quiet, 0.0, 320, 240) == draw_frame(clip.scene, 0.0, 320, 240)).all()


# ---------------------------------------------------------------- the media


class Seen(NamedTuple):
    codec: str
    size: tuple[int, int]
    fps: float
    num_frames: int
    pts_seconds: list[float]
    has_b_frames: bool


def _look(content: bytes) -> Seen:
    with av.open(io.BytesIO(content)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.pts is not None]
        assert stream.average_rate is not None and stream.time_base is not None
        assert stream.codec_context.pix_fmt == "yuv420p"
        order = [packet.pts for packet in packets if packet.pts is not None]
        return Seen(
            stream.codec_context.name,
            (stream.width, stream.height),
            float(stream.average_rate),
            len(packets),
            [float(pts * stream.time_base) for pts in sorted(order)],
            order != sorted(order),
        )


def test_clips_are_as_their_table_says(demo: Demo) -> None:
    for clip in ALL:
        seen = _look(demo.media[clip.path])
        assert (seen.codec, seen.size) == (clip.codec, (clip.width, clip.height))
        assert seen.num_frames == len(clip.frame_seconds)
        assert np.allclose(seen.pts_seconds, clip.frame_seconds, atol=0.002)
        assert seen.has_b_frames
        assert 3 <= seen.num_frames / seen.fps <= 12.01
        if not clip.variable_rate:
            assert seen.fps == pytest.approx(float(clip.fps))


def test_the_set_has_the_promised_variety() -> None:
    sizes = {(clip.width, clip.height) for clip in ALL}
    assert {(320, 240), (1280, 720)} <= sizes
    assert any(height > width for width, height in sizes)
    assert {f"{float(clip.fps):.2f}" for clip in ALL} == {"25.00", "29.97", "30.00"}
    assert [sum(clip.codec == "hevc" for clip in ALL), sum(clip.variable_rate for clip in ALL)] == [1, 1]
    assert {clip.count_people for clip in ALL} == {2, 3, 4, 5, 6}
    assert len({vfr_tick(number + 1) - vfr_tick(number) for number in range(40)}) > 2


def test_windows_lie_inside_the_clips_and_give_different_frames(demo: Demo) -> None:
    stale = partial = 0
    for name in ("sft", "rl"):
        for video, *_ in _lines(demo.folder / f"train/data_{name}.jsonl"):
            clip = BY_PATH[video["path"]]
            seen = _look(demo.media[clip.path])
            start, end = video["start_seconds"], video["end_seconds"]
            assert 0 <= start < end <= seen.num_frames / seen.fps
            count = count_frames([end - start])[0]
            sample = frame_indices(start, end, fps=seen.fps, num_frames_in_clip=seen.num_frames, count=count)
            assert len(set(sample.indices.tolist())) == count >= 4
            stale += video["src_resolution"] != [clip.height, clip.width]
            partial += (start, end) != (clip.whole.start_seconds, clip.whole.end_seconds)
            assert min(fit_to_grid(clip.height, clip.width)) >= 160
    assert stale == 1
    assert partial > 20


def test_pictures_survive_the_encoder_and_never_stand_still(demo: Demo) -> None:
    for clip in (TRAIN[1], TRAIN[11], TRAIN[19], BENCH[0]):
        with av.open(io.BytesIO(demo.media[clip.path])) as container:
            pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        middle = len(pictures) // 2
        drawn = draw_frame(clip.scene, clip.frame_seconds[middle], clip.width, clip.height)
        assert np.abs(pictures[middle].astype(int) - drawn).mean() < 6
        seconds = np.array(clip.frame_seconds)
        halves = [int(np.abs(seconds - half).argmin()) for half in np.arange(0, seconds[-1], 0.5)]
        for one, two in pairwise(halves):
            assert (pictures[one] != pictures[two]).any()


# ---------------------------------------------------------------- the same bytes


def test_the_same_bytes_again_whatever_the_workers(demo: Demo) -> None:
    subset: list[Clip] = [TRAIN[1], TRAIN[11], TRAIN[19], BENCH[3]]
    assert any(clip.variable_rate for clip in subset) and any(clip.codec == "hevc" for clip in subset)
    again = encode_clips(subset, workers=1)
    assert list(again) == [clip.path for clip in subset]
    assert all(content == demo.media[path] for path, content in again.items())


def test_rows_and_tars_hold_nothing_of_this_machine(demo: Demo) -> None:
    assert rows.train_rows(TRAIN) == rows.train_rows(TRAIN)
    for path in demo.folder.rglob("*.tar"):
        with tarfile.open(path) as tar:
            infos = tar.getmembers()
        assert [info.name for info in infos] == sorted(info.name for info in infos)
        assert {(info.mtime, info.uid, info.gid, info.uname, info.gname) for info in infos} == {(0, 0, 0, "", "")}
        assert b"/tmp" not in path.read_bytes()
