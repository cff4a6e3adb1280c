"""Chooses the questions of the data set and writes them as rows, in the shapes that GRASP uses. Pure.

annotation  {"id", "video", "source", "category", "difficulty", "format", "question", "options", "answer",
             "response"}
example     [{"type": "video", …}, {"type": "text", prompt}, {"type": "text", target}, {"type": "meta", …}]
bench item  {"clip_file", "qa": {"category", "question", "options", "answer", "difficulty"}}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from clipshards.demo.clips import Clip
from clipshards.demo.questions import DOES, Question, ask
from clipshards.demo.scene import Event, Window

Json = dict[str, Any]

_LETTERS = "ABCD"
_ROWS_PER_TRAIN_CLIP = 6
_ROWS_PER_BENCH_CLIP = 3
_SFT_FPS = 2.0
_STALE_EXAMPLE = 20
"""The SFT line whose `src_resolution` is wrong on purpose: a warning downstream, as in real data."""


@dataclass(frozen=True)
class Row:
    """One question of the data set; `options` is empty for an open question."""

    id: str
    clip: Clip
    question: Question
    options: tuple[str, ...]
    letter: str

    @property
    def target(self) -> str:
        """What an answer must equal: a letter, or a few words."""
        return self.letter or self.question.answer

    @property
    def prompt(self) -> str:
        """The question as the user asks it: one line, then a line for each option."""
        return "\n".join((self.question.text, *self.options))

    @property
    def response(self) -> str:
        """The structured answer: what is seen, with tags, then the answer; times are those in the window."""
        seen = " ".join(sentence(event, self.question.window) for event in self.question.evidence)
        return f"<think>{seen}</think><answer>{self.target}</answer>"


class _Chooser:
    """Takes questions so that categories, letters and formats come out even over the whole data set."""

    def __init__(self) -> None:
        self.categories: Counter[str] = Counter()
        self.letters: Counter[str] = Counter()

    def choose(self, clip: Clip, number: int, candidates: Sequence[Question]) -> Iterator[Question]:
        """Up to `number` questions, rare categories first; every third prefers a part of the clip."""
        left = list(candidates)
        taken: Counter[str] = Counter()
        for turn in range(number):
            if not left:
                return
            partial = turn % 3 == 2
            best = min(
                left,
                key=lambda one: (
                    taken[one.category],
                    self.categories[one.category],
                    (one.window != clip.whole) != partial,
                ),
            )
            left = [one for one in left if one.text != best.text]
            taken[best.category] += 1
            self.categories[best.category] += 1
            yield best

    def options(self, question: Question, random: Random) -> tuple[tuple[str, ...], str]:
        """At most four options "A) …", the answer under the letter used least so far, and that letter."""
        wrong = [choice for choice in question.choices if choice != question.answer]
        texts = random.sample(wrong, min(3, len(wrong)))
        letters = _LETTERS[: len(texts) + 1]
        letter = min(letters, key=lambda one: self.letters[one])
        self.letters[letter] += 1
        texts.insert(letters.index(letter), question.answer)
        return tuple(f"{mark}) {text}" for mark, text in zip(letters, texts, strict=True)), letter


def train_rows(clips: Iterable[Clip]) -> list[Row]:
    """Rows of the training clips: about six a clip, two thirds multiple choice."""
    chooser, rows = _Chooser(), list[Row]()
    for clip in clips:
        windows = [clip.whole]
        if len(clip.scene.beats) > 1 and not clip.variable_rate:
            windows += clip.scene.beats
        random = Random(clip.seed)
        for question in chooser.choose(clip, _ROWS_PER_TRAIN_CLIP, _shuffled(clip, windows, random)):
            open_ended = len(rows) % 3 == 1 or len(question.choices) < 3
            options, letter = ((), "") if open_ended else chooser.options(question, random)
            rows.append(Row(f"train-{len(rows) + 1:04d}", clip, question, options, letter))
    return rows


def bench_rows(clips: Iterable[Clip]) -> list[Row]:
    """Rows of the benchmark: multiple choice about whole clips."""
    chooser, rows = _Chooser(), list[Row]()
    for clip in clips:
        random = Random(clip.seed)
        candidates = [one for one in _shuffled(clip, [clip.whole], random) if len(one.choices) > 2]
        for question in chooser.choose(clip, _ROWS_PER_BENCH_CLIP, candidates):
            options, letter = chooser.options(question, random)
            rows.append(Row(f"bench-{len(rows) + 1:04d}", clip, question, options, letter))
    return rows


def _shuffled(clip: Clip, windows: Sequence[Window], random: Random) -> list[Question]:
    found = [question for window in windows for question in ask(clip.scene, window)]
    return random.sample(found, len(found))


def annotation(row: Row) -> Json:
    """A line of `annotations.jsonl`; in the benchmark the joint categories are called C1 to C4."""
    return {
        "id": row.id,
        "video": row.clip.path,
        "source": row.clip.source,
        "category": _stored_category(row),
        "difficulty": row.question.difficulty,
        "format": "mcq" if row.options else "open_ended",
        "question": row.question.text,
        "options": list(row.options) or None,
        "answer": row.target,
        "response": row.response,
    }


def bench_item(row: Row) -> Json:
    """A file of `json/` in the benchmark's tar."""
    question = {
        "category": _stored_category(row),
        "question": row.question.text,
        "options": list(row.options),
        "answer": row.letter,
        "difficulty": row.question.difficulty,
    }
    return {"clip_file": row.clip.name, "qa": question}


def _stored_category(row: Row) -> str:
    category = row.question.category
    return category.replace("J", "C") if row.clip.part < 0 else category


def sft_lines(rows: Sequence[Row]) -> list[list[Json]]:
    """Lines of `data_sft.jsonl`: somewhat more than half of the rows, with structured targets."""
    lines = [
        [*_shown(row), _text(row.response, output=True), _meta(row)]
        for number, row in enumerate(rows)
        if number % 9 < 5
    ]
    lines[_STALE_EXAMPLE][0]["src_resolution"] = [1080, 1920]
    return [*lines, _unlinked(rows[0].clip)]


def rl_lines(rows: Sequence[Row]) -> list[list[Json]]:
    """Lines of `data_rl.jsonl`: the other rows and some of the first, with bare targets and the events."""
    lines = [
        [
            *_shown(row),
            _text(row.target, output=True),
            _meta(row) | {"gt_events": [_gt_event(event) for event in row.question.evidence]},
        ]
        for number, row in enumerate(rows)
        if number % 9 >= 4
    ]
    return [*lines, _unlinked(rows[-1].clip)]


def _shown(row: Row) -> list[Json]:
    return [_video(row.clip, row.question.window), _text(row.prompt, output=False)]


def _video(clip: Clip, window: Window) -> Json:
    return {
        "type": "video",
        "path": clip.path,
        "fps": _SFT_FPS,
        "start_seconds": window.start_seconds,
        "end_seconds": window.end_seconds,
        "src_resolution": [clip.height, clip.width],
    }


def _text(content: str, *, output: bool) -> Json:
    return {"type": "text", "content": content, "output": output}


def _meta(row: Row) -> Json:
    return {"type": "meta", "difficulty": row.question.difficulty, "question_text": row.question.text}


def _unlinked(clip: Clip) -> list[Json]:
    """An example that no annotation row is about: real training files have some."""
    question = "How many people are in the clip?"
    return [
        _video(clip, clip.whole),
        _text(question, output=False),
        _text(str(clip.count_people), output=True),
        {"type": "meta", "difficulty": "easy", "question_text": question},
    ]


def _gt_event(event: Event) -> Json:
    """Seconds are those of the clip, not of the window."""
    names = [event.actor, event.target]
    return {
        "source": event.kind,
        "persons": [int(name[1:]) for name in names if name[1:].isdigit()],
        "start_seconds": event.start_seconds,
        "end_seconds": event.end_seconds,
        "target": event.target,
    }


def sentence(event: Event, window: Window) -> str:
    """What happens, in words and a tag; seconds count from the start of the window."""
    start = event.start_seconds - window.start_seconds
    end = event.end_seconds - window.start_seconds
    target = event.target if event.target[1:].isdigit() else f"the {event.target}"
    tag = "gaze" if event.kind == "gaze" else "gesture"
    what = f"{event.actor} → {event.target}" + ("" if tag == "gaze" else f": {event.kind}")
    says = f"From {start:.1f} to {end:.1f} s {event.actor} {DOES[event.kind]} {target}"
    return f"{says} <{tag}>{what}</{tag}>."
