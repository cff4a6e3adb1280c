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
from clipshards.jsonl import has_keys, parse_json, read_lines
from clipshards.schema import EVENTS, EXAMPLE_COLUMNS, TURNS, Reject


class Window(NamedTuple):
    """The part of a clip that a row shows: [start_seconds, end_seconds)."""

    clip: str
    start_seconds: float
    end_seconds: float


_INT64 = 1 << 63

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
        for number, line in read_lines(lines):
            self._result.num_lines += 1
            try:
                specs = _read_specs(line, self._clip_path)
                target = specs.target(stage)
            except Rejected as rejected:
                reject = Reject("example", name, rejected.reason, rejected.detail, line=number)
                self._result.rejects.append(reject)
                continue
            shown = tuple(specs.windows)
            shown = self._known.setdefault(shown, shown)
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


class _Video(msgspec.Struct, tag_field="type", tag="video", forbid_unknown_fields=True, gc=False):
    path: str
    start_seconds: float
    end_seconds: float
    fps: float | msgspec.UnsetType | None = msgspec.UNSET
    src_resolution: list[Any] | msgspec.UnsetType | None = msgspec.UNSET


class _Text(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True, gc=False):
    content: str
    output: bool | msgspec.UnsetType = msgspec.UNSET


class _Meta(msgspec.Struct, tag_field="type", tag="meta", forbid_unknown_fields=True, gc=False):
    difficulty: str | msgspec.UnsetType | None = msgspec.UNSET
    question_text: str | msgspec.UnsetType | None = msgspec.UNSET
    gt_events: list[dict[str, Any]] | msgspec.UnsetType | None = msgspec.UNSET


_decode_plain = msgspec.json.Decoder(list[_Video | _Text | _Meta]).decode


def _read_specs(line: bytes, clip_path: ClipPaths) -> _Specs:
    """The specs of a line; one without unknown fields or unusual types is read in one go."""
    try:
        plain = _decode_plain(line)
        if has_keys(line, sum(map(_count_keys, plain))):
            return _Specs.of_plain(plain, clip_path)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the long way says what is wrong, if anything is
    return _Specs.of_objects(parse_json(line), clip_path)


def _count_keys(spec: _Video | _Text | _Meta) -> int:
    unset = msgspec.UNSET
    if type(spec) is _Video:
        return 4 + (spec.fps is not unset) + (spec.src_resolution is not unset)
    if type(spec) is _Text:
        return 2 + (spec.output is not unset)
    assert type(spec) is _Meta
    events = sum(map(len, spec.gt_events)) if spec.gt_events else 0
    named = (spec.difficulty is not unset) + (spec.question_text is not unset) + (spec.gt_events is not unset)
    return 1 + named + events  # an event with objects inside has more: then the long way is taken


class _Specs:
    """The specs of one line, checked."""

    __slots__ = (
        "difficulty",
        "events",
        "extra",
        "first_size",
        "fps",
        "question",
        "turns",
        "warnings",
        "windows",
    )

    def __init__(self) -> None:
        self.windows: list[Window] = []
        self.turns: list[tuple[bool, str]] = []
        self.extra: dict[str, Any] = {}
        self.warnings: tuple[str, ...] = ()
        self.fps: float | None = None
        self.first_size: tuple[int, int] | None = None
        self.difficulty = "medium"
        self.question: str | None = None
        self.events: list[tuple[str | None, list[int], str | None]] | None = None

    @classmethod
    def of_plain(cls, plain: list[_Video | _Text | _Meta], clip_path: ClipPaths) -> _Specs:
        specs = cls()
        for spec in plain:
            if type(spec) is _Video:
                fps = None if spec.fps is msgspec.UNSET else spec.fps
                specs.add_video(
                    clip_path(spec.path), fps, spec.start_seconds, spec.end_seconds, spec.src_resolution
                )
            elif type(spec) is _Text:
                specs.turns.append((spec.output is True, spec.content))
            elif type(spec) is _Meta:
                events = None if spec.gt_events is msgspec.UNSET else spec.gt_events
                specs.add_meta(spec.difficulty or None, spec.question_text or None, events)
        return specs._finished(plain)

    @classmethod
    def of_objects(cls, objects: Any, clip_path: ClipPaths) -> _Specs:
        if type(objects) is not list:
            kind = type(objects).__name__
            raise Rejected("row-not-a-list", f"a training line must be a list, this is {kind}")
        specs = cls()
        for number, spec in enumerate(objects):
            if type(spec) is not dict:
                raise Rejected("bad-meta", f"spec {number} ({spec!r:.80}) must be an object with a type")
            take = {"video": specs._take_video, "text": specs._take_text, "meta": specs._take_meta}
            word = spec.get("type")
            if isinstance(word, str) and word in take:
                del spec["type"]
                take[word](spec, clip_path)
            if spec:
                specs.extra[str(number)] = spec
        return specs._finished(objects)

    def _finished(self, specs: list[Any]) -> _Specs:
        if not specs:
            raise Rejected("empty-row", "a list without specs")
        if not self.windows:
            raise Rejected("no-video-spec", "none of the specs is a video")
        if self.question is None:
            self.question = next((text for output, text in self.turns if not output), None)
        return self

    def add_video(self, clip: str, fps: float | None, start: float, end: float, size: Any) -> None:
        if fps is not None and fps <= 0:
            raise Rejected("bad-number", f"fps ({fps}) must be > 0")
        if not 0 <= start < end:
            raise Rejected("bad-window", f"start_seconds ({start}) must be ≥ 0 and < end_seconds ({end})")
        if not self.windows:
            self.fps, self.first_size = fps, _size(size)
        self.windows.append(Window(clip, start, end))

    def add_meta(self, difficulty: str | None, question: str | None, events: list[Any] | None) -> None:
        self.difficulty = difficulty or self.difficulty
        self.question = question or self.question
        if events is not None:
            self.events = [_event(event) for event in events]

    def _take_video(self, spec: dict[str, Any], clip_path: ClipPaths) -> None:
        clip = clip_path(spec.pop("path", None))
        fps = self._number(spec.pop("fps", None), "fps", missing_ok=True)
        start = self._number(spec.pop("start_seconds", None), "start_seconds")
        end = self._number(spec.pop("end_seconds", None), "end_seconds")
        self.add_video(clip, fps, start, end, spec.pop("src_resolution", None))

    def _number(self, value: Any, name: str, *, missing_ok: bool = False) -> Any:
        if value is None and missing_ok:
            return None
        if type(value) is str:
            value = _number_from_text(value, name)
            self.warnings = ("number-as-text",)
        try:
            number = float(value) if type(value) in (int, float) else math.nan
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise Rejected("bad-number", f"{name} ({value!r:.80}) must be a finite number")
        return number

    def _take_text(self, spec: dict[str, Any], clip_path: ClipPaths) -> None:
        content, output = spec.pop("content", None), spec.pop("output", False)
        if type(content) is not str or type(output) is not bool:
            raise Rejected("bad-meta", f"a text needs content and a boolean output, not {output!r:.80}")
        self.turns.append((output, content))

    def _take_meta(self, spec: dict[str, Any], clip_path: ClipPaths) -> None:
        difficulty, question = spec.pop("difficulty", None), spec.pop("question_text", None)
        events = spec.pop("gt_events", None)
        for name, value in (("difficulty", difficulty), ("question_text", question)):
            if value is not None and type(value) is not str:
                raise Rejected("bad-meta", f"{name} ({value!r:.80}) must be a text")
        if events is not None and type(events) is not list:
            raise Rejected("bad-meta", f"gt_events ({events!r:.80}) must be a list")
        self.add_meta(difficulty, question, events)

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
    if type(persons) is not list or not all(type(person) is int and abs(person) < _INT64 for person in persons):
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

    def append(self, file: str, line: int, stage: str, window: Window, specs: _Specs, target: str) -> None:
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
