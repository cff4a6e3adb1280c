"""`clipshards report`: finds the page of an output, makes it where there is none, opens or serves it."""

from __future__ import annotations

import signal
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clipshards.errors import IncompleteError, UsageError
from clipshards.output import current_snapshot
from clipshards.reader import require_version
from clipshards.report import PAGE, write_page
from flows.reporting import print_totals


def find_page(out: Path, say: Callable[[str], None]) -> Path:
    """The page of the current snapshot. One is made elsewhere for a snapshot without: snapshots do not change.

    Args:
        say: takes a line for the user: that the page was made, and why there.

    Raises:
        UsageError: nothing is published in `out`, or by another version.
        IncompleteError: the page cannot be made of what is there.
    """
    snapshot = current_snapshot(out)
    if (snapshot / PAGE).is_file():
        return snapshot / PAGE
    require_version(snapshot)
    work = out.absolute() / "work"
    page = (work if work.is_dir() else Path(tempfile.mkdtemp(prefix="clipshards-"))) / PAGE
    with _readable(out):
        write_page(snapshot, page)
    say(f"{snapshot} has no page and is not changed: one was made")
    return page


def open_page(url: str) -> None:
    """Open it in the user's browser.

    Raises:
        UsageError: there is none.
    """
    if not webbrowser.open(url):
        raise UsageError(f"no browser can be started here: open {url}")


def serve_page(out: Path, port: int, open_it: bool, as_json: bool) -> None:
    """Serve the page of the current snapshot until the program is interrupted."""
    from clipshards.report.server import PageServer

    snapshot = current_snapshot(out)
    require_version(snapshot)
    with _readable(out):
        page_server = PageServer(snapshot, port=port)
    with page_server as server:
        print_place(server.url, as_json)
        if open_it:
            open_page(server.url)
        signal.pause()


def print_place(place: str, as_json: bool) -> None:
    """Where the page is, alone on stdout: for `$(clipshards report OUT)`."""
    if as_json:
        print_totals({"page": place}, as_json)
    else:
        print(place)
    sys.stdout.flush()


@contextmanager
def _readable(out: Path) -> Iterator[None]:
    """A snapshot of which something is missing or damaged ends the command with a sentence."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise IncompleteError(
            f"the page cannot be made ({error}): run `clipshards verify {out} --repair`"
        ) from None
