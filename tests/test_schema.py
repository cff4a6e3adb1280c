"""Each word of the output has its sentence, is said by the code, and is held by a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from clipshards.schema import REASONS, WARNINGS

ROOT = Path(__file__).parents[1]
WORDS = sorted({*REASONS, *WARNINGS})


def text_of(*folders: str, without: str) -> str:
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if path.name != without]
    return "".join(path.read_text(encoding="utf-8") for path in paths)


@pytest.mark.parametrize("word", WORDS)
def test_the_code_says_it(word: str) -> None:
    assert f'"{word}"' in text_of("clipshards", "manifests", "tasks", "flows", without="schema.py")


@pytest.mark.parametrize("word", WORDS)
def test_a_test_holds_it(word: str) -> None:
    cases = "".join(path.read_text() for path in (ROOT / "tests/cases").glob("*/expected.json"))
    assert f'"{word}"' in text_of("tests", without="test_schema.py") + cases


@pytest.mark.parametrize("sentence", [*REASONS.values(), *WARNINGS.values()])
def test_sentences_are_sentences(sentence: str) -> None:
    assert sentence[0].isupper() or (sentence[0].islower() and sentence.startswith(("start_", "src_")))
    assert sentence.endswith(".")
