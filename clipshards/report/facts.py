"""What the page says in numbers: a few passes over narrow columns, none over rows. Pure, but for the reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clipshards.output import read_dataset

LETTERS = "ABCDEFGH"
NO_NAME = "(none)"
"""Stands for a source, category, difficulty or format that a row does not name."""

MAX_GROUPS = 24
"""Most bars of a picture; the rest is one bar."""

MIN_ANSWERS = 20
"""Fewer say nothing of their balance."""

DIFFICULTIES = ("easy", "medium", "hard")
"""In this order, before others by name."""

_MEDIA = ("part", "member", "clip", "view")


@dataclass(frozen=True, slots=True)
class Group:
    """Examples that have a source, category, difficulty or format in common."""

    name: str
    clips: int
    """Different clips that they show."""
    hours: float
    """Of these clips."""
    examples: int
    """Training lines."""
    items: int
    """Of the benchmark."""


@dataclass(frozen=True, slots=True)
class Balance:
    """How often each letter is the answer to a multiple-choice question."""

    letters: str
    counts: tuple[int, ...]
    expected: tuple[float, ...]
    """By chance, given how many options each question has."""

    @property
    def total(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class Facts:
    """All numbers of the pictures and of the head of the page."""

    groups: Mapping[str, list[Group]]
    """By source, category, difficulty and format."""
    clip_seconds: npt.NDArray[np.float64]
    """[clips with frames]."""
    clip_bytes: npt.NDArray[np.int64]
    frames: npt.NDArray[np.int32]
    """[views], stored frames of each."""
    pictures: list[tuple[str, int]]
    """(width × height, views), the most frequent first."""
    balances: Mapping[str, Balance]
    """Of the training rows and of the benchmark."""
    reasons: list[tuple[str, int, int, int]]
    """(reason, parts and clips and views, rows and items, examples), the most frequent first."""
    quarantine: pa.Table
    """Causes first, then what is lost only because its clip is."""
    num_causes: int
    failed_clips: list[tuple[str, int]]
    """(reason, clips), the most frequent first."""


def read_facts(snapshot: Path) -> Facts:
    """Read the tables of a snapshot and count."""
    counts = read_dataset(snapshot)["counts"]
    clips = _read(snapshot, "clips", ["split", "clip", "status", "duration_seconds", "size_bytes"])
    views = _read(snapshot, "views", ["num_frames", "height", "width"])
    asked = ["split", "clip", "source", "difficulty", "format"]
    examples = _read(snapshot, "examples", [*asked, "category"])
    bench = _read(snapshot, "bench", [*asked, "category_canonical", "answer_index", "options"])
    questions = _read(snapshot, "questions", ["split", "answer_index", "options"])
    quarantine = _read(snapshot, "quarantine", None)
    sharded = clips.filter(pc.equal(clips["status"], "sharded"))
    rows = _rows(examples, bench, clips)
    ordered, num_causes = _causes_first(quarantine)
    is_bench = pc.is_in(questions["split"], pc.unique(bench["split"]))
    return Facts(
        groups={field: _groups(rows, field) for field in ("source", "category", "difficulty", "format")},
        clip_seconds=_numbers(sharded["duration_seconds"]),
        clip_bytes=_numbers(sharded["size_bytes"]),
        frames=_numbers(views["num_frames"]),
        pictures=_picture_sizes(views),
        balances={
            "training rows": count_letters(questions.filter(pc.invert(is_bench))),
            "benchmark": count_letters(bench),
        },
        reasons=_reasons(quarantine),
        quarantine=ordered,
        num_causes=num_causes,
        failed_clips=_failed_clips(quarantine, counts["rejected_clips"]),
    )


def _read(snapshot: Path, name: str, columns: list[str] | None) -> pa.Table:
    return pq.read_table(snapshot / "manifests" / f"{name}.parquet", columns=columns)


def _numbers(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    return np.asarray(column.drop_null().to_numpy())


# -- groups


def _rows(examples: pa.Table, bench: pa.Table, clips: pa.Table) -> pa.Table:
    """Training lines and items together, each with the number and the hours of its clip."""
    renamed = bench.drop_columns(["answer_index", "options"]).rename_columns(
        ["category" if name == "category_canonical" else name for name in bench.column_names[:-2]]
    )
    rows = pa.concat_tables([examples.select(renamed.column_names), renamed])
    is_item = np.arange(rows.num_rows) >= examples.num_rows
    number = pc.index_in(_clip_key(rows), _clip_key(clips).combine_chunks())
    hours = pc.divide(clips["duration_seconds"].take(number), 3600.0)
    return rows.append_column("is_item", pa.array(is_item)).append_column("number", number).append_column(
        "hours", hours
    )  # fmt: skip


def _clip_key(table: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(table["split"], table["clip"], "\n")


def _groups(rows: pa.Table, field: str) -> list[Group]:
    """The largest `MAX_GROUPS` in the order of their names, and the rest as one."""
    names = pc.fill_null(rows[field], NO_NAME)
    table = rows.select(["is_item", "number", "hours"]).append_column("name", names)
    shown = pc.value_counts(names).to_pylist()
    ranked = [entry["values"] for entry in sorted(shown, key=lambda entry: (-entry["counts"], entry["values"]))]
    if rest := ranked[MAX_GROUPS:]:
        others = f"{len(rest):,} others"
        is_rest = pc.is_in(names, pa.array(rest))
        table = table.set_column(3, "name", pc.if_else(is_rest, others, names))
        ranked = [*sorted(ranked[:MAX_GROUPS], key=rank), others]
    else:
        ranked.sort(key=rank)
    counts = {
        (row["name"], row["is_item"]): row["is_item_count"]
        for row in table.group_by(["name", "is_item"]).aggregate([("is_item", "count")]).to_pylist()
    }
    clips = table.group_by(["name", "number"]).aggregate([("hours", "min")])
    sums = {
        row["name"]: row
        for row in clips.group_by("name").aggregate([("hours_min", "sum"), ("number", "count")]).to_pylist()
    }
    return [
        Group(
            name, sums[name]["number_count"], sums[name]["hours_min_sum"] or 0.0,
            counts.get((name, False), 0), counts.get((name, True), 0),
        )
        for name in ranked
    ]  # fmt: skip


def rank(name: str) -> tuple[int, str]:
    """For sorting the names of groups."""
    return DIFFICULTIES.index(name) if name in DIFFICULTIES else len(DIFFICULTIES), name


def _picture_sizes(views: pa.Table) -> list[tuple[str, int]]:
    counted = views.group_by(["width", "height"]).aggregate([("num_frames", "count")]).to_pylist()
    counted.sort(key=lambda row: (-row["num_frames_count"], row["width"], row["height"]))
    sizes = [(f"{row['width']} × {row['height']}", row["num_frames_count"]) for row in counted]
    rest = sizes[12:]
    return [*sizes[:12], (f"{len(rest):,} others", sum(count for _, count in rest))] if rest else sizes


# -- answers


def count_letters(questions: pa.Table) -> Balance:
    """Letters of the answers to the questions that have options and an answer among them.

    Args:
        questions: with the columns answer_index and options.
    """
    sizes = pc.list_value_length(questions["options"])
    chosen = questions.filter(pc.and_(pc.greater(sizes, 1), pc.is_valid(questions["answer_index"])))
    num_options = _numbers(pc.list_value_length(chosen["options"]))
    answers = _numbers(chosen["answer_index"])
    letters = LETTERS[: max(4, int(num_options.max(initial=0)))]
    counts = np.bincount(answers, minlength=len(letters))[: len(letters)]
    expected = [float(np.sum(1.0 / num_options[num_options > place])) for place in range(len(letters))]
    return Balance(letters, tuple(int(count) for count in counts), tuple(expected))


def describe_balance(balance: Balance) -> str:
    """Balanced, or the letter that stands out most, in a plain sentence.

    A letter stands out when it is off by more than three standard errors of chance and by more than two points.
    """
    if balance.total < MIN_ANSWERS:
        few = f"{balance.total} answers are too few to tell whether they are balanced."
        return few if balance.total else "No multiple-choice answers."
    worst, most = "", 0.0
    for letter, count, expected in zip(balance.letters, balance.counts, balance.expected, strict=True):
        share = expected / balance.total
        error = (share * (1 - share) / balance.total) ** 0.5
        off = abs(count / balance.total - share)
        if off > max(3 * error, 0.02, most):
            worst, most = (
                f"{letter} is right {count / balance.total:.0%} of the time, chance gives {share:.0%}",
                off,
            )
    return f"Not balanced: {worst}." if worst else f"Balanced: no letter of {balance.total:,} answers stands out."


# -- the quarantine


def _reasons(quarantine: pa.Table) -> list[tuple[str, int, int, int]]:
    counted = quarantine.group_by(["reason", "kind"]).aggregate([("kind", "count")]).to_pylist()
    table: dict[str, list[int]] = {}
    for row in counted:
        place = 2 if row["kind"] == "example" else 1 if row["kind"] in ("row", "item") else 0
        table.setdefault(row["reason"], [0, 0, 0])[place] += row["kind_count"]
    ranked = sorted(table.items(), key=lambda entry: (-sum(entry[1]), entry[0]))
    return [(reason, *counts) for reason, counts in ranked]  # type: ignore[misc]


def _failed_clips(quarantine: pa.Table, num_failed: int) -> list[tuple[str, int]]:
    """Clips that gave no frames; those that are not of a kind of their own were named by rows and never seen."""
    lost = quarantine.filter(pc.equal(quarantine["kind"], "clip"))
    counts = [(row["values"], row["counts"]) for row in pc.value_counts(lost["reason"]).to_pylist()]
    if (missing := num_failed - lost.num_rows) > 0:
        counts.append(("clip-missing", missing))
    return sorted(counts, key=lambda entry: (-entry[1], entry[0]))


def _causes_first(quarantine: pa.Table) -> tuple[pa.Table, int]:
    """Sorted, and how many of the rows are causes: not lost only because their clip is."""
    is_media = pc.is_in(quarantine["kind"], pa.array(_MEDIA))
    lost = pc.unique(quarantine["clip"].filter(is_media)).drop_null()
    is_cause = pc.or_(is_media, pc.invert(pc.is_in(quarantine["clip"], lost)))
    ranked = quarantine.append_column("is_consequence", pc.invert(is_cause))
    order = pc.sort_indices(
        ranked, [(name, "ascending") for name in ("is_consequence", "reason", "path", "line", "member")]
    )
    return quarantine.take(order), pc.sum(is_cause).as_py() or 0
