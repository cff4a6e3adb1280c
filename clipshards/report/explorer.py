"""Examples as a person looks at them: small frames with times, question, answer, events, and where they are from.

An example is a dict ready for JSON:

    id kind stage split source category difficulty format question options answer target response
    events   [{kind, who, start_seconds, end_seconds, target}]   seconds of the clip, null where none are given
    said     gaze and gesture tags of the answer, which have no times
    views    keys of its videos, num_views with those that are not shown
    from     {part, clip, offset_bytes, shard, shard_offset_bytes, commit}
    trouble  in place of what the sample says: why it cannot be shown

and a video, which examples share, {clip start_seconds end_seconds num_frames height width seconds frames}: seconds
of the frames that are shown, and these as data URIs.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import simplejpeg
from msgpack import UnpackException

from clipshards.errors import ClipshardsError, Rejected
from clipshards.images import Rgb, decode_image, encode, resize
from clipshards.output import read_dataset
from clipshards.reader import MEND, Sample, parse_sample
from clipshards.report.facts import rank
from clipshards.score import TAGS

FIELDS = ("kind", "source", "category", "difficulty")
"""What examples are chosen by; "" stands for a value that a row does not name."""

KINDS = ("training", "benchmark")
MAX_TEXT = 12_000
"""Characters of a text that are shown."""
MAX_EVENTS, MAX_VIDEOS = 200, 4
MAX_CHOICES, MAX_CHOICE = 200, 100
"""Values of a field that can be chosen, and their characters."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Thumbnails:
    """How many frames of a view are shown, evenly spread, and how large."""

    count: int
    width: int
    quality: int = 60


_SHEET = Thumbnails(4, 160, 70)


class Explorer:
    """All examples and items of a snapshot that have frames, those with events first."""

    def __init__(self, snapshot: Path) -> None:
        self._snapshot = snapshot
        self._commit = read_dataset(snapshot)["commit"]
        self._views = self._read("views", ["view", "shard", "offset_bytes", "length_bytes"])
        self.table = self._rows()

    def _read(self, name: str, columns: list[str]) -> pa.Table:
        return pq.read_table(self._snapshot / "manifests" / f"{name}.parquet", columns=columns)

    def _rows(self) -> pa.Table:
        both = ["split", "file", "line", "id", "source", "difficulty", "format", "question_id", "view"]
        examples = self._read("examples", [*both, "category", "stage", "more_views", "gt_events"])
        bench = self._read("bench", [*both, "category_canonical"]).rename_columns([*both, "category"])
        num_events = pc.fill_null(pc.list_value_length(examples["gt_events"]), 0)
        examples = examples.drop_columns(["gt_events"]).append_column("no_events", pc.equal(num_events, 0))
        table = pa.concat_tables([examples, bench], promote_options="default")
        is_item = pa.array(np.arange(table.num_rows) >= examples.num_rows)
        table = table.append_column("kind", pc.if_else(is_item, KINDS[1], KINDS[0]))
        for name in FIELDS:
            table = table.set_column(table.column_names.index(name), name, pc.fill_null(table[name], ""))
        table = table.filter(pc.is_valid(table["view"]))
        order = [("kind", "descending"), *((name, "ascending") for name in ("no_events", "file", "line"))]
        return table.take(pc.sort_indices(table, order))

    @cached_property
    def choices(self) -> dict[str, list[str]]:
        """By field its values, the most frequent `MAX_CHOICES`, sorted by name."""
        choices = {}
        for name in FIELDS:
            counts = [(row["values"], row["counts"]) for row in pc.value_counts(self.table[name]).to_pylist()]
            short = [entry for entry in counts if len(entry[0]) <= MAX_CHOICE]
            frequent = sorted(short, key=lambda entry: -entry[1])[:MAX_CHOICES]
            choices[name] = sorted((value for value, _ in frequent), key=rank)
        return choices

    def find(self, wanted: Mapping[str, str]) -> list[int]:
        """Numbers of the rows that have these values.

        Args:
            wanted: of some of `FIELDS`.
        """
        return list(pc.indices_nonzero(self._mask(wanted)).to_pylist())

    def count(self, wanted: Mapping[str, str]) -> dict[str, dict[str, int]]:
        """By field its `choices`, with how many rows have them and what is wanted of the other fields."""
        counts = {}
        for name in FIELDS:
            others = {other: value for other, value in wanted.items() if other != name}
            found = pc.value_counts(self.table[name].filter(self._mask(others))).to_pylist()
            count_of = {entry["values"]: entry["counts"] for entry in found}
            counts[name] = {value: count_of.get(value, 0) for value in self.choices[name]}
        return counts

    def _mask(self, wanted: Mapping[str, str]) -> pa.Array:
        mask = pa.array(np.ones(self.table.num_rows, bool))
        for name, value in wanted.items():
            mask = pc.and_(mask, pc.equal(self.table[name], value))
        return mask

    def num_combinations(self) -> int:
        """Of the values of `FIELDS` that exist."""
        return int(self.table.group_by(list(FIELDS)).aggregate([]).num_rows)

    def sample(self, least: int) -> list[int]:
        """Rows for a small file: one of each combination of `FIELDS` that exists, then more up to `least`."""
        numbered = self.table.select(list(FIELDS)).append_column("row", pa.array(np.arange(self.table.num_rows)))
        firsts = numbered.group_by(list(FIELDS)).aggregate([("row", "min")])["row_min"].to_pylist()
        others = np.setdiff1d(np.arange(self.table.num_rows), firsts)
        return [*sorted(firsts), *(int(others[at]) for at in spread(len(others), max(0, least - len(firsts))))]

    def show(self, numbers: Iterable[int], thumbnails: Thumbnails, most_bytes: int | None = None) -> Json:
        """The examples in these rows of the table, as many as fit, and their videos by the key of the view."""
        examples: list[Json] = []
        videos: dict[str, Json] = {}
        num_bytes = 0
        for number in numbers:
            example, new = self._example(number, thumbnails, videos.keys())
            num_bytes += len(to_json(example)) + len(to_json(new))
            if most_bytes is not None and num_bytes > most_bytes:
                break
            examples.append(example)
            videos |= new
        return {"examples": examples, "videos": videos}

    def _example(self, number: int, thumbnails: Thumbnails, known: Collection[str]) -> tuple[Json, dict[str, Json]]:
        """An example and those of its videos that are not known; one whose sample is damaged has none."""
        row = self.table.slice(number, 1).to_pylist()[0]
        keys = [row["view"], *(row["more_views"] or ())]
        try:
            samples = [self._sample(key) for key in keys[:MAX_VIDEOS]]
            videos = {sample.key: _video(sample, thumbnails) for sample in samples if sample.key not in known}
        except ClipshardsError as error:
            return {**_named(row), "trouble": str(error)}, {}
        text = samples[0].text
        shard, offset_bytes, _ = self._place(row["view"])
        example = {
            **_named(row),
            **_texts(samples[0], row),
            "views": [sample.key for sample in samples],
            "num_views": len(keys),
            "from": {
                "part": text["part"],
                "clip": text["clip"],
                "offset_bytes": text["member_offset_bytes"],
                "shard": shard,
                "shard_offset_bytes": offset_bytes,
                "commit": self._commit,
            },
        }
        return example, videos

    def contact_sheet(self) -> str:
        """Six views of all, four frames of each in a row, as the data URI of one small JPEG; "" without views."""
        if not self._views.num_rows:
            return ""
        keys = [self._views["view"][number].as_py() for number in spread(self._views.num_rows, 6)]
        rows = [
            np.hstack([_small(frames[number], _SHEET.width) for number in spread(len(frames), _SHEET.count)])
            for frames in (self._sample(key).frames for key in keys)
        ]
        width = max(row.shape[1] for row in rows)
        padded = [np.pad(row, ((0, 0), (0, width - row.shape[1]), (0, 0))) for row in rows]
        return _data_uri(encode(np.vstack(padded), _SHEET.quality))

    def _place(self, key: str) -> tuple[str, int, int]:
        number = pc.index(self._views["view"], key).as_py()
        shard, offset, length = (self._views[name][number].as_py() for name in self._views.column_names[1:])
        return shard, offset, length

    def _sample(self, key: str) -> Sample:
        shard, offset_bytes, length_bytes = self._place(key)
        try:
            with (self._snapshot / shard).open("rb", buffering=0) as file:
                block = os.pread(file.fileno(), length_bytes, offset_bytes)
            return parse_sample(block, key)
        except OSError as error:  # whose own text names folders above the snapshot
            raise ClipshardsError(f"{shard} cannot be read ({error.strerror}): {MEND}") from None
        except (ValueError, KeyError, UnpackException) as error:
            raise ClipshardsError(f"{shard} is damaged at {key} ({error}): {MEND}") from None


def to_json(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it ends the element or starts another."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII: U+2028 and what is no text are escaped as well
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _named(row: Json) -> Json:
    names = ("id", "kind", "stage", "split", "source", "category", "difficulty", "format")
    return {name: _shown(row[name]) for name in names}


def _video(sample: Sample, thumbnails: Thumbnails) -> Json:
    text = sample.text
    chosen = spread(len(sample.frames), thumbnails.count)
    return {
        "clip": _shown(text["clip"]),
        "start_seconds": text["start_seconds"],
        "end_seconds": text["end_seconds"],
        "num_frames": len(sample.frames),
        "height": text["height"],
        "width": text["width"],
        "seconds": [round(text["frame_seconds"][number], 3) for number in chosen],
        "frames": [
            _data_uri(encode(_small(sample.frames[number], thumbnails.width), thumbnails.quality))
            for number in chosen
        ],
    }


def spread(total: int, count: int) -> list[int]:
    """At most `count` of `total` numbers, evenly spread, with the first and the last."""
    return sorted({round(at) for at in np.linspace(0, total - 1, min(count, total))}) if total else []


def _small(encoded: bytes, width: int) -> Rgb:
    """A stored frame, `width` pixels wide."""
    if encoded.startswith(b"\xff\xd8"):
        try:  # libjpeg scales on the way, which takes a third of the time
            rgb = simplejpeg.decode_jpeg(encoded, colorspace="RGB", min_width=width, min_height=1)
        except ValueError as error:
            raise Rejected("decode-errors", f"a JPEG of {len(encoded)} bytes: {error}") from None
    else:
        rgb = decode_image(encoded)
    return resize(rgb, max(1, round(rgb.shape[0] * width / rgb.shape[1])), width)


def _data_uri(jpeg: bytes) -> str:
    return f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"


def _texts(sample: Sample, row: Json) -> Json:
    """What is asked and answered, of the row in the sample and of the annotation row that asks the same."""
    is_item = row["kind"] == KINDS[1]
    own = _find(sample, "items" if is_item else "examples", row["id"])
    question = own if is_item else _find(sample, "questions", row["question_id"])
    turns = own.get("turns") or []
    asked = own.get("question") or next((turn["content"] for turn in turns if not turn["output"]), "")
    target, events = own.get("target"), own.get("gt_events")
    said = [f"{tag.lower()} {content}" for tag, content in TAGS.findall(target or question.get("response") or "")]
    return {
        "question": _shown(asked),
        "options": [_shown(option) for option in (question.get("options") or ())[:26]],
        "answer": _shown(_answer(question) if question else None),
        "target": _shown(target),
        "response": _shown(question.get("response")) if question.get("response") != target else "",
        "events": list(read_events(events))[:MAX_EVENTS],
        "said": [_shown(text) for text in said[:MAX_EVENTS]],
    }


def _find(sample: Sample, kind: str, row_id: str | None) -> Json:
    return next((row for row in sample.text[kind] if row["id"] == row_id), {})


def _answer(question: Json) -> str | None:
    """The answer in full: the option that a letter points at."""
    place, options = question.get("answer_index"), question.get("options") or ()
    answer: str | None = question.get("answer")
    if place is None or place >= len(options) or answer == options[place]:
        return answer
    named = str(options[place])
    return named if answer and named.startswith(answer) else f"{answer} – {named}"


def read_events(stored: list[Json] | None) -> Iterator[Json]:
    """Events as they are shown: what is no time or no name is left out."""
    for event in stored or ():
        more = json.loads(event["extra"] or "{}")
        start, end = (_seconds(more.get(name)) for name in ("start_seconds", "end_seconds"))
        target = more.get("target")
        yield {
            "kind": _shown(event["source"]),
            "who": [f"P{person}" for person in event["persons"] or ()],
            "start_seconds": start,
            "end_seconds": end if end is None or start is None or end >= start else None,
            "target": _shown(target if isinstance(target, str) else None),
        }


def _seconds(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e9 else None


def _shown(text: str | None) -> str:
    """A text of the data set; one that is too long says how much is left out."""
    if text is None or len(text) <= MAX_TEXT:
        return text or ""
    return f"{text[:MAX_TEXT]}… and {len(text) - MAX_TEXT:,} more characters"
