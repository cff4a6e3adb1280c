"""`clipshards recipe check` and `recipe new`: each mistake in its place, and drafts that work."""

from __future__ import annotations

import json
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hub_faults import FaultyHub, write_files
from test_cli import call, require_error
from test_prepare import hashes, table

from clipshards.errors import SourceError, UsageError
from clipshards.recipe import find_mistakes, load_recipe
from clipshards.recipe_draft import draft_recipe
from flows.recipes import check, draft

RIGHT = {"name": "x", "splits": {"train": {"parts": ["*.tar"], "profile": "grasp-train"}}}
MANY = """
colour = "red"
[splits.train]
part = ["*.tar"]
parts = ["/abs/*.tar", "", "a/../*.tar", "C:\\\\*.tar"]
profile = "grasp-trian"
examples_format = "speks"
examples.sft = "x"
[splits.test]
parts = ["videos/"]
profile = "own"
item_folder = "json"
questions = [1]
[profiles.own]
max_frames = 3
[conversation_fields]
markers = [""]
user = "gpt"
"""


def changed(**split: Any) -> dict[str, Any]:
    return {"name": "x", "splits": {"train": {"parts": ["*.tar"], "profile": "grasp-train", **split}}}


def test_each_mistake_is_a_line_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "many.toml"
    file.write_text(MANY)
    done = call("recipe", "check", file)
    require_error(done, 2, "16 mistake(s)")
    lines = [line.removeprefix(f"{file}: ") for line in done.stderr.splitlines()[:-1]]
    assert [line.split(":")[0] for line in lines] == [
        "colour", "the recipe", "splits.train.part", "splits.train.examples.sft", "splits.train.examples_format",
        "splits.test.questions", "profiles.own", *["splits.train.parts"] * 4, "splits.train.profile",
        "splits.test.parts", "splits.test.item_folder", "conversation_fields.markers", "conversation_fields",
    ]  # fmt: skip
    for words in ("'parts' is meant?", "specs, conversations", "max_total", "grasp-train, grasp-bench, own"):
        assert words in done.stderr
    with pytest.raises(UsageError, match=r"colour: no such field.*\(and \d+ more: clipshards recipe check"):
        load_recipe(str(file))


@pytest.mark.parametrize(
    ("table", "place"),
    [
        ({}, "the recipe"),
        ({"name": "x", "splits": {}}, "splits"),
        ({"name": "x", "splits": []}, "splits"),
        ({"name": "x", "splits": {"train": 3}}, "splits.train"),
        ({**RIGHT, "profiles": 2}, "profiles"),
        ({**RIGHT, "profiles": {"own": 2}}, "profiles.own"),
        ({**RIGHT, "question_fields": []}, "question_fields"),
        ({**RIGHT, "question_fields": {"clip": 1}}, "question_fields.clip"),
        ({**RIGHT, "splits": {"../x": RIGHT["splits"]["train"]}}, "splits.../x"),  # type: ignore[index]
        ({**RIGHT, "splits": {"bench": RIGHT["splits"]["train"]}}, "splits.bench"),  # type: ignore[index]
        (changed(parts=[]), "splits.train.parts"),
        (changed(parts=["./a.tar"]), "splits.train.parts"),
        (changed(clip_folder="../"), "splits.train.clip_folder"),
        (changed(examples={"sft": [""]}), "splits.train.examples.sft"),
        (changed(examples={"sft": ["a.jsonl"]}, profile="grasp-bench"), "splits.train.profile"),
        ({**RIGHT, "conversation_fields": {"markers": []}}, "conversation_fields.markers"),
    ],
)
def test_what_is_wrong_has_a_place(table: dict[str, Any], place: str) -> None:
    assert [mistake for mistake in find_mistakes(table) if mistake.startswith(f"{place}: ")]


def test_what_is_right_has_no_mistakes() -> None:
    assert find_mistakes(RIGHT) == []
    whole = changed(examples={"sft": ["a.json"]}, examples_format="conversations", profile="grasp-bench")
    assert find_mistakes(whole) == []
    for name in ("grasp", "llava-video"):
        assert load_recipe(name).name == name


@pytest.mark.parametrize("command", ["check", "new"])
def test_each_command_has_help_and_an_example(command: str) -> None:
    said = call("recipe", command, "--help").stdout
    assert f"Example: clipshards recipe {command}" in said


def test_windows_need_a_rate(demo_source: Path, tmp_path: Path) -> None:
    done = call("plan", demo_source, tmp_path / "out", "--profile", "grasp-bench")
    require_error(done, 2, "'grasp-bench' has no max_fps")


def test_a_right_recipe_says_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    check("llava-video", None)
    said = capsys.readouterr().out
    assert "conversations, profile llava-video: 1 frames a second, at most 64" in said
    assert "*_videos_*.tar.gz" in said


def test_the_source_shows_what_patterns_find(talks_source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (talks_source / "card.md").write_text("?")
    try:
        check("llava-video", str(talks_source))
    finally:
        (talks_source / "card.md").unlink()
    said = capsys.readouterr().out
    assert "*_videos_*.tar.gz  4 file(s)" in said and "*_processed.jsonl  2 file(s)" in said
    assert said.splitlines()[-1] == "claimed by nothing: card.md"
    with pytest.raises(UsageError, match="finds a part"):
        check("grasp", str(talks_source))


def test_parts_of_one_name_are_said(tmp_path: Path) -> None:
    write_files(tmp_path / "source", {"a/v.tar": b"", "b/v.tar": b""})
    (tmp_path / "own.toml").write_text('name = "x"\n[splits.train]\nparts = ["*.tar"]\nprofile = "grasp-train"\n')
    require_error(
        call("recipe", "check", tmp_path / "own.toml", "--source", tmp_path / "source"),
        3,
        "a/v.tar and b/v.tar",
        "--parts",
    )


def test_a_draft_is_written_once(talks_source: Path, tmp_path: Path) -> None:
    command = ("recipe", "new", talks_source, "--write", tmp_path / "own.toml")
    assert call(*command).returncode == 0
    assert find_mistakes(tomllib.loads((tmp_path / "own.toml").read_text())) == []
    require_error(call(*command), 2, "name a new file")
    require_error(call("recipe", "new", tmp_path), 3, "no part")


@pytest.mark.flow
@pytest.mark.parametrize("kind", ["grasp", "llava-video"])
def test_a_draft_prepares_as_much_as_the_recipe_that_is_built_in(
    request: pytest.FixtureRequest, prefect_server: None, tmp_path: Path, kind: str
) -> None:
    from flows.prepare import prepare

    source: Path = request.getfixturevalue("demo_source" if kind == "grasp" else "talks_source")
    recipe = tmp_path / "draft.toml"
    recipe.write_text(draft(str(source)))
    assert all(
        "guessed" in line for line in recipe.read_text().splitlines() if line.startswith(("[splits", "profile"))
    )
    drafted = Path(prepare(str(source), str(tmp_path / "drafted"), recipe=str(recipe), decoder="cpu")["snapshot"])
    if kind == "grasp":
        built_in = request.getfixturevalue("demo_snapshot")
        for name in ("examples", "questions", "bench", "views"):
            assert len(table(drafted, name)) == len(table(built_in, name)) > 0
        shards = [{k: v for k, v in hashes(of).items() if k.startswith("train/")} for of in (drafted, built_in)]
        assert shards[0] == shards[1]  # those of the test split name categories, whose spellings nothing tells
    else:
        built_in = Path(prepare(str(source), str(tmp_path / "out"), recipe=kind, decoder="cpu")["snapshot"])
        texts = [[(row["id"], row["turns"]) for row in table(of, "examples")] for of in (drafted, built_in)]
        assert len(texts[0]) > 30 and texts[0] == texts[1]
    assert table(drafted, "quarantine") == []


def test_a_hub_and_a_folder_give_the_same_draft(demo_source: Path) -> None:
    with FaultyHub(demo_source) as hub:
        lines = draft("hf://datasets/demo/GRASP", endpoint=hub.endpoint).splitlines()
        fetched = [line for line in hub.log if line.method == "GET" and line.where in ("hub", "cdn")]
    assert lines[:2] == ['name = "grasp"', 'repo = "demo/GRASP"']
    assert lines[2:] == draft(str(demo_source)).splitlines()[1:]
    assert all(line.range for line in fetched), "only the starts of files are fetched"


def test_fields_and_splits_are_guessed() -> None:
    rows = {"qid": 1, "video_path": "a.mp4", "query": "?", "choices": ["A", "B"], "gt": "A", "format": "mc"}
    talk = {"clip": "a.mp4", "messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}
    starts = {
        "val/q.jsonl": json.dumps(rows) + "\n" + json.dumps(rows)[:9],
        "talks.json": json.dumps([talk, talk], indent=1)[:-20],
        "bad.json": "{",
        "list.json": '{"info": 1}',
        "empty.jsonl": "",
        "a/p[1].tar": "",
        "b/p2.tgz": "",
    }
    text = draft_recipe("x", "o/x", sorted(starts), lambda path: starts[path].encode())
    found = tomllib.loads(text)
    assert find_mistakes(found) == []
    assert found["splits"]["train"]["parts"] == ["a/*.tar", "b/*.tgz"]
    assert found["splits"]["train"]["examples"] == {"sft": ["talks.json"]}
    assert found["splits"]["validation"]["parts"] == ["a/*.tar", "b/*.tgz"], "it has none of its own"
    assert found["splits"]["validation"]["questions"] == ["val/q.jsonl"]
    assert found["question_fields"] == {
        "id": "qid", "clip": "video_path", "question": "query", "options": "choices", "answer": "gt",
    }  # fmt: skip
    assert found["multiple_choice_formats"] == ["mc"]
    assert found["conversation_fields"] == {
        "clip": "clip", "turns": "messages", "speaker": "role", "text": "content",
        "user": "user", "assistant": "assistant", "markers": ["<image>", "<video>"],
    }  # fmt: skip
    assert "none was seen" in text
    assert [line for line in text.splitlines() if "not understood" in line] == [
        f'# not understood, and so in no split: "{name}"' for name in ("bad.json", "empty.jsonl", "list.json")
    ]


def test_a_split_claims_no_part_of_another() -> None:
    paths = ["train_01.tar", "test_01.tar", "odd*name.tar"]
    found = tomllib.loads(draft_recipe("x", "", paths, lambda path: b""))
    assert found["splits"]["train"]["parts"] == ["train_01.tar", "odd[*]name.tar"]
    assert found["splits"]["test"]["parts"] == ["test_01.tar"]


ODD_STARTS = [
    b"", b"\xff\xfe{", b"[" * 5000, b"[[[{", b'{"a":', b"null", b"3\n4", b'[{"type": 3}]', b'[{"from": "x"}]',
    b'{"conversations": [3]}', b"\x1f\x8b\x08\x00",
]  # fmt: skip


@pytest.mark.parametrize("start", ODD_STARTS)
def test_whatever_a_file_begins_with(start: bytes) -> None:
    text = draft_recipe("x", "", ["p.tar", "a.json", "b.jsonl"], lambda path: start)
    assert find_mistakes(tomllib.loads(text)) == []


def test_a_source_without_parts() -> None:
    with pytest.raises(SourceError, match="no part"):
        draft_recipe("x", "", ["a.json", "p.zip"], lambda path: b"")


def test_a_name_that_is_no_word_of_toml(tmp_path: Path) -> None:
    name = 'odd "name" 手\x7f\n# x.json'
    found = tomllib.loads(draft_recipe("x", "", ["p.tar", name], lambda path: b""))
    assert list(found["splits"]) == ["train"]
    with tarfile.open(tmp_path / "p.tar", "w"):
        pass
    assert find_mistakes(tomllib.loads(draft(str(tmp_path)))) == []


def test_two_formats_in_one_split() -> None:
    talk = {"video": "a.mp4", "conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "!"}]}
    specs = [{"path": "a.mp4", "type": "video"}, {"type": "text", "content": "?", "output": False}]
    starts = {f"specs/a_file_with_a_long_name_{n}.jsonl": json.dumps(specs) + "\n" for n in range(3)}
    starts |= {f"talks/another_file_with_a_long_name_{n}.json": json.dumps([talk, 3, None]) for n in range(2)}
    text = draft_recipe("x", "", ["p.tar", *starts], lambda path: starts.get(path, "").encode())
    split = tomllib.loads(text)["splits"]["train"]
    assert len(split["examples"]["sft"]) == 3 and split["profile"] == "grasp-train"
    assert text.count("# conversations, for a split of its own: ") == 2
