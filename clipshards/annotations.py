"""Annotation rows and bench items → a table of questions; what cannot be used → rejects with file and line.

    {"id", "video", "source", "category", "difficulty", "format", "question", "options", "answer", "response"}

is one line of `annotations.jsonl`; the recipe names the fields. Fields that it does not name are kept in
`extra` as JSON. Stored words stay as they are; canonical ones stand beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa

from clipshards.errors import Rejected
from clipshards.jsonl import has_keys, parse_json, read_lines
from clipshards.recipe import QuestionFields, Recipe, Split
from clipshards.schema import QUESTION_COLUMNS, Reject

BATCH_ROWS = 16_384
_LABEL = re.compile(r"\s*\(?([A-Za-z])[).:]\s*")
_PLAIN_LABELS = [f"{chr(letter)})" for letter in range(ord("A"), ord("Z") + 1)]
_LETTER = re.compile(r"\s*\(?([A-Za-z])[).:]?\s*")


@dataclass
class Questions:
    """Annotation rows of one split, in the order of the files."""

    table: pa.Table = field(default_factory=lambda: QUESTION_COLUMNS.empty_table())
    rejects: list[Reject] = field(default_factory=list)
    num_lines: int = 0

    def clips(self) -> list[str]:
        """The clip of each row."""
        return self.table.column("clip").to_pylist()  # type: ignore[no-any-return]


class ClipPaths:
    """Checks the clip path of a row, once for each path."""

    def __init__(self, clip_folder: str = "") -> None:
        self._clip_folder = clip_folder
        self._known: dict[str, str] = {}

    def __call__(self, path: object) -> str:
        """The path as the parts name it.

        Raises:
            Rejected: `no-path`, `path-unsafe`.
        """
        if not isinstance(path, str) or not path.strip():
            raise Rejected("no-path", f"path ({path!r}) must be a text that names a clip")
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._clean(path)
        return known

    def _clean(self, path: str) -> str:
        pieces = [piece for piece in path.replace("\\", "/").split("/") if piece not in ("", ".")]
        if path.startswith(("/", "\\")) or ".." in pieces or "\0" in path or path[1:2] == ":":
            raise Rejected("path-unsafe", f"path ({path!r}) must be relative and stay in the video root")
        if not pieces:
            raise Rejected("no-path", f"path ({path!r}) must name a clip")
        clean = "/".join(pieces)
        if self._clip_folder and not clean.startswith(self._clip_folder):
            clean = self._clip_folder + clean
        return clean


def read_questions(files: Iterable[tuple[str, Path]], recipe: Recipe, split: Split) -> Questions:
    """Read the annotation files of a split: (path in the source, path on disk) each."""
    builder = QuestionBuilder(recipe, split)
    for name, path in files:
        with path.open("rb") as lines:
            builder.add_lines(name, lines)
    return builder.finish()


class QuestionBuilder:
    """Collects rows into Arrow batches, so that the texts are held once and compactly."""

    def __init__(self, recipe: Recipe, split: Split) -> None:
        self._fields = recipe.question_fields
        self._canonical = recipe.canonical_categories
        self._choice_formats = frozenset(recipe.multiple_choice_formats)
        self._clip_path = ClipPaths(split.clip_folder)
        self._ids: set[str] = set()
        self._rows: list[tuple[Any, ...]] = []
        self._batches: list[pa.RecordBatch] = []
        self._result = Questions()
        self._decode_plain = msgspec.json.Decoder(_plain_row(self._fields)).decode

    def add_lines(self, name: str, lines: IO[bytes]) -> None:
        """Read one JSONL file; `name` is its path in the source."""
        for number, line in read_lines(lines):
            self._result.num_lines += 1
            try:
                values, extra = self._values(line, f"{name}:{number}")
                self._rows.append((name, number, *self._checked(values), extra))
            except Rejected as rejected:
                reject = Reject("row", name, rejected.reason, rejected.detail, line=number)
                self._result.rejects.append(reject)
            if len(self._rows) >= BATCH_ROWS:
                self._flush()

    def add_item(self, part: str, member: str, text: bytes) -> None:
        """Read one bench item: `{"clip_file": …, "qa": {…}}`, a member of a part."""
        self._result.num_lines += 1
        try:
            values, extra = self._values_of_object(self._flatten(parse_json(text), member), member)
            self._rows.append((part, 0, *self._checked(values), extra))
        except Rejected as rejected:
            reject = Reject("item", part, rejected.reason, rejected.detail, member=member)
            self._result.rejects.append(reject)

    def finish(self) -> Questions:
        """All rows as one table of `schema.QUESTION_COLUMNS`."""
        self._flush()
        self._result.table = pa.Table.from_batches(self._batches, QUESTION_COLUMNS)
        return self._result

    def _flatten(self, item: Any, member: str) -> dict[str, Any]:
        if not isinstance(item, dict) or not isinstance(item.get("qa"), dict):
            raise Rejected("bad-meta", 'an item must be an object {"clip_file": …, "qa": {…}}')
        rest = {key: value for key, value in item.items() if key not in ("qa", "clip_file")}
        names = {self._fields.id: Path(member).stem, self._fields.clip: item.get("clip_file")}
        return {**rest, **names, **item["qa"]}

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(QUESTION_COLUMNS)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, QUESTION_COLUMNS, strict=True)]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=QUESTION_COLUMNS))
        self._rows = []

    def _values(self, line: bytes, place: str) -> tuple[tuple[Any, ...], str | None]:
        """The named fields of a line, and the others as JSON.

        A line that has all named fields, of the usual types and no others, is read in one go.
        """
        try:
            values = msgspec.structs.astuple(self._decode_plain(line))
            if msgspec.UNSET not in values and has_keys(line, len(values)):
                return values, None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # the long way says what is wrong, if anything is
        return self._values_of_object(parse_json(line), place)

    def _values_of_object(self, row: Any, place: str) -> tuple[tuple[Any, ...], str | None]:
        if type(row) is not dict:
            raise Rejected("row-not-a-list", f"an annotation must be an object, this is {type(row).__name__}")
        if not row:
            raise Rejected("empty-row", "an object without fields")
        row.setdefault(self._fields.id, place)
        named = {ours: row.pop(theirs, None) for ours, theirs in msgspec.structs.asdict(self._fields).items()}
        clip, options = named["clip"], _options(named["options"])
        texts = {ours: _text(value, ours) for ours, value in named.items() if ours not in ("clip", "options")}
        values = {**texts, "clip": clip, "options": options}
        extra = msgspec.json.encode(row).decode() if row else None
        return tuple(values[ours] for ours in named), extra

    def _checked(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        identity, clip, source, category, difficulty, form, question, options, answer, response = values
        clip = self._clip_path(clip)
        if not identity:
            raise Rejected("bad-meta", f"id ({identity!r}) must be a text")
        if identity in self._ids:
            raise Rejected("duplicate-id", f"id ({identity!r}) stands in an earlier row")
        if not question:
            raise Rejected("bad-meta", f"question ({question!r}) must be a text")
        answer_index = self._answer_index(answer, options, form)
        self._ids.add(identity)
        return (
            identity, clip, source or clip.split("/", 1)[0], category, self._canonical.get(category, category),
            difficulty, form, question, options, answer, answer_index, response,
        )  # fmt: skip

    def _answer_index(self, answer: str | None, options: list[str] | None, form: str | None) -> int | None:
        if not answer or not answer.strip():
            raise Rejected("empty-answer", f"answer ({answer!r}) must not be empty")
        is_choice = form in self._choice_formats if form else bool(options)
        if not is_choice:
            return None
        if not options:
            raise Rejected("no-options", f"a row of format {form!r} needs options")
        return find_answer(answer, options)


def _plain_row(fields: QuestionFields) -> type[msgspec.Struct]:
    """A row with just the named fields, in the order of `QuestionFields`."""
    text = str | None | msgspec.UnsetType
    kinds = {"id": str, "clip": str, "question": str, "options": list[str] | None | msgspec.UnsetType}
    columns = [
        (ours, kinds.get(ours, text), msgspec.field(name=theirs, default=msgspec.UNSET))
        for ours, theirs in msgspec.structs.asdict(fields).items()
    ]
    return msgspec.defstruct("PlainRow", columns, forbid_unknown_fields=True, gc=False)


def find_answer(answer: str, options: list[str]) -> int:
    """The option that an answer, a letter or the full text, points at: its index.

    Raises:
        Rejected: `answer-not-in-options` when it points at none or at more than one.
    """
    position = ord(answer) - ord("A") if len(answer) == 1 else -1
    plain_labels = [option[:2] for option in options]
    if 0 <= position < len(options) and plain_labels == _PLAIN_LABELS[: len(options)]:
        return position
    labels = [match[1].upper() if (match := _LABEL.match(option)) else "" for option in options]
    if "" in labels:
        labels = [chr(ord("A") + index) for index in range(len(options))]
    if match := _LETTER.fullmatch(answer):
        found = [index for index, label in enumerate(labels) if label == match[1].upper()]
        if len(found) == 1:
            return found[0]
    wanted = answer.strip()
    found = [i for i, option in enumerate(options) if wanted in (option.strip(), _LABEL.sub("", option, 1).strip())]
    if len(found) == 1:
        return found[0]
    raise Rejected("answer-not-in-options", f"{answer!r} points at {len(found)} of {options}")


def _options(value: Any) -> list[str] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        value = [f"{label}) {text}" for label, text in value.items()]
    if not isinstance(value, list) or not all(isinstance(option, str) for option in value):
        raise Rejected("bad-meta", f"options ({value!r:.80}) must be a list of texts")
    return value


def _text(value: Any, name: str) -> str | None:
    if type(value) is str or value is None:
        return value
    if isinstance(value, (int, float)):
        return str(value)
    raise Rejected("bad-meta", f"{name} ({value!r:.80}) must be a text")
