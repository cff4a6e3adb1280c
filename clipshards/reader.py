"""Reads a snapshot as a trainer needs it: any example, in any order, by one `pread` of a shard.

    data = clipshards.open(OUT)                      # or split="bench", where=pc.field("source") == "tvqa"
    data[7].frames                                   # uint8 [T, H, W, 3]
    data.specs(7)                                    # what the GRASP trainer's own loader builds

Only the narrow columns of the tables are held; texts and frames come together out of the sample. Imports
neither Prefect nor a decoder. A reader may be used by threads, and by processes that were forked or spawned:
`pread` has no position to share, and a pickled reader is a path and a filter.
"""

from __future__ import annotations

import builtins
import itertools
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgpack
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clipshards.errors import ClipshardsError, Rejected, UsageError
from clipshards.images import decode_images
from clipshards.output import current_snapshot, read_dataset
from clipshards.schema import SCHEMA_VERSION

BENCH = "bench"
"""The split of GRASP-Bench's items; every other split is one of training examples."""

OPEN_SHARDS = 32
"""Most files that a reader holds open."""

FrameForm = Literal["array", "tensor", "jpeg"]

HELD_OF_EXAMPLES = [
    "id", "file", "line", "stage", "source", "category", "format", "difficulty", "question_id", "fps_from_row",
    "view", "shard", "offset_bytes", "length_bytes", "num_frames", "video_tokens", "more_views",
]  # fmt: skip
_HELD_OF_BENCH = [
    "id", "file", "line", "source", "category_canonical", "format", "difficulty", "question_id",
    "view", "shard", "offset_bytes", "length_bytes", "num_frames", "video_tokens",
]  # fmt: skip
_FEW_VALUES = {"file", "stage", "source", "category", "category_canonical", "format", "difficulty", "shard"}
"""Columns held as dictionaries: a number a row."""

ROW_GROUP_ROWS = 65_536

MEND = "run `clipshards verify OUT --repair`"
"""What helps when a file is damaged."""

_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Video:
    """One window of a clip."""

    key: str
    """Of the sample."""
    clip: str
    """Path in the video root."""
    start_seconds: float | None
    """None: the whole clip is shown."""
    end_seconds: float | None
    fps: float
    """Average rate of the clip."""
    indices: tuple[int, ...]
    """Of the frames, in the clip."""
    seconds: npt.NDArray[np.float64]
    """[T], of the frames in the clip: index / fps."""
    height: int
    width: int
    frames: Any
    """uint8 [T, H, W, 3] RGB as array or tensor, or the list of T encoded pictures."""
    video_tokens: int


@dataclass(frozen=True, slots=True)
class Example:
    """One training line."""

    id: str
    stage: str
    """sft or rl."""
    source: str | None
    category: str | None
    format: str | None
    difficulty: str
    question_id: str | None
    """Of the annotation row; None where none asks the same."""
    videos: tuple[Video, ...]
    """In the order of the line: nearly always one."""
    turns: tuple[tuple[bool, str], ...]
    """(is the assistant's, text); the last is the one to learn."""
    question: str | None
    target: str
    gt_events: list[dict[str, Any]] | None
    """As in the line; None where the line has none."""
    extra: dict[str, Any]
    """Fields that the format does not name: number of the spec → fields; of the row of a conversation under "row".
    See `examples` and `conversations`."""
    video_tokens: int
    """Of all videos."""

    @property
    def frames(self) -> Any:
        """Of the first video."""
        return self.videos[0].frames

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """Of the frames of the first video."""
        return self.videos[0].seconds

    def prompt_seconds(self) -> list[npt.NDArray[np.float64]]:
        """Times as the prompt names them, for each video: from its window's start, after the videos before it."""
        before, times = 0.0, []
        for video in self.videos:
            start = video.start_seconds or 0.0
            times.append(video.seconds - start + before)
            before += (video.end_seconds or 0.0) - start
        return times


@dataclass(frozen=True, slots=True)
class BenchItem:
    """One multiple-choice question of GRASP-Bench about a whole clip."""

    id: str
    source: str | None
    category: str | None
    """Canonical: T1–T6, G1–G6, J1–J4."""
    difficulty: str | None
    video: Video
    question: str
    options: tuple[str, ...]
    answer: str
    """As it is stored: a letter in GRASP."""
    answer_index: int | None
    """Of the option that it points at."""

    @property
    def frames(self) -> Any:
        """Of the video."""
        return self.video.frames


class Reader:
    """The rows of one split, in the order of their files; see `Examples` and `Bench`.

    Args:
        snapshot: a published snapshot; it is not left when the output is refreshed.
        split: a split of the data set, or "bench".
        where: filter on the columns of `table`.
        frames: "array" and "tensor" (torch) decode, "jpeg" gives the encoded pictures.

    Raises:
        UsageError: no such split, a filter on a column that is not there, or a snapshot of another version.
    """

    def __init__(self, snapshot: Path, split: str, where: pc.Expression | None, frames: FrameForm) -> None:
        self.snapshot = snapshot
        self.split = split
        self._where = where
        self._frames = frames
        self._to_frames = _FORMS[frames]
        self._shards: OrderedDict[str, _Shard] = OrderedDict()
        require_version(snapshot)
        self.table = self._read_table()

    def _read_table(self) -> pa.Table:
        raise NotImplementedError

    def _item(self, row: dict[str, Any], sample: Sample) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, which: int | str) -> Any:
        """One row by its number, its id, or the key of its view (the first row that shows it).

        Raises:
            IndexError, KeyError: there is none.
            ClipshardsError: its sample is damaged.
        """
        row = self._row(which)
        return self._item(row, self._sample(row))

    def of_sample(self, number: int, sample: Sample) -> Any:
        """The row of that number, whose sample has been read already."""
        return self._item(self._row(number), sample)

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def find(self, name: str) -> list[int]:
        """Numbers of the rows of that id, else of those that show the view of that key."""
        for column in ("id", "view"):
            found = pc.indices_nonzero(pc.equal(self.table.column(column), name)).to_pylist()
            if found:
                return list(found)
        return []

    @property
    def difficulties(self) -> list[str]:
        """Of each row: easy, medium or hard; no clip is opened for it."""
        return list(self.table.column("difficulty").to_pylist())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.snapshot, self.split, self._where, self._frames)

    def _row(self, which: int | str) -> dict[str, Any]:
        count = len(self)
        if isinstance(which, str):
            numbers = self.find(which)
            if not numbers:
                raise KeyError(f"{which!r} is neither an id nor a key of the {count} rows of {self._named()}")
            which = numbers[0]
        if not -count <= which < count:
            raise IndexError(f"row {which} is not there: {self._named()} has {count}, from 0 on")
        row: dict[str, Any] = self.table.slice(which % count, 1).to_pylist()[0]
        return row

    def _named(self) -> str:
        filtered = "" if self._where is None else f" where {self._where}"
        return f"{self.split} of {self.snapshot}{filtered}"

    def _sample(self, place: dict[str, Any]) -> Sample:
        if place["view"] is None:
            raise ClipshardsError(f"{place['id']} has no stored frames: only windows of its clip are in the shards")
        try:
            return parse_sample(self._pread(place), place["view"])
        except (OSError, ValueError, KeyError, msgpack.UnpackException) as error:
            path = self.snapshot / place["shard"]
            raise ClipshardsError(f"{path} is damaged at {place['view']} ({error}): {MEND}") from None

    def _pread(self, place: dict[str, Any]) -> bytes:
        name = place["shard"]
        shard = self._shards.pop(name, None) or _Shard(self.snapshot / name)
        block = os.pread(shard.descriptor, place["length_bytes"], place["offset_bytes"])
        self._shards[name] = shard
        while len(self._shards) > OPEN_SHARDS:
            self._shards.popitem(last=False)  # closed when no thread reads it any more
        if len(block) < place["length_bytes"]:
            raise ValueError("it ends there")
        return block

    def _video(self, sample: Sample) -> Video:
        text = sample.text
        try:
            frames = self._to_frames(sample.frames)
        except Rejected as error:
            raise ClipshardsError(f"{sample.key} of {self.snapshot} is damaged ({error}): {MEND}") from None
        return Video(
            sample.key, text["clip"], text["start_seconds"], text["end_seconds"], text["fps"],
            tuple(text["frame_indices"]), np.array(text["frame_seconds"], np.float64),
            text["height"], text["width"], frames, text["video_tokens"],
        )  # fmt: skip

    def _read(self, name: str, columns: list[str], *, of_split: bool) -> pa.Table:
        """These columns of the rows that are wanted, in the order of their files."""
        file = self._parquet(name)
        empty = pa.RecordBatch.from_pylist([], file.schema_arrow)
        batches = itertools.chain([empty], self._batches(name, file, columns, of_split))
        try:
            table = pa.Table.from_batches([_held(batch, columns) for batch in batches]).unify_dictionaries()
        except OSError as error:
            what = " ".join(str(error).split())  # Arrow writes several lines
            raise ClipshardsError(f"{self._path(name)} is damaged ({what}): {MEND}") from None
        files = table.column("file").combine_chunks()
        rank = np.argsort(np.argsort(files.dictionary.to_pylist()))
        order = np.lexsort((table.column("line").to_numpy(), rank[files.indices.to_numpy()]))
        return table.take(pa.array(order)).combine_chunks()

    def _columns(self, name: str, columns: list[str]) -> pa.Table:
        """Of all rows of a table."""
        return self._parquet(name).read(columns)

    def _path(self, name: str) -> Path:
        return self.snapshot / "manifests" / f"{name}.parquet"

    def _parquet(self, name: str) -> pq.ParquetFile:
        path = self._path(name)
        try:
            return pq.ParquetFile(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise ClipshardsError(f"{path} cannot be read ({error}): {MEND}") from None

    def _batches(
        self, name: str, file: pq.ParquetFile, columns: list[str], of_split: bool
    ) -> Iterator[pa.RecordBatch]:
        """Rows of the table, a row group at a time: at no moment all texts as texts."""
        if self._where is None:  # without Arrow's query engine, whose import alone takes 40 MB
            names = [*columns, "split"] if of_split else columns
            rows = file.iter_batches(ROW_GROUP_ROWS, columns=names, use_threads=False)
            for batch in rows:  # with threads each of them keeps memory, and is not done sooner
                yield batch.filter(pc.equal(batch.column("split"), self.split)) if of_split else batch
            return
        import pyarrow.dataset as ds

        where = self._where & (pc.field("split") == self.split) if of_split else self._where
        try:
            yield from ds.dataset(self._path(name)).to_batches(columns=columns, filter=where, batch_readahead=1)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            names = file.schema_arrow.names
            what = str(error).partition(" in ")[0]  # after it, a line for each column
            raise UsageError(f"where ({self._where}): {what}; columns are {', '.join(names)}") from None


class Examples(Reader):
    """Training examples of one split; `data[i]` is an `Example`."""

    def _read_table(self) -> pa.Table:
        table = self._read("examples", HELD_OF_EXAMPLES, of_split=True)
        if table.num_rows == 0:
            self._require_split()
        more = pc.unique(pc.list_flatten(table.column("more_views")))
        views = self._columns("views", ["view", "shard", "offset_bytes", "length_bytes"]) if more else None
        self._more_places: Any = views.filter(pc.is_in(views.column("view"), more)) if views else None
        clips = self._columns("clips", ["clip", "height", "width", "split", "status"])
        is_here = pc.equal(clips.column("split"), self.split)
        self._clips = clips.filter(pc.and_(is_here, pc.equal(clips.column("status"), "sharded")))
        return table

    def _require_split(self) -> None:
        splits = self._columns("examples", ["split"]).column("split")
        known = sorted({*pc.unique(splits).to_pylist(), BENCH})
        if self.split not in known:
            raise UsageError(f"split ({self.split!r}) must be one of {', '.join(known)}")

    def lengths(self, count_tokens: Callable[[str], int] | None = None) -> npt.NDArray[np.int64]:
        """Tokens of each example, from the tables alone: int64 [len(self)].

        Args:
            count_tokens: tokens of a text by the trainer's tokenizer, called once for each different turn;
                None counts the videos only.
        """
        lengths: npt.NDArray[np.int64] = self.table.column("video_tokens").to_numpy().astype(np.int64)
        if count_tokens is None:
            return lengths
        turns = self._read("examples", ["file", "line", "turns"], of_split=True).column("turns")
        lists = turns.combine_chunks()
        texts = pc.struct_field(lists.flatten(), "content").dictionary_encode()
        tokens = np.array([count_tokens(text) for text in texts.dictionary.to_pylist()], np.int64)
        rows = pc.list_parent_indices(lists).to_numpy()
        np.add.at(lengths, rows, tokens[texts.indices.to_numpy()])
        return lengths

    def specs(self, which: int | str) -> list[dict[str, Any]]:
        """The specs of a training line with its videos decoded: what the GRASP trainer's loader hands on.

        They have the order of the line. A video has, besides the fields of the line, `content` (uint8
        [T, H, W, 3], or as `frames` says), `content_time` (float64 [T], seconds in the clip), `num_frames`,
        `dst_resolution` [height, width] and `num_tokens`; `src_resolution` is the decoded size, where a line may
        be wrong. A line without a meta gets one. Rules: `sampling`.
        """
        row = self._row(which)
        example: Example = self._item(row, self._sample(row))
        rates = [row["fps_from_row"], *[None] * (len(example.videos) - 1)]  # tables have that of the first
        specs = [self._video_spec(video, fps) for video, fps in zip(example.videos, rates, strict=True)]
        specs += [{"type": "text", "content": text, "output": output} for output, text in example.turns]
        meta: dict[str, Any] = {"type": "meta", "difficulty": example.difficulty, "question_text": example.question}
        if example.gt_events is not None:
            meta["gt_events"] = example.gt_events
        return _with_extra([*specs, meta], example.extra)

    def _video_spec(self, video: Video, fps: float | None) -> dict[str, Any]:
        number = pc.index(self._clips.column("clip"), video.clip).as_py()
        height, width = (self._clips.column(name)[number].as_py() for name in ("height", "width"))
        return {
            "type": "video",
            "path": video.clip,
            "fps": fps,
            "start_seconds": video.start_seconds,
            "end_seconds": video.end_seconds,
            "src_resolution": [height, width],
            "content": video.frames,
            "content_time": video.seconds,
            "num_frames": len(video.indices),
            "dst_resolution": [video.height, video.width],
            "num_tokens": video.video_tokens,
        }

    def _item(self, row: dict[str, Any], sample: Sample) -> Example:
        text = _row_of_sample(sample, "examples", row["id"])
        others = [self._video(self._sample(self._place_of(key))) for key in row["more_views"] or ()]
        return Example(
            row["id"], row["stage"], row["source"], row["category"], row["format"], row["difficulty"],
            row["question_id"], (self._video(sample), *others),
            tuple((turn["output"], turn["content"]) for turn in text["turns"]),
            text["question"], text["target"], _events(text["gt_events"]), json.loads(text["extra"] or "{}"),
            row["video_tokens"],
        )  # fmt: skip

    def _place_of(self, key: str) -> dict[str, Any]:
        number = pc.index(self._more_places.column("view"), key).as_py()
        place: dict[str, Any] = self._more_places.slice(number, 1).to_pylist()[0]
        return place


class Bench(Reader):
    """The items of GRASP-Bench; `data[i]` is a `BenchItem`."""

    def _read_table(self) -> pa.Table:
        table = self._read("bench", _HELD_OF_BENCH, of_split=False)
        names = ["category" if name == "category_canonical" else name for name in table.column_names]
        return table.rename_columns(names)

    def _item(self, row: dict[str, Any], sample: Sample) -> BenchItem:
        text = _row_of_sample(sample, "items", row["id"])
        return BenchItem(
            row["id"], row["source"], row["category"], row["difficulty"], self._video(sample),
            text["question"], tuple(text["options"] or ()), text["answer"], text["answer_index"],
        )  # fmt: skip


def open(
    out: str | Path,
    split: str = "train",
    *,
    where: pc.Expression | None = None,
    frames: FrameForm = "array",
) -> Examples | Bench:
    """Open the current snapshot of an output folder, or a snapshot, for reading.

    Args:
        split: "bench", or a split of the data set.
        where: a filter on columns of the table of examples (or bench), such as
            `pc.field("difficulty") == "easy"`.
        frames: "array" (uint8 [T, H, W, 3]), "tensor" (the same, of torch) or "jpeg" (list of T encoded pictures).

    Raises:
        UsageError: nothing is published there, or an argument is wrong.
    """
    if frames not in _FORMS:
        raise UsageError(f"frames ({frames!r}) must be one of {', '.join(_FORMS)}")
    snapshot = current_snapshot(Path(out))
    return (Bench if split == BENCH else Examples)(snapshot, split, where, frames)


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of a shard: its JSON and its encoded frames."""

    key: str
    text: dict[str, Any]
    frames: list[bytes]


def parse_sample(block: bytes, key: str) -> Sample:
    """The sample in the bytes of a shard from its first header on.

        [header 512 bytes: name, size in octal at 124][JSON, padded to 512][header][msgpack list of frames, padded]

    Raises:
        ValueError, KeyError, msgpack.UnpackException: the bytes are not those of that sample.
    """
    members, at = {}, 0
    for field in ("json", "mp"):
        name, _, _ = block[at : at + 100].partition(b"\0")
        if name != f"{key}.{field}".encode():
            raise ValueError(f"{name!r} lies where {key}.{field} should")
        size = int(block[at + 124 : at + 135], 8)
        members[field] = block[at + _BLOCK : at + _BLOCK + size]
        at += _BLOCK + -(-size // _BLOCK) * _BLOCK
    return Sample(key, json.loads(members["json"]), msgpack.unpackb(members["mp"]))


class _Shard:
    """An open shard, closed when nobody holds it any more."""

    def __init__(self, path: Path) -> None:
        self._file = builtins.open(path, "rb", buffering=0)  # noqa: SIM115, PTH123
        self.descriptor = self._file.fileno()

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # not when it could not be opened
            self._file.close()


def _held(batch: pa.RecordBatch, columns: list[str]) -> pa.RecordBatch:
    arrays = [batch.column(name) for name in columns]
    return pa.record_batch(
        [a.dictionary_encode() if name in _FEW_VALUES else a for name, a in zip(columns, arrays, strict=True)],
        names=columns,
    )


def require_version(snapshot: Path) -> None:
    """Raises UsageError when the tables of the snapshot are not those that this program reads."""
    version = read_dataset(snapshot).get("schema_version")
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"{snapshot} has schema_version {version}, this program reads {SCHEMA_VERSION}: "
            "install the clipshards that made it, or run `clipshards refresh OUT`"
        )


def _tensor(frames: list[bytes]) -> Any:
    import torch

    return torch.from_numpy(decode_images(frames))


def _encoded(frames: list[bytes]) -> list[bytes]:
    return frames


_FORMS: dict[str, Callable[[list[bytes]], Any]] = {"array": decode_images, "tensor": _tensor, "jpeg": _encoded}


def _row_of_sample(sample: Sample, kind: str, row_id: str) -> dict[str, Any]:
    """The row of that id among those that a sample holds; a line that shows a view twice is there twice."""
    found: list[dict[str, Any]] = [row for row in sample.text[kind] if row["id"] == row_id]
    if not found or any(row != found[0] for row in found):
        raise ClipshardsError(f"{sample.key} holds {len(found)} rows {row_id!r} among its {kind}, one was expected")
    return found[0]


def _events(stored: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """gt_events as in the line: further keys are kept as JSON."""
    if stored is None:
        return None
    return [
        {"source": event["source"], "persons": event["persons"], **json.loads(event["extra"] or "{}")}
        for event in stored
    ]


def _with_extra(specs: list[dict[str, Any]], extra: dict[str, Any]) -> list[dict[str, Any]]:
    """Put specs into the order of their line, and what GRASP does not name back into them."""
    by_type: dict[str | None, list[dict[str, Any]]] = {"video": [], "text": [], "meta": []}
    for spec in specs:
        by_type[spec["type"]].append(spec)
    # Of several metas the columns have one; of what is no spec of GRASP's they have nothing.
    ordered = [by_type[word].pop(0) if by_type.get(word) else {} for word in extra.get("order", ())]
    ordered += [spec for rest in by_type.values() for spec in rest]
    for number, fields in extra.items():
        if number == "row":
            ordered[-1] = fields | ordered[-1]  # the meta
        elif number != "order":
            ordered[int(number)] |= fields
    return ordered
