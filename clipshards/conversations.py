"""Conversations about whole clips → a table of examples, as `examples` makes of training lines.

    {"id", "video", "conversations": [{"from": "human", "value": "<image>\\nWhat …?"}, {"from": "gpt", "value"}, …]}

is one object of a JSON array or of JSONL; the recipe names the fields. Where the marker stands, the video comes; it
is no text. The id of an example is file and number: those of the rows may be told twice, for a clip in each file.
What is not named here is kept in `extra`: fields of the row under "row", those of a turn as `examples` keeps them,
so does an order of video and texts that is not the usual one.
"""

from __future__ import annotations

import re
from typing import IO, Any

import msgspec

from clipshards.annotations import ClipPaths
from clipshards.columns import BATCH_ROWS, StructLists, TableBuilder
from clipshards.errors import Rejected
from clipshards.examples import DEFAULT_DIFFICULTY, Examples, Shown, Window
from clipshards.jsonl import parse_json, read_objects
from clipshards.recipe import ConversationFields
from clipshards.schema import EXAMPLE_COLUMNS, Reject

_encode = msgspec.json.Encoder().encode


class ConversationBuilder:
    """Collects conversations into Arrow batches, as `examples.ExampleBuilder` does training lines."""

    def __init__(self, fields: ConversationFields, clip_folder: str = "") -> None:
        self._fields = fields
        self._clip_path = ClipPaths(clip_folder)
        self._marker = re.compile("|".join(map(re.escape, fields.markers)))
        self._known: dict[str, Shown] = {}
        self._table = TableBuilder(EXAMPLE_COLUMNS)
        self._result = Examples(has_hints=False)

    def add_lines(self, stage: str, name: str, lines: IO[bytes]) -> None:
        """Read one file, a JSON array or JSONL; `name` is its path in the source."""
        for numbers, texts in read_objects(lines, BATCH_ROWS):
            self._result.num_lines += len(texts)
            for number, text in zip(numbers, texts, strict=True):
                try:
                    self._add(stage, name, number, parse_json(text))
                except Rejected as rejected:
                    reject = Reject("example", name, rejected.reason, rejected.detail, line=number)
                    self._result.rejects.append(reject)

    def finish(self) -> Examples:
        """All conversations as one table of `schema.EXAMPLE_COLUMNS`."""
        self._result.table = self._table.finish()
        return self._result

    def _add(self, stage: str, name: str, number: int, row: Any) -> None:
        clip, specs, extra = self._read(row)
        turns = [(output, text) for output, text in specs if text is not None]
        target = turns[-1][1].strip() if stage == "rl" else turns[-1][1]
        question = next(text for output, text in turns if not output)
        self._table.extend([
            [name], [number], [f"{name}:{number}"], [stage], [clip], [None], [None], [None], [None], [None],
            [DEFAULT_DIFFICULTY], [question], [target], StructLists([len(turns)], zip(*turns, strict=True)),
            StructLists([None], [(), (), ()]), [_encode(extra).decode() if extra else None], [()],
        ])  # fmt: skip
        self._result.shown.append(self._known.setdefault(clip, (Window(clip, None, None),)))

    def _read(self, row: Any) -> tuple[str, list[tuple[bool, str | None]], dict[str, Any]]:
        """Clip, specs (the assistant's?, text; the text of the video is None) and what is not named."""
        if type(row) is not dict:
            raise Rejected("row-not-a-list", f"a conversation must be an object, this is {type(row).__name__}")
        if not row:
            raise Rejected("empty-row", "an object without fields")
        if self._fields.clip not in row:
            raise Rejected("no-video-spec", f"the row has no {self._fields.clip!r}")
        clip = self._clip_path(row.pop(self._fields.clip))
        specs, extra = self._read_turns(row.pop(self._fields.turns, None))
        if row:
            extra["row"] = row
        if specs[0][1] is not None:
            extra["order"] = ["video" if text is None else "text" for _, text in specs] + ["meta"]
        return clip, specs, extra

    def _read_turns(self, turns: Any) -> tuple[list[tuple[bool, str | None]], dict[str, Any]]:
        if type(turns) is not list:
            raise Rejected("bad-meta", f"{self._fields.turns} ({turns!r:.80}) must be a list of turns")
        specs: list[tuple[bool, str | None]] = []
        extra: dict[str, Any] = {}
        for number, turn in enumerate(turns):
            output, text = self._read_turn(number, turn)
            specs += [(output, text)] if output else self._around_marker(text)
            if turn:
                extra[str(len(specs) - 1)] = turn
        num_videos = sum(text is None for _, text in specs)
        if not turns or not specs[-1][0]:
            raise Rejected("empty-answer", f"the last turn must be of {self._fields.assistant!r}")
        if num_videos != 1:
            words = " or ".join(self._fields.markers)
            raise Rejected("bad-meta", f"{words} must stand once in the texts of the user, not {num_videos} times")
        return specs, extra

    def _read_turn(self, number: int, turn: Any) -> tuple[bool, str]:
        """Whether a turn is the assistant's, and its text; takes both out of it."""
        if type(turn) is not dict:
            raise Rejected("bad-meta", f"turn {number} ({turn!r:.80}) must be an object")
        speaker, text = turn.pop(self._fields.speaker, None), turn.pop(self._fields.text, None)
        expected = (self._fields.user, self._fields.assistant)[number % 2]
        if speaker != expected:
            raise Rejected("bad-meta", f"turn {number} is of {speaker!r:.80}, it must be of {expected!r}")
        output = number % 2 == 1
        if type(text) is not str:
            raise Rejected("bad-meta", f"{self._fields.text} of turn {number} ({text!r:.80}) must be a text")
        if output and not text.strip():
            raise Rejected("empty-answer", f"turn {number}, of {expected!r}, is empty")
        if output and self._marker.search(text):
            raise Rejected("bad-meta", f"turn {number}, of {expected!r}, holds a marker of the video")
        return output, text

    def _around_marker(self, text: str) -> list[tuple[bool, str | None]]:
        """A text of the user, cut where the video comes; of nothing but the marker, an empty text is left."""
        first, *others = self._marker.split(text)
        if not others:
            return [(False, text)]
        pieces = [first.strip()]
        for piece in others:
            pieces += [None, piece.strip()]
        specs = [(False, piece) for piece in pieces if piece != ""]
        return specs if any(pieces) else [*specs, (False, "")]
