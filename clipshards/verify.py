"""Checks a snapshot against itself: every hash, table, count and sample; and any WebDataset shard by its rules."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq

from clipshards.decode.decoders import collect, open_clip
from clipshards.decode.media import Extent
from clipshards.errors import Rejected
from clipshards.images import decode_image, encode, resize
from clipshards.output import read_dataset
from clipshards.schema import SCHEMA_VERSION, TABLES
from clipshards.tars import list_names


class Problem(NamedTuple):
    """What is wrong with one file of a snapshot."""

    path: str
    """Of the file, in the snapshot."""
    what: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


def verify_snapshot(snapshot: Path) -> tuple[dict[str, int], list[Problem]]:
    """Check the snapshot; returns how much was checked and what is wrong."""
    dataset = read_dataset(snapshot)
    if dataset.get("schema_version") != SCHEMA_VERSION:
        found = dataset.get("schema_version")
        return {}, [Problem("dataset.json", f"schema_version is {found}, this program reads {SCHEMA_VERSION}")]
    problems = _check_files(snapshot, dataset["files"])
    checked = {"files": len(dataset["files"])}
    if problems:
        return checked, problems
    tables = {name: pq.read_table(snapshot / "manifests" / f"{name}.parquet") for name in TABLES}
    problems += _check_tables(tables, dataset["counts"])
    for shard in tables["shards"].column("shard").to_pylist():
        problems += [Problem(shard, sentence) for _, sentence in check_shard(snapshot / shard)]
    problems += _check_views(snapshot, tables)
    return {**checked, "tables": len(tables), "views": tables["views"].num_rows}, problems


def _check_files(snapshot: Path, files: dict[str, dict[str, Any]]) -> list[Problem]:
    problems = []
    for name, wanted in files.items():
        path = snapshot / name
        if not path.is_file():
            problems.append(Problem(name, "missing"))
        elif path.stat().st_size != wanted["size_bytes"]:
            size_bytes = path.stat().st_size
            problems.append(Problem(name, f"{size_bytes} bytes, dataset.json says {wanted['size_bytes']}"))
        else:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != wanted["sha256"]:
                problems.append(Problem(name, f"sha256 is {digest}, dataset.json says {wanted['sha256']}"))
    return problems


def _check_tables(tables: dict[str, Any], counts: dict[str, int]) -> list[Problem]:
    problems = []
    for name, table in tables.items():
        path = f"manifests/{name}.parquet"
        if differs := compare_schemas(table.schema, TABLES[name]):
            problems.append(Problem(path, "; ".join(differs)))
        if table.num_rows != counts[name]:
            problems.append(Problem(path, f"{table.num_rows} rows, dataset.json says {counts[name]}"))
    views = set(tables["views"].column("view").to_pylist())
    for name in ("examples", "questions", "bench"):
        named = set(tables[name].column("view").to_pylist()) - {None}
        if missing := named - views:
            what = f"{len(missing)} views are in no shard: {min(missing)}"
            problems.append(Problem(f"manifests/{name}.parquet", what))
    return problems


def _check_views(snapshot: Path, tables: dict[str, Any]) -> list[Problem]:
    """Each view's sample is where the table says, under its key, with so many frames."""
    problems = []
    columns = ["view", "shard", "offset_bytes", "length_bytes", "num_frames"]
    for row in tables["views"].select(columns).to_pylist():
        if not (snapshot / row["shard"]).is_file():
            what = f"missing, but manifests/views.parquet names it for {row['view']}"
            problems.append(Problem(row["shard"], what))
        elif what := _check_sample(snapshot / row["shard"], row):
            problems.append(Problem(row["shard"], f"at {row['offset_bytes']}: {what}"))
    return problems


def _check_sample(shard: Path, row: dict[str, Any]) -> str:
    try:
        frames = read_frames(shard, row["view"], row["offset_bytes"], row["length_bytes"])
    except ValueError as error:
        return str(error)
    if len(frames) != row["num_frames"]:
        return f"{len(frames)} frames, the table says {row['num_frames']}"
    return ""


def read_frames(shard: Path, key: str, offset_bytes: int, length_bytes: int) -> list[bytes]:
    """The encoded frames of the sample that lies there.

    Raises:
        ValueError: there is no such sample; what is there in its place.
    """
    with shard.open("rb", buffering=0) as file:
        block = os.pread(file.fileno(), length_bytes, offset_bytes)
    try:
        with tarfile.open(fileobj=io.BytesIO(block), mode="r:") as tar:
            members = {member.name: tar.extractfile(member) for member in tar.getmembers()}
    except tarfile.TarError as error:
        raise ValueError(f"no sample ({error})") from None
    if list(members) != [f"{key}.json", f"{key}.mp"]:
        raise ValueError(f"members {list(members)}, wanted {key}.json and {key}.mp")
    try:
        frames = msgpack.unpackb(members[f"{key}.mp"].read())  # type: ignore[union-attr]
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"{key}.mp is no list of frames ({type(error).__name__})") from None
    if not isinstance(frames, list):
        raise ValueError(f"{key}.mp is no list of frames")
    return frames


def check_pixels(
    frames: list[bytes], extent: Extent, row: dict[str, Any], quality: int | None, decoder: str = "cpu"
) -> str:
    """Decode the frames of a view again and compare them with those stored; what differs, "" when nothing does.

    Args:
        extent: the bytes of the clip.
        row: of the table of views.
        quality: at which the frames are stored.
        decoder: that made them.
    """
    try:
        done = collect(
            open_clip(extent, decoder),
            sorted(set(row["frame_indices"])),
            lambda rgb: encode(resize(rgb, row["height"], row["width"]), quality),
        )
    except Rejected as rejected:
        return f"{row['view']} cannot be decoded again: {rejected}"
    for number, index in enumerate(row["frame_indices"]):
        if index not in done.frames:
            return f"{row['view']}: frame {index} cannot be decoded again: {done.clip.failures[index]}"
        if done.frames[index] != frames[number]:
            new, old = (decode_image(picture).astype(int) for picture in (done.frames[index], frames[number]))
            by = f"by up to {abs(new - old).max()} levels" if new.shape == old.shape else "in size"
            return f"{row['view']}: frame {index} differs {by} from what its clip decodes to"
    return ""


def check_shard(shard: Path) -> list[tuple[str, str]]:
    """What keeps a tar from being a WebDataset shard: (word, sentence) each.

    WebDataset cuts a member's name at the first dot after the last slash: the key before it, the field after it;
    members of one sample must follow each other. Its readers end a sample early, join two or overwrite a field
    where that does not hold, and say nothing.
    """
    try:
        names = list_names(shard)
    except Rejected as rejected:
        return [(rejected.reason, rejected.detail)]
    problems = []
    fields_of: dict[str, list[str]] = {}
    last_key = None
    for name in names:
        folder, slash, base = name.rpartition("/")
        stem, dot, field = base.partition(".")
        key = folder + slash + stem
        if not stem or not dot or not field:
            problems.append(("no-field", f"{name} must be KEY.FIELD"))
            continue
        if field in fields_of.get(key, ()):
            problems.append(("duplicate-field", f"{name} stands twice"))
        elif key in fields_of and key != last_key:
            problems.append(("split-sample", f"{name} does not follow the other members of its sample"))
        fields_of.setdefault(key, []).append(field)
        last_key = key
    most = max((set(fields) for fields in fields_of.values()), key=len, default=set())
    for key, fields in fields_of.items():
        if missing := most - set(fields):
            problems.append(("missing-field", f"{key} has no {', '.join(sorted(missing))}, others have"))
    return problems or ([] if fields_of else [("no-samples", f"{shard.name} holds no sample")])


def compare_schemas(schema: pa.Schema, wanted: pa.Schema) -> list[str]:
    """How the columns of a table differ from those it should have, one clause each.

    Readers differ in what they make of it: pyarrow takes the first file's columns and drops the others in
    silence, `datasets` stops.
    """
    found = []
    for field in wanted:
        if field.name not in schema.names:
            found.append(f"{field.name} missing")
        elif (kind := schema.field(field.name).type) != field.type:
            found.append(f"{field.name}: {kind} vs {field.type}")
    found += [f"extra column {name}" for name in schema.names if name not in wanted.names]
    common = [name for name in schema.names if name in wanted.names]
    if common != [name for name in wanted.names if name in schema.names]:
        found.append("column order")
    return found


def check_same_schema(tables: Sequence[Path]) -> dict[str, list[str]]:
    """Parquet files that should be one table: how each differs from the first, by name; {} when none does."""
    schemas = {path.name: pq.read_schema(path).remove_metadata() for path in tables}
    first = schemas[tables[0].name]
    return {name: differs for name, schema in schemas.items() if (differs := compare_schemas(schema, first))}
