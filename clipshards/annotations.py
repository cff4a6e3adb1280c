"""Annotation rows and bench items → a table of questions; what cannot be used → rejects with file and line.

    {"id", "video", "source", "category", "difficulty", "format", "question", "options", "answer", "response"}

is one line of `annotations.jsonl`; the recipe names the fields. Fields that it does not name are kept in
`extra` as JSON. Stored words stay as they are; canonical ones stand beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa

from clipshards.columns import BATCH_ROWS, TableBuilder
from clipshards.errors import Rejected
from clipshards.jsonl import READ_BYTES, has_keys, parse_json, read_blocks, require_plain
from clipshards.recipe import QuestionFields, Recipe, Split
from clipshards.schema import QUESTION_COLUMNS, Reject

_OPTIONS, _ANSWER_INDEX = (QUESTION_COLUMNS.get_field_index(name) - 2 for name in ("options", "answer_index"))
"""Places among the columns after `file` and `line`."""
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
        if path not in self._known:
            self._known[path] = self._clean(path)
        return self._known[path]

    def of_all(self, paths: Iterable[str]) -> list[str]:
        """The same for many paths; nearly all are known."""
        known = self._known.get
        return [known(path) or self(path) for path in paths]

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
        with path.open("rb", READ_BYTES) as lines:
            builder.add_lines(name, lines)
    return builder.finish()


class QuestionBuilder:
    """Collects rows into Arrow batches, so that the texts are held once and compactly.

    A block of plain rows (all named fields, of the usual types, no others, nothing to reject) is read column
    by column. Any other block is halved, down to single rows, which go the long way.
    """

    def __init__(self, recipe: Recipe, split: Split) -> None:
        self._fields = recipe.question_fields
        self._canonical = recipe.canonical_categories
        self._choice_formats = frozenset(recipe.multiple_choice_formats)
        self._clip_path = ClipPaths(split.clip_folder)
        self._ids: set[str] = set()
        self._table = TableBuilder(QUESTION_COLUMNS)
        self._result = Questions()
        self._decode_plain = msgspec.json.Decoder(_plain_row(self._fields)).decode

    def add_lines(self, name: str, lines: IO[bytes]) -> None:
        """Read one JSONL file; `name` is its path in the source."""
        for numbers, block in read_blocks(lines, BATCH_ROWS):
            self._result.num_lines += len(block)
            self._add_block(name, numbers, block)

    def add_item(self, part: str, member: str, text: bytes) -> None:
        """Read one bench item: `{"clip_file": …, "qa": {…}}`, a member of a part."""
        self._result.num_lines += 1
        try:
            self._add_row(part, 0, self._flatten(parse_json(text), member), member)
        except Rejected as rejected:
            reject = Reject("item", part, rejected.reason, rejected.detail, member=member)
            self._result.rejects.append(reject)

    def finish(self) -> Questions:
        """All rows as one table of `schema.QUESTION_COLUMNS`."""
        self._result.table = self._table.finish()
        return self._result

    def _flatten(self, item: Any, member: str) -> dict[str, Any]:
        if not isinstance(item, dict) or not isinstance(item.get("qa"), dict):
            raise Rejected("bad-meta", 'an item must be an object {"clip_file": …, "qa": {…}}')
        rest = {key: value for key, value in item.items() if key not in ("qa", "clip_file")}
        names = {self._fields.id: Path(member).stem, self._fields.clip: item.get("clip_file")}
        return {**rest, **names, **item["qa"]}

    def _add_block(self, name: str, numbers: list[int], lines: list[bytes]) -> None:
        try:
            checked = self._read_plain(lines)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Rejected):
            middle = len(lines) // 2
            if middle:
                self._add_block(name, numbers[:middle], lines[:middle])
                self._add_block(name, numbers[middle:], lines[middle:])
            else:
                self._add_line(name, numbers[0], lines[0])
        else:
            self._table.extend(
                [[name] * len(lines), numbers, *checked, [None] * len(lines), self._warnings(checked)]
            )

    def _read_plain(self, lines: list[bytes]) -> list[Sequence[Any]]:
        """The columns from `id` to `response` of plain rows.

        Raises:
            Rejected, or what msgspec raises: when a row is not plain.
        """
        rows = [msgspec.structs.astuple(self._decode_plain(line)) for line in lines]
        require_plain(has_keys(b"".join(lines), sum(map(len, rows))))
        ids, clips, *others = zip(*rows, strict=True)
        return self._checked(ids, self._clip_path.of_all(clips), *others)

    def _add_line(self, name: str, number: int, line: bytes) -> None:
        """The long way, which says what is wrong, if anything is."""
        try:
            self._add_row(name, number, parse_json(line), f"{name}:{number}")
        except Rejected as rejected:
            reject = Reject("row", name, rejected.reason, rejected.detail, line=number)
            self._result.rejects.append(reject)

    def _add_row(self, file: str, line: int, row: Any, place: str) -> None:
        (identity, clip, *others), extra = self._values_of_object(row, place)
        values = (identity, self._clip_path(clip), *others)
        checked = self._checked(*([value] for value in values))
        self._table.extend([[file], [line], *checked, [extra], self._warnings(checked)])

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

    def _checked(
        self, ids: Sequence[Any], clips: Sequence[Any], sources: Sequence[Any], categories: Sequence[Any],
        difficulties: Sequence[Any], forms: Sequence[Any], questions: Sequence[Any], options: Sequence[Any],
        answers: Sequence[Any], responses: Sequence[Any],
    ) -> list[Sequence[Any]]:  # fmt: skip
        """Columns of the table from the named fields of some rows.

        Raises:
            Rejected: when one is to be rejected; the detail is right where there is just one.
        """
        if not all(ids):
            raise Rejected("bad-meta", f"id ({ids[0]!r}) must be a text")
        new_ids = set(ids)
        if len(new_ids) < len(ids) or not self._ids.isdisjoint(new_ids):
            raise Rejected("duplicate-id", f"id ({ids[0]!r}) stands in an earlier row")
        if not all(questions) or not all(map(str.strip, questions)):
            raise Rejected("bad-meta", f"question ({questions[0]!r}) must be a text")
        indices = [*map(self._answer_index, answers, options, forms)]
        self._ids |= new_ids
        sources = [source or clip.split("/", 1)[0] for source, clip in zip(sources, clips, strict=True)]
        canonical = [self._canonical.get(category, category) for category in categories]
        return [
            ids, clips, sources, categories, canonical, difficulties, forms, questions, options, answers, indices,
            responses,
        ]  # fmt: skip

    @staticmethod
    def _warnings(columns: Sequence[Sequence[Any]]) -> list[tuple[str, ...]]:
        options, indices = columns[_OPTIONS], columns[_ANSWER_INDEX]
        return [
            ("duplicate-options",) if index is not None and _has_duplicates(texts) else ()
            for texts, index in zip(options, indices, strict=True)
        ]

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
    kinds = {"id": str, "clip": str, "question": str, "answer": str, "options": list[str] | None}
    columns = [
        (ours, kinds.get(ours, str | None), msgspec.field(name=theirs))
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


def _has_duplicates(options: list[str]) -> bool:
    """Whether two options differ in nothing but their labels."""
    if len({option[2:].strip() for option in options}) == len(options):
        return False  # nearly always: labels are two characters, `A.` or `A)`
    return len({_LABEL.sub("", option, 1).strip() for option in options}) < len(options)


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
