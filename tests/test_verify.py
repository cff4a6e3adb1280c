"""What is wrong with a snapshot is found: bytes, tables, places."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_snapshot import PROVENANCE, make_result

from clipshards.decode.media import Extent
from clipshards.images import decode_image, encode
from clipshards.schema import TABLES
from clipshards.verify import check_pixels, check_same_schema, check_shard, read_frames, verify_snapshot
from manifests.snapshot import publish, write_tables
from manifests.tables import build_manifest


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    split, rejects, shards = make_result(folder)
    return publish(folder / "out", build_manifest([split], rejects), split.shards, shards, PROVENANCE)


@pytest.fixture
def snapshot(published: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(published, tmp_path / "snapshot")


def _problems(snapshot: Path) -> list[str]:
    return [str(problem) for problem in verify_snapshot(snapshot)[1]]


def _shard(snapshot: Path) -> Path:
    return min((snapshot / "train").glob("*.tar"))


def _dataset(snapshot: Path) -> dict[str, Any]:
    return json.loads((snapshot / "dataset.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def _change_dataset(snapshot: Path, change: Callable[[dict[str, Any]], object]) -> None:
    dataset = _dataset(snapshot)
    change(dataset)
    (snapshot / "dataset.json").write_text(json.dumps(dataset), encoding="utf-8")


def _describe_again(snapshot: Path, *names: str) -> None:
    """Make dataset.json agree with files that were changed, so that only their contents are wrong."""

    def describe(dataset: dict[str, Any]) -> None:
        for name in names:
            content = (snapshot / name).read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            dataset["files"][name] = {"size_bytes": len(content), "sha256": sha256}

    _change_dataset(snapshot, describe)


def _change_table(snapshot: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    table = pq.read_table(snapshot / "manifests" / f"{name}.parquet")
    write_tables({name: change(table)}, snapshot / "manifests")
    _describe_again(snapshot, f"manifests/{name}.parquet")


def _with_first(column: str, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        rows[0][column] = value
        return pa.Table.from_pylist(rows, table.schema)

    return change


def test_good_snapshot(published: Path) -> None:
    checked, problems = verify_snapshot(published)
    assert problems == []
    assert checked == {"files": len(_dataset(published)["files"]), "tables": len(TABLES), "views": 4}


@pytest.mark.parametrize("at", [0, 700, -1])
def test_flipped_byte_in_a_shard(snapshot: Path, at: int) -> None:
    shard = _shard(snapshot)
    content = bytearray(shard.read_bytes())
    content[at] ^= 1
    shard.write_bytes(content)
    (problem,) = _problems(snapshot)
    assert problem.startswith(f"train/{shard.name}: sha256")


def test_missing_and_short_files(snapshot: Path) -> None:
    shard = _shard(snapshot)
    size = shard.stat().st_size
    shard.unlink()
    (snapshot / "README.md").write_text("short")
    wanted = _dataset(snapshot)["files"]["README.md"]["size_bytes"]
    assert sorted(_problems(snapshot)) == [
        f"README.md: 5 bytes, dataset.json says {wanted}",
        f"train/{shard.name}: missing",
    ]
    assert size > 0


def test_table_of_other_bytes(snapshot: Path) -> None:
    path = snapshot / "manifests" / "clips.parquet"
    pq.write_table(pq.read_table(path), path, compression="none")
    (problem,) = _problems(snapshot)
    assert problem.startswith("manifests/clips.parquet: ")


@pytest.mark.parametrize("version", [0, 999, None])
def test_other_schema_version(snapshot: Path, version: int | None) -> None:
    _change_dataset(snapshot, lambda dataset: dataset.update(schema_version=version))
    checked, (problem,) = verify_snapshot(snapshot)
    assert checked == {}
    assert f"schema_version is {version}" in problem.what


def test_no_schema_version(snapshot: Path) -> None:
    _change_dataset(snapshot, lambda dataset: dataset.pop("schema_version"))
    assert len(_problems(snapshot)) == 1


def test_lost_row_and_lost_column(snapshot: Path) -> None:
    _change_table(snapshot, "clips", lambda table: table.slice(1))
    path = snapshot / "manifests" / "parts.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["sha256"]), path)
    _describe_again(snapshot, "manifests/parts.parquet")
    assert _problems(snapshot) == [
        "manifests/parts.parquet: sha256 missing",
        "manifests/clips.parquet: 4 rows, dataset.json says 5",
    ]


@pytest.mark.parametrize("name", ["examples", "questions", "bench"])
def test_row_whose_view_is_in_no_shard(snapshot: Path, name: str) -> None:
    _change_table(snapshot, name, _with_first("view", "s-nowhere-0"))
    (problem,) = _problems(snapshot)
    assert problem == f"manifests/{name}.parquet: 1 views are in no shard: s-nowhere-0"


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("num_frames", 3, "frames, the table says 3"),
        ("offset_bytes", 512, "no sample"),
        ("offset_bytes", 1, "no sample"),
        ("offset_bytes", 1 << 40, "no sample"),
        ("length_bytes", 512, ""),
        ("length_bytes", 5000, ""),
    ],
)
def test_view_that_is_not_where_the_table_says(snapshot: Path, column: str, value: int, words: str) -> None:
    _change_table(snapshot, "views", _with_first(column, value))
    (problem,) = _problems(snapshot)
    first = pq.read_table(snapshot / "manifests" / "views.parquet").slice(0, 1).to_pylist()[0]
    assert problem.startswith(f"{first['shard']}: at {first['offset_bytes']}: ")
    assert words in problem


def test_view_of_another_sample(snapshot: Path) -> None:
    rows = pq.read_table(snapshot / "manifests" / "views.parquet").to_pylist()
    other = next(row for row in rows if row["view"] != rows[0]["view"])

    def swap(table: pa.Table) -> pa.Table:
        for column in ("shard", "offset_bytes", "length_bytes"):
            rows[0][column] = other[column]
        return pa.Table.from_pylist(rows, table.schema)

    _change_table(snapshot, "views", swap)
    (problem,) = _problems(snapshot)
    assert f"wanted {rows[0]['view']}.json" in problem


def test_view_in_a_shard_that_is_not_there(snapshot: Path) -> None:
    _change_table(snapshot, "views", _with_first("shard", "train/none.tar"))
    (problem,) = _problems(snapshot)
    assert "train/none.tar" in problem


def test_sample_whose_frames_are_no_msgpack(snapshot: Path) -> None:
    row = pq.read_table(snapshot / "manifests" / "views.parquet").slice(0, 1).to_pylist()[0]
    shard = snapshot / row["shard"]
    content = bytearray(shard.read_bytes())
    start = row["offset_bytes"]
    json_blocks = -(-int(content[start + 124 : start + 135], 8) // 512)
    content[start + (json_blocks + 2) * 512] = 0xC1  # the byte that msgpack never uses
    shard.write_bytes(content)
    _describe_again(snapshot, row["shard"])
    (problem,) = _problems(snapshot)
    assert problem.startswith(f"{row['shard']}: at {start}: ")


def test_a_shard_by_the_rules_of_webdataset(tmp_path: Path) -> None:
    def words(*names: str) -> list[str]:
        shard = tmp_path / "shard.tar"
        with tarfile.open(shard, "w") as tar:
            for name in names:
                tar.addfile(tarfile.TarInfo(name))
        return [word for word, _ in check_shard(shard)]

    assert words("a/v1.0/k1.json", "a/v1.0/k1.x.mp", "k2.json", "k2.x.mp") == []
    assert words("k1.mp", "k1.json", "k1.mp") == ["duplicate-field"]
    assert words("k1.json", "k2.json", "k1.mp", "k2.mp") == ["split-sample", "split-sample"]
    assert words("k1.json", "k1.mp", "k2.json") == ["missing-field"]
    assert words("k1.json", "folder/.hidden", "none") == ["no-field", "no-field"]
    assert words() == ["no-samples"]
    words("k1.json")
    (tmp_path / "cut.tar").write_bytes((tmp_path / "shard.tar").read_bytes()[:512])
    assert [word for word, _ in check_shard(tmp_path / "cut.tar")] == ["tar-damaged"]


def test_tables_that_should_be_one(tmp_path: Path) -> None:
    def write(name: str, **columns: pa.Array) -> Path:
        pq.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    first = write("first", n=pa.array([1]), text=pa.array(["a"]))
    same = write("same", n=pa.array([], pa.int64()), text=pa.array([], pa.string()))
    other = write("other", more=pa.array([1]), text=pa.nulls(1), n=pa.array([1.0]))
    assert check_same_schema([first, same]) == {}
    assert check_same_schema([first, same, other]) == {
        "other": ["n: double vs int64", "text: null vs string", "extra column more", "column order"]
    }


def test_pixels_that_differ_are_named(published: Path, tmp_path: Path) -> None:
    make_result(tmp_path)
    row = pq.read_table(published / "manifests/views.parquet").slice(0, 1).to_pylist()[0]
    part = Extent(str(tmp_path / "part.tar"), row["member_offset_bytes"], row["member_size_bytes"])
    frames = read_frames(published / row["shard"], row["view"], row["offset_bytes"], row["length_bytes"])
    assert check_pixels(frames, part, row, 95) == ""
    index = row["frame_indices"][1]
    darker = encode((decode_image(frames[1]) * 0.5).astype("uint8"), 95)
    assert f"frame {index} differs by up to" in check_pixels([frames[0], darker, *frames[2:]], part, row, 95)
    smaller = encode(decode_image(frames[1])[:32], 95)
    assert "differs in size" in check_pixels([frames[0], smaller, *frames[2:]], part, row, 95)
    nowhere = Extent(str(tmp_path / "part.tar"), 0, 100)
    assert "cannot be decoded again" in check_pixels(frames, nowhere, row, 95)
