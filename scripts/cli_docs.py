"""docs/cli.md from the commands' own help; which there are, the program says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from flows.cli import app

ROOT = Path(__file__).parents[1]


def commands(command: Any = None, *names: str) -> Iterator[tuple[str, ...]]:
    """The words of each command that does something, those of groups included."""
    command = command or typer.main.get_command(app)
    if not (inner := getattr(command, "commands", {})):
        yield names
    for name, found in inner.items():
        yield from commands(found, *names, name)


def help_of(*names: str) -> str:
    """What `clipshards NAMES --help` prints."""
    done = CliRunner().invoke(app, [*names, "--help"], prog_name="clipshards", terminal_width=78)
    lines = "\n".join(line.rstrip() for line in done.output.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).rstrip("\n")


def page() -> str:
    """All of it as Markdown."""
    sections = [f"## clipshards {' '.join(names)}\n\n```\n{help_of(*names)}\n```\n" for names in commands()]
    return "\n".join(["# Commands\n\nMade by `scripts/cli-docs`.\n", *sections])


def main() -> None:
    """Write the page to the file that is named, default docs/cli.md."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/cli.md"
    target.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
