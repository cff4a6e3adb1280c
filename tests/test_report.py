"""The page of a snapshot without a browser: its numbers, its sizes, what it escapes, and how it is had."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from markupsafe import escape

from clipshards.report import PAGE, RUN
from clipshards.report.drawing import Panel, draw_bars
from clipshards.report.explorer import FIELDS, Explorer, Thumbnails, read_events, to_json
from clipshards.report.facts import MAX_GROUPS, NO_NAME, Facts, count_letters, describe_balance, read_facts
from clipshards.report.page import MAX_QUARANTINE_ROWS, MIN_EXAMPLES, render
from clipshards.report.pictures import draw_pictures
from clipshards.report.server import MAX_LIMIT, PageServer
from clipshards.schema import REASONS, TABLES
from clipshards.verify import read_frames, verify_snapshot
from manifests.snapshot import write_tables

pytestmark = pytest.mark.flow

CLIPSHARDS = Path(sys.executable).with_name("clipshards")
MAX_BYTES = 8_000_000
SMALL = Thumbnails(3, 64)


@pytest.fixture(scope="session")
def facts(demo_snapshot: Path) -> Facts:
    return read_facts(demo_snapshot)


@pytest.fixture(scope="session")
def explorer(demo_snapshot: Path) -> Explorer:
    return Explorer(demo_snapshot)


def rows(snapshot: Path, name: str) -> list[dict[str, Any]]:
    return list(pq.read_table(snapshot / f"manifests/{name}.parquet").to_pylist())


# -- what publication leaves


def test_a_run_leaves_its_page_and_its_numbers(demo_snapshot: Path) -> None:
    dataset = json.loads((demo_snapshot / "dataset.json").read_text())
    assert not {PAGE, RUN} & set(dataset["files"]), "they hold seconds, which differ between two runs"
    run = json.loads((demo_snapshot / RUN).read_text())
    assert run["stages"].keys() == {"fetch", "index", "decode"}
    assert run["stages"]["decode"]["bytes"] == dataset["counts"]["shard_bytes"]
    assert run["workers"] == 2 and run["decoded_clips"] == 35 and run["seconds"] > 0
    assert "/" not in (demo_snapshot / RUN).read_text(), "no path"
    assert verify_snapshot(demo_snapshot)[1] == []
    page = (demo_snapshot / PAGE).read_text(encoding="utf-8")
    assert dataset["commit"] in page and "35 are here" in page
    assert str(Path(dataset["source"]).parent) not in page, "where somebody's folders are is his business"
    assert len(page.encode()) < MAX_BYTES


def test_equal_snapshots_give_equal_pages(demo_snapshot: Path) -> None:
    assert render(demo_snapshot) == (demo_snapshot / PAGE).read_text(encoding="utf-8")


# -- numbers


def test_groups_count_what_the_tables_say(demo_snapshot: Path, facts: Facts) -> None:
    examples, bench = rows(demo_snapshot, "examples"), rows(demo_snapshot, "bench")
    seconds = {(row["split"], row["clip"]): row["duration_seconds"] for row in rows(demo_snapshot, "clips")}
    for group in facts.groups["category"]:
        name = None if group.name == NO_NAME else group.name
        mine = [row for row in examples if row["category"] == name]
        items = [row for row in bench if row["category_canonical"] == name]
        clips = {(row["split"], row["clip"]) for row in [*mine, *items]}
        assert (group.examples, group.items, group.clips) == (len(mine), len(items), len(clips))
        assert group.hours == pytest.approx(sum(seconds[clip] for clip in clips) / 3600)
    assert [group.name for group in facts.groups["difficulty"]] == ["easy", "medium", "hard"]
    assert sum(group.examples + group.items for group in facts.groups["source"]) == len(examples) + len(bench)
    assert (len(facts.clip_seconds), len(facts.frames)) == (35, 70)


def test_many_groups_become_one(demo_snapshot: Path, tmp_path: Path) -> None:
    copy = copy_tables(demo_snapshot, tmp_path)
    change(copy, "examples", "source", pa.array([f"s{number}" for number in range(175)]))
    groups = read_facts(copy).groups["source"]
    assert len(groups) == MAX_GROUPS + 1
    assert groups[-1].name == f"{175 + 1 - MAX_GROUPS} others"
    assert sum(group.examples for group in groups) == 175


def letters(answers: list[int | None], options: list[int]) -> pa.Table:
    texts = pa.array([["x"] * count for count in options], pa.list_(pa.string()))
    return pa.table({"answer_index": pa.array(answers, pa.int32()), "options": texts})


def test_balance() -> None:
    even = count_letters(letters([0, 1, 2, 3] * 250, [4] * 1000))
    assert even.counts == (250,) * 4 and even.expected == pytest.approx((250,) * 4)
    assert describe_balance(even).startswith("Balanced")
    skewed = count_letters(letters([0] * 400 + [1, 2, 3] * 200, [4] * 1000))
    assert "A is right 40% of the time, chance gives 25%" in describe_balance(skewed)
    two_and_four = count_letters(letters([0, 1, 2, 3, 0, 1], [4, 4, 4, 4, 2, 2]))
    assert two_and_four.expected == pytest.approx((2, 2, 1, 1)), "C and D cannot answer a question with two options"
    assert "too few" in describe_balance(two_and_four)
    assert describe_balance(count_letters(letters([None], [4]))) == "No multiple-choice answers."


def test_a_picture_says_what_a_balance_is_of(facts: Facts) -> None:
    reading = draw_pictures(facts, {})[0].reading
    balance = facts.balances["training annotation rows"]
    assert f"{balance.total} of {balance.num_rows} training annotation rows have a letter" in reading
    assert "Not all questions have an option D: chance is lower there." in reading


def test_formats_are_those_of_training(facts: Facts, demo_snapshot: Path) -> None:
    assert sum(group.examples for group in facts.groups["format"]) == len(rows(demo_snapshot, "examples"))
    assert all(group.items == 0 for group in facts.groups["format"])


def test_matplotlib_is_imported_only_for_a_page() -> None:
    code = "import sys, flows.cli, manifests.snapshot, flows.showing; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# -- drawings


def test_a_drawing_has_no_style_no_id_and_is_the_same_each_time() -> None:
    panel = Panel("n", [1, 2], ["1", "2"], more=[1, 0], marks=[1, 1])
    drawing = draw_bars(["a", "b"], [panel])
    assert drawing == draw_bars(["a", "b"], [panel])
    for word in ("style=", " id=", "href", "<metadata", "font-family"):
        assert word not in drawing
    assert "var(--accent)" in drawing and "currentColor" in drawing
    assert not re.search(r"#[0-9a-f]{6}", drawing), "a colour of its own would not follow dark mode"


def test_labels_are_drawn_as_they_are() -> None:
    labels = ["$x^2$", "<b>&\"'", "a\x00b\nc", "手 🎬", "l" * 50, "\\frac{1}{0}$"]
    drawing = draw_bars(labels, [Panel("n", [1] * 6, ["1"] * 6)])
    for text in ("$x^2$", "&lt;b&gt;&amp;", "a b c", "手 🎬", "l" * 16 + "…", "\\frac{1}{0}$"):
        assert f">{text}" in drawing


# -- examples


def test_the_sample_has_each_combination(explorer: Explorer, demo_snapshot: Path) -> None:
    def combinations(table: pa.Table) -> set[tuple[str, ...]]:
        return {tuple(row.values()) for row in table.select(list(FIELDS)).to_pylist()}

    sample = explorer.sample(0)
    assert len(sample) == explorer.num_combinations()
    assert combinations(explorer.table.take(sample)) == combinations(explorer.table)
    page = (demo_snapshot / PAGE).read_text(encoding="utf-8")
    embedded = embedded_in(page)
    assert {tuple(e[field] for field in FIELDS) for e in embedded["examples"]} == combinations(explorer.table)


def test_an_example_says_what_its_row_says(explorer: Explorer, demo_snapshot: Path) -> None:
    number = explorer.find({"kind": "training", "category": "J3"})[0]
    shown = explorer.show([number], SMALL)
    example = shown["examples"][0]
    row = next(row for row in rows(demo_snapshot, "examples") if row["id"] == example["id"])
    question = next(q for q in rows(demo_snapshot, "questions") if q["id"] == row["question_id"])
    assert example["question"] == row["question"]
    assert example["options"] == question["options"]
    assert example["answer"] == question["options"][question["answer_index"]]
    events = [(e["source"], [f"P{p}" for p in e["persons"]], json.loads(e["extra"])) for e in row["gt_events"]]
    assert events and [
        (e["kind"], e["who"], {name: e[name] for name in ("start_seconds", "end_seconds", "target")})
        for e in example["events"]
    ] == events  # fmt: skip
    view = next(view for view in rows(demo_snapshot, "views") if view["view"] == row["view"])
    video = shown["videos"][row["view"]]
    assert (video["num_frames"], len(video["frames"]), video["height"]) == (view["num_frames"], 3, view["height"])
    assert example["from"]["offset_bytes"] == view["member_offset_bytes"]
    assert example["from"]["part"] == view["part"]


def test_events_without_times_and_odd_fields() -> None:
    def event(**fields: Any) -> dict[str, Any]:
        return {"source": "gaze", "persons": None, "extra": json.dumps(fields) if fields else None}

    odd = [event(), event(start_seconds="1", end_seconds=True), event(start_seconds=2.0, end_seconds=1.0, target=7)]
    plain, texts, reversed_span = read_events(odd)
    assert plain == {"kind": "gaze", "who": [], "start_seconds": None, "end_seconds": None, "target": ""}
    assert texts == plain
    assert (reversed_span["start_seconds"], reversed_span["end_seconds"]) == (2.0, None)


def test_a_damaged_shard_costs_its_examples_only(demo_snapshot: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(demo_snapshot, copy)
    shards = sorted(copy.glob("train/*.tar"))
    shards[0].unlink()
    shards[1].write_bytes(b"x" * shards[1].stat().st_size)
    whole = bytearray(shards[2].read_bytes())
    for place in range(len(whole) // 2, len(whole) - 10, 100):
        whole[place : place + 8] = b"\xff\xd8\xff\xd9\0\0\0\0"
    shards[2].write_bytes(whole)
    whole = bytearray(shards[3].read_bytes())
    whole[600:700] = b"\xff" * 100  # in the JSON of its first sample
    shards[3].write_bytes(whole)
    explorer = Explorer(copy)
    shown = explorer.show(range(explorer.table.num_rows), SMALL)["examples"]
    troubles = {example["trouble"] for example in shown if "trouble" in example}
    assert any("is damaged" in trouble for trouble in troubles)
    assert any("No such file" in trouble for trouble in troubles)
    assert any("run `clipshards verify OUT --repair`" in trouble for trouble in troubles)
    assert len(troubles) < len(shown) // 2
    assert "cannot be shown" in render(copy)


def test_a_contact_sheet(explorer: Explorer) -> None:
    sheet = explorer.contact_sheet()
    assert sheet.startswith("data:image/jpeg;base64,") and 10_000 < len(sheet) < 200_000


# -- texts that are not ours


def test_json_cannot_end_its_element() -> None:
    text = to_json({"x": "</script><!--<script>&\u2028\u2029\ud800"})
    assert not re.search("[<>&\u2028\u2029\ud800]", text)
    assert json.loads(text) == {"x": "</script><!--<script>&\u2028\u2029\ud800"}


# -- sizes


def copy_tables(snapshot: Path, target: Path) -> Path:
    shutil.copytree(snapshot / "manifests", target / "manifests")
    for name in ("dataset.json", RUN):
        shutil.copy(snapshot / name, target / name)
    for split in ("train", "test"):
        (target / split).symlink_to(snapshot / split)
    return target


def change(snapshot: Path, table: str, column: str, values: pa.Array) -> None:
    path = snapshot / f"manifests/{table}.parquet"
    known = pq.read_table(path)
    pq.write_table(known.set_column(known.column_names.index(column), known.schema.field(column), values), path)


def test_a_large_snapshot_has_a_small_page(demo_snapshot: Path, tmp_path: Path) -> None:
    """290,000 examples of 7 sources, 16 categories and 3 difficulties; 46,000 clips are lost, in bad words."""
    copy = copy_tables(demo_snapshot, tmp_path)
    (copy / "train").unlink()
    dataset = json.loads((copy / "dataset.json").read_text())
    dataset["counts"] |= {"rejected_clips": 46_000, "quarantine": 46_000}
    (copy / "dataset.json").write_text(json.dumps(dataset))
    write_tables({"examples": large_examples(copy), "quarantine": large_quarantine(46_000)}, copy / "manifests")
    explorer = Explorer(copy)
    sample = explorer.table.take(explorer.sample(MIN_EXAMPLES)).to_pylist()
    assert len(sample) == explorer.num_combinations() > 7 * 16 * 3
    write_samples(copy, demo_snapshot, [row for row in sample if row["kind"] == "training"])
    started = time.perf_counter()
    page = render(copy)
    assert time.perf_counter() - started < 30, "seconds, on a machine that has other things to do"
    assert len(page.encode()) < MAX_BYTES
    embedded = embedded_in(page)
    assert len(embedded["examples"]) == len(sample), "no combination is left out"
    assert len(embedded["videos"]) > 300 and all(len(video["frames"]) > 2 for video in embedded["videos"].values())
    assert page.count("<bdi>train/part.tar</bdi>") == MAX_QUARANTINE_ROWS
    assert (
        "46,000 of 46,035 clips failed" in page
        and '23,000 clips</strong>:\n<a href="#quarantine" data-reason="moov-missing">' in page
    )
    assert f"And {46_000 - MAX_QUARANTINE_ROWS:,} more: <code>manifests/quarantine.parquet" in page


def large_examples(snapshot: Path, count: int = 290_000) -> pa.Table:
    """The examples of the demo over and over, with other names, each with a view of its own."""
    table, draw = pq.read_table(snapshot / "manifests/examples.parquet"), np.random.default_rng(7)
    table = table.take(pa.array(np.arange(count) % table.num_rows))
    groups = (("T", 6), ("G", 6), ("J", 4))
    names = {
        "source": [f"source_{number}" for number in range(7)],
        "category": [f"{group}{number}" for group, most in groups for number in range(1, most + 1)],
        "difficulty": ["easy", "medium", "hard"],
    }
    drawn = {
        name: pa.array(all_).take(pa.array(draw.integers(0, len(all_), count))) for name, all_ in names.items()
    }
    drawn["line"] = pa.array(np.arange(count), pa.int32())
    drawn["view"] = pa.array([f"v{number}" for number in range(count)])
    for name, column in drawn.items():
        table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
    return table


def test_what_is_lost_is_counted_alike_everywhere(demo_snapshot: Path, tmp_path: Path) -> None:
    """A clip of which a view failed, one that two lines name and no part holds, a line that is no JSON."""
    copy = copy_tables(demo_snapshot, tmp_path)
    gone = {"reason": "clip-missing", "detail": "b/gone: it.mp4: no part holds it", "clip": "b/gone: it.mp4"}
    damage = {"reason": "decode-errors", "detail": "frame 3", "clip": "b/cut.mp4"}
    said = [
        {"kind": "view", "path": "p.tar", "view": "b-cut-1", "num_rows": 0, "num_examples": 1, **damage},
        {"kind": "example", "path": "rl.jsonl", "line": 4, **damage},
        {"kind": "row", "path": "annotations.jsonl", "line": 2, **gone},
        {"kind": "example", "path": "rl.jsonl", "line": 7, **gone},
        # of two videos: the first is there, the second is not
        {"kind": "example", "path": "rl.jsonl", "line": 8, **gone, "clip": "b/here.mp4"},
        {"kind": "example", "path": "rl.jsonl", "line": 9, "reason": "row-not-json"},
        # its clip failed, but this is not why it cannot be used
        {"kind": "row", "path": "annotations.jsonl", "line": 3, "reason": "no-options", "clip": "b/cut.mp4"},
    ]  # fmt: skip
    write_tables({"quarantine": pa.Table.from_pylist(said, TABLES["quarantine"])}, copy / "manifests")
    facts = read_facts(copy)
    assert (facts.num_failed_clips, facts.num_partial_clips) == (1, 1)
    causes = {(cause.kind, cause.reason): cause for cause in facts.causes}
    assert list(causes) == [
        ("clip", "clip-missing"), ("view", "decode-errors"), ("row", "no-options"), ("example", "row-not-json"),
    ]  # fmt: skip
    missing = causes["clip", "clip-missing"]
    assert (missing.names, missing.num_rows, missing.num_examples) == (["b/gone: it.mp4"], 1, 2)
    lines = facts.quarantine.to_pylist()
    assert [line["is_consequence"] for line in lines] == [False] * 4 + [True] * 4
    assert facts.lost == {"annotation rows": (2, 185), "examples": (4, 179), "items": (0, 27)}
    of_missing = facts.reasons[0]
    assert (of_missing.name, of_missing.media, of_missing.rows, of_missing.examples) == ("clip-missing", 1, 1, 2)
    assert of_missing.causes == 1
    rejects = next(picture for picture in draw_pictures(facts, {}) if picture.title == "Rejects by reason")
    assert rejects.reading.startswith("4 causes; 4 rows, items and examples are lost with them.")
    assert rejects.rows[0] == ("clip-missing", "1", "3")
    assert "1 of 36 clips failed, 1 more can be used only in part" in render(copy)


def large_quarantine(count: int) -> pa.Table:
    clips = [f"train/clip_{number}.mp4" for number in range(count)]
    said = {
        "kind": pa.array(["clip"] * count),
        "reason": pa.array(["moov-missing", "empty-file"] * (count // 2)),
        "detail": pa.array(["<&'\"" * 100] * count),
        "path": pa.array(["train/part.tar"] * count),
        "clip": pa.array(clips),
        "member": pa.array(clips),
    }
    schema = TABLES["quarantine"]
    return pa.table([said.get(field.name, pa.nulls(count, field.type)) for field in schema], schema)


def write_samples(snapshot: Path, demo: Path, rows: list[dict[str, Any]]) -> None:
    """A shard with the views of these rows, each with four frames of the demo and a question, and their places."""
    like = pq.read_table(demo / "manifests/views.parquet").filter(pc.field("split") == "train").to_pylist()
    places = []
    (snapshot / "train").mkdir()
    with (snapshot / "train/large-0000.tar").open("wb") as file:
        for number, row in enumerate(rows):
            view = like[number % len(like)]
            frames = read_frames(demo / view["shard"], view["view"], view["offset_bytes"], view["length_bytes"])
            text = {
                "clip": f"{row['source']}/video/{number}.mp4", "part": "train/p.tar", "member_offset_bytes": 512,
                "start_seconds": 0.0, "end_seconds": 2.0, "frame_seconds": [0.0, 0.5, 1.0, 1.5],
                "height": view["height"], "width": view["width"], "items": [], "questions": [],
                "examples": [{"id": row["id"], "question": "Who looks where? " * 20, "target": "A " * 200,
                              "gt_events": None}],
            }  # fmt: skip
            start = file.tell()
            with tarfile.open(fileobj=file, mode="w") as tar:
                for field, content in (("json", json.dumps(text).encode()), ("mp", msgpack.packb(frames[:4]))):
                    info = tarfile.TarInfo(f"{row['view']}.{field}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
            shard = {"shard": "train/large-0000.tar", "offset_bytes": start, "length_bytes": file.tell() - start}
            places.append({**view, "view": row["view"], **shard})
    known = pq.read_table(snapshot / "manifests/views.parquet")
    views = pa.concat_tables([known.cast(TABLES["views"]), pa.Table.from_pylist(places, TABLES["views"])])
    write_tables({"views": views}, snapshot / "manifests")


def embedded_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.mark.parametrize("empty", [("examples",), ("bench",), ("examples", "bench", "questions"), tuple(TABLES)])
def test_tables_without_rows(demo_snapshot: Path, tmp_path: Path, empty: tuple[str, ...]) -> None:
    copy = copy_tables(demo_snapshot, tmp_path)
    write_tables({name: TABLES[name].empty_table() for name in empty}, copy / "manifests")
    page = render(copy)
    has_examples = not {"examples", "bench"} <= set(empty)
    assert ("There are no examples." in page) == (not has_examples)
    assert bool(embedded_in(page)["examples"]) == has_examples
    assert bool(Explorer(copy).contact_sheet()) == ("views" not in empty)
    with PageServer(copy, port=0) as server:
        assert (ask(server, "/api/examples")[2]["total"] > 0) == has_examples


def test_long_names_do_not_make_a_large_page(demo_snapshot: Path, tmp_path: Path) -> None:
    copy = copy_tables(demo_snapshot, tmp_path)
    long = pa.array([f"{number}{'<' * 10_000}" for number in range(175)])
    for column in ("source", "category", "difficulty", "format"):
        change(copy, "examples", column, long)
    page = render(copy)
    assert len(page.encode()) < MAX_BYTES
    assert "rare combinations had no room here" in page and embedded_in(page)["lacks_some"]


# -- the command


def call(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CLIPSHARDS, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_report_finds_the_page(demo_snapshot: Path) -> None:
    out = demo_snapshot.parents[1]
    done = call("report", out)
    assert (done.returncode, done.stdout.strip()) == (0, str(demo_snapshot.resolve() / PAGE))
    assert json.loads(call("report", out, "--json").stdout) == {"event": "totals", "page": done.stdout.strip()}


def test_report_makes_a_missing_page_elsewhere(demo_snapshot: Path, tmp_path: Path) -> None:
    snapshot = copy_tables(demo_snapshot, tmp_path / "snapshots/old")
    (snapshot / RUN).unlink()
    (tmp_path / "current").symlink_to("snapshots/old")
    (tmp_path / "work").mkdir()
    done = call("report", tmp_path)
    assert done.returncode == 0 and "one was made" in done.stderr
    assert Path(done.stdout.strip()) == tmp_path / "work" / PAGE
    page = Path(done.stdout.strip()).read_text(encoding="utf-8")
    assert "left no record" in page and "35 are here" in page
    assert not (snapshot / PAGE).exists()


def test_report_opens_a_browser(demo_snapshot: Path, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    assert call("report", demo_snapshot, "--open", BROWSER=f"{browser} %s").returncode == 0
    assert (tmp_path / "opened").read_text().strip() == (demo_snapshot / PAGE).as_uri()
    none = call("report", demo_snapshot, "--open", BROWSER="", PATH=str(tmp_path / "empty"))
    assert none.returncode == 2 and f"open {(demo_snapshot / PAGE).as_uri()}" in none.stderr


def test_report_serves_until_it_is_told_to_stop(demo_snapshot: Path) -> None:
    command = [CLIPSHARDS, "report", demo_snapshot, "--serve", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout
        url = json.loads(run.stdout.readline())["page"]
        with urllib.request.urlopen(f"{url}api/examples?category=J3", timeout=30) as answer:
            assert json.load(answer)["total"] == 9
        run.send_signal(signal.SIGTERM)
        _, stderr = run.communicate(timeout=30)
    assert run.returncode == 130 and "Traceback" not in stderr


def test_mistakes_of_report(demo_snapshot: Path, tmp_path: Path) -> None:
    nothing = call("report", tmp_path)
    assert nothing.returncode == 2 and "clipshards prepare" in nothing.stderr
    with PageServer(demo_snapshot, port=0) as server:
        port = server.url.split(":")[-1].strip("/")
        taken = call("report", demo_snapshot, "--serve", "--port", port)
    assert taken.returncode == 2 and "choose another --port" in taken.stderr
    copy_tables(demo_snapshot, tmp_path)
    (tmp_path / "manifests/views.parquet").write_bytes(b"no table")
    damaged = call("report", tmp_path)
    assert damaged.returncode == 4 and "verify" in damaged.stderr
    assert "Traceback" not in nothing.stderr + taken.stderr + damaged.stderr


# -- the server


@pytest.fixture(scope="module")
def server(demo_snapshot: Path) -> Iterator[PageServer]:
    with PageServer(demo_snapshot, port=0) as server:
        yield server


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, Any]:
    host, port = server.url.removeprefix("http://").strip("/").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    is_json = answer.headers["Content-Type"] == "application/json" and body
    return answer.status, answer.headers, json.loads(body) if is_json else body


def test_the_server_has_all_examples(server: PageServer, explorer: Explorer) -> None:
    status, headers, page = ask(server, "/")
    assert status == 200 and "script-src 'sha256-" in headers["Content-Security-Policy"]
    assert b"All 202 examples" in page
    seen = []
    for offset in range(0, 202, MAX_LIMIT):
        _, _, body = ask(server, f"/api/examples?offset={offset}&limit={MAX_LIMIT}")
        assert body["total"] == 202
        seen += [example["id"] for example in body["examples"]]
        assert {key for example in body["examples"] for key in example["views"]} == body["videos"].keys()
    assert len(seen) == len(set(seen)) == 202
    assert seen == explorer.table["id"].to_pylist()


def test_the_server_filters(server: PageServer, demo_snapshot: Path) -> None:
    wanted = {"kind": "benchmark", "category": "J3"}
    _, _, body = ask(server, f"/api/examples?{urlencode(wanted)}&limit=20")
    ids = {row["id"] for row in rows(demo_snapshot, "bench") if row["category_canonical"] == "J3"}
    assert {example["id"] for example in body["examples"]} == ids and body["total"] == len(ids)
    _, _, nothing = ask(server, "/api/examples?category=nothing")
    assert (nothing["total"], nothing["examples"], nothing["videos"]) == (0, [], {})
    assert nothing["counts"]["category"]["J3"] == 9 and nothing["counts"]["kind"] == {"training": 0, "benchmark": 0}
    _, _, unnamed = ask(server, "/api/examples?category=")
    assert unnamed["total"] == 2, "two lines that no annotation row is about"
    assert ask(server, "/api/examples?offset=1000")[2]["examples"] == []


UNKNOWN = [
    "limit=0", f"limit={MAX_LIMIT + 1}", "offset=-1", "offset=x", "offset=99999999999", "limit=%D9%A3",
    "path=/etc/passwd", "&".join(["offset=1"] * 99), "offset",
]  # fmt: skip


@pytest.mark.parametrize("query", UNKNOWN)
def test_the_server_refuses_what_it_does_not_know(server: PageServer, query: str) -> None:
    status, _, body = ask(server, f"/api/examples?{query}")
    assert status == 400 and body["error"]


@pytest.mark.parametrize(
    "path", ["/report.html", "/dataset.json", "/../dataset.json", "//etc/passwd", "/api", "/%2e"]
)
def test_the_server_shows_no_files(server: PageServer, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_the_server_is_for_this_machine(server: PageServer) -> None:
    port = server.url.split(":")[-1].strip("/")
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1:1", ""):
        assert ask(server, "/", Host=host)[0] == 403, host
        assert ask(server, "/api/examples", Host=host)[0] == 403
    assert ask(server, "/", Host=f"localhost:{port}")[0] == 200
    assert server.url.startswith("http://127.0.0.1:")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD"):
        status, headers, _ = ask(server, "/", method)
        assert (status, headers["Allow"]) == (405, "GET"), method
    _, headers, _ = ask(server, "/api/examples")
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers


def test_each_reason_has_its_sentence(demo_snapshot: Path, tmp_path: Path) -> None:
    copy = copy_tables(demo_snapshot, tmp_path)
    values = [
        {name: None for name in TABLES["quarantine"].names} | {"kind": "part", "reason": reason, "path": reason}
        for reason in REASONS
    ]
    write_tables({"quarantine": pa.Table.from_pylist(values, TABLES["quarantine"])}, copy / "manifests")
    page = render(copy)
    for reason, sentence in REASONS.items():
        assert f">{reason}</th>" in page
        assert f'<td class="words">{escape(sentence)}</td>' in page
