"""What `score` does: answers from a file, the bench from a snapshot, a table and a JSON file of accuracies."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from clipshards.errors import UsageError
from clipshards.output import current_snapshot
from clipshards.score import Accuracy, read_answers, score

Scores = dict[str, dict[str, Accuracy]]

_COLUMNS = ["id", "category", "category_canonical", "difficulty", "answer", "answer_index"]


def score_file(predictions: Path, out: Path, target: Path, as_json: bool) -> Scores:
    """Score PREDICTIONS on the bench of OUT, write the JSON to `target` and print it or a table.

    Raises:
        UsageError: nothing to score with, or predictions that are not of this bench.
    """
    bench = pq.read_table(current_snapshot(out) / "manifests" / "bench.parquet", columns=_COLUMNS).to_pylist()
    if not bench:
        raise UsageError(f"{out} holds no bench items: prepare it with the parts of the test split")
    scores = score(read_answers(predictions, bench), bench)
    content = {kind: {name: a.to_json() for name, a in by_name.items()} for kind, by_name in scores.items()}
    target.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if as_json:
        print(json.dumps({"event": "score", **content}))
    else:
        _print(scores, target)
    return scores


def _print(scores: Scores, target: Path) -> None:
    table = Table("", "", "accuracy", "95 %", "items", "missing", "unparsable")
    for kind, by_name in scores.items():
        for name, found in by_name.items():
            low, high = found.interval
            counts = map(str, (found.items, found.missing, found.unparsable))
            table.add_row(kind, name, f"{found.share:.1%}", f"{low:.1%} – {high:.1%}", *counts)
    console = Console(soft_wrap=True)
    console.print(table)
    console.print(f"written to {target}")
