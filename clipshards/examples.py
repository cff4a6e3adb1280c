"""Training lines → a table of examples and the windows they show.

    [{"type": "video", "path", "fps", "start_seconds", "end_seconds", "src_resolution": [height, width]},
     {"type": "text", "content", "output"}, …, {"type": "meta", "difficulty", "gt_events", "question_text"}]

is one line of `data_sft.jsonl` or `data_rl.jsonl`: a list of specs. What is not named here is kept in `extra`,
as JSON {"number of the spec": {field: value}}. A line that is not videos, then texts, then at most one meta has the
types of all its specs under "order", null for others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import pyarrow as pa

from clipshards.annotations import ClipPaths
from clipshards.columns import BATCH_ROWS, StructLists, TableBuilder
from clipshards.errors import Rejected
from clipshards.jsonl import READ_BYTES, has_keys, parse_json, read_blocks, require_plain
from clipshards.schema import EXAMPLE_COLUMNS, Reject


class Window(NamedTuple):
    """The part of a clip that a row shows: [start_seconds, end_seconds), or all of it: None and None."""

    clip: str
    start_seconds: float | None
    end_seconds: float | None

    @property
    def duration_seconds(self) -> float | None:
        """Of the window; None for a whole clip."""
        whole = self.start_seconds is None or self.end_seconds is None
        return None if whole else self.end_seconds - self.start_seconds  # type: ignore[operator]


_INT64 = 1 << 63
_encode = msgspec.json.Encoder().encode
DEFAULT_DIFFICULTY = "medium"  # where a line names none

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
    has_hints: bool = True
    """Whether the format names rate and size of a clip, so that a row without them is worth a warning."""


def read_examples(files: Iterable[tuple[str, str, Path]], clip_folder: str = "") -> Examples:
    """Read the files of training lines of a split: (stage, path in the source, path on disk) each."""
    builder = ExampleBuilder(clip_folder)
    for stage, name, path in files:
        with path.open("rb", READ_BYTES) as lines:
            builder.add_lines(stage, name, lines)
    return builder.finish()


class ExampleBuilder:
    """Collects training lines into Arrow batches, so that the texts are held once and compactly.

    A block of plain lines (a video, texts, a meta; the usual fields and types, nothing to reject) is read
    column by column. Any other block is halved, down to single lines, which go the long way.
    """

    def __init__(self, clip_folder: str = "") -> None:
        self._clip_path = ClipPaths(clip_folder)
        self._known: dict[Shown, Shown] = {}
        self._table = TableBuilder(EXAMPLE_COLUMNS)
        self._result = Examples()

    def add_lines(self, stage: str, name: str, lines: IO[bytes]) -> None:
        """Read one JSONL file; `name` is its path in the source."""
        for numbers, block in read_blocks(lines, BATCH_ROWS):
            self._result.num_lines += len(block)
            self._add_block(stage, name, numbers, block)

    def finish(self) -> Examples:
        """All lines as one table of `schema.EXAMPLE_COLUMNS`."""
        self._result.table = self._table.finish()
        return self._result

    def _add_block(self, stage: str, name: str, numbers: list[int], lines: list[bytes]) -> None:
        try:
            shown, columns = _read_plain(lines, stage, self._clip_path)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Rejected):
            middle = len(lines) // 2
            if middle:
                self._add_block(stage, name, numbers[:middle], lines[:middle])
                self._add_block(stage, name, numbers[middle:], lines[middle:])
            else:
                self._add_line(stage, name, numbers[0], lines[0])
        else:
            self._append(stage, name, numbers, shown, columns)

    def _add_line(self, stage: str, name: str, number: int, line: bytes) -> None:
        """The long way, which says what is wrong, if anything is."""
        try:
            specs = _Specs(parse_json(line), self._clip_path)
            self._append(stage, name, [number], [tuple(specs.windows)], specs.columns(stage))
        except Rejected as rejected:
            reject = Reject("example", name, rejected.reason, rejected.detail, line=number)
            self._result.rejects.append(reject)

    def _append(
        self, stage: str, name: str, numbers: Sequence[int], shown: list[Shown], columns: Sequence[Any]
    ) -> None:
        shown = [*map(self._known.setdefault, shown, shown)]
        self._result.shown += shown
        count = len(numbers)
        ids = [f"{stage}-{number}" for number in numbers]
        windows = zip(*[windows[0] for windows in shown], strict=True)
        self._table.extend([[name] * count, numbers, ids, [stage] * count, *windows, *columns])


class _Video(msgspec.Struct, tag_field="type", tag="video", forbid_unknown_fields=True, gc=False):
    path: str
    fps: float | None
    start_seconds: float
    end_seconds: float
    src_resolution: list[Any] | None


class _Text(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True, gc=False):
    content: str
    output: bool


class _Meta(msgspec.Struct, tag_field="type", tag="meta", forbid_unknown_fields=True, gc=False):
    difficulty: str | msgspec.UnsetType | None = msgspec.UNSET
    question_text: str | msgspec.UnsetType | None = msgspec.UNSET
    gt_events: list[dict[str, Any]] | msgspec.UnsetType | None = msgspec.UNSET

    def num_keys(self) -> int:
        """Keys in the line, as far as all events are flat."""
        unset = msgspec.UNSET
        events = sum(map(len, self.gt_events)) if self.gt_events else 0
        named = (self.difficulty is not unset) + (self.question_text is not unset) + (self.gt_events is not unset)
        return 1 + named + events


_NO_SIZE = (None, None)

_decode_plain = msgspec.json.Decoder(list[_Video | _Text | _Meta]).decode


def _read_plain(lines: Sequence[bytes], stage: str, clip_path: ClipPaths) -> tuple[list[Shown], list[Any]]:
    """What plain lines show, and the columns from `fps_from_row` on.

    Raises:
        Rejected, or what msgspec raises: when a line is not plain.
    """
    rows: list[list[Any]] = [_decode_plain(line) for line in lines]
    require_plain(min(map(len, rows)) >= 3)
    videos, lasts, metas = ([row[place] for row in rows] for place in (0, -2, -1))
    texts = [text for row in rows for text in row[1:-1]]
    require_plain(
        {*map(type, videos)} == {_Video} and {*map(type, texts)} == {_Text} and {*map(type, metas)} == {_Meta}
    )
    num_keys = 6 * len(videos) + 3 * len(texts) + sum([meta.num_keys() for meta in metas])
    require_plain(has_keys(b"".join(lines), num_keys))

    starts, ends = [video.start_seconds for video in videos], [video.end_seconds for video in videos]
    fps = [video.fps for video in videos]
    require_plain(all([0 <= start < end for start, end in zip(starts, ends, strict=True)]))
    require_plain(all([rate is None or rate > 0 for rate in fps]))
    clips = clip_path.of_all([video.path for video in videos])
    windows = map(Window._make, zip(clips, starts, ends, strict=True))
    sizes = [_size(video.src_resolution) for video in videos]
    require_plain(
        all([size != _NO_SIZE or video.src_resolution is None for size, video in zip(sizes, videos, strict=True)])
    )
    heights, widths = zip(*sizes, strict=True)

    targets = [text.content for text in lasts]
    stripped = [target.strip() for target in targets]
    require_plain(all(stripped) and all([text.output for text in lasts]))
    difficulties = [meta.difficulty or DEFAULT_DIFFICULTY for meta in metas]
    questions = [
        meta.question_text or next((text.content for text in row[1:-1] if not text.output), None)
        for meta, row in zip(metas, rows, strict=True)
    ]
    turns = ([text.output for text in texts], [text.content for text in texts])
    events = [None if meta.gt_events is msgspec.UNSET else meta.gt_events for meta in metas]
    return list(zip(windows, strict=True)), [
        fps, heights, widths, difficulties, questions, stripped if stage == "rl" else targets,
        StructLists([len(row) - 2 for row in rows], turns), _event_column(events),
        [None] * len(rows), [()] * len(rows),
    ]  # fmt: skip


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

    def __init__(self, objects: Any, clip_path: ClipPaths) -> None:
        self.windows: list[Window] = []
        self.turns: list[tuple[bool, str]] = []
        self.extra: dict[str, Any] = {}
        self.warnings: tuple[str, ...] = ()
        self.fps: float | None = None
        self.first_size: tuple[int | None, int | None] = _NO_SIZE
        self.difficulty = DEFAULT_DIFFICULTY
        self.question: str | None = None
        self.events = _event_column([None])
        self._read(objects, clip_path)

    def _read(self, objects: Any, clip_path: ClipPaths) -> None:
        if type(objects) is not list:
            kind = type(objects).__name__
            raise Rejected("row-not-a-list", f"a training line must be a list, this is {kind}")
        order: list[str | None] = []
        for number, spec in enumerate(objects):
            if type(spec) is not dict:
                raise Rejected("bad-meta", f"spec {number} ({spec!r:.80}) must be an object with a type")
            take = {"video": self._take_video, "text": self._take_text, "meta": self._take_meta}
            word = spec.get("type")
            order.append(word if isinstance(word, str) and word in take else None)
            if isinstance(word, str) and word in take:
                del spec["type"]
                take[word](spec, clip_path)
            if spec:
                self.extra[str(number)] = spec
        if not _is_usual(order):
            self.extra["order"] = order
        if not objects:
            raise Rejected("empty-row", "a list without specs")
        if not self.windows:
            raise Rejected("no-video-spec", "none of the specs is a video")
        if self.question is None:
            self.question = next((text for output, text in self.turns if not output), None)

    def _take_video(self, spec: dict[str, Any], clip_path: ClipPaths) -> None:
        clip = clip_path(spec.pop("path", None))
        fps = self._number(spec.pop("fps", None), "fps", missing_ok=True)
        start = self._number(spec.pop("start_seconds", None), "start_seconds")
        end = self._number(spec.pop("end_seconds", None), "end_seconds")
        given = spec.pop("src_resolution", None)
        size = _size(given)
        if size == _NO_SIZE and given is not None:
            self.warnings = tuple(dict.fromkeys([*self.warnings, "resolution-bad"]))
        if fps is not None and fps <= 0:
            raise Rejected("bad-number", f"fps ({fps}) must be > 0")
        if not 0 <= start < end:
            raise Rejected("bad-window", f"start_seconds ({start}) must be ≥ 0 and < end_seconds ({end})")
        if not self.windows:
            self.fps, self.first_size = fps, size
        self.windows.append(Window(clip, start, end))

    def _number(self, value: Any, name: str, *, missing_ok: bool = False) -> Any:
        if value is None and missing_ok:
            return None
        if type(value) is str:
            value = _number_from_text(value, name)
            self.warnings = tuple(dict.fromkeys([*self.warnings, "number-as-text"]))
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
        self.difficulty = difficulty or self.difficulty
        self.question = question or self.question
        if events is not None:
            self.events = _event_column([events])

    def columns(self, stage: str) -> list[Any]:
        """The columns from `fps_from_row` on."""
        height, width = self.first_size
        extra = _encode(self.extra).decode() if self.extra else None
        return [
            [self.fps], [height], [width], [self.difficulty], [self.question], [self._target(stage)],
            StructLists([len(self.turns)], zip(*self.turns, strict=True)), self.events, [extra], [self.warnings],
        ]  # fmt: skip

    def _target(self, stage: str) -> str:
        """What the model should answer: the last turn, one assistant text, stripped for RL.

        Raises:
            Rejected: `empty-answer` when the last turn is not a text of the assistant.
        """
        output, text = self.turns[-1] if self.turns else (False, "")
        if not output or not text.strip():
            raise Rejected("empty-answer", "the last turn must be a text of the assistant")
        return text.strip() if stage == "rl" else text


def _is_usual(order: list[str | None]) -> bool:
    """Videos, texts, at most one meta: what the columns tell by themselves."""
    videos, texts, metas = (order.count(word) for word in ("video", "text", "meta"))
    return metas < 2 and order == ["video"] * videos + ["text"] * texts + ["meta"] * metas


def _size(value: Any) -> tuple[int, int] | tuple[None, None]:
    """src_resolution is a hint: what is no [height, width] is as good as none."""
    if type(value) is list and len(value) == 2:
        height, width = value
        if type(height) is int and type(width) is int and 0 < height < 1 << 31 and 0 < width < 1 << 31:
            return height, width
    return _NO_SIZE


def _number_from_text(value: str, name: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise Rejected("bad-number", f"{name} ({value!r:.80}) must be a number") from None


def _event_column(of_lines: list[list[Any] | None]) -> StructLists:
    lengths = [None if events is None else len(events) for events in of_lines]
    events = [_event(event) for events in of_lines if events for event in events]
    return StructLists(lengths, zip(*events, strict=True) if events else [(), (), ()])


def _event(event: Any) -> tuple[str | None, list[int], str | None]:
    if type(event) is not dict:
        raise Rejected("bad-meta", f"an event of gt_events ({event!r:.80}) must be an object")
    source, persons = event.pop("source", None), event.pop("persons", None) or []
    if type(persons) is not list:
        raise Rejected("bad-meta", f"persons ({persons!r:.80}) must be a list of integers")
    for person in persons:
        if type(person) is not int or abs(person) >= _INT64:
            raise Rejected("bad-meta", f"persons ({persons!r:.80}) must be a list of integers")
    if source is not None and type(source) is not str:
        raise Rejected("bad-meta", f"source of an event ({source!r:.80}) must be a text")
    return source, persons, _encode(event).decode() if event else None
