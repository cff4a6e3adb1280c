"""Letters out of texts, accuracy of the demo's bench, and the grounding score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import clipshards
from clipshards.errors import UsageError
from clipshards.score import grounding_score, letter_of, read_answers, score, wilson


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("<think>A) no</think><answer>B</answer>", "B"),
        ("<answer>A</answer></think> <answer>C) cup</answer>", "C"),
        ("<think>A</think>so<think>B</think> D", "D"),
        ("<answer> (B) P2 </answer>", "B"),
        ("<answer>none</answer><answer>D</answer>", "D"),
        ("<answer>\nC\n</answer> \\boxed{A}", "C"),
        ("<answer>unsure</answer> \\boxed{A}", "A"),
        ("thus \\boxed{B) the cup}", "B"),
        ("Answer: C", "C"),
        ("The answer is D.", "D"),
        ("the answer is: B) P2", "B"),
        ("I think it is B) since A looked", "B"),
        ("A person looks at C.", "C"),
        ("B", "B"),
        ("  B because", "B"),
        ("Because of it", "B"),
        ("b", None),
        ("E)", None),
        ("no idea", None),
        ("", None),
        ("<think>B</think>", None),
    ],
)
def test_letter_of_a_text(text: str, letter: str | None) -> None:
    assert letter_of(text) == letter


def item(number: int, category: str = "T1", difficulty: str = "easy", answer: str = "A") -> dict[str, Any]:
    canonical = category.replace("C", "J")
    return {
        "id": f"item-{number}", "category": category, "category_canonical": canonical, "difficulty": difficulty,
        "answer": answer, "answer_index": "ABCD".index(answer),
    }  # fmt: skip


BENCH = [
    *[item(n, "T1", "easy") for n in range(4)],
    *[item(n, "G2", "hard", "B") for n in range(4, 8)],
    *[item(n, "C4", "medium", "C") for n in range(8, 10)],
]


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_raw_texts_by_id(tmp_path: Path) -> None:
    texts = {
        "item-0": "A", "item-1": "<think>A</think>B.", "item-2": "dunno",
        "item-4": "Answer: B", "item-5": "B)", "item-8": "\\boxed{C}",
    }  # fmt: skip
    scores = score(read_answers(write(tmp_path / "p.json", texts), BENCH), BENCH)
    found = {
        name: (a.right, a.items, a.missing, a.unparsable) for kind in scores.values() for name, a in kind.items()
    }
    assert found == {
        "all": (4, 10, 4, 1),
        "Gaze": (1, 4, 1, 1), "Gesture": (2, 4, 2, 0), "Joint": (1, 2, 1, 0),
        "T1": (1, 4, 1, 1), "G2": (2, 4, 2, 0), "J4": (1, 2, 1, 0),
        "easy": (1, 4, 1, 1), "hard": (2, 4, 2, 0), "medium": (1, 2, 1, 0),
    }  # fmt: skip
    assert scores["overall"]["all"].share == 0.4


def test_results_of_the_evaluator(tmp_path: Path) -> None:
    results = [
        {"pred": pred, "answer": "C", "category": word, "difficulty": "medium", "raw_output": "…"}
        for pred, word in (("C", "C4"), ("", "J4"))
    ]
    scores = score(read_answers(write(tmp_path / "r.json", results), BENCH), BENCH)
    joint = scores["category"]["J4"]
    assert (joint.right, joint.items, joint.missing, joint.unparsable) == (1, 2, 0, 1)
    with pytest.raises(UsageError, match="4 answers for J4 medium, the bench has 2"):
        score(read_answers(write(tmp_path / "r.json", results * 2), BENCH), BENCH)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"item-99": "A"}, "id .'item-99'. is none of the 10 items"),
        ({"item-0": 3}, "must be a text"),
        ([{"pred": "A"}], "must be an object with answer, category"),
        ([{"pred": "A", "answer": "A", "category": "X9", "difficulty": "easy"}], "category .'X9'."),
        ("A", "must be a list of results"),
    ],
)
def test_what_is_no_answer_is_named(content: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        read_answers(write(tmp_path / "p.json", content), BENCH)


def test_no_file_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read as JSON"):
        read_answers(tmp_path / "none.json", BENCH)
    (tmp_path / "p.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read as JSON"):
        read_answers(tmp_path / "p.json", BENCH)


@pytest.mark.parametrize(
    ("right", "items", "interval"),
    [(0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0)), (81, 263, (0.2553, 0.3662)), (0, 0, (0.0, 1.0))],
)
def test_wilson_intervals(right: int, items: int, interval: tuple[float, float]) -> None:
    """81 of 263 is the example of Newcombe, Statistics in Medicine 1998, table I."""
    assert wilson(right, items) == pytest.approx(interval, abs=5e-5)


GAZE = {"source": "gaze", "persons": [1, 2]}
POINTING = {"source": "pointing", "persons": [3]}


@pytest.mark.parametrize(
    ("text", "question", "wanted"),
    [
        ("<gaze>P1 → P2</gaze> <gesture>P3 → cup</gesture>", "", 1.0),
        ("<gaze>P1 → cup</gaze>", "", 0.7 * 0.25 + 0.3),
        ("<gaze>P1, P2, P4</gaze>", "", 0.7 * 0.5 + 0.3 * 2 / 3),
        ("P1 P2 P3", "", 0.0),
        ("<gesture>P1 → P2</gesture><gaze>person 3</gaze>", "", 0.0),
        ("<gaze>Person 2</gaze><gesture>p3</gesture>", "Who does P1 look at?", 1.0),
        ("<gaze>P1</gaze>", "Who does P1 look at?", 0.0),
        ("<gaze>P12</gaze>", "", 0.0),
        ("", "", 0.0),
        ("", "P1, P2, P3?", 1.0),
        ("<gaze>P4</gaze>", "P1, P2, P3?", 0.7),
    ],
)
def test_grounding_score(text: str, question: str, wanted: float) -> None:
    assert clipshards.grounding_score(text, [GAZE, POINTING], question) == pytest.approx(wanted)


@pytest.mark.flow
def test_targets_of_the_demo_are_grounded(demo_snapshot: Path) -> None:
    """Structured answers name exactly who takes part; without their tags they are worth less."""
    data = clipshards.open(demo_snapshot, frames="jpeg")
    structured = {example.question_id: example.target for example in data if example.stage == "sft"}
    scored = 0
    for example in data:
        text = structured.get(example.question_id)
        if example.stage == "rl" and example.question_id and text and example.gt_events:
            assert grounding_score(text, example.gt_events, example.question or "") == 1.0
            stripped = text.replace("gaze>", "i>").replace("gesture>", "i>")
            scored += grounding_score(stripped, example.gt_events, example.question or "") < 1.0
    assert scored > 3


@pytest.mark.flow
@pytest.mark.parametrize("as_results", [True, False])
def test_command(as_results: bool, demo_snapshot: Path, tmp_path: Path) -> None:
    from flows.cli import app

    bench = clipshards.open(demo_snapshot, split="bench", frames="jpeg")
    texts = {item.id: f"<think>…</think><answer>{item.answer}</answer>" for item in bench}
    wrong = next(item for item in bench if item.category == "J1")
    texts[wrong.id] = "dunno"
    content: Any = texts
    if as_results:
        content = [
            {
                "pred": letter_of(texts[item.id]), "answer": item.answer, "category": item.category,
                "difficulty": item.difficulty, "raw_output": texts[item.id],
            }
            for item in bench
        ]  # fmt: skip
    predictions = write(tmp_path / "answers.json", content)
    done = CliRunner().invoke(app, ["score", str(predictions), str(demo_snapshot)])
    assert done.exit_code == 0, done.output
    assert "overall" in done.output and "unparsable" in done.output
    written = json.loads((tmp_path / "answers.score.json").read_text())
    total = written["overall"]["all"]
    assert (total["items"], total["right"], total["unparsable"]) == (len(bench), len(bench) - 1, 1)
    assert written["category"]["J1"]["right"] == written["category"]["J1"]["items"] - 1
    assert set(written["group"]) == {"Gaze", "Gesture", "Joint"}
    failed = CliRunner().invoke(app, ["score", str(tmp_path / "none.json"), str(demo_snapshot)])
    assert failed.exit_code == 2
