"""Training lines: windows, turns and hints as they stand; what cannot be used is rejected with its line."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from clipshards.examples import ExampleBuilder, Examples, Window, read_examples
from clipshards.schema import EXAMPLE_COLUMNS, REASONS

FILE = "train/data_sft.jsonl"
VIDEO = {
    "type": "video",
    "path": "avsbench/video/a.mp4",
    "fps": 25.0,
    "start_seconds": 1.5,
    "end_seconds": 9.0,
    "src_resolution": [720, 1280],
}
ASK = {"type": "text", "content": "Who looks?", "output": False}
SAY = {"type": "text", "content": "<answer>B</answer>\n", "output": True}
META = {
    "type": "meta",
    "difficulty": "hard",
    "question_text": "Who?",
    "gt_events": [{"source": "gaze", "persons": [1, 2]}, {"source": "pointing", "persons": [], "t": 4.5}],
}
LINE = [VIDEO, ASK, SAY, META]


def compact(line: Any) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def spaced(line: Any) -> bytes:
    return json.dumps(line, separators=(" , ", " : ")).encode() + b"\n"


def read(*lines: Any, stage: str = "sft", clip_folder: str = "") -> Examples:
    builder = ExampleBuilder(clip_folder)
    text = b"".join(line if isinstance(line, bytes) else compact(line) for line in lines)
    builder.add_lines(stage, FILE, io.BytesIO(text))
    return builder.finish()


def read_one(*specs: dict[str, Any], stage: str = "sft") -> dict[str, Any]:
    examples = read(list(specs), stage=stage)
    assert examples.rejects == []
    (row,) = examples.table.to_pylist()
    return row


def changed(spec: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**spec, **changes}


def without(spec: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key != name}


def test_a_line_is_kept_as_it_stands() -> None:
    examples = read(LINE)
    assert examples.rejects == []
    assert examples.shown == [(Window("avsbench/video/a.mp4", 1.5, 9.0),)]
    (row,) = examples.table.to_pylist()
    assert row == {
        "file": FILE,
        "line": 1,
        "id": "sft-1",
        "stage": "sft",
        "clip": "avsbench/video/a.mp4",
        "start_seconds": 1.5,
        "end_seconds": 9.0,
        "fps_from_row": 25.0,
        "height_from_row": 720,
        "width_from_row": 1280,
        "difficulty": "hard",
        "question": "Who?",
        "target": "<answer>B</answer>\n",
        "turns": [
            {"output": False, "content": "Who looks?"},
            {"output": True, "content": "<answer>B</answer>\n"},
        ],
        "gt_events": [
            {"source": "gaze", "persons": [1, 2], "extra": None},
            {"source": "pointing", "persons": [], "extra": '{"t":4.5}'},
        ],
        "extra": None,
        "warnings": [],
    }


def test_no_lines_is_an_empty_table_of_the_schema() -> None:
    examples = read()
    assert examples.table.schema == EXAMPLE_COLUMNS
    assert (examples.table.num_rows, examples.shown, examples.num_lines) == (0, [], 0)


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        [VIDEO, ASK, SAY],
        [changed(VIDEO, start_seconds=0, end_seconds=4, fps=30), ASK, SAY, META],
        [changed(VIDEO, fps=None, src_resolution=None), ASK, SAY],
        [without(without(VIDEO, "fps"), "src_resolution"), ASK, SAY],
        [changed(VIDEO, src_resolution=[720]), ASK, SAY],
        [changed(VIDEO, src_resolution=["720", 1280]), ASK, SAY],
        [changed(VIDEO, src_resolution=[0, -4]), ASK, SAY],
        [changed(VIDEO, src_resolution=[True, 1280]), ASK, SAY],
        [VIDEO, changed(VIDEO, path="b.mp4", fps=5.0), ASK, SAY],
        [VIDEO, without(ASK, "output"), SAY, ASK, SAY],
        [VIDEO, ASK, SAY, changed(META, difficulty="", question_text="", gt_events=None)],
        [VIDEO, ASK, SAY, changed(META, difficulty=None, question_text=None)],
        [VIDEO, ASK, SAY, {"type": "meta"}],
        [VIDEO, ASK, SAY, META, {"type": "meta", "difficulty": "easy"}],
        [VIDEO, changed(ASK, content='a "b": {"c":1}\u2028'), SAY],
        [VIDEO, ASK, SAY, {"type": "meta", "gt_events": [{}, {"source": None, "persons": None}]}],
        [VIDEO, ASK, SAY, {"type": "meta", "gt_events": [{"persons": [1], "box": {"x": 1, "y": {"z": 2}}}]}],
        [changed(VIDEO, end_seconds=1.5), ASK, SAY],
        [changed(VIDEO, fps=0), ASK, SAY],
        [changed(VIDEO, fps=-25.0), ASK, SAY],
        [changed(VIDEO, path=""), ASK, SAY],
        [changed(VIDEO, path="../a.mp4"), ASK, SAY],
        [VIDEO, SAY, ASK],
        [VIDEO],
        [ASK, SAY],
        [VIDEO, ASK, changed(SAY, content=" ")],
        [VIDEO, ASK, SAY, {"type": "meta", "gt_events": [{"persons": ["1"]}]}],
        [VIDEO, ASK, SAY, {"type": "meta", "gt_events": [{"persons": 1}]}],
        [VIDEO, ASK, SAY, {"type": "meta", "gt_events": [{"source": 1}]}],
    ],
)
@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_plain_lines_and_others_are_read_alike(line: list[dict[str, Any]], stage: str) -> None:
    plain = read(line, stage=stage)
    with_spaces = read(spaced(line), stage=stage)
    more = [*line[:-1], {**line[-1], "unknown": 1}]
    with_more = read(more, stage=stage)
    assert plain.table.to_pylist() == with_spaces.table.to_pylist()
    assert plain.shown == with_spaces.shown == with_more.shown
    assert plain.rejects == with_spaces.rejects == with_more.rejects
    expected = []
    for row in plain.table.to_pylist():
        extra = {str(len(line) - 1): {"unknown": 1}, **json.loads(row["extra"] or "{}")}
        expected.append({**row, "extra": json.dumps(extra, separators=(",", ":"))})
    assert with_more.table.to_pylist() == expected
    assert plain.table.num_rows + len(plain.rejects) == 1


def test_empty_events_are_read_alike() -> None:
    line = [VIDEO, ASK, SAY, changed(META, gt_events=[])]
    assert (
        read(line).table.column("gt_events").to_pylist() == read(spaced(line)).table.column("gt_events").to_pylist()
    )


def test_missing_output_is_a_turn_of_the_user() -> None:
    row = read_one(VIDEO, without(ASK, "output"), SAY)
    assert [turn["output"] for turn in row["turns"]] == [False, True]


def test_missing_difficulty_is_medium() -> None:
    assert read_one(VIDEO, ASK, SAY)["difficulty"] == "medium"
    assert read_one(VIDEO, ASK, SAY, without(META, "difficulty"))["difficulty"] == "medium"
    assert read_one(VIDEO, ASK, SAY, META)["difficulty"] == "hard"


def test_question_is_the_prompt_where_no_text_is_given() -> None:
    assert read_one(VIDEO, ASK, SAY)["question"] == "Who looks?"
    assert read_one(VIDEO, ASK, SAY, META)["question"] == "Who?"
    assert read_one(VIDEO, SAY)["question"] is None


def test_no_events_and_events() -> None:
    plain, long = [VIDEO, ASK, SAY], [VIDEO, ASK, SAY, META]
    rows = read(plain, long, plain, plain, long).table.column("gt_events").to_pylist()
    assert [None if row is None else len(row) for row in rows] == [None, 2, None, None, 2]
    assert rows[1] == rows[4]
    assert rows[1][1] == {"source": "pointing", "persons": [], "extra": '{"t":4.5}'}


def test_further_keys_of_events_survive() -> None:
    event = {"source": "gaze", "persons": [3], "start": 1.25, "target": {"kind": "cup", "box": [1, 2]}}
    (kept,) = read_one(VIDEO, ASK, SAY, {"type": "meta", "gt_events": [event]})["gt_events"]
    assert (kept["source"], kept["persons"]) == ("gaze", [3])
    assert json.loads(kept["extra"]) == {"start": 1.25, "target": {"kind": "cup", "box": [1, 2]}}


def test_target_is_stripped_for_reinforcement_learning_alone() -> None:
    say = changed(SAY, content="\n yes \n")
    assert read_one(VIDEO, ASK, say, stage="rl")["target"] == "yes"
    assert read_one(VIDEO, ASK, say, stage="sft")["target"] == "\n yes \n"
    assert read_one(VIDEO, ASK, say, stage="rl")["turns"][1]["content"] == "\n yes \n"


def test_target_is_the_last_turn() -> None:
    row = read_one(VIDEO, ASK, SAY, ASK, changed(SAY, content="last"))
    assert row["target"] == "last"
    assert len(row["turns"]) == 4


def test_several_videos_in_one_line() -> None:
    second = changed(VIDEO, path="b.mp4", fps=None, start_seconds=0, end_seconds=3, src_resolution=[1, 2])
    examples = read([VIDEO, second, ASK, SAY])
    assert examples.shown == [(Window("avsbench/video/a.mp4", 1.5, 9.0), Window("b.mp4", 0.0, 3.0))]
    (row,) = examples.table.to_pylist()
    assert (row["clip"], row["fps_from_row"], row["height_from_row"]) == ("avsbench/video/a.mp4", 25.0, 720)


def test_equal_windows_are_one_object() -> None:
    examples = read(LINE, spaced(LINE), [changed(VIDEO, end_seconds=8), ASK, SAY])
    assert examples.shown[0] is examples.shown[1]
    assert examples.shown[0] != examples.shown[2]


def test_number_written_as_a_text_is_read_and_recorded() -> None:
    row = read_one(changed(VIDEO, start_seconds="1.5", end_seconds="9"), ASK, SAY)
    assert (row["start_seconds"], row["end_seconds"], row["warnings"]) == (1.5, 9.0, ["number-as-text"])
    row = read_one(changed(VIDEO, fps="25"), ASK, SAY)
    assert (row["fps_from_row"], row["warnings"]) == (25.0, ["number-as-text"])


def test_unknown_fields_and_specs_are_kept_by_their_number() -> None:
    audio = {"type": "audio", "path": "a.wav"}
    row = read_one(changed(VIDEO, camera="left"), audio, ASK, SAY, changed(META, level=[1]), {"note": "no type"})
    assert json.loads(row["extra"]) == {
        "0": {"camera": "left"},
        "1": audio,
        "4": {"level": [1]},
        "5": {"note": "no type"},
        "order": ["video", None, "text", "text", "meta", None],
    }
    assert row["difficulty"] == "hard"


def test_size_of_the_source_is_a_hint_alone() -> None:
    for size in ([720], "720x1280", [720.5, 1280], [2**31, 1280], None, [0, 0]):
        row = read_one(changed(VIDEO, src_resolution=size), ASK, SAY)
        assert (row["height_from_row"], row["width_from_row"]) == (None, None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[{]\n", "row-not-json"),
        (compact(LINE)[:-1] + compact(LINE), "row-not-json"),
        (compact(LINE).replace(b'"fps":', b'"fps":24.0,"fps":'), "row-not-json"),
        (compact(LINE).replace(b'"persons":[1,2]', b'"persons":[1],"persons":[1,2]'), "row-not-json"),
        (compact(LINE).replace(b"Who?", b"Who\\ud800?"), "row-not-json"),
        (compact(LINE).replace(b"Who?", b"Who\xff?"), "row-not-json"),
        (compact(LINE).replace(b"9.0", b"NaN"), "bad-number"),
        (compact(LINE).replace(b"9.0", b"1e999"), "bad-number"),
        (VIDEO, "row-not-a-list"),
        ("text", "row-not-a-list"),
        ([], "empty-row"),
        ([ASK, SAY], "no-video-spec"),
        ([changed(VIDEO, type="image"), ASK, SAY], "no-video-spec"),
        ([without(VIDEO, "path"), ASK, SAY], "no-path"),
        ([changed(VIDEO, path=None), ASK, SAY], "no-path"),
        ([changed(VIDEO, path=" "), ASK, SAY], "no-path"),
        ([changed(VIDEO, path="/a.mp4"), ASK, SAY], "path-unsafe"),
        ([changed(VIDEO, path="a/../b.mp4"), ASK, SAY], "path-unsafe"),
        ([without(VIDEO, "start_seconds"), ASK, SAY], "bad-number"),
        ([changed(VIDEO, end_seconds=None), ASK, SAY], "bad-number"),
        ([changed(VIDEO, end_seconds="nine"), ASK, SAY], "bad-number"),
        ([changed(VIDEO, end_seconds="nan"), ASK, SAY], "bad-number"),
        ([changed(VIDEO, end_seconds="inf"), ASK, SAY], "bad-number"),
        ([changed(VIDEO, end_seconds=True), ASK, SAY], "bad-number"),
        ([changed(VIDEO, end_seconds=[9]), ASK, SAY], "bad-number"),
        ([changed(VIDEO, fps=0), ASK, SAY], "bad-number"),
        ([changed(VIDEO, fps=-1), ASK, SAY], "bad-number"),
        ([changed(VIDEO, fps="fast"), ASK, SAY], "bad-number"),
        ([changed(VIDEO, start_seconds=9.0), ASK, SAY], "bad-window"),
        ([changed(VIDEO, start_seconds=9.5), ASK, SAY], "bad-window"),
        ([changed(VIDEO, start_seconds=-0.1), ASK, SAY], "bad-window"),
        ([VIDEO, changed(VIDEO, start_seconds=9.5), ASK, SAY], "bad-window"),
        ([VIDEO], "empty-answer"),
        ([VIDEO, ASK], "empty-answer"),
        ([VIDEO, SAY, ASK], "empty-answer"),
        ([VIDEO, ASK, without(SAY, "output")], "empty-answer"),
        ([VIDEO, ASK, changed(SAY, content=" \n")], "empty-answer"),
        ([VIDEO, ASK, changed(SAY, content=None)], "bad-meta"),
        ([VIDEO, ASK, changed(SAY, output="true")], "bad-meta"),
        ([VIDEO, ASK, changed(SAY, output=None)], "bad-meta"),
        ([VIDEO, ASK, SAY, 5], "bad-meta"),
        ([VIDEO, ASK, SAY, changed(META, difficulty=3)], "bad-meta"),
        ([VIDEO, ASK, SAY, changed(META, question_text=["Who?"])], "bad-meta"),
        ([VIDEO, ASK, SAY, changed(META, gt_events={})], "bad-meta"),
        ([VIDEO, ASK, SAY, changed(META, gt_events=["gaze"])], "bad-meta"),
        ([VIDEO, ASK, SAY, changed(META, gt_events=[{"persons": 1}])], "bad-meta"),
        ([VIDEO, ASK, SAY, changed(META, gt_events=[{"persons": [1.5]}])], "bad-meta"),
        ([VIDEO, ASK, SAY, changed(META, gt_events=[{"persons": [True]}])], "bad-meta"),
        ([VIDEO, ASK, SAY, changed(META, gt_events=[{"source": 2}])], "bad-meta"),
    ],
)
@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_line_that_cannot_be_used(line: Any, reason: str, stage: str) -> None:
    examples = read(LINE, line, LINE, stage=stage)
    assert examples.table.column("line").to_pylist() == [1, 3]
    assert (len(examples.shown), examples.num_lines) == (2, 3)
    (reject,) = examples.rejects
    assert (reject.kind, reject.path, reject.line, reject.reason) == ("example", FILE, 2, reason)
    assert reject.reason in REASONS
    assert reject.detail


@pytest.mark.parametrize(
    "line",
    [
        [changed(VIDEO, end_seconds=10**400), ASK, SAY],
        [VIDEO, ASK, SAY, changed(META, gt_events=[{"persons": [2**70]}])],
        compact(LINE).replace(b"[720,1280]", b"[" * 100_000 + b"]" * 100_000),
        compact(LINE).replace(b"4.5", b"[" * 100_000 + b"]" * 100_000),
    ],
    ids=["huge-seconds", "huge-person", "deep-resolution", "deep-event"],
)
def test_absurd_line_is_a_reject(line: Any) -> None:
    examples = read(LINE, line)
    assert examples.table.column("line").to_pylist() == [1]
    (reject,) = examples.rejects
    assert reject.reason in {"bad-number", "bad-meta", "row-not-json"}


def test_lines_of_any_number_stay_in_order() -> None:
    plain, meta = compact([VIDEO, ASK, SAY]), compact(LINE)
    examples = read(b"".join(meta if number % 3 == 0 else plain for number in range(17_000)))
    assert examples.table.column("line").to_pylist() == list(range(1, 17_001))
    events = examples.table.column("gt_events").to_pylist()
    assert all((events[number] is not None) == (number % 3 == 0) for number in range(17_000))
    turns = examples.table.column("turns").to_pylist()
    assert all(turn == turns[0] for turn in turns)


PLAIN, CUT = compact(LINE), len(compact(LINE)) // 2
TRICKY: list[bytes] = [
    PLAIN[:-1] + b"," + PLAIN,  # two values on a line, and two lines that are one: in number they are even
    b"[1\n",
    b"2]\n",
    PLAIN[:CUT] + b"\n",
    PLAIN[CUT:],
    PLAIN[:-1] + PLAIN,
    b"]\n",
    b"[\n",
    b"],[\n",
    PLAIN[:-2] + b"],[" + PLAIN[1:],
    b"\xef\xbb\xbf" + PLAIN,
    PLAIN[:-1] + b"\r\n",
    spaced(LINE),
    PLAIN.replace(b'"fps":', b'"fps":24.0,"fps":'),
    PLAIN.replace(b'"fps":', b'"fps" :'),
    PLAIN.replace(b'"persons":[1,2]', b'"persons":[1],"persons":[1,2]'),
    PLAIN.replace(b'"t":4.5', b'"t":{"u":{"v":1}}'),
    PLAIN.replace(b"Who?", b'P1: who? \\":'),
    PLAIN.replace(b"Who?", b"Who :"),
    PLAIN.replace(b"Who?", b"Who\\ud800?"),
    PLAIN.replace(b"Who?", "a\u2028b".encode()),
    PLAIN.replace(b"9.0", b"NaN"),
    PLAIN.replace(b"9.0", b"1"),
    PLAIN.replace(b"9.0", b'"9"'),
    PLAIN.replace(b"1.5", b"-0.0"),
    PLAIN.replace(b"25.0", b"null"),
    PLAIN.replace(b"25.0", b"0"),
    PLAIN.replace(b"[720,1280]", b"[720.0,1280]"),
    compact([VIDEO, ASK, SAY]),
    compact([VIDEO, VIDEO, ASK, SAY, META]),
    compact([ASK, VIDEO, SAY, META]),
    compact([VIDEO, ASK, SAY, ASK, SAY, changed(META, gt_events=None)]),
    compact([VIDEO, ASK, SAY, changed(META, question_text="", gt_events=[])]),
    compact([VIDEO, META]),
    compact([VIDEO]),
    b"[]\n",
    b"{}\n",
    b" \t\n",
]


@pytest.mark.parametrize("stage", ["sft", "rl"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 1.0])
def test_lines_of_a_block_are_read_as_if_alone(stage: str, share: float) -> None:
    draw = random.Random(7)
    lines = [draw.choice(TRICKY) if draw.random() < share else PLAIN for _ in range(1200)]
    together, alone = ExampleBuilder(), ExampleBuilder()
    together.add_lines(stage, FILE, io.BytesIO(b"\n" + b"".join(lines)))
    for number, line in enumerate(lines, 1):
        alone.add_lines(stage, FILE, io.BytesIO(b"\n" * number + line))
    one, other = together.finish(), alone.finish()
    assert one.table.equals(other.table)
    assert (one.rejects, one.shown, one.num_lines) == (other.rejects, other.shown, other.num_lines)
    one.table.validate(full=True)


def test_two_bad_lines_do_not_make_up_for_each_other() -> None:
    examples = read(*TRICKY[:3], PLAIN)
    assert [(reject.line, reject.reason) for reject in examples.rejects] == [
        (1, "row-not-json"),
        (2, "row-not-json"),
        (3, "row-not-json"),
    ]
    assert examples.table.column("line").to_pylist() == [4]


def test_files_of_a_split_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "sft").write_bytes(b"\xef\xbb\xbf" + compact(LINE) + b"\n" + compact(LINE))
    (tmp_path / "rl").write_bytes(compact(LINE))
    files = [("sft", "a.jsonl", tmp_path / "sft"), ("rl", "b.jsonl", tmp_path / "rl")]
    rows = read_examples(files, clip_folder="video/").table.to_pylist()
    assert [(row["stage"], row["file"], row["id"]) for row in rows] == [
        ("sft", "a.jsonl", "sft-1"),
        ("sft", "a.jsonl", "sft-3"),
        ("rl", "b.jsonl", "rl-1"),
    ]
    assert [row["target"] for row in rows] == ["<answer>B</answer>\n"] * 2 + ["<answer>B</answer>"]
    assert rows[0]["clip"] == "video/avsbench/video/a.mp4"
