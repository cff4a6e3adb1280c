"""The rows that belong to each view, as the JSON of a sample holds them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from clipshards.annotations import Questions
from clipshards.examples import Examples
from clipshards.plan import SplitPlan, View

_EXAMPLE_FIELDS = ["id", "stage", "difficulty", "question", "target", "turns", "gt_events", "extra"]
_QUESTION_FIELDS = [
    "id", "category", "category_canonical", "difficulty", "format",
    "question", "options", "answer", "answer_index", "response", "extra",
]  # fmt: skip


class RowsOfViews:
    """Finds the examples, annotation rows and bench items of views.

    Args:
        question_of_example: row number of the question of each example, −1 for none.
    """

    def __init__(
        self,
        plan: SplitPlan,
        examples: Examples,
        questions: Questions,
        items: Questions,
        question_of_example: list[int],
    ) -> None:
        self._examples, self._questions, self._items = examples.table, questions.table, items.table
        self._question_of_example = question_of_example
        self._examples_of: dict[str, list[int]] = defaultdict(list)
        for row, shown in enumerate(examples.shown):
            views = plan.views_of[shown]
            for view in views if isinstance(views, tuple) else ():
                self._examples_of[view.key].append(row)
        self._questions_of_clip = _by_clip(questions)
        self._items_of_clip = _by_clip(items)

    def of(self, views: Iterable[View]) -> dict[str, dict[str, Any]]:
        """By key: {"examples": […], "questions": […], "items": […]}."""
        return {view.key: self._of_view(view) for view in views}

    def _of_view(self, view: View) -> dict[str, Any]:
        examples = self._examples_of.get(view.key, [])
        linked = {self._question_of_example[row] for row in examples} - {-1}
        is_whole = view.start_seconds is None
        questions = self._questions_of_clip.get(view.clip, []) if is_whole else sorted(linked)
        items = self._items_of_clip.get(view.clip, []) if is_whole else []
        return {
            "examples": self._take(self._examples, examples, _EXAMPLE_FIELDS),
            "questions": self._take(self._questions, questions, _QUESTION_FIELDS),
            "items": self._take(self._items, items, _QUESTION_FIELDS),
        }

    @staticmethod
    def _take(table: Any, rows: list[int], fields: list[str]) -> list[dict[str, Any]]:
        return table.select(fields).take(rows).to_pylist() if rows else []


def _by_clip(rows: Questions) -> dict[str, list[int]]:
    of_clip: dict[str, list[int]] = defaultdict(list)
    for number, clip in enumerate(rows.clips()):
        of_clip[clip].append(number)
    return of_clip
