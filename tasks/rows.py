"""Annotation rows and training lines: read once, joined once."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clipshards.annotations import QuestionBuilder, Questions, read_questions
from clipshards.collector import paused_collector
from clipshards.examples import Examples
from clipshards.formats import read_split_examples
from clipshards.plan import link_examples
from clipshards.recipe import Recipe, Split


@task(name="read rows", task_run_name="read rows of {split_name}", cache_policy=NO_CACHE)
def read_rows(
    split_name: str,
    recipe: Recipe,
    question_files: list[tuple[str, Path]],
    example_files: list[tuple[str, str, Path]],
) -> tuple[Questions, Examples, list[int]]:
    """The rows of a split, and for each example the number of its annotation row."""
    split = recipe.splits[split_name]
    with paused_collector():
        questions = read_questions(question_files, recipe, split)
        examples = read_split_examples(example_files, recipe, split)
        return questions, examples, link_examples(examples, questions)


@task(name="read items", cache_policy=NO_CACHE)
def read_items(recipe: Recipe, split: Split, texts_of_parts: dict[str, dict[str, bytes]]) -> Questions:
    """Bench items: the JSON members of the parts."""
    builder = QuestionBuilder(recipe, split)
    for part, texts in sorted(texts_of_parts.items()):
        for member, text in sorted(texts.items()):
            if member.startswith(split.item_folder):
                builder.add_item(part, member, text)
    return builder.finish()
