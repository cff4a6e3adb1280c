"""A refresh costs what changed: counted in requests, decoded clips and written bytes, on a Hub that moves."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import media
import pyarrow.parquet as pq
import pytest
from hub_faults import Fault, FaultyHub

from clipshards.verify import verify_snapshot

pytestmark = pytest.mark.flow

NAMES = ["h264_short_gop", "h264_long_gop", "vp9", "mpeg4"]
PARTS = {"p0": ["s/a.mp4", "s/b.mp4"], "p1": ["s/c.mp4", "s/d.mp4"]}


class Source:
    """A source as a folder; each change is a new folder, so that the Hub keeps serving the old commit."""

    def __init__(self, folder: Path, clips: media.ClipFolder) -> None:
        self.folder, self.clip_folder = folder, clips.folder
        self.clips = {f"s/{name}.mp4": clips(kind).read_bytes() for name, kind in zip("abcd", NAMES, strict=True)}
        self.parts = {name: list(members) for name, members in PARTS.items()}
        self.rows = [
            {"id": f"q{number}", "video": clip, "question": "?", "answer": "yes", "format": "open_ended"}
            for number, clip in enumerate(self.clips)
        ]
        self._number = 0

    def write(self) -> Path:
        self._number += 1
        root = self.folder / str(self._number)
        (root / "train/videos").mkdir(parents=True)
        for part, members in self.parts.items():
            with tarfile.open(root / f"train/videos/{part}.tar", "w") as tar:
                for clip in members:
                    info = tarfile.TarInfo(clip)
                    info.size = len(self.clips[clip])
                    tar.addfile(info, io.BytesIO(self.clips[clip]))
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        (root / "train/annotations.jsonl").write_text(text)
        return root


def recording(names: list[str]) -> Any:
    """A reporter that adds to `names` the clips that are decoded."""
    from flows.console import Reporter

    class Recording(Reporter):
        def clip(self, clip: str, *, decoded: bool, **amounts: Any) -> None:
            super().clip(clip, decoded=decoded, **amounts)
            if decoded:
                names.append(clip)

    return Recording()


class World:
    """A source on a Hub, and an output that is prepared of it."""

    def __init__(self, folder: Path, source: Source, hub: FaultyHub) -> None:
        self.out, self.source, self.hub = folder / "out", source, hub
        self.decoded: list[str] = []
        """Clips that the last run decoded."""

    def run(self, name: str) -> dict[str, Any]:
        from flows.console import use
        from flows.prepare import prepare
        from flows.refresh import refresh

        self.decoded = []
        use(recording(self.decoded))
        try:
            if name == "refresh":
                return refresh(str(self.out), workers=2, endpoint=self.hub.endpoint)
            return prepare("hf://datasets/demo/GRASP", str(self.out), workers=2, endpoint=self.hub.endpoint)
        finally:
            use(None)

    def refresh(self) -> dict[str, Any]:
        self.hub.publish(self.source.write())
        self.hub.log.clear()
        return self.run("refresh")

    def fetched(self) -> list[str]:
        return sorted({r.path for r in self.hub.log if (r.where, r.method) == ("hub", "GET")})

    def table(self, name: str) -> list[dict[str, Any]]:
        return pq.read_table(self.out / "current/manifests" / f"{name}.parquet").to_pylist()  # type: ignore[no-any-return]

    def files(self) -> dict[str, tuple[int, int]]:
        paths = (path for path in (self.out / "snapshots").rglob("*") if path.is_file())
        return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}

    def problems(self) -> list[str]:
        return [str(problem) for problem in verify_snapshot((self.out / "current").resolve())[1]]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, prefect_server: None) -> Path:
    """An output that was prepared once; each test works on a copy."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "clips").mkdir()
    source = Source(folder / "source", media.ClipFolder(folder / "clips"))
    with FaultyHub(source.write()) as hub:
        World(folder, source, hub).run("prepare")
    return folder


@pytest.fixture
def world(prepared: Path, tmp_path: Path) -> Iterator[World]:
    source = Source(tmp_path / "source", media.ClipFolder(prepared / "clips"))
    shutil.copytree(prepared / "out", tmp_path / "out", symlinks=True)
    with FaultyHub(source.write()) as hub:
        yield World(tmp_path, source, hub)


def test_nothing_changed(world: World) -> None:
    before = world.files()
    totals = world.refresh()
    assert totals["changed"] == "nothing"
    assert len(world.hub.log) == 1, world.hub.log
    assert world.files() == before


def test_rows_alone_changed(world: World) -> None:
    shard = next((world.out / "current/train").glob("p1-*.tar")).read_bytes()
    world.source.rows[0]["answer"] = "no"
    world.refresh()
    assert world.fetched() == ["train/annotations.jsonl"]
    assert world.decoded == []
    assert {row["id"]: row["answer"] for row in world.table("questions")}["q0"] == "no"
    assert next((world.out / "current/train").glob("p1-*.tar")).read_bytes() == shard
    assert world.problems() == []


def test_a_clip_of_one_part_changed(world: World) -> None:
    world.source.clips["s/b.mp4"] = world.source.clips["s/d.mp4"]
    world.refresh()
    assert world.fetched() == ["train/videos/p0.tar"]
    assert world.decoded == ["s/b.mp4"]
    assert world.problems() == []


def test_a_part_with_another_order_of_members(world: World) -> None:
    world.source.parts["p0"].reverse()
    world.refresh()
    assert (world.fetched(), world.decoded) == (["train/videos/p0.tar"], [])
    assert world.problems() == []


def test_a_renamed_part_is_not_fetched(world: World) -> None:
    world.source.parts["p9"] = world.source.parts.pop("p1")
    totals = world.refresh()
    assert (world.fetched(), world.decoded, totals["warnings"]) == ([], [], [])
    assert {row["shard"].split("-")[0] for row in world.table("shards")} == {"train/p0", "train/p9"}
    assert world.problems() == []


def test_a_removed_part_is_named(world: World) -> None:
    del world.source.parts["p1"]
    world.source.rows = world.source.rows[:2]
    totals = world.refresh()
    assert totals["warnings"] == ["part-removed-upstream: train/videos/p1.tar"]
    assert json.loads((world.out / "current/dataset.json").read_text())["warnings"] == [
        ["part-removed-upstream", "train/videos/p1.tar"]
    ]
    assert {row["clip"] for row in world.table("clips")} == {"s/a.mp4", "s/b.mp4"}


def test_a_row_in_another_case_of_letters_is_found_and_named(world: World) -> None:
    world.source.rows[2]["video"] = "s/C.MP4"
    world.refresh()
    warnings = {row["member"]: row["warnings"] for row in world.table("clips")}
    assert warnings["s/c.mp4"] == ["path-case"]
    assert world.problems() == []


def test_a_work_folder_that_is_lost_costs_downloads_not_frames(world: World) -> None:
    shutil.rmtree(world.out / "work")
    world.source.rows[0]["answer"] = "no"
    world.refresh()
    assert len(world.fetched()) == 3
    assert world.decoded == []


def test_what_the_dry_run_says(world: World) -> None:
    from flows.changes import diff_of_source, plan_refresh

    world.source.parts = {"p9": PARTS["p1"], "p0": ["s/a.mp4"]}
    world.hub.publish(world.source.write())
    plan = plan_refresh(world.out, endpoint=world.hub.endpoint)
    diff = diff_of_source(plan, endpoint=world.hub.endpoint)
    assert not plan.is_current
    assert (diff.added, diff.removed, diff.changed) == ((), (), ("train/videos/p0.tar",))
    assert diff.renamed == {"train/videos/p1.tar": "train/videos/p9.tar"}


def repair(world: World) -> None:
    from flows.console import use
    from flows.prepare import prepare
    from flows.verifying import mend_options, verify_output

    _, problems = verify_output(world.out)
    assert problems
    world.decoded = []
    use(recording(world.decoded))
    try:
        prepare(out=str(world.out), endpoint=world.hub.endpoint, **mend_options(world.out, problems))
    finally:
        use(None)


@pytest.mark.parametrize("damage", ["flip", "cut", "lose"])
def test_only_a_damaged_shard_is_made_again(world: World, damage: str) -> None:
    snapshot = (world.out / "current").resolve()
    content = {path.name: path.read_bytes() for path in (snapshot / "train").glob("*.tar")}
    others = {path: path.stat().st_ino for path in snapshot.rglob("*") if not path.name.startswith("p1-")}
    shard = next((snapshot / "train").glob("p1-*.tar"))
    if damage == "lose":
        shard.unlink()
    else:
        shard.write_bytes(shard.read_bytes()[:-512] if damage == "cut" else b"x" + shard.read_bytes()[1:])
    clips = {row["clip"] for row in world.table("views") if row["shard"] == f"train/{shard.name}"}
    world.hub.publish(Source(world.out / "elsewhere", media.ClipFolder(world.source.clip_folder)).write())
    repair(world)
    assert set(world.decoded) <= clips
    assert world.problems() == []
    assert (world.out / "current").resolve() == snapshot
    assert {path.name: path.read_bytes() for path in (snapshot / "train").glob("*.tar")} == content
    assert all(path.stat().st_ino == inode for path, inode in others.items())


def test_lost_tables_and_pages_are_made_again_without_decoding(world: World) -> None:
    snapshot = (world.out / "current").resolve()
    (snapshot / "manifests/views.parquet").write_bytes(b"no table")
    (snapshot / "README.md").unlink()
    repair(world)
    assert (world.decoded, world.problems()) == ([], [])
    assert (world.out / "current").resolve() == snapshot


@pytest.mark.parametrize("faults", [[], [Fault("norange")] * 4], ids=["ranges", "no ranges"])
def test_views_are_decoded_again_out_of_a_part_that_is_not_here(world: World, faults: list[Fault]) -> None:
    from flows.verifying import verify_output

    shutil.rmtree(world.out / "work/downloads")
    for part in PARTS:
        world.hub.queue("cdn", f"train/videos/{part}.tar", *faults)
        world.hub.queue("hub", f"train/videos/{part}.tar", *faults)
    checked, problems = verify_output(world.out, decode=100, endpoint=world.hub.endpoint)
    assert (checked["views decoded again"], problems) == (4, [])
    ranges = [request.range for request in world.hub.log if request.range and request.where == "hub"]
    assert len(ranges) == 4, "each clip is fetched alone"


def test_a_reader_of_the_old_snapshot_reads_it_to_the_end(world: World) -> None:
    import webdataset

    from manifests.gc import collect_garbage

    old = (world.out / "current").resolve()
    shards = sorted(str(path) for path in (old / "train").glob("*.tar"))
    wanted = {row["view"] for row in world.table("views")}
    samples = iter(webdataset.WebDataset(shards, shardshuffle=False).decode())
    read = {next(samples)["__key__"]}
    world.source.rows[0]["answer"] = "no"
    world.refresh()
    collect_garbage(world.out, keep=2)
    assert (world.out / "current").resolve() != old
    read |= {sample["__key__"] for sample in samples}
    assert read == wanted


def test_what_a_dead_run_left_half_done_is_swept(world: World) -> None:
    orphans = [
        world.out / "work" / name for name in ("shards/train/x.frames/k.mp", "shards/train/x.tar.tmp", "staging/x")
    ]
    for path in orphans:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    world.run("prepare")
    assert not any(path.exists() for path in orphans)
