"""The formats of training examples that a recipe may name, and who reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from clipshards.conversations import ConversationBuilder
from clipshards.examples import ExampleBuilder, Examples
from clipshards.jsonl import READ_BYTES
from clipshards.recipe import Recipe, Split

_BUILDERS: dict[str, Callable[[Recipe, Split], ExampleBuilder | ConversationBuilder]] = {
    "specs": lambda recipe, split: ExampleBuilder(split.clip_folder),
    "conversations": lambda recipe, split: ConversationBuilder(recipe.conversation_fields, split.clip_folder),
}


def read_split_examples(files: Iterable[tuple[str, str, Path]], recipe: Recipe, split: Split) -> Examples:
    """Read the files of training examples of a split: (stage, path in the source, path on disk) each."""
    builder = _BUILDERS[split.examples_format](recipe, split)
    for stage, name, path in files:
        with path.open("rb", READ_BYTES) as lines:
            builder.add_lines(stage, name, lines)
    return builder.finish()
