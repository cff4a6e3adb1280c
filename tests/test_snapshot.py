"""Snapshots of real shards: every row is in a table or in the quarantine; published once, by one rename."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import media
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clipshards import advice
from clipshards.annotations import Questions
from clipshards.errors import OutputInUseError, UsageError
from clipshards.examples import Examples, Shown, Window
from clipshards.output import current_snapshot
from clipshards.plan import assign_clips, plan_shards, plan_split
from clipshards.rendering import render_clip
from clipshards.sampling import GRASP_TRAIN
from clipshards.schema import EXAMPLE_COLUMNS, QUESTION_COLUMNS, REASONS, SCHEMA_VERSION, TABLES, Reject
from clipshards.shards import Encoding, PartOnDisk, make_shard
from clipshards.tars import index_tar
from manifests.card import quarantine_page
from manifests.lock import hold_output
from manifests.rows import RowsOfViews
from manifests.snapshot import Provenance, RunRecord, publish, write_table, write_tables
from manifests.tables import Manifest, PartRecord, SplitResult, build_manifest, rows_by_clip

PART = "train/part000.tar"
MEMBERS = {
    "s/a.mp4": "h264_short_gop",
    "s/broken.mp4": "no_moov",
    "s/b.webm": "vp9",
    "t/c.webm": "vp9",
    "s/unused.mp4": "h264_short_gop",
}
EXAMPLES: list[tuple[Shown, int]] = [
    ((Window("s/a.mp4", 0.0, 2.0),), 0),
    ((Window("s/a.mp4", 0.0, 2.0),), -1),
    ((Window("s/b.webm", 0.4, 2.4), Window("s/a.mp4", 0.0, 1.0)), -1),
    ((Window("s/a.mp4", 0.0, 30.0),), -1),
    ((Window("s/broken.mp4", 0.0, 1.0),), 2),
    ((Window("s/gone.mp4", 0.0, 1.0),), 3),
    (tuple(Window("s/a.mp4", 0.0, 1.0) for _ in range(300)), 0),
]
"""(windows, row of the question); line 8 is rejected when it is read."""
QUESTION_CLIPS = ["s/a.mp4", "t/c.webm", "s/broken.mp4", "s/gone.mp4"]
ITEM_CLIPS = ["t/c.webm", "s/gone.mp4"]
PROVENANCE = Provenance(
    "hf://datasets/x/y", "0123456789abcdef" * 2, "grasp", "CC", {}, 95, "now", "cpu", {}, {}, {}
)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuple[SplitResult, list[Reject], Path]:
    return make_result(tmp_path_factory.mktemp("result"))


@pytest.fixture(scope="module")
def manifest(result: tuple[SplitResult, list[Reject], Path]) -> Manifest:
    return build_manifest([result[0]], result[1])


def make_result(folder: Path) -> tuple[SplitResult, list[Reject], Path]:
    """One split of a part with good, broken and unused clips and a link: (it, rejects, folder of the shards)."""
    (folder / "clips").mkdir()
    clips = media.ClipFolder(folder / "clips")
    path = folder / "part.tar"
    with tarfile.open(path, "w") as tar:
        for name, clip in MEMBERS.items():
            tar.add(clips(clip), name)
        link = tarfile.TarInfo("s/link.mp4")
        link.type, link.linkname = tarfile.SYMTYPE, "elsewhere.mp4"
        tar.addfile(link)
    index = index_tar(path, part=PART)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    examples, questions, items = _examples(), _questions("annotations.jsonl", QUESTION_CLIPS), _items()
    of_example = [question for _, question in EXAMPLES]
    plan = plan_split("train", GRASP_TRAIN, examples, [*QUESTION_CLIPS, *ITEM_CLIPS])
    assignment = assign_clips(plan.views, {PART: index.members})
    part = PartOnDisk(PART, path, sha256, assignment.of_part(PART))
    rows = RowsOfViews(plan, examples, questions, items, of_example)
    shards = [
        make_shard(
            shard,
            part,
            Encoding(GRASP_TRAIN, 95),
            rows.of(shard.all_views()),
            render=lambda jobs: map(render_clip, jobs),
            folder=folder / "shards",
        )
        for shard in plan_shards(plan, PART, part.members, 1_000_000)
    ]
    record = PartRecord(PART, "train", path.stat().st_size, sha256, index.members)
    split = SplitResult(plan, questions, items, examples, of_example, assignment, [record], shards)
    return split, list(index.rejects), folder / "shards"


def _examples() -> Examples:
    rows = [
        {
            "file": "sft.jsonl",
            "line": number,
            "id": f"e{number}",
            "stage": "sft",
            "clip": shown[0].clip,
            "start_seconds": shown[0].start_seconds,
            "end_seconds": shown[0].end_seconds,
            "fps_from_row": 2.0,
            "height_from_row": media.HEIGHT if number == 1 else 7,
            "width_from_row": media.WIDTH,
            "target": "A",
            "warnings": [],
        }
        for number, (shown, _) in enumerate(EXAMPLES, 1)
    ]
    rejects = [Reject("example", "sft.jsonl", "row-not-json", "no JSON", line=8)]
    return Examples(pa.Table.from_pylist(rows, EXAMPLE_COLUMNS), [shown for shown, _ in EXAMPLES], rejects, 8)


def _questions(file: str, clips: list[str]) -> Questions:
    rows = [
        {
            "file": file,
            "line": number,
            "id": f"{file[0]}{number}",
            "clip": clip,
            "source": "of the row",
            "category_canonical": "C",
            "question": f"What of {clip}?",
        }
        for number, clip in enumerate(clips, 1)
    ]
    table = pa.Table.from_pylist(rows, QUESTION_COLUMNS)
    rejects = [Reject("row", file, "duplicate-id", "a1", line=len(clips) + 1)]
    return Questions(table, rejects, len(clips) + 1)


def _items() -> Questions:
    items = _questions("bench.jsonl", ITEM_CLIPS)
    return replace(items, rejects=[], num_lines=len(ITEM_CLIPS))


def _rows(manifest: Manifest, table: str) -> list[dict[str, Any]]:
    return manifest.tables[table].to_pylist()


def _shards_of(result: tuple[SplitResult, list[Reject], Path]) -> tuple[Any, Path]:
    return result[0].shards, result[2]


# -- tables


def test_rows_by_clip_keep_splits_together_and_equal_clips_in_order() -> None:
    splits, clips = ["train"] * 5 + ["test"] * 2, ["b", "a", "é", "b", "z", "z", "a"]
    assert rows_by_clip(pa.table({"split": splits, "clip": clips})).tolist() == [1, 0, 3, 4, 2, 6, 5]
    assert rows_by_clip(TABLES["questions"].empty_table()).tolist() == []


def test_written_rows_are_sorted_by_clip(manifest: Manifest, tmp_path: Path) -> None:
    write_tables(manifest.tables, tmp_path)
    for name in ("clips", "views", "examples", "questions", "bench"):
        rows = pq.read_table(tmp_path / f"{name}.parquet").to_pylist()
        assert rows == sorted(manifest.tables[name].to_pylist(), key=lambda row: row["clip"])


def test_tables_have_their_columns(manifest: Manifest) -> None:
    assert list(manifest.tables) == list(TABLES)
    for name, table in manifest.tables.items():
        assert table.schema.equals(TABLES[name]), name
        table.validate(full=True)


@pytest.mark.parametrize(
    ("table", "file", "num_lines"), [("examples", "sft.jsonl", 8), ("questions", "annotations.jsonl", 5)]
)
def test_every_row_is_in_its_table_or_in_the_quarantine(
    manifest: Manifest, table: str, file: str, num_lines: int
) -> None:
    kept = [row["line"] for row in _rows(manifest, table)]
    lost = [row["line"] for row in _rows(manifest, "quarantine") if row["path"] == file]
    assert sorted(kept + lost) == list(range(1, num_lines + 1))
    assert kept


def test_quarantine_says_why(manifest: Manifest) -> None:
    rows = _rows(manifest, "quarantine")
    assert {row["reason"] for row in rows} <= set(REASONS)
    found = Counter((row["kind"], row["line"], row["clip"], row["reason"]) for row in rows)
    assert found == Counter(
        [
            ("member", None, None, "link-member"),
            ("clip", None, "s/broken.mp4", "moov-missing"),
            ("view", None, "s/a.mp4", "end-beyond-video"),
            ("example", 4, "s/a.mp4", "end-beyond-video"),
            ("example", 5, "s/broken.mp4", "moov-missing"),
            ("example", 6, "s/gone.mp4", "clip-missing"),
            ("example", 7, "s/a.mp4", "too-many-videos"),
            ("example", 8, None, "row-not-json"),
            ("row", 3, "s/broken.mp4", "moov-missing"),
            ("row", 4, "s/gone.mp4", "clip-missing"),
            ("row", 5, None, "duplicate-id"),
            ("item", 2, "s/gone.mp4", "clip-missing"),
        ]
    )
    assert manifest.reasons == dict(Counter(row["reason"] for row in rows))
    of_kind = {row["kind"]: row for row in rows}
    assert (of_kind["clip"]["num_rows"], of_kind["clip"]["num_examples"]) == (1, 1)
    assert of_kind["view"]["num_examples"] == 1
    assert of_kind["item"]["member"] == "b2"
    member = next(row for row in _rows(manifest, "clips") if row["clip"] == "s/broken.mp4")
    assert of_kind["clip"]["offset_bytes"] == member["offset_bytes"] > 0


def test_counts_and_the_share_that_is_lost(manifest: Manifest) -> None:
    counts = manifest.counts
    assert {name: counts[name] for name in TABLES} == {
        name: table.num_rows for name, table in manifest.tables.items()
    }
    assert (counts["examples"], counts["questions"], counts["bench"], counts["views"]) == (3, 2, 1, 4)
    assert (counts["input_rows"], counts["rejected_rows"], counts["rows_left_out"]) == (8 + 5 + 2, 5 + 3 + 1, 0)
    assert (counts["clips_with_views"], counts["rejected_clips"]) == (3, 2)
    assert counts["unlinked_examples"] == 3
    assert counts["frames"] == sum(row["num_frames"] for row in _rows(manifest, "views"))
    assert counts["shard_bytes"] == sum(row["size_bytes"] for row in _rows(manifest, "shards"))
    assert manifest.rejected_share() == max(2 / 5, 9 / 15)


def test_rows_of_a_selection_are_left_out_not_lost(result: tuple[SplitResult, list[Reject], Path]) -> None:
    manifest = build_manifest([replace(result[0], is_selection=True)], result[1])
    counts = manifest.counts
    assert (counts["input_rows"], counts["rejected_rows"], counts["rows_left_out"]) == (12, 6, 3)
    assert (counts["clips_with_views"], counts["rejected_clips"]) == (3, 1)
    assert manifest.rejected_share() == 6 / 12
    assert "clip-missing" not in manifest.reasons


def test_clips_are_listed_with_what_became_of_them(manifest: Manifest) -> None:
    rows = _rows(manifest, "clips")
    assert [(row["clip"], row["status"], row["reason"], row["num_views"]) for row in rows] == [
        ("s/a.mp4", "sharded", None, 2),
        ("s/b.webm", "sharded", None, 1),
        ("s/broken.mp4", "rejected", "moov-missing", 0),
        ("s/unused.mp4", "unused", None, 0),
        ("t/c.webm", "sharded", None, 1),
    ]
    assert [row["source"] for row in rows] == ["s", "s", "s", "s", "t"]
    assert [row["num_frames"] for row in rows] == [60, 60, None, None, 60]
    (part,) = _rows(manifest, "parts")
    assert (part["num_members"], part["num_clips"]) == (5, 4)
    assert part["num_shards"] == len(_rows(manifest, "shards")) > 1


def test_rows_lead_to_their_frames(manifest: Manifest) -> None:
    views = {row["view"]: row for row in _rows(manifest, "views")}
    examples = {row["line"]: row for row in _rows(manifest, "examples")}
    for row in [*examples.values(), *_rows(manifest, "questions"), *_rows(manifest, "bench")]:
        view = views[row["view"]]
        place = ("shard", "offset_bytes", "length_bytes")
        assert [row[name] for name in place] == [view[name] for name in place]
        assert view["clip"] == row["clip"]
    assert examples[1]["view"] == examples[2]["view"]
    assert (examples[1]["start_seconds"], examples[1]["end_seconds"]) == (0.0, 2.0)
    (more,) = examples[3]["more_views"]
    assert views[more]["clip"] == "s/a.mp4"
    both = [views[examples[3]["view"]], views[more]]
    assert examples[3]["num_frames"] == sum(view["num_frames"] for view in both) == 6
    assert examples[3]["video_tokens"] == sum(view["video_tokens"] for view in both)
    assert [examples[line]["warnings"] for line in (1, 2)] == [[], ["resolution-stale"]]


def test_examples_and_items_know_their_question(manifest: Manifest) -> None:
    examples = {row["line"]: row for row in _rows(manifest, "examples")}
    assert [(examples[line]["question_id"], examples[line]["source"]) for line in (1, 2)] == [
        ("a1", "of the row"),
        (None, "s"),
    ]
    questions = {row["id"]: row for row in _rows(manifest, "questions")}
    assert questions["a1"]["view"] == examples[1]["view"]
    assert {name: row["num_examples"] for name, row in questions.items()} == {"a1": 1, "a2": 0}
    (item,) = _rows(manifest, "bench")
    assert (item["id"], item["question_id"], item["view"]) == ("b1", "a2", questions["a2"]["view"])


# -- files


def test_empty_tables_keep_their_columns(tmp_path: Path) -> None:
    write_tables({name: schema.empty_table() for name, schema in TABLES.items()}, tmp_path)
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(TABLES)
    for name, schema in TABLES.items():
        table = pq.read_table(tmp_path / f"{name}.parquet")
        assert table.schema.equals(schema)
        assert table.num_rows == 0
        assert table.schema.metadata == {b"clipshards_schema_version": str(SCHEMA_VERSION).encode()}


def test_equal_tables_give_equal_bytes(manifest: Manifest, tmp_path: Path) -> None:
    write_tables(manifest.tables, tmp_path / "1")
    write_tables(manifest.tables, tmp_path / "2")
    in_pieces = {
        name: pa.concat_tables([table.slice(0, 1), table.slice(1)]) for name, table in manifest.tables.items()
    }
    write_tables(in_pieces, tmp_path / "3")
    for name, table in manifest.tables.items():
        one, two, three = ((tmp_path / folder / f"{name}.parquet").read_bytes() for folder in "123")
        assert one == two == three, name
        assert pq.read_table(tmp_path / "1" / f"{name}.parquet").equals(table)


def test_snapshot_holds_what_it_says(
    result: tuple[SplitResult, list[Reject], Path], manifest: Manifest, tmp_path: Path
) -> None:
    shards, shard_folder = _shards_of(result)
    snapshot = publish(tmp_path, manifest, shards, shard_folder, PROVENANCE)
    dataset = json.loads((snapshot / "dataset.json").read_text(encoding="utf-8"))
    files = {path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()}
    assert files == {*dataset["files"], "dataset.json", "report.html"}
    for name, told in dataset["files"].items():
        content = (snapshot / name).read_bytes()
        assert told == {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert dataset["counts"] == manifest.counts
    assert (dataset["commit"], dataset["schema_version"]) == (PROVENANCE.commit, SCHEMA_VERSION)
    assert {name for name in files if name.endswith(".tar")} == {info.path for info in shards if info.samples}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["current", "snapshots", "work"]
    assert list((tmp_path / "work").iterdir()) == []


def test_current_is_a_relative_link_to_the_newest(
    result: tuple[SplitResult, list[Reject], Path], manifest: Manifest, tmp_path: Path
) -> None:
    shards, shard_folder = _shards_of(result)
    out = tmp_path / "out"
    first = publish(out, manifest, shards, shard_folder, PROVENANCE)
    inode = (first / "dataset.json").stat().st_ino
    assert publish(out, manifest, shards, shard_folder, PROVENANCE) == first
    assert (first / "dataset.json").stat().st_ino == inode
    assert first.name.startswith(PROVENANCE.commit[:12])
    second = publish(out, manifest, shards[:1], shard_folder, replace(PROVENANCE, commit="f" * 40))
    assert second != first
    assert (first / "dataset.json").is_file()
    assert not (out / "current").readlink().is_absolute()
    out.rename(tmp_path / "moved")
    assert current_snapshot(tmp_path / "moved") == (tmp_path / "moved" / "snapshots" / second.name).resolve()
    older = tmp_path / "moved" / "snapshots" / first.name
    assert current_snapshot(older) == older.resolve()


def test_a_snapshot_that_is_there_keeps_its_page_and_numbers(
    result: tuple[SplitResult, list[Reject], Path], manifest: Manifest, tmp_path: Path
) -> None:
    shards, shard_folder = _shards_of(result)
    run = RunRecord("2026-01-01T00:00:00+00:00", 1.5, 4, 2, {}, 3, {}, 1000)
    snapshot = publish(tmp_path, manifest, shards, shard_folder, PROVENANCE, run=run)
    before = {name: (snapshot / name).read_bytes() for name in ("report.html", "run.json", "dataset.json")}
    assert json.loads(before["run.json"])["workers"] == 2
    assert b"on 4 cores" in before["report.html"]
    failed = manifest.counts["rejected_clips"]
    assert (
        f"{failed} of {failed + manifest.counts['clips_with_views']} clips failed".encode() in before["report.html"]
    )
    assert sum(map(int, re.findall(rb"<strong>(\d+) clips?</strong>", before["report.html"]))) == failed
    other = replace(run, workers=9)
    assert publish(tmp_path, manifest, shards, shard_folder, PROVENANCE, run=other) == snapshot
    assert {name: (snapshot / name).read_bytes() for name in before} == before


def test_a_page_that_cannot_be_made_costs_nothing_else(
    result: tuple[SplitResult, list[Reject], Path],
    manifest: Manifest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shards, shard_folder = _shards_of(result)
    with_page = publish(tmp_path / "1", manifest, shards, shard_folder, PROVENANCE)
    monkeypatch.setitem(sys.modules, "clipshards.report.page", None)  # as where matplotlib is not installed
    said: list[str] = []
    without = publish(tmp_path / "2", manifest, shards, shard_folder, PROVENANCE, say=said.append)
    assert len(said) == 1 and "clipshards.report.page" in said[0] and "`clipshards report OUT` makes it" in said[0]
    assert not list(without.glob("report.html*"))
    assert without.name == with_page.name and current_snapshot(tmp_path / "2") == without.resolve()
    assert (without / "dataset.json").read_bytes() == (with_page / "dataset.json").read_bytes()


def test_killed_publication_leaves_the_old_snapshot_current(
    result: tuple[SplitResult, list[Reject], Path], manifest: Manifest, tmp_path: Path
) -> None:
    shards, shard_folder = _shards_of(result)
    first = publish(tmp_path, manifest, shards, shard_folder, PROVENANCE)
    (tmp_path / "work" / "staging" / "train").mkdir(parents=True)
    (tmp_path / "work" / "staging" / "train" / "half.tar").write_bytes(b"half")
    (tmp_path / "current.new").symlink_to("nowhere")
    assert current_snapshot(tmp_path) == first.resolve()
    second = publish(tmp_path, manifest, shards, shard_folder, replace(PROVENANCE, commit="e" * 40))
    assert current_snapshot(tmp_path) == second.resolve()
    assert not (second / "train" / "half.tar").exists()
    assert not (tmp_path / "current.new").is_symlink()


def test_nothing_published(tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "current").symlink_to("snapshots/gone")
    for out in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError):
            current_snapshot(out)


# -- the lock

_HOLD = """
import sys, time
from pathlib import Path
from manifests.lock import hold_output
with hold_output(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def _start_holder(out: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(out)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_output_is_held_by_one_process_until_it_is_killed(tmp_path: Path) -> None:
    with _start_holder(tmp_path / "out") as process:
        try:
            with pytest.raises(OutputInUseError, match=str(process.pid)):
                with hold_output(tmp_path / "out"):
                    pass
            with hold_output(tmp_path / "other"):
                pass
        finally:
            os.kill(process.pid, signal.SIGKILL)
    with hold_output(tmp_path / "out"):
        pass


def _try_to_hold(out: Path) -> str:
    try:
        with hold_output(out):
            return "held"
    except OutputInUseError:
        return "in use"


def test_second_process_is_told(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with hold_output(tmp_path):
            assert pool.apply(_try_to_hold, (tmp_path,)) == "in use"
        assert pool.apply(_try_to_hold, (tmp_path,)) == "held"
        with pytest.raises(KeyError):
            with hold_output(tmp_path):
                raise KeyError
        assert pool.apply(_try_to_hold, (tmp_path,)) == "held"


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "odd" / "work" / "lock").mkdir(parents=True)
    for out in (tmp_path / "file", tmp_path / "file" / "out", tmp_path / "odd", Path("/proc/out")):
        with pytest.raises(UsageError):
            with hold_output(out):
                pass


def test_the_page_of_the_quarantine_names_each_cause_once(manifest: Manifest) -> None:
    page = quarantine_page(manifest)
    assert "| moov-missing | An MP4 without its index (moov box)" in page
    assert f"## moov-missing\n\n{advice.REASONS['moov-missing']}\n\n- " in page
    assert page.count("`s/broken.mp4`") == 1, "the rows of a lost clip are counted, not listed"
    assert re.search(r"^\| clip-missing \| .* \| 1 \| \d+ \| \d+ \|$", page, re.M), "one clip, however many rows"
    assert "example in `sft.jsonl`, line 8: `no JSON`" in page
    nothing = replace(manifest, tables={**manifest.tables, "quarantine": manifest.tables["quarantine"].slice(0, 0)})
    assert "Nothing was left out" in quarantine_page(nothing)


def test_text_of_the_data_cannot_break_out_of_the_page(manifest: Manifest) -> None:
    row = {"kind": "row", "reason": "bad-meta", "detail": "`<script>`\n# title", "path": "a.jsonl", "line": 1}
    table = pa.Table.from_pylist([row], TABLES["quarantine"])
    page = quarantine_page(replace(manifest, tables={**manifest.tables, "quarantine": table}))
    assert "row in `a.jsonl`, line 1: `'<script>' # title`" in page


def test_row_groups_are_small_by_bytes_too(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    texts = ["x" * size for size in (10, 5_000, 10, 10, 20_000, 10, 3_000)]
    table = pa.table({"id": range(7), "text": texts}, schema)
    write_table(table, tmp_path / "t.parquet", schema, row_group_bytes=6_000)
    file = pq.ParquetFile(tmp_path / "t.parquet")
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    assert all(group.num_rows == 1 or group.nbytes <= 6_000 for group in groups) and len(groups) > 2
    assert pa.concat_tables(groups).equals(table)


def test_items_and_annotation_rows_of_a_bench_are_compared(result: tuple[SplitResult, list[Reject], Path]) -> None:
    bench = replace(result[0], item_folder="json/")
    num_rows, num_items = bench.questions.num_lines, bench.items.num_lines
    sentence = f"train: {num_rows} annotation rows, {num_items} items in the parts"
    assert build_manifest([bench]).warnings == [("row-count-differs", sentence)]
    assert build_manifest([replace(bench, is_selection=True)]).warnings == []
    assert build_manifest([result[0]]).warnings == []
