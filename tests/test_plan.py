"""Rows share views, views have lasting names, clips have one place, shards stay where they are."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipshards.annotations import QuestionBuilder, Questions
from clipshards.errors import Rejected, SourceError
from clipshards.examples import ExampleBuilder, Examples
from clipshards.plan import (
    SplitPlan,
    View,
    assign_clips,
    link_examples,
    make_view,
    plan_shards,
    plan_split,
    planned_bytes,
    require_different_names,
    shard_bytes,
)
from clipshards.recipe import load_recipe
from clipshards.sampling import GRASP_BENCH, GRASP_TRAIN, Profile
from clipshards.tars import TarMember

MIB = 1 << 20
KEY = re.compile(r"[a-z0-9_-]{1,80}")


def video(path: str, start: float, end: float) -> dict[str, Any]:
    return {"type": "video", "path": path, "start_seconds": start, "end_seconds": end}


def examples_of(*lines: list[dict[str, Any]], question: str = "?") -> Examples:
    """Examples of these videos, each with a prompt and a target."""
    builder = ExampleBuilder()
    turns = [{"type": "text", "content": question}, {"type": "text", "content": "a", "output": True}]
    text = "\n".join(json.dumps([*videos, *turns]) for videos in lines)
    builder.add_lines("sft", "data_sft.jsonl", io.BytesIO(text.encode()))
    examples = builder.finish()
    assert examples.rejects == []
    return examples


def questions_of(*rows: tuple[str, str]) -> Questions:
    """Annotation rows of these clips and questions."""
    recipe = load_recipe("grasp")
    builder = QuestionBuilder(recipe, recipe.splits["train"])
    lines = [{"id": str(n), "video": c, "question": q, "answer": "yes"} for n, (c, q) in enumerate(rows)]
    builder.add_lines("annotations.jsonl", io.BytesIO("\n".join(map(json.dumps, lines)).encode()))
    questions = builder.finish()
    assert questions.rejects == []
    return questions


def plan_of(*lines: list[dict[str, Any]], profile: Profile = GRASP_TRAIN) -> SplitPlan:
    return plan_split("train", profile, examples_of(*lines), [])


def test_rows_with_the_same_window_share_a_view() -> None:
    plan = plan_of([video("s/a.mp4", 0, 10)], [video("s/a.mp4", 0.0, 10.0)], [video("s/a.mp4", 0, 9)])
    assert plan.num_views() == 2
    first, second = plan.views["s/a.mp4"]
    assert (first.start_seconds, first.end_seconds, first.num_frames) == (0.0, 10.0, 20)
    assert (second.end_seconds, second.num_frames) == (9.0, 18)
    assert first.key != second.key
    assert list(plan.views_of.values()) == [(first,), (second,)]


def test_videos_shown_together_share_the_frames() -> None:
    alone = [video("s/a.mp4", 0, 200)]
    both = [video("s/a.mp4", 0, 200), video("s/b.mp4", 0, 200)]
    plan = plan_of(alone, both, [video("s/b.mp4", 0, 10), video("s/a.mp4", 0, 200)])
    assert [view.num_frames for view in plan.views["s/a.mp4"]] == [400, 256]
    assert [view.num_frames for view in plan.views["s/b.mp4"]] == [256, 20]
    assert [
        [view.clip for view in views] for views in plan.views_of.values() if not isinstance(views, Rejected)
    ] == [
        ["s/a.mp4"],
        ["s/a.mp4", "s/b.mp4"],
        ["s/b.mp4", "s/a.mp4"],
    ]


def test_the_same_window_twice_in_one_row_is_one_view() -> None:
    plan = plan_of([video("s/a.mp4", 0, 10), video("s/a.mp4", 0, 10)])
    assert plan.num_views() == 1
    (views,) = plan.views_of.values()
    assert not isinstance(views, Rejected)
    assert views[0] is views[1]


def test_too_many_videos_are_rejected_and_have_no_views() -> None:
    crowd = [video(f"s/{n}.mp4", 0, 10) for n in range(257)]
    plan = plan_of(crowd, [video("s/0.mp4", 0, 10)])
    rejected, kept = plan.views_of.values()
    assert isinstance(rejected, Rejected)
    assert rejected.reason == "too-many-videos"
    assert plan.views == {"s/0.mp4": list(kept)}  # type: ignore[arg-type]


def test_clips_that_no_example_shows_are_taken_whole() -> None:
    examples = examples_of([video("s/a.mp4", 0, 10)])
    plan = plan_split("train", GRASP_TRAIN, examples, ["s/b.mp4", "s/a.mp4", "s/b.mp4"])
    assert list(plan.views) == ["s/a.mp4", "s/b.mp4"]
    (whole,) = plan.views["s/b.mp4"]
    assert (whole.start_seconds, whole.end_seconds, whole.num_frames) == (None, None, None)
    assert plan.whole_clip("s/b.mp4") == whole
    assert plan.whole_clip("s/a.mp4") is None
    assert plan.whole_clip("s/none.mp4") is None


def test_key_names_source_and_clip() -> None:
    key = make_view("avsbench/video/A b.c.mp4", 0.0, 1.0, 2, GRASP_TRAIN).key
    assert re.fullmatch(r"avsbench-a_b_c-[0-9a-f]{12}", key)
    assert re.fullmatch(
        r"bench-x-[0-9a-f]{12}", make_view("video/x.mp4", None, None, None, GRASP_BENCH, "bench").key
    )
    assert re.fullmatch(r"x-[0-9a-f]{12}", make_view("x.mp4", None, None, None, GRASP_BENCH).key)


def test_key_depends_on_what_is_stored_and_nothing_else() -> None:
    base = make_view("s/a.mp4", 0.0, 10.0, 20, GRASP_TRAIN)
    assert make_view("s/a.mp4", 0.0, 10.0, 20, Profile("other-name")).key == base.key
    others = [
        make_view("s/b.mp4", 0.0, 10.0, 20, GRASP_TRAIN),
        make_view("s/a.mp4", 1.0, 10.0, 20, GRASP_TRAIN),
        make_view("s/a.mp4", 0.0, 10.000001, 20, GRASP_TRAIN),
        make_view("s/a.mp4", 0.0, 10.0, 18, GRASP_TRAIN),
        make_view("s/a.mp4", None, None, None, GRASP_TRAIN),
        make_view("s/a.mp4", 0.0, 10.0, 20, Profile("grasp-train", max_cells=64)),
    ]
    assert len({view.key for view in [base, *others]}) == 7


NASTY = [
    "a.mp4",
    "A.mp4",
    "a.MP4",
    "a.mkv",
    "a",
    "s/a.mp4",
    "s/video/a.mp4",
    "s/other/a.mp4",
    "S/a.mp4",
    "s/a.b.mp4",
    "s/a_b.mp4",
    "s/a b.mp4",
    "s/a..mp4",
    "s/.mp4",
    "s/.hidden.mp4",
    "s/...",
    ".",
    "s/видео.mp4",
    "s/музыка.mp4",
    "s/手.mp4",
    "s/足.mp4",
    "手/手.mp4",
    "s/caf\u00e9.mp4",
    "s/cafe\u0301.mp4",
    "s/\u0130.mp4",
    "s/\u00df.mp4",
    "s/\N{GRINNING FACE}.mp4",
    "s/a\u2028b.mp4",
    "s/a\nb.mp4",
    "s/-.mp4",
    "s/__.mp4",
    "-/-.mp4",
    "s/a:b|c*?.mp4",
    "s/" + "x" * 300 + ".mp4",
    "s/" + "x" * 301 + ".mp4",
    "s/" + "x" * 63 + "--.mp4",
    "s/" + "é" * 200 + ".mp4",
    "f" * 200 + "/a.mp4",
    "s/trailing/",
]


def test_keys_of_nasty_paths_are_clean_and_different() -> None:
    keys = [make_view(path, 0.0, 1.0, 2, GRASP_TRAIN).key for path in NASTY]
    for path, key in zip(NASTY, keys, strict=True):
        assert KEY.fullmatch(key), path
        assert key[0] not in "-_", path
    assert len(set(keys)) == len(NASTY)


@settings(max_examples=100, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200),
    st.none() | st.text("aZé/. ", max_size=9),
)
def test_key_of_any_path_is_clean(path: str, source: str | None) -> None:
    assert KEY.fullmatch(make_view(path, None, None, None, GRASP_BENCH, source).key)


def test_examples_are_linked_by_clip_and_question() -> None:
    questions = questions_of(("s/a.mp4", "Who?"), ("s/b.mp4", "Who?"), ("s/b.mp4", " When? "))
    videos = [[video(f"s/{clip}.mp4", 0, 5)] for clip in "bac"]
    assert link_examples(examples_of(*videos, question="Who?"), questions) == [1, 0, -1]
    assert link_examples(examples_of(*videos, question=" When?\n"), questions) == [2, -1, -1]
    assert link_examples(examples_of(*videos, question="Where?"), questions) == [-1, -1, -1]


def test_first_of_equal_questions_is_linked_whatever_the_white_space() -> None:
    questions = questions_of(("s/a.mp4", "\u2003Who?\x1c"), ("s/a.mp4", "Who?"), ("s/a.mp4", "Who?"))
    examples = examples_of([video("s/a.mp4", 0, 5)], question="\x85Who?\u3000")
    assert link_examples(examples, questions) == [0]


def test_white_space_is_the_same_for_python_and_arrow() -> None:
    spaces = [chr(code) for code in range(0x110000) if chr(code).isspace()]
    others = [chr(code) for code in range(0x3100) if not chr(code).isspace()]
    texts = [f"{character}a{character}" for character in spaces + others]
    assert pc.utf8_trim_whitespace(pa.array(texts)).to_pylist() == [text.strip() for text in texts]


def test_examples_are_linked_by_a_prompt_that_holds_the_options() -> None:
    questions = questions_of(("s/a.mp4", "Who?"), ("s/a.mp4", "Who? And why?"), ("s/b.mp4", "Who?"))
    prompts = examples_of([video("s/a.mp4", 0, 5)], question="Look.\nWho? And why?\nA) Ann\nB) Bo")
    assert link_examples(prompts, questions) == [1]  # the longest question that the prompt holds
    prompts = examples_of([video("s/a.mp4", 0, 5)], question="Who?\nA) Ann\nB) Bo")
    assert link_examples(prompts, questions) == [0]
    prompts = examples_of([video("s/b.mp4", 0, 5)], question="Whom?")
    assert link_examples(prompts, questions) == [-1]


def test_linking_uses_the_question_of_the_meta_spec() -> None:
    builder = ExampleBuilder()
    line = [
        video("s/a.mp4", 0, 5),
        {"type": "text", "content": "Why? A) x B) y"},
        {"type": "text", "content": "A", "output": True},
        {"type": "meta", "question_text": "Who?"},
    ]
    builder.add_lines("sft", "f", io.BytesIO(json.dumps(line).encode()))
    assert link_examples(builder.finish(), questions_of(("s/a.mp4", "Why?"), ("s/a.mp4", "Who?"))) == [1]


def test_linking_nothing() -> None:
    assert link_examples(Examples(), questions_of(("s/a.mp4", "Who?"))) == []
    assert link_examples(examples_of([video("s/a.mp4", 0, 5)]), Questions()) == [-1]


def member(name: str, content: str = "1", offset: int = 512) -> TarMember:
    return TarMember(name, offset, 100, content * 64)


def test_clip_is_found_by_its_exact_path() -> None:
    small, large = member("s/a.mp4"), member("s/A.mp4", "2")
    found = assign_clips(["s/a.mp4", "s/A.mp4"], {"p.tar": [small, large]})
    assert found.places == {"s/a.mp4": ("p.tar", small), "s/A.mp4": ("p.tar", large)}
    assert (found.rejects, found.other_case) == ({}, set())


def test_clip_is_found_under_another_case_where_one_alone_is_alike() -> None:
    only = member("S/Video/A.MP4")
    found = assign_clips(["s/video/a.mp4"], {"p.tar": [only, member("s/video/b.mp4")]})
    assert found.places == {"s/video/a.mp4": ("p.tar", only)}
    assert found.other_case == {"s/video/a.mp4"}


def test_two_members_that_differ_in_case_are_no_answer() -> None:
    parts = {"p.tar": [member("s/A.mp4")], "q.tar": [member("S/a.mp4")]}
    found = assign_clips(["s/a.mp4"], parts)
    assert found.places == {}
    reject = found.rejects["s/a.mp4"]
    assert (reject.reason, reject.clip) == ("clip-missing", "s/a.mp4")
    assert "2 members" in reject.detail


def test_one_member_in_another_case_in_two_parts_is_one_candidate() -> None:
    parts = {"q.tar": [member("s/A.mp4")], "p.tar": [member("s/A.mp4", offset=1024)]}
    found = assign_clips(["s/a.mp4"], parts)
    assert found.places == {"s/a.mp4": ("p.tar", member("s/A.mp4", offset=1024))}
    assert found.other_case == {"s/a.mp4"}


def test_same_bytes_in_two_parts_are_one_clip_of_the_first_part() -> None:
    first, second = member("s/a.mp4"), member("s/a.mp4", offset=2048)
    found = assign_clips(["s/a.mp4"], {"q.tar": [second], "p.tar": [first]})
    assert found.places == {"s/a.mp4": ("p.tar", first)}
    assert found.rejects == {}
    assert found.of_part("p.tar") == {"s/a.mp4": first}
    assert found.of_part("q.tar") == {}


def test_other_bytes_in_two_parts_are_a_conflict() -> None:
    parts = {"q.tar": [member("s/a.mp4", "2")], "p.tar": [member("s/a.mp4"), member("s/b.mp4")]}
    found = assign_clips(["s/a.mp4", "s/b.mp4"], parts)
    assert list(found.places) == ["s/b.mp4"]
    reject = found.rejects["s/a.mp4"]
    assert (reject.kind, reject.reason, reject.clip) == ("clip", "duplicate-across-parts-conflict", "s/a.mp4")
    assert "p.tar" in reject.detail
    assert "q.tar" in reject.detail


def test_clip_that_no_part_holds_is_missing() -> None:
    found = assign_clips(["s/a.mp4", "a.mp4"], {"p.tar": [member("s/b.mp4")], "q.tar": []})
    assert found.places == {}
    assert {clip: reject.reason for clip, reject in found.rejects.items()} == {
        "s/a.mp4": "clip-missing",
        "a.mp4": "clip-missing",
    }


@pytest.mark.parametrize(
    ("split", "shard"),
    [
        (0, MIB),
        (16 * MIB - 1, MIB),
        (16 * MIB, MIB),
        (32 * MIB, 2 * MIB),
        (63 * MIB, 2 * MIB),
        (64 * MIB, 4 * MIB),
        (16 * 512 * MIB - 1, 256 * MIB),
        (16 * 512 * MIB, 512 * MIB),
        (10_000 * 512 * MIB, 512 * MIB),
    ],
)
def test_shards_are_halved_until_there_are_sixteen(split: int, shard: int) -> None:
    assert shard_bytes(split) == shard


def views_of(count: int, *, seconds: float = 58, profile: Profile = GRASP_TRAIN) -> SplitPlan:
    """`count` clips with two windows each."""
    lines = [[video(f"s/clip{n}.mp4", 0, end)] for n in range(count) for end in (seconds, seconds / 2)]
    return plan_of(*lines, profile=profile)


def place_of(plan: SplitPlan, size: int) -> dict[str, str]:
    """clip → shard."""
    shards = plan_shards(plan, "train/p.tar", plan.views, size)
    return {clip: shard.name for shard in shards for clip in shard.views}


def test_planned_bytes_grow_with_frames_and_pixels() -> None:
    plan = views_of(10)
    frames = sum(view.num_frames or 0 for of_clip in plan.views.values() for view in of_clip)
    full_grids = frames * 256 * 32 * 32
    assert 0.2 * full_grids < planned_bytes(plan.views, GRASP_TRAIN) < full_grids
    assert planned_bytes({}, GRASP_TRAIN) == 0
    whole = {"a.mp4": [make_view("a.mp4", None, None, None, GRASP_BENCH)]}
    assert planned_bytes(whole, GRASP_BENCH) > 0


def test_each_view_is_in_one_shard_and_a_clip_is_in_one() -> None:
    plan = views_of(80)
    size = planned_bytes(plan.views, plan.profile) // 8
    shards = plan_shards(plan, "train/p.tar", plan.views, size)
    assert 6 <= len(shards) <= 9
    keys = [view.key for shard in shards for view in shard.all_views()]
    assert sorted(keys) == sorted(view.key for views in plan.views.values() for view in views)
    assert [len(views) for shard in shards for views in shard.views.values()] == [2] * 80
    clips = [clip for shard in shards for clip in shard.views]
    assert len(set(clips)) == len(clips)
    assert max(len(shard.views) for shard in shards) < 30  # spread, not heaped


def test_clips_without_views_or_of_other_parts_are_not_in_the_shards() -> None:
    plan = views_of(4)
    shards = plan_shards(plan, "train/p.tar", ["s/clip1.mp4", "s/none.mp4"], 512 * MIB)
    assert [list(shard.views) for shard in shards] == [["s/clip1.mp4"]]
    assert plan_shards(plan, "train/p.tar", [], 512 * MIB) == []


def test_an_added_clip_does_not_move_the_others() -> None:
    few, more = views_of(100), views_of(101)
    size = planned_bytes(few.views, few.profile) // 10 * 10 // 9  # 9 shards and a bit less
    before, after = place_of(few, size), place_of(more, size)
    assert len(set(before.values())) > 5
    assert {clip: after[clip] for clip in before} == before
    assert set(after) - set(before) == {"s/clip100.mp4"}


def test_order_of_the_clips_does_not_matter() -> None:
    plan = views_of(40)
    size = planned_bytes(plan.views, plan.profile) // 5
    clips = list(plan.views)
    one = plan_shards(plan, "p.tar", clips, size)
    other = plan_shards(plan, "p.tar", reversed(clips), size)
    assert one == other
    assert [list(shard.views) for shard in one] == [list(shard.views) for shard in other]


def test_names_of_shards() -> None:
    plan = views_of(60)
    size = planned_bytes(plan.views, plan.profile) // 6
    shards = plan_shards(plan, "train/videos/tvqa/tvqa part.000.tar", plan.views, size)
    names = [shard.name for shard in shards]
    assert all(re.fullmatch(r"tvqa_part_000-[0-9a-f]{8}-\d{4}\.tar", name) for name in names)
    assert names == sorted(set(names))
    assert {shard.split for shard in shards} == {"train"}
    assert {shard.part for shard in shards} == {"train/videos/tvqa/tvqa part.000.tar"}
    (single,) = plan_shards(plan, "p.tar", plan.views, 1 << 50)
    assert single.name == "p-0000.tar"


def test_all_views_of_a_shard() -> None:
    plan = views_of(2)
    (shard,) = plan_shards(plan, "p.tar", plan.views, 1 << 50)
    assert all(isinstance(view, View) for view in shard.all_views())
    assert len(shard.all_views()) == plan.num_views() == 4


def test_parts_of_one_file_name_are_refused() -> None:
    require_different_names(["a/x.tar", "b/y.tar"])
    with pytest.raises(SourceError, match=r"x\.tar"):
        require_different_names(["a/x.tar", "b/y.tar", "b/x.tar"])


@pytest.mark.parametrize("names", [("a b.tar", "a_b.tar"), ("a.b.tar", "a_b.tar"), ("видео.tar", "музыка.tar")])
def test_parts_have_shards_of_different_names_or_are_refused(names: tuple[str, str]) -> None:
    plan = views_of(2)
    try:
        require_different_names(names)
    except SourceError:
        return
    first, second = (plan_shards(plan, name, plan.views, 1 << 50)[0].name for name in names)
    assert first != second
