"""GRASP-Bench accuracy from a model's answers, and the grounding score of the RL data.

Rules restated from the public evaluator's behaviour. Pure, but for `read_answers`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clipshards.errors import UsageError

LETTERS = "ABCD"
GROUPS = {"T": "Gaze", "G": "Gesture", "J": "Joint"}
"""First letter of a canonical category → group."""

RECALL_SHARE = 0.7
_NO_WORD = "unknown"
_Z95 = 1.959963984540054

_THOUGHT = "</think>"
_ANSWERS = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_BOXES = re.compile(r"\\boxed\{([^{}]*)\}")
_LEAD = re.compile(r"\s*(?:answer:|the answer is:?)\s*", re.IGNORECASE)
_MARKED = re.compile(r"([A-D])[).]")
TAGS = re.compile(r"<(gaze|gesture)\b[^>]*>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
"""(gaze or gesture, what is said of it) in a structured answer."""
_PERSON = re.compile(r"\b(?:P|person[ _]?)(\d+)\b", re.IGNORECASE)


def letter_of(text: str) -> str | None:
    """The letter A–D that a model's text answers, by the evaluator's rule; None when there is none.

    Looked at is what follows the last `</think>`: the first `<answer>…</answer>` whose first letter is A–D; else
    `\\boxed{…}` likewise; else, without a leading "Answer:" or "The answer is", the first of A–D before `)` or
    `.`; else the first character.
    """
    said = text.rpartition(_THOUGHT)[2]
    for pattern in (_ANSWERS, _BOXES):
        for content in pattern.findall(said):
            first = next((character for character in content if character.isalpha()), "")
            if first and first in LETTERS:
                return str(first)
    rest = said[match.end() :] if (match := _LEAD.match(said)) else said.strip()
    if marked := _MARKED.search(rest):
        return marked[1]
    return rest[0] if rest and rest[0] in LETTERS else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said to one item."""

    category: str
    """Canonical."""
    difficulty: str
    pred: str | None
    """None: the text holds no letter."""
    answer: str


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Right answers among the items; missing and unparsable ones are not right."""

    items: int
    right: int
    missing: int
    """Items without an answer."""
    unparsable: int
    """Answers without a letter A–D."""

    @property
    def share(self) -> float:
        """right / items, 0 when there are none."""
        return self.right / self.items if self.items else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the share (Wilson)."""
        return wilson(self.right, self.items)

    def to_json(self) -> dict[str, Any]:
        """With `accuracy` and `interval_95`."""
        return {**asdict(self), "accuracy": self.share, "interval_95": list(self.interval)}


def wilson(right: int, items: int) -> tuple[float, float]:
    """95 % interval of a share, (0, 1) when there are no items. Wilson, JASA 1927."""
    if items == 0:
        return 0.0, 1.0
    share, weight = right / items, _Z95**2 / items
    middle = (share + weight / 2) / (1 + weight)
    half = _Z95 * math.sqrt(share * (1 - share) / items + weight / (4 * items)) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)


def read_answers(predictions: Path, bench: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Answers from a file: the public evaluator's results, or raw texts by id.

        [{"pred": "B", "answer": "B", "category": "C1", "difficulty": "easy", "raw_output": "…"}, …]
        {"id of the item": "text of the model", …}

    Args:
        bench: rows of the table `bench`.

    Raises:
        UsageError: the file cannot be read, has another form, or names an id or category that is not in the bench.
    """
    try:
        content = json.loads(predictions.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"PREDICTIONS ({str(predictions)!r}) cannot be read as JSON: {error}") from None
    if isinstance(content, dict):
        return _from_texts(content, bench)
    if isinstance(content, list):
        return _from_results(content, bench)
    raise UsageError(f"PREDICTIONS ({str(predictions)!r}) must be a list of results or an object id → text")


def _from_texts(texts: Mapping[str, Any], bench: Sequence[Mapping[str, Any]]) -> list[Answer]:
    item_of = {item["id"]: item for item in bench}
    answers = []
    for name, text in texts.items():
        if name not in item_of:
            raise UsageError(
                f"id ({name!r}) is none of the {len(bench)} items of the bench, such as {min(item_of)!r}"
            )
        if not isinstance(text, str):
            raise UsageError(f"the answer to {name!r} ({text!r:.80}) must be a text")
        item = item_of[name]
        answers.append(Answer(*_cell(item), letter_of(text), _letter(item)))
    return answers


def _from_results(results: Sequence[Any], bench: Sequence[Mapping[str, Any]]) -> list[Answer]:
    canonical = {
        word: item["category_canonical"]
        for item in bench
        for word in (item["category"], item["category_canonical"])
    }
    answers = []
    for number, result in enumerate(results):
        wanted = {"pred", "answer", "category", "difficulty"}
        if not isinstance(result, dict) or not wanted <= result.keys():
            raise UsageError(f"result {number} ({result!r:.80}) must be an object with {', '.join(sorted(wanted))}")
        if result["category"] not in canonical:
            raise UsageError(f"category ({result['category']!r}) of result {number} is none of {sorted(canonical)}")
        pred = result["pred"] if isinstance(result["pred"], str) and result["pred"] in tuple(LETTERS) else None
        answers.append(
            Answer(canonical[result["category"]], result["difficulty"] or _NO_WORD, pred, result["answer"])
        )
    return answers


def _letter(item: Mapping[str, Any]) -> str:
    """The letter of an item whose answer may be stored as a text."""
    index = item["answer_index"]
    return str(item["answer"]) if index is None else chr(ord("A") + index)


def _cell(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["category_canonical"] or _NO_WORD, item["difficulty"] or _NO_WORD


def score(answers: Iterable[Answer], bench: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Accuracy]]:
    """Accuracy: {"overall": {"all": …}, "group": {…}, "category": {…}, "difficulty": {…}}.

    Items are counted by category and difficulty, as results do not name them: those without an answer are
    missing, and not right.

    Args:
        bench: rows of the table `bench`.

    Raises:
        UsageError: more answers than items of a category and difficulty.
    """
    items = Counter(map(_cell, bench))
    given, right, unparsable = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for answer in answers:
        cell = (answer.category, answer.difficulty)
        given[cell] += 1
        right[cell] += answer.pred == answer.answer
        unparsable[cell] += answer.pred is None
    for cell, count in given.items():
        if count > items[cell]:
            raise UsageError(
                f"{count} answers for {' '.join(map(str, cell))}, the bench has {items[cell]} such items"
            )

    def total(cells: Iterable[tuple[str, str]]) -> Accuracy:
        mine = list(cells)
        sums = [sum(counter[cell] for cell in mine) for counter in (items, right, given, unparsable)]
        return Accuracy(sums[0], sums[1], sums[0] - sums[2], sums[3])

    def by(name_of: Any) -> dict[str, Accuracy]:
        names = sorted({name_of(cell) for cell in items})
        return {name: total(cell for cell in items if name_of(cell) == name) for name in names}

    return {
        "overall": {"all": total(items)},
        "group": by(lambda cell: GROUPS.get(cell[0][0], "Other")),
        "category": by(lambda cell: cell[0]),
        "difficulty": by(lambda cell: cell[1]),
    }


def grounding_score(text: str, gt_events: Iterable[Mapping[str, Any]], question: str = "") -> float:
    """How well a model's text names who takes part in the events: 0.7 · recall + 0.3 · precision, in [0, 1].

    People count where they are named (P1, person 1) inside `<gaze>…</gaze>`, or `<gesture>…</gesture>` for events
    whose source is not gaze; those whom the question names do not count, on either side. Recall is the mean over
    events of the share of their people that were named; precision the share of the named who take part in an
    event of that kind. Where there is nobody to name, recall is 1; where nobody is named either, precision is 1.

    Args:
        gt_events: {"source": "gaze" or another word, "persons": [1, …], …} each, as `Example.gt_events`.
    """
    given = _people(question)
    named = {(tag.lower(), person) for tag, content in TAGS.findall(text) for person in _people(content) - given}
    events = [
        {(_kind(event), person) for person in event["persons"]} - {(_kind(event), person) for person in given}
        for event in gt_events
    ]
    asked = [event for event in events if event]
    recall = sum(len(event & named) / len(event) for event in asked) / len(asked) if asked else 1.0
    nobody = 0.0 if asked else 1.0
    precision = len(named & set().union(*asked)) / len(named) if named else nobody
    return RECALL_SHARE * recall + (1 - RECALL_SHARE) * precision


def _kind(event: Mapping[str, Any]) -> str:
    return "gaze" if event["source"] == "gaze" else "gesture"


def _people(text: str) -> set[int]:
    return {int(number) for number in _PERSON.findall(text)}
