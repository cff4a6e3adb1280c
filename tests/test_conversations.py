"""Conversations, as a JSON array or as JSONL: what becomes an example, and what is wrong with the others."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest

from clipshards.conversations import ConversationBuilder
from clipshards.examples import Examples, Window
from clipshards.plan import make_view, plan_split, planned_bytes
from clipshards.recipe import ConversationFields, load_recipe
from clipshards.sampling import GRASP_BENCH, Profile
from clipshards.schema import EXAMPLE_COLUMNS

USER, MODEL = {"from": "human", "value": "<image>\nWho waves?"}, {"from": "gpt", "value": "P1."}
ROW = {"id": "a", "video": "s/a.mp4", "conversations": [USER, MODEL]}


def read(rows: str | bytes, stage: str = "sft", **fields: Any) -> Examples:
    builder = ConversationBuilder(ConversationFields(**fields))
    builder.add_lines(stage, "cap.json", io.BytesIO(rows if isinstance(rows, bytes) else rows.encode()))
    return builder.finish()


def read_row(row: Any, **options: Any) -> dict[str, Any]:
    examples = read(json.dumps([row]), **options)
    assert examples.rejects == []
    return examples.table.to_pylist()[0]  # type: ignore[no-any-return]


def rejected(row: Any) -> tuple[str, str]:
    examples = read(json.dumps([row]))
    assert examples.table.num_rows == 0 and examples.num_lines == 1
    (reject,) = examples.rejects
    assert (reject.kind, reject.path, reject.line) == ("example", "cap.json", 1)
    return reject.reason, reject.detail


def say(*texts: str) -> list[dict[str, str]]:
    return [{"from": ("human", "gpt")[number % 2], "value": text} for number, text in enumerate(texts)]


def test_a_conversation_is_an_example_of_the_whole_clip() -> None:
    examples = read(json.dumps([ROW, ROW]))
    assert examples.table.schema == EXAMPLE_COLUMNS
    assert examples.shown == [(Window("s/a.mp4", None, None),)] * 2
    first, second = examples.table.to_pylist()
    assert first == {
        **dict.fromkeys(EXAMPLE_COLUMNS.names),
        "file": "cap.json", "line": 1, "id": "cap.json:1", "stage": "sft", "clip": "s/a.mp4",
        "difficulty": "medium", "question": "Who waves?", "target": "P1.", "extra": '{"row":{"id":"a"}}',
        "turns": [{"output": False, "content": "Who waves?"}, {"output": True, "content": "P1."}], "warnings": [],
    }  # fmt: skip
    assert second["id"] == "cap.json:2", "rows of one id are different examples"
    assert not examples.has_hints


@pytest.mark.parametrize("text", [
    json.dumps([ROW, ROW]), json.dumps([ROW, ROW], indent=4), f"{json.dumps(ROW)}\n\n{json.dumps(ROW)}\n",
    "\ufeff [" + json.dumps(ROW) + "\r\n,\t" + json.dumps(ROW) + "]\n",
])  # fmt: skip
def test_an_array_and_lines_are_the_same(text: str) -> None:
    examples = read(text)
    assert examples.num_lines == 2 and examples.rejects == []
    assert examples.table.column("target").to_pylist() == ["P1.", "P1."]


@pytest.mark.parametrize("text", ["", " \n", "[]", "[ ]"])
def test_a_file_of_no_rows(text: str) -> None:
    examples = read(text)
    assert (examples.num_lines, examples.table.num_rows, examples.rejects) == (0, 0, [])


DAMAGED = json.dumps([ROW, {**ROW, "video": ']{,["\\'}])[:-1]


@pytest.mark.parametrize(
    ("text", "targets", "reasons"),
    [
        (DAMAGED, 2, ["row-not-json"]),
        (DAMAGED[:-20], 1, ["row-not-json"]),
        (DAMAGED + ",]", 2, []),
        (DAMAGED + "] x", 2, ["row-not-json"]),
        (DAMAGED + ', {"a": NaN}, {"a": 1,}, {"a": 1, "a": 2}]', 2, ["bad-number", "row-not-json", "row-not-json"]),
        (DAMAGED + ', {"video": "\ud800"}]', 2, ["row-not-json"]),
        (DAMAGED + ', "x", 3, [], null]', 2, ["row-not-a-list"] * 4),
        ("[", 0, ["row-not-json"]),
    ],
)
def test_what_is_damaged_in_an_array_costs_only_itself(text: str, targets: int, reasons: list[str]) -> None:
    examples = read(text.encode("utf-8", "surrogatepass"))
    assert examples.table.num_rows == targets
    assert [reject.reason for reject in examples.rejects] == reasons
    assert examples.num_lines == targets + len(reasons)


@pytest.mark.parametrize(
    ("turns", "order", "texts"),
    [
        (say("<video>\nWho?", "P1."), None, ["Who?", "P1."]),
        (say("Who?\n<image>", "P1."), ["text", "video", "text", "meta"], ["Who?", "P1."]),
        (say("First <image> then", "P1."), ["text", "video", "text", "text", "meta"], ["First", "then", "P1."]),
        (say("<image>", "A room."), None, ["", "A room."]),
        (say("Hello", "Hi", "<image>Who?", "P1."), ["text", "text", "video", "text", "text", "meta"],
         ["Hello", "Hi", "Who?", "P1."]),
        (say("<image>\nWho?", "P1.", "And then?", "P2."), None, ["Who?", "P1.", "And then?", "P2."]),
    ],
)  # fmt: skip
def test_the_video_comes_where_its_marker_stands(turns: Any, order: Any, texts: list[str]) -> None:
    row = read_row({"video": "a.mp4", "conversations": turns})
    assert [turn["content"] for turn in row["turns"]] == texts
    assert (json.loads(row["extra"])["order"] if row["extra"] else None) == order
    assert row["target"] == texts[-1]


def test_what_is_not_named_is_kept() -> None:
    row = read_row({**ROW, "data_source": "x", "n": [1], "conversations": [USER, {**MODEL, "weight": 0.5}]})
    assert json.loads(row["extra"]) == {"2": {"weight": 0.5}, "row": {"id": "a", "data_source": "x", "n": [1]}}


def test_an_rl_target_is_stripped_and_an_sft_one_is_not() -> None:
    row = {**ROW, "conversations": say("<image>?", " P1.\n")}
    assert read_row(row)["target"] == " P1.\n"
    assert read_row(row, stage="rl")["target"] == "P1."


def test_other_names_of_fields_and_speakers() -> None:
    row = {
        "clip": "a.mp4",
        "messages": [{"role": "user", "content": "<v>Who?"}, {"role": "model", "content": "P1."}],
    }
    fields = {"clip": "clip", "turns": "messages", "speaker": "role", "text": "content", "user": "user"}
    assert read_row(row, **fields, assistant="model", markers=("<v>",))["question"] == "Who?"


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"conversations": []}, "empty-answer", "last turn"),
        ({"conversations": None}, "bad-meta", "None"),
        ({"conversations": "x"}, "bad-meta", "list of turns"),
        ({"conversations": [3, MODEL]}, "bad-meta", "turn 0"),
        ({"conversations": [MODEL, USER]}, "bad-meta", "'gpt'"),
        ({"conversations": [USER, USER]}, "bad-meta", "turn 1"),
        ({"conversations": [USER, MODEL, MODEL]}, "bad-meta", "turn 2"),
        ({"conversations": [{"from": "system", "value": "Be brief."}, USER, MODEL]}, "bad-meta", "'system'"),
        ({"conversations": [{"value": "<image>?"}, MODEL]}, "bad-meta", "None"),
        ({"conversations": [{"from": ["human"], "value": "<image>?"}, MODEL]}, "bad-meta", "['human']"),
        ({"conversations": [USER]}, "empty-answer", "'gpt'"),
        ({"conversations": [USER, MODEL, {"from": "human", "value": "?"}]}, "empty-answer", "last turn"),
        ({"conversations": say("<image>?", " ")}, "empty-answer", "turn 1"),
        ({"conversations": say("<image>?", "", "?", "P1.")}, "empty-answer", "turn 1"),
        ({"conversations": [USER, {"from": "gpt", "value": 3}]}, "bad-meta", "3"),
        ({"conversations": say("Who?", "P1.")}, "bad-meta", "not 0 times"),
        ({"conversations": say("<image><image>?", "P1.")}, "bad-meta", "not 2 times"),
        ({"conversations": say("<image>?", "P1.", "<video>?", "P2.")}, "bad-meta", "not 2 times"),
        ({"conversations": say("<image>?", "P1 <image>")}, "bad-meta", "turn 1"),
        ({"video": None}, "no-path", "None"),
        ({"video": ["a.mp4"]}, "no-path", "a.mp4"),
        ({"video": "../a.mp4"}, "path-unsafe", "../a.mp4"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], reason: str, words: str) -> None:
    found, detail = rejected({**ROW, **change})
    assert found == reason and words in detail


def test_whatever_happens_to_the_bytes_each_row_is_told_of() -> None:
    whole = json.dumps([{**ROW, "id": number} for number in range(4)]).encode()
    chance = random.Random(7)
    for _ in range(2000):
        text = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(text))
            text[at : at + chance.choice([0, 1, 1, 40])] = chance.choice(
                [b"", b'"', b"[", b"}", b",", b"\\", b"\xff"]
            )
        examples = read(bytes(text))
        assert examples.num_lines == examples.table.num_rows + len(examples.rejects)
        assert examples.table.num_rows == 4 or examples.rejects, "what is lost is named"


def test_rows_that_are_none() -> None:
    assert rejected({"id": "a", "conversations": [USER, MODEL]})[0] == "no-video-spec"
    assert rejected([ROW])[0] == "row-not-a-list"
    assert rejected({})[0] == "empty-row"


@pytest.mark.parametrize("profile", [load_recipe("llava-video").profile("llava-video"), GRASP_BENCH])
def test_a_whole_clip_is_one_view_however_many_ask_for_it(profile: Profile) -> None:
    examples = read(json.dumps([ROW, ROW, {**ROW, "video": "b.mp4"}]))
    plan = plan_split("train", profile, examples, ["s/a.mp4"])
    view = make_view("s/a.mp4", None, None, None, profile)
    assert plan.views["s/a.mp4"] == [view] and plan.whole_clip("s/a.mp4") == view
    assert plan.views_of[examples.shown[0]] == (view,)
    one_frame = planned_bytes({"s/a.mp4": [make_view("s/a.mp4", 0.0, 1.0, 1, profile)]}, profile)
    assert planned_bytes(plan.views, profile) <= 2 * profile.max_total * (one_frame + 1)
