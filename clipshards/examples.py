"""Training lines → a table of examples and the windows they show.

    [{"type": "video", "path", "fps", "start_seconds", "end_seconds", "src_resolution": [height, width]},
     {"type": "text", "content", "output"}, …, {"type": "meta", "difficulty", "gt_events", "question_text"}]

is one line of `data_sft.jsonl` or `data_rl.jsonl`: a list of specs. What is not named here is kept in `extra`,
as JSON {"number of the spec": {field: value}}.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import pyarrow as pa

from clipshards.annotations import BATCH_ROWS, ClipPaths
from clipshards.errors import Rejected
from clipshards.jsonl import read_lines
from clipshards.schema import EVENTS, EXAMPLE_COLUMNS, TURNS, Reject


class Window(NamedTuple):
    """The part of a clip that a row shows: [start_seconds, end_seconds)."""

    clip: str
    start_seconds: float
    end_seconds: float


Shown = tuple[Window, ...]
"""The windows of one example, in order: nearly always one."""


@dataclass
class Examples:
    """Training lines of one split, in the order of the files."""

    table: pa.Table = field(default_factory=lambda: EXAMPLE_COLUMNS.empty_table())
    shown: list[Shown] = field(default_factory=list)
    """For each row of the table, its windows; equal ones are one object."""
    rejects: list[Reject] = field(default_factory=list)
    num_lines: int = 0


def read_examples(files: Iterable[tuple[str, str, Path]], clip_folder: str = "") -> Examples:
    """Read the files of training lines of a split: (stage, path in the source, path on disk) each."""
    builder = ExampleBuilder(clip_folder)
    for stage, name, path in files:
        with path.open("rb") as lines:
            builder.add_lines(stage, name, lines)
    return builder.finish()


class ExampleBuilder:
    """Collects training lines into Arrow batches, so that the texts are held once and compactly."""

    def __init__(self, clip_folder: str = "") -> None:
        self._clip_path = ClipPaths(clip_folder)
        self._result = Examples()
        self._known: dict[Shown, Shown] = {}
        self._batches: list[pa.RecordBatch] = []
        self._columns = _Columns()

    def add_lines(self, stage: str, name: str, lines: IO[bytes]) -> None:
        """Read one JSONL file; `name` is its path in the source."""
        for number, value in read_lines(lines):
            self._result.num_lines += 1
            try:
                if isinstance(value, Rejected):
                    raise value
                specs = _Specs(value, self._clip_path)
                target = specs.target(stage)
                shown = tuple(specs.windows)
                shown = self._known.setdefault(shown, shown)
            except Rejected as rejected:
                reject = Reject("example", name, rejected.reason, rejected.detail, line=number)
                self._result.rejects.append(reject)
                continue
            self._result.shown.append(shown)
            self._columns.append(name, number, stage, shown[0], specs, target)
            if len(self._columns.rows) >= BATCH_ROWS:
                self._flush()

    def finish(self) -> Examples:
        """All lines as one table of `schema.EXAMPLE_COLUMNS`."""
        self._flush()
        self._result.table = pa.Table.from_batches(self._batches, EXAMPLE_COLUMNS)
        return self._result

    def _flush(self) -> None:
        self._batches.append(self._columns.to_batch())
        self._columns = _Columns()


class _Specs:
    """The specs of one line, checked."""

    __slots__ = ("difficulty", "events", "extra", "first_size", "fps", "question", "turns", "warnings", "windows")

    def __init__(self, specs: Any, clip_path: ClipPaths) -> None:
        if type(specs) is not list:
            raise Rejected("row-not-a-list", f"a training line must be a list, this is {type(specs).__name__}")
        if not specs:
            raise Rejected("empty-row", "a list without specs")
        self.windows: list[Window] = []
        self.turns: list[tuple[bool, str]] = []
        self.extra: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.fps: float | None = None
        self.first_size: tuple[int, int] | None = None
        self.difficulty, self.question, self.events = "medium", None, None
        for number, spec in enumerate(specs):
            kind = spec.pop("type", None) if type(spec) is dict else None
            if kind == "video":
                self._add_video(spec, clip_path)
            elif kind == "text":
                self._add_text(spec)
            elif kind == "meta":
                self._add_meta(spec)
            elif type(spec) is not dict:
                raise Rejected("bad-meta", f"spec {number} ({spec!r:.80}) must be an object with a type")
            else:
                spec["type"] = kind
            if spec:
                self.extra[str(number)] = spec
        if not self.windows:
            raise Rejected("no-video-spec", "none of the specs is a video")
        if self.question is None:
            self.question = next((text for output, text in self.turns if not output), None)

    def _add_video(self, spec: dict[str, Any], clip_path: ClipPaths) -> None:
        take = spec.pop
        clip = clip_path(take("path", None))
        fps = self._number(take("fps", None), "fps", missing_ok=True)
        start = self._number(take("start_seconds", None), "start_seconds")
        end = self._number(take("end_seconds", None), "end_seconds")
        size = take("src_resolution", None)
        if fps is not None and fps <= 0:
            raise Rejected("bad-number", f"fps ({fps}) must be > 0")
        if not 0 <= start < end:
            raise Rejected("bad-window", f"start_seconds ({start}) must be ≥ 0 and < end_seconds ({end})")
        if not self.windows:
            self.fps, self.first_size = fps, _size(size)
        self.windows.append(Window(clip, start, end))

    def _number(self, value: Any, name: str, *, missing_ok: bool = False) -> Any:
        if type(value) is float or type(value) is int:
            number = float(value)
        elif value is None and missing_ok:
            return None
        elif type(value) is str:
            number = _number_from_text(value, name)
            self.warnings.append("number-as-text")
        else:
            raise Rejected("bad-number", f"{name} ({value!r:.80}) must be a number")
        if not math.isfinite(number):
            raise Rejected("bad-number", f"{name} ({value!r:.80}) must be finite")
        return number

    def _add_text(self, spec: dict[str, Any]) -> None:
        content, output = spec.pop("content", None), spec.pop("output", False)
        if type(content) is not str or type(output) is not bool:
            raise Rejected("bad-meta", f"a text needs content and a boolean output, not {output!r:.80}")
        self.turns.append((output, content))

    def _add_meta(self, spec: dict[str, Any]) -> None:
        take = spec.pop
        difficulty, question = take("difficulty", None), take("question_text", None)
        events = take("gt_events", None)
        for name, value in (("difficulty", difficulty), ("question_text", question)):
            if value is not None and type(value) is not str:
                raise Rejected("bad-meta", f"{name} ({value!r:.80}) must be a text")
        self.difficulty = difficulty or self.difficulty
        self.question = question or self.question
        if events is not None:
            if type(events) is not list:
                raise Rejected("bad-meta", f"gt_events ({events!r:.80}) must be a list")
            self.events = [_event(event) for event in events]

    def target(self, stage: str) -> str:
        """What the model should answer: the last turn, one assistant text, stripped for RL.

        Raises:
            Rejected: `empty-answer` when the last turn is not a text of the assistant.
        """
        output, text = self.turns[-1] if self.turns else (False, "")
        if not output or not text.strip():
            raise Rejected("empty-answer", "the last turn must be a text of the assistant")
        return text.strip() if stage == "rl" else text


def _size(value: Any) -> tuple[int, int] | None:
    """src_resolution is a hint: what is no [height, width] is as good as none."""
    if type(value) is list and len(value) == 2 and all(type(side) is int and 0 < side < 1 << 31 for side in value):
        return value[0], value[1]
    return None


def _number_from_text(value: str, name: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise Rejected("bad-number", f"{name} ({value!r:.80}) must be a number") from None


def _event(event: Any) -> tuple[str | None, list[int], str | None]:
    if type(event) is not dict:
        raise Rejected("bad-meta", f"an event of gt_events ({event!r:.80}) must be an object")
    source, persons = event.pop("source", None), event.pop("persons", None) or []
    if type(persons) is not list or not all(type(person) is int for person in persons):
        raise Rejected("bad-meta", f"persons ({persons!r:.80}) must be a list of integers")
    if source is not None and type(source) is not str:
        raise Rejected("bad-meta", f"source of an event ({source!r:.80}) must be a text")
    return source, persons, msgspec.json.encode(event).decode() if event else None


class _Columns:
    """Values of up to BATCH_ROWS lines, nested ones flat, as Arrow wants them."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.turns: list[tuple[bool, str]] = []
        self.turn_offsets = [0]
        self.events: list[tuple[str | None, list[int], str | None]] = []
        self.event_offsets: list[int | None] = [0]

    def append(
        self, file: str, line: int, stage: str, window: Window, specs: _Specs, target: str
    ) -> None:
        height, width = specs.first_size or (None, None)
        extra = msgspec.json.encode(specs.extra).decode() if specs.extra else None
        clip, start, end = window
        self.rows.append(
            (file, line, f"{stage}-{line}", stage, clip, start, end, specs.fps, height, width,
             specs.difficulty, specs.question, target, extra, specs.warnings)
        )  # fmt: skip
        self.turns += specs.turns
        self.turn_offsets.append(len(self.turns))
        if specs.events is None:
            self.event_offsets[-1] = None  # a null list starts nowhere
            self.event_offsets.append(len(self.events))
        else:
            self.events += specs.events
            self.event_offsets.append(len(self.events))

    def to_batch(self) -> pa.RecordBatch:
        flat = [name for name in EXAMPLE_COLUMNS.names if name not in ("turns", "gt_events")]
        values = zip(*self.rows, strict=True) if self.rows else [()] * len(flat)
        arrays = {
            name: pa.array(column, EXAMPLE_COLUMNS.field(name).type)
            for name, column in zip(flat, values, strict=True)
        }
        arrays["turns"] = _nested(TURNS, self.turn_offsets, self.turns)
        arrays["gt_events"] = _nested(EVENTS, self.event_offsets, self.events)
        return pa.RecordBatch.from_arrays([arrays[name] for name in EXAMPLE_COLUMNS.names], schema=EXAMPLE_COLUMNS)


def _nested(kind: pa.ListType, offsets: list[Any], items: list[tuple[Any, ...]]) -> pa.Array:
    fields = kind.value_type.fields
    columns = zip(*items, strict=True) if items else [()] * len(fields)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    values = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind)
