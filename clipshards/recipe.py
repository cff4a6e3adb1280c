"""A data set's layout as data: which files are parts, which hold rows, which field means what."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from clipshards.errors import UsageError
from clipshards.sampling import GRASP_BENCH, GRASP_TRAIN, Profile

PROFILES = {profile.name: profile for profile in (GRASP_TRAIN, GRASP_BENCH)}


class Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One split of the data set; patterns are fnmatch patterns on the paths of the source."""

    parts: list[str]
    profile: str
    questions: list[str] = []
    examples: dict[str, list[str]] = {}
    """stage (sft, rl) → files with one training example a line."""
    examples_format: Literal["specs", "conversations"] = "specs"
    """How a training example is written; see the modules `examples` and `conversations`."""
    item_folder: str = ""
    """Folder inside a part whose JSON members are bench items."""
    clip_folder: str = ""
    """Folder inside a part that paths of items and rows may leave out."""


class QuestionFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of the fields of an annotation row."""

    id: str = "id"
    clip: str = "video"
    source: str = "source"
    category: str = "category"
    difficulty: str = "difficulty"
    format: str = "format"
    question: str = "question"
    options: str = "options"
    answer: str = "answer"
    response: str = "response"


class ConversationFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of the fields and words of a conversation; see the module `conversations`."""

    clip: str = "video"
    turns: str = "conversations"
    speaker: str = "from"
    text: str = "value"
    user: str = "human"
    assistant: str = "gpt"
    markers: tuple[str, ...] = ("<image>", "<video>")
    """Words of which one stands once in the text of the user, where the video comes."""


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a data set keeps what; see `recipes/grasp.toml`."""

    name: str
    splits: dict[str, Split]
    repo: str = ""
    licence: str = ""
    question_fields: QuestionFields = QuestionFields()
    conversation_fields: ConversationFields = ConversationFields()
    multiple_choice_formats: tuple[str, ...] = ("mcq",)
    canonical_categories: dict[str, str] = {}
    profiles: dict[str, dict[str, str | int | float | None]] = {}

    def profile(self, name: str) -> Profile:
        """The profile of that name: of this recipe, else a built-in one.

        Raises:
            UsageError: when there is none, or its values are wrong.
        """
        if name in self.profiles:
            return _make_profile({"name": name, **self.profiles[name]}, f"recipe {self.name}")
        if name in PROFILES:
            return PROFILES[name]
        known = ", ".join([*PROFILES, *self.profiles])
        raise UsageError(f"profile ({name!r}) must be a TOML file or one of: {known}")


def load_recipe(name_or_file: str) -> Recipe:
    """Read a recipe by the name of a built-in one, or from a TOML file.

    Raises:
        UsageError: no such recipe, not TOML, or a field that is missing, unknown or of the wrong type.
    """
    file = _built_in(name_or_file)
    if not file.is_file():
        file = Path(name_or_file)
    table = _read_toml(file, what="recipe", hint="name a TOML file, or the built-in recipe 'grasp'")
    try:
        recipe = msgspec.convert(table, Recipe)
    except msgspec.ValidationError as error:
        raise UsageError(f"recipe {file}: {error}") from None
    for split in recipe.splits.values():
        recipe.profile(split.profile)
    return recipe


def load_profile(name_or_file: str, recipe: Recipe) -> Profile:
    """The profile that the user named: one of the recipe's, a built-in one, or a TOML file.

    A TOML file sets fields of `sampling.Profile`: max_fps, max_total, min_frames, multiple, grid_pixels,
    max_cells, frames_per_token_row; what it leaves out is as in grasp-train.

    Raises:
        UsageError: no such profile, or a value that is unknown or out of range.
    """
    if not name_or_file.endswith(".toml"):
        return recipe.profile(name_or_file)
    file = Path(name_or_file)
    table = _read_toml(file, what="profile", hint="name a TOML file")
    return _make_profile({"name": file.stem, **table}, str(file))


def _built_in(name: str) -> Path:
    here = Path(__file__).parent
    folder = here / "recipes" if (here / "recipes").is_dir() else here.parent / "recipes"
    return folder / f"{name}.toml"


def _read_toml(file: Path, *, what: str, hint: str) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{what} ({str(file)!r}) cannot be read ({error.strerror}): {hint}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{what} {file} is not TOML: {error}") from None


def _make_profile(values: dict[str, object], where: str) -> Profile:
    unknown = values.keys() - Profile.__dataclass_fields__.keys()
    if unknown:
        known = ", ".join(Profile.__dataclass_fields__)
        raise UsageError(f"profile of {where}: {sorted(unknown)[0]!r} is not a field; fields are {known}")
    try:
        profile = msgspec.convert(values, Profile)
    except msgspec.ValidationError as error:
        raise UsageError(f"profile of {where}: {error}") from None
    for field in ("min_frames", "multiple", "max_total", "grid_pixels", "max_cells", "frames_per_token_row"):
        if getattr(profile, field) < 1:
            raise UsageError(f"profile of {where}: {field} ({getattr(profile, field)}) must be ≥ 1")
    if profile.max_fps is not None and not 0 < profile.max_fps < math.inf:
        raise UsageError(f"profile of {where}: max_fps ({profile.max_fps}) must be > 0 and finite")
    return profile
