"""Facts, pictures and examples → one HTML file.

What the data set says is untrusted: the template escapes it, the script shows it as text only, and the page's
policy runs no script and no style but the two that are inlined here, named by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from clipshards.disk import format_bytes
from clipshards.output import read_dataset
from clipshards.report import RUN
from clipshards.report.explorer import Explorer, Json, Thumbnails, to_json
from clipshards.report.facts import NO_NAME, Facts, read_facts
from clipshards.report.pictures import draw_pictures
from clipshards.schema import REASONS, WARNINGS
from clipshards.score import GROUPS

MAX_EXAMPLES_BYTES = 4_500_000
"""Of the examples in the file, which has to stay below 8 MB with the rest."""
MIN_EXAMPLES = 96
"""Examples in the file when there are so many and fewer combinations."""
MAX_EMBEDDED_PIXELS = 16_000_000
"""Of all frames in the file: a JPEG of that size and quality takes 0.15 to 0.25 bytes a pixel."""
MAX_QUARANTINE_ROWS = 1000
MAX_INPUTS = 500
MAX_CELL = 160
"""Characters of a cell of the quarantine."""
MAX_CAUSES, MAX_NAMES = 12, 3
"""Causes at the top of the page, and names of each."""

_FOLDER = Path(__file__).parent
_THUMBNAILS = [
    Thumbnails(8, 192),
    Thumbnails(6, 160),
    Thumbnails(5, 128),
    Thumbnails(4, 112),
    Thumbnails(3, 96, 50),
]
"""From few views to many."""


def render(snapshot: Path) -> str:
    """The page as one file: a sample of the examples is in it, one of each combination first."""
    explorer = Explorer(snapshot)
    rows = explorer.sample(MIN_EXAMPLES)
    return _render(snapshot, explorer, explorer.show(rows, _thumbnails(explorer, rows), MAX_EXAMPLES_BYTES))


def render_served(snapshot: Path, explorer: Explorer) -> str:
    """The page with no examples in it: its script asks the server that it came from."""
    return _render(snapshot, explorer, None)


def policy(*, served: bool) -> str:
    """The Content-Security-Policy of the page."""
    hashes = [f"'sha256-{_hash(_asset(name))}'" for name in ("page.js", "page.css")]
    asks = "; connect-src 'self'" if served else ""
    return (
        f"default-src 'none'; script-src {hashes[0]}; style-src {hashes[1]}; img-src data:; base-uri 'none'; "
        f"form-action 'none'{asks}"
    )


def _thumbnails(explorer: Explorer, rows: list[int]) -> Thumbnails:
    """The largest that leave room for all views."""
    num_views = len(pc.unique(explorer.table["view"].take(pa.array(rows, pa.int64()))))
    fitting = (some for some in _THUMBNAILS if num_views * some.count * some.width**2 < MAX_EMBEDDED_PIXELS)
    return next(fitting, _THUMBNAILS[-1])


def _render(snapshot: Path, explorer: Explorer, embedded: Json | None) -> str:
    num_embedded = len(embedded["examples"]) if embedded else 0
    num_left_out = max(0, explorer.num_combinations() - num_embedded)
    data = {
        "mode": "file" if embedded else "server",
        "is_sample": 0 < num_embedded < explorer.table.num_rows,
        "lacks_some": bool(embedded) and num_left_out > 0,
        **(embedded or {}),
    }
    dataset = read_dataset(snapshot)
    run = _read_run(snapshot)
    facts = read_facts(snapshot)
    return _template().render(
        policy=policy(served=embedded is None),
        style=Markup(_asset("page.css")),
        script=Markup(_asset("page.js")),
        data=Markup(to_json(data)),
        dataset=dataset,
        counts=dataset["counts"],
        source=_name_of_source(dataset),
        is_folder=not dataset["source"].startswith("hf://"),
        run=run,
        facts=facts,
        hours=float(facts.clip_seconds.sum() / 3600),
        pictures=draw_pictures(facts, run.get("stages", {})),
        quarantine=_quarantine_rows(facts),
        inputs=[
            (name, f"{of['size_bytes']:,}", of["hash"])
            for name, of in islice(dataset["inputs"].items(), MAX_INPUTS)
        ],
        is_served=embedded is None,
        num_embedded=num_embedded,
        num_left_out=num_left_out,
        num_examples=explorer.table.num_rows,
        choices=explorer.choices,
        groups=GROUPS,
        max_causes=MAX_CAUSES,
        max_names=MAX_NAMES,
        no_name=NO_NAME,
        REASONS=REASONS,
        WARNINGS=WARNINGS,
    )


def _read_run(snapshot: Path) -> dict[str, Any]:
    """The record of the run; a snapshot of an older version has none."""
    path = snapshot / RUN
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _name_of_source(dataset: dict[str, Any]) -> str:
    """A folder is named without the folders above it: they say where somebody works."""
    source = dataset["source"]
    return source if source.startswith("hf://") else f"{dataset['recipe']} from the folder “{Path(source).name}”"


def _quarantine_rows(facts: Facts) -> list[dict[str, Any]]:
    return [
        {name: _cell(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in facts.quarantine.slice(0, MAX_QUARANTINE_ROWS).to_pylist()
    ]


def _cell(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…"


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True,
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"size": format_bytes, "number": lambda value: f"{value:,}"}
    return environment.get_template("page.html.jinja")


@cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
