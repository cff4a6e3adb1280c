"""A data set's layout as data: which files are parts, which hold rows, which field means what."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from clipshards.errors import UsageError
from clipshards.sampling import GRASP_BENCH, GRASP_TRAIN, Profile

_RESERVED = ("manifests", "bench")
"""The folder of the tables, and the word by which a reader asks for bench items."""

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
            return _make_profile({"name": name, **self.profiles[name]}, f"profiles.{name}")
        if name in PROFILES:
            return PROFILES[name]
        known = ", ".join([*PROFILES, *self.profiles])
        raise UsageError(f"profile ({name!r}) must be a TOML file or one of: {known}")


def load_recipe(name_or_file: str) -> Recipe:
    """Read a recipe by the name of a built-in one, or from a TOML file.

    Raises:
        UsageError: no such recipe, not TOML, or a mistake in it: the first one is named.
    """
    file, table = read_recipe(name_or_file)
    if mistakes := find_mistakes(table):
        others = f" (and {len(mistakes) - 1} more: clipshards recipe check {file})" if mistakes[1:] else ""
        raise UsageError(f"recipe {file}: {mistakes[0]}{others}")
    return msgspec.convert(table, Recipe)


def read_recipe(name_or_file: str) -> tuple[Path, dict[str, Any]]:
    """The file of a recipe and what it says, not checked yet.

    Raises:
        UsageError: no such recipe, or not TOML.
    """
    folder = _built_in_folder()
    file = folder / f"{name_or_file}.toml"
    if not file.is_file():
        file = Path(name_or_file)
    known = ", ".join(sorted(path.stem for path in folder.glob("*.toml")))
    return file, _read_toml(file, what="recipe", hint=f"name a TOML file, or a built-in recipe: {known}")


def find_mistakes(table: dict[str, Any]) -> list[str]:
    """All that is wrong with a recipe: "place: what, and which rule" each; [] when it is right."""
    mistakes = _mistakes_of(table, Recipe, "")
    profiles, splits = (_table(table.get(name)) for name in ("profiles", "splits"))
    for name, values in profiles.items():
        try:
            _make_profile({"name": name, **_table(values)}, f"profiles.{name}")
        except UsageError as error:
            mistakes.append(str(error))
    if table.get("splits") == {}:
        mistakes.append("splits: must name at least one split")
    for name, values in splits.items():
        stand_in = {"parts": ["*"], "profile": GRASP_TRAIN.name}
        split = msgspec.convert({**stand_in, **_right_fields(values, Split)}, Split)
        mistakes += _mistakes_of_split(split, f"splits.{name}", profiles)
    return mistakes + _mistakes_of_words(table.get("conversation_fields"))


def _mistakes_of(value: Any, kind: Any, place: str) -> list[str]:
    """Fields that are unknown, missing or of the wrong type, down to each value."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        if not isinstance(value, dict):
            return [f"{place}: must be a table with {', '.join(fields)}"]
        found = [_unknown(f"{place}.{key}".strip("."), key, fields) for key in value if key not in fields]
        for name, field in fields.items():
            if name in value:
                found += _mistakes_of(value[name], field.type, f"{place}.{name}".strip("."))
            elif field.required:
                found.append(f"{place or 'the recipe'}: the field {name!r} is missing")
        return found
    if get_origin(kind) is dict and isinstance(value, dict):
        inner = get_args(kind)[1]
        return [words for key in value for words in _mistakes_of(value[key], inner, f"{place}.{key}")]
    if get_origin(kind) is Literal and value not in get_args(kind):
        return [f"{place}: {value!r} must be one of {', '.join(get_args(kind))}"]
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return [f"{place}: {error}".replace(" - at `$", " at `")]
    return []


def _right_fields(values: Any, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of a table that are known and of the right type: the others are named already."""
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    named = _table(values).items()
    return {name: value for name, value in named if name in types and not _mistakes_of(value, types[name], "")}


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _mistakes_of_words(fields: Any) -> list[str]:
    words = msgspec.convert(_right_fields(fields, ConversationFields), ConversationFields)
    place = "conversation_fields"
    found = [] if words.markers and all(words.markers) else [f"{place}.markers: must be words, at least one"]
    return found + (
        [f"{place}: user and assistant are both {words.user!r}"] if words.user == words.assistant else []
    )


def _unknown(place: str, key: str, known: Iterable[str]) -> str:
    alike = difflib.get_close_matches(key, known, n=1)
    return f"{place}: no such field; " + (f"{alike[0]!r} is meant?" if alike else f"fields are {', '.join(known)}")


def _mistakes_of_split(split: Split, place: str, own_profiles: Iterable[str]) -> list[str]:
    found = [] if split.parts else [f"{place}.parts: must hold at least one pattern"]
    name = place.partition(".")[2]
    if not re.fullmatch(r"\w[\w-]*", name) or name in _RESERVED:
        found.append(
            f"{place}: a split is a folder of the output: letters, digits, '_', '-', not {' or '.join(_RESERVED)}"
        )
    patterns = {"parts": split.parts, "questions": split.questions}
    patterns |= {f"examples.{stage}": of_stage for stage, of_stage in split.examples.items()}
    for field, of_field in patterns.items():
        found += [
            f"{place}.{field}: {pattern!r} can match nothing: {why}"
            for pattern in of_field
            if (why := _why_nothing(pattern))
        ]
    for field in ("item_folder", "clip_folder"):
        folder = getattr(split, field)
        if folder and (not folder.endswith("/") or _why_nothing(folder.rstrip("/"))):
            found.append(
                f"{place}.{field}: {folder!r} must be a folder in a part, relative and with '/' at its end"
            )
    if split.profile not in {*PROFILES, *own_profiles}:
        found.append(f"{place}.profile: {split.profile!r} must be one of {', '.join([*PROFILES, *own_profiles])}")
    elif (
        split.profile == GRASP_BENCH.name not in own_profiles
        and split.examples_format == "specs"
        and split.examples
    ):
        found.append(f"{place}.profile: {split.profile!r} is for whole clips, and specs show windows of clips")
    return found


def _why_nothing(pattern: str) -> str:
    """Why no path of a source can match a pattern, "" when one can."""
    if not pattern:
        return "it is empty"
    if "\\" in pattern or pattern.startswith("/") or "//" in pattern or {".", ".."} & {*pattern.split("/")}:
        return "paths are relative to the root of the source, as in 'folder/part.tar'"
    return "it names a folder, add '*'" if pattern.endswith("/") else ""


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
    return _make_profile({"name": file.stem, **table}, f"profile {file}")


def _built_in_folder() -> Path:
    here = Path(__file__).parent
    return here / "recipes" if (here / "recipes").is_dir() else here.parent / "recipes"


def _read_toml(file: Path, *, what: str, hint: str) -> dict[str, Any]:
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
        raise UsageError(f"{where}: {sorted(unknown)[0]!r} is not a field; fields are {known}")
    try:
        profile = msgspec.convert(values, Profile)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {error}") from None
    for field in ("min_frames", "multiple", "max_total", "grid_pixels", "max_cells", "frames_per_token_row"):
        if getattr(profile, field) < 1:
            raise UsageError(f"{where}: {field} ({getattr(profile, field)}) must be ≥ 1")
    if profile.max_fps is not None and not 0 < profile.max_fps < math.inf:
        raise UsageError(f"{where}: max_fps ({profile.max_fps}) must be > 0 and finite")
    return profile
