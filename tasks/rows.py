"""Annotation rows and training lines: read once, joined once."""

from __future__ import annotations

from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from clipshards.annotations import QuestionBuilder, Questions, read_questions
from clipshards.collector import paused_collector
from clipshards.examples import Examples, read_examples
from clipshards.plan import link_examples
from clipshards.recipe import Recipe, Split
from clipshards.tars import TarIndex, read_member


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
        examples = read_examples(example_files, split.clip_folder)
        return questions, examples, link_examples(examples, questions)


@task(name="read items", cache_policy=NO_CACHE)
def read_items(recipe: Recipe, split: Split, parts: list[tuple[str, Path, TarIndex]]) -> Questions:
    """Bench items: the JSON members of the parts."""
    builder = QuestionBuilder(recipe, split)
    for name, path, index in parts:
        for member in sorted(index.members, key=lambda member: member.name):
            if member.name.startswith(split.item_folder) and member.name.endswith(".json"):
                builder.add_item(name, member.name, read_member(path, member))
    return builder.finish()
