"""Run a folder of cases through the product and compare each answer with what is right.

    FOLDER/<ID>/input.json      {"operation": …, its parameters and input files}
    FOLDER/<ID>/expected.json   what is right; `alternatives_ok`: other answers that are right as well

The operations are in `case_operations`; they call the product and say what came out in the words of the cases.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from scripts.case_operations import OPERATIONS, THEIR_WORDS, Case
from scripts.case_runs import RUNS

FACTS = {
    "id", "kind", "why", "from_reports", "readers_seen", "policy", "alternatives_ok", "right", "rule", "rules",
    "must_not", "note", "patch", "tolerance", "flags", "retry", "not_done", "header_frames", "declared_frames",
    "decord_says", "decord_random_access_gives", "decodable_from", "requested_end_seconds",
    "stderr_bytes_default_log", "redacted_hash", "sizes_equal",
}  # fmt: skip
"""What a case tells of itself, or says in prose: nothing to compare."""


def main() -> int:
    """Command line: FOLDER [ID…]; exit 0 when all are right, 1 when not, 2 for a mistake in the call."""
    parser = argparse.ArgumentParser(prog="scripts/cases", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("ids", nargs="*", help="only these")
    arguments = parser.parse_args()
    folders = {path.parent.name: path.parent for path in sorted(arguments.folder.glob("*/input.json"))}
    if not folders:
        parser.error(f"FOLDER ({str(arguments.folder)!r}) holds no case: no */input.json")
    if unknown := [name for name in arguments.ids if name not in folders]:
        parser.error(f"no case {', '.join(unknown)} in {arguments.folder}")
    wanted = arguments.ids or list(folders)
    num_right = 0
    for name in wanted:
        problems = run_case(folders[name])
        num_right += not problems
        print(f"{name} wrong: {'; '.join(problems)}" if problems else f"{name} right", flush=True)
    print(f"{num_right} right of {len(wanted)}")
    return int(num_right < len(wanted))


def run_case(folder: Path) -> list[str]:
    """What is wrong with the product's answer to a case; nothing when it is right."""
    given, expected = (json.loads((folder / f"{name}.json").read_text()) for name in ("input", "expected"))
    operation = (OPERATIONS | RUNS).get(given["operation"])
    if operation is None:
        return [f"no operation {given['operation']!r}"]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        try:
            answer = operation(Case(folder, given, expected, Path(work)))
        except Exception:  # noqa: BLE001  a crash of the product is the finding: it is printed, and the case is wrong
            return [f"raised {traceback.format_exc(limit=-3)}"]
    answer["must_finish_within_s"] = time.monotonic() - started
    problems = list(differences(expected, answer))
    return [] if not problems or any(_is_alternative(a, answer) for a in _alternatives(expected)) else problems


def _alternatives(expected: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = list(expected.get("alternatives_ok", ()))
    # The one policy that no case spells out: a picture that the trainer's grid cannot hold is rejected.
    if expected.get("policy") and min(expected.get("display_size", [math.inf])) < 32:
        found.append({"status": "quarantined", "reason_kind": "frame-too-small"})
    return found


def _is_alternative(alternative: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    """Whether the answer is the other one that is right; one told in prose alone must have left its mark."""
    checked = {key: value for key, value in alternative.items() if key not in FACTS and key in answer}
    is_recorded = bool(answer.get("warnings") or answer.get("reason_kind") or answer.get("quarantined"))
    return bool(checked) and is_recorded and not list(differences(checked, answer))


def differences(expected: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[str]:
    """Compare what is expected with what came out, a sentence for each difference."""
    for key, value in expected.items():
        if key in FACTS:
            continue
        if key not in answer:
            yield f"{key}: the answer does not say"
            continue
        compare = _COMPARE.get(key, _same)
        if key == "rgb_patches":
            compare = partial(_near, tolerance=expected["tolerance"])
        if not compare(value, answer[key]):
            yield f"{key}: {_short(answer[key])}, right is {_short(value)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _same(expected: Any, got: Any) -> bool:
    """Equal, with floats to six digits, words by the table, and dictionaries as far as the case names keys."""
    if isinstance(expected, dict) and isinstance(got, dict):
        return not list(differences(expected, got))
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(map(_same, expected, got))
    if isinstance(expected, float) or isinstance(got, float):
        return isinstance(got, (int, float)) and math.isclose(expected, got, rel_tol=1e-6)
    if isinstance(expected, str) and isinstance(got, str):
        return same_word(expected, got)
    return type(expected) is type(got) and bool(expected == got)


def same_word(theirs: str, ours: str) -> bool:
    """Whether a word of the cases and one of ours mean the same; `word:field` also wants the field named."""
    word, _, where = theirs.partition(":")
    our_word, _, detail = ours.partition(": ")
    return our_word in (theirs, word, *THEIR_WORDS.get(word, ())) and where in detail


def _at_least(expected: float, got: float) -> bool:
    return got >= expected


def _between(expected: list[float], got: float) -> bool:
    return expected[0] <= got <= expected[1]


def _within(expected: float, got: float) -> bool:
    return got <= expected


def _same_set(expected: list[Any], got: list[Any]) -> bool:
    return len(expected) == len(got) and all(any(_same(e, g) for g in got) for e in expected)


def _holds(expected: list[Any], got: list[Any]) -> bool:
    return all(any(_same(e, g) for g in got) for e in expected)


def _near(expected: list[list[int]], got: list[list[float]], tolerance: float) -> bool:
    pairs = zip(chain(*expected), chain(*got), strict=True)
    return all(abs(wanted - level) <= tolerance for wanted, level in pairs)


def _is_among(expected: str, got: list[str]) -> bool:
    return any(_same(expected, word) for word in got)


def _same_keys(expected: dict[str, Any], got: dict[str, Any]) -> bool:
    return set(expected) == set(got)


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "must_finish_within_s": _within,
    "decodable_frames_between": _between,
    "decodable_clean_prefix_at_least": _at_least,
    "waits_at_least_s": _at_least,
    "warnings": _holds,
    "rows": _same_set,
    "differs": _same_keys,
    "note_kind": _is_among,
}

if __name__ == "__main__":
    sys.exit(main())
