"""A data set of another kind, by nothing but its recipe: compressed parts, conversations about whole clips."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_faults import FaultyHub
from test_cli import call
from test_prepare import decord_frames, hashes, read_sample, table

import clipshards
from clipshards.errors import IncompleteError
from clipshards.images import decode_image
from clipshards.recipe import load_recipe
from clipshards.sampling import count_frames, fit_to_grid
from clipshards.verify import verify_snapshot
from flows import looking
from flows.planning import plan_run
from flows.settings import make_settings
from flows.verifying import mend_options, verify_output

pytestmark = pytest.mark.flow

RECIPE = "llava-video"
PROFILE = load_recipe(RECIPE).profile("llava-video")
PART = "0_30_s_academic_v0_1/0_30_s_academic_v0_1_videos_1.tar.gz"
HUB = "hf://datasets/demo/GRASP"


def run(source: str | Path, out: Path, **options: Any) -> dict[str, Any]:
    from flows.prepare import prepare

    options = {"recipe": RECIPE, "decoder": "cpu", "workers": 2, **options}
    return prepare(str(source), str(out), **options)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def out(prefect_server: None, talks_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared from the folder, lossless."""
    out = tmp_path_factory.mktemp("talks-out")
    run(talks_source, out, quality=None)
    return out


@pytest.fixture
def source(talks_source: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(talks_source, tmp_path / "source"))


def rows_of(source: Path) -> dict[str, dict[str, Any]]:
    """Id of the example → row, as Python's own JSON reads the files."""
    rows = {}
    for path in sorted(source.glob("*/*_processed.json*")):
        text = path.read_text(encoding="utf-8")
        of_file = json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]
        rows |= {f"{path.relative_to(source)}:{number}": row for number, row in enumerate(of_file, 1)}
    return rows


def clips_of(source: Path) -> dict[str, bytes]:
    """The clips, as Python's own tarfile reads the parts."""
    clips = {}
    for part in source.glob("*/*.tar.gz"):
        with tarfile.open(part, "r:gz") as tar:
            clips |= {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]
    return clips


def test_each_row_is_an_example_and_each_clip_is_stored_once(out: Path, talks_source: Path) -> None:
    snapshot, rows = out / "current", rows_of(talks_source)
    examples = {row["id"]: row for row in table(snapshot, "examples")}
    assert examples.keys() == rows.keys() and len(rows) > 30
    assert table(snapshot, "quarantine") == []
    assert {row["clip"] for row in table(snapshot, "views")} == {row["video"] for row in rows.values()}
    assert len(table(snapshot, "views")) == len({row["video"] for row in rows.values()})
    assert len({row["id"] for row in rows.values()}) < len(rows), "rows of one id over several files"
    assert {len(row["turns"]) for row in examples.values()} > {2}, "more than one question in a conversation"
    assert {json.loads(row["extra"])["row"]["data_source"] for row in examples.values()} == {
        "0_30_s_academic_v0_1", "0_30_s_youtube_v0_1",
    }  # fmt: skip
    assert all(row["warnings"] == [] for row in examples.values()), "what the format never names is no fault"


def test_the_plan_says_what_comes(out: Path, talks_source: Path) -> None:
    done = call("plan", talks_source, out, "--recipe", RECIPE, "--json")
    totals = json.loads(done.stdout.splitlines()[-1])
    for name in ("parts", "clips", "examples", "views"):
        assert totals[name] == len(table(out / "current", name))
    assert totals["frames"] > 0


@pytest.mark.parametrize(("most_bytes", "close"), [(64_000_000, 0.1), (200_000, 0.4)])
@pytest.mark.parametrize("by_hub", [False, True])
def test_a_plan_looks_into_the_start_of_a_compressed_part(
    by_hub: bool, most_bytes: int, close: float, out: Path, hub: FaultyHub, talks_source: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """All of it where it is small, else what its first clips tell of the others."""
    monkeypatch.setattr(looking, "MAX_CLIP_BYTES", most_bytes)
    source = HUB if by_hub else str(talks_source)
    options = {"recipe": RECIPE, "decoder": "cpu", "workers": 2, "endpoint": hub.endpoint}
    planned = plan_run(make_settings(source, tmp_path / "out", **options))
    frames = sum(row["num_frames"] for row in table(out / "current", "views"))
    assert planned.frames == pytest.approx(frames, rel=close)
    assert planned.measured_on.endswith("clips of the source") and planned.notes == ()


def test_verify_finds_nothing_wrong(out: Path) -> None:
    checked, problems = verify_output(out, decode=100)
    assert problems == []
    assert checked["views decoded again"] == len(table(out / "current", "views"))


def test_stored_frames_are_those_of_decord(out: Path, talks_source: Path) -> None:
    decord = pytest.importorskip("decord")
    clips = clips_of(talks_source)
    for row in table(out / "current", "views"):
        clip = clips[row["clip"]]
        reader = decord.VideoReader(io.BytesIO(clip), ctx=decord.cpu(0), num_threads=1)
        count = count_frames([len(reader) / reader.get_avg_fps()], PROFILE)[0]
        wanted = np.linspace(0, len(reader) - 1, count, dtype=int)
        assert abs(count - len(reader) / reader.get_avg_fps()) <= 1, "a frame a second"
        text, frames = read_sample(out / "current", row)
        assert text["frame_indices"] == wanted.tolist(), row["clip"]
        height, width = fit_to_grid(*reader[0].shape[:2], PROFILE)
        stored = np.stack([decode_image(frame) for frame in frames])
        expected = decord_frames(clip, wanted, height, width)
        assert np.abs(stored.astype(int) - expected.astype(int)).max() == 0, row["clip"]


def test_the_reader_gives_what_the_rows_say(out: Path, talks_source: Path) -> None:
    data, rows = clipshards.open(out), rows_of(talks_source)
    assert len(data) == len(rows)
    for example in data:
        said = rows[example.id]["conversations"]
        texts = [turn["value"].replace("<image>\n", "").replace("<video>\n", "") for turn in said]
        assert example.turns == tuple((number % 2 == 1, text) for number, text in enumerate(texts))
        assert (example.question, example.target) == (texts[0], texts[-1])
        assert example.extra["row"]["id"] == rows[example.id]["id"]
        assert example.videos[0].clip == rows[example.id]["video"]
        assert example.frames.shape[1:] == (example.videos[0].height, example.videos[0].width, 3)
        assert len(example.frames) == len(example.seconds) >= 3
        specs = data.specs(example.id)
        assert [spec["type"] for spec in specs] == ["video", *["text"] * len(texts), "meta"]
        assert specs[-1]["data_source"] == rows[example.id]["data_source"]


def test_a_marker_after_the_text_is_a_video_after_it(prefect_server: None, source: Path, tmp_path: Path) -> None:
    file = next(source.glob("*academic*/*_cap_processed.json"))
    rows = json.loads(file.read_text())
    rows[0]["conversations"][0]["value"] = "What happens here?\n<image>"
    file.write_text(json.dumps(rows))
    run(source, tmp_path / "out", parts="*academic*_videos_1.tar.gz", extract=True)
    specs = clipshards.open(tmp_path / "out").specs(f"{file.relative_to(source)}:1")
    assert [spec["type"] for spec in specs] == ["text", "video", "text", "meta"]
    assert specs[0]["content"] == "What happens here?"
    clips = {
        str(p.relative_to(tmp_path / "out/videos")): p.read_bytes() for p in tmp_path.rglob("out/videos/**/*.mp4")
    }
    assert clips and clips.items() <= clips_of(source).items()


def test_each_part_names_the_file_of_the_source(out: Path, talks_source: Path) -> None:
    from clipshards.hub.listing import hash_file

    parts = {row["part"]: row for row in table(out / "current", "parts")}
    assert {part: hash_file(talks_source / part) for part in parts} == {
        p: row["sha256"] for p, row in parts.items()
    }
    assert {word for row in parts.values() for word in row["warnings"]} == set()
    for row in table(out / "current", "views"):
        tar = gzip.decompress((talks_source / row["part"]).read_bytes())
        start = row["member_offset_bytes"]
        assert tar[start : start + row["member_size_bytes"]] == clips_of(talks_source)[row["clip"]]


@pytest.fixture(scope="module")
def hub(talks_source: Path) -> Iterator[FaultyHub]:
    with FaultyHub(talks_source) as hub:
        yield hub


@pytest.fixture(scope="module")
def from_hub(prefect_server: None, hub: FaultyHub, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("talks-hub")
    run(HUB, out, endpoint=hub.endpoint, quality=None)
    return out


def test_the_bytes_are_those_of_the_folder(from_hub: Path, out: Path) -> None:
    assert hashes(from_hub / "current") == hashes(out / "current")
    assert len(list((from_hub / "work/unpacked").rglob("*.unpacked"))) == 4
    assert len(list((from_hub / "work/downloads").rglob("*.tar.gz"))) == 4


def test_nothing_is_fetched_when_nothing_changed(from_hub: Path, hub: FaultyHub) -> None:
    hub.log.clear()
    shards = {path: path.stat().st_mtime_ns for path in (from_hub / "work/shards").rglob("*.tar")}
    shutil.rmtree(from_hub / "work/downloads")
    shutil.rmtree(from_hub / "work/unpacked")
    run(HUB, from_hub, endpoint=hub.endpoint, quality=None)
    assert {path: path.stat().st_mtime_ns for path in shards} == shards
    assert not [line for line in hub.log if line.path.endswith(".tar.gz") and line.method == "GET"]
    assert not (from_hub / "work/unpacked").exists()


def test_verify_fetches_the_part_whole_when_it_is_gone(from_hub: Path, hub: FaultyHub) -> None:
    for name in ("downloads", "unpacked"):
        shutil.rmtree(from_hub / "work" / name, ignore_errors=True)
    hub.log.clear()
    checked, problems = verify_output(from_hub, decode=100, endpoint=hub.endpoint)
    assert problems == [] and checked["views decoded again"] == len(table(from_hub / "current", "views"))
    parts = {row["part"] for row in table(from_hub / "current", "parts")}
    assert {part: len(hub.requests("hub", part)) for part in parts} == dict.fromkeys(parts, 1)


def test_what_is_damaged_is_made_again(from_hub: Path, hub: FaultyHub) -> None:
    from flows.prepare import prepare

    before = hashes(from_hub / "current")
    shard = from_hub / "current" / table(from_hub / "current", "shards")[0]["shard"]
    shard.write_bytes(b"x" + shard.read_bytes()[1:])
    _, problems = verify_output(from_hub)
    assert len(problems) == 1
    prepare(out=str(from_hub), endpoint=hub.endpoint, **mend_options(from_hub, problems))
    assert verify_output(from_hub)[1] == [] and hashes(from_hub / "current") == before


def test_within_a_budget(hub: FaultyHub, from_hub: Path, tmp_path: Path) -> None:
    # download, unpacked and lossless frames of the largest part: 1 + 1.5 + 4 of its bytes
    largest = max(row["size_bytes"] for row in table(from_hub / "current", "parts"))
    budget = int(6.6 * largest)
    totals = run(HUB, tmp_path, endpoint=hub.endpoint, quality=None, disk_budget=budget)
    assert hashes(tmp_path / "current") == hashes(from_hub / "current")
    assert 2 * largest < totals["peak_disk_bytes"] <= budget
    left = [path.name for name in ("downloads", "unpacked") for path in (tmp_path / "work" / name).rglob("*.tar*")]
    assert left == []


def grown(part: Path) -> None:
    """Add what shrinks well to a part: a text of zeros, three times the part's size."""
    tar = bytearray(gzip.decompress(part.read_bytes()))
    text = io.BytesIO(tar)
    with tarfile.open(fileobj=text, mode="a") as archive:
        info = tarfile.TarInfo("zeros.bin")
        info.size = 3 * part.stat().st_size
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    part.write_bytes(gzip.compress(text.getvalue()))


def test_a_part_that_grows_over_the_budget_fails_alone(prefect_server: None, source: Path, tmp_path: Path) -> None:
    grown(source / PART)
    with pytest.raises(IncompleteError, match=r"1 part.*no-space.*leave --disk-budget out"):
        run(source, tmp_path / "out", disk_budget=10**9, max_rejected=1)
    (reject,) = [row for row in table(tmp_path / "out/current", "quarantine") if row["kind"] == "part"]
    assert (reject["path"], reject["reason"]) == (PART, "no-space")
    assert verify_snapshot((tmp_path / "out/current").resolve())[1] == []
    run(source, tmp_path / "out")
    assert table(tmp_path / "out/current", "quarantine") == []
    assert len(table(tmp_path / "out/current", "parts")) == 4


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_part_fails_with_its_reason(
    prefect_server: None, source: Path, tmp_path: Path, damage: str
) -> None:
    content = (source / PART).read_bytes()
    middle = len(content) // 2
    content = content[:middle] if damage == "cut" else content[:middle] + b"\0" * 9 + content[middle + 9 :]
    (source / PART).write_bytes(content)
    with pytest.raises(IncompleteError, match="gzip stream is damaged"):
        run(source, tmp_path / "out", max_rejected=1)
    rows = table(tmp_path / "out/current", "quarantine")
    assert [(row["path"], row["reason"]) for row in rows if row["kind"] == "part"] == [(PART, "tar-damaged")]
    lost = [row for row in rows if row["kind"] == "example"]
    kept = table(tmp_path / "out/current", "examples")
    assert len(lost) + len(kept) == len(rows_of(source)) and lost
    assert {row["reason"] for row in lost} == {"clip-missing"}


def test_gzip_under_the_name_of_a_tar(prefect_server: None, source: Path, out: Path, tmp_path: Path) -> None:
    plain = source / PART.removesuffix(".gz")
    (source / PART).rename(plain)
    recipe = tmp_path / "own.toml"
    text = (Path(__file__).parents[1] / "recipes/llava-video.toml").read_text(encoding="utf-8")
    recipe.write_text(text.replace('["*_videos_*.tar.gz"]', '["*_videos_*"]'), encoding="utf-8")
    with FaultyHub(source) as hub:
        run(HUB, tmp_path / "out", recipe=str(recipe), quality=None, endpoint=hub.endpoint)
        assert {
            row["part"]: row["warnings"] for row in table(tmp_path / "out/current", "parts") if row["warnings"]
        } == {PART.removesuffix(".gz"): ["tar-compressed"]}
        views, same = table(tmp_path / "out/current", "views"), table(out / "current", "views")
        names = ("view", "clip", "num_frames", "member_offset_bytes", "member_sha256")
        assert [[row[name] for name in names] for row in views] == [[row[name] for name in names] for row in same]
        for name in ("downloads", "unpacked"):
            shutil.rmtree(tmp_path / "out/work" / name)
        assert verify_output(tmp_path / "out", decode=100, endpoint=hub.endpoint)[1] == []


def test_bad_rows_and_missing_clips_are_in_the_quarantine(
    prefect_server: None, source: Path, tmp_path: Path
) -> None:
    file = next(source.glob("*youtube*/*_oe_*.json"))
    rows = json.loads(file.read_text())
    rows[0]["conversations"][0]["value"] = "Who? There is no marker."
    rows.append({**rows[1], "video": "liwei_youtube_videos/videos/gone.mp4"})
    file.write_text(json.dumps(rows)[:-1] + ', {"id":}]')
    snapshot = Path(run(source, tmp_path / "out", max_rejected=0.5)["snapshot"])
    name = str(file.relative_to(source))
    found = {(row["path"], row["line"]): row["reason"] for row in table(snapshot, "quarantine")}
    assert found == {
        (name, 1): "bad-meta", (name, len(rows)): "clip-missing", (name, len(rows) + 1): "row-not-json",
    }  # fmt: skip
    assert len(table(snapshot, "examples")) == len(rows_of_files(source, file)) + len(rows) - 2


def rows_of_files(source: Path, but: Path) -> dict[str, dict[str, Any]]:
    kept = {path: path.read_bytes() for path in [but]}
    but.write_text("[]")
    rows = rows_of(source)
    but.write_bytes(kept[but])
    return rows


def test_a_run_that_is_killed_goes_on(out: Path, talks_source: Path, tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("clipshards")),
        "prepare",
        str(talks_source),
        str(tmp_path / "out"),
    ]
    command += ["--recipe", RECIPE, "--quality", "lossless", "--workers", "1", "--decoder", "cpu"]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("out/work/unpacked/*/*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (tmp_path / "out/current").exists()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert hashes(tmp_path / "out/current") == hashes(out / "current")
    assert not list((tmp_path / "out/work/unpacked").rglob("*.tmp"))


def test_two_splits_of_the_same_parts(prefect_server: None, talks_source: Path, tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "recipes/llava-video.toml").read_text(encoding="utf-8")
    train, _, rest = text.partition("[conversation_fields]")
    other = train[train.index("[splits.train]") :].replace("splits.train", "splits.choice")
    recipe = tmp_path / "own.toml"
    train, other = train.replace("*_processed.json", "*_oe_*"), other.replace("*_processed.jsonl", "*_mc_*")
    recipe.write_text(f"{train}\n{other.replace('*_processed.json', 'none')}\n[conversation_fields]{rest}")
    snapshot = Path(run(talks_source, tmp_path / "out", recipe=str(recipe))["snapshot"])
    splits = {row["split"] for row in table(snapshot, "views")}
    assert splits == {"train", "choice"} and table(snapshot, "quarantine") == []
    assert verify_snapshot(snapshot)[1] == []
