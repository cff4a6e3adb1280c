"""A first draft of a recipe, from the files of a source and the first bytes of some of them. Pure.

What can only be guessed is marked so in the draft: it is for a person to check.
"""

from __future__ import annotations

import io
import json
import posixpath
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from clipshards.errors import SourceError
from clipshards.recipe import ConversationFields, QuestionFields

START_BYTES = 1 << 17
"""So much of a file is looked at."""

ReadStart = Callable[[str], bytes]
"""Path in the source → the first `START_BYTES` of the file."""

_MOST_UNCLEAR = 20
_PART = re.compile(r"(\.tar|\.tar\.gz|\.tgz)$", re.IGNORECASE)
_ROWS = re.compile(r"\.jsonl?$", re.IGNORECASE)
_SPECS = re.compile(r'\[\s*\{[^{}]*"type"\s*:\s*"(video|text|meta)"')
_BETWEEN = re.compile(r"[\s,]*")
_WORDS_OF_SPLITS = {
    "test": {"test", "testing", "eval", "evaluation", "bench", "benchmark"},
    "validation": {"val", "valid", "validation", "dev"},
    "train": {"train", "training"},
}
_RL = {"rl", "grpo", "ppo", "dpo"}
_FIELDS: dict[str, tuple[str, ...]] = {
    "id": ("id", "qid", "question_id", "uid"),
    "clip": ("video", "video_path", "clip", "path", "file", "video_id"),
    "source": ("source", "data_source", "dataset"),
    "category": ("category", "question_type", "task", "task_type", "type"),
    "difficulty": ("difficulty", "level"),
    "format": ("format", "question_format"),
    "question": ("question", "query", "prompt"),
    "options": ("options", "choices", "candidates"),
    "answer": ("answer", "gt", "label", "ground_truth"),
    "response": ("response", "explanation", "rationale", "solution"),
}
"""Names that data sets give to the fields of a question."""
_WHOLE_CLIP_PROFILE = """\
# guessed: set it to what your trainer samples of a whole clip
[profiles.whole-clip]
max_fps = 1.0
max_total = 64
min_frames = 1
multiple = 1
"""


@dataclass
class _SplitDraft:
    parts: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    examples: dict[str, dict[str, list[str]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """format → stage → files."""
    item_folder: str = ""
    clip_folder: str = ""


@dataclass
class _Findings:
    """What the files of a source are, as far as it can be told."""

    parts: list[str]
    splits: dict[str, _SplitDraft] = field(default_factory=lambda: defaultdict(_SplitDraft))
    questions: list[dict[str, Any]] = field(default_factory=list)
    """The first rows; so are the conversations."""
    conversations: list[dict[str, Any]] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)

    def add_rows(self, path: str, rows: Sequence[Any]) -> None:
        """Take in a file by its first rows."""
        kind = _kind_of(rows)
        objects = [row for row in rows if isinstance(row, dict)]
        if kind == "questions":
            self.splits[_split_of(path)].questions.append(path)
            self.questions += objects
        elif kind:
            self.splits[_split_of(path)].examples[kind][_stage_of(path)].append(path)
            self.conversations += objects
        else:
            self.unclear.append(path)


def draft_recipe(name: str, repo: str, paths: Sequence[str], read_start: ReadStart) -> str:
    """The draft as TOML text; it passes `find_mistakes`.

    Args:
        name: of the recipe.
        repo: OWNER/NAME on the Hub, "" for a folder.
        paths: of all files of the source.

    Raises:
        SourceError: none of them is a part.
    """
    found = _Findings([path for path in paths if _PART.search(path)])
    if not found.parts:
        raise SourceError(f"{name} holds no part (.tar, .tar.gz, .tgz): there is nothing to draft a recipe for")
    for path in found.parts:
        found.splits[_split_of(path)].parts.append(path)
    for path in filter(_ROWS.search, paths):
        found.add_rows(path, [*_first_rows(read_start(path))])
    for split in found.splits.values():
        if split.parts:
            split.item_folder, split.clip_folder = _folders_in(read_start(split.parts[0]), found.questions)
    return _text(name, repo, found)


def _split_of(path: str) -> str:
    """By the words of its folders, the last one first, then of its name; "train" when none tells."""
    for piece in (*reversed(path.split("/")[:-1]), path.rsplit("/", 1)[-1]):
        words = {*re.split(r"[^a-z]+", piece.lower())}
        for name, words_of_split in _WORDS_OF_SPLITS.items():
            if words & words_of_split:
                return name
    return "train"


def _stage_of(path: str) -> str:
    return "rl" if _RL & {*re.split(r"[^a-z]+", path.rsplit("/", 1)[-1].lower())} else "sft"


# -- what the first bytes of a file say


def _first_rows(start: bytes) -> Iterator[Any]:
    """The values that are complete in the start of a JSON array or of JSONL."""
    text = start.decode("utf-8-sig", "ignore").lstrip()
    decode = json.JSONDecoder().raw_decode
    is_array = text.startswith("[") and not _SPECS.match(text)  # a line of specs is a list too
    at = 1 if is_array else 0
    while match := _BETWEEN.match(text, at):
        try:
            value, at = decode(text, match.end())
        except (ValueError, RecursionError):
            return
        yield value


def _kind_of(rows: Sequence[Any]) -> str:
    """questions, or the format of examples; "" when neither is recognised."""
    if not rows:
        return ""
    row = rows[0]
    if isinstance(row, list):
        return "specs" if all(isinstance(spec, dict) and "type" in spec for spec in row) else ""
    if not isinstance(row, dict):
        return ""
    if _turns_of(row):
        return "conversations"
    return "questions" if {"question", "answer", "clip"} <= _found(row).keys() else ""


def _found(row: Mapping[str, Any]) -> dict[str, str]:
    """Our column → the field of a row that is most likely it."""
    likely = {ours: next((name for name in names if name in row), "") for ours, names in _FIELDS.items()}
    return {ours: name for ours, name in likely.items() if name}


def _turns_of(row: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The field that holds the turns, and in a turn those of the speaker and of the text."""
    for name, value in row.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            for speaker, text in (("from", "value"), ("role", "content")):
                if isinstance(value[0].get(speaker), str) and isinstance(value[0].get(text), str):
                    return name, speaker, text
    return None


def _folders_in(start: bytes, questions: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """The folders of bench items and of clips in a part, when its first members are bench items."""
    try:
        with tarfile.open(fileobj=io.BytesIO(start), mode="r|*") as tar:
            member = tar.next()
            payload = tar.extractfile(member) if member and member.name.endswith(".json") else None
            item = json.loads(payload.read()) if payload else None
    except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError):
        return "", ""
    if member is None or not isinstance(item, dict) or not isinstance(item.get("qa"), dict):
        return "", ""
    clip = str(item.get("clip_file"))
    likely = (str(row.get(_found(row)["clip"])) for row in questions if "clip" in _found(row))
    folder = next((path.removesuffix(clip) for path in likely if path.endswith("/" + clip)), "")
    return _folder(member.name), folder


def _folder(path: str) -> str:
    folder = posixpath.dirname(path)
    return folder + "/" if folder else ""


# -- the text


def _text(name: str, repo: str, found: _Findings) -> str:
    lines = [f"name = {_toml(name)}"]
    if repo:
        lines.append(f"repo = {_toml(repo)}")
    lines.append('licence = ""  # to be filled in')
    if formats := _choice_formats(found.questions):
        lines.append(f"multiple_choice_formats = {_toml(formats)}  # guessed: formats of rows that have options")
    lines += [f"# not understood, and so in no split: {_toml(path)}" for path in found.unclear[:_MOST_UNCLEAR]]
    if found.unclear[_MOST_UNCLEAR:]:
        lines.append(f"# nor are {len(found.unclear) - _MOST_UNCLEAR:,} more")
    for split_name, split in sorted(found.splits.items(), reverse=True):
        lines += ["", *_lines_of_split(split_name, split, found.parts)]
    lines += _lines_of_questions(found.questions) + _lines_of_conversations(found.conversations)
    text = "\n".join([*lines, ""])
    return text + "\n" + _WHOLE_CLIP_PROFILE if '"whole-clip"' in text else text


def _toml(value: str | Sequence[str]) -> str:
    """A text or a list of texts, as JSON and TOML write it alike; a long list has a text a line."""
    is_long = isinstance(value, list) and len(value) > 1 and sum(map(len, value)) > 80
    text = json.dumps(value, ensure_ascii=False, indent=4 if is_long else None)
    return text.replace("\x7f", "\\u007f")


def _lines_of_split(name: str, split: _SplitDraft, all_parts: Sequence[str]) -> list[str]:
    own = split.parts or all_parts
    others = [] if not split.parts else [path for path in all_parts if path not in own]
    lines = [
        f"[splits.{name}]  # guessed by names of folders and files",
        f"parts = {_toml(_patterns(own, others))}",
    ]
    if split.questions:
        lines.append(
            f"questions = {_toml([_exactly(path) for path in split.questions])}  # guessed by their fields"
        )
    formats = sorted(split.examples.items(), key=lambda item: -sum(map(len, item[1].values())))
    for kind, stages in formats[:1]:
        for stage, files in sorted(stages.items(), reverse=True):
            lines.append(f"examples.{stage} = {_toml([_exactly(path) for path in files])}  # guessed")
        if kind != "specs":
            lines.append(f"examples_format = {_toml(kind)}  # guessed by their fields")
    for kind, stages in formats[1:]:
        lines += [f"# {kind}, for a split of its own: {_toml(path)}" for files in stages.values() for path in files]
    if split.item_folder:
        lines.append(f"item_folder = {_toml(split.item_folder)}  # guessed: bench items in the parts")
    if split.clip_folder:
        lines.append(f"clip_folder = {_toml(split.clip_folder)}  # guessed: paths of clips are relative to it")
    kind = formats[0][0] if formats else ""
    profile = {"specs": "grasp-train", "conversations": "whole-clip"}.get(kind, "grasp-bench")
    return [*lines, f"profile = {_toml(profile)}  # guessed: choose what your trainer samples"]


def _patterns(own: Sequence[str], others: Sequence[str]) -> list[str]:
    """Patterns by folder and ending that match all of these paths and none of the others; else the paths."""
    kinds = dict.fromkeys((_folder(path), match[0]) for path in own if (match := _PART.search(path)))
    patterns = [f"{_exactly(folder)}*{ending}" for folder, ending in kinds]
    is_apart = not any(fnmatchcase(path, pattern) for pattern in patterns for path in others)
    return patterns if is_apart else [_exactly(path) for path in own]


def _exactly(path: str) -> str:
    """A pattern that matches this path only."""
    return re.sub(r"([*?[])", r"[\1]", path)


def _choice_formats(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = [(row, _found(row)) for row in rows]
    words = {
        row[names["format"]] for row, names in found if "format" in names and row.get(names.get("options", ""))
    }
    return sorted(word for word in words if isinstance(word, str))


def _lines_of_questions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    found = {ours: name for row in reversed(rows) for ours, name in _found(row).items()}
    usual = msgspec.structs.asdict(QuestionFields())
    changed = [f"{ours} = {_toml(name)}  # guessed" for ours, name in found.items() if usual[ours] != name]
    return ["", "# our column = field of a question", "[question_fields]", *changed] if changed else []


def _lines_of_conversations(rows: Sequence[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    row = rows[0]
    turns, speaker, text = _turns_of(row) or ("", "", "")
    speakers = [*dict.fromkeys(turn.get(speaker) for turn in row[turns] if isinstance(turn, dict)), "gpt"]
    marked = [word for word in ConversationFields().markers if any(word in json.dumps(row) for row in rows)]
    values = {
        "clip": _found(row).get("clip", ConversationFields().clip),
        "turns": turns, "speaker": speaker, "text": text, "user": str(speakers[0]), "assistant": str(speakers[1]),
    }  # fmt: skip
    lines = [f"{ours} = {_toml(name)}  # guessed" for ours, name in values.items()]
    none_seen = "" if marked else "  # none was seen in the first rows"
    lines.append(f"markers = {_toml(ConversationFields().markers)}{none_seen}")
    return ["", "# our word = field of a conversation", "[conversation_fields]", *lines]
