"""A recipe that is right loads; one that is wrong says what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from clipshards.errors import UsageError
from clipshards.recipe import load_profile, load_recipe
from clipshards.sampling import GRASP_BENCH, GRASP_TRAIN, Profile

SMALL = """
name = "small"
[splits.train]
parts = ["*.tar"]
profile = "grasp-train"
"""


def write(folder: Path, text: str, name: str = "own.toml") -> str:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_grasp_is_built_in() -> None:
    recipe = load_recipe("grasp")
    assert recipe.repo == "interlive/GRASP"
    assert set(recipe.splits) == {"train", "test"}
    assert recipe.profile(recipe.splits["train"].profile) == GRASP_TRAIN
    assert recipe.profile(recipe.splits["test"].profile) == GRASP_BENCH
    assert recipe.canonical_categories == {"C1": "J1", "C2": "J2", "C3": "J3", "C4": "J4"}
    assert set(recipe.splits["train"].examples) == {"sft", "rl"}
    assert recipe.question_fields.clip == "video"


def test_built_in_profiles_have_the_values_of_the_trainer() -> None:
    train, bench = load_recipe("grasp").profile("grasp-train"), load_recipe("grasp").profile("grasp-bench")
    assert (train.max_fps, train.min_frames, train.multiple, train.max_total) == (2.0, 2, 2, 512)
    assert (train.grid_pixels, train.max_cells) == (32, 256)
    assert (bench.max_fps, bench.max_total, bench.grid_pixels, bench.max_cells) == (None, 240, 32, 256)


def test_own_recipe(tmp_path: Path) -> None:
    text = SMALL + '[question_fields]\nclip = "file"\n'
    recipe = load_recipe(write(tmp_path, text))
    assert recipe.name == "small"
    assert recipe.splits["train"].parts == ["*.tar"]
    assert recipe.question_fields.clip == "file"
    assert recipe.question_fields.answer == "answer"


def test_recipe_brings_its_own_profile(tmp_path: Path) -> None:
    text = SMALL.replace("grasp-train", "slow") + "[profiles.slow]\nmax_fps = 0.5\nmax_total = 64\n"
    recipe = load_recipe(write(tmp_path, text))
    assert recipe.profile("slow") == Profile("slow", max_fps=0.5, max_total=64)
    assert load_profile("slow", recipe) == recipe.profile("slow")


def test_recipe_can_change_a_built_in_profile(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, SMALL + "[profiles.grasp-train]\nmax_total = 64\n"))
    assert recipe.profile("grasp-train").max_total == 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SMALL.replace("parts", "part"), "part"),
        (SMALL + "[question_fields]\nvideo_file = 'x'\n", "video_file"),
        (SMALL.replace('name = "small"', ""), "name"),
        (SMALL.replace('["*.tar"]', '"*.tar"'), r"splits"),
        (SMALL.replace('["*.tar"]', "[1]"), "str"),
        (SMALL + "colour = 'red'\n", "colour"),
        (SMALL.replace("[splits.train]", "[splits.train"), "not TOML"),
        ("\x00", "not TOML"),
        (SMALL.replace("grasp-train", "grasp-trian"), "grasp-trian.*grasp-train, grasp-bench"),
        (SMALL.replace('"grasp-train"', '"own"') + "[profiles.own]\nmax_frames = 3\n", "max_frames.*max_total"),
        (SMALL.replace('"grasp-train"', '"own"') + "[profiles.own]\nmax_total = 0\n", r"max_total \(0\).*≥ 1"),
    ],
)
def test_wrong_recipe_is_a_usage_error(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(UsageError, match=said) as caught:
        load_recipe(file)
    assert caught.value.exit_code == 2


def test_recipe_of_other_bytes_is_a_usage_error(tmp_path: Path) -> None:
    file = tmp_path / "latin.toml"
    file.write_bytes(SMALL.encode() + b"# caf\xe9\n")
    with pytest.raises(UsageError, match=r"latin\.toml is not TOML"):
        load_recipe(str(file))


@pytest.mark.parametrize("name", ["no-such-recipe", "no/such/file.toml", ""])
def test_missing_recipe_names_the_built_in_one(name: str) -> None:
    with pytest.raises(UsageError, match="grasp"):
        load_recipe(name)


def test_profile_from_a_file(tmp_path: Path) -> None:
    recipe = load_recipe("grasp")
    file = write(tmp_path, "max_fps = 1\nmin_frames = 4\nmultiple = 4\n", "slow.toml")
    profile = load_profile(file, recipe)
    assert profile == Profile("slow", max_fps=1.0, min_frames=4, multiple=4, max_total=512)
    assert load_profile(write(tmp_path, "", "empty.toml"), recipe) == Profile("empty")


def test_profile_by_name() -> None:
    assert load_profile("grasp-bench", load_recipe("grasp")) == GRASP_BENCH


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fps = 2\n", "'fps' is not a field.*max_fps"),
        ("max_fps = 0\n", r"max_fps \(0.*\) must be > 0"),
        ("max_fps = -1.5\n", r"max_fps \(-1.5\) must be > 0"),
        ("max_fps = nan\n", "max_fps"),
        ("max_fps = '2'\n", "max_fps"),
        ("max_fps = true\n", "max_fps"),
        ("max_total = -2\n", "max_total"),
        ("max_total = 12.5\n", "max_total"),
        ("multiple = 0\n", "multiple"),
        ("min_frames = 0\n", "min_frames"),
        ("grid_pixels = 0\n", "grid_pixels"),
        ("max_cells = 0\n", "max_cells"),
        ("frames_per_token_row = 0\n", "frames_per_token_row"),
        ("max_fps = \n", "not TOML"),
    ],
)
def test_wrong_profile_is_a_usage_error(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        load_profile(write(tmp_path, text), load_recipe("grasp"))
    assert "own.toml" in str(caught.value)


def test_endless_rate_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="max_fps"):
        load_profile(write(tmp_path, "max_fps = inf\n"), load_recipe("grasp"))


@pytest.mark.parametrize(("name", "said"), [("none.toml", "cannot be read"), ("grasp", "grasp-train, grasp-bench")])
def test_missing_profile_says_what_there_is(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_profile(name, load_recipe("grasp"))
