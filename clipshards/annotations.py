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
from clipshards.jsonl import parse_json, read_lines
from clipshards.recipe import Recipe, Split
from clipshards.schema import QUESTION_COLUMNS, Reject

BATCH_ROWS = 16_384
_LABEL = re.compile(r"\s*\(?([A-Za-z])[).:]\s*")
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
        self._clip_folder = split.clip_folder
        self._ids: set[str] = set()
        self._rows: list[tuple[Any, ...]] = []
        self._batches: list[pa.RecordBatch] = []
        self._result = Questions()

    def add_lines(self, name: str, lines: IO[bytes]) -> None:
        """Read one JSONL file; `name` is its path in the source."""
        for number, value in read_lines(lines):
            self._add(name, number, "", value)

    def add_item(self, part: str, member: str, text: bytes) -> None:
        """Read one bench item: `{"clip_file": …, "qa": {…}}`, a member of a part."""
        item: Any
        try:
            item = self._flatten(parse_json(text), member)
        except Rejected as rejected:
            item = rejected
        self._add(part, 0, member, item)

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

    def _add(self, file: str, line: int, member: str, value: Any) -> None:
        self._result.num_lines += 1
        try:
            if isinstance(value, Rejected):
                raise value
            self._rows.append((file, line, *self._row(value, f"{file}:{line}")))
        except Rejected as rejected:
            kind = "item" if member else "row"
            reject = Reject(kind, file, rejected.reason, rejected.detail, member=member, line=line)
            self._result.rejects.append(reject)
        if len(self._rows) >= BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(QUESTION_COLUMNS)
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, QUESTION_COLUMNS, strict=True)]
        self._batches.append(pa.RecordBatch.from_arrays(arrays, schema=QUESTION_COLUMNS))
        self._rows = []

    def _row(self, row: Any, place: str) -> tuple[Any, ...]:
        if type(row) is not dict:
            raise Rejected("row-not-a-list", f"an annotation must be an object, this is {type(row).__name__}")
        if not row:
            raise Rejected("empty-row", "an object without fields")
        names = self._fields
        take = row.pop
        clip = self._clip_path(take(names.clip, None))
        identity = self._identity(take(names.id, place))
        category = _text(take(names.category, None), names.category)
        form = _text(take(names.format, None), names.format)
        question = _text(take(names.question, None), names.question)
        if not question:
            raise Rejected("bad-meta", f"{names.question} ({question!r}) must be a text")
        options = _options(take(names.options, None))
        answer = _text(take(names.answer, None), names.answer)
        answer_index = self._answer_index(answer, options, form)
        source = _text(take(names.source, None), names.source) or clip.split("/", 1)[0]
        difficulty = _text(take(names.difficulty, None), names.difficulty)
        response = _text(take(names.response, None), names.response)
        extra = msgspec.json.encode(row).decode() if row else None
        canonical = self._canonical.get(category, category) if category else None
        self._ids.add(identity)
        return (
            identity, clip, source, category, canonical, difficulty, form,
            question, options, answer, answer_index, response, extra,
        )  # fmt: skip

    def _identity(self, value: Any) -> str:
        identity = _text(value, self._fields.id)
        if not identity:
            raise Rejected("bad-meta", f"{self._fields.id} ({value!r}) must be a text")
        if identity in self._ids:
            raise Rejected("duplicate-id", f"{self._fields.id} ({identity!r}) stands in an earlier row")
        return identity

    def _answer_index(self, answer: str | None, options: list[str] | None, form: str | None) -> int | None:
        if not answer or not answer.strip():
            raise Rejected("empty-answer", f"{self._fields.answer} ({answer!r}) must not be empty")
        is_choice = form in self._choice_formats if form else bool(options)
        if not is_choice:
            return None
        if not options:
            raise Rejected("no-options", f"format {form!r} needs {self._fields.options}")
        return find_answer(answer, options)


def find_answer(answer: str, options: list[str]) -> int:
    """The option that an answer, a letter or the full text, points at: its index.

    Raises:
        Rejected: `answer-not-in-options` when it points at none or at more than one.
    """
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
