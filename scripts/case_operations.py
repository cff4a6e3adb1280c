"""What the cases ask for, done by the product: a function an operation, from a case to what came out.

An answer holds what the case's `expected.json` may name, in the product's words; THEIR_WORDS says which of
them mean the same as which of the cases'.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import webdataset

from clipshards import epochs, verify
from clipshards.annotations import QuestionBuilder, Questions
from clipshards.decode.decoders import open_clip
from clipshards.decode.media import Extent
from clipshards.errors import IncompleteError, Rejected, SourceError
from clipshards.examples import read_examples
from clipshards.hub.fetch import fetch
from clipshards.hub.listing import HubFile
from clipshards.hub.source import HubSource
from clipshards.images import Rgb
from clipshards.plan import View, assign_clips, make_view
from clipshards.recipe import load_recipe
from clipshards.rendering import ClipJob, render_clip
from clipshards.sampling import GRASP_TRAIN
from clipshards.schema import Reject
from clipshards.tars import TarMember, extract, index_tar
from manifests.hints import hint_warnings
from manifests.snapshot import write_table

THEIR_WORDS: dict[str, tuple[str, ...]] = {
    "bad-json": ("row-not-json",),
    "lone-surrogate": ("row-not-json",),
    "bad-utf8": ("row-not-json",),
    "duplicate-key": ("row-not-json",),
    "row-not-an-object": ("row-not-a-list",),
    "unsafe-path": ("unsafe-name", "path-unsafe"),
    "unsafe-link": ("link-member",),
    "not-a-file": ("special-member",),
    "device": ("special-member",),
    "symlink": ("link-member",),
    "hardlink": ("link-member",),
    "tar-truncated": ("tar-damaged",),
    "truncated-tar": ("tar-damaged",),
    "bad-header": ("tar-damaged",),
    "tar-gz": ("tar-compressed",),
    "compressed": ("tar-compressed",),
    "trailing-data": ("data-after-end-mark",),
    "concatenated": ("data-after-end-mark",),
    "missing-clip": ("clip-missing",),
    "unsupported-codec": ("codec-unsupported",),
    "resolution-change": ("size-change",),
    "truncated": ("truncated-media", "moov-missing"),
    "timeout": ("time-limit",),
    "too-small": ("frame-too-small",),
    "unauthorized": ("no-access",),
    "forbidden": ("no-access",),
    "repo-not-found": ("source-missing",),
    "revision-not-found": ("source-missing",),
    "target-in-use": ("output-in-use",),
    "disk-full": ("no-space",),
    "interleaved": ("split-sample",),
    "too-few-shards": ("readers-without-shards",),
    "fewer-shards-than-readers": ("readers-without-shards",),
    "train-test-leak": ("clip-in-train-and-test",),
}
"""A word of the cases → our words for the same thing, where they differ."""


@dataclass(frozen=True)
class Case:
    """One case: its input files and parameters, and an empty folder to work in."""

    folder: Path
    given: dict[str, Any]
    expected: dict[str, Any]
    work: Path

    def file(self, name: str) -> Path:
        """An input file, by the parameter that names it; one given as [[text, times], …] is put together."""
        path = self.folder / self.given[name]
        pieces = path.with_name(f"{path.name}.pieces")
        if pieces.exists():
            path = self.work / path.name
            path.write_text("".join(text * times for text, times in json.loads(pieces.read_text())))
        return path


Answer = dict[str, Any]

# -- clips


def probe_and_sample(case: Case) -> Answer:
    """A clip: the frames of the window, or all of them."""
    extent = Extent(str(case.file("video")))
    try:
        clip = open_clip(extent)
    except Rejected as rejected:
        return _quarantined(rejected)
    info = clip.info
    answer: Answer = {
        "avg_fps": info.fps,
        "n_frames": info.num_frames,
        "display_size": [info.height, info.width],
        "codec": info.codec,
        "pix_fmt": info.pix_fmt,
        "warnings": list(info.warnings),
        "note_kind": [f"container-is-{name}" for name in info.format_name.split(",")],
        "decodable_frames_between": info.num_frames - int(clip.table.is_corrupt.sum()),
    }
    window = [case.given.get(name) for name in ("start_seconds", "end_seconds", "num_frames")]
    if None in window:
        return {**answer, **_all_frames(clip)}
    view = View("view", "clip", float(window[0]), float(window[1]), window[2])
    outcome = render_clip(ClipJob("clip", extent, (view,), GRASP_TRAIN, None, case.work))
    if not outcome.views:
        return {**answer, "status": "quarantined", "reason_kind": outcome.reason}
    (rendered,) = outcome.views
    indices = np.frombuffer(rendered.frame_indices, "<i4").tolist()
    pictures = dict(clip.frames(indices))
    num_stored = len(msgpack.unpackb((case.work / "view.mp").read_bytes()))
    assert num_stored == len(indices), f"{num_stored} frames stored of {len(indices)}"
    return {
        **answer,
        "status": _status(rendered.warnings),
        "warnings": list(rendered.warnings),
        "frames": indices,
        "shown": [read_bar_code(pictures[index]) for index in indices],
        "resize_to": [rendered.height, rendered.width],
    }


def _all_frames(clip: Any) -> Answer:
    pictures = {}
    for index, rgb in clip.frames(range(clip.info.num_frames)):
        pictures[index] = _patches(rgb) if index == 0 else None
    good = next((i for i in range(clip.info.num_frames) if i not in pictures), clip.info.num_frames)
    answer = {"decodable_clean_prefix_at_least": good, "rgb_patches": pictures.get(0)}
    if clip.failures:
        return {**answer, **_quarantined(clip.failures[min(clip.failures)])}
    return {**answer, "status": _status(clip.info.warnings)}


def read_bar_code(rgb: Rgb) -> int:
    """The number in the upper half of a made picture: 12 columns, bright is 1, the highest bit first."""
    height, width = rgb.shape[0], rgb.shape[1] // 12
    rows = rgb[height // 8 : height * 3 // 8]
    columns = [rows[:, width * i + width // 4 : width * i + max(width * 3 // 4, width // 4 + 1)] for i in range(12)]
    return int("".join(str(int(column.mean() > 125)) for column in columns), 2)


def _patches(rgb: Rgb) -> list[list[float]]:
    return [rgb[40:60, 32 * k + 10 : 32 * k + 22].mean(axis=(0, 1)).tolist() for k in range(rgb.shape[1] // 32)][:4]


# -- parts


def extract_part(case: Case) -> Answer:
    """A part: fetched when its hash is known, indexed, and written as a plain tree."""
    path = case.file("tar")
    try:
        if "hub_sha256" in case.given:
            path = _fetched(case, path)
        return _extracted(path, case.work / "tree")
    except Rejected as rejected:
        return {"status": "part_failed", "reason_kind": rejected.reason}


def extract_parts(case: Case) -> Answer:
    """Several parts, each on its own."""
    parts = {}
    for name in case.given["tars"]:
        try:
            parts[name] = _extracted(case.folder / name, case.work / name)
        except Rejected as rejected:
            parts[name] = {"status": "part_failed", "reason_kind": rejected.reason}
    return {"parts": parts, **_across_parts(case)}


def _across_parts(case: Case) -> Answer:
    """What the parts come to together: a clip that stands in two of them is one clip or none."""
    members: dict[str, tuple[TarMember, ...]] = {}
    for name in case.given["tars"]:
        try:
            members[name] = index_tar(case.folder / name, part=name).members
        except Rejected:
            continue  # its own answer says so
    clips = sorted({member.name for of_part in members.values() for member in of_part})
    assignment = assign_clips(clips, members)
    return {
        "n_clips": len(assignment.places),
        "members": {clip: member.sha256 for clip, (_, member) in assignment.places.items()},
        "quarantined": {clip: reject.reason for clip, reject in assignment.rejects.items()},
    }


def _extracted(path: Path, folder: Path) -> Answer:
    around = folder.parent
    before = set(around.rglob("*"))
    index = index_tar(path, part=path.name)
    extract(index, path, folder)
    outside = [p for p in set(around.rglob("*")) - before if not p.is_relative_to(folder)]
    assert not outside, f"written outside of the folder: {outside}"
    written = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    members = {name: hashlib.sha256(content).hexdigest() for name, content in written.items()}
    assert members == {member.name: member.sha256 for member in index.members}, "index and tree differ"
    warnings = [word for word, _ in index.warnings]
    return {
        "status": _status([*warnings, *index.rejects]),
        "warnings": warnings,
        "members": members,
        "n_clips": len(members),
        "ignored": len(index.sidecars),
        "quarantined": {reject.member: reject.reason for reject in index.rejects},
    }


# -- rows


def parse_annotations(case: Case) -> Answer:
    """A file of annotation rows."""
    path = case.file("annotations")
    questions = _read_questions(path)
    rows = questions.table.to_pylist()
    by_id = {row["id"]: row for row in rows}
    answer: Answer = {
        "rows": [key for key, row in by_id.items() if not row["warnings"]],
        "status": _status(questions.rejects),
        "answer_index": {key: row["answer_index"] for key, row in by_id.items()},
        "warn_rows": {key: ", ".join(row["warnings"]) for key, row in by_id.items() if row["warnings"]},
        "note_kind": ["bom-stripped"] if path.read_bytes().startswith(b"\xef\xbb\xbf") else [],
        "n_rows": len(rows),
        **_rejected_lines(questions.rejects, path),
    }
    for key, row in by_id.items():
        answer |= {f"{key}_{name}": value for name, value in row.items()}
        answer |= {f"{key}_{name}_len": len(value) for name, value in row.items() if isinstance(value, str)}
    _store(questions.table, case.work)
    return answer


def parse_specs(case: Case) -> Answer:
    """A file of training lines, with what is known of their clips."""
    path = case.file("specs")
    examples = read_examples([("sft", path.name, path)])
    rows = examples.table.to_pylist()
    clips = case.given.get("clips", {})
    sizes = [[clips[row["clip"]][side] for row in rows] for side in ("height", "width")]
    heights, widths = (pa.array(side, pa.int32()) for side in sizes)
    hints = hint_warnings(examples.table, heights, widths, GRASP_TRAIN.max_fps)
    warnings: dict[str, list[str]] = {}
    for number, row in enumerate(rows):
        words = [*row["warnings"], *(word for word, flags in hints.items() if flags[number])]
        if words:
            warnings[str(row["line"])] = words
    _store(examples.table, case.work)
    return {
        "rows_ok": [row["line"] for row in rows],
        "status": _status([*examples.rejects, *warnings]),
        "warn_lines": {line: words[0] for line, words in warnings.items()},
        "effective_fps": {str(row["line"]): GRASP_TRAIN.max_fps for row in rows},
        "size_used": [heights[0].as_py(), widths[0].as_py()] if rows else None,
        **_rejected_lines(examples.rejects, path),
    }


def _rejected_lines(rejects: list[Reject], path: Path) -> Answer:
    """Rejects by line number, as "N+" from there on, and by the id that the line holds."""
    words = {reject.line: f"{reject.reason}: {reject.detail}" for reject in rejects}
    lines = path.read_bytes().split(b"\n")
    by_id = {}
    for line, word in words.items():
        if found := re.search(rb'"id":\s*"([^"]*)"', lines[line - 1]):
            by_id[found[1].decode()] = word
    by_line = {str(line): word for line, word in words.items()}
    last = {f"{line}+": word for line, word in words.items() if all(n in words for n in range(line, len(lines)))}
    return {
        "quarantined_lines": by_line | last,
        "quarantined_rows": by_id | {f"line {line}": word for line, word in words.items()},
    }


def join(case: Case) -> Answer:
    """Rows against the members of a part."""
    tars = [case.given["tar"]] if "tar" in case.given else case.given["tars"]
    indexes = {name: index_tar(case.folder / name, part=name) for name in tars}
    questions = _read_questions(case.file("annotations"))
    assignment = assign_clips(dict.fromkeys(questions.clips()), {n: i.members for n, i in indexes.items()})
    joined, rejected = {}, {}
    for row in questions.table.to_pylist():
        if row["clip"] in assignment.places:
            joined[row["id"]] = assignment.places[row["clip"]][1].sha256
        else:
            rejected[row["id"]] = assignment.rejects[row["clip"]].reason
    other_case = [row["id"] for row in questions.table.to_pylist() if row["clip"] in assignment.other_case]
    return {
        "status": _status([*rejected, *other_case]),
        "joined": joined,
        "quarantined_rows": rejected,
        "note_kind": [f"{key} found by extension case only" for key in other_case],
    }


# -- shards and tables


def make_keys(case: Case) -> Answer:
    """Keys of clips, through a shard that webdataset writes and reads."""
    clips = json.loads(case.file("clips").read_text())
    keys = {make_view(clip, 0.0, 1.0, 2, GRASP_TRAIN).key: clip for clip in clips}
    assert len({key.lower() for key in keys}) == len(clips), f"keys are not unique: {list(keys)}"
    assert not any("." in key for key in keys), f"a key holds a dot: {list(keys)}"
    shard = case.work / "shard.tar"
    with webdataset.TarWriter(str(shard), mtime=0) as tar:
        for key, clip in sorted(keys.items()):
            tar.write({"__key__": key, "json": {"clip": clip}, "mp": [b"frame"]})
    read = {s["__key__"]: s["json"]["clip"] for s in webdataset.WebDataset(str(shard), shardshuffle=False).decode()}
    assert read == keys, f"webdataset reads {read}"
    return {"status": "ok", "n_keys": len(keys), "original_path_kept_in": "json field"}


def check_shard(case: Case) -> Answer:
    """A shard of anybody's, by the rules of WebDataset."""
    problems = verify.check_shard(case.file("shard"))
    return {"status": "shard_bad" if problems else "ok", "reason_kind": problems[0][0] if problems else ""}


def check_manifest(case: Case) -> Answer:
    """Parquet files that should be one table."""
    differs = verify.check_same_schema([case.folder / name for name in case.given["parts"]])
    status = "manifest_bad" if differs else "ok"
    return {"status": status, "reason_kind": "schema-differs" if differs else "", "differs": differs}


def plan_epoch(case: Case) -> Answer:
    """Shards against readers."""
    shards = case.given["shards"]
    if isinstance(shards, int):
        shards = {f"shard-{number:06}.tar": case.given.get("samples_per_shard", 1) for number in range(shards)}
    elif isinstance(shards, list):
        shards = dict.fromkeys(shards, case.given.get("samples_per_shard", 1))
    ranks = next((case.given[name] for name in ("ranks", "world_size", "nodes", "gpus") if name in case.given), 1)
    plan = epochs.plan_epoch(shards, ranks=ranks, workers=case.given.get("workers", 0))
    readers = [share for mine in plan.shares for share in mine]
    return {
        "status": _status(plan.problems),
        "warnings": [word for word, _ in plan.problems],
        "reason_kind": plan.problems[0][0] if plan.problems else "",
        "n_readers": len(readers),
        "idle_readers": sum(not share for share in readers),
        "shards_per_reader": [len(share) for share in readers],
        "samples_per_rank": list(plan.samples_of_rank),
    }


def write_manifest(case: Case) -> Answer:
    """Rows as a Parquet file with one explicit schema, read back."""
    path = case.work / "table.parquet"
    if "generator" in case.given:
        return _write_long_texts(case, path)
    rows = json.loads(case.file("rows").read_text())
    rows = [{key: math.nan if value == "NaN" else value for key, value in row.items()} for row in rows]
    kinds = {"id": pa.string(), "start_seconds": pa.float64(), "end_seconds": pa.float64(), "score": pa.float64()}
    schema = pa.schema([(name, kinds[name]) for name in rows[0]])
    table = pa.Table.from_pylist(rows, schema)
    write_table(table, path, schema)
    read_back = pq.read_table(path)
    numbers = [name for name in schema.names if schema.field(name).type == pa.float64()]
    return {
        "status": "ok",
        "type_of": {name: str(read_back.schema.field(name).type) for name in schema.names},
        "null_count": {name: read_back.column(name).null_count for name in schema.names},
        "nan_count": {name: int(np.isnan(_values(read_back, name)).sum()) for name in numbers},
        "read_back_equal": all(
            read_back.column(name).null_count == table.column(name).null_count
            and (np.array_equal(_values(read_back, name), _values(table, name), equal_nan=True) if name in numbers
                 else read_back.column(name).equals(table.column(name)))
            for name in schema.names
        ),
    }  # fmt: skip


def _write_long_texts(case: Case, path: Path) -> Answer:
    """More text than Arrow's 32-bit offsets reach: at full size from one shared buffer, and at a small limit."""
    generator, small = json.loads(case.file("generator").read_text()), case.given["small_limit"]
    schema = pa.schema([("response", pa.string())])
    text = pa.array(["x" * generator["bytes_per_value"]])
    write_table(pa.table({"response": pa.chunked_array([text] * generator["rows"])}), path, schema)
    num_rows = sum(batch.num_rows for batch in pq.ParquetFile(path).iter_batches(batch_size=64))
    texts = pa.table({"response": ["x" * small["bytes_per_value"]] * small["rows"]})
    write_table(texts, path, schema, row_group_bytes=small["limit"])
    assert pq.read_table(path).equals(texts), "a table of small row groups gives other rows back"
    file = pq.ParquetFile(path)
    rows_of_groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    assert max(rows_of_groups) * small["bytes_per_value"] <= small["limit"], f"row groups of {rows_of_groups} rows"
    return {"status": "ok", "n_rows": num_rows}


def _values(table: pa.Table, name: str) -> Any:
    return table.column(name).drop_null().to_numpy()


def _read_questions(path: Path) -> Questions:
    recipe = load_recipe("grasp")
    builder = QuestionBuilder(recipe, recipe.splits["train"])
    with path.open("rb") as lines:
        builder.add_lines(path.name, lines)
    return builder.finish()


def _store(table: pa.Table, folder: Path) -> None:
    """What was read can be stored: half a surrogate pair, for one, could not."""
    pq.write_table(table, folder / "rows.parquet")
    assert pq.read_table(folder / "rows.parquet").equals(table), "Parquet gives other rows back"


# -- the Hub


def verify_download(case: Case) -> Answer:
    """A file as the Hub sends it, against what its listing says."""
    try:
        _fetched(case, case.file("file"))
    except Rejected as rejected:
        return {"status": "part_failed", "reason_kind": rejected.reason}
    return {"status": "ok"}


def download(case: Case) -> Answer:
    """Files from a server that replies as the case says."""
    script = json.loads(case.file("server").read_text())
    parts: dict[str, Answer] = {}
    with _serving(case.folder, script) as (endpoint, log):
        for entry in script:
            listed = case.given["hub"].get(entry["path"], {"size": 1, "sha256": "0" * 64})
            parts[entry["path"]] = _download_one(case, endpoint, entry["path"], listed)
            parts[entry["path"]]["requests"] = log[entry["path"]]
    return {"parts": parts}


def _download_one(case: Case, endpoint: str, path: str, listed: dict[str, Any]) -> Answer:
    file = HubFile(path, listed["size"], listed["sha256"], None)
    started = time.monotonic()
    is_part = any(fnmatch.fnmatchcase(path, p) for s in load_recipe("grasp").splits.values() for p in s.parts)
    try:
        fetch(HubSource("demo/GRASP", endpoint=endpoint), "0" * 40, file, case.work / path, backoff_seconds=0.05)
    except Rejected as rejected:
        # A part that cannot be had costs itself; rows that cannot be had end the run.
        return {"status": "part_failed" if is_part else "run_stopped", "reason_kind": rejected.reason}
    except IncompleteError:
        return {"status": "part_failed", "reason_kind": "incomplete"}
    except SourceError as error:
        return {"status": "run_stopped", "reason_kind": error.reason}
    return {"status": "ok", "waits_at_least_s": time.monotonic() - started}


def _fetched(case: Case, path: Path) -> Path:
    size, sha256 = case.given["hub_size"], case.given["hub_sha256"]
    script = [{"path": path.name, "replies": [{"status": 200, "body": path.name}]}]
    with _serving(case.folder, script) as (endpoint, _):
        source = HubSource("demo/GRASP", endpoint=endpoint)
        return fetch(source, "0" * 40, HubFile(path.name, size, sha256, None), case.work / "download" / path.name)


@contextmanager
def _serving(folder: Path, script: list[dict[str, Any]]) -> Iterator[tuple[str, Counter[str]]]:
    """A server on loopback that gives each path its replies in turn, the last one again and again."""
    replies = {entry["path"]: list(entry["replies"]) for entry in script}
    log: Counter[str] = Counter()

    class Scripted(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.split("/resolve/", 1)[-1].split("/", 1)[-1]
            log[path] += 1
            waiting = replies[path]
            reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            body = (folder / reply["body"]).read_bytes() if "body" in reply else b""
            self.send_response(reply["status"])
            for name, value in {**reply.get("headers", {}), "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the log is `log`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", log
    finally:
        server.shutdown()
        server.server_close()


# -- answers


def _status(marks: Any) -> str:
    return "ok_with_warning" if list(marks) else "ok"


def _quarantined(rejected: Rejected) -> Answer:
    return {"status": "quarantined", "reason_kind": rejected.reason}


OPERATIONS: dict[str, Callable[[Case], Answer]] = {
    function.__name__: function
    for function in (
        probe_and_sample, extract_part, extract_parts, parse_annotations, parse_specs, join, make_keys,
        check_shard, check_manifest, write_manifest, plan_epoch, verify_download, download,
    )
}  # fmt: skip
