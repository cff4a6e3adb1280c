"""Annotation rows and bench items: what a row says is kept, what cannot be used is rejected with its line."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from clipshards.annotations import ClipPaths, QuestionBuilder, Questions, find_answer, read_questions
from clipshards.errors import Rejected
from clipshards.recipe import Recipe, load_recipe
from clipshards.schema import QUESTION_COLUMNS, REASONS

FILE = "train/annotations.jsonl"
ROW = {
    "id": "q-1",
    "video": "avsbench/video/a.mp4",
    "source": "AVSBench",
    "category": "T1",
    "difficulty": "easy",
    "format": "mcq",
    "question": "Who looks at whom?",
    "options": ["A) Ann at Bo", "B) Bo at Ann", "C) nobody"],
    "answer": "B",
    "response": "Bo at Ann.",
}


@pytest.fixture(scope="module")
def grasp() -> Recipe:
    return load_recipe("grasp")


def compact(row: Any) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def spaced(row: Any) -> bytes:
    return json.dumps(row, separators=(" , ", " : ")).encode() + b"\n"


def read(recipe: Recipe, *lines: Any, split: str = "train") -> Questions:
    """Rows (written compactly) or raw lines, as one file."""
    builder = QuestionBuilder(recipe, recipe.splits[split])
    text = b"".join(line if isinstance(line, bytes) else compact(line) for line in lines)
    builder.add_lines(FILE, io.BytesIO(text))
    return builder.finish()


def read_one(recipe: Recipe, **changes: Any) -> dict[str, Any]:
    questions = read(recipe, {**ROW, **changes})
    assert questions.rejects == []
    (row,) = questions.table.to_pylist()
    return row


def reason_of(recipe: Recipe, line: Any) -> str:
    questions = read(recipe, line)
    assert questions.table.num_rows == 0
    (reject,) = questions.rejects
    assert (reject.kind, reject.path, reject.line) == ("row", FILE, 1)
    assert reject.reason in REASONS
    assert reject.detail
    return reject.reason


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in ROW.items() if key != name}


def test_a_row_is_kept_as_it_stands(grasp: Recipe) -> None:
    assert read_one(grasp) == {
        "file": FILE,
        "line": 1,
        "id": "q-1",
        "clip": "avsbench/video/a.mp4",
        "source": "AVSBench",
        "category": "T1",
        "category_canonical": "T1",
        "difficulty": "easy",
        "format": "mcq",
        "question": "Who looks at whom?",
        "options": ["A) Ann at Bo", "B) Bo at Ann", "C) nobody"],
        "answer": "B",
        "answer_index": 1,
        "response": "Bo at Ann.",
        "extra": None,
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        (["A. red", "B. red"], ["duplicate-options"]),
        (["A) red", "(B) red "], []),
        (["(A) red", "(B) red "], ["duplicate-options"]),
        (["red", "red"], ["duplicate-options"]),
        (["A. red", "B. blue"], []),
        (["1 apple", "2 apple"], []),
    ],
)
def test_options_with_the_same_text_are_named(grasp: Recipe, options: list[str], warnings: list[str]) -> None:
    row = read_one(grasp, options=options, answer="A")
    assert (row["answer_index"], row["warnings"]) == (0, warnings)


def test_no_rows_is_an_empty_table_of_the_schema(grasp: Recipe) -> None:
    questions = read(grasp)
    assert questions.table.schema == QUESTION_COLUMNS
    assert (questions.table.num_rows, questions.num_lines, questions.clips()) == (0, 0, [])


@pytest.mark.parametrize(
    ("stored", "canonical"), [("C1", "J1"), ("C4", "J4"), ("J2", "J2"), ("G6", "G6"), ("c1", "c1"), (None, None)]
)
def test_stored_category_is_kept_beside_the_canonical_one(
    grasp: Recipe, stored: str | None, canonical: str | None
) -> None:
    row = read_one(grasp, category=stored)
    assert (row["category"], row["category_canonical"]) == (stored, canonical)


def test_unknown_fields_are_kept(grasp: Recipe) -> None:
    row = read_one(grasp, persons=[1, 2], note={"by": "Ann", "ö": None})
    assert json.loads(row["extra"]) == {"persons": [1, 2], "note": {"by": "Ann", "ö": None}}
    assert row["answer_index"] == 1


CHANGES: list[dict[str, Any]] = [
    {},
    {"category": "C3"},
    {"answer": "C) nobody"},
    {"answer": "nobody"},
    {"answer": " b "},
    {"options": ["x", "y"], "answer": "y"},
    {"options": None, "format": "open", "answer": "They wave."},
    {"options": [], "format": "open", "answer": "B"},
    {"format": None},
    {"source": None},
    {"source": ""},
    {"difficulty": None, "response": None},
    {"video": "./avsbench//video/a.mp4"},
    {"question": 'He said "a": \'b\'\u2028and {"left":1}'},
    {"id": ""},
    {"question": ""},
    {"question": " "},
    {"video": ""},
    {"video": "/a.mp4"},
    {"answer": ""},
    {"answer": "Z"},
    {"options": None},
    {"options": []},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_plain_rows_and_others_are_read_alike(grasp: Recipe, changes: dict[str, Any]) -> None:
    row = {**ROW, **changes}
    plain = read(grasp, row)
    with_spaces = read(grasp, spaced(row))
    with_more = read(grasp, {**row, "unknown": 1})
    assert plain.table.to_pylist() == with_spaces.table.to_pylist()
    assert plain.rejects == with_spaces.rejects == with_more.rejects
    expected = [{**known, "extra": '{"unknown":1}'} for known in plain.table.to_pylist()]
    assert with_more.table.to_pylist() == expected
    assert plain.table.num_rows + len(plain.rejects) == 1


def test_source_is_the_first_folder_where_the_row_names_none(grasp: Recipe) -> None:
    assert read_one(grasp, source=None)["source"] == "avsbench"
    assert read(grasp, without("source")).table.column("source").to_pylist() == ["avsbench"]


def test_row_without_an_id_is_named_by_its_place(grasp: Recipe) -> None:
    questions = read(grasp, ROW, b"\n", without("id"))
    assert questions.table.column("id").to_pylist() == ["q-1", f"{FILE}:3"]
    assert questions.table.column("line").to_pylist() == [1, 3]
    assert questions.num_lines == 2


def test_numbers_in_place_of_texts_are_read_as_texts(grasp: Recipe) -> None:
    row = read_one(grasp, id=17, options=["2", "3"], answer=3)
    assert (row["id"], row["answer"], row["answer_index"]) == ("17", "3", 1)


def test_options_as_an_object(grasp: Recipe) -> None:
    row = read_one(grasp, options={"A": "Ann", "B": "Bo"}, answer="Bo")
    assert row["options"] == ["A) Ann", "B) Bo"]
    assert row["answer_index"] == 1


@pytest.mark.parametrize(
    ("answer", "options", "index"),
    [
        ("A", ["A) x", "B) y"], 0),
        ("B", ["A) x", "B) y"], 1),
        ("b", ["A) x", "B) y"], 1),
        ("B)", ["A) x", "B) y"], 1),
        ("(B)", ["A) x", "B) y"], 1),
        ("B.", ["A. x", "B. y"], 1),
        ("B", ["(A) x", "(B) y"], 1),
        ("B) y", ["A) x", "B) y"], 1),
        ("y", ["A) x", "B) y"], 1),
        (" y ", ["A)   x", "B)   y  "], 1),
        ("A", ["B) x", "A) y"], 1),  # the label counts, not the place
        ("C", ["x", "y", "z"], 2),
        ("z", ["x", "y", "z"], 2),
        ("A man", ["A man", "A dog"], 0),
        ("A) x", ["A) x", "B) A) x y"], 0),
        ("H", [f"{letter}) {letter * 3}" for letter in "ABCDEFGH"], 7),
    ],
)
def test_answer_points_at_an_option(answer: str, options: list[str], index: int) -> None:
    assert find_answer(answer, options) == index


@pytest.mark.parametrize(
    ("answer", "options"),
    [
        ("C", ["A) x", "B) y"]),
        ("C", ["x", "y"]),
        ("?", ["A) x", "B) y"]),
        ("@", ["A) x", "B) y"]),
        ("z", ["A) x", "B) y"]),
        ("x", ["A) x", "B) x"]),
        ("A", ["A) x", "A) y"]),
        ("x y", ["A) x", "B) y"]),
        ("X", ["A) x", "B) y"]),
        ("Ä", ["A) x", "B) y"]),
    ],
)
def test_answer_that_points_at_none_or_two(answer: str, options: list[str]) -> None:
    with pytest.raises(Rejected) as caught:
        find_answer(answer, options)
    assert caught.value.reason == "answer-not-in-options"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ([ROW], "row-not-a-list"),
        ("text", "row-not-a-list"),
        ({}, "empty-row"),
        (b"{not json}\n", "row-not-json"),
        (compact(ROW).replace(b'"answer":', b'"answer":"A","answer":'), "row-not-json"),
        (compact({**ROW, "persons": float("nan")}), "bad-number"),
        (compact({**ROW, "question": "caf"}).replace(b"caf", b"caf\xe9"), "row-not-json"),
        (without("video"), "no-path"),
        ({**ROW, "video": None}, "no-path"),
        ({**ROW, "video": "  "}, "no-path"),
        ({**ROW, "video": 7}, "no-path"),
        ({**ROW, "video": "/etc/a.mp4"}, "path-unsafe"),
        ({**ROW, "video": "\\a.mp4"}, "path-unsafe"),
        ({**ROW, "video": "a/../../b.mp4"}, "path-unsafe"),
        ({**ROW, "video": "a\\..\\b.mp4"}, "path-unsafe"),
        ({**ROW, "video": "C:/b.mp4"}, "path-unsafe"),
        ({**ROW, "video": "a\0b.mp4"}, "path-unsafe"),
        (without("options"), "no-options"),
        ({**ROW, "options": []}, "no-options"),
        ({**ROW, "format": "multiple-choice", "options": None}, "no-options"),
        (without("answer"), "empty-answer"),
        ({**ROW, "answer": " \n"}, "empty-answer"),
        ({**ROW, "format": "open", "answer": ""}, "empty-answer"),
        ({**ROW, "answer": "D"}, "answer-not-in-options"),
        ({**ROW, "answer": "Cy"}, "answer-not-in-options"),
        ({**ROW, "options": [1, 2]}, "bad-meta"),
        ({**ROW, "options": "A) x B) y"}, "bad-meta"),
        ({**ROW, "answer": ["B"]}, "bad-meta"),
        ({**ROW, "category": {"T": 1}}, "bad-meta"),
        (without("question"), "bad-meta"),
        ({**ROW, "question": ""}, "bad-meta"),
        ({**ROW, "question": " \n"}, "bad-meta"),
        ({**ROW, "id": ""}, "bad-meta"),
        ({**ROW, "id": None}, "bad-meta"),
    ],
)
def test_row_that_cannot_be_used(grasp: Recipe, line: Any, reason: str) -> None:
    assert reason_of(grasp, line) == reason


@pytest.mark.parametrize("path", [".", "./", "././"])
def test_path_of_dots_names_no_clip(path: str) -> None:
    with pytest.raises(Rejected, match="path"):
        ClipPaths()(path)


def test_many_options_are_no_crash(grasp: Recipe) -> None:
    questions = read(grasp, {**ROW, "options": [f"person {n}" for n in range(200)], "answer": "person 150"})
    assert questions.table.num_rows + len(questions.rejects) == 1


def test_second_row_of_an_id_is_rejected(grasp: Recipe) -> None:
    questions = read(grasp, ROW, {**ROW, "answer": "A"}, {**ROW, "id": "q-2"})
    assert questions.table.column("answer").to_pylist() == ["B", "B"]
    (reject,) = questions.rejects
    assert (reject.reason, reject.line) == ("duplicate-id", 2)
    assert "q-1" in reject.detail


def test_id_of_a_rejected_row_is_free(grasp: Recipe) -> None:
    questions = read(grasp, {**ROW, "answer": "D"}, ROW)
    assert [reject.reason for reject in questions.rejects] == ["answer-not-in-options"]
    assert questions.table.column("line").to_pylist() == [2]


def test_a_bad_line_does_not_stop_the_file(grasp: Recipe) -> None:
    questions = read(grasp, b"\xef\xbb\xbf" + compact(ROW), b"{\n", b"[]\n", {**ROW, "id": "q-2"})
    assert questions.table.column("line").to_pylist() == [1, 4]
    assert [(reject.line, reject.reason) for reject in questions.rejects] == [
        (2, "row-not-json"),
        (3, "row-not-a-list"),
    ]
    assert questions.num_lines == 4


def test_rows_of_any_number_stay_in_order(grasp: Recipe) -> None:
    lines = b"".join(compact({**ROW, "id": str(number)}) for number in range(17_000))
    questions = read(grasp, lines)
    assert questions.table.column("id").to_pylist() == [str(number) for number in range(17_000)]


def tricky_rows() -> list[bytes]:
    plain = compact(ROW)
    cut = len(plain) // 2
    return [
        plain[:-1] + b"," + plain,  # two values on a line, and two lines that are one: in number they are even
        b"[1\n",
        b"2]\n",
        plain[:cut] + b"\n",
        plain[cut:],
        plain[:-1] + plain,
        b"}\n",
        b"{\n",
        b"},{\n",
        b"\xef\xbb\xbf" + plain,
        plain[:-1] + b"\r\n",
        spaced(ROW),
        plain.replace(b'"answer":', b'"answer":"A","answer":'),
        plain.replace(b'"answer":', b'"answer" :'),
        plain.replace(b"whom?", b"whom: \\\":"),
        plain.replace(b"whom?", b"whom :"),
        plain.replace(b"whom?", b"\\ud800"),
        plain.replace(b"whom?", "a\u2028b".encode()),
        plain.replace(b'"easy"', b"NaN"),
        *(
            compact({**ROW, **change})
            for change in (
                *CHANGES, {"id": "same"}, {"id": None}, {"id": 7}, {"answer": "D"}, {"more": [1]},
                {"difficulty": 1}, {"options": {"A": "x", "B": "y"}}, {"video": ["a"]}, {"video": "../a"},
            )
        ),
        *(compact(without(name)) for name in ROW),
        b"[]\n",
        b"{}\n",
        b" \t\n",
    ]  # fmt: skip


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_rows_of_a_block_are_read_as_if_alone(grasp: Recipe, share: float) -> None:
    draw = random.Random(7)
    tricky = tricky_rows()
    lines = []
    for number in range(1200):
        line = draw.choice(tricky) if draw.random() < share else compact(ROW)
        lines.append(line.replace(b'"q-1"', b'"q-%d"' % (number - (draw.random() < share / 4))))
    together, alone = (QuestionBuilder(grasp, grasp.splits["train"]) for _ in range(2))
    together.add_lines(FILE, io.BytesIO(b"\n" + b"".join(lines)))
    for number, line in enumerate(lines, 1):
        alone.add_lines(FILE, io.BytesIO(b"\n" * number + line))
    one, other = together.finish(), alone.finish()
    assert one.table.equals(other.table)
    assert (one.rejects, one.num_lines) == (other.rejects, other.num_lines)
    one.table.validate(full=True)


def test_two_bad_rows_do_not_make_up_for_each_other(grasp: Recipe) -> None:
    questions = read(grasp, *tricky_rows()[:3], ROW)
    assert [(reject.line, reject.reason) for reject in questions.rejects] == [
        (1, "row-not-json"),
        (2, "row-not-json"),
        (3, "row-not-json"),
    ]
    assert questions.table.column("line").to_pylist() == [4]


def test_id_of_the_same_block_is_a_duplicate(grasp: Recipe) -> None:
    rows = [{**ROW, "id": str(number)} for number in range(40)]
    questions = read(grasp, *rows, {**ROW, "id": "39"}, {**ROW, "id": "40"})
    assert [(reject.line, reject.reason) for reject in questions.rejects] == [(41, "duplicate-id")]
    assert "'39'" in questions.rejects[0].detail
    assert questions.table.num_rows == 41


def test_open_questions_have_no_index(grasp: Recipe) -> None:
    row = read_one(grasp, format="open", answer="B")
    assert (row["answer"], row["answer_index"]) == ("B", None)
    assert read_one(grasp, format=None, options=None, answer="free text")["answer_index"] is None
    assert read_one(grasp, format=None)["answer_index"] == 1  # options make it a choice


def test_files_of_a_split_are_read_in_order(grasp: Recipe, tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(compact(ROW))
    (tmp_path / "two").write_bytes(compact(ROW) + compact({**ROW, "id": "q-2"}))
    files = [("one.jsonl", tmp_path / "one"), ("two.jsonl", tmp_path / "two")]
    questions = read_questions(files, grasp, grasp.splits["train"])
    rows = questions.table.to_pylist()
    assert [(row["file"], row["line"]) for row in rows] == [("one.jsonl", 1), ("two.jsonl", 2)]
    assert [(reject.path, reject.reason) for reject in questions.rejects] == [("two.jsonl", "duplicate-id")]


def test_a_recipe_names_the_fields(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'name = "own"\nmultiple_choice_formats = ["choice"]\n[splits.train]\nparts = ["*.tar"]\n'
        'profile = "grasp-train"\n[question_fields]\nclip = "file"\nanswer = "solution"\n'
    )
    recipe = load_recipe(str(file))
    row = {"id": "1", "file": "a.mp4", "question": "?", "options": ["x", "y"], "solution": "B", "answer": "A"}
    (found,) = read(recipe, {**row, "format": "choice"}).table.to_pylist()
    assert (found["clip"], found["answer"], found["answer_index"]) == ("a.mp4", "B", 1)
    assert json.loads(found["extra"]) == {"answer": "A"}


PART = "grasp_bench.tar"
ITEM = {
    "clip_file": "x.mp4",
    "qa": {
        "category": "C2",
        "question": "Eyes?",
        "options": ["A) yes", "B) no"],
        "answer": "B",
        "difficulty": "hard",
    },
}


def read_items(recipe: Recipe, *items: tuple[str, bytes]) -> Questions:
    builder = QuestionBuilder(recipe, recipe.splits["test"])
    for member, text in items:
        builder.add_item(PART, member, text)
    return builder.finish()


@pytest.mark.parametrize("indent", [None, 2])
def test_bench_item(grasp: Recipe, indent: int | None) -> None:
    text = json.dumps({**ITEM, "version": 3}, indent=indent).encode()
    questions = read_items(grasp, ("json/item-7.json", text))
    assert (questions.num_lines, questions.rejects) == (1, [])
    (row,) = questions.table.to_pylist()
    assert row["clip"] == "video/x.mp4"
    assert (row["file"], row["line"], row["id"]) == (PART, 0, "item-7")
    assert (row["category"], row["category_canonical"], row["difficulty"]) == ("C2", "J2", "hard")
    assert (row["question"], row["answer"], row["answer_index"]) == ("Eyes?", "B", 1)
    assert json.loads(row["extra"]) == {"version": 3}


def test_the_id_inside_an_item_counts(grasp: Recipe) -> None:
    item = {**ITEM, "qa": {**ITEM["qa"], "id": "own"}}  # type: ignore[dict-item]
    questions = read_items(grasp, ("json/a.json", compact(item)), ("json/b.json", compact(item)))
    assert questions.table.column("id").to_pylist() == ["own"]
    (reject,) = questions.rejects
    assert (reject.kind, reject.path, reject.member, reject.reason) == ("item", PART, "json/b.json", "duplicate-id")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "row-not-json"),
        (b"[]", "bad-meta"),
        (compact({"clip_file": "x.mp4"}), "bad-meta"),
        (compact({**ITEM, "qa": []}), "bad-meta"),
        (compact({"qa": ITEM["qa"]}), "no-path"),
        (compact({**ITEM, "clip_file": "../x.mp4"}), "path-unsafe"),
        (compact({**ITEM, "qa": {**ITEM["qa"], "answer": "C"}}), "answer-not-in-options"),  # type: ignore[dict-item]
        (compact({**ITEM, "qa": {**ITEM["qa"], "answer": None}}), "empty-answer"),  # type: ignore[dict-item]
    ],
)
def test_item_that_cannot_be_used(grasp: Recipe, text: bytes, reason: str) -> None:
    questions = read_items(grasp, ("json/a.json", text))
    assert questions.table.num_rows == 0
    (reject,) = questions.rejects
    assert (reject.kind, reject.path, reject.member, reject.reason) == ("item", PART, "json/a.json", reason)


def test_clip_folder_is_put_before_paths_that_leave_it_out() -> None:
    clean = ClipPaths("video/")
    assert clean("x.mp4") == "video/x.mp4"
    assert clean("video/x.mp4") == "video/x.mp4"
    assert clean("./video/x.mp4") == "video/x.mp4"
    assert clean("videos/x.mp4") == "video/videos/x.mp4"
    assert ClipPaths()("a\\b//./c.mp4") == "a/b/c.mp4"
    assert ClipPaths()("a/..b/c...mp4") == "a/..b/c...mp4"
