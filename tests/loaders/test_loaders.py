"""Each snippet of docs/loaders.md gives all views or rows of the tables; energon's own indexes are ours."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from braceexpand import braceexpand

PAGE = (Path(__file__).parents[2] / "docs/loaders.md").read_text(encoding="utf-8")
SNIPPETS = {
    section.split("\n", 1)[0]: section.split("```python\n", 1)[1].split("```", 1)[0]
    for section in PAGE.split("\n## ")[1:]
}


TELL = """
import json
print(json.dumps({name: globals()[name] for name in ("num_frames", "num_examples") if name in globals()}))
"""


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippet(name: str, out: Path, tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(f"OUT = {str(out)!r}\n{SNIPPETS[name]}\n{TELL}", encoding="utf-8")
    run = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, check=True, timeout=90)
    told = json.loads(run.stdout.splitlines()[-1])
    if "num_frames" in told:
        views = pq.read_table(
            out / "current/manifests/views.parquet", filters=[("split", "=", "train")]
        ).to_pylist()
        assert told["num_frames"] == {view["view"]: view["num_frames"] for view in views}
    else:
        examples = pq.read_table(out / "current/manifests/examples.parquet", columns=["stage"])
        assert told["num_examples"] == examples.column("stage").to_pylist().count("rl") > 0


@pytest.mark.parametrize("split", ["train", "test"])
def test_energon_prepare_agrees(split: str, out: Path, tmp_path: Path) -> None:
    ours, theirs = out / "current" / split, tmp_path / split
    theirs.mkdir()
    for shard in ours.glob("*.tar"):
        shutil.copyfile(shard, theirs / shard.name)
    energon = [str(Path(sys.executable).with_name("energon")), "prepare", "--non-interactive", "--no-progress"]
    options = ["--num-workers", "2", "--split-parts", f"{split}:.*", "--sample-type", "CrudeWebdataset"]
    subprocess.run([*energon, *options, str(theirs)], check=True, timeout=120)
    names = {path.relative_to(theirs) for path in theirs.rglob("*") if path.is_file()}
    assert {path.relative_to(ours) for path in ours.rglob("*") if path.is_file()} - names == {Path("wids.json")}
    assert [path for path in ours.glob("*.idx") if path.read_bytes() != (theirs / path.name).read_bytes()] == []
    assert meta(ours) == meta(theirs)


def meta(folder: Path) -> dict[str, Any]:
    """What `.nv-meta` says, without its random id."""
    folder /= ".nv-meta"
    splits = yaml.safe_load((folder / "split.yaml").read_text())
    database = sqlite3.connect(folder / "index.sqlite")
    told = {
        "info": json.loads((folder / ".info.json").read_text()),
        "dataset": yaml.safe_load((folder / "dataset.yaml").read_text()),
        "exclude": splits["exclude"],
        "splits": {
            name: [shard for pattern in patterns for shard in braceexpand(pattern)]
            for name, patterns in splits["split_parts"].items()
        },
        "schema": {
            name: re.sub(r"\s|IFNOTEXISTS", "", sql or "")
            for name, sql in database.execute("SELECT name, sql FROM sqlite_master")
        },
        "samples": sorted(database.execute("SELECT * FROM samples")),
        "sample_parts": sorted(database.execute("SELECT * FROM sample_parts")),
    }
    database.close()
    return told
